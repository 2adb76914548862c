//go:build envtest && linux

package live

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/test/claude"
	"github.com/undersong-dev/undersong/test/stack"
)

// runs is a run of Claude Code without a terminal.
func (w *world) runs(prompt string, args ...string) claude.Result {
	w.t.Helper()
	r, err := w.Headless(w.t.Context(), w.cwd, prompt, args...)
	w.must(err)
	return r
}

// twoTools is a turn with two tool calls at once.
func twoTools(word string) []*claude.Rule {
	one, two := "toolu_"+strings.ToLower(word)+"1", "toolu_"+strings.ToLower(word)+"2"
	return []*claude.Rule{
		{When: word, Tool: "Bash", Blocks: []claude.Block{{Text: word + " needs two looks."}, bash(one, "echo one"), bash(two, "echo two")}},
		{When: one, Blocks: []claude.Block{{Text: word + " is seen."}}},
	}
}

func TestHeadlessRunsStayUnheard(t *testing.T) {
	w := newWorld(t, nil)
	w.Model.Script(twoTools("LIGHTSHIP")...)
	r := w.runs("LIGHTSHIP ahead")
	w.must(stack.Eventually(t.Context(), within, func() error { return w.readToEnd(r.Session) }))
	k := w.talk()
	k.asks("a person asks")
	w.arrives(k.Session(), []said{user("a person asks"), assistant("Noted.")})
	w.must(k.Hangup(t.Context()))
	if sessions, err := w.team.Sessions(t.Context()); err != nil || len(sessions) != 1 {
		t.Errorf("%d Sessions, %v; want only the person's", len(sessions), err)
	}
	w.nowhere("LIGHTSHIP")
}

// TestHeadlessRunsArriveWhereTheTeamAllowsThem drives the program by its
// command line: two at once, resumed, continued and forked.
func TestHeadlessRunsArriveWhereTheTeamAllowsThem(t *testing.T) {
	w := newWorld(t, func(m *v1alpha1.TeamMemory) { m.Spec.Capture.Headless = v1alpha1.AllowanceAllow })
	w.Model.Script(append(twoTools("LIGHTSHIP"), twoTools("TUGBOAT")...)...)
	type run struct {
		claude.Result
		err error
	}
	both := make(chan run)
	go func() {
		r, err := w.Headless(t.Context(), w.cwd, "TUGBOAT astern")
		both <- run{r, err}
	}()
	ship := w.runs("LIGHTSHIP ahead")
	tug := <-both
	w.must(tug.err)
	want := []said{user("LIGHTSHIP ahead"), assistant("LIGHTSHIP needs two looks."), assistant("LIGHTSHIP is seen.")}
	w.arrives(ship.Session, want)
	w.arrives(tug.Session, []said{user("TUGBOAT astern"), assistant("TUGBOAT needs two looks."), assistant("TUGBOAT is seen.")})

	for _, step := range []struct {
		prompt string
		args   []string
	}{{"resumed by its id", []string{"--resume", ship.Session}}, {"the newest one goes on", []string{"--continue"}}} {
		if r := w.runs(step.prompt, step.args...); r.Session != ship.Session {
			t.Fatalf("%v ran session %s, want %s", step.args, r.Session, ship.Session)
		}
		want = append(want, user(step.prompt), assistant("Noted."))
	}
	w.arrives(ship.Session, want)
	fork := w.runs("in the fork", "--resume", ship.Session, "--fork-session")
	w.arrives(fork.Session, []said{user("in the fork"), assistant("Noted.")})
	w.arrives(ship.Session, want)
}

