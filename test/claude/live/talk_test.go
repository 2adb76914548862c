//go:build envtest && linux

package live

import (
	"strings"
	"syscall"
	"testing"

	"github.com/undersong-dev/undersong/test/claude"
)

func bash(id, command string) claude.Block {
	return claude.Block{Tool: "Bash", ID: id, Input: map[string]any{"command": command, "description": "run it"}}
}

// TestATalkArrivesAsItWasSpoken is one long talk at a terminal, with everything
// that a person does in one. What the person and the assistant said must be in
// Letta, each once and in order, in one conversation per session.
func TestATalkArrivesAsItWasSpoken(t *testing.T) {
	w := newWorld(t, nil)
	ctx := t.Context()
	w.Model.Script(
		&claude.Rule{When: "PARALLEL", Tool: "Bash", Blocks: []claude.Block{
			{Thinking: "Two at once."}, {Text: "I look at two things at once."}, bash("toolu_p1", "echo harbour-one"), bash("toolu_p2", "echo harbour-two"),
		}},
		&claude.Rule{When: "toolu_p1", Blocks: []claude.Block{{Text: "Both are done."}}},
		&claude.Rule{When: "DELEGATE", Tool: "Agent", Blocks: []claude.Block{
			{Text: "A subagent shall count."},
			{Tool: "Agent", ID: "toolu_ag", Input: map[string]any{"description": "count lamps", "prompt": "COUNTLAMPS in this folder", "subagent_type": "general-purpose"}},
		}},
		&claude.Rule{When: "COUNTLAMPS", Tool: "Bash", Blocks: []claude.Block{bash("toolu_s1", "echo lamp")}},
		&claude.Rule{When: "toolu_s1", Blocks: []claude.Block{{Text: "I counted one lamp.", Hold: "subagent"}}},
		&claude.Rule{When: "toolu_ag", Blocks: []claude.Block{{Text: "The subagent is at work."}}},
		&claude.Rule{When: "task-notification", Blocks: []claude.Block{{Text: "The subagent found one lamp."}}},
		&claude.Rule{When: "SLOWLY", Blocks: []claude.Block{{Text: "The first half is out."}, {Text: "The second half never comes.", Hold: "never"}}},
		&claude.Rule{When: "Respond with TEXT ONLY", Always: true, Blocks: []claude.Block{{Text: "<analysis>a</analysis><summary>They spoke about RETOLD lamps.</summary>"}}},
		&claude.Rule{When: "say it plainly", Blocks: []claude.Block{{Text: "Plainly: the lamp is lit."}}},
	)

	k := w.talk()
	k.asks("PARALLEL look at the harbour")
	k.asks("DELEGATE the counting of lamps")
	w.Model.Release("subagent")
	w.must(k.Turn(ctx, func() error { return nil }))
	first := k.Session()
	one := []said{
		user("PARALLEL look at the harbour"), assistant("I look at two things at once."), assistant("Both are done."),
		user("DELEGATE the counting of lamps"), assistant("A subagent shall count."), assistant("The subagent is at work."),
		assistant("The subagent found one lamp."),
	}

	w.must(k.Say(ctx, "SLOWLY tell me more"))
	w.must(k.Until(ctx, within, "half an answer", func(screen string) bool { return strings.Contains(screen, "The first half is out.") }))
	w.must(k.Type(claude.Escape))
	w.must(k.Until(ctx, within, "interrupt", func(screen string) bool { return strings.Contains(screen, "Interrupted") }))
	k.asks("say it plainly then")
	one = append(one, user("SLOWLY tell me more"), assistant("The first half is out."), user("say it plainly then"), assistant("Plainly: the lamp is lit."))

	w.must(k.Command(ctx, "/compact", "PostCompact"))
	k.asks("what did we do so far")
	one = append(one, user("what did we do so far"), assistant("Noted."))
	w.arrives(first, one)

	w.must(k.Command(ctx, "/clear", "SessionEnd"))
	k.asks("a new talk begins")
	second := k.Session()
	if second == first {
		t.Fatal("/clear did not begin another session")
	}
	two := []said{user("a new talk begins"), assistant("Noted.")}
	w.must(k.Hangup(ctx))

	k = w.talk("--continue")
	k.asks("the talk goes on")
	two = append(two, user("the talk goes on"), assistant("Noted."))
	w.onDisk(second, 2) // else the kill may come between Stop and the answer's record
	w.must(k.Signal(syscall.SIGKILL))
	w.must(k.Gone(ctx, within))

	k = w.talk("--resume", second)
	k.asks("after the kill")
	two = append(two, user("after the kill"), assistant("Noted."))
	w.must(k.Hangup(ctx))
	w.arrives(second, two)

	k = w.talk("--resume", second, "--fork-session")
	k.asks("in the fork")
	third := k.Session()
	w.must(k.Hangup(ctx))
	w.arrives(third, []said{user("in the fork"), assistant("Noted.")})

	// Nothing more may have come, in particular nothing twice.
	w.arrives(first, one)
	w.arrives(second, two)
	if sessions, err := w.team.Sessions(ctx); err != nil || len(sessions) != 3 {
		t.Errorf("%d Sessions, %v; want 3", len(sessions), err)
	}
	w.census()
	heard, err := w.heard(first)
	w.must(err)
	var tools []string
	for _, s := range heard {
		if s.Role == "tool" {
			tools = append(tools, s.Text)
		}
	}
	for _, call := range []string{"echo harbour-one", "echo harbour-two", "count lamps"} {
		if n := strings.Count(strings.Join(tools, "\n"), call); n != 1 {
			t.Errorf("the call %q is %d times in what Letta was told: %q", call, n, tools)
		}
	}
}
