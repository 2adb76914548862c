//go:build envtest

package session

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/internal/letta"
	"github.com/undersong-dev/undersong/internal/letta/api"
	"github.com/undersong-dev/undersong/internal/letta/lettatest"
	"github.com/undersong-dev/undersong/internal/segment"
	"github.com/undersong-dev/undersong/test/fault"
)

// request asks for something as the owner's command line does.
func (w *world) request(q v1alpha1.Request) {
	w.t.Helper()
	s := w.get()
	before := s.DeepCopy()
	s.Spec.Requests = append(s.Spec.Requests, q)
	w.must(w.user.Patch(w.t.Context(), s, client.MergeFrom(before), client.FieldOwner("undersong-cli")))
}

// answer is the answer to a request, nil if there is none.
func (w *world) answer(id string) *v1alpha1.Answer {
	w.t.Helper()
	for _, a := range w.get().Status.Answered {
		if a.ID == id {
			return &a
		}
	}
	return nil
}

// suspend sets the memory's spec.suspend.
func (w *world) suspend(to v1alpha1.Suspend) {
	w.t.Helper()
	w.change(func(m *v1alpha1.TeamMemory) { m.Spec.Suspend = to })
}

// change changes the memory.
func (w *world) change(f func(*v1alpha1.TeamMemory)) {
	w.t.Helper()
	mem := &v1alpha1.TeamMemory{}
	key := w.key
	key.Name = "team"
	w.must(w.admin.Get(w.t.Context(), key, mem))
	f(mem)
	w.must(w.admin.Update(w.t.Context(), mem))
}

// kept is everything in the archive, opened.
func (w *world) kept() string {
	w.t.Helper()
	var all strings.Builder
	for info, err := range w.bucket.List(w.t.Context(), "archive/") {
		w.must(err)
		data, err := w.bucket.Get(w.t.Context(), info.Key, segment.MaxPacked)
		w.must(err)
		if raw, err := segment.Unpack(data); err == nil {
			data = raw
		}
		all.Write(data)
		all.WriteByte('\n')
	}
	return all.String()
}

// only fails unless of all texts exactly these are in what is searched.
func (w *world) only(where, found string, want ...string) {
	w.t.Helper()
	for _, text := range []string{"tide tables are stored in GMT.", "Understood.", "What next?", "The harbour.", "Afterwards.", "Once more."} {
		wanted := false
		for _, one := range want {
			wanted = wanted || one == text
		}
		if has := strings.Contains(found, text); has != wanted {
			w.t.Errorf("%s has %q: %v, want %v", where, text, has, wanted)
		}
	}
}

// whispering makes the memory know something that the story's question is
// answered with.
func (w *world) whispering(agentID string) {
	w.t.Helper()
	c, err := api.New(api.Options{BaseURL: w.lettaURL, Key: "key"})
	w.must(err)
	_, err = c.PutBlock(w.t.Context(), agentID, letta.Block{Label: "conventions", Value: "- harbour lights burn until sunrise"}, "")
	w.must(err)
}

