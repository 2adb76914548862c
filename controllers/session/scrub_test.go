//go:build envtest

package session

import (
	"context"
	"crypto/rand"
	"fmt"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/controllers/connect"
	"github.com/undersong-dev/undersong/internal/letta"
	"github.com/undersong-dev/undersong/internal/letta/api"
	"github.com/undersong-dev/undersong/internal/letta/lettatest"
	"github.com/undersong-dev/undersong/internal/redact"
	"github.com/undersong-dev/undersong/internal/seal"
	"github.com/undersong-dev/undersong/internal/segment"
)

// leaked is a text that no rule takes for a secret.
const leaked = "the lamp room code is heron-nine"

// scrubEntry is what undersong admin scrub writes.
func (w *world) scrubEntry(id, value string, mode v1alpha1.ScrubMode) v1alpha1.Scrub {
	w.t.Helper()
	mem := w.team()
	if mem.Status.ScrubKey == "" {
		identity, err := w.r.Connect.ScrubIdentity(w.t.Context(), mem, true)
		w.must(err)
		before := mem.DeepCopy()
		mem.Status.ScrubKey = identity.Recipient()
		w.must(w.r.Client.Status().Patch(w.t.Context(), mem, client.MergeFrom(before)))
	}
	key := make([]byte, redact.KnownKeySize)
	_, err := rand.Read(key)
	w.must(err)
	digest, err := redact.KnownDigest(key, []byte(value))
	w.must(err)
	sealed, err := seal.Seal(key, mem.Status.ScrubKey)
	w.must(err)
	return v1alpha1.Scrub{ID: id, Mode: mode, Length: int32(len(value)), Digest: digest, SealedKey: sealed}
}

// team is the TeamMemory as it is.
func (w *world) team() *v1alpha1.TeamMemory {
	w.t.Helper()
	mem := &v1alpha1.TeamMemory{}
	w.must(w.admin.Get(w.t.Context(), types.NamespacedName{Namespace: w.namespace, Name: "team"}, mem))
	return mem
}

// scrubber is a new process's Scrubber.
func (w *world) scrubber() *Scrubber {
	if w.r.Scrubs == nil {
		w.r.Scrubs = NewScrubs()
	}
	return &Scrubber{
		Client: w.r.Client, Live: w.r.Live, Connect: w.r.Connect, Agents: w.r.Agents, Redactor: w.r.Redactor, Scrubs: w.r.Scrubs, Clock: w.r.Clock,
		Patience: time.Minute,
	}
}

// scrub runs the Scrubber beside the reconciler until all is done, and returns
// what became of an entry.
func (w *world) scrub(id string) v1alpha1.ScrubStatus {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 2*time.Minute)
	defer cancel()
	s := w.scrubber()
	done := make(chan error, 1)
	mem := w.team()
	go func() { done <- s.Scrub(ctx, mem) }()
	for {
		select {
		case err := <-done:
			w.must(err)
			for _, s := range w.team().Status.Scrubs {
				if s.ID == id {
					return s
				}
			}
			w.t.Fatalf("status says nothing of %s", id)
		case <-s.Scrubs.Events:
		case <-time.After(20 * time.Millisecond):
		}
		if s.Scrubs.task(w.key) != nil {
			_, _ = w.reconcile() // its error is in the conditions
		}
	}
}

func counted(s v1alpha1.ScrubStatus) string {
	var all []string
	for _, f := range s.Found {
		if f.Found > 0 || f.Changed > 0 {
			all = append(all, fmt.Sprintf("%s %d/%d", f.Place, f.Found, f.Changed))
		}
	}
	return strings.Join(all, ", ")
}

