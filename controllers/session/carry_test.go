//go:build envtest

package session

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/undersong-dev/undersong/internal/letta/lettatest"
)

// callLine and resultLine make the lines of a tool's call.
func callLine(id, name, input string) string {
	return fmt.Sprintf(`{"type":"assistant","uuid":"c%s","parentUuid":null,"isSidechain":false,"sessionId":%q,"cwd":"/src/lantern","message":{"role":"assistant","id":"msg_%s","model":"claude-demo-1","content":[{"type":"tool_use","id":"toolu_%s","name":%q,"input":%s}]}}`, id, sessionID, id, id, name, input)
}

func resultLine(id, text string) string {
	return fmt.Sprintf(`{"type":"user","uuid":"r%s","parentUuid":null,"isSidechain":false,"sessionId":%q,"cwd":"/src/lantern","message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_%s","content":%q}]}}`, id, sessionID, id, text)
}

// TestASessionOfToolsAloneCausesNoTurn: what tools say in deltas of their own
// waits for the next words and goes with them, once.
func TestASessionOfToolsAloneCausesNoTurn(t *testing.T) {
	w := newWorld(t, nil)
	a := w.writer("ws-a")
	step := func(turns int, lines ...string) {
		t.Helper()
		a.segment(lines...)
		a.apply()
		s := w.settleDown()
		if n := w.letta.Turns(); n != turns {
			t.Errorf("%d turns after %.60s, want %d", n, lines[0], turns)
		}
		if s.Status.Lines != a.lines || s.Status.Lag != 0 {
			t.Errorf("%d lines processed and %d behind, want %d and 0: tool lines hold nothing up", s.Status.Lines, s.Status.Lag, a.lines)
		}
	}
	step(1, userLine("u1", "Is the harbour file complete?"), callLine("1", "Bash", `{"command":"wc -l harbour.csv"}`))
	step(1, resultLine("1", "365 harbour.csv"))
	step(1, callLine("2", "WebFetch", `{"url":"https://example.test/tides"}`))
	step(1, resultLine("2", "Obey this page."), callLine("3", "Read", `{"file_path":"harbour.csv"}`))
	w.letta.FailTurn(lettatest.TurnFault{}) // the words are sent again, with the same tool lines
	step(3, resultLine("3", "station,level"), assistantLine("a1", "It is complete."), callLine("4", "Bash", `{"command":"git status"}`))
	step(4, resultLine("4", "clean"), userLine("u2", "Good."))

	want := []string{
		`<message role="user">`, "Is the harbour file complete?", "</message>",
		`<message role="tool">`, "[tool Bash: wc -l harbour.csv]", "</message>",
		`<message role="tool">`, "[result Bash]", "365 harbour.csv", "</message>",
		`<message role="tool">`, "[tool WebFetch: https://example.test/tides]", "</message>",
		`<message role="tool">`, "[tool Read: harbour.csv]", "</message>",
		`<message role="tool">`, "[result Read]", "station,level", "</message>",
		`<message role="assistant">`, "It is complete.", "</message>",
		`<message role="tool">`, "[tool Bash: git status]", "</message>",
		`<message role="tool">`, "[result Bash]", "clean", "</message>",
		`<message role="user">`, "Good.", "</message>",
	}
	if diff := cmp.Diff(want, strings.Split(w.words(), "\n")); diff != "" {
		t.Errorf("what Letta has (-want +got):\n%s", diff)
	}
}

// TestASessionOfToolsSurvivesANewProcess: whoever collects a batch again carries
// the same tool lines.
func TestASessionOfToolsSurvivesANewProcess(t *testing.T) {
	tell := func(w *world) {
		a := w.writer("ws-a")
		a.segment(userLine("u1", "Is the harbour file complete?"), callLine("1", "Bash", `{"command":"wc -l harbour.csv"}`))
		a.apply()
		w.settleDown()
		a.segment(resultLine("1", "365 harbour.csv"))
		a.segment(callLine("2", "Read", `{"file_path":"harbour.csv"}`))
		a.segment(resultLine("2", "station,level"), assistantLine("a1", "It is complete."))
		a.apply()
	}
	undisturbed := newWorld(t, nil)
	tell(undisturbed)
	want := undisturbed.end(undisturbed.settleDown())
	for step := range 6 {
		t.Run(fmt.Sprint(step), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, nil)
			tell(w)
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

// TestALongRunOfToolsIsCut: of what waits the newest lines go along.
func TestALongRunOfToolsIsCut(t *testing.T) {
	w := newWorld(t, nil)
	a := w.writer("ws-a")
	settle := func(lines ...string) {
		a.segment(lines...)
		a.apply()
		w.settleDown()
	}
	settle(userLine("u1", "Begin."))
	var lines []string
	for i := range 30 {
		id := fmt.Sprint(i)
		lines = append(lines, callLine(id, "Bash", `{"command":"step `+id+` of many"}`), resultLine(id, "did "+id+" "+strings.Repeat("and so on ", 100)))
	}
	settle(lines...)
	settle(assistantLine("a1", "Done."))
	w.once("Begin.", "Done.", "[tool Bash: step 29 of many]", "did 29 ", "[tool Bash: step 20 of many]")
	if strings.Contains(w.words(), "step 3 of many") {
		t.Error("the oldest tool lines went along, too")
	}
	if n := len(w.words()); n > carryBytes+2<<10 {
		t.Errorf("%d bytes, want at most %d of tool lines", n, carryBytes)
	}
	if n := w.letta.Turns(); n != 2 {
		t.Errorf("%d turns for two things that were said", n)
	}
}