func TestForget(t *testing.T) {
	forget := func(q v1alpha1.Request) v1alpha1.Request {
		q.ID, q.Kind = "f1", v1alpha1.RequestForget
		return q
	}
	for name, c := range map[string]struct {
		reason string
		// delivered says that Letta has the story before the request.
		delivered bool
		request   v1alpha1.Request
		result    v1alpha1.AnswerResult
		says      []string
		archive   []string
		words     []string
	}{
		"whole, before delivery": {
			reason: "what nobody was told is gone without a trace", request: v1alpha1.Request{}, result: v1alpha1.AnswerDone,
		},
		"whole, after delivery": {
			reason: "the conversation goes, and what blocks learned is said", delivered: true,
			result: v1alpha1.AnswerPartial, says: []string{"blocks learned"},
		},
		"its one writer, after delivery": {
			reason: "all lines of the only writer are the whole session", delivered: true, request: v1alpha1.Request{Workstation: "ws-a"},
			result: v1alpha1.AnswerPartial, says: []string{"blocks learned"},
		},
		"the last lines, before delivery": {
			reason: "the rest is delivered", request: v1alpha1.Request{Workstation: "ws-a", FromLine: ptr.To[int64](6)},
			result: v1alpha1.AnswerDone, archive: []string{"tide tables are stored in GMT.", "Understood."}, words: []string{"tide tables are stored in GMT.", "Understood."},
		},
		"the first lines, before delivery": {
			reason: "a copy of a forgotten record that the same writer has later is forgotten, too", request: v1alpha1.Request{FromLine: ptr.To[int64](1), ToLine: ptr.To[int64](1)},
			result: v1alpha1.AnswerDone, archive: []string{"Understood.", "What next?", "The harbour."}, words: []string{"Understood.", "What next?", "The harbour."},
		},
		"a middle line, after delivery": {
			reason: "what the conversation has is said", delivered: true, request: v1alpha1.Request{Workstation: "ws-a", FromLine: ptr.To[int64](6), ToLine: ptr.To[int64](6)},
			result: v1alpha1.AnswerPartial, says: []string{"conversation", "blocks learned"},
			archive: []string{"tide tables are stored in GMT.", "Understood.", "The harbour."}, words: []string{"tide tables are stored in GMT.", "Understood.", "What next?", "The harbour."},
		},
		"lines of nobody": {
			reason: "a wrong name erases nothing", request: v1alpha1.Request{Workstation: "ws-x"},
			result: v1alpha1.AnswerRefused, says: []string{"ws-x"},
			archive: []string{"tide tables are stored in GMT.", "Understood.", "What next?", "The harbour."}, words: []string{"tide tables are stored in GMT.", "Understood.", "What next?", "The harbour."},
		},
		"backwards": {
			reason: "a span from behind erases nothing", request: v1alpha1.Request{FromLine: ptr.To[int64](3), ToLine: ptr.To[int64](2)},
			result: v1alpha1.AnswerRefused, says: []string{"fromLine"},
			archive: []string{"tide tables are stored in GMT.", "Understood.", "What next?", "The harbour."}, words: []string{"tide tables are stored in GMT.", "Understood.", "What next?", "The harbour."},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, nil)
			if !c.delivered {
				w.suspend(v1alpha1.SuspendDelivery)
			}
			w.story()
			if c.delivered {
				w.settleDown()
			} else {
				_, _ = w.reconcile() // archives, and is held back
			}
			conversation := w.get().Status.SyncState.ConversationID
			w.request(forget(c.request))
			if !c.delivered {
				_, _ = w.reconcile() // a request is carried out while deliveries are suspended
				if w.answer("f1") == nil {
					t.Errorf("%s: no answer while deliveries are suspended", c.reason)
				}
				w.suspend("")
			}
			s := w.settleDown()
			a := w.answer("f1")
			if a == nil || a.Result != c.result {
				t.Fatalf("%s: the answer is %+v, want %s", c.reason, a, c.result)
			}
			for _, part := range c.says {
				if !strings.Contains(a.Message, part) {
					t.Errorf("%s: the answer says %q, and nothing of %q", c.reason, a.Message, part)
				}
			}
			w.only("the archive", w.kept(), c.archive...)
			w.only("Letta", w.words(), c.words...)
			if s.Status.Lines != 7 || s.Status.LostLines != 0 {
				t.Errorf("%s: %d lines, %d lost; want 7 and none: counters do not shrink", c.reason, s.Status.Lines, s.Status.LostLines)
			}
			if whole := len(c.archive) == 0; whole && (s.Status.Title != "" || len(s.Status.Whispers) != 0 || (conversation != "" && s.Status.SyncState.ConversationID == conversation)) {
				t.Errorf("%s: status still has the title %q, %d whispers, conversation %s", c.reason, s.Status.Title, len(s.Status.Whispers), s.Status.SyncState.ConversationID)
			}
			if events := len(w.recorder.Events); c.result != v1alpha1.AnswerRefused && events != 1 {
				t.Errorf("%s: %d events, want 1", c.reason, events)
			}

			// Nothing is done a second time, the session goes on, and what was
			// erased stays so when it comes again.
			version := s.ResourceVersion
			for range 3 {
				_, _ = w.reconcile() // nothing is left to do
			}
			if again := w.get(); again.ResourceVersion != version {
				t.Errorf("%s: the answered request was written again: %s", c.reason, cmp.Diff(s.Status, again.Status))
			}
			ws := w.writer("ws-a")
			ws.segment(userLine("u8", "Afterwards."))
			ws.apply()
			w.settleDown()
			w.only("Letta", w.words(), append(c.words, "Afterwards.")...)
		})
	}
}

