//go:build envtest

package teammemory

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/controllers/budget"
	"github.com/undersong-dev/undersong/controllers/connect"
	"github.com/undersong-dev/undersong/internal/letta/lettatest"
	"github.com/undersong-dev/undersong/internal/segment"
	"github.com/undersong-dev/undersong/test/versity"
)

var s3 *versity.Server

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "undersong-teammemory-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer func() { _ = os.RemoveAll(dir) }() // a leftover in the temporary folder harms nobody
		if s3, err = versity.Start(context.Background(), versity.Options{Dir: dir}); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer s3.Stop()
		return m.Run()
	}())
}

// world is one TeamMemory in a fake API server, with a real store and the
// stand-in.
type world struct {
	t        *testing.T
	c        client.Client
	letta    *lettatest.Server
	r        *Reconciler
	recorder *events.FakeRecorder
	clock    *clocktesting.FakePassiveClock
}

var key = types.NamespacedName{Namespace: "ns", Name: "team"}

func newWorld(t *testing.T, change func(*v1alpha1.TeamMemory, *corev1.Secret, *corev1.Secret)) *world {
	t.Helper()
	w := &world{t: t, recorder: events.NewFakeRecorder(16)}
	var err error
	w.letta, err = lettatest.New(lettatest.Options{Key: "key"})
	w.must(err)
	url, err := w.letta.Start(t.Context(), "")
	w.must(err)
	t.Cleanup(func() { _ = w.letta.Close() })
	bucket := fmt.Sprintf("t%d", time.Now().UnixNano())
	w.must(s3.MakeBucket(t.Context(), bucket))

	named := func(name, url string, data map[string][]byte) *corev1.Secret {
		_, host, _ := strings.Cut(url, "://")
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Annotations: map[string]string{connect.HostsAnnotation: host}}, Data: data}
	}
	letta := named("letta", url, map[string][]byte{"apiKey": []byte("key")})
	store := named("store", s3.Endpoint, map[string][]byte{"accessKeyID": []byte(s3.AccessKeyID), "secretAccessKey": []byte(s3.SecretAccessKey)})
	m := &v1alpha1.TeamMemory{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "team", UID: "uid", Generation: 1},
		Spec: v1alpha1.TeamMemorySpec{
			Letta: v1alpha1.Letta{Backend: v1alpha1.BackendAPI, BaseURL: url, CredentialsSecretRef: &v1alpha1.LocalRef{Name: "letta"}},
			Agent: v1alpha1.AgentSource{Template: &v1alpha1.AgentTemplate{Name: "Team", Model: "m"}},
			Store: v1alpha1.Store{Endpoint: s3.Endpoint, Bucket: bucket, CredentialsSecretRef: v1alpha1.LocalRef{Name: "store"}},
		},
	}
	if change != nil {
		change(m, letta, store)
	}
	scheme := runtime.NewScheme()
	w.must(clientgoscheme.AddToScheme(scheme))
	w.must(v1alpha1.AddToScheme(scheme))
	w.c = fake.NewClientBuilder().WithScheme(scheme).WithObjects(m, letta, store).WithStatusSubresource(m, &v1alpha1.Session{}).
		WithIndex(&v1alpha1.Session{}, "spec.memoryRef.name", func(o client.Object) []string {
			return []string{o.(*v1alpha1.Session).Spec.MemoryRef.Name} //nolint:forcetypeassert // registered for Sessions
		}).Build()
	w.clock = clocktesting.NewFakePassiveClock(time.Now())
	w.r = &Reconciler{
		Client: w.c, Connect: connect.New(w.c, nil, clock.RealClock{}), Recorder: w.recorder, Clock: w.clock,
		Budget: &budget.Ledger{Reader: w.c, Clock: w.clock},
	}
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) reconcile() *v1alpha1.TeamMemory {
	w.t.Helper()
	_, _ = w.r.Reconcile(w.t.Context(), ctrl.Request{NamespacedName: key}) // what it says is in status
	m := &v1alpha1.TeamMemory{}
	w.must(w.c.Get(w.t.Context(), key, m))
	return m
}

func ready(m *v1alpha1.TeamMemory) metav1.Condition {
	for _, c := range m.Status.Conditions {
		if c.Type == v1alpha1.ReadyCondition {
			return c
		}
	}
	return metav1.Condition{}
}

// TestARuleThatCannotBeUsed: kubectl get teammemories shows it, not only the
// Sessions that wait because of it.
func TestARuleThatCannotBeUsed(t *testing.T) {
	w := newWorld(t, func(m *v1alpha1.TeamMemory, _, _ *corev1.Secret) {
		m.Spec.Capture.Redact = []v1alpha1.RedactionRule{{Name: "open", Pattern: "("}}
	})
	got := ready(w.reconcile())
	if got.Status != metav1.ConditionFalse || got.Reason != v1alpha1.InvalidSpecReason || !strings.Contains(got.Message, "spec.capture.redact") {
		t.Errorf("Ready is %v; want False, InvalidSpec, with the field's name", got)
	}
}

