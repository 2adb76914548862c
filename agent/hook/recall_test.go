package hook_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/undersong-dev/undersong/agent/note"
	"github.com/undersong-dev/undersong/agent/whisper"
)

// remember makes a state directory that knows the memory of /src/api.
func remember(t *testing.T, home string) {
	t.Helper()
	m := whisper.Memory{Project: "github.com/acme/api", Name: "team", Blocks: []whisper.Block{
		{Label: "brief", Value: "the brief", Digest: "11111111", UpdatedAt: now},
		{Label: "pitfalls", Value: "the pitfalls", Digest: "22222222", UpdatedAt: now},
	}}
	if err := whisper.PutMemory(home, m); err != nil {
		t.Fatal(err)
	}
	wish(t, home, "")
}

func wish(t *testing.T, home string, recall note.Recall) {
	t.Helper()
	if err := whisper.PutPlace(home, whisper.Place{Cwd: "/src/api", Project: "github.com/acme/api", Recall: recall}); err != nil {
		t.Fatal(err)
	}
}

func policy(t *testing.T, home, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(home, note.PolicyFile), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// shown returns which of the words of remember and of a whisper were printed.
func shown(t *testing.T, stdout string) string {
	t.Helper()
	var o struct {
		HookSpecificOutput struct{ AdditionalContext string }
	}
	if stdout != "" {
		if err := json.Unmarshal([]byte(stdout), &o); err != nil {
			t.Fatalf("%v: %s", err, stdout)
		}
	}
	var words []string
	for _, word := range []string{"the brief", "the pitfalls", "a whisper"} {
		if strings.Contains(o.HookSpecificOutput.AdditionalContext, word) {
			words = append(words, word)
		}
	}
	return strings.Join(words, ", ")
}

const everything = "the brief, the pitfalls, a whisper"

// TestRecallModes: the team's mode, narrowed by the person, the session and the
// repository.
func TestRecallModes(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		policy string
		config note.Recall
		env    string
		wish   note.Recall
		want   string
	}{
		"nothing known":     {reason: "the default", want: "the brief, a whisper"},
		"brief":             {policy: `{"version":1,"recall":true,"mode":"brief"}`, want: "the brief, a whisper"},
		"older file":        {policy: `{"version":1,"recall":true}`, want: "the brief, a whisper"},
		"whisper":           {policy: `{"version":1,"recall":true,"mode":"whisper"}`, want: "a whisper"},
		"full":              {policy: `{"version":1,"recall":true,"mode":"full"}`, want: everything},
		"off":               {policy: `{"version":1,"recall":false,"mode":"off"}`},
		"suspended":         {policy: `{"version":1,"recall":false,"mode":"full"}`},
		"config narrows":    {policy: `{"version":1,"recall":true,"mode":"full"}`, config: note.RecallWhisper, want: "a whisper"},
		"config off":        {policy: `{"version":1,"recall":true,"mode":"full"}`, config: note.RecallOff},
		"config widens":     {policy: `{"version":1,"recall":true,"mode":"whisper"}`, config: note.RecallFull, want: "a whisper"},
		"LETTA_MODE":        {policy: `{"version":1,"recall":true,"mode":"full"}`, env: " Whisper ", want: "a whisper"},
		"LETTA_MODE full":   {policy: `{"version":1,"recall":true,"mode":"brief"}`, env: "full", want: "the brief, a whisper"},
		"LETTA_MODE else":   {policy: `{"version":1,"recall":true,"mode":"full"}`, env: "loud", want: everything},
		"repository off":    {policy: `{"version":1,"recall":true,"mode":"full"}`, wish: note.RecallOff},
		"repository narrow": {policy: `{"version":1,"recall":true,"mode":"full"}`, wish: note.RecallBrief, want: "the brief, a whisper"},
	} {
		t.Run(name, func(t *testing.T) {
			home := configure(t, func(c *note.Config) { c.Recall = tc.config })
			t.Setenv("LETTA_MODE", tc.env)
			remember(t, home)
			wish(t, home, tc.wish)
			if tc.policy != "" {
				policy(t, home, tc.policy)
			}
			put(t, home, "w", "a whisper", "")
			run(event("SessionStart", "source", "startup"))
			if diff := cmp.Diff(tc.want, shown(t, run(event("UserPromptSubmit")))); diff != "" {
				t.Errorf("at the first prompt (-want +got):\n%s", diff)
			}
			if got := shown(t, run(event("PreToolUse"))); got != "" {
				t.Errorf("and again: %s", got)
			}
		})
	}
}