func TestForgetReachesCopiesOfOtherWriters(t *testing.T) {
	w := newWorld(t, nil)
	w.suspend(v1alpha1.SuspendDelivery)
	a, b := w.writer("ws-a"), w.writer("ws-b")
	a.segment(userLine("u1", "What next?"), userLine("u2", "Understood."))
	a.apply()
	b.segment(userLine("u1", "What next?"), userLine("u3", "The harbour."))
	b.apply()
	_, _ = w.reconcile() // archives
	w.request(v1alpha1.Request{ID: "f1", Kind: v1alpha1.RequestForget, Workstation: "ws-a", FromLine: ptr.To[int64](1), ToLine: ptr.To[int64](1)})
	_, _ = w.reconcile() // erases
	w.only("the archive", w.kept(), "Understood.", "The harbour.")
	w.suspend("")
	w.settleDown()
	w.only("Letta", w.words(), "Understood.", "The harbour.")
}

// ofArchive calls f with the archive's key of a writer's segment.
func (w *world) ofArchive(workstation string, seq int64, f func(key string)) {
	w.t.Helper()
	n := 0
	for info, err := range w.bucket.List(w.t.Context(), archiveHead(w.get(), segmentID{workstation, 0, seq})) {
		w.must(err)
		f(info.Key)
		n++
	}
	if n == 0 {
		w.t.Fatalf("the archive has no segment %d of %s", seq, workstation)
	}
}

// forged is a segment of the same form with other words.
func (w *world) forged(raw []byte) []byte {
	w.t.Helper()
	changed := bytes.Replace(raw, []byte("What next?"), []byte("What else?"), 1)
	if bytes.Equal(raw, changed) {
		w.t.Fatal("nothing is forged")
	}
	return segment.Pack(changed)
}

func TestForgetWithADamagedArchive(t *testing.T) {
	lost := func(w *world, key string) { w.must(w.bucket.Delete(w.t.Context(), key)) }
	broken := func(w *world, key string) { w.must(w.bucket.Put(w.t.Context(), key, []byte("no segment"))) }
	for name, c := range map[string]struct {
		reason  string
		segment int64
		damage  func(*world, string)
		request v1alpha1.Request
		result  v1alpha1.AnswerResult
		says    string
		archive []string
	}{
		"lost before":     {"lines behind a lost segment cannot be counted", 2, lost, v1alpha1.Request{FromLine: ptr.To[int64](4), ToLine: ptr.To[int64](5)}, v1alpha1.AnswerRefused, "lost segment", []string{"tide tables are stored in GMT.", "Understood.", "What next?", "The harbour."}},
		"lost between":    {"what can be counted is erased, the rest is said", 2, lost, v1alpha1.Request{FromLine: ptr.To[int64](2), ToLine: ptr.To[int64](5)}, v1alpha1.AnswerPartial, "lost segment", []string{"tide tables are stored in GMT.", "What next?", "The harbour."}},
		"lost, all":       {"what is not there need not be erased", 2, lost, v1alpha1.Request{}, v1alpha1.AnswerPartial, "blocks learned", nil},
		"damaged before":  {"lines behind what cannot be read cannot be counted", 2, broken, v1alpha1.Request{FromLine: ptr.To[int64](6), ToLine: ptr.To[int64](6)}, v1alpha1.AnswerRefused, "lost segment", []string{"tide tables are stored in GMT.", "Understood.", "What next?", "The harbour."}},
		"damaged, all":    {"what can be read is erased, the rest is said", 1, broken, v1alpha1.Request{}, v1alpha1.AnswerPartial, "segment 1 of workstation ws-a", nil},
		"damaged, behind": {"the count does not reach it", 3, broken, v1alpha1.Request{FromLine: ptr.To[int64](1), ToLine: ptr.To[int64](2)}, v1alpha1.AnswerPartial, "segment 3 of workstation ws-a", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, nil)
			w.story()
			w.settleDown()
			w.ofArchive("ws-a", c.segment, func(key string) { c.damage(w, key) })
			c.request.ID, c.request.Kind = "f1", v1alpha1.RequestForget
			w.request(c.request)
			w.until("an answer", func(*v1alpha1.Session) bool { return w.answer("f1") != nil })
			if got := w.answer("f1"); got == nil || got.Result != c.result || !strings.Contains(got.Message, c.says) {
				t.Errorf("%s: the answer is %+v, want %s with %q", c.reason, got, c.result, c.says)
			}
			kept := w.kept()
			for _, text := range c.archive {
				if !strings.Contains(kept, text) {
					t.Errorf("%s: %q was erased", c.reason, text)
				}
			}
			if c.segment == 3 {
				return // what is damaged just before them holds later words back
			}
			a := w.writer("ws-a")
			a.segment(userLine("u8", "Afterwards."))
			a.apply()
			w.settleDown()
			if !strings.Contains(w.words(), "Afterwards.") {
				t.Errorf("%s: later words are held back", c.reason)
			}
		})
	}
}

