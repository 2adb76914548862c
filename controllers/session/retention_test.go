//go:build envtest

package session

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/internal/letta/lettatest"
	"github.com/undersong-dev/undersong/internal/segment"
)

const day = 24 * time.Hour

// gone reports whether the Session is.
func (w *world) gone() bool {
	w.t.Helper()
	err := w.admin.Get(w.t.Context(), w.key, &v1alpha1.Session{})
	if err != nil && !apierrors.IsNotFound(err) {
		w.t.Fatal(err)
	}
	return err != nil
}

// objects counts what lies under a prefix.
func (w *world) objects(prefix string) int {
	w.t.Helper()
	n := 0
	for _, err := range w.bucket.List(w.t.Context(), prefix) {
		w.must(err)
		n++
	}
	return n
}

// conversations counts Letta's conversations.
func (w *world) conversations() int { return len(w.letta.Conversations()) }

func TestRetention(t *testing.T) {
	w := newWorld(t, nil)
	w.change(func(m *v1alpha1.TeamMemory) {
		m.Spec.Retention = v1alpha1.Retention{SessionDays: ptr.To[int32](10), TranscriptDays: ptr.To[int32](20)}
	})
	w.story()
	w.settleDown()
	begin := time.Now()
	fake := clocktesting.NewFakePassiveClock(begin)
	w.r.Clock = fake
	sweeper := &Sweeper{Client: w.r.Client, Live: w.r.Live, Connect: w.r.Connect, Clock: fake}
	sweep := func() {
		t.Helper()
		mem := &v1alpha1.TeamMemory{}
		w.must(w.admin.Get(t.Context(), types.NamespacedName{Namespace: w.namespace, Name: "team"}, mem))
		w.must(sweeper.Sweep(t.Context(), mem))
	}

	res, err := w.reconcile()
	if err != nil || res.RequeueAfter > time.Hour {
		t.Errorf("an active session is looked at again in %v, %v; want when it is idle", res.RequeueAfter, err)
	}
	fake.SetTime(begin.Add(2 * time.Hour))
	if res, err = w.reconcile(); err != nil || res.RequeueAfter < 9*day || res.RequeueAfter > 10*day {
		t.Errorf("an idle session is looked at again in %v, %v; want when its time is over", res.RequeueAfter, err)
	}
	fake.SetTime(begin.Add(10*day - time.Hour))
	_, _ = w.reconcile() // an hour too early
	if w.gone() {
		t.Fatal("the Session went before its time")
	}
	fake.SetTime(begin.Add(11 * day))
	// A request that is not carried out yet keeps the Session, one that is
	// answered does not.
	s := w.get()
	s.Spec.Requests = []v1alpha1.Request{{ID: "w1", Kind: v1alpha1.RequestWrongWhisper, Whisper: "0"}}
	if _, ok := w.r.untilExpired(&scope{ses: s, mem: w.policy(func(*v1alpha1.TeamMemory) {})}); ok {
		t.Error("a Session with an open request may expire")
	}
	fake.SetTime(begin.Add(2 * time.Hour))
	w.request(s.Spec.Requests[0])
	for range 3 {
		_, _ = w.reconcile() // answers
	}
	if w.answer("w1") == nil {
		t.Fatal("the request is not answered")
	}
	fake.SetTime(begin.Add(21 * day))
	sweep()
	if w.objects("archive/") != 4 {
		t.Error("the archive of a Session that is there was deleted")
	}
	fake.SetTime(begin.Add(11 * day))
	for range 3 {
		_, _ = w.reconcile() // deletes
	}
	if !w.gone() {
		t.Fatal("the Session outlives its time")
	}
	sweep()
	if n := w.objects("archive/"); n != 4 {
		t.Errorf("the archive has %d objects before its time is over, want 4", n)
	}
	if n := w.conversations(); n != 1 {
		t.Errorf("Letta has %d conversations before the archive's time is over, want 1", n)
	}
	// What lies beside it and is no record keeps nothing.
	fake.SetTime(begin.Add(21 * day))
	large := segment.ArchiveOf(w.namespace) + "0" + recordName
	w.must(w.bucket.Put(t.Context(), large, make([]byte, maxRecord+1)))
	// The archive does not wait for Letta.
	w.letta.Inject(lettatest.Fault{Route: "DELETE /v1/conversations/{id}", Status: 500})
	mem := w.policy(func(*v1alpha1.TeamMemory) {})
	if err := sweeper.Sweep(t.Context(), mem); err == nil {
		t.Error("nothing is said of a conversation that is still there")
	}
	if n := w.objects("archive/"); n != 2 {
		t.Errorf("the archive has %d objects while Letta keeps the conversation, want the record and what is none", n)
	}
	w.r.Connect.Forget(mem.UID)
	for w.r.Connect.Resting(mem) != nil {
		time.Sleep(time.Millisecond)
	}
	sweep()
	w.must(w.bucket.Delete(t.Context(), large))
	if n := w.objects("archive/"); n != 1 {
		t.Errorf("the archive has %d objects after its time, want what is left of the record", n)
	}
	if left := w.kept(); strings.Contains(left, "Tide") || strings.Contains(left, "lantern") || strings.Contains(left, "conv-") {
		t.Errorf("what is left of the record says more than how far it went: %s", left)
	}
	if n := w.conversations(); n != 0 {
		t.Errorf("Letta has %d conversations after the archive's time, want none", n)
	}
	if w.objects("state/") != 1 {
		t.Error("the seen-set went with the archive")
	}
	// A fork still knows what its parent said.
	child := w.fork()
	child.segment(w.mine(userLine("u1", "Note for the team: tide tables are stored in GMT.")), w.mine(userLine("u9", "Only in the fork.")))
	child.apply()
	w.r.Clock = clocktesting.NewFakePassiveClock(time.Now())
	w.settleDown()
	w.once("Only in the fork.")
	if strings.Contains(w.words(), "tide tables") {
		t.Error("the fork was told what its parent had said, or the parent's conversation is still there")
	}
}