// everything is all that is kept of the team in the bucket, in the API server and
// at Letta.
func (w *world) everything() string {
	w.t.Helper()
	ctx := w.t.Context()
	var all strings.Builder
	for info, err := range w.bucket.List(ctx, "") {
		w.must(err)
		data, err := w.bucket.Get(ctx, info.Key, segment.MaxPacked)
		w.must(err)
		if raw, err := segment.Unpack(data); err == nil {
			data = raw
		}
		fmt.Fprintf(&all, "%s\n%s\n", info.Key, data)
	}
	var sessions v1alpha1.SessionList
	var blocks v1alpha1.MemoryBlockList
	w.must(w.admin.List(ctx, &sessions, client.InNamespace(w.namespace)))
	w.must(w.admin.List(ctx, &blocks, client.InNamespace(w.namespace)))
	fmt.Fprintf(&all, "%+v\n%+v\n%+v\n", sessions.Items, blocks.Items, w.team())
	for _, c := range w.letta.Conversations() {
		fmt.Fprintf(&all, "%+v\n", c)
	}
	c, err := api.New(api.Options{BaseURL: w.lettaURL, Key: "key"})
	w.must(err)
	agents, err := c.AgentsByTag(ctx, []string{connect.MemoryTag(w.team())})
	w.must(err)
	for _, a := range agents {
		m, err := c.Memory(ctx, a.ID)
		w.must(err)
		fmt.Fprintf(&all, "%+v\n", m)
	}
	return all.String()
}

// TestScrub: a text is found wherever the memory has it, nothing is changed while
// it is only looked for, and afterwards it is nowhere, also when its workstation
// sends it once more. The proofs hold, and doing it again does nothing.
func TestScrub(t *testing.T) {
	w := newWorld(t, nil)
	wr := w.writer("desk")
	wr.segment(titleLine("About "+leaked), userLine("u1", "note that "+leaked+", remember"), assistantLine("a1", "noted"))
	wr.segment(userLine("u2", "nothing of interest"), assistantLine("a2", "indeed"))
	wr.apply()
	w.settleDown()
	ses := w.get()
	c := w.client()
	agent := ses.Status.SyncState.AgentID
	_, err := c.PutBlock(t.Context(), agent, letta.Block{Label: "pitfalls", Value: "- " + leaked + "\n- keep"}, "test")
	w.must(err)
	w.must(w.bucket.Put(t.Context(), segment.BlockKey(w.namespace, strings.Repeat("a", 64)), []byte("- "+leaked)))
	wr.segment(userLine("u3", "more"), assistantLine("a3", "yes"))
	wr.apply()
	ses = w.settleDown()
	conversation := ses.Status.SyncState.ConversationID
	head := ses.Status.SyncState.Writers[0].Verified

	entry := w.scrubEntry("look", leaked, v1alpha1.ScrubLook)
	w.change(func(m *v1alpha1.TeamMemory) { m.Spec.Scrubs = []v1alpha1.Scrub{entry} })
	look := w.scrub("look")
	if got, want := counted(look), "Blocks 1/0, Archive 1/0, Records 1/0, Conversations 1/0, BlockTexts 2/0, Sessions 1/0"; look.Phase != v1alpha1.ScrubDone || got != want {
		t.Errorf("looking: %s: %s, want %s: %v", look.Phase, got, want, look.NotReached)
	}
	if n := strings.Count(w.everything(), leaked); n < 6 {
		t.Errorf("looking for it took it away: it stands in %d places", n)
	}

	w.change(func(m *v1alpha1.TeamMemory) { m.Spec.Scrubs[0].Mode = v1alpha1.ScrubRemove })
	gone := w.scrub("look")
	if got, want := counted(gone), "Blocks 1/1, Archive 1/1, Records 1/1, Conversations 1/1, BlockTexts 2/2"; gone.Phase != v1alpha1.ScrubDone || got != want {
		t.Errorf("removing: %s: %s, want %s: %v", gone.Phase, got, want, gone.NotReached)
	}
	ses = w.settleDown()
	all := w.everything()
	if i := strings.Index(all, leaked); i >= 0 {
		t.Errorf("it is still there: …%s…", all[max(0, i-300):min(len(all), i+100)])
	}
	if !strings.Contains(all, "[redacted:scrub-look]") || !strings.Contains(all, "nothing of interest") {
		t.Error("more went than the text")
	}
	y := ses.Status.SyncState
	if y.ConversationID == conversation || y.Writers[0].Verified != head || ses.Status.LostLines != 0 || len(ses.Status.Whispers) > 0 {
		t.Errorf("conversation %s, verified %+v, lost %d, whispers %d", y.ConversationID, y.Writers[0].Verified, ses.Status.LostLines, len(ses.Status.Whispers))
	}
	if gone.Sessions == nil || gone.Sessions[0] != w.key.Name {
		t.Errorf("sessions %v", gone.Sessions)
	}

	// Once more, and from a new process: nothing is written.
	before := w.team()
	w.restart()
	w.must(w.scrubber().Scrub(t.Context(), before))
	if after := w.team(); after.ResourceVersion != before.ResourceVersion {
		t.Error("what is done is done again")
	}

	// The workstation sends it again, and goes on.
	wr.segment(userLine("u4", "as I said: "+leaked), assistantLine("a4", "I see"))
	wr.apply()
	w.settleDown()
	if all := w.everything(); strings.Contains(all, leaked) {
		t.Error("it came back with what was sent again")
	}
}

