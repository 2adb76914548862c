package hook_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/undersong-dev/undersong/agent/hook"
	"github.com/undersong-dev/undersong/agent/note"
	"github.com/undersong-dev/undersong/agent/whisper"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

const session = "8c1f0a52-4a1d-4d5e-9d58-2f0c6b7c1c11"

// configure makes a state directory as init does, without a daemon.
func configure(t *testing.T, change func(*note.Config)) string {
	t.Helper()
	home := filepath.Join(t.TempDir(), "state")
	t.Setenv("UNDERSONG_HOME", home)
	for _, name := range []string{"LETTA_MODE", "LETTA_HOME", "CLAUDE_PROJECT_DIR", "CLAUDE_CODE_ENTRYPOINT", "CLAUDE_ENV_FILE", "CLAUDE_PID", "UNDERSONG_SESSION"} {
		t.Setenv(name, "")
	}
	config := note.Config{ConsentedAt: now}
	if change != nil {
		change(&config)
	}
	if err := note.SaveConfig(home, config); err != nil {
		t.Fatal(err)
	}
	return home
}

func run(stdin string) string { return runAt(stdin, now) }

// runAt calls the hook with the state directory of configure.
func runAt(stdin string, at time.Time) string {
	var out bytes.Buffer
	hook.Run(strings.NewReader(stdin), &out, env(at))
	return out.String()
}

func env(at time.Time) hook.Env {
	return hook.Env{Now: func() time.Time { return at }, Home: os.Getenv("UNDERSONG_HOME")}
}

// event returns stdin of an event; fields are name, value, name, value.
func event(name string, fields ...string) string {
	m := map[string]string{
		"hook_event_name": name, "session_id": session, "transcript_path": "/t/s.jsonl", "cwd": "/src/api",
	}
	for i := 0; i < len(fields); i += 2 {
		m[fields[i]] = fields[i+1]
	}
	data, err := json.Marshal(m)
	if err != nil {
		panic(err) // strings only
	}
	return string(data)
}

func put(t *testing.T, home, id, text, notice string) {
	t.Helper()
	err := whisper.Put(home, whisper.Whisper{
		ID: id, Session: session, Project: "github.com/acme/api", Memory: "team", Text: text, Notice: notice, At: now,
	})
	if err != nil {
		t.Fatal(err)
	}
}

func notes(t *testing.T, home string) []note.Note {
	t.Helper()
	files, err := note.List(home)
	if err != nil {
		t.Fatal(err)
	}
	var out []note.Note
	for _, f := range files {
		out = append(out, f.Note)
	}
	return out
}