// TestASessionStartedByASessionIsHeadless lets a session start others from its
// shell, and takes from them once the one and once the other sign by which they
// can be told.
func TestASessionStartedByASessionIsHeadless(t *testing.T) {
	w := newWorld(t, nil)
	inner := map[string]string{ // prompt by what is taken away
		"WHELK-both":   "",
		"WHELK-marker": "-u CLAUDECODE -u CLAUDE_CODE_SESSION_ID",
		"WHELK-start":  "-u UNDERSONG_SESSION",
	}
	var commands []string
	for prompt, without := range inner {
		// What the outer session says of it must not hold the words themselves.
		hidden := base64.StdEncoding.EncodeToString([]byte(prompt))
		commands = append(commands, fmt.Sprintf(`env %s '%s' -p "$(echo %s | base64 -d)" </dev/null`, without, program, hidden))
	}
	w.Model.Script(
		&claude.Rule{When: "OUTER", Tool: "Bash", Blocks: []claude.Block{bash("toolu_o1", "("+strings.Join(commands, "; ")+") >inner.log 2>&1")}},
		&claude.Rule{When: "toolu_o1", Blocks: []claude.Block{{Text: "They have run."}}},
	)
	k := w.talk()
	outer := k.Session()
	k.asks("OUTER, start the others")
	w.must(k.Hangup(t.Context()))
	w.arrives(outer, []said{user("OUTER, start the others"), assistant("They have run.")})

	calls, err := w.Witness.Calls()
	w.must(err)
	for prompt := range inner {
		i := slices.IndexFunc(calls, func(c claude.Call) bool { return c.Event == "UserPromptSubmit" && c.Prompt == prompt })
		if i < 0 {
			log, _ := os.ReadFile(filepath.Join(w.cwd, "inner.log"))
			t.Errorf("%s did not run: %s", prompt, log)
			continue
		}
		w.must(stack.Eventually(t.Context(), within, func() error { return w.readToEnd(calls[i].Session) }))
		if !w.nested(calls[i].Session) {
			t.Errorf("%s is not told for a session that another one started", prompt)
		}
	}
	if w.nested(outer) {
		t.Error("the person's own session is told for one that another one started")
	}
	if sessions, err := w.team.Sessions(t.Context()); err != nil || len(sessions) != 1 {
		t.Errorf("%d Sessions, %v; want only the person's", len(sessions), err)
	}
	w.nowhere("WHELK")
}

// nested is what the notes of a session said.
func (w *world) nested(session string) bool {
	w.t.Helper()
	data, err := os.ReadFile(filepath.Join(w.desk.State, "sessions", session, "state.json"))
	w.must(err)
	var state struct {
		Nested bool `json:"nested"`
	}
	w.must(json.Unmarshal(data, &state))
	return state.Nested
}

// TestHooksInstalledTwiceSpeakOnce puts our hook into a second settings file, in
// another spelling: Claude Code drops only what is the same letter by letter.
func TestHooksInstalledTwiceSpeakOnce(t *testing.T) {
	w := newWorld(t, nil)
	data, err := os.ReadFile(filepath.Join(w.desk.ClaudeDir(), "settings.json"))
	w.must(err)
	again := strings.ReplaceAll(string(data), "/undersong-hook", "/./undersong-hook")
	if again == string(data) {
		t.Fatal("our hook is not in the settings")
	}
	w.must(os.WriteFile(filepath.Join(w.cwd, ".claude", "settings.local.json"), []byte(again), 0o600))
	w.Model.Script(
		&claude.Rule{When: "HOLD", Blocks: []claude.Block{{Text: "Ready.", Hold: "answer"}}},
		&claude.Rule{When: "TOOLS", Tool: "Bash", Blocks: []claude.Block{{Text: "I look."}, {Tool: "Bash", ID: "toolu_d1", Input: map[string]any{"command": "echo one"}, Hold: "tool"}}},
	)
	k := w.talk()
	w.must(k.Say(t.Context(), "HOLD on"))
	session := k.Session()
	id := w.put(session)
	w.must(k.Turn(t.Context(), func() error { w.Model.Release("answer"); return nil }))
	talk := append([]said{user("HOLD on"), assistant("Ready.")}, k.receives(id)...)
	w.must(k.Say(t.Context(), "TOOLS then"))
	tool := w.put(session)
	w.must(k.Turn(t.Context(), func() error { w.Model.Release("tool"); return nil }))
	talk = append(talk, user("TOOLS then"), assistant("I look."), assistant("Noted."))
	if slices.Contains(w.whispers(session, "waiting"), tool) {
		talk = append(talk, k.receives(tool)...)
	}
	w.must(k.Hangup(t.Context()))
	w.arrives(session, talk)
	requests := w.Model.Requests()
	for i := range requests {
		ids := given(&requests[i])
		if n := len(slices.Compact(slices.Sorted(slices.Values(ids)))); n != len(ids) {
			t.Errorf("request %d has a whisper twice: %q", i, ids)
		}
	}
	written, err := os.ReadFile(w.Transcripts()[session])
	w.must(err)
	if !strings.Contains(string(written), "/./undersong-hook") {
		t.Error("the second hook was not called: this tests nothing")
	}
	if n := strings.Count(string(written), "undersong: this session is recorded"); n != 1 {
		t.Errorf("the person was told %d times that the session is recorded, want once", n)
	}
}

