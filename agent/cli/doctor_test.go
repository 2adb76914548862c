package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/undersong-dev/undersong/agent/hook"
	"github.com/undersong-dev/undersong/agent/note"
)

// examined runs doctor --offline and returns its findings by what they are of.
func examined(t *testing.T, m *machine, args ...string) (code int, found map[string]finding) {
	t.Helper()
	code, out, errs := m.run(append([]string{"doctor", "--json"}, args...)...)
	var list []finding
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		t.Fatalf("doctor --json: %v\n%s%s", err, out, errs)
	}
	found = map[string]finding{}
	for _, f := range list {
		if found[f.What] == f {
			t.Errorf("%s is said twice: %s", f.What, f.Message)
		}
		found[f.What] = f
	}
	return code, found
}

// patient is a healthy workstation before something is spoiled.
type patient struct {
	*testing.T

	machine        *machine
	home, settings string
}

func TestDoctorFindsWhatIsWrongHere(t *testing.T) {
	for name, tt := range map[string]struct {
		reason string
		spoil  func(p patient)
		what   string
		want   verdict
		says   string
	}{
		"healthy":      {"nothing is wrong", func(patient) {}, "hooks", fine, ""},
		"unconfigured": {"init did not run", func(p patient) { need(p.T, os.Remove(filepath.Join(p.home, "config.json"))) }, "configuration", broken, "undersong init"},
		"off": {"a switch that a person forgot", func(p patient) {
			configure(p.T, p.machine, p.home, func(c *note.Config) { c.Off = true })
		}, "configuration", odd, "nothing is recorded"},
		"open state":    {"others can read the spool", func(p patient) { need(p.T, os.Chmod(p.home, 0o755)) }, "state directory", broken, "chmod 700"},
		"no hooks":      {"nobody calls us", func(p patient) { need(p.T, os.Remove(p.settings)) }, "hooks", broken, "none of ours"},
		"one hook gone": {"a person took one out", func(p patient) { swap(p.T, p.settings, `"Stop":`, `"Stopp":`) }, "hooks", broken, "missing: Stop"},
		"doubled": {"two installations", func(p patient) {
			swap(p.T, p.settings, `"Stop": [`, `"Stop": [{"hooks":[{"type":"command","command":"/x/undersong-hook"}]},`)
		}, "hooks", odd, "more than once"},
		"moved": {"the binaries were moved", func(p patient) { swap(p.T, p.settings, p.machine.dir, "/elsewhere") }, "hooks", broken, "something else than"},
		"disabled": {"all hooks are off", func(p patient) {
			swap(p.T, p.settings, "{\n  \"hooks\"", "{\n  \"disableAllHooks\": true,\n  \"hooks\"")
		}, "hooks", broken, "disableAllHooks"},
		"disabled by the project": {"a repository can do that", func(p patient) {
			cwd := p.TempDir()
			put(p.T, filepath.Join(cwd, ".claude", "settings.local.json"), `{"disableAllHooks":true}`)
			p.Chdir(cwd)
		}, "hooks", broken, "settings.local.json"},
		"no --home": {"they would look elsewhere", func(p patient) { swap(p.T, p.settings, " --home "+p.home, "") }, "hooks", broken, "something else than"},
		"cannot be started": {"unpacked without modes", func(p patient) {
			need(p.T, os.Chmod(filepath.Join(p.machine.dir, "bin", "undersong-hook"), 0o600))
		}, "hooks", broken, "chmod 755"},
		"an administrator's alone": {"only managed hooks are called", func(p patient) { put(p.T, p.machine.managed, `{"allowManagedHooksOnly":true}`) }, "hooks", broken, "allowManagedHooksOnly"},
		"managed": {"they look where the account is, and that is not here", func(p patient) {
			need(p.T, os.Remove(p.settings))
			command, err := p.machine.hookCommand("")
			need(p.T, err)
			text, err := mergeHooks(nil, command)
			need(p.T, err)
			put(p.T, p.machine.managed, string(text))
		}, "hooks", broken, "your state directory is"},
		"not JSON": {"a torn settings file", func(p patient) { put(p.T, p.settings, "{") }, "hooks", broken, "may ignore"},
		"no hook file": {"half an installation", func(p patient) {
			need(p.T, os.Remove(filepath.Join(p.machine.dir, "bin", "undersong-hook")))
		}, "hooks", broken, "install both binaries"},
		"both plugins": {"each session is recorded twice", func(p patient) {
			swap(p.T, p.settings, "{\n  \"hooks\"", "{\n  \"enabledPlugins\": {\"claude-subconscious@letta\": true},\n  \"hooks\"")
		}, "claude-subconscious", odd, "migrate"},
		"both plugins, of two shops": {"one thing to settle is one finding", func(p patient) {
			swap(p.T, p.settings, "{\n  \"hooks\"", "{\n  \"enabledPlugins\": {\"claude-subconscious@letta\": true, \"claude-subconscious@fork\": true},\n  \"hooks\"")
		}, "claude-subconscious", odd, "migrate"},
		"plugin's key": {"a key that nobody needs", func(p patient) { p.machine.env["LETTA_API_KEY"] = "sk-let-secret" }, "LETTA_API_KEY", odd, "unset it"},
		"LETTA_MODE":   {"off by a variable", func(p patient) { p.machine.env["LETTA_MODE"] = "off" }, "LETTA_MODE", odd, "not recorded"},
		"trouble": {"what the daemon met", func(p patient) {
			put(p.T, filepath.Join(p.home, "status.json"), `{"version":1,"trouble":[{"part":"store","message":"it cannot be reached","since":"2026-01-01T00:00:00Z"}],"waiting":{"segments":3,"oldest":"2026-01-01T00:00:00Z"}}`)
		}, "store", broken, "cannot be reached"},
		"old backlog": {"something waits for a day", func(p patient) {
			put(p.T, filepath.Join(p.home, "status.json"), `{"version":1,"waiting":{"segments":3,"oldest":"2026-01-01T00:00:00Z"}}`)
		}, "backlog", broken, "3 segments"},
		"daemon moved": {"the hook starts what is gone", func(p patient) {
			configure(p.T, p.machine, p.home, func(c *note.Config) { c.Daemon = "/gone/undersong" })
		}, "daemon", broken, "/gone/undersong"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			home, settings := filepath.Join(m.dir, "state"), filepath.Join(m.dir, ".claude", "settings.json")
			configure(t, m, home, nil)
			command, err := m.hookCommand(home)
			need(t, err)
			_, err = installHooks(home, settings, command)
			need(t, err)
			tt.spoil(patient{t, m, home, settings})
			code, found := examined(t, m, "--offline")
			got, there := found[tt.what]
			if !there || got.Verdict != tt.want || !strings.Contains(got.Message, tt.says) {
				t.Errorf("%s: found %+v, want %s with %q", tt.reason, got, tt.want, tt.says)
			}
			if (code == 0) != (tt.want != broken) {
				t.Errorf("%s: exit %d with %s", tt.reason, code, tt.want)
			}
			for _, f := range found {
				if strings.Contains(f.Message, "sk-let-secret") {
					t.Errorf("%s: the report prints a key: %s", tt.reason, f.Message)
				}
			}
		})
	}
	if len(hook.Events()) == 0 {
		t.Error("there are no events: the checks of hooks prove nothing")
	}
}

func need(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func configure(t *testing.T, m *machine, home string, change func(*note.Config)) {
	t.Helper()
	self, err := m.Executable()
	need(t, err)
	c := note.Config{Namespace: "n", Memory: "m", Owner: "ada", Workstation: "w", Daemon: self, ConsentedAt: now}
	if change != nil {
		change(&c)
	}
	need(t, note.SaveConfig(home, c))
}

// swap replaces text in a file, which must have it.
func swap(t *testing.T, path, old, with string) {
	t.Helper()
	text := get(t, path)
	if !strings.Contains(text, old) {
		t.Fatalf("there is no %q in:\n%s", old, text)
	}
	put(t, path, strings.ReplaceAll(text, old, with))
}