func TestASessionGoesOnAfterItsArchiveIsSwept(t *testing.T) {
	w := newWorld(t, nil)
	w.change(func(m *v1alpha1.TeamMemory) {
		m.Spec.Retention = v1alpha1.Retention{SessionDays: ptr.To[int32](7), TranscriptDays: ptr.To[int32](7)}
	})
	w.story()
	old := w.settleDown()
	a := w.writer("ws-a")
	clock := clocktesting.NewFakePassiveClock(time.Now().Add(8 * day))
	w.r.Clock = clock
	for range 3 {
		_, _ = w.reconcile() // deletes
	}
	if !w.gone() {
		t.Fatal("the Session outlives its time")
	}
	mem := w.policy(func(*v1alpha1.TeamMemory) {})
	sweeper := &Sweeper{Client: w.r.Client, Live: w.r.Live, Connect: w.r.Connect, Clock: clock}
	for range 2 { // the second finds what the first left
		w.must(sweeper.Sweep(t.Context(), mem))
	}
	if n := w.objects("archive/"); n != 1 {
		t.Fatalf("the archive has %d objects, want what is left of the record", n)
	}
	made := 0
	w.must(Rebuild(t.Context(), w.admin, w.bucket, mem, func(Rebuilt) { made++ }))
	if made != 0 {
		t.Error("a session whose time is over is made again")
	}

	// The owner resumes it: the workstation names what is new, behind the rest.
	w.must(w.user.Create(t.Context(), &v1alpha1.Session{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: w.key.Name},
		Spec:       v1alpha1.SessionSpec{Owner: owner, SessionID: sessionID, Agent: v1alpha1.AgentClaudeCode, MemoryRef: v1alpha1.LocalRef{Name: "team"}, Project: v1alpha1.Project{Name: "lantern", Remote: remote}},
	}, client.FieldOwner("undersong-create")))
	a.slots = nil
	a.before = a.chain.String()
	a.segment(userLine("u1", "Note for the team: tide tables are stored in GMT."), userLine("u9", "Afterwards."))
	a.apply()
	s := w.settleDown()
	if s.UID == old.UID {
		t.Fatal("it is the same Session")
	}
	if s.Status.LostLines != 0 || len(s.Status.SyncState.Writers[0].Wanted) != 0 || s.Status.Lines != 9 {
		t.Errorf("%d lines, %d of them lost, %v wanted; want 9, none and none", s.Status.Lines, s.Status.LostLines, s.Status.SyncState.Writers[0].Wanted)
	}
	if n := w.objects("archive/"); n != 2 {
		t.Errorf("the archive has %d objects, want the new segment and the record", n)
	}
	w.once("Afterwards.")
	if strings.Contains(w.words(), "tide tables") {
		t.Error("what the memory had heard is told again")
	}
}

func TestWhatIsBehindDoesNotExpire(t *testing.T) {
	w := newWorld(t, nil)
	w.suspend(v1alpha1.SuspendDelivery)
	w.story()
	_, _ = w.reconcile() // archives, delivers nothing
	w.r.Clock = clocktesting.NewFakePassiveClock(time.Now().Add(400 * day))
	for range 3 {
		_, _ = w.reconcile() // waits
	}
	if w.gone() {
		t.Error("a Session went before its words were heard")
	}
}