// TestScrubOfWhatEveryConversationIsTold: a conversation is told the memory once,
// before all messages. The text is taken out of that too, and the conversation
// stays.
func TestScrubOfWhatEveryConversationIsTold(t *testing.T) {
	w := newWorld(t, nil)
	w.writer("desk").say("u1", "Note for the team: "+leaked+".")
	beside := w.beside("5e550001-0000-4000-8000-000000000002", remote)
	conversation := beside.writer("desk-b").say("b1", "hello").Status.SyncState.ConversationID
	if n := strings.Count(fmt.Sprint(w.letta.Conversations()), leaked); n != 2 {
		t.Fatalf("Letta has it in %d messages, want 2", n)
	}
	entry := w.scrubEntry("told", leaked, v1alpha1.ScrubRemove)
	w.change(func(m *v1alpha1.TeamMemory) { m.Spec.Scrubs = []v1alpha1.Scrub{entry} })
	if got, want := counted(w.scrub("told")), "Blocks 1/1, Archive 1/1, Conversations 1/1, BlockTexts 1/1"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if strings.Contains(w.everything(), leaked) {
		t.Error("it is still there")
	}
	if got := beside.get().Status.SyncState.ConversationID; got != conversation {
		t.Errorf("the other session's conversation is %q, want %q", got, conversation)
	}
}

// TestScrubIsKilledAnywhere: whatever call of a process is its last, the next one
// ends what it began, and says the same of it.
func TestScrubIsKilledAnywhere(t *testing.T) {
	w := newWorld(t, nil)
	wr := w.writer("desk")
	wr.segment(userLine("u0", "hello"), assistantLine("a0", "hello"))
	wr.apply()
	w.settleDown()
	for n := range 8 {
		value := fmt.Sprintf("the code of lamp room %d is heron", n)
		wr.segment(userLine(fmt.Sprintf("u1-%d", n), "note that "+value), assistantLine(fmt.Sprintf("a1-%d", n), "noted"))
		wr.apply()
		w.settleDown()
		entry := w.scrubEntry(fmt.Sprintf("kill-%d", n), value, v1alpha1.ScrubRemove)
		w.change(func(m *v1alpha1.TeamMemory) { m.Spec.Scrubs = []v1alpha1.Scrub{entry} })

		// It dies in the middle of what the Session does for it, or on its way.
		ctx, kill := context.WithCancel(t.Context())
		s := w.scrubber()
		over, last := make(chan struct{}), int64(math.MaxInt64)
		if n >= 4 {
			last = w.counter.Calls() + int64(n-3)*7
		}
		mem := w.team()
		go func() {
			defer close(over)
			_ = s.Scrub(ctx, mem) // it is killed
		}()
		for steps, dead := 0, false; !dead; {
			select {
			case <-over:
				dead = true
			case <-s.Scrubs.Events:
			case <-time.After(time.Millisecond):
			}
			if s.Scrubs.task(w.key) != nil {
				if steps == n {
					kill()
				}
				steps++
			}
			if w.counter.Calls() >= last {
				kill()
			}
			if ctx.Err() == nil {
				_, _ = w.reconcile() // its error is in the conditions
			}
		}
		kill()
		w.restart()
		status := w.scrub(entry.ID)
		w.settleDown()
		if got, want := counted(status), "Archive 1/1, Conversations 1/1"; got != want || status.Phase != v1alpha1.ScrubDone {
			t.Errorf("%d: %s, want %s: %s %v", n, got, want, status.Message, status.NotReached)
		}
		if all := w.everything(); strings.Contains(all, value) {
			t.Errorf("%d: it is still there", n)
		}
	}
}

