package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/undersong-dev/undersong/agent/note"
	"github.com/undersong-dev/undersong/api/v1alpha1"
)

// TestAnAgentDoesNotAgree: within Claude Code nothing is agreed to, in nobody's name.
func TestAnAgentDoesNotAgree(t *testing.T) {
	m := newMachine(t)
	m.env["CLAUDECODE"] = "1"
	before := files(t, m.dir)
	if code, out, errs := m.run("init", "--yes"); code != 1 || out != "" || !strings.Contains(errs, "a terminal of your own") {
		t.Errorf("init: exit %d, %q, %q", code, out, errs)
	}
	if after := files(t, m.dir); len(after) != len(before) {
		t.Errorf("files %v, were %v", after, before)
	}
	if code, out, errs := m.run("init", "--managed"); code != 0 || out == "" {
		t.Errorf("init --managed agrees to nothing: exit %d, %q", code, errs)
	}
}

// TestConsentNamesWhatIsHeard: nobody agrees to what the prompt leaves out.
func TestConsentNamesWhatIsHeard(t *testing.T) {
	for name, tt := range map[string]struct {
		reason string
		team   v1alpha1.Capture
		want   string
	}{
		"default": {"as privacy.md has it", v1alpha1.Capture{}, "what you and the assistant say\n" +
			"a line for each tool call, and beginning and end of its result if the tool is a local one\n" +
			"title, branch and pull request, which everybody in the team sees"},
		"little": {"the team asks for less", v1alpha1.Capture{ToolResults: v1alpha1.ToolResultsNone, Titles: v1alpha1.TitlesHide}, "what you and the assistant say\n" +
			"a line for each tool call, and nothing of its result"},
		"all": {"the team asks for more", v1alpha1.Capture{
			ToolResults: v1alpha1.ToolResultsAll, Thinking: v1alpha1.AllowanceAllow, Headless: v1alpha1.AllowanceAllow, OutsideGit: v1alpha1.AllowanceAllow,
		}, "what you and the assistant say\nwhat the assistant thinks\na line for each tool call, and beginning and end of its result\n" +
			"title, branch and pull request, which everybody in the team sees\n" +
			"all this of runs without a person, too, as scripts start them\nall this of folders that are no repository, too"},
	} {
		if got := strings.Join(heard(&tt.team), "\n"); got != tt.want {
			t.Errorf("%s: %s: it says\n%s", name, tt.reason, got)
		}
	}
	m := newMachine(t)
	p := &plan{config: note.Config{Namespace: "alpha", Memory: "m", Owner: "ada", Server: "s"}, memory: &v1alpha1.TeamMemory{}}
	need(t, m.ask(p, true))
	if out := m.out.String(); !strings.Contains(out, "before now is not sent") {
		t.Errorf("the first time it says\n%s", out)
	}
	m.out.Reset()
	p.before = p.config
	p.before.ConsentedAt = now
	need(t, m.ask(p, true))
	if out := m.out.String(); !strings.Contains(out, "You agreed on 2026-03-01") || strings.Contains(out, "before now") {
		t.Errorf("of what goes on it says\n%s", out)
	}
}

// TestInitAsksBeforeItWritesHooks: no answer is no, and --yes is about being
// heard.
func TestInitAsksBeforeItWritesHooks(t *testing.T) {
	for name, tt := range map[string]struct {
		reason   string
		terminal bool
		answer   string
		flags    initFlags
		asked    bool
		wrote    bool
	}{
		"yes":          {"a person agreed", true, "y\n", initFlags{}, true, true},
		"no":           {"a person refused", true, "n\n", initFlags{}, true, false},
		"no answer":    {"the terminal went", true, "", initFlags{}, true, false},
		"nobody":       {"there is no terminal", false, "y\n", initFlags{}, false, false},
		"--yes":        {"a script on a terminal must not hang", true, "y\n", initFlags{yes: true}, false, false},
		"print":        {"it was said before", true, "y\n", initFlags{printHooks: true}, false, false},
		"install":      {"it was said before", true, "", initFlags{installHooks: true}, false, true},
		"install, yes": {"as scripts do", false, "", initFlags{installHooks: true, yes: true}, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			m.In, m.Terminal = strings.NewReader(tt.answer), func() bool { return tt.terminal }
			home, path := filepath.Join(m.dir, "state"), filepath.Join(m.dir, ".claude", "settings.json")
			need(t, os.MkdirAll(home, 0o700))
			command, err := m.hookCommand(home)
			need(t, err)
			need(t, m.hooks(home, command, tt.flags))
			out := m.out.String()
			if asked := strings.Contains(out, "[y/N]"); asked != tt.asked {
				t.Errorf("%s: asked %v:\n%s", tt.reason, asked, out)
			}
			if _, err := os.Stat(path); (err == nil) != tt.wrote {
				t.Errorf("%s: wrote %v", tt.reason, err == nil)
			}
			if printed := strings.Contains(out, `"command"`); printed == tt.wrote {
				t.Errorf("%s: printed %v", tt.reason, printed)
			}
			if !tt.wrote {
				return
			}
			m.out.Reset()
			m.Terminal = func() bool { return true }
			need(t, m.hooks(home, command, initFlags{}))
			if out := m.out.String(); !strings.HasPrefix(out, "The hooks are in ") || !strings.Contains(out, " already") {
				t.Errorf("a second init, with nothing to ask, printed:\n%s", out)
			}
		})
	}
}

// TestManagedSettings: stdout is the file, and nothing is touched.
func TestManagedSettings(t *testing.T) {
	m := newMachine(t)
	before := files(t, m.dir)
	code, out, errs := m.run("init", "--managed")
	if code != 0 || !strings.Contains(errs, "still runs undersong init") || !strings.Contains(errs, "in your own home") {
		t.Fatalf("exit %d: %s", code, errs)
	}
	golden(t, "hooks", strings.ReplaceAll(out, filepath.Join(m.dir, "bin"), "/opt/undersong"))
	if after := files(t, m.dir); len(after) != len(before) {
		t.Errorf("files %v, were %v", after, before)
	}
	for _, other := range []string{"--yes", "--install-hooks", "--print-hooks", "--join=x", "--namespace=x"} {
		if code, out, _ := m.run("init", "--managed", other); code != 1 || out != "" {
			t.Errorf("with %s: exit %d, printed %q", other, code, out)
		}
	}
	m.UserHome = func() (string, error) { return filepath.Join(m.dir, "ada"), nil }
	if _, _, errs := m.run("init", "--managed"); strings.Contains(errs, "your own home") {
		t.Errorf("binaries for all: %s", errs)
	}
}
