//go:build envtest

package session

import (
	"fmt"
	"html"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/internal/redact"
	"github.com/undersong-dev/undersong/internal/segment"
	"github.com/undersong-dev/undersong/test/fault"
)

func unstructuredSession(key types.NamespacedName, live *v1alpha1.Session, spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": "Session",
		"metadata": map[string]any{"namespace": key.Namespace, "name": key.Name, "uid": string(live.UID), "resourceVersion": live.ResourceVersion},
		"spec":     spec,
	}}
}

// story is the session that most tests tell: three segments, a convention that
// is learnt, words that come twice.
func (w *world) story() {
	a := w.writer("ws-a")
	a.segment(userLine("u1", "Note for the team: tide tables are stored in GMT."), assistantLine("a1", "Understood."), titleLine("Tide tables"))
	a.segment(userLine("u1", "Note for the team: tide tables are stored in GMT."), `{"type":"mode","mode":"default"}`)
	a.segment(userLine("u2", "What next?"), assistantLine("a2", "The harbour."))
	a.apply()
}

// outcome is everything that must be the same whatever went wrong on the way.
type end struct {
	Status  v1alpha1.SessionStatus
	Words   string
	Archive []string
	Inbox   []string
	Blocks  []string
	Events  int
}

func (w *world) end(s *v1alpha1.Session) end {
	w.t.Helper()
	ctx := w.t.Context()
	e := end{Status: *s.Status.DeepCopy(), Words: w.words()}
	for info, err := range w.bucket.List(ctx, "") {
		w.must(err)
		switch {
		case strings.HasPrefix(info.Key, "archive/") && strings.HasSuffix(info.Key, ".zst"):
			e.Archive = append(e.Archive, strings.ReplaceAll(info.Key, w.namespace, "NS"))
		case strings.HasPrefix(info.Key, "inbox/"):
			e.Inbox = append(e.Inbox, info.Key)
		}
	}
	var blocks v1alpha1.MemoryBlockList
	w.must(w.admin.List(ctx, &blocks))
	for _, b := range blocks.Items {
		if b.Namespace == w.namespace {
			e.Blocks = append(e.Blocks, b.Name)
		}
	}
	slices.Sort(e.Blocks)
	// What differs between two runs by its nature.
	e.Status.Conditions, e.Status.LastActivityTime = nil, nil
	e.Status.ObservedGeneration, e.Status.Usage = 0, v1alpha1.Usage{}
	y := e.Status.SyncState
	if y != nil {
		y.Record = 0
		y.ConversationID, y.AgentID, y.LastSeenMessageID = present(y.ConversationID), present(y.AgentID), present(y.LastSeenMessageID)
		if y.Delivery != nil {
			// Where a failure interrupts the verification, what is verified is
			// delivered in a turn of its own.
			y.Delivery.ID, y.Delivery.Attempts, y.Delivery.From, y.Delivery.At = present(y.Delivery.ID), 0, v1alpha1.Cut{}, nil
		}
	}
	for i := range e.Status.Whispers {
		e.Status.Whispers[i].ID, e.Status.Whispers[i].Sealed, e.Status.Whispers[i].At = "id", "sealed", metav1.Time{}
	}
	return e
}

func present(s string) string {
	if s == "" {
		return ""
	}
	return "present"
}

// words are the texts of all deltas that Letta has, nudges and frames left
// out.
func (w *world) words() string {
	var all []string
	if w.app != nil {
		for _, text := range w.app.told(w) {
			for line := range strings.SplitSeq(text, "\n") {
				if !strings.Contains(line, "transcript_delta") {
					all = append(all, html.UnescapeString(line))
				}
			}
		}
	}
	for _, c := range w.letta.Conversations() {
		for _, m := range c.Messages {
			if m.Role != "user" {
				continue
			}
			for line := range strings.SplitSeq(m.Text, "\n") {
				if !strings.Contains(line, "transcript_delta") {
					all = append(all, html.UnescapeString(line))
				}
			}
		}
	}
	return strings.Join(all, "\n")
}

