//go:build envtest

package session

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/internal/redact"
	"github.com/undersong-dev/undersong/internal/segment"
	"github.com/undersong-dev/undersong/test/kube"
)

// told fails unless Letta was told each of the story's texts once.
func (w *world) toldOnce(more ...string) {
	w.t.Helper()
	w.once(append([]string{"tide tables are stored in GMT.", "Understood.", "What next?", "The harbour."}, more...)...)
}

// again makes the Session anew from what is left.
func (w *world) rebuild() []Rebuilt {
	w.t.Helper()
	mem := &v1alpha1.TeamMemory{}
	w.must(w.admin.Get(w.t.Context(), types.NamespacedName{Namespace: w.namespace, Name: "team"}, mem))
	var all []Rebuilt
	w.must(Rebuild(w.t.Context(), w.admin, w.bucket, mem, func(r Rebuilt) {
		w.must(r.Err)
		all = append(all, r)
	}))
	return all
}

func TestSessionsAreRebuiltFromTheArchive(t *testing.T) {
	for name, step := range map[string]int{"settled": -1, "archived": 1, "ledger written": 2, "in mid-turn": 3, "answered": 5} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, nil)
			w.story()
			var want end
			if step < 0 {
				want = w.end(w.settleDown())
			} else {
				for range step {
					_, _ = w.reconcile() // some way
				}
			}
			old := w.get()
			w.must(w.user.Delete(t.Context(), old.DeepCopy()))
			for i, made := range []bool{true, false} {
				if got := w.rebuild(); len(got) != 1 || got[0].Created != made || got[0].Name != old.Name {
					t.Fatalf("rebuild %d did %+v", i+1, got)
				}
			}
			w.restart()
			s := w.settleDown()
			if step < 0 {
				if diff := cmp.Diff(want, w.end(s), cmpopts.EquateEmpty()); diff != "" {
					t.Errorf("the rebuilt Session differs (-before +after):\n%s", diff)
				}
			}
			if diff := cmp.Diff(old.Spec.Writers, s.Spec.Writers, cmpopts.IgnoreFields(v1alpha1.Writer{}, "Slots", "Gone", "Bytes")); diff != "" {
				t.Errorf("the writers differ (-before +after):\n%s", diff)
			}
			w.toldOnce()
			// The workstation goes on.
			a := w.writer("ws-a")
			a.slots = nil
			a.segment(userLine("u8", "Afterwards."))
			a.apply()
			w.settleDown()
			w.toldOnce("Afterwards.")
		})
	}
}

func TestAStatusThatFellBackCatchesUp(t *testing.T) {
	w := newWorld(t, nil)
	a := w.writer("ws-a")
	a.segment(userLine("u1", "Note for the team: tide tables are stored in GMT."), assistantLine("a1", "Understood."))
	a.apply()
	early := w.settleDown().Status.DeepCopy()
	a.segment(userLine("u2", "What next?"), assistantLine("a2", "The harbour."))
	a.apply()
	late := w.settleDown()
	for name, restart := range map[string]func(){"a new process": w.restart, "the same process": func() {}} {
		now := w.get()
		now.Status = *early.DeepCopy()
		w.must(w.watching().Status().Update(t.Context(), now))
		restart()
		s := w.settleDown()
		if s.Status.SyncState.Record < late.Status.SyncState.Record || s.Status.Lines != 4 || s.Status.SyncState.Seen != late.Status.SyncState.Seen {
			t.Errorf("%s: record %d, %d lines; want %d and 4", name, s.Status.SyncState.Record, s.Status.Lines, late.Status.SyncState.Record)
		}
		w.toldOnce()
	}
}

// TestARestoredCluster stops a real etcd, puts an older copy of its data in
// place, and starts it again.
func TestARestoredCluster(t *testing.T) {
	ctx := context.WithoutCancel(t.Context())
	shared := cluster
	dir := filepath.Join(t.TempDir(), "kube")
	start := func() {
		t.Helper()
		var err error
		if cluster, err = kube.Start(ctx, kube.Options{Dir: dir}); err != nil {
			cluster = shared
			t.Fatal(err)
		}
	}
	start()
	defer func() {
		if cluster != shared {
			cluster.Stop()
		}
		cluster = shared
	}()
	w := newWorld(t, nil)
	a := w.writer("ws-a")
	a.segment(userLine("u1", "Note for the team: tide tables are stored in GMT."), assistantLine("a1", "Understood."))
	a.apply()
	w.settleDown()

	cluster.Stop()
	backup := dir + "-backup"
	w.must(os.CopyFS(backup, os.DirFS(dir)))
	start()
	w.reconnect()
	a.segment(userLine("u2", "What next?"), assistantLine("a2", "The harbour."))
	a.apply()
	late := w.settleDown()

	cluster.Stop()
	w.must(os.RemoveAll(dir))
	w.must(os.Rename(backup, dir))
	start()
	w.reconnect()
	if s := w.get(); s.Spec.Writers[0].Segments != 1 || s.Status.SyncState.Record >= late.Status.SyncState.Record {
		t.Fatalf("the cluster was not restored: %d segments, record %d", s.Spec.Writers[0].Segments, s.Status.SyncState.Record)
	}
	for range 5 {
		_, _ = w.reconcile() // catches up, and waits for the workstation
	}
	s := w.get()
	if sync := s.Status.SyncState.Writers[0]; sync.Verified.Segments != 2 || sync.Delivered.Segments != 2 {
		t.Errorf("the status did not catch up: %+v", sync)
	}
	if c := condition(s, v1alpha1.VerifiedCondition); c.Status != metav1.ConditionUnknown || !strings.Contains(c.Message, "ws-a") {
		t.Errorf("Verified is %s %s: %s", c.Status, c.Reason, c.Message)
	}
	w.toldOnce()
	// The workstation names again what it has, and goes on.
	a.segment(userLine("u8", "Afterwards."))
	a.apply()
	w.settleDown()
	w.toldOnce("Afterwards.")
}