func TestAMemoryIsReadyWhenStoreAndLettaAnswer(t *testing.T) {
	w := newWorld(t, nil)
	w.must(w.c.Create(t.Context(), &v1alpha1.Session{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "behind"}, Spec: v1alpha1.SessionSpec{MemoryRef: v1alpha1.LocalRef{Name: "team"}, Lines: 5},
	}))
	c, err := w.r.Connect.Letta(t.Context(), w.reconcile())
	w.must(err)
	m := w.reconcile()
	if _, err := (&connect.Agents{}).Ensure(t.Context(), c, m, "git.example.com/a"); err != nil {
		t.Fatal(err)
	}
	m = w.reconcile()
	if got := ready(m); got.Status != metav1.ConditionTrue {
		t.Errorf("Ready is %s %s: %s", got.Status, got.Reason, got.Message)
	}
	if len(m.Status.Agents) != 1 || m.Status.Agents[0].Project != "git.example.com/a" || m.Status.Sessions != 1 || m.Status.Lagging != 1 || m.Status.SegmentFormat != 1 {
		t.Errorf("status is %+v", m.Status)
	}
	before := m.ResourceVersion
	if m = w.reconcile(); m.ResourceVersion != before {
		t.Error("an unchanged memory was written")
	}
}

func TestWhatIsWrongWithAMemory(t *testing.T) {
	for name, c := range map[string]struct {
		reason string
		change func(*v1alpha1.TeamMemory, *corev1.Secret, *corev1.Secret)
		want   string
		says   string
	}{
		"wrong Letta key": {"named with the Secret's field", func(_ *v1alpha1.TeamMemory, l, _ *corev1.Secret) { l.Data["apiKey"] = []byte("no") }, v1alpha1.LettaRejectedReason, "spec.letta.credentialsSecretRef"},
		"wrong store key": {"named with the Secret's field", func(_ *v1alpha1.TeamMemory, _, s *corev1.Secret) { s.Data["secretAccessKey"] = []byte("no") }, v1alpha1.StoreAccessDeniedReason, "spec.store.credentialsSecretRef"},
		"no bucket":       {"the bucket is named", func(m *v1alpha1.TeamMemory, _, _ *corev1.Secret) { m.Spec.Store.Bucket = "none-such" }, v1alpha1.BucketNotFoundReason, "none-such"},
		"no such agent": {"the id is named", func(m *v1alpha1.TeamMemory, _, _ *corev1.Secret) {
			m.Spec.Agent = v1alpha1.AgentSource{ID: "agent-00000000-0000-4000-8000-000000000000"}
		}, v1alpha1.AgentNotFoundReason, "agent-0000"},
		"Letta is down": {"the address is named", func(m *v1alpha1.TeamMemory, l, _ *corev1.Secret) {
			m.Spec.Letta.BaseURL = "http://127.0.0.1:1"
			l.Annotations[connect.HostsAnnotation] = "127.0.0.1:1"
		}, v1alpha1.LettaUnavailableReason, "127.0.0.1:1"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, c.change)
			got := ready(w.reconcile())
			if got.Status != metav1.ConditionFalse || got.Reason != c.want || !strings.Contains(got.Message, c.says) {
				t.Errorf("%s: Ready is %s %s: %s", c.reason, got.Status, got.Reason, got.Message)
			}
			before := w.reconcile().ResourceVersion
			for range 3 {
				if m := w.reconcile(); m.ResourceVersion != before {
					t.Errorf("%s: the same failure was written again", c.reason)
				}
			}
			if n := len(w.recorder.Events); n != 1 {
				t.Errorf("%s: %d events, want 1", c.reason, n)
			}
		})
	}
}

// TestScrubsOfAnotherKeyAreLookedAtAgain: what is said of an entry was said of the
// key pair that the store had then.
func TestScrubsOfAnotherKeyAreLookedAtAgain(t *testing.T) {
	w := newWorld(t, nil)
	first := w.reconcile().Status.ScrubKey
	if first == "" {
		t.Fatal("there is no key")
	}
	said := func() {
		t.Helper()
		m := &v1alpha1.TeamMemory{}
		w.must(w.c.Get(t.Context(), key, m))
		m.Status.Scrubs = []v1alpha1.ScrubStatus{{ID: "s", Mode: v1alpha1.ScrubRemove, Phase: v1alpha1.ScrubDone}}
		w.must(w.c.Status().Update(t.Context(), m))
	}
	said()
	if m := w.reconcile(); m.Status.ScrubKey != first || len(m.Status.Scrubs) != 1 {
		t.Errorf("with the same pair: the key is another one: %v, and %d scrubs are kept, want 1", m.Status.ScrubKey != first, len(m.Status.Scrubs))
	}
	m := &v1alpha1.TeamMemory{}
	w.must(w.c.Get(t.Context(), key, m))
	bucket, err := w.r.Connect.Store(t.Context(), m)
	w.must(err)
	w.must(bucket.Delete(t.Context(), segment.ScrubIdentityKey(key.Namespace, key.Name)))
	if m := w.reconcile(); m.Status.ScrubKey == first || m.Status.ScrubKey == "" || len(m.Status.Scrubs) != 0 {
		t.Errorf("with another pair: the key is another one: %v, and %d scrubs are kept, want none", m.Status.ScrubKey != first, len(m.Status.Scrubs))
	}
	// One that was never said is no other one.
	m = &v1alpha1.TeamMemory{}
	w.must(w.c.Get(t.Context(), key, m))
	m.Status.ScrubKey = ""
	w.must(w.c.Status().Update(t.Context(), m))
	said()
	if m := w.reconcile(); m.Status.ScrubKey == "" || len(m.Status.Scrubs) != 1 {
		t.Errorf("after a status that was lost: %d scrubs are kept, want 1", len(m.Status.Scrubs))
	}
}