func TestASessionIsVerifiedDeliveredAndPublished(t *testing.T) {
	w := newWorld(t, nil)
	w.story()
	s := w.settleDown()
	for _, text := range []string{"tide tables are stored in GMT.", "Understood.", "What next?", "The harbour."} {
		if n := strings.Count(w.words(), text); n != 1 {
			t.Errorf("Letta has %q %d times, want once:\n%s", text, n, w.words())
		}
	}
	if s.Status.Lines != 7 || s.Status.Lag != 0 || s.Status.LostLines != 0 || s.Status.Title != "Tide tables" {
		t.Errorf("lines %d, lag %d, lost %d, title %q; want 7, 0, 0, Tide tables", s.Status.Lines, s.Status.Lag, s.Status.LostLines, s.Status.Title)
	}
	if got := s.Status.SyncState.Writers[0].LastProcessedIndex; got != 6 {
		t.Errorf("lastProcessedIndex is %d, want 6: seven parsable lines", got)
	}
	e := w.end(s)
	if len(e.Archive) != 3 || len(e.Inbox) != 0 {
		t.Errorf("archive %v, inbox %v; want 3 and none", e.Archive, e.Inbox)
	}
	if len(e.Blocks) != 5 {
		t.Errorf("MemoryBlocks %v, want the five of the template", e.Blocks)
	}
}

func TestASettledSessionIsLeftAlone(t *testing.T) {
	w := newWorld(t, nil)
	w.story()
	before := w.settleDown()
	turns := w.letta.Turns()
	for range 10 {
		if _, err := w.reconcile(); err != nil {
			t.Fatal(err)
		}
	}
	if after := w.get(); after.ResourceVersion != before.ResourceVersion {
		t.Errorf("status was written though nothing changed: %s", cmp.Diff(before.Status, after.Status))
	}
	if n := w.letta.Turns(); n != turns {
		t.Errorf("%d turns ran though nothing changed", n-turns)
	}
}

func TestAFailureIsSaidOnce(t *testing.T) {
	w := newWorld(t, nil)
	w.must(w.letta.Close()) // Letta is down
	w.story()
	for range 3 {
		_, _ = w.reconcile() // fails
	}
	first := w.get()
	for range 10 {
		_, _ = w.reconcile() // fails, or rests
	}
	if after := w.get(); after.ResourceVersion != first.ResourceVersion {
		t.Errorf("the same failure was written again: %s", cmp.Diff(first.Status, after.Status))
	}
	if n := len(w.recorder.Events); n != 1 {
		t.Errorf("%d events, want 1", n)
	}
	got := condition(first, v1alpha1.DeliveredCondition)
	if got.Status != metav1.ConditionFalse || got.Reason != v1alpha1.LettaUnavailableReason {
		t.Errorf("Delivered is %s %s: %s", got.Status, got.Reason, got.Message)
	}
	if c := condition(first, v1alpha1.VerifiedCondition); c.Status != metav1.ConditionTrue {
		t.Errorf("Verified is %s: a Letta that is down must not keep segments from the archive", c.Status)
	}
	if c := condition(first, v1alpha1.PublishedCondition); c.Status != metav1.ConditionUnknown {
		t.Errorf("Published is %s, want Unknown behind a failed phase", c.Status)
	}
}

func TestSessionSurvivesEveryFault(t *testing.T) {
	undisturbed := newWorld(t, nil)
	undisturbed.story()
	want := undisturbed.end(undisturbed.settleDown())
	calls := undisturbed.counter.Calls()
	if calls < 20 {
		t.Fatalf("only %d outside calls were counted", calls)
	}
	for mode, name := range map[fault.Mode]string{fault.Before: "not sent", fault.After: "answer lost"} {
		for at := int64(1); at <= calls; at++ {
			t.Run(fmt.Sprintf("%s/%d", name, at), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, &fault.Counter{At: at, Mode: mode})
				w.story()
				got := w.end(w.settleDown())
				if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
					t.Errorf("after %s failed the end differs (-undisturbed +got):\n%s", w.counter.Failed(), diff)
				}
			})
		}
	}
}

func TestANewProcessAtEveryStepSendsNothingTwice(t *testing.T) {
	undisturbed := newWorld(t, nil)
	undisturbed.story()
	want := undisturbed.end(undisturbed.settleDown())
	for step := range 12 {
		t.Run(fmt.Sprint(step), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, nil)
			w.story()
			for range step {
				_, _ = w.reconcile() // whatever it says, the process dies now
			}
			w.restart()
			if diff := cmp.Diff(want, w.end(w.settleDown()), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("the end differs (-undisturbed +got):\n%s", diff)
			}
		})
	}
}

