package cli

import (
	"bytes"
	"context"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"k8s.io/utils/clock"

	"github.com/undersong-dev/undersong/agent/daemon"
	"github.com/undersong-dev/undersong/agent/note"
)

var update = flag.Bool("update", false, "write the golden files")

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// machine is a System of a test, with what it printed.
type machine struct {
	*System
	dir      string
	out, err bytes.Buffer
	env      map[string]string
}

// newMachine is a user's folder with a state directory and both binaries.
func newMachine(t *testing.T) *machine {
	t.Helper()
	dir := t.TempDir()
	t.Setenv(note.HomeVariable, filepath.Join(dir, "state"))
	m := &machine{dir: dir, env: map[string]string{}}
	self := filepath.Join(dir, "bin", "undersong")
	m.System = &System{
		In: strings.NewReader(""), Out: &m.out, Err: &m.err, Version: "1.2.3", Clock: clock.RealClock{},
		Getenv:   func(name string) string { return m.env[name] },
		UserHome: func() (string, error) { return dir, nil }, Executable: func() (string, error) { return self, nil },
		Terminal: func() bool { return false }, managed: filepath.Join(dir, "managed-settings.json"), probeWithin: time.Millisecond, // no controller answers
	}
	for _, path := range []string{self, self + "-hook"} {
		put(t, path, "#!")
		if err := os.Chmod(path, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func get(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// run runs the command and returns its exit status and what it printed.
func (m *machine) run(args ...string) (int, string, string) {
	m.out.Reset()
	m.err.Reset()
	code := Run(context.Background(), m.System, args)
	return code, m.out.String(), m.err.String()
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(get(t, path), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}

func TestHelp(t *testing.T) {
	m := newMachine(t)
	var walk func(cmd *cobra.Command, args []string)
	var all strings.Builder
	walk = func(cmd *cobra.Command, args []string) {
		if cmd.Hidden || cmd.Name() == "help" || cmd.Name() == "completion" {
			return
		}
		_, out, _ := m.run(append(args, "--help")...)
		all.WriteString("$ undersong " + strings.Join(append(args, "--help"), " ") + "\n" + out + "\n")
		for _, sub := range cmd.Commands() {
			walk(sub, append(slices.Clip(args), sub.Name()))
		}
	}
	walk(New(m.System), nil)
	golden(t, "help", all.String())
}

func TestVersion(t *testing.T) {
	for _, arg := range []string{"version", "--version", "-v"} {
		if _, out, _ := newMachine(t).run(arg); out != "undersong 1.2.3\n" {
			t.Errorf("%s printed %q", arg, out)
		}
	}
}

func TestErrorsAreOneLine(t *testing.T) {
	m := newMachine(t)
	for _, args := range [][]string{{"nonsense"}, {"init", "--nonsense"}, {"daemon", "run", "x"}, {"reset"}, {"init"}} {
		code, out, errs := m.run(args...)
		if code != 1 || out != "" || !strings.HasPrefix(errs, "undersong: ") || strings.Count(errs, "\n") != 1 {
			t.Errorf("%v: exit %d, printed %q, %q", args, code, out, errs)
		}
	}
}

func TestStatusWithoutConfiguration(t *testing.T) {
	m := newMachine(t)
	code, out, _ := m.run("status")
	if code != 0 || out != "undersong is not configured here; nothing is recorded.\nRun: undersong init\n" {
		t.Errorf("exit %d, printed %q", code, out)
	}
	put(t, filepath.Join(m.dir, "state", "config.json"), "{")
	if _, out, _ = m.run("status"); !strings.Contains(out, "cannot use its configuration") {
		t.Errorf("printed %q", out)
	}
}

// healthy is the report of a workstation on which all is well.
func healthy() *report {
	return &report{
		Version: "1.2.3", Home: "/home/ada/.local/state/undersong", Configured: true,
		Owner: "ada", Namespace: "alpha", Memory: "main", Server: "https://k8s.example.com:6443", StoreHost: "https://s3.example.com",
		Workstation: "ws-0123456789abcdef", ConsentedAt: now.Add(-48 * time.Hour), Running: true,
		Daemon: daemon.Info{PID: 4242, StartedAt: now.Add(-90 * time.Minute), Version: "1.2.3"},
		Status: &daemon.Snapshot{
			Version: 1, Running: true, Online: true, Workstation: "ws-0123456789abcdef",
			Memory: daemon.Policy{Known: true, Include: []string{"git.example.com/alpha/*", "git.example.com/shared/**"}, Recall: true},
			Session: []daemon.SessionSummary{
				{ID: "0a1b2c3d-0000-4000-8000-000000000001", Project: "git.example.com/alpha/tide", State: "Active", Read: 41, Uploaded: 41, Verified: 41},
				{ID: "0a1b2c3d-0000-4000-8000-000000000002", State: "Active"},
			},
		},
	}
}

func TestStatusForPeople(t *testing.T) {
	type test struct {
		reason string
		change func(*report)
	}
	oldest := now.Add(-5 * time.Minute)
	for name, tt := range map[string]test{
		"healthy": {"all is well", func(*report) {}},
		"trouble": {"each trouble says what to do, and nothing from elsewhere moves the cursor", func(r *report) {
			r.Status.Online = false
			r.Status.Waiting = daemon.Waiting{Segments: 3, Bytes: 123456, Oldest: &oldest}
			r.Status.Session[0].Read, r.Status.Session[0].Project = 44, "git.example.com/alpha/ti\x1b[2Jde"
			r.Status.Trouble = []daemon.Trouble{
				{Part: "store", Message: "the object store cannot be reached from this workstation", Since: oldest},
				{Part: "session/0a1b2c3d-0000-4000-8000-000000000002", Message: "the transcript cannot be read", Since: now},
			}
			r.NotesWaiting, r.NotesBroken, r.WhispersWaiting = 1, 2, 1
		}},
		"login":   {"the user must act", func(r *report) { r.Status.LoginNeeded = true }},
		"revoked": {"the user must act", func(r *report) { r.Status.Revoked = true }},
		"stopped": {"no daemon", func(r *report) { r.Running = false; r.Status.Memory.Recall = false }},
		"first":   {"nothing is known yet", func(r *report) { r.Status = nil; r.Running = false }},
		"off":     {"switched off", func(r *report) { r.Off = true; r.Running = false }},
		"plugin": {"what is left of claude-subconscious is answered", func(r *report) {
			r.Leftovers = []leftover{{"LETTA_API_KEY", "is set, and not needed here: " + plugins["LETTA_API_KEY"]}, {"claude-subconscious", pluginEnabled}}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			r := healthy()
			tt.change(r)
			golden(t, "status-"+name, render(r, now))
		})
	}
}

func TestLeftoversOfThePlugin(t *testing.T) {
	m := newMachine(t)
	path, err := m.settingsPath()
	if err != nil {
		t.Fatal(err)
	}
	if found := m.leftovers(); len(found) != 0 {
		t.Errorf("without the plugin: %v", found)
	}
	put(t, path, "{")
	if found := m.leftovers(); len(found) != 0 {
		t.Errorf("with settings that cannot be read: %v", found)
	}
	put(t, path, `{"enabledPlugins": {"claude-subconscious@letta": true, "other@x": true}}`)
	m.env["LETTA_DEBUG"], m.env["LETTA_MODEL"] = "1", "letta/x"
	var what []string
	for _, l := range m.leftovers() {
		what = append(what, l.What)
		if strings.Contains(l.Says, "letta/x") {
			t.Errorf("a value is said: %s", l.Says)
		}
	}
	if diff := cmp.Diff([]string{"LETTA_DEBUG", "LETTA_MODEL", "claude-subconscious"}, what); diff != "" {
		t.Errorf("found (-want +got):\n%s", diff)
	}
}

// TestStatusSaysThatNobodyCallsUs: recorded as far as anybody is asked, and not at
// all where no hook is called.
func TestStatusSaysThatNobodyCallsUs(t *testing.T) {
	m, _ := agreedMachine(t)
	home := filepath.Join(m.dir, "state")
	if _, out, _ := m.run("status"); !strings.Contains(out, "NOT CALLED: none of ours are in") {
		t.Errorf("without hooks it says\n%s", out)
	}
	command, err := m.hookCommand(home)
	need(t, err)
	_, err = installHooks(home, filepath.Join(m.dir, ".claude", "settings.json"), command)
	need(t, err)
	if _, out, _ := m.run("status"); strings.Contains(out, "NOT CALLED") {
		t.Errorf("with hooks it says\n%s", out)
	}
	cwd := t.TempDir()
	put(t, filepath.Join(cwd, ".claude", "settings.json"), `{"disableAllHooks":true}`)
	t.Chdir(cwd)
	if _, out, _ := m.run("status"); !strings.Contains(out, "not recorded: disableAllHooks is set in "+cwd) {
		t.Errorf("where hooks are off it says\n%s", out)
	}
}

func TestStatusAsJSON(t *testing.T) {
	m := newMachine(t)
	home := filepath.Join(m.dir, "state")
	if err := note.SaveConfig(home, note.Config{Owner: "ada", Namespace: "alpha", Memory: "main", ConsentedAt: now}); err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(home, "whispers", "s1", "waiting", "1-a.json"), `{"version":1,"id":"a","session":"s1","text":"x"}`)
	put(t, filepath.Join(home, "whispers", "s1", "waiting", "1-b.json"), `{"version":1,"id":"b","session":"s1","notice":"only a notice"}`)
	if err := note.Write(home, note.Note{Event: "Stop", Session: "s1", At: now}); err != nil {
		t.Fatal(err)
	}
	code, out, errs := m.run("status", "--json")
	if code != 0 {
		t.Fatalf("exit %d: %s", code, errs)
	}
	for _, want := range []string{`"configured": true`, `"owner": "ada"`, `"whispersWaiting": 1`, `"notesWaiting": 1`, `"running": false`} {
		if !strings.Contains(out, want) {
			t.Errorf("there is no %s in:\n%s", want, out)
		}
	}
}

func TestDaemonCommandsWithoutDaemon(t *testing.T) {
	m := newMachine(t)
	if code, out, _ := m.run("daemon", "stop"); code != 0 || out != "no daemon runs\n" {
		t.Errorf("stop: exit %d, printed %q", code, out)
	}
	if code, out, _ := m.run("daemon", "status"); code != 0 || out != "no daemon runs; the next hook starts it\n" {
		t.Errorf("status: exit %d, printed %q", code, out)
	}
	if code, _, errs := m.run("daemon", "run"); code != 1 || !strings.Contains(errs, "run undersong init") {
		t.Errorf("run: exit %d, printed %q", code, errs)
	}
}

func TestEnvironmentHoldsNoPassword(t *testing.T) {
	m := newMachine(t)
	m.env = map[string]string{
		"PATH": "/bin", "AWS_PROFILE": "team", "AWS_SECRET_ACCESS_KEY": "secret", "ANTHROPIC_API_KEY": "secret", "KUBECONFIG": "/evil",
		"HTTPS_PROXY": "http://ada:secret@proxy:3128", "http_proxy": "ada:secret@proxy:3128", "NO_PROXY": "localhost",
	}
	env, stripped := m.environment()
	want := map[string]string{
		"PATH": "/bin", "AWS_PROFILE": "team", "HTTPS_PROXY": "http://proxy:3128", "http_proxy": "proxy:3128", "NO_PROXY": "localhost",
	}
	if diff := cmp.Diff(want, env); diff != "" {
		t.Errorf("environment (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"HTTPS_PROXY", "http_proxy"}, stripped); diff != "" {
		t.Errorf("stripped (-want +got):\n%s", diff)
	}
}

func TestTheDaemonsEnvironmentIsTheRecordedOne(t *testing.T) {
	config := note.Config{Env: map[string]string{"PATH": "/bin", "HTTPS_PROXY": "http://proxy"}}
	present := []string{"PATH=/evil", "KUBECONFIG=/evil", "HTTPS_PROXY=http://evil", "AWS_PROFILE=evil", "UNDERSONG_HOME=/state"}
	want := map[string]string{"PATH": "/bin", "HTTPS_PROXY": "http://proxy", "UNDERSONG_HOME": "/state"}
	if diff := cmp.Diff(want, onlyRecorded(config, present)); diff != "" {
		t.Errorf("environment (-want +got):\n%s", diff)
	}
}