func TestAForgedSegmentIsNotDelivered(t *testing.T) {
	w := newWorld(t, nil)
	w.suspend(v1alpha1.SuspendDelivery)
	w.story()
	_, _ = w.reconcile() // archives
	w.ofArchive("ws-a", 3, func(key string) { w.must(w.bucket.Put(t.Context(), key, w.forged(w.writer("ws-a").raws[3]))) })
	w.suspend("")
	s := w.until("a segment that is not what its name says", reasonIs(v1alpha1.DeliveredCondition, v1alpha1.SegmentCorruptReason))
	if c := condition(s, v1alpha1.DeliveredCondition); !strings.Contains(c.Message, "does not fit the chain in its name") {
		t.Errorf("Delivered says %q", c.Message)
	}
	if strings.Contains(w.words(), "What else?") {
		t.Error("forged words were delivered")
	}
}

func TestForgetWaitsForWhatIsOnItsWay(t *testing.T) {
	w := newWorld(t, nil)
	w.suspend(v1alpha1.SuspendDelivery)
	w.story()
	a := w.writer("ws-a")
	w.must(w.bucket.Delete(t.Context(), segment.InboxKey(a.uid, 3)))
	w.request(v1alpha1.Request{ID: "f1", Kind: v1alpha1.RequestForget})
	w.suspend("")
	for range 5 {
		_, _ = w.reconcile() // erases what is there, and waits for the rest
	}
	if got := w.answer("f1"); got != nil {
		t.Errorf("answered %+v before all of it was there", got)
	}
	w.only("the archive", w.kept())
	a.put(3, segment.Pack(a.raws[3]))
	a.apply()
	w.settleDown()
	if got := w.answer("f1"); got == nil || got.Result != v1alpha1.AnswerDone {
		t.Errorf("the answer is %+v, want Done", got)
	}
	w.only("the archive", w.kept())
	w.only("Letta", w.words())
}

func TestForgetInMidTurnDropsTheAnswer(t *testing.T) {
	for name, whole := range map[string]bool{"whole": true, "one line": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			a := w.writer("ws-a")
			a.segment(userLine("u0", "Understood."))
			a.apply()
			w.whispering(w.settleDown().Status.SyncState.AgentID)
			release := w.letta.HoldTurns()
			a.segment(userLine("u1", "Do the harbour lights burn until sunrise? What next?"))
			a.apply()
			sent := w.letta.Requests(sendRoute)
			for w.letta.Requests(sendRoute) == sent {
				_, _ = w.reconcile() // until the turn is sent
			}
			q := v1alpha1.Request{ID: "f1", Kind: v1alpha1.RequestForget}
			if !whole {
				q.FromLine = ptr.To[int64](2)
			}
			w.request(q)
			_, _ = w.reconcile() // erases while the turn runs
			release()
			s := w.settleDown()
			if len(s.Status.Whispers) != 0 {
				t.Error("the answer to forgotten words was published")
			}
			if got := w.answer("f1"); got == nil || got.Result != v1alpha1.AnswerPartial {
				t.Errorf("the answer is %+v, want Partial", got)
			}
			a.segment(userLine("u2", "Afterwards. And do the harbour lights burn until sunrise?"))
			a.apply()
			if s := w.settleDown(); len(s.Status.Whispers) != 1 {
				t.Errorf("%d whispers after the next words, want 1", len(s.Status.Whispers))
			}
		})
	}
}

