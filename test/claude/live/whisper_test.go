//go:build envtest && linux

package live

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/undersong-dev/undersong/agent/whisper"
	"github.com/undersong-dev/undersong/test/claude"
	"github.com/undersong-dev/undersong/test/stack"
)

// injected finds what our hook put into a request: the ids of its elements.
var injected = regexp.MustCompile(`<team_memory [^>]*\bid=\\?"([^"\\]+)\\?"`)

// given returns the ids of whispers in a request, as often as they are there.
func given(r *claude.Request) []string {
	var ids []string
	for _, m := range r.Messages {
		for _, found := range injected.FindAllStringSubmatch(m.Text(), -1) {
			ids = append(ids, found[1])
		}
	}
	return ids
}

// put lets a whisper wait for a session, as the daemon does.
func (w *world) put(session string) string {
	w.t.Helper()
	id := uuid.NewString()
	w.must(whisper.Put(w.desk.State, whisper.Whisper{
		ID: id, Session: session, Project: "git.example.com/lighthouse/lantern", Memory: "team", Text: "The lamp " + id[:8] + " needs oil.", At: time.Now().UTC(),
	}))
	return id
}

// waits fails unless a whisper waits for its session.
func (w *world) waits(session, id, after string) {
	w.t.Helper()
	if !slices.Contains(w.whispers(session, "waiting"), id) {
		w.t.Errorf("%s: the whisper does not wait any more", after)
	}
}

// mostPrompts is after how many prompts a whisper must have been given: there is
// a limit on how many come in a row.
const mostPrompts = 6

// rests says prompts until nothing but the moment itself can hold a whisper back,
// and returns what was said.
func (t *talk) rests() []said {
	t.w.t.Helper()
	var all []said
	for range 3 {
		all = append(all, t.fills()...)
	}
	return all
}

// fills says a prompt that is like no other.
func (t *talk) fills() []said {
	t.w.t.Helper()
	prompt := "next question " + uuid.NewString()[:8]
	t.asks(prompt)
	return []said{user(prompt), assistant("Noted.")}
}

// receives says prompts until a whisper was given to the model, and returns what
// was said on the way.
func (t *talk) receives(id string) []said {
	t.w.t.Helper()
	var all []said
	for range mostPrompts {
		all = append(all, t.fills()...)
		requests := t.w.Model.Requests()
		if slices.Contains(given(&requests[len(requests)-1]), id) {
			return all
		}
		// What was printed and not given comes back once the transcript is read.
		t.w.must(stack.Eventually(t.w.t.Context(), within, func() error {
			if slices.Contains(t.w.whispers(t.Session(), "claimed"), id) {
				return errors.New("a whisper that was not given does not come back")
			}
			return nil
		}))
	}
	t.w.t.Fatalf("whisper %s was not given within %d prompts", id, mostPrompts)
	return nil
}