// TestScrubMeetsATurn: what is being said just now, or was answered and nobody
// knows it yet, is not said, and its words come without the text, once.
func TestScrubMeetsATurn(t *testing.T) {
	for name, answered := range map[string]bool{"running": false, "answered": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			wr := w.writer("desk")
			wr.segment(userLine("u0", "hello"), assistantLine("a0", "hello"))
			wr.apply()
			w.settleDown()
			release := w.letta.HoldTurns()
			defer release()
			wr.segment(userLine("u1", "note that "+leaked+", and the harbour is deep"), assistantLine("a1", "noted"))
			wr.apply()
			for range 100 {
				_, _ = w.reconcile() // its error is in the conditions
				if d := w.get().Status.SyncState.Delivery; d != nil && d.Phase == v1alpha1.DeliverySending && w.r.Turns.runs(w.key, clientID(d)) {
					break
				}
				w.pause()
			}
			if answered {
				release()
				<-w.r.Turns.Events // and nobody has looked
			}
			entry := w.scrubEntry("turn", leaked, v1alpha1.ScrubRemove)
			w.change(func(m *v1alpha1.TeamMemory) { m.Spec.Scrubs = []v1alpha1.Scrub{entry} })
			if status := w.scrub("turn"); !strings.Contains(counted(status), "Archive 1/1") || !strings.Contains(counted(status), "Conversations 1/1") {
				t.Errorf("%s, %v", counted(status), status.NotReached)
			}
			release()
			ses := w.settleDown()
			if strings.Contains(w.everything(), leaked) {
				t.Error("it is still there")
			}
			told := 0
			for _, c := range w.letta.Conversations() {
				for _, m := range c.Messages {
					told += strings.Count(m.Text, "the harbour is deep")
				}
			}
			if told != 1 || ses.Status.Lag != 0 || ses.Status.LostLines != 0 {
				t.Errorf("told %d times, lag %d, lost %d", told, ses.Status.Lag, ses.Status.LostLines)
			}
		})
	}
}

// TestScrubOfASessionThatIsGone: its archive and its conversation are there
// still, and rebuild brings nothing back.
func TestScrubOfASessionThatIsGone(t *testing.T) {
	w := newWorld(t, nil)
	wr := w.writer("desk")
	wr.segment(titleLine("About "+leaked), userLine("u1", "note that "+leaked), assistantLine("a1", "noted"))
	wr.apply()
	w.settleDown()
	w.must(w.user.Delete(t.Context(), w.get()))
	w.restart()
	entry := w.scrubEntry("gone", leaked, v1alpha1.ScrubRemove)
	w.change(func(m *v1alpha1.TeamMemory) { m.Spec.Scrubs = []v1alpha1.Scrub{entry} })
	s := w.scrubber()
	w.must(s.Scrub(t.Context(), w.team()))
	status := w.team().Status.Scrubs[0]
	if got, want := counted(status), "Blocks 0/0"; strings.Contains(got, want) || !strings.Contains(got, "Archive 1/1, Records 1/1, Conversations 1/1") {
		t.Errorf("%s, %v", got, status.NotReached)
	}
	if all := w.everything(); strings.Contains(all, leaked) {
		t.Error("it is still there")
	}
	w.must(Rebuild(t.Context(), w.admin, w.bucket, w.team(), func(one Rebuilt) { w.must(one.Err) }))
	ses := w.settleDown()
	if ses.Status.LostLines != 0 || ses.Status.Lag != 0 || !strings.Contains(ses.Status.Title, "[redacted:scrub-gone]") || strings.Contains(w.everything(), leaked) {
		t.Errorf("rebuilt: %+v", ses.Status)
	}
}