// TestWhatOurHooksCost runs the same script without hooks, with hooks that do
// nothing, and with ours, in turn, and says how the times compare. Absolute times
// say nothing on a shared machine.
func TestWhatOurHooksCost(t *testing.T) {
	w := newWorld(t, nil)
	w.Witness = nil
	w.must(w.Prepare(w.cwd))
	data, err := os.ReadFile(filepath.Join(w.desk.ClaudeDir(), "settings.json"))
	w.must(err)
	nothing := regexp.MustCompile(`"command": "[^"]*undersong-hook[^"]*"`).ReplaceAll(data, []byte(`"command": "/bin/true"`))
	if string(nothing) == string(data) {
		t.Fatal("our hook is not in the settings")
	}
	var rules []*claude.Rule
	for i := range 4 {
		rules = append(rules, &claude.Rule{When: fmt.Sprintf("toolu_c%d", i), Always: true, Blocks: []claude.Block{bash(fmt.Sprintf("toolu_c%d", i+1), "true")}})
	}
	rules = append(rules,
		&claude.Rule{When: "toolu_c4", Always: true, Blocks: []claude.Block{{Text: "Done."}}},
		&claude.Rule{When: "COST", Tool: "Bash", Always: true, Blocks: []claude.Block{bash("toolu_c0", "true")}})
	w.Model.Script(rules...)

	const times = 5
	var took [3][]time.Duration
	homes := [3]*claude.Home{w.other(nil), w.other(nothing), w.Home}
	for i := range times + 1 {
		for k, home := range homes {
			dir := filepath.Join(home.Dir, "src", "lantern")
			r, err := home.Headless(t.Context(), dir, "COST please")
			w.must(err)
			if r.Text != "Done." {
				t.Fatalf("the run ended with %q", r.Text)
			}
			if i > 0 { // the first ones warm the caches
				took[k] = append(took[k], r.Took)
			}
		}
	}
	median := func(k int) float64 { return slices.Sorted(slices.Values(took[k]))[times/2].Seconds() }
	t.Logf("one prompt and five tool calls, median of %d: %.2f s with our hooks; %.3f times that without hooks, %.3f times that with hooks that do nothing",
		times, median(2), median(2)/median(0), median(2)/median(1))
	if w.desk.DaemonPID() == 0 {
		t.Error("no daemon runs: the hooks did nothing")
	}
}

// other is a home with other settings and the same project.
func (w *world) other(settings []byte) *claude.Home {
	w.t.Helper()
	h := &claude.Home{Dir: w.t.TempDir(), Program: program, Model: w.Model}
	project := filepath.Join(h.Dir, "src", "lantern")
	w.must(os.CopyFS(project, os.DirFS(w.cwd)))
	w.must(h.Prepare(project))
	if settings != nil {
		w.must(os.MkdirAll(filepath.Join(h.Dir, ".claude"), 0o700))
		w.must(os.WriteFile(filepath.Join(h.Dir, ".claude", "settings.json"), settings, 0o600))
	}
	return h
}