// tree returns the names of all files below a folder.
func tree(t *testing.T, dir string) []string {
	t.Helper()
	var names []string
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if path != dir {
			names = append(names, path[len(dir)+1:])
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

const element = `<team_memory project=\"github.com/acme/api\" memory=\"team\" age=\"0m\" id=\"w\" trust=\"learned\">words</team_memory>`

func TestEvents(t *testing.T) {
	context := func(name string) string {
		return `{"systemMessage":"memory spoke","hookSpecificOutput":{"hookEventName":"` + name + `","additionalContext":"` + element + `"}}` + "\n"
	}
	for name, tc := range map[string]struct {
		reason string
		stdin  string
		want   string
		notes  int
	}{
		"start":              {reason: "the first chance", stdin: event("SessionStart", "permission_mode", "default", "source", "startup"), want: context("SessionStart"), notes: 1},
		"resume":             {reason: "a start", stdin: event("SessionStart", "permission_mode", "default", "source", "resume"), want: context("SessionStart"), notes: 1},
		"clear":              {reason: "a start", stdin: event("SessionStart", "permission_mode", "default", "source", "clear"), want: context("SessionStart"), notes: 1},
		"compact":            {reason: "stands in the new context", stdin: event("SessionStart", "permission_mode", "default", "source", "compact"), want: context("SessionStart"), notes: 1},
		"prompt":             {reason: "before a person's words", stdin: event("UserPromptSubmit", "prompt", "hello"), want: context("UserPromptSubmit"), notes: 1},
		"tool":               {reason: "between two calls", stdin: event("PreToolUse", "tool_use_id", "toolu_01A"), want: context("PreToolUse"), notes: 1},
		"notification":       {reason: "nobody reads it there", stdin: event("UserPromptSubmit", "prompt", "<task-notification>"), notes: 1},
		"in a subagent":      {reason: "it was not asked", stdin: event("PreToolUse", "agent_id", "a1"), notes: 1},
		"start of subagent":  {reason: "it was not asked", stdin: event("SessionStart", "agent_id", "a1"), notes: 1},
		"stop":               {reason: "would start another turn", stdin: event("Stop"), notes: 1},
		"subagent stop":      {reason: "would start another turn", stdin: event("SubagentStop", "agent_id", "a1", "agent_transcript_path", "/t/a.jsonl"), notes: 1},
		"compaction":         {reason: "would instruct the summarizer", stdin: event("PreCompact"), notes: 1},
		"end":                {reason: "nobody reads it there", stdin: event("SessionEnd", "reason", "clear"), notes: 1},
		"unknown event":      {reason: "not ours", stdin: event("PostToolUse")},
		"no event":           {reason: "not ours", stdin: `{"session_id":"` + session + `"}`},
		"session path":       {reason: "would be a file name", stdin: event("UserPromptSubmit", "session_id", "../../x")},
		"no session":         {reason: "nothing to note", stdin: event("UserPromptSubmit", "session_id", "")},
		"empty":              {reason: "nothing came", stdin: ""},
		"not JSON":           {reason: "whatever it is", stdin: "\x00\xff{]"},
		"other session":      {reason: "whispers are one session's", stdin: event("UserPromptSubmit", "session_id", "other"), notes: 1},
		"unexpected session": {reason: "not a string", stdin: `{"hook_event_name":"Stop","session_id":["a"]}`},
	} {
		t.Run(name, func(t *testing.T) {
			home := configure(t, nil)
			put(t, home, "w", "words", "memory spoke")
			if diff := cmp.Diff(tc.want, run(tc.stdin)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			if got := len(notes(t, home)); got != tc.notes {
				t.Errorf("%s: %d notes, want %d", tc.reason, got, tc.notes)
			}
			if got := run(event("UserPromptSubmit")); tc.want != "" && got != "" {
				t.Errorf("printed again: %s", got)
			}
		})
	}
}

func TestNoteHoldsWhatTheDaemonNeeds(t *testing.T) {
	home := configure(t, nil)
	t.Setenv("CLAUDE_PROJECT_DIR", "/work")
	t.Setenv("CLAUDE_CODE_ENTRYPOINT", "sdk-cli")
	t.Setenv("LETTA_MODE", "full")
	t.Setenv("LETTA_HOME", "/elsewhere")
	t.Setenv("ANTHROPIC_API_KEY", "sk-planted")
	run(event("SubagentStop", "source", "resume", "reason", "clear", "agent_id", "a1",
		"agent_transcript_path", "/t/a.jsonl", "prompt", "<task-notification> planted words", "last_assistant_message", "planted words"))
	want := []note.Note{{
		Version: 1, Event: "SubagentStop", Session: session, Transcript: "/t/s.jsonl", Cwd: "/src/api",
		ProjectDir: "/work", Source: "resume", Reason: "clear", AgentID: "a1", AgentTranscript: "/t/a.jsonl",
		Notification: true, Entrypoint: "sdk-cli", LettaMode: "full", LettaHome: "/elsewhere", At: now,
	}}
	if diff := cmp.Diff(want, notes(t, home)); diff != "" {
		t.Errorf("note (-want +got):\n%s", diff)
	}
	for _, name := range tree(t, home) {
		data, err := os.ReadFile(filepath.Join(home, name))
		if err == nil && strings.Contains(string(data), "planted") {
			t.Errorf("%s holds words of the prompt or a token", name)
		}
	}
}

func TestSilence(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		set    func(t *testing.T, home string)
	}{
		"not configured": {reason: "init has not run", set: func(t *testing.T, home string) {
			t.Helper()
			if err := os.Remove(filepath.Join(home, "config.json")); err != nil {
				t.Fatal(err)
			}
		}},
		"no state directory": {reason: "init has not run", set: func(t *testing.T, home string) {
			t.Helper()
			if err := os.RemoveAll(home); err != nil {
				t.Fatal(err)
			}
		}},
		"broken config": {reason: "nobody knows what the user said", set: func(t *testing.T, home string) {
			t.Helper()
			if err := os.WriteFile(filepath.Join(home, "config.json"), []byte("{"), 0o600); err != nil {
				t.Fatal(err)
			}
		}},
		"switched off": {reason: "the user's own switch", set: func(t *testing.T, home string) {
			t.Helper()
			if err := note.SaveConfig(home, note.Config{Off: true}); err != nil {
				t.Fatal(err)
			}
		}},
		"LETTA_MODE off": {reason: "the plugin's switch, and the session is marked already", set: func(t *testing.T, home string) {
			t.Helper()
			t.Setenv("LETTA_MODE", " OFF ")
			if err := note.BeginOff(home, session, "", now); err != nil {
				t.Fatal(err)
			}
		}},
		"LETTA_MODE off, no consent": {reason: "nothing will ever be heard", set: func(t *testing.T, home string) {
			t.Helper()
			t.Setenv("LETTA_MODE", "off")
			if err := note.SaveConfig(home, note.Config{}); err != nil {
				t.Fatal(err)
			}
		}},
		"relative home": {reason: "would move with the agent", set: func(t *testing.T, _ string) {
			t.Helper()
			t.Setenv("UNDERSONG_HOME", "../..")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			home := configure(t, nil)
			put(t, home, "w", "words", "notice")
			tc.set(t, home)
			before := tree(t, home)
			stdin := strings.NewReader(event("UserPromptSubmit", "prompt_id", "p"))
			var out bytes.Buffer
			hook.Run(stdin, &out, env(time.Now()))
			if out.Len() > 0 {
				t.Errorf("%s: printed %s", tc.reason, out.String())
			}
			if stdin.Len() > 0 {
				t.Errorf("%s: %d bytes of stdin not read", tc.reason, stdin.Len())
			}
			if diff := cmp.Diff(before, tree(t, home)); diff != "" {
				t.Errorf("%s: files changed (-before +after):\n%s", tc.reason, diff)
			}
		})
	}
}

// TestOffIsMarkedOnce: what is said while a session is off must not be heard
// when it is on again; so the first hook of either says how large the transcript
// was, and prints and notes nothing else.
func TestOffIsMarkedOnce(t *testing.T) {
	transcript := filepath.Join(t.TempDir(), session+".jsonl")
	grow := func(n int) {
		t.Helper()
		if err := os.WriteFile(transcript, make([]byte, n), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	home := configure(t, nil)
	say := func(name string) string { return event(name, "transcript_path", transcript) }
	var want []note.Off
	times := func(when string) {
		t.Helper()
		got, err := note.Offs(home, session)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(note.Off{}, "Name", "Since", "Until", "Version")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
	}
	grow(10)
	run(say("Stop"))
	times("a session that is on")
	t.Setenv("LETTA_MODE", "off")
	if got := run(say("SessionStart")) + run(say("UserPromptSubmit")); got != "" {
		t.Errorf("off it prints %s", got)
	}
	grow(25)
	run(say("Stop"))
	want = []note.Off{{Transcript: transcript, From: 10}}
	times("while it is off")
	if n := len(notes(t, home)); n != 1 {
		t.Errorf("%d notes, want the one of before", n)
	}
	t.Setenv("LETTA_MODE", "")
	grow(30)
	run(say("UserPromptSubmit"))
	grow(50)
	run(say("Stop"))
	want = []note.Off{{Transcript: transcript, From: 10, To: 30}}
	times("on again")
	if err := note.SaveConfig(home, note.Config{Off: true, ConsentedAt: now}); err != nil {
		t.Fatal(err)
	}
	run(say("Stop"))
	want = append(want, note.Off{Transcript: transcript, From: 50})
	times("off again, by the user's configuration")
}

func TestNoticeWaitsForAPrompt(t *testing.T) {
	home := configure(t, nil)
	put(t, home, "w", "", "recorded for team alpha")
	if got := run(event("PreToolUse")); got != "" {
		t.Errorf("before a tool call: %s", got)
	}
	want := `{"systemMessage":"recorded for team alpha"}` + "\n"
	if diff := cmp.Diff(want, run(event("UserPromptSubmit"))); diff != "" {
		t.Errorf("at the prompt (-want +got):\n%s", diff)
	}
	if got := run(event("UserPromptSubmit")); got != "" {
		t.Errorf("again: %s", got)
	}
}

func TestSecondCallIsDropped(t *testing.T) {
	for name, tc := range map[string]struct {
		reason        string
		first, second string
		notes         int
	}{
		"same prompt":      {reason: "two hooks for one prompt", first: event("UserPromptSubmit", "prompt_id", "p"), second: event("UserPromptSubmit", "prompt_id", "p"), notes: 1},
		"other prompt":     {reason: "the next one", first: event("UserPromptSubmit", "prompt_id", "p"), second: event("UserPromptSubmit", "prompt_id", "q"), notes: 2},
		"no prompt id":     {reason: "older versions have none", first: event("UserPromptSubmit"), second: event("UserPromptSubmit"), notes: 2},
		"same tool call":   {reason: "two hooks for one call", first: event("PreToolUse", "tool_use_id", "toolu_A"), second: event("PreToolUse", "tool_use_id", "toolu_A"), notes: 1},
		"other case":       {reason: "another call, also where file names ignore case", first: event("PreToolUse", "tool_use_id", "toolu_A"), second: event("PreToolUse", "tool_use_id", "toolu_a"), notes: 2},
		"same turn":        {reason: "tool calls of one prompt", first: event("PreToolUse", "prompt_id", "p", "tool_use_id", "a"), second: event("PreToolUse", "prompt_id", "p", "tool_use_id", "b"), notes: 2},
		"other session":    {reason: "ids need not be unique", first: event("PreToolUse", "tool_use_id", "a"), second: event("PreToolUse", "tool_use_id", "a", "session_id", "b"), notes: 2},
		"two stops":        {reason: "one prompt can stop twice", first: event("Stop", "prompt_id", "p"), second: event("Stop", "prompt_id", "p"), notes: 2},
		"two compactions":  {reason: "one prompt can be compacted twice", first: event("SessionStart", "prompt_id", "p"), second: event("SessionStart", "prompt_id", "p"), notes: 2},
		"path as id":       {reason: "stays in its folder", first: event("PreToolUse", "tool_use_id", "../../x"), second: event("PreToolUse", "tool_use_id", "../../x"), notes: 1},
		"id without bound": {reason: "cannot be remembered", first: event("PreToolUse", "tool_use_id", strings.Repeat("x", 300)), second: event("PreToolUse", "tool_use_id", strings.Repeat("x", 300)), notes: 2},
	} {
		t.Run(name, func(t *testing.T) {
			home := configure(t, nil)
			run(tc.first)
			run(tc.second)
			if got := len(notes(t, home)); got != tc.notes {
				t.Errorf("%s: %d notes, want %d", tc.reason, got, tc.notes)
			}
			if outside := tree(t, filepath.Dir(home)); slices.ContainsFunc(outside, func(n string) bool { return !strings.HasPrefix(n, "state") }) {
				t.Errorf("%s: files beside the state directory: %v", tc.reason, outside)
			}
		})
	}
}

func TestOutputIsBounded(t *testing.T) {
	home := configure(t, nil)
	for n := range 20 {
		put(t, home, fmt.Sprint(n), strings.Repeat(`"\😀<`, 500), strings.Repeat("é", 300))
	}
	var out struct {
		SystemMessage      string
		HookSpecificOutput struct{ AdditionalContext string }
	}
	line := run(event("UserPromptSubmit"))
	if err := json.Unmarshal([]byte(line), &out); err != nil {
		t.Fatal(err)
	}
	if n := len([]rune(out.HookSpecificOutput.AdditionalContext)); n == 0 || n > whisper.DefaultChars {
		t.Errorf("%d characters", n)
	}
	if n := len([]rune(out.SystemMessage)); n == 0 || n > 1000 {
		t.Errorf("%d characters for the person", n)
	}
}

// TestLog: what is wrong is said in the state directory, bounded, without what
// came on stdin.
func TestLog(t *testing.T) {
	home := configure(t, nil)
	run("planted words")
	run(event("Stop", "session_id", "planted/words"))
	run(event("planted words", "session_id", "planted/words"))
	data, err := os.ReadFile(filepath.Join(home, "hook.log"))
	if err != nil {
		t.Fatal(err)
	}
	want := `{"time":"2026-03-01T12:00:00Z","doing":"read stdin","problem":"stdin is not a JSON object"}
{"time":"2026-03-01T12:00:00Z","event":"Stop","doing":"read stdin","problem":"session_id is missing or is not a session id"}
{"time":"2026-03-01T12:00:00Z","doing":"read stdin","problem":"session_id is missing or is not a session id"}
`
	if diff := cmp.Diff(want, string(data)); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
	for range 3000 {
		run("planted words")
	}
	total := int64(0)
	for _, name := range tree(t, home) {
		info, err := os.Stat(filepath.Join(home, name))
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(name, "hook.log") {
			total += info.Size()
		}
	}
	if total > 130<<10 {
		t.Errorf("logs of %d bytes", total)
	}
}

// TestTroubleStopsNobody: a state directory in which nothing works.
func TestTroubleStopsNobody(t *testing.T) {
	home := configure(t, func(c *note.Config) { c.Daemon = "relative/undersong" })
	put(t, home, "w", "words", "")
	for _, name := range []string{"notes", "once", "daemon.start"} { // files where folders should be, and the reverse
		if err := os.WriteFile(filepath.Join(home, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(home, "daemon.lock"), 0o700); err != nil {
		t.Fatal(err)
	}
	if got := run(event("UserPromptSubmit", "prompt_id", "p")); !strings.Contains(got, "words") {
		t.Errorf("the whisper is not printed: %q", got)
	}
	data, err := os.ReadFile(filepath.Join(home, "hook.log"))
	if err != nil || !strings.Contains(string(data), "write note") {
		t.Errorf("log = %s, %v", data, err)
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

type panicReader struct{}

func (panicReader) Read([]byte) (int, error) { panic("a fault of ours") }

func TestRunNeverFails(t *testing.T) {
	home := configure(t, nil)
	put(t, home, "w", "words", "")
	hook.Run(panicReader{}, brokenWriter{}, env(now))
	hook.Run(strings.NewReader(event("UserPromptSubmit")), brokenWriter{}, env(now))
	// What could not be printed is shown again.
	if err := whisper.Return(home, session, "w", now); err != nil {
		t.Fatal(err)
	}
	if got := run(event("UserPromptSubmit")); !strings.Contains(got, "words") {
		t.Errorf("the whisper is lost: %q", got)
	}
}

func TestSweep(t *testing.T) {
	home := configure(t, nil)
	if err := hook.Sweep(home, now); err != nil {
		t.Fatalf("nothing there: %v", err)
	}
	stdin := event("PreToolUse", "tool_use_id", "a")
	for _, step := range []struct {
		reason string
		at     time.Duration
		notes  int
	}{
		{reason: "the first call", at: 0, notes: 1},
		{reason: "the same call", at: 0, notes: 1},
		{reason: "the same call, in the next span", at: 10*time.Minute + time.Second, notes: 1},
		{reason: "long after, as no second hook is", at: 20 * time.Minute, notes: 2},
	} {
		at := now.Add(step.at)
		runAt(stdin, at)
		if err := hook.Sweep(home, at); err != nil {
			t.Fatal(err)
		}
		if got := len(notes(t, home)); got != step.notes {
			t.Errorf("%s: %d notes, want %d", step.reason, got, step.notes)
		}
		if spans, err := os.ReadDir(filepath.Join(home, "once")); err != nil || len(spans) > 2 {
			t.Errorf("%s: %v, %v in the folder", step.reason, spans, err)
		}
	}
}

func TestTheTeamsPolicyIsKept(t *testing.T) {
	long := strings.Repeat("The tables are stored in GMT. ", 40)
	for name, c := range map[string]struct {
		reason, policy string
		text, notice   bool
		most           int
	}{
		"none":         {"what waits was put there under a known policy", "", true, true, 4000},
		"broken":       {"a broken file is as good as none", "{", true, true, 4000},
		"other format": {"a file of another version is not understood", `{"version":9,"recall":false}`, true, true, 4000},
		"recall":       {"the team's limit holds", `{"version":1,"recall":true,"maxCharacters":300}`, true, true, 300},
		"no recall":    {"nothing of the memory is shown, the line about recording is", `{"version":1,"recall":false,"maxCharacters":300}`, false, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			home := configure(t, nil)
			put(t, home, "w1", long, "")
			put(t, home, "n1", "", "this session is recorded")
			if c.policy != "" {
				if err := os.WriteFile(filepath.Join(home, note.PolicyFile), []byte(c.policy), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			var out struct {
				SystemMessage      string
				HookSpecificOutput struct{ AdditionalContext string }
			}
			if err := json.Unmarshal([]byte(run(event(hook.UserPromptSubmit, "prompt_id", "p1"))), &out); err != nil {
				t.Fatal(err)
			}
			text := out.HookSpecificOutput.AdditionalContext
			if (text != "") != c.text || len(text) > c.most || strings.Contains(out.SystemMessage, "recorded") != c.notice {
				t.Errorf("%s: %d characters of text, notice %q", c.reason, len(text), out.SystemMessage)
			}
			if !c.text {
				if err := os.Remove(filepath.Join(home, note.PolicyFile)); err != nil {
					t.Fatal(err)
				}
				if again := run(event(hook.UserPromptSubmit, "prompt_id", "p2")); !strings.Contains(again, "GMT") {
					t.Errorf("what was held back is lost: %q", again)
				}
			}
		})
	}
}

// TestACommandWakesTheDaemonAgain: a command that stopped it just after another had
// started it does not leave it to the next hook.
func TestACommandWakesTheDaemonAgain(t *testing.T) {
	home := configure(t, nil)
	for range 2 {
		if err := hook.Wake(home, note.Config{Daemon: "/nowhere/undersong"}, now); err == nil {
			t.Error("it was not tried")
		}
	}
}

// TestADaemonThatDoesNotStart: the session says so at its start, once, and the
// notes do not grow without end.
func TestADaemonThatDoesNotStart(t *testing.T) {
	home := configure(t, func(c *note.Config) { c.Daemon = "/nowhere/undersong" })
	at := now
	call := func(stdin string) string { return runAt(stdin, at) }
	if got := call(event("SessionStart", "source", "startup")); got != "" {
		t.Errorf("at once: %s", got)
	}
	for i := range 300 {
		at = at.Add(time.Minute)
		if got := call(event("PreToolUse", "tool_use_id", fmt.Sprint("t", i))); got != "" {
			t.Fatalf("before a tool call: %s", got)
		}
	}
	if got := call(event("SessionStart", "source", "resume")); !strings.Contains(got, "daemon does not start") || strings.Count(got, "undersong: ") != 1 {
		t.Errorf("at the next start: %s", got)
	}
	if n := len(notes(t, home)); n > 40 {
		t.Errorf("%d notes wait", n)
	}
	if n := len(tree(t, filepath.Join(home, "once"))); n > 40 {
		t.Errorf("%d marks are kept", n)
	}
}