// TestScrubComesLate: what is archived and not delivered yet is delivered without
// the text, before anybody has rewritten it.
func TestScrubComesLate(t *testing.T) {
	w := newWorld(t, nil)
	w.suspend(v1alpha1.SuspendDelivery)
	wr := w.writer("desk")
	wr.segment(userLine("u1", "note that "+leaked), assistantLine("a1", "noted"))
	wr.apply()
	for range 5 {
		_, _ = w.reconcile() // its error is in the conditions
	}
	if !strings.Contains(w.kept(), leaked) {
		t.Fatal("nothing is archived")
	}
	entry := w.scrubEntry("late", leaked, v1alpha1.ScrubRemove)
	w.change(func(m *v1alpha1.TeamMemory) {
		m.Spec.Scrubs, m.Spec.Suspend = []v1alpha1.Scrub{entry}, v1alpha1.SuspendNone
	})
	w.settleDown()
	if said := fmt.Sprint(w.letta.Conversations()); strings.Contains(said, leaked) || !strings.Contains(said, "[redacted:scrub-late]") {
		t.Errorf("the agent was told %s", said)
	}
}

// TestScrubThatCannotBeOpened: of another store than this one. It says so, once.
func TestScrubThatCannotBeOpened(t *testing.T) {
	w := newWorld(t, nil)
	entry := w.scrubEntry("foreign", leaked, v1alpha1.ScrubRemove)
	w.must(w.bucket.Delete(t.Context(), segment.ScrubIdentityKey(w.namespace, "team")))
	_, err := w.r.Connect.ScrubIdentity(t.Context(), w.team(), true)
	w.must(err)
	w.change(func(m *v1alpha1.TeamMemory) { m.Spec.Scrubs = []v1alpha1.Scrub{entry} })
	w.must(w.scrubber().Scrub(t.Context(), w.team()))
	is := w.team()
	if s := is.Status.Scrubs[0]; s.Phase != v1alpha1.ScrubRefused || s.Message != connect.ErrNotSealedHere.Error() {
		t.Errorf("%+v", s)
	}
	w.must(w.scrubber().Scrub(t.Context(), is))
	w.change(func(m *v1alpha1.TeamMemory) { m.Spec.Scrubs = nil })
	w.must(w.scrubber().Scrub(t.Context(), w.team()))
	if left := w.team().Status.Scrubs; len(left) > 0 {
		t.Errorf("taken away, and still there: %+v", left)
	}
}

// TestScrubOfWhatTheSpecSays: the record repeats the spec, which is the
// workstation's. What is not there any more goes; what is, is said to stay.
func TestScrubOfWhatTheSpecSays(t *testing.T) {
	for name, c := range map[string]struct {
		reason  string
		value   string
		now     string
		gone    bool
		counted string
		left    []string
	}{
		"remote": {
			reason: "nobody can change the project", value: "lighthouse/lantern", now: "main", counted: "Records 1/0, Conversations 1/1",
			left: []string{"the record of Session ", "spec of Session "},
		},
		"branch": {
			reason: "the workstation still names it", value: leaked, now: leaked, counted: "Records 1/0",
			left: []string{"the record of Session ", "spec of Session "},
		},
		"remote, and the Session is gone": {
			reason: "the record says whose it is", value: "lighthouse/lantern", now: "main", gone: true, counted: "Records 1/0, Conversations 1/1",
			left: []string{"the record archive/"},
		},
		"branch of before": {reason: "only the record still names it", value: leaked, now: "main", counted: "Records 1/1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, nil)
			wr := w.writer("desk")
			wr.branch = leaked
			wr.segment(userLine("u1", "nothing of interest"), assistantLine("a1", "indeed"))
			wr.apply()
			w.settleDown()
			wr.branch = c.now
			wr.apply()
			w.settleDown()
			if c.gone {
				w.must(w.user.Delete(t.Context(), w.get()))
				w.restart()
			}
			entry := w.scrubEntry("spec", c.value, v1alpha1.ScrubRemove)
			w.change(func(m *v1alpha1.TeamMemory) { m.Spec.Scrubs = []v1alpha1.Scrub{entry} })
			status := w.scrub("spec")
			if got := counted(status); status.Phase != v1alpha1.ScrubDone || got != c.counted {
				t.Errorf("%s: %s: %s, want %s", c.reason, status.Phase, got, c.counted)
			}
			if len(status.NotReached) != len(c.left) {
				t.Fatalf("%s: not reached: %q, want %q", c.reason, status.NotReached, c.left)
			}
			for i, begin := range c.left {
				if !strings.HasPrefix(status.NotReached[i], begin) || !c.gone && !strings.Contains(status.NotReached[i], "delete that Session") {
					t.Errorf("%s: not reached: %q, want %q and what to do", c.reason, status.NotReached[i], begin)
				}
			}
			if there := strings.Contains(w.everything(), c.value); there != (len(c.left) > 0) {
				t.Errorf("%s: it is there: %v", c.reason, there)
			}
			if c.gone {
				return
			}
			if s := w.settleDown(); s.Status.LostLines != 0 || s.Status.Lag != 0 {
				t.Errorf("%s: %d lost, lag %d", c.reason, s.Status.LostLines, s.Status.Lag)
			}
		})
	}
}