// TestAWhisperIsGivenOnce lets memory speak to a session, and looks into every
// request that the model receives. Each whisper must be in the talk once,
// wherever the session stands when it comes, and nothing of it may come back as
// something that was said.
func TestAWhisperIsGivenOnce(t *testing.T) {
	w := newWorld(t, nil)
	ctx := t.Context()
	w.teach("tide tables are stored in GMT, never in local time.")
	w.Witness.Refuses, w.Witness.Refusal = "REFUSEME", "not today"
	w.must(w.Witness.Tell())
	w.Model.Script(
		&claude.Rule{When: "PARALLEL", Tool: "Bash", Blocks: []claude.Block{{Text: "I look."}, bash("toolu_p1", "echo one"), {Tool: "Bash", ID: "toolu_p2", Input: map[string]any{"command": "echo two"}, Hold: "tools"}}},
		&claude.Rule{When: "toolu_p1", Blocks: []claude.Block{{Text: "Both are done."}}},
		&claude.Rule{When: "DELEGATE", Tool: "Agent", Blocks: []claude.Block{
			{Tool: "Agent", ID: "toolu_ag", Input: map[string]any{"description": "count lamps", "prompt": "COUNTLAMPS in this folder", "subagent_type": "general-purpose"}},
		}},
		&claude.Rule{When: "COUNTLAMPS", Tool: "Bash", Blocks: []claude.Block{{Tool: "Bash", ID: "toolu_s1", Input: map[string]any{"command": "echo lamp"}, Hold: "subagent"}}},
		&claude.Rule{When: "toolu_s1", Blocks: []claude.Block{{Text: "I counted one lamp."}}},
		&claude.Rule{When: "toolu_ag", Blocks: []claude.Block{{Text: "The subagent is at work."}}},
		&claude.Rule{When: "task-notification", Blocks: []claude.Block{{Text: "The subagent found one lamp."}}},
		&claude.Rule{When: "LASTLY", Blocks: []claude.Block{{Text: "That is all.", Hold: "answer"}}},
		&claude.Rule{When: "Respond with TEXT ONLY", Always: true, Blocks: []claude.Block{{Text: "<analysis>a</analysis><summary>They spoke about lamps.</summary>"}}},
	)
	k := w.talk()
	k.asks("Where are the tide tables stored, and in which time?")
	session := k.Session()
	talk := []said{user("Where are the tide tables stored, and in which time?"), assistant("Noted.")}

	// From Letta's answer to the model, by way of every part.
	id := w.whisperWaits(session)
	talk = append(talk, k.receives(id)...)

	// Before two tool calls at once.
	talk = append(talk, k.rests()...)
	w.must(k.Say(ctx, "PARALLEL look at both"))
	w.must(k.Until(ctx, within, "first words", func(screen string) bool { return strings.Contains(screen, "I look.") }))
	tools := w.put(session)
	w.must(k.Turn(ctx, func() error { w.Model.Release("tools"); return nil }))
	talk = append(talk, user("PARALLEL look at both"), assistant("I look."), assistant("Both are done."))
	newest := w.Model.Requests()
	if !slices.Contains(given(&newest[len(newest)-1]), tools) {
		t.Error("the whisper was not given before a tool call")
	}

	// While a subagent works, and when it has ended: nobody asked there.
	talk = append(talk, k.rests()...)
	k.asks("DELEGATE the counting")
	agent := w.put(session)
	w.must(k.Turn(ctx, func() error { w.Model.Release("subagent"); return nil }))
	w.waits(session, agent, "after a subagent's tool call and its notification")
	talk = append(talk, user("DELEGATE the counting"), assistant("The subagent is at work."), assistant("The subagent found one lamp."))
	talk = append(talk, k.receives(agent)...)

	// When the answer is under way: at Stop it would make another turn.
	talk = append(talk, k.rests()...)
	requests := len(w.Model.Requests())
	w.must(k.Say(ctx, "LASTLY one more"))
	w.must(stack.Eventually(ctx, within, func() error {
		if n := len(w.Model.Requests()); n != requests+1 {
			return fmt.Errorf("%d requests, want %d", n, requests+1)
		}
		return nil
	}))
	stop := w.put(session)
	w.must(k.Turn(ctx, func() error { w.Model.Release("answer"); return nil }))
	w.waits(session, stop, "after Stop")
	if n := len(w.Model.Requests()); n != requests+1 {
		t.Errorf("%d requests for one prompt, want one", n-requests)
	}
	talk = append(talk, user("LASTLY one more"), assistant("That is all."))

	// A prompt that another hook refuses was not given anything: what our hook
	// printed for it is thrown away.
	w.must(k.Command(ctx, "REFUSEME please", "UserPromptSubmit"))
	w.must(stack.Eventually(ctx, within, func() error {
		if slices.Contains(w.whispers(session, "waiting"), stop) {
			return errors.New("the whisper was not printed for the prompt that is refused: this tests nothing")
		}
		return nil
	}))
	talk = append(talk, k.receives(stop)...)

	// Before a compaction: its hook would instruct the summarizer.
	talk = append(talk, k.rests()...)
	compact := w.put(session)
	w.must(k.Command(ctx, "/compact", "PostCompact"))
	for _, r := range w.Model.Requests() {
		if r.Rule == "Respond with TEXT ONLY" && slices.Contains(given(&r), compact) {
			t.Error("the summarizer was given a whisper")
		}
	}
	w.must(k.Ask(ctx, "after the compaction"))
	talk = append(talk, user("after the compaction"), assistant("Noted."))
	all := w.Model.Requests()
	if !slices.Contains(given(&all[len(all)-1]), compact) {
		talk = append(talk, k.receives(compact)...)
	}
	w.must(k.Hangup(ctx))

	w.arrives(session, talk)
	everywhere := w.Model.Requests()
	for i := range everywhere {
		ids := given(&everywhere[i])
		if n := len(slices.Compact(slices.Sorted(slices.Values(ids)))); n != len(ids) {
			t.Errorf("request %d (%s) has a whisper twice: %q", i, everywhere[i].Rule, ids)
		}
		if strings.Contains(everywhere[i].Turn, "COUNTLAMPS") && len(ids) > 0 {
			t.Errorf("a subagent was given whispers: %q", ids)
		}
	}
	for _, state := range []string{"waiting", "claimed"} {
		if left := w.whispers(session, state); len(left) > 0 {
			w.must(stack.Eventually(ctx, within, func() error {
				if left := w.whispers(session, state); len(left) > 0 {
					return fmt.Errorf("whispers that were given are still %s: %q", state, left)
				}
				return nil
			}))
		}
	}
	for _, c := range parts.Letta.Conversations() {
		for _, m := range c.Messages {
			if m.Role == "user" && (strings.Contains(m.Text, "team_memory") || strings.Contains(m.Text, "From an earlier session") || strings.Contains(m.Text, "needs oil")) {
				t.Errorf("what memory said came back to it: %s", m.Text)
			}
		}
	}
}