func TestTwoWritersAreBothDelivered(t *testing.T) {
	w := newWorld(t, nil)
	a, b := w.writer("ws-a"), w.writer("ws-b")
	a.segment(userLine("u1", "From the desk."))
	a.apply()
	b.segment(userLine("u1", "From the desk."), userLine("u2", "From the laptop."))
	b.apply()
	a.segment(userLine("u3", "From the desk again."))
	a.apply()
	s := w.settleDown()
	for _, text := range []string{"From the desk.", "From the laptop.", "From the desk again."} {
		if n := strings.Count(w.words(), text); n != 1 {
			t.Errorf("Letta has %q %d times, want once", text, n)
		}
	}
	if s.Status.Lines != 4 || len(s.Status.SyncState.Writers) != 2 {
		t.Errorf("%d lines of %d writers, want 4 of 2", s.Status.Lines, len(s.Status.SyncState.Writers))
	}
}

func TestBadSegments(t *testing.T) {
	for name, c := range map[string]struct {
		reason  string
		spoil   func(*writer)
		want    string
		mend    func(*writer)
		missing int64
	}{
		"missing": {
			reason: "a slot that is empty is asked for again, and what comes is taken",
			spoil:  func(wr *writer) { wr.w.must(wr.w.bucket.Delete(wr.w.t.Context(), segment.InboxKey(wr.uid, 2))) },
			want:   v1alpha1.SegmentMissingReason,
			mend:   func(wr *writer) { wr.put(2, segment.Pack(wr.raws[2])) },
		},
		"garbage": {
			reason: "bytes that are no segment delete nothing",
			spoil: func(wr *writer) {
				wr.w.must(wr.w.bucket.Put(wr.w.t.Context(), segment.InboxKey(wr.uid, 2), []byte("garbage")))
			},
			want: v1alpha1.SegmentCorruptReason,
			mend: func(wr *writer) { wr.put(2, segment.Pack(wr.raws[2])) },
		},
		"swapped": {
			reason: "another segment in the slot does not fit the chain",
			spoil: func(wr *writer) {
				wr.w.must(wr.w.bucket.Put(wr.w.t.Context(), segment.InboxKey(wr.uid, 2), segment.Pack(wr.raws[1])))
			},
			want: v1alpha1.SegmentCorruptReason,
			mend: func(wr *writer) { wr.put(2, segment.Pack(wr.raws[2])) },
		},
		"too large": {
			reason: "an object beyond any segment's size is not even read",
			spoil: func(wr *writer) {
				wr.w.must(wr.w.bucket.Put(wr.w.t.Context(), segment.InboxKey(wr.uid, 2), make([]byte, segment.MaxPacked+1)))
			},
			want: v1alpha1.SegmentCorruptReason,
			mend: func(wr *writer) { wr.put(2, segment.Pack(wr.raws[2])) },
		},
		"bomb": {
			reason: "a small object that opens to a large one is refused",
			spoil: func(wr *writer) {
				wr.w.must(wr.w.bucket.Put(wr.w.t.Context(), segment.InboxKey(wr.uid, 2), segment.Pack(make([]byte, segment.MaxRaw+1))))
			},
			want: v1alpha1.SegmentCorruptReason,
			mend: func(wr *writer) { wr.put(2, segment.Pack(wr.raws[2])) },
		},
		"archive mark": {
			reason: "a workstation cannot pass for the second pass",
			spoil: func(wr *writer) {
				_, lines, err := segment.Decode(wr.raws[2])
				wr.w.must(err)
				clean := make([]redact.Redacted, len(lines))
				for i, line := range lines {
					clean[i], _ = wr.redactor.Line(line)
				}
				raw, err := segment.Rewrite(wr.raws[2], clean)
				wr.w.must(err)
				wr.w.must(wr.w.bucket.Put(wr.w.t.Context(), segment.InboxKey(wr.uid, 2), segment.Pack(raw)))
			},
			want: v1alpha1.SegmentCorruptReason,
			mend: func(wr *writer) { wr.put(2, segment.Pack(wr.raws[2])) },
		},
		"gone": {
			reason: "a segment that cannot be sent again becomes a counted gap, and the rest is delivered",
			spoil:  func(wr *writer) { wr.w.must(wr.w.bucket.Delete(wr.w.t.Context(), segment.InboxKey(wr.uid, 2))) },
			want:   v1alpha1.SegmentMissingReason,
			mend: func(wr *writer) {
				wr.gone = []int64{2}
				wr.slots = slices.DeleteFunc(wr.slots, func(s v1alpha1.Slot) bool { return s.Seq == 2 })
			},
			missing: 2,
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			w.story()
			a := w.writer("ws-a")
			c.spoil(a)
			_, _ = w.reconcile() // says what is wrong
			s := w.get()
			if got := condition(s, v1alpha1.VerifiedCondition); got.Reason != c.want || got.Status != metav1.ConditionFalse {
				t.Errorf("%s: Verified is %s %s: %s, want False %s", c.reason, got.Status, got.Reason, got.Message, c.want)
			}
			if !slices.Contains(s.Status.SyncState.Writers[0].Wanted, 2) {
				t.Errorf("%s: wanted is %v", c.reason, s.Status.SyncState.Writers[0].Wanted)
			}
			c.mend(a)
			a.apply()
			s = w.settleDown()
			if s.Status.LostLines != c.missing || s.Status.Lines != 7-c.missing || len(s.Status.SyncState.Writers[0].Wanted) != 0 {
				t.Errorf("%s: lines %d, lost %d, wanted %v", c.reason, s.Status.Lines, s.Status.LostLines, s.Status.SyncState.Writers[0].Wanted)
			}
			if !strings.Contains(w.words(), "The harbour.") {
				t.Errorf("%s: what came after was not delivered", c.reason)
			}
		})
	}
}