// TestScrubWaitsWhileLettaRests: a Session that cannot do its part because Letta
// does not answer is not left out. That is said once.
func TestScrubWaitsWhileLettaRests(t *testing.T) {
	w := newWorld(t, nil)
	wr := w.writer("desk")
	wr.segment(userLine("u1", "note that "+leaked), assistantLine("a1", "noted"))
	wr.apply()
	w.settleDown()
	entry := w.scrubEntry("rest", leaked, v1alpha1.ScrubRemove)
	w.change(func(m *v1alpha1.TeamMemory) { m.Spec.Scrubs = []v1alpha1.Scrub{entry} })

	// It comes as far as the Session, and Letta goes down.
	ctx, kill := context.WithCancel(t.Context())
	s := w.scrubber()
	over, mem := make(chan struct{}), w.team()
	go func() {
		defer close(over)
		_ = s.Scrub(ctx, mem) // it is killed
	}()
	for s.Scrubs.task(w.key) == nil {
		<-s.Scrubs.Events
	}
	kill()
	<-over
	w.restart()
	w.r.Connect.FirstRest = time.Hour
	c, err := w.r.Connect.Letta(t.Context(), w.team())
	w.must(err)
	for range 16 { // more than a client's patience
		w.letta.Inject(lettatest.Fault{Status: http.StatusServiceUnavailable})
	}
	if _, err := c.Agent(t.Context(), w.get().Status.SyncState.AgentID); err == nil || w.r.Connect.Resting(w.team()) == nil {
		t.Fatalf("Letta does not rest: %v", err)
	}

	version := ""
	for range 3 {
		s := w.scrubber()
		s.Patience = time.Nanosecond
		if err := s.Scrub(t.Context(), w.team()); err == nil {
			t.Error("it is done while Letta rests")
		}
		is := w.team()
		if st := is.Status.Scrubs[0]; st.Phase != v1alpha1.ScrubRunning || len(st.NotReached) > 0 || !strings.Contains(st.Message, "Letta") {
			t.Errorf("%s %q, not reached %q", st.Phase, st.Message, st.NotReached)
		}
		if version == "" {
			version = is.ResourceVersion
		}
		if is.ResourceVersion != version {
			t.Error("the same is said again")
		}
	}

	for plain := w.client(); w.letta.Faults() > 0; {
		_, _ = plain.AgentsByTag(t.Context(), []string{"none"}) // uses them up
	}
	w.restart()
	if status := w.scrub("rest"); status.Phase != v1alpha1.ScrubDone || counted(status) != "Archive 1/1, Conversations 1/1" || len(status.NotReached) > 0 || status.Message != "" {
		t.Errorf("%s %q: %s, not reached %q", status.Phase, status.Message, counted(status), status.NotReached)
	}
	w.settleDown()
	if strings.Contains(w.everything(), leaked) {
		t.Error("it is still there")
	}
}