// TestSources: which starts give a fresh context.
func TestSources(t *testing.T) {
	for source, want := range map[string]string{
		"startup": "the brief", "clear": "the brief", "compact": "the brief", "resume": "", "fork": "", "": "",
	} {
		t.Run(source, func(t *testing.T) {
			home := configure(t, nil)
			remember(t, home)
			run(event("SessionStart", "source", source))
			if got := shown(t, run(event("UserPromptSubmit"))); got != want {
				t.Errorf("shown: %q, want %q", got, want)
			}
		})
	}
}

// TestBriefAtTheStart: where the event says that permissions are asked for, it
// need not wait for the prompt.
func TestBriefAtTheStart(t *testing.T) {
	home := configure(t, nil)
	remember(t, home)
	if got := shown(t, run(event("SessionStart", "source", "startup", "permission_mode", "default"))); got != "the brief" {
		t.Errorf("shown: %q", got)
	}
	if got := shown(t, run(event("UserPromptSubmit"))); got != "" {
		t.Errorf("again: %q", got)
	}
}

// TestBypassedPermissions: nothing learned is shown where no tool call is asked
// about. It waits until they are again.
func TestBypassedPermissions(t *testing.T) {
	home := configure(t, nil)
	remember(t, home)
	put(t, home, "w", "a whisper", "")
	put(t, home, "n", "", "recorded for team alpha")
	starts := []string{
		event("SessionStart", "source", "startup"),
		event("SessionStart", "source", "startup", "permission_mode", "bypassPermissions"),
	}
	for _, stdin := range append(starts,
		event("UserPromptSubmit", "permission_mode", "bypassPermissions", "prompt_id", "1"),
		event("PreToolUse", "permission_mode", "bypassPermissions", "tool_use_id", "1")) {
		if got := run(stdin); strings.Contains(got, "team_memory") {
			t.Errorf("%s\nshows %s", stdin, got)
		}
	}
	if got := shown(t, run(event("UserPromptSubmit", "permission_mode", "auto", "prompt_id", "2"))); got != "the brief, a whisper" {
		t.Errorf("when they are asked for again: %q", got)
	}
}

// TestSuspendReachesWhatWaits: what was stored before is held back, too, and
// not lost.
func TestSuspendReachesWhatWaits(t *testing.T) {
	home := configure(t, nil)
	remember(t, home)
	put(t, home, "w", "a whisper", "")
	run(event("SessionStart", "source", "startup"))
	policy(t, home, `{"version":1,"recall":false,"mode":"brief"}`)
	if got := run(event("UserPromptSubmit")); got != "" {
		t.Errorf("suspended: %s", got)
	}
	policy(t, home, `{"version":1,"recall":true,"mode":"brief"}`)
	if got := shown(t, run(event("UserPromptSubmit"))); got != "the brief, a whisper" {
		t.Errorf("no longer suspended: %q", got)
	}
}

// TestOneLine: the person sees one line, whatever came together.
func TestOneLine(t *testing.T) {
	home := configure(t, nil)
	remember(t, home)
	run(event("SessionStart", "source", "startup"))
	put(t, home, "w", "a whisper", "undersong: the memory has a note")
	put(t, home, "n", "", "undersong: this session is recorded")
	var o struct{ SystemMessage string }
	if err := json.Unmarshal([]byte(run(event("UserPromptSubmit"))), &o); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(o.SystemMessage, "\n") || strings.Count(o.SystemMessage, "undersong: ") != 1 || strings.Count(o.SystemMessage, "; ") != 2 {
		t.Errorf("systemMessage: %q", o.SystemMessage)
	}
}
