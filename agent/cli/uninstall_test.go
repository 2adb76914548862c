package cli

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/undersong-dev/undersong/agent/consent"
	"github.com/undersong-dev/undersong/agent/note"
)

// TestSettingsComeBack: after uninstall the settings are byte for byte what
// they were, or, where somebody changed them, everything else is still there.
func TestSettingsComeBack(t *testing.T) {
	const command = "/opt/undersong/undersong-hook"
	for name, tt := range map[string]struct {
		reason  string
		before  string // empty: no file
		again   bool   // init runs a second time, with another path
		changes func(string) string
		want    string // empty: as before
	}{
		"plain":         {reason: "an ordinary file", before: "{\n\t\"model\": \"x\" }"},
		"odd":           {reason: "spaces and number formats are a person's own", before: `{"a":1.50,  "hooks" : { "Stop":[ {"hooks":[{"type":"command","command":"beep"}]} ] } }`},
		"none":          {reason: "init made the file"},
		"empty":         {reason: "an empty object", before: "{}"},
		"twice":         {reason: "a second init must not take our own hooks for a person's", before: "{\"model\":\"x\"}", again: true},
		"none, twice":   {reason: "nor think that the file was there before", again: true},
		"changed since": {reason: "what was added stays", before: "{\"model\":\"x\"}", changes: func(s string) string { return strings.Replace(s, `"x"`, `"y"`, 1) }, want: "{\n  \"model\": \"y\"\n}\n"},
		"mixed since": {reason: "another program's hook beside ours stays", changes: func(s string) string {
			return strings.Replace(s, `"Stop": [`, `"Stop": [{"hooks":[{"type":"command","command":"beep <x> && y"}]},`, 1)
		}, want: "beep <x> && y"},
		"blank": {reason: "an editor left an empty file", before: "\n"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			home := filepath.Join(m.dir, "state")
			if err := os.MkdirAll(home, 0o700); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(m.dir, ".claude", "settings.json")
			if tt.before != "" {
				put(t, path, tt.before)
			}
			install := func(command string) {
				if wrote, err := installHooks(home, path, command); err != nil || !wrote {
					t.Fatalf("install: %v, %v", wrote, err)
				}
			}
			install(command)
			if tt.again {
				install("/another/place/undersong-hook")
			}
			if tt.changes != nil {
				put(t, path, tt.changes(get(t, path)))
			}
			code, out, errs := m.run("uninstall", "--yes")
			if code != 0 {
				t.Fatalf("exit %d: %s%s", code, out, errs)
			}
			data, err := os.ReadFile(path)
			switch got := string(data); {
			case tt.before == "" && tt.want == "":
				if !os.IsNotExist(err) {
					t.Errorf("%s: the file is still there: %q", tt.reason, got)
				}
			case tt.want == "" && got != tt.before:
				t.Errorf("%s: got %q, want %q", tt.reason, got, tt.before)
			case !strings.Contains(got, tt.want) || strings.Contains(got, "undersong"):
				t.Errorf("%s: got %q, want %q in it and nothing of ours", tt.reason, got, tt.want)
			}
			left, _ := filepath.Glob(filepath.Join(m.dir, ".claude", "*before*")) // the pattern is right
			for _, file := range left {
				if tt.changes == nil || !strings.Contains(out, file) {
					t.Errorf("%s: left behind: %v; said: %s", tt.reason, file, out)
				}
			}
			if _, out, _ := m.run("status"); !strings.Contains(out, "not configured") {
				t.Errorf("%s: after uninstall status says:\n%s", tt.reason, out)
			}
		})
	}
}

// TestAFileThatCameLaterIsNobodysToRemove: the settings that init had made are
// gone, a person made others, and init ran again.
func TestAFileThatCameLaterIsNobodysToRemove(t *testing.T) {
	const theirs = "{\"model\": \"x\"}"
	for name, between := range map[string]func(m *machine, path string) error{
		"uninstalled": func(m *machine, _ string) error {
			if code, _, errs := m.run("uninstall", "--yes"); code != 0 {
				return errors.New(errs)
			}
			return nil
		},
		"removed by hand": func(_ *machine, path string) error { return os.Remove(path) },
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			home, path := filepath.Join(m.dir, "state"), filepath.Join(m.dir, ".claude", "settings.json")
			need(t, os.MkdirAll(home, 0o700))
			_, err := installHooks(home, path, "/opt/undersong/undersong-hook")
			need(t, err)
			need(t, between(m, path))
			put(t, path, theirs)
			_, err = installHooks(home, path, "/opt/undersong/undersong-hook")
			need(t, err)
			if code, _, errs := m.run("uninstall", "--yes"); code != 0 {
				t.Fatal(errs)
			}
			if got := get(t, path); got != theirs {
				t.Errorf("the person's settings are %q, want %q", got, theirs)
			}
		})
	}
}

func TestUninstallKeepsWhatIsNotArchived(t *testing.T) {
	m := newMachine(t)
	home := filepath.Join(m.dir, "state")
	configure(t, m, home, nil)
	put(t, filepath.Join(home, "sessions", "s", "state.json"), `{"version":1,"sessionID":"s","segments":[{"seq":1},{"seq":2}]}`)
	code, _, errs := m.run("uninstall", "--yes", "--erase")
	if code == 0 || !strings.Contains(errs, "2 segments are not archived yet") || !strings.Contains(errs, "--discard") {
		t.Errorf("--erase with a backlog: exit %d, %s", code, errs)
	}
	if _, err := os.Stat(filepath.Join(home, "config.json")); err != nil {
		t.Errorf("a refused uninstall changed something: %v", err)
	}
	if code, _, errs = m.run("uninstall"); code == 0 || !strings.Contains(errs, "--yes") {
		t.Errorf("nobody to ask: exit %d, %s", code, errs)
	}
	if code, out, errs := m.run("uninstall", "--yes"); code != 0 || !strings.Contains(out, "goes on with it") {
		t.Errorf("without --erase: exit %d, %s%s", code, out, errs)
	}
	if _, err := os.Stat(filepath.Join(home, "config.json")); err == nil {
		t.Error("the configuration is still there")
	}
	silences, err := consent.LoadSilences(home)
	if err != nil || silences.Current(consent.ReasonUninstalled, "", now) == nil {
		t.Errorf("what is said now may be sent later: %+v, %v", silences, err)
	}
	for range 2 { // there is no configuration any more
		if code, _, errs := m.run("uninstall", "--yes", "--erase"); code == 0 || !strings.Contains(errs, "2 segments are not archived yet") {
			t.Errorf("--erase after uninstall: exit %d, %s", code, errs)
		}
		if code, _, errs := m.run("uninstall", "--yes"); code != 0 {
			t.Errorf("uninstall again: %s", errs)
		}
	}
	if c, err := note.LoadFormer(home); err != nil || c.Namespace != "n" {
		t.Errorf("what init goes on with is forgotten: %+v, %v", c, err)
	}
	if code, out, errs := m.run("uninstall", "--yes", "--erase", "--discard"); code != 0 || !strings.Contains(out, "Removed") {
		t.Errorf("--discard: exit %d, %s%s", code, out, errs)
	}
	if _, err := os.Stat(home); !os.IsNotExist(err) {
		t.Errorf("the state directory is still there: %v", err)
	}
}
