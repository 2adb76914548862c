//go:build envtest

package session

import (
	"strings"
	"testing"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/internal/segment"
	"github.com/undersong-dev/undersong/internal/store"
)

// TestMovedToAnotherBucket: the bucket is copied, the TeamMemory is pointed at the
// copy, and the session goes on: nothing is lost, nothing told twice, the chain is
// whole. What lay in the inbox and was not copied is asked for again.
func TestMovedToAnotherBucket(t *testing.T) {
	w := newWorld(t, nil)
	w.story()
	before := w.settleDown().Status
	a := w.writer("ws-a")
	w.suspend(v1alpha1.SuspendDelivery)
	a.segment(userLine("u8", "Sent before the move."))

	moved := w.namespace + "-b"
	w.must(s3.MakeBucket(t.Context(), moved))
	to, err := store.Open(store.Options{Endpoint: s3.Endpoint, Bucket: moved, AccessKeyID: s3.AccessKeyID, SecretAccessKey: s3.SecretAccessKey})
	w.must(err)
	for info, err := range w.bucket.List(t.Context(), "") {
		w.must(err)
		if strings.HasPrefix(info.Key, "inbox/") {
			continue
		}
		data, err := w.bucket.Get(t.Context(), info.Key, segment.MaxPacked)
		w.must(err)
		w.must(to.Put(t.Context(), info.Key, data))
		w.must(w.bucket.Delete(t.Context(), info.Key))
	}
	w.bucket = to
	w.change(func(m *v1alpha1.TeamMemory) { m.Spec.Store.Bucket, m.Spec.Suspend = moved, v1alpha1.SuspendNone })
	w.restart() // a controller that knows nothing of the old one

	a.apply()
	for range 12 {
		_, _ = w.reconcile() // finds the hole, and asks for it
		if len(w.get().Status.SyncState.Writers[0].Wanted) > 0 {
			break
		}
	}
	a.put(a.seq, segment.Pack(a.raws[a.seq]))
	a.segment(userLine("u9", "Sent after the move."))
	a.apply()
	s := w.settleDown()
	if s.Status.LostLines != 0 || s.Status.Lag != 0 || s.Status.SyncState.ConversationID != before.SyncState.ConversationID {
		t.Errorf("lost %d, lag %d, conversation %s, was %s", s.Status.LostLines, s.Status.Lag, s.Status.SyncState.ConversationID, before.SyncState.ConversationID)
	}
	if y := s.Status.SyncState.Writers[0].Verified; y.Segments != a.seq || y.Chain != a.chain.String() {
		t.Errorf("verified %+v, the workstation's head is %d %s", y, a.seq, a.chain)
	}
	w.toldOnce("Sent before the move.", "Sent after the move.")
	w.only("the archive", w.kept(), "tide tables are stored in GMT.", "Understood.", "What next?", "The harbour.")
}
