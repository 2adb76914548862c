//go:build envtest

package e2e

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/undersong-dev/undersong/internal/letta"
	"github.com/undersong-dev/undersong/internal/letta/api"
	"github.com/undersong-dev/undersong/internal/letta/lettatest"
	"github.com/undersong-dev/undersong/test/replay"
	"github.com/undersong-dev/undersong/test/stack"
)

// These are the rows of test/weaknesses that need the whole thread.

// TestW05: while the agent's turn of one Stop ran on, the plugin began another
// for the next, sent the same entries again and set its index back. Here one
// turn runs at a time in a conversation, what comes meanwhile waits, and every
// word is told once.
func TestW05(t *testing.T) {
	w := newWorld(t, nil)
	w.startController()
	s := w.session(w.desk, w.cwd, uuid.NewString())
	turns := parts.Letta.Turns()
	release := parts.Letta.HoldTurns()
	t.Cleanup(release)
	w.turn(s, "A question that takes long.", "Wait.")
	w.must(stack.Eventually(t.Context(), within, func() error {
		if parts.Letta.Turns() == turns {
			return errors.New("no turn began")
		}
		return nil
	}))
	w.turn(s, "Another question meanwhile.", "Wait, too.")
	w.turn(s, "And a third.", "And wait.")
	w.must(stack.Eventually(t.Context(), within, func() error {
		sessions, err := w.team.Sessions(t.Context())
		if err != nil {
			return err
		}
		if sessions[0].Spec.Lines < s.Lines() {
			return errors.New("not all is uploaded")
		}
		return nil
	}))
	if n := parts.Letta.Turns() - turns; n != 1 {
		t.Errorf("%d turns at once", n)
	}
	release()
	w.check()
}

// TestW07: when a turn failed, or the program died after the message was taken,
// the plugin moved its index on all the same. Here what was not answered is
// looked up and told again, or known to have been told.
func TestW07(t *testing.T) {
	w := newWorld(t, nil)
	w.startController()
	s := w.session(w.desk, w.cwd, uuid.NewString())
	const send = "POST /v1/conversations/{id}/messages"
	for name, order := range map[string]func(){
		"the turn fails":                     func() { parts.Letta.FailTurn(lettatest.TurnFault{}) },
		"the connection breaks before":       func() { parts.Letta.Inject(lettatest.Fault{Route: send, DropBefore: true}) },
		"the connection breaks behind it":    func() { parts.Letta.Inject(lettatest.Fault{Route: send, DropAfter: true}) },
		"the answer is cut in the middle":    func() { parts.Letta.Inject(lettatest.Fault{Route: send, CutAfter: 40}) },
		"the server has an error of its own": func() { parts.Letta.Inject(lettatest.Fault{Route: send, Status: 500}) },
	} {
		order()
		w.turn(s, "This is said while "+name+".", "This is answered while "+name+".")
		w.processed()
	}
	if n := parts.Letta.Faults(); n != 0 {
		t.Errorf("%d ordered faults did not strike", n)
	}
	w.check()
}

// TestW08: a last turn whose worker could not start was never sent. Here what is
// read lies in the spool, what is not lies in the transcript, and the next hook
// of any session brings both on their way.
func TestW08(t *testing.T) {
	w := newWorld(t, nil)
	w.startController()
	s := w.session(w.desk, w.cwd, uuid.NewString())
	w.turn(s, "Some words.", "Noted.")
	w.processed()
	w.must(parts.RestartS3(t.Context(), func() error {
		w.turn(s, "Words that the store does not take.", "They are spooled.")
		err := stack.Eventually(t.Context(), within, func() error {
			out, err := w.desk.Run(t.Context(), "status")
			if err == nil && !strings.Contains(out, "to be archived") {
				err = errors.New("nothing is spooled")
			}
			if err != nil {
				return err
			}
			// Or the note of the last hook would speak of the words below.
			out, err = w.desk.Run(t.Context(), "status", "--json")
			if err == nil && !strings.Contains(out, `"notesWaiting": 0`) {
				err = errors.New("a note waits")
			}
			return err
		})
		w.desk.KillDaemon()
		// And the last ones, of which no hook speaks any more.
		w.said = append(w.said, "Last words that nobody read.")
		return errors.Join(err, s.Typed("Last words that nobody read."))
	}))
	if w.desk.DaemonPID() != 0 {
		t.Fatal("the daemon still runs")
	}
	other := w.session(w.desk, w.cwd, uuid.NewString())
	w.turn(other, "Words of another session.", "Which wakes the daemon.")
	w.check()
}

