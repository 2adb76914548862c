package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/undersong-dev/undersong/agent/hook"
)

func TestHooksAreGolden(t *testing.T) {
	text, err := mergeHooks(nil, "/opt/undersong/undersong-hook")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "hooks", string(text))
}

func TestMergeKeepsEverythingElse(t *testing.T) {
	const command = "/opt/undersong/undersong-hook"
	type test struct {
		reason   string
		settings string
		kept     []string
	}
	for name, tt := range map[string]test{
		"none":  {reason: "no file", settings: ""},
		"empty": {reason: "an empty object", settings: "{}\n"},
		"others": {
			reason:   "other settings keep text and order, numbers their digits",
			settings: "{\n  \"zebra\": 12345678901234567890.50,\n  \"apple\": {\"b\":1,   \"a\":2},\n  \"model\": \"x\"\n}\n",
			kept:     []string{"\"zebra\": 12345678901234567890.50", `"apple": {"b":1,   "a":2}`},
		},
		"other hooks": {
			reason:   "hooks of other programs, and events that are not ours, stay",
			settings: `{"hooks":{"Notification":[{"hooks":[{"type":"command","command":"beep"}]}],"Stop":[{"hooks":[{"type":"command","command":"/usr/bin/other >&2 <x"}]}]},"x":1}`,
			kept:     []string{`"Notification": [{"hooks":[{"type":"command","command":"beep"}]}]`, "/usr/bin/other >&2 <x", `"x": 1`},
		},
		"older path": {
			reason:   "our hook at another place, or of another state directory, is replaced, not added to",
			settings: `{"hooks":{"Stop":[{"hooks":[{"type":"command","command":"'/old place/undersong-hook' --home '/ho me/x'","timeout":10}]}],"PreToolUse":[{"matcher":"*","hooks":[{"type":"command","command":"C:\\old\\undersong-hook.exe"}]}]}}`,
		},
		"twice": {
			reason:   "what fires twice is made one",
			settings: `{"hooks":{"Stop":[{"hooks":[{"type":"command","command":"` + command + `","timeout":10}]},{"hooks":[{"type":"command","command":"` + command + `","timeout":10}]}]}}`,
		},
		"mixed group": {
			reason:   "a group that a person mixed is left alone",
			settings: `{"hooks":{"Stop":[{"hooks":[{"type":"command","command":"a"},{"type":"command","command":"b"}]}]}}`,
			kept:     []string{`"command": "a"`, `"command": "b"`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			merged, err := mergeHooks([]byte(tt.settings), command)
			if err != nil {
				t.Fatal(err)
			}
			for _, kept := range tt.kept {
				if !strings.Contains(string(merged), kept) {
					t.Errorf("%s: there is no %s in:\n%s", tt.reason, kept, merged)
				}
			}
			if strings.Contains(string(merged), "old") {
				t.Errorf("%s: the old hook is there:\n%s", tt.reason, merged)
			}
			calls := map[string]int{}
			var settings struct {
				Hooks map[string][]struct {
					Hooks []struct{ Command string } `json:"hooks"`
				} `json:"hooks"`
			}
			if err := json.Unmarshal(merged, &settings); err != nil {
				t.Fatalf("%s: %v in:\n%s", tt.reason, err, merged)
			}
			for event, groups := range settings.Hooks {
				for _, group := range groups {
					for _, h := range group.Hooks {
						if h.Command == command {
							calls[event]++
						}
					}
				}
			}
			want := map[string]int{}
			for _, event := range hook.Events() {
				want[event] = 1
			}
			if diff := cmp.Diff(want, calls); diff != "" {
				t.Errorf("%s: calls (-want +got):\n%s", tt.reason, diff)
			}
			again, err := mergeHooks(merged, command)
			if err != nil || string(again) != string(merged) {
				t.Errorf("%s: a second time changes it: %v\n%s", tt.reason, err, again)
			}
		})
	}
}

func TestBrokenSettingsAreLeftAlone(t *testing.T) {
	for _, text := range []string{"{", "[]", "null", "{} {}", `{"hooks":[]}`, `{"hooks":{"Stop":{}}}`, "// comment\n{}"} {
		path := filepath.Join(t.TempDir(), "settings.json")
		put(t, path, text)
		if _, err := installHooks(t.TempDir(), path, "x"); err == nil {
			t.Errorf("%q was taken", text)
		}
		if got := get(t, path); got != text {
			t.Errorf("%q became %q", text, got)
		}
	}
}

func TestInstallKeepsModeLinkAndTheOldFile(t *testing.T) {
	dir := t.TempDir()
	target, link := filepath.Join(dir, "dotfiles", "settings.json"), filepath.Join(dir, "settings.json")
	put(t, target, `{"model":"x"}`)
	if err := os.Chmod(target, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, link); err != nil {
		t.Skip("no symbolic links here")
	}
	wrote, err := installHooks(dir, link, "/x/undersong-hook")
	if err != nil || !wrote {
		t.Fatalf("wrote %v, %v", wrote, err)
	}
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Error("the link was replaced")
	}
	if info, err := os.Stat(target); err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if got := get(t, target+".before-undersong"); got != `{"model":"x"}` {
		t.Errorf("the old file is %q", got)
	}
	if wrote, err := installHooks(dir, link, "/x/undersong-hook"); err != nil || wrote {
		t.Errorf("a second time: wrote %v, %v", wrote, err)
	}
}

func TestInstallIntoAFreshHome(t *testing.T) {
	path := filepath.Join(t.TempDir(), ".claude", "settings.json")
	if wrote, err := installHooks(t.TempDir(), path, "/x/undersong-hook"); err != nil || !wrote {
		t.Fatalf("wrote %v, %v", wrote, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

func TestQuote(t *testing.T) {
	for path, want := range map[string]string{
		"/usr/bin/undersong-hook": "/usr/bin/undersong-hook",
		"/a b/undersong-hook":     "'/a b/undersong-hook'",
		"/a'b/undersong-hook":     `'/a'\''b/undersong-hook'`,
		"/$(x)/undersong-hook":    "'/$(x)/undersong-hook'",
	} {
		if got := quote(path); got != want {
			t.Errorf("quote(%q) is %q, want %q", path, got, want)
		}
	}
}
