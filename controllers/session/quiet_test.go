//go:build envtest

package session

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/controllers/budget"
	"github.com/undersong-dev/undersong/controllers/memoryblock"
	"github.com/undersong-dev/undersong/controllers/teammemory"
	"github.com/undersong-dev/undersong/controllers/workstation"
	"github.com/undersong-dev/undersong/test/kube"
)

// subject is one object and who looks after it.
type subject struct {
	object   client.Object
	key      types.NamespacedName
	r        reconcile.Reconciler
	recorder *events.FakeRecorder
}

// subjects are one of each kind, with reconcilers of a process that has just
// begun.
func (w *world) subjects() map[string]*subject {
	w.restart()
	in := func(name string) types.NamespacedName {
		return types.NamespacedName{Namespace: w.namespace, Name: name}
	}
	all := map[string]*subject{
		"Session":     {object: &v1alpha1.Session{}, key: w.key, r: w.r, recorder: w.recorder},
		"TeamMemory":  {object: &v1alpha1.TeamMemory{}, key: in("team"), recorder: events.NewFakeRecorder(64)},
		"MemoryBlock": {object: &v1alpha1.MemoryBlock{}, key: in(v1alpha1.MemoryBlockName("team", remote, "brief")), recorder: events.NewFakeRecorder(64)},
		"Workstation": {object: &v1alpha1.Workstation{}, key: in("ws-a"), recorder: events.NewFakeRecorder(64)},
	}
	c := clock.RealClock{}
	all["TeamMemory"].r = &teammemory.Reconciler{
		Client: w.r.Client, Connect: w.r.Connect, Budget: &budget.Ledger{Reader: w.r.Client, Clock: c}, Recorder: all["TeamMemory"].recorder, Clock: c,
	}
	all["MemoryBlock"].r = &memoryblock.Reconciler{
		Client: w.r.Client, Connect: w.r.Connect, Agents: w.r.Agents, Redactor: w.r.Redactor, Recorder: all["MemoryBlock"].recorder, Clock: c,
	}
	all["Workstation"].r = &workstation.Reconciler{
		Client: w.r.Client, Live: w.r.Live, Connect: w.r.Connect, Recorder: all["Workstation"].recorder, Clock: c,
	}
	return all
}

// TestTenReconcilesAreOneWriteAndOneEvent looks at each kind ten times, while
// all is well and while something fails.
func TestTenReconcilesAreOneWriteAndOneEvent(t *testing.T) {
	for name, c := range map[string]struct {
		reason string
		spoil  func(*world)
		// kinds that fail by it; nil for none.
		failing map[string]string
	}{
		"well": {"nothing happens to an object that did not change", func(*world) {}, nil},
		"without Secrets": {
			"a person must act, and is told once", func(w *world) {
				for _, s := range []string{kube.LettaSecret, kube.StoreSecret} {
					w.must(w.admin.Delete(w.t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: s}}))
				}
			},
			map[string]string{
				"Session": v1alpha1.DependencyNotReadyReason, "TeamMemory": v1alpha1.DependencyNotReadyReason,
				"MemoryBlock": v1alpha1.DependencyNotReadyReason, "Workstation": v1alpha1.DependencyNotReadyReason,
			},
		},
		"Letta is down": {
			"a failure that repairs itself is no news each time it is tried", func(w *world) { w.must(w.letta.Close()) },
			map[string]string{
				"Session": v1alpha1.LettaUnavailableReason, "TeamMemory": v1alpha1.LettaUnavailableReason, "MemoryBlock": v1alpha1.LettaUnavailableReason,
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			w.story()
			w.settleDown()
			all := w.subjects()
			for kind, s := range all {
				for range 4 { // until it stands
					_, _ = s.r.Reconcile(t.Context(), ctrl.Request{NamespacedName: s.key})
				}
				if got := w.read(s); got.Status != metav1.ConditionTrue {
					t.Fatalf("%s is %s %s: %s, want True before the test", kind, got.Status, got.Reason, got.Message)
				}
			}
			c.spoil(w)
			if c.failing != nil {
				// Something to do, for those who do something.
				a := w.writer("ws-a")
				a.segment(userLine("u9", "More words."))
				a.apply()
				w.grant()
			}
			all = w.subjects()
			for kind, s := range all {
				before := w.version(s)
				writes, last := 0, before
				for range 10 {
					_, _ = s.r.Reconcile(t.Context(), ctrl.Request{NamespacedName: s.key}) // what it says is in status
					if v := w.version(s); v != last {
						writes, last = writes+1, v
					}
				}
				want, reason := 0, v1alpha1.SucceededReason
				if r, ok := c.failing[kind]; ok {
					want, reason = 1, r
				} else if c.failing != nil {
					continue // has work that succeeds
				}
				got := w.read(s)
				if writes != want || len(s.recorder.Events) != want || got.Reason != reason {
					t.Errorf("%s: ten reconciles of a %s made %d writes and %d events, want %d of each; it is %s %s: %s",
						c.reason, kind, writes, len(s.recorder.Events), want, got.Status, got.Reason, got.Message)
				}
			}
		})
	}
}

// read returns the condition that sums a subject up.
func (w *world) read(s *subject) metav1.Condition {
	w.t.Helper()
	w.must(w.admin.Get(w.t.Context(), s.key, s.object))
	o, ok := s.object.(interface{ GetConditions() []metav1.Condition })
	if !ok {
		w.must(errors.New("an object without conditions"))
	}
	for _, c := range o.GetConditions() {
		if c.Type == v1alpha1.ReadyCondition {
			return c
		}
	}
	return metav1.Condition{}
}

func (w *world) version(s *subject) string {
	w.t.Helper()
	w.must(w.admin.Get(w.t.Context(), s.key, s.object))
	return s.object.GetResourceVersion()
}

// grant lets the workstation ask for slots.
func (w *world) grant() {
	w.t.Helper()
	ws := &v1alpha1.Workstation{}
	w.must(w.user.Get(w.t.Context(), types.NamespacedName{Namespace: w.namespace, Name: "ws-a"}, ws))
	ws.Spec.GrantRequest++
	w.must(w.user.Update(w.t.Context(), ws))
}