func TestASecretThatPassedTheWorkstationStopsHere(t *testing.T) {
	w := newWorld(t, nil)
	a := w.writer("ws-a")
	token := "ghp_" + strings.Repeat("A1b2", 9)
	// A workstation with older rules: it sends the line as it is.
	a.segment(userLine("u1", "PLACEHOLDER"), assistantLine("a1", "Noted."))
	raw := []byte(strings.ReplaceAll(string(a.raws[1]), "PLACEHOLDER", "my token is "+token))
	a.raws[1] = raw
	a.chain = segment.Start(w.key.Name, "ws-a").Next(raw)
	a.bytes = int64(len(raw))
	a.put(1, segment.Pack(raw))
	a.apply()
	w.settleDown()
	if strings.Contains(w.words(), token) {
		t.Error("the token reached Letta")
	}
	for info, err := range w.bucket.List(t.Context(), "") {
		w.must(err)
		data, err := w.bucket.Get(t.Context(), info.Key, segment.MaxPacked)
		w.must(err)
		if un, err := segment.Unpack(data); err == nil {
			data = un
		}
		if strings.Contains(string(data), token) {
			t.Errorf("the token is in %s", info.Key)
		}
	}
	if !strings.Contains(w.words(), "Noted.") {
		t.Error("the rest was not delivered")
	}
}

func TestAnotherOwnersWorkstationIsNotRead(t *testing.T) {
	w := newWorld(t, nil)
	bob, err := cluster.Client(cluster.User("bob"))
	w.must(err)
	w.must(bob.Create(t.Context(), &v1alpha1.Workstation{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "ws-bob"},
		Spec:       v1alpha1.WorkstationSpec{Owner: "bob", MemoryRef: v1alpha1.LocalRef{Name: "team"}, PublicKey: w.identity.Recipient()},
	}))
	ws := &v1alpha1.Workstation{}
	w.must(w.admin.Get(t.Context(), types.NamespacedName{Namespace: w.namespace, Name: "ws-bob"}, ws))
	r, err := redact.New()
	w.must(err)
	wr := &writer{w: w, name: "ws-bob", uid: string(ws.UID), chain: segment.Start(w.key.Name, "ws-bob"), raws: map[int64][]byte{}, redactor: r}
	wr.segment(userLine("u1", "Words of somebody else."))
	wr.apply()
	_, _ = w.reconcile() // says what is wrong
	s := w.get()
	if got := condition(s, v1alpha1.StalledCondition); got.Status != metav1.ConditionTrue || got.Reason != v1alpha1.InvalidSpecReason {
		t.Errorf("Stalled is %q %s: %s, want True InvalidSpec", got.Status, got.Reason, got.Message)
	}
	if w.words() != "" {
		t.Error("words of another owner's inbox reached Letta")
	}
}