// reconnect makes clients and a process anew, for a cluster that was started
// again.
func (w *world) reconnect() {
	w.t.Helper()
	var err error
	w.admin, err = cluster.Client(cluster.Admin())
	w.must(err)
	w.user, err = cluster.Client(cluster.User(owner))
	w.must(err)
	w.restart()
}

func TestAForkedChainIsNotAccepted(t *testing.T) {
	w := newWorld(t, nil)
	a := w.writer("ws-a")
	a.segment(userLine("u1", "Understood."))
	a.apply()
	w.settleDown()
	early := w.get()
	a.segment(userLine("u2", "What next?"))
	a.apply()
	w.settleDown()
	// The cluster is restored to before the second segment, and somebody with
	// a copy of that workstation says something else.
	w.must(w.user.Delete(t.Context(), early.DeepCopy()))
	fresh := &v1alpha1.Session{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: w.key.Name}, Spec: early.Spec}
	w.must(w.user.Create(t.Context(), fresh, client.FieldOwner("undersong-create")))
	w.restart()
	for range 4 {
		_, _ = w.reconcile() // takes over what the archive says
	}
	r, err := redact.New()
	w.must(err)
	_, lines, err := segment.Decode(a.raws[1])
	w.must(err)
	other := &writer{
		w: w, name: "ws-a", uid: a.uid, seq: 1, slot: 50, lines: 1, bytes: int64(len(a.raws[1])), offset: int64(len(lines[0])) + 1, index: 1,
		chain: segment.Start(w.key.Name, "ws-a").Next(a.raws[1]), raws: map[int64][]byte{}, redactor: r,
	}
	other.segment(userLine("x2", "The harbour."))
	other.apply()
	for range 6 {
		_, _ = w.reconcile() // refuses it
	}
	if c := condition(w.get(), v1alpha1.StalledCondition); c.Status != metav1.ConditionTrue || c.Reason != v1alpha1.InvalidSpecReason || !strings.Contains(c.Message, "another chain") {
		t.Errorf("Stalled is %s %s: %s", c.Status, c.Reason, c.Message)
	}
	w.only("Letta", w.words(), "Understood.", "What next?")
	w.only("the archive", w.kept(), "Understood.", "What next?")
}

func TestARestoredBucket(t *testing.T) {
	for name, c := range map[string]struct {
		reason string
		// mend is what the workstation answers.
		mend func(*writer)
		lost int64
		told []string
	}{
		"sent again": {"what the workstation still has fills the hole", func(a *writer) { a.put(2, segment.Pack(a.raws[2])) }, 0, []string{"tide tables are stored in GMT.", "Understood.", "What next?", "The harbour."}},
		"gone":       {"what nobody has becomes a gap", func(a *writer) { a.gone = []int64{2} }, 2, []string{"tide tables are stored in GMT.", "Understood.", "What next?", "The harbour."}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			w.suspend(v1alpha1.SuspendDelivery)
			w.story()
			_, _ = w.reconcile() // archives all three
			a := w.writer("ws-a")
			a.slots = nil
			a.apply()
			_, _ = w.reconcile() // empties the inbox
			for info, err := range w.bucket.List(t.Context(), archiveHead(w.get(), segmentID{"ws-a", 0, 2})) {
				w.must(err)
				w.must(w.bucket.Delete(t.Context(), info.Key))
			}
			w.suspend("")
			for range 12 {
				_, _ = w.reconcile() // finds the hole, and asks for it
				if s := w.get(); len(s.Status.SyncState.Writers[0].Wanted) > 0 {
					break
				}
			}
			if s := w.get(); len(s.Status.SyncState.Writers[0].Wanted) != 1 {
				t.Fatalf("%s: wanted is %v: %+v", c.reason, s.Status.SyncState.Writers[0].Wanted, s.Status.Conditions)
			}
			c.mend(a)
			a.apply()
			s := w.settleDown()
			if s.Status.LostLines != c.lost || s.Status.Lines != 7-c.lost {
				t.Errorf("%s: %d lines, %d lost", c.reason, s.Status.Lines, s.Status.LostLines)
			}
			w.once(c.told...)
		})
	}
}