// TestW14: at a first run the plugin made two agents, and the conversation
// belonged to the one that its configuration did not name. Here any number of
// sessions that begin at once share one agent, and each has one conversation.
func TestW14(t *testing.T) {
	w := newWorld(t, nil)
	laptop := w.workstation("bob", "laptop")
	there := w.project(laptop)
	// The first answer is lost: whether there is an agent is not known.
	parts.Letta.Inject(lettatest.Fault{Route: "POST /v1/agents/", DropAfter: true})
	w.startController()
	for i := range 3 {
		w.turn(w.session(w.desk, w.cwd, uuid.NewString()), fmt.Sprintf("Desk %d begins.", i), fmt.Sprintf("Desk %d is heard.", i))
		w.turn(w.session(laptop, there, uuid.NewString()), fmt.Sprintf("Laptop %d begins.", i), fmt.Sprintf("Laptop %d is heard.", i))
	}
	w.check()
	if n := parts.Letta.Faults(); n != 0 {
		t.Errorf("%d ordered faults did not strike", n)
	}
	// Also one that nobody speaks to is one too many.
	server := parts.LettaServer()
	c, err := api.New(api.Options{BaseURL: server.URL, Key: server.Secret["apiKey"]})
	w.must(err)
	agents, err := c.AgentsByTag(t.Context(), []string{"undersong"})
	w.must(err)
	agents = slices.DeleteFunc(agents, func(a letta.Agent) bool {
		return !slices.ContainsFunc(a.Tags, func(tag string) bool { return strings.Contains(tag, ":"+w.team.Namespace+"/") })
	})
	conversations := map[string]int{}
	for _, c := range parts.Letta.Conversations() {
		if strings.Contains(c.Summary, w.team.Namespace+"/") {
			conversations[c.Summary]++
		}
	}
	if len(agents) != 1 || len(conversations) != len(w.sessions) {
		t.Errorf("%d agents and %d conversations for %d sessions", len(agents), len(conversations), len(w.sessions))
	}
	for summary, n := range conversations {
		if n != 1 {
			t.Errorf("%s has %d conversations", summary, n)
		}
	}
}

// TestW24: the plugin put any amount into one message, which no model could take
// and which then was lost or stuck. Here what waited long goes in segments to the
// store, and in messages of bounded size to the memory.
func TestW24(t *testing.T) {
	w := newWorld(t, nil)
	s := w.session(w.desk, w.cwd, uuid.NewString())
	for i := range 60 {
		words := fmt.Sprintf("Number %d: ", i)
		w.said = append(w.said, words)
		w.must(s.Typed(words + strings.Repeat("many words ", 400)))
	}
	w.turn(s, "The last one.", "At last.")
	w.startController()
	w.check()
	var messages, largest int
	for _, c := range parts.Letta.Conversations() {
		for _, m := range c.Messages {
			if m.Role == "user" && strings.Contains(c.Summary, w.team.Namespace+"/") {
				messages++
				largest = max(largest, len(m.Text))
			}
		}
	}
	// A batch is at most 32 KiB; what is around it is little.
	if messages < 8 || largest > 40<<10 {
		t.Errorf("%d messages, the largest of %d bytes", messages, largest)
	}
}

// TestW34: the plugin paid for a turn of the model at every start, resume, clear
// and compact. Here a turn has words in it.
func TestW34(t *testing.T) {
	w := newWorld(t, nil)
	w.startController()
	s := w.session(w.desk, w.cwd, uuid.NewString())
	w.turn(s, "The only words.", "The only answer.")
	w.processed()
	turns := parts.Letta.Turns()
	for _, source := range []string{"resume", "clear", "compact", "startup"} {
		_, err := s.Start(t.Context(), source)
		w.must(err)
		w.must(s.Title("Title at " + source)) // a record, and no words
		w.must(s.Stop(t.Context(), ""))
		w.processed()
	}
	silent := replay.New(w.desk, w.desk.ClaudeDir(), w.cwd, uuid.NewString())
	_, err := silent.Start(t.Context(), "startup") // and nothing is ever said
	w.must(err)
	w.must(silent.End(t.Context()))
	w.processed()
	if n := parts.Letta.Turns() - turns; n != 0 {
		t.Errorf("%d turns of which nobody said a word", n)
	}
	w.check()
}
