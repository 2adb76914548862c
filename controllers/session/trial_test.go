//go:build envtest

package session

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/internal/segment"
	"github.com/undersong-dev/undersong/internal/store"
)

// TestAStopIsNoDeath tells a process to stop at several moments of its first
// look. Only where one died before it a mark is left.
func TestAStopIsNoDeath(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		died   bool
		// stop ends the first look.
		stop func(w *world)
		left bool
	}{
		"killed": {reason: "nobody told it to", left: true, stop: func(w *world) {
			w.failStatus()
			_, _ = w.reconcile() // does its work, and cannot say so
		}},
		"before the status": {reason: "it was told to stop", stop: func(w *world) { w.stopAtStatus() }},
		"died before":       {reason: "one died before it", died: true, left: true, stop: func(w *world) { w.stopAtStatus() }},
		"between two looks": {reason: "no reconcile is at it", stop: func(w *world) {
			w.failStatus()
			_, _ = w.reconcile() // does its work, and cannot say so
			ctx, cancel := context.WithCancel(w.t.Context())
			cancel()
			w.must(w.r.leaveNoMark(ctx))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, nil)
			a := w.writer("ws-a")
			a.segment(userLine("u1", "One."))
			key := segment.TryingKey(w.namespace, w.key.Name, "ws-a")
			if tc.died {
				data, err := json.Marshal(mark{suspect: suspect{Segment: 1}})
				w.must(err)
				w.must(w.bucket.Put(t.Context(), key, data))
			}
			a.apply()
			tc.stop(w)
			_, err := w.bucket.Get(t.Context(), key, maxMark)
			if left := err == nil; left != tc.left {
				t.Errorf("%s: a mark is left: %v, want %v (%v)", tc.reason, left, tc.left, err)
			}
			w.restart()
			if s := w.settleDown(); s.Status.LostLines != 0 {
				t.Errorf("%s: %d lines lost", tc.reason, s.Status.LostLines)
			}
			w.once("One.")
		})
	}
}

// stopAtStatus runs a reconcile that is told to stop when it writes its status.
func (w *world) stopAtStatus() {
	ctx, cancel := context.WithCancel(w.t.Context())
	defer cancel()
	w.r.Client = interceptor.NewClient(w.watching(), interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, _ client.Client, _ string, _ client.Object, _ client.Patch, _ ...client.SubResourcePatchOption) error {
			cancel()
			return ctx.Err()
		},
	})
	_, _ = w.r.Reconcile(ctx, ctrl.Request{NamespacedName: w.key}) // is told to stop
}

// TestWhatAProcessDiedOf leaves the marks that dying processes leave. That they
// leave them is shown in test/e2e.
func TestWhatAProcessDiedOf(t *testing.T) {
	sus := func(a *writer, seq int64) suspect {
		sum := sha256.Sum256(segment.Pack(a.raws[seq]))
		return suspect{Segment: seq, Digest: hex.EncodeToString(sum[:])}
	}
	cases := map[string]struct {
		reason string
		left   func(a *writer) any
		parked []int64
	}{
		"Nothing":      {reason: "nobody died", left: func(*writer) any { return nil }},
		"OneOfSeveral": {reason: "nobody knows which", left: func(*writer) any { return mark{suspect: suspect{Segment: 1}} }},
		"Alone":        {reason: "it was this one", left: func(a *writer) any { return mark{suspect: sus(a, 2)} }, parked: []int64{2}},
		"First":        {reason: "it was this one", left: func(a *writer) any { return mark{suspect: sus(a, 1)} }, parked: []int64{1}},
		"Newest":       {reason: "spec tells the chain over it", left: func(a *writer) any { return mark{suspect: sus(a, 3)} }, parked: []int64{3}},
		"TwoInARow": {
			reason: "the first is not opened again after the second killed",
			left:   func(a *writer) any { return mark{suspect: sus(a, 2), Parked: []suspect{sus(a, 1)}} }, parked: []int64{1, 2},
		},
		"SentOtherwise": {reason: "other bytes are another segment", left: func(*writer) any { return mark{suspect: suspect{Segment: 2, Digest: "00"}} }},
		"Garbage":       {reason: "it says that somebody died", left: func(*writer) any { return "garbage" }},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, nil)
			a := w.writer("ws-a")
			a.segment(userLine("u1", "One."))
			a.segment(userLine("u2", "Two."))
			a.segment(userLine("u3", "Three."))
			key := segment.TryingKey(w.namespace, w.key.Name, "ws-a")
			if left := tc.left(a); left != nil {
				data, err := json.Marshal(left)
				w.must(err)
				w.must(w.bucket.Put(t.Context(), key, data))
			}
			a.apply()
			s := w.settleDown()
			if s.Status.LostLines != int64(len(tc.parked)) || s.Status.Lag != 0 {
				t.Errorf("%s: %d lines lost, %d behind, want %d and 0", tc.reason, s.Status.LostLines, s.Status.Lag, len(tc.parked))
			}
			var parked []int64
			for i, text := range []string{"One.", "Two.", "Three."} {
				seq := int64(i) + 1
				packed, err := w.bucket.Get(t.Context(), segment.ParkedKey(w.namespace, owner, w.key.Name, "ws-a", 0, seq), segment.MaxPacked)
				heard := strings.Count(w.words(), text)
				if errors.Is(err, store.ErrNotExist) {
					if heard != 1 {
						t.Errorf("%s: Letta heard %q %d times", tc.reason, text, heard)
					}
					continue
				}
				w.must(err)
				parked = append(parked, seq)
				if diff := cmp.Diff(segment.Pack(a.raws[seq]), packed); diff != "" || heard != 0 {
					t.Errorf("%s: segment %d is kept otherwise, or was heard %d times", tc.reason, seq, heard)
				}
			}
			if diff := cmp.Diff(tc.parked, parked); diff != "" {
				t.Errorf("%s: set aside (-want +got):\n%s", tc.reason, diff)
			}
			if _, err := w.bucket.Get(t.Context(), key, maxMark); !errors.Is(err, store.ErrNotExist) {
				t.Errorf("%s: the mark is still there: %v", tc.reason, err)
			}
			events := 0
			for len(w.recorder.Events) > 0 {
				if strings.Contains(<-w.recorder.Events, eventSegmentParked) {
					events++
				}
			}
			if events != len(tc.parked) {
				t.Errorf("%s: %d events, want %d", tc.reason, events, len(tc.parked))
			}
			// Forgetting reaches what is set aside.
			live := w.get()
			live.Spec.Requests = []v1alpha1.Request{{ID: "f", Kind: v1alpha1.RequestForget}}
			w.must(w.user.Update(t.Context(), live))
			w.settleDown()
			for _, seq := range tc.parked {
				if _, err := w.bucket.Get(t.Context(), segment.ParkedKey(w.namespace, owner, w.key.Name, "ws-a", 0, seq), segment.MaxPacked); !errors.Is(err, store.ErrNotExist) {
					t.Errorf("segment %d is set aside after it was forgotten: %v", seq, err)
				}
			}
		})
	}
}