// TestABucketOfBefore: what was delivered after the backup is not asked for, since
// no workstation keeps it; a person is told, once.
func TestABucketOfBefore(t *testing.T) {
	w := newWorld(t, nil)
	a := w.writer("ws-a")
	a.segment(userLine("u1", "Note for the team: tide tables are stored in GMT."), assistantLine("a1", "Understood."))
	a.apply()
	w.settleDown()
	backup := map[string][]byte{}
	for info, err := range w.bucket.List(t.Context(), "") {
		w.must(err)
		data, err := w.bucket.Get(t.Context(), info.Key, segment.MaxPacked)
		w.must(err)
		backup[info.Key] = data
	}
	a.segment(userLine("u2", "What next?"), assistantLine("a2", "The harbour."))
	a.apply()
	before := w.settleDown()
	for info, err := range w.bucket.List(t.Context(), "") {
		w.must(err)
		w.must(w.bucket.Delete(t.Context(), info.Key))
	}
	for key, data := range backup {
		w.must(w.bucket.Put(t.Context(), key, data))
	}
	for range 2 { // two new processes
		w.restart()
		client := w.r.Client
		w.failStatus()
		_, _ = w.reconcile() // does its work, and cannot say so
		w.r.Client = client
		for range 3 {
			_, _ = w.reconcile() // its error is in the conditions
		}
		told := 0
		for len(w.recorder.Events) > 0 {
			if e := <-w.recorder.Events; strings.Contains(e, eventArchiveBehind) {
				told++
			}
		}
		rec, err := parseRecord(w.record())
		w.must(err)
		s := w.get()
		if want := map[bool]int{true: 1, false: 0}[before != nil]; told != want {
			t.Errorf("it was told %d times, want %d", told, want)
		}
		if rec.Revision != s.Status.SyncState.Record || rec.Status.Lines != 4 {
			t.Errorf("the record has revision %d and %d lines, the status revision %d", rec.Revision, rec.Status.Lines, s.Status.SyncState.Record)
		}
		if before != nil && s.Status.SyncState.Record > before.Status.SyncState.Record+2 {
			t.Errorf("the record was written %d times, want once, and once more for the status that failed", s.Status.SyncState.Record-before.Status.SyncState.Record)
		}
		before = nil
	}
	a.segment(userLine("u8", "Afterwards."))
	a.apply()
	if s := w.settleDown(); s.Status.LostLines != 0 {
		t.Errorf("%d lines are lost, want none: the memory knows them", s.Status.LostLines)
	}
	w.toldOnce("Afterwards.")
}

// record is the session's record as it is stored.
func (w *world) record() []byte {
	w.t.Helper()
	data, err := w.bucket.Get(w.t.Context(), segment.SessionKey(w.namespace, owner, w.key.Name), maxRecord)
	w.must(err)
	return data
}

func TestAnotherBucketGivesNothingUp(t *testing.T) {
	w := newWorld(t, nil)
	w.suspend(v1alpha1.SuspendDelivery)
	w.story()
	_, _ = w.reconcile() // archives
	w.must(s3.MakeBucket(t.Context(), w.namespace+"-b"))
	w.change(func(m *v1alpha1.TeamMemory) { m.Spec.Store.Bucket, m.Spec.Suspend = w.namespace+"-b", "" })
	for range 4 {
		_, _ = w.reconcile() // finds nothing
	}
	s := w.get()
	if c := condition(s, v1alpha1.DeliveredCondition); c.Reason != v1alpha1.SegmentCorruptReason || s.Status.SyncState.Writers[0].Verified.Segments != 3 || len(s.Status.SyncState.Writers[0].Wanted) != 0 {
		t.Errorf("Delivered is %s: %s; %+v", c.Reason, c.Message, s.Status.SyncState.Writers[0])
	}
	w.change(func(m *v1alpha1.TeamMemory) { m.Spec.Store.Bucket = w.namespace })
	w.settleDown()
	w.toldOnce()
}

func TestALostSeenSetIsMadeAnew(t *testing.T) {
	for name, spoil := range map[string]func(*world, string){
		"missing": func(w *world, key string) { w.must(w.bucket.Delete(w.t.Context(), key)) },
		"damaged": func(w *world, key string) { w.must(w.bucket.Put(w.t.Context(), key, []byte("12345678"))) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			w.r.Slice = 1
			w.story()
			s := w.settleDown()
			spoil(w, segment.SeenKey(w.namespace, s.Name, s.Status.SyncState.Seen))
			a := w.writer("ws-a")
			a.segment(userLine("u1", "Note for the team: tide tables are stored in GMT."), userLine("u2", "What next?"), userLine("u8", "Afterwards."))
			a.apply()
			w.settleDown()
			w.toldOnce("Afterwards.")
		})
	}
}