func TestDeletionPolicy(t *testing.T) {
	for name, c := range map[string]struct {
		reason        string
		policy        v1alpha1.DeletionPolicy
		before        func(*world)
		remove        func(*world)
		archive, seen int
		conversations int
	}{
		"retain":           {reason: "nothing but the object goes", archive: 4, seen: 1, conversations: 1},
		"erase":            {reason: "archive, set and conversation go first", policy: v1alpha1.DeletionErase},
		"erase, no memory": {reason: "without a memory the Session is let go", policy: v1alpha1.DeletionErase, archive: 4, seen: 1, conversations: 1, before: (*world).forgetMemory},
		"changed back": {
			reason: "a policy that was taken back erases nothing", policy: v1alpha1.DeletionErase, archive: 4, seen: 1, conversations: 1,
			before: func(w *world) {
				w.change(func(m *v1alpha1.TeamMemory) { m.Spec.DeletionPolicy = v1alpha1.DeletionRetain })
				for range 3 {
					_, _ = w.reconcile() // takes the finalizer off
				}
			},
		},
		"expired": {
			reason: "retention erases nothing of the archive", policy: v1alpha1.DeletionErase, archive: 4, seen: 1, conversations: 1,
			remove: func(w *world) { w.r.Clock = clocktesting.NewFakePassiveClock(time.Now().Add(31 * day)) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, nil)
			w.change(func(m *v1alpha1.TeamMemory) { m.Spec.DeletionPolicy = c.policy })
			w.story()
			s := w.settleDown()
			if has := len(s.Finalizers) > 0; has != (c.policy == v1alpha1.DeletionErase) {
				t.Errorf("%s: finalizers %v", c.reason, s.Finalizers)
			}
			if c.before != nil {
				c.before(w)
			}
			if c.remove == nil {
				w.must(w.user.Delete(t.Context(), w.get()))
			} else {
				c.remove(w)
			}
			for range 4 {
				_, _ = w.reconcile() // lets it go
			}
			if !w.gone() {
				t.Errorf("%s: the Session is still there: %v", c.reason, w.get().Finalizers)
			}
			if a, n, l := w.objects("archive/"), w.objects("state/"), w.conversations(); a != c.archive || n != c.seen || l != c.conversations {
				t.Errorf("%s: %d objects in the archive, %d sets, %d conversations; want %d, %d, %d", c.reason, a, n, l, c.archive, c.seen, c.conversations)
			}
		})
	}
}

// TestTextsOfBlocksGo sweeps when texts are young, and when they are old.
func TestTextsOfBlocksGo(t *testing.T) {
	w := newWorld(t, nil)
	text := func(s string) string {
		sum := sha256.Sum256([]byte(s))
		digest := hex.EncodeToString(sum[:])
		w.must(w.bucket.Put(t.Context(), segment.BlockKey(w.namespace, digest), []byte(s)))
		return digest
	}
	now, before, gone := text("now"), text("before"), text("long before")
	other := segment.BlockKey(w.namespace+"-b", gone)
	w.must(w.bucket.Put(t.Context(), other, []byte("another team's")))
	block := &v1alpha1.MemoryBlock{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: v1alpha1.MemoryBlockName("team", remote, "brief")},
		Spec:       v1alpha1.MemoryBlockSpec{MemoryRef: v1alpha1.LocalRef{Name: "team"}, Project: remote, Label: "brief", Mode: v1alpha1.BlockLearned},
	}
	w.must(w.admin.Create(t.Context(), block))
	block.Status = v1alpha1.MemoryBlockStatus{
		Digest: now, Revision: "2", Extent: v1alpha1.ExtentWhole, Value: "now", Bytes: 3,
		History: []v1alpha1.BlockRevision{{Revision: "2", Digest: now, At: metav1.Now()}, {Revision: "1", Digest: before, At: metav1.Now()}},
	}
	w.must(w.watching().Status().Update(t.Context(), block))

	fake := clocktesting.NewFakePassiveClock(time.Now())
	sweeper := &Sweeper{Client: w.r.Client, Live: w.r.Live, Connect: w.r.Connect, Clock: fake}
	mem := w.policy(func(m *v1alpha1.TeamMemory) { m.Spec.Retention.TranscriptDays = ptr.To[int32](20) })
	for _, step := range []struct {
		reason string
		after  time.Duration
		left   []string
	}{
		{"it is young: a status that names it may be on its way", 19 * day, []string{now, before, gone}},
		{"nobody names it", 21 * day, []string{now, before}},
		{"it is named, however old", 2100 * day, []string{now, before}},
	} {
		fake.SetTime(time.Now().Add(step.after))
		w.must(sweeper.Sweep(t.Context(), mem))
		var left []string
		for info, err := range w.bucket.List(t.Context(), segment.BlocksOf(w.namespace)) {
			w.must(err)
			left = append(left, strings.TrimPrefix(info.Key, segment.BlocksOf(w.namespace)))
		}
		slices.Sort(left)
		slices.Sort(step.left)
		if diff := cmp.Diff(step.left, left); diff != "" {
			t.Errorf("%s: (-want +got):\n%s", step.reason, diff)
		}
	}
	if _, err := w.bucket.Stat(t.Context(), other); err != nil {
		t.Errorf("another namespace's text: %v", err)
	}
}

