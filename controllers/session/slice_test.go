//go:build envtest

package session

import (
	"errors"
	"fmt"
	"testing"

	"k8s.io/utils/ptr"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/internal/segment"
	"github.com/undersong-dev/undersong/internal/store"
)

func TestForgetGoesOnWhereItStopped(t *testing.T) {
	const segments = 6
	for name, c := range map[string]struct {
		reason string
		// between is done after each reconcile.
		between func(w *world, n int)
	}{
		"undisturbed": {"each reconcile erases one segment more", func(*world, int) {}},
		"a new process": {"what was not ended is begun anew", func(w *world, n int) {
			if n == 3 {
				w.restart()
				w.r.Slice = 1
			}
		}},
		"no status": {"what is not written was not done", func(w *world, n int) { w.outage.Store(n == 3) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, nil)
			w.suspend(v1alpha1.SuspendDelivery)
			a := w.writer("ws-a")
			a.segment(userLine("u0", "The harbour."))
			for i := range segments {
				a.segment(userLine(fmt.Sprintf("u%d", i+1), "What next?"))
			}
			a.segment(userLine("u0", "The harbour."), userLine("u1", "What next?"), userLine("u8", "Afterwards.")) // a compaction brings them again
			a.apply()
			_, _ = w.reconcile() // archives
			w.r.Slice = 1
			w.request(v1alpha1.Request{ID: "f1", Kind: v1alpha1.RequestForget, FromLine: ptr.To[int64](2), ToLine: ptr.To[int64](segments + 1)})
			n := 0
			for ; w.answer("f1") == nil; n++ {
				if n > 100 {
					t.Fatalf("%s: no answer after %d reconciles: %+v", c.reason, n, w.get().Status.Conditions)
				}
				res, err := w.reconcile()
				if !w.outage.Load() && err == nil && w.answer("f1") == nil && (res.RequeueAfter <= 0 || res.RequeueAfter > waitForSegment/60) {
					t.Fatalf("%s: it goes on in %v, want at once", c.reason, res.RequeueAfter)
				}
				c.between(w, n)
			}
			// The span, and all of it for copies.
			if least := segments + 1 + segments + 2 - 1; n < least {
				t.Errorf("%s: answered after %d reconciles, want one for each segment, %d", c.reason, n, least)
			}
			if a := w.answer("f1"); a.Result != v1alpha1.AnswerDone {
				t.Errorf("%s: the answer is %+v", c.reason, a)
			}
			w.only("the archive", w.kept(), "The harbour.", "Afterwards.")
			w.r.Slice = 0
			w.suspend("")
			w.settleDown()
			w.only("Letta", w.words(), "The harbour.", "Afterwards.")
		})
	}
}

func TestABatchEnds(t *testing.T) {
	w := newWorld(t, nil)
	a := w.writer("ws-a")
	a.segment(userLine("u1", "What next?"))
	w.suspend(v1alpha1.SuspendDelivery)
	for range 3 {
		for range maxBatchSegments / 2 {
			a.segment(`{"type":"mode","mode":"default"}`)
		}
		a.apply()
		for st := w.get().Status.SyncState; st == nil || st.Writers[0].Verified.Segments < a.seq; st = w.get().Status.SyncState {
			_, _ = w.reconcile() // archives
		}
		a.slots = nil
	}
	a.segment(userLine("u2", "Afterwards."))
	a.apply()
	w.suspend("")
	for w.get().Status.SyncState == nil || w.get().Status.SyncState.Delivery == nil {
		_, _ = w.reconcile() // verifies, and writes the ledger in the end
	}
	if d := w.get().Status.SyncState.Delivery; d.To.Segments > maxBatchSegments {
		t.Errorf("one batch reads %d segments, want at most %d", d.To.Segments, maxBatchSegments)
	}
	w.settleDown()
	w.once("What next?", "Afterwards.")
}

func TestAReconcileHoldsFewSegments(t *testing.T) {
	s := &scope{archive: map[segmentID]*archived{}}
	large := &archived{lines: [][]byte{make([]byte, holdBytes/3)}}
	for seq := range int64(20) {
		id := segmentID{"ws-a", 0, seq}
		s.hold(id, large)
		if s.archive[id] != large {
			t.Fatal("the newest segment is not held")
		}
		if len(s.archive) > 3 {
			t.Fatalf("%d segments of %d bytes are held, want at most %d bytes", len(s.archive), holdBytes/3, holdBytes)
		}
	}
	huge := &archived{lines: [][]byte{make([]byte, 2*holdBytes)}}
	s.hold(segmentID{"ws-a", 0, 100}, huge)
	if len(s.archive) != 1 {
		t.Errorf("%d segments are held beside one that is too large alone", len(s.archive)-1)
	}
}

func TestForgetLooksIntoTheInbox(t *testing.T) {
	w := newWorld(t, nil)
	w.suspend(v1alpha1.SuspendDelivery)
	a := w.writer("ws-a")
	a.segment(userLine("u1", "What next?"))
	a.apply()
	_, _ = w.reconcile()                     // archives
	a.segment(userLine("u2", "Afterwards.")) // put there, and not named yet
	mine := w.key.Name
	w.key.Name = v1alpha1.SessionName(forkID, owner)
	other := &writer{w: w, name: "ws-a", uid: a.uid, slot: 100, chain: segment.Start(w.key.Name, "ws-a"), raws: map[int64][]byte{}, redactor: a.redactor}
	other.segment(w.mine(userLine("u3", "The harbour.")))
	w.key.Name = mine
	w.must(w.bucket.Put(t.Context(), segment.InboxKey(a.uid, 102), []byte("nothing of ours")))
	w.request(v1alpha1.Request{ID: "f1", Kind: v1alpha1.RequestForget})
	_, _ = w.reconcile() // erases
	if a := w.answer("f1"); a == nil || a.Result != v1alpha1.AnswerDone {
		t.Fatalf("the answer is %+v", a)
	}
	if _, err := w.bucket.Stat(t.Context(), segment.InboxKey(a.uid, 2)); !errors.Is(err, store.ErrNotExist) {
		t.Errorf("the session is said to be erased, and a segment of it lies in the inbox: %v", err)
	}
	if n := w.objects("inbox/"); n != 2 {
		t.Errorf("the inbox has %d objects, want those of others", n)
	}
}