func TestForgetNextToAGap(t *testing.T) {
	for name, c := range map[string]struct {
		reason  string
		request v1alpha1.Request
		result  v1alpha1.AnswerResult
		archive []string
	}{
		"all":    {"nothing need be counted", v1alpha1.Request{}, v1alpha1.AnswerDone, nil},
		"behind": {"lines behind the gap cannot be counted", v1alpha1.Request{FromLine: ptr.To[int64](5)}, v1alpha1.AnswerRefused, []string{"tide tables are stored in GMT.", "Understood.", "What next?", "The harbour."}},
		"across": {"what can be counted is erased, the rest is said", v1alpha1.Request{FromLine: ptr.To[int64](2), ToLine: ptr.To[int64](6)}, v1alpha1.AnswerPartial, []string{"tide tables are stored in GMT.", "What next?", "The harbour."}},
		"open":   {"from before the gap to the end needs no count", v1alpha1.Request{FromLine: ptr.To[int64](2)}, v1alpha1.AnswerDone, []string{"tide tables are stored in GMT."}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, nil)
			w.suspend(v1alpha1.SuspendDelivery)
			w.story()
			a := w.writer("ws-a")
			a.slots = append(a.slots[:1], a.slots[2])
			a.gone = []int64{2}
			a.apply()
			_, _ = w.reconcile() // archives a gap
			c.request.ID, c.request.Kind = "f1", v1alpha1.RequestForget
			w.request(c.request)
			_, _ = w.reconcile() // answers
			if got := w.answer("f1"); got == nil || got.Result != c.result {
				t.Errorf("%s: the answer is %+v, want %s", c.reason, got, c.result)
			}
			w.must(w.bucket.Delete(t.Context(), segment.InboxKey(a.uid, 2))) // the test's own leftover
			w.only("the archive", w.kept(), c.archive...)
		})
	}
}

func TestForgetSurvivesEveryFault(t *testing.T) {
	tell := func(w *world) {
		w.story()
		for range 4 {
			_, _ = w.reconcile() // some way into the first delivery
		}
		w.request(v1alpha1.Request{ID: "f1", Kind: v1alpha1.RequestForget})
	}
	undisturbed := newWorld(t, nil)
	tell(undisturbed)
	before := undisturbed.counter.Calls()
	want := undisturbed.forgotten()
	calls := undisturbed.counter.Calls()
	for mode, name := range map[fault.Mode]string{fault.Before: "not sent", fault.After: "answer lost"} {
		for at := before + 1; at <= calls; at++ {
			t.Run(fmt.Sprintf("%s/%d", name, at), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, &fault.Counter{At: at, Mode: mode})
				tell(w)
				if diff := cmp.Diff(want, w.forgotten(), cmpopts.EquateEmpty()); diff != "" {
					t.Errorf("after %s failed the end differs (-undisturbed +got):\n%s", w.counter.Failed(), diff)
				}
			})
		}
	}
	for step := range 6 {
		t.Run(fmt.Sprintf("a new process after %d steps", step), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, nil)
			tell(w)
			for range step {
				_, _ = w.reconcile() // whatever it says, the process dies now
			}
			w.restart()
			if diff := cmp.Diff(want, w.forgotten(), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("the end differs (-undisturbed +got):\n%s", diff)
			}
		})
	}
}

// forgotten is what is left of a session that was forgotten in mid-turn.
func (w *world) forgotten() end {
	w.t.Helper()
	e := w.end(w.settleDown())
	w.only("the archive", w.kept())
	w.only("Letta", w.words())
	// How far the turn came, and so what is said of it, is a matter of time.
	for i := range e.Status.Answered {
		e.Status.Answered[i].Result, e.Status.Answered[i].Message = "", ""
	}
	e.Blocks, e.Status.SyncState.MemoryRevision, e.Status.SyncState.Blocks, e.Status.SyncState.AgentID = nil, "", nil, ""
	e.Status.SyncState.Delivery = nil
	return e
}