func (w *world) forgetMemory() {
	mem := &v1alpha1.TeamMemory{}
	w.must(w.admin.Get(w.t.Context(), types.NamespacedName{Namespace: w.namespace, Name: "team"}, mem))
	w.must(w.admin.Delete(w.t.Context(), mem))
}

func TestErasingWaitsForTheStore(t *testing.T) {
	w := newWorld(t, nil)
	w.change(func(m *v1alpha1.TeamMemory) { m.Spec.DeletionPolicy = v1alpha1.DeletionErase })
	w.story()
	w.settleDown()
	w.must(w.user.Delete(t.Context(), w.get()))
	w.change(func(m *v1alpha1.TeamMemory) { m.Spec.Store.Bucket = "no-such-bucket" })
	mem := w.policy(func(*v1alpha1.TeamMemory) {})
	w.r.Turns.reserve(mem.UID, w.key, claim{}, 1)
	for len(w.recorder.Events) > 0 {
		<-w.recorder.Events
	}
	for range 2 {
		if _, err := w.reconcile(); err == nil || w.gone() {
			t.Fatalf("let go without its archive erased: %v", err)
		}
	}
	if n := len(w.recorder.Events); n != 1 {
		t.Errorf("%d events for one lasting failure, want 1", n)
	} else if e := <-w.recorder.Events; !strings.Contains(e, eventNotErased) || !strings.Contains(e, "no-such-bucket") {
		t.Errorf("the event says %q", e)
	}
	if !w.r.Turns.reserve(mem.UID, types.NamespacedName{Name: "another"}, claim{}, 1) {
		t.Error("a Session that is being deleted keeps its place among the turns")
	}
	w.change(func(m *v1alpha1.TeamMemory) { m.Spec.Store.Bucket = w.namespace })
	if _, err := w.reconcile(); err != nil || !w.gone() || w.objects("archive/") != 0 {
		t.Errorf("not erased when the store was back: %v", err)
	}
	if strings.Contains(w.words(), "tide tables") {
		t.Error("the conversation is still there")
	}
}

func TestInboxesAreSwept(t *testing.T) {
	w := newWorld(t, nil)
	a := w.writer("ws-a")
	a.segment(userLine("u1", "What next?"))
	a.apply()
	a.segment(userLine("u2", "Afterwards.")) // put there, and never named
	clock := clocktesting.NewFakePassiveClock(time.Now().Add(unnamedFor - time.Hour))
	sweeper := &Sweeper{Client: w.r.Client, Live: w.r.Live, Connect: w.r.Connect, Clock: clock}
	sweep := func() {
		t.Helper()
		mem := &v1alpha1.TeamMemory{}
		w.must(w.admin.Get(t.Context(), types.NamespacedName{Namespace: w.namespace, Name: "team"}, mem))
		w.must(sweeper.Sweep(t.Context(), mem))
	}
	sweep()
	if n := w.objects("inbox/"); n != 2 {
		t.Fatalf("the inbox has %d objects on their first day, want 2", n)
	}
	clock.SetTime(time.Now().Add(unnamedFor + time.Hour))
	sweep()
	if _, err := w.bucket.Stat(t.Context(), segment.InboxKey(a.uid, 1)); err != nil {
		t.Errorf("a segment that a Session names was swept: %v", err)
	}
	if n := w.objects("inbox/"); n != 1 {
		t.Errorf("the inbox has %d objects, want the one that is named", n)
	}
	// Named after all, it is sent again.
	a.apply()
	for s := w.get(); s.Status.SyncState == nil || len(s.Status.SyncState.Writers[0].Wanted) == 0; s = w.get() {
		_, _ = w.reconcile() // asks for it
	}
	a.put(2, segment.Pack(a.raws[2]))
	a.apply()
	w.settleDown()
	w.once("What next?", "Afterwards.")
}