func TestAWrongWhisper(t *testing.T) {
	w := newWorld(t, nil)
	a := w.writer("ws-a")
	a.segment(userLine("u0", "Understood."))
	a.apply()
	w.whispering(w.settleDown().Status.SyncState.AgentID)
	a.segment(userLine("u1", "Do the harbour lights burn until sunrise?"))
	a.apply()
	s := w.settleDown()
	if len(s.Status.Whispers) != 1 {
		t.Fatalf("%d whispers, want 1", len(s.Status.Whispers))
	}
	id := s.Status.Whispers[0].ID
	for len(w.recorder.Events) > 0 {
		<-w.recorder.Events
	}
	w.request(v1alpha1.Request{ID: "w1", Kind: v1alpha1.RequestWrongWhisper, Whisper: id})
	w.request(v1alpha1.Request{ID: "w2", Kind: v1alpha1.RequestWrongWhisper, Whisper: "<script>"})
	s = w.settleDown()
	if got := w.answer("w1"); len(s.Status.Whispers) != 0 || got == nil || got.Result != v1alpha1.AnswerDone {
		t.Errorf("%d whispers, the answer is %+v", len(s.Status.Whispers), got)
	}
	if got := w.answer("w2"); got == nil || got.Result != v1alpha1.AnswerRefused {
		t.Errorf("the answer to an id that is none is %+v", got)
	}
	if n := len(w.recorder.Events); n != 1 {
		t.Errorf("%d events, want 1", n)
	} else if e := <-w.recorder.Events; !strings.Contains(e, id) || !strings.Contains(e, eventWhisperWithdrawn) {
		t.Errorf("the event says %q", e)
	}
	// The agent is told with the next words, once, whatever becomes of the
	// first try.
	w.letta.FailTurn(lettatest.TurnFault{})
	a.segment(userLine("u2", "Afterwards."))
	a.apply()
	w.settleDown()
	a.segment(userLine("u3", "Once more."))
	a.apply()
	w.settleDown()
	if n := strings.Count(w.words(), `<wrong_answer id="`+id+`"/>`); n != 1 {
		t.Errorf("the agent was told %d times, want once:\n%s", n, w.words())
	}
	if c := w.get().Status.SyncState.Corrections; len(c) != 0 {
		t.Errorf("still to be told: %v", c)
	}
}

func TestTooManyWrongWhispers(t *testing.T) {
	w := newWorld(t, nil)
	w.story()
	s := w.settleDown()
	for i := range 16 {
		s.Status.SyncState.Corrections = append(s.Status.SyncState.Corrections, fmt.Sprintf("0-%d", i))
	}
	s.Status.Whispers = []v1alpha1.Whisper{{ID: "1"}}
	sc := &scope{ses: s, key: w.key}
	for id, want := range map[string]v1alpha1.AnswerResult{"0-3": v1alpha1.AnswerDone, "2": v1alpha1.AnswerRefused, "1": v1alpha1.AnswerPartial} {
		a := w.r.wrongWhisper(sc, &v1alpha1.Request{Whisper: id})
		if a.Result != want || a.Message == "" {
			t.Errorf("%s: the answer is %+v, want %s", id, a, want)
		}
	}
	if len(s.Status.Whispers) != 0 || len(s.Status.SyncState.Corrections) != 16 {
		t.Errorf("%d whispers, %d corrections; want none and 16", len(s.Status.Whispers), len(s.Status.SyncState.Corrections))
	}
}

func TestAnAnswerGoesWithItsRequest(t *testing.T) {
	w := newWorld(t, nil)
	w.story()
	w.settleDown()
	w.request(v1alpha1.Request{ID: "w1", Kind: v1alpha1.RequestWrongWhisper, Whisper: "0"})
	w.settleDown()
	s := w.get()
	s.Spec.Requests = nil
	w.must(w.user.Update(t.Context(), s, client.FieldOwner("undersong-cli")))
	if s := w.settleDown(); len(s.Status.Answered) != 0 || condition(s, v1alpha1.ReadyCondition).Status != metav1.ConditionTrue {
		t.Errorf("answers to nothing: %+v", s.Status.Answered)
	}
}
