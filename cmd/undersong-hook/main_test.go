package main_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/undersong-dev/undersong/agent/note"
	"github.com/undersong-dev/undersong/agent/whisper"
)

const session = "8c1f0a52-4a1d-4d5e-9d58-2f0c6b7c1c11"

// binary is the hook, built once.
var binary string

// daemonVariable makes the test binary a daemon that says how it was started,
// see TestDaemonIsStarted.
const daemonVariable = "UNDERSONG_TEST_DAEMON"

func TestMain(m *testing.M) {
	if dir := os.Getenv(daemonVariable); dir != "" {
		fakeDaemon(dir)
		return
	}
	dir, err := os.MkdirTemp("", "undersong-hook")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	binary = filepath.Join(dir, "undersong-hook")
	if err := build(binary); err != nil {
		panic(err)
	}
	m.Run() // sets the exit code
}

func build(to string, flags ...string) error {
	args := append(append([]string{"build", "-o", to}, flags...), ".")
	if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("build: %w: %s", err, out)
	}
	return nil
}

// place is a workstation: a state directory and what the agent puts into the
// environment.
type place struct {
	home string
	env  []string
}

func configured(tb testing.TB, change func(*note.Config)) place {
	tb.Helper()
	home := filepath.Join(tb.TempDir(), "state")
	config := note.Config{ConsentedAt: time.Now()}
	if change != nil {
		change(&config)
	}
	if err := note.SaveConfig(home, config); err != nil {
		tb.Fatal(err)
	}
	return place{home: home, env: []string{
		"HOME=" + tb.TempDir(), "PATH=" + os.Getenv("PATH"),
		"CLAUDECODE=1", "CLAUDE_CODE_ENTRYPOINT=cli", "CLAUDE_CODE_MESSAGING_TOKEN=planted-token",
	}}
}

// command returns a call of the hook as Claude Code makes it.
func (p place) command(tb testing.TB, stdin io.Reader) *exec.Cmd {
	tb.Helper()
	cmd := exec.CommandContext(tb.Context(), binary, note.HomeFlag, p.home)
	cmd.Env, cmd.Dir, cmd.Stdin = p.env, tb.TempDir(), stdin
	return cmd
}

// call runs the hook and checks what holds for every call. It returns stdout.
func (p place) call(tb testing.TB, stdin io.Reader) string {
	tb.Helper()
	var stdout, stderr bytes.Buffer
	cmd := p.command(tb, stdin)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		tb.Errorf("exit: %v", err)
	}
	check(tb, stdout.String(), stderr.String())
	return stdout.String()
}

// check: stdout is empty or one JSON object, stderr is empty.
func check(tb testing.TB, stdout, stderr string) {
	tb.Helper()
	if stderr != "" {
		tb.Errorf("stderr: %q", stderr)
	}
	if stdout == "" {
		return
	}
	decoder := json.NewDecoder(strings.NewReader(stdout))
	var object map[string]any
	if err := decoder.Decode(&object); err != nil {
		tb.Errorf("stdout is not a JSON object: %v: %q", err, stdout)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		tb.Errorf("something follows the object: %q", stdout)
	}
	if specific, ok := object["hookSpecificOutput"].(map[string]any); ok {
		if _, decides := specific["permissionDecision"]; decides {
			tb.Errorf("a decision: %q", stdout)
		}
	}
}

func event(name string, fields ...string) string {
	m := map[string]string{"hook_event_name": name, "session_id": session, "transcript_path": "/t/s.jsonl", "cwd": "/work"}
	for i := 0; i < len(fields); i += 2 {
		m[fields[i]] = fields[i+1]
	}
	data, err := json.Marshal(m)
	if err != nil {
		panic(err) // strings only
	}
	return string(data)
}

func (p place) put(tb testing.TB, id string) {
	tb.Helper()
	err := whisper.Put(p.home, whisper.Whisper{ID: id, Session: session, Text: "words of " + id, Notice: "memory spoke", At: time.Now()})
	if err != nil {
		tb.Fatal(err)
	}
}

func (p place) notes(tb testing.TB) []note.Note {
	tb.Helper()
	files, err := note.List(p.home)
	if err != nil {
		tb.Fatal(err)
	}
	var out []note.Note
	for _, f := range files {
		out = append(out, f.Note)
	}
	return out
}

var stdins = []string{
	"", " ", "\x00", "null", "[]", "{}", "{", `{"`, `"text"`, "hello\nworld", "\xff\xfe", "\ufeff{}", `{"a":1}{"b":2}`,
	`{"hook_event_name":7,"session_id":[]}`, `{"hook_event_name":"Stop","session_id":"../../etc/passwd"}`,
	strings.Repeat(`{"a":`, 100000), strings.Repeat("[", 1<<20), `{"hook_event_name":"` + strings.Repeat("x", 1<<20),
	event("SessionStart"), event("UserPromptSubmit"), event("PreToolUse"), event("Stop"), event("SubagentStop"),
	event("PreCompact"), event("SessionEnd"), event("Notification"), event("UserPromptSubmit", "cwd", "\x00\x1b\u202e"),
}

func TestAnyStdinExitsZero(t *testing.T) {
	for name, p := range map[string]place{
		"configured":     configured(t, nil),
		"not configured": {home: t.TempDir(), env: []string{"HOME=" + t.TempDir()}},
		"nothing at all": {home: t.TempDir()},
	} {
		t.Run(name, func(t *testing.T) {
			for i, stdin := range stdins {
				p.put(t, fmt.Sprint("w", i))
				p.call(t, strings.NewReader(stdin))
			}
		})
	}
}

// FuzzAnyStdinExitsZero: any stdin ends with exit 0, an empty stderr, and one
// JSON object or nothing on stdout.
func FuzzAnyStdinExitsZero(f *testing.F) {
	for _, stdin := range stdins {
		if len(stdin) < 1000 {
			f.Add([]byte(stdin))
		}
	}
	p := configured(f, nil)
	n := 0
	f.Fuzz(func(t *testing.T, stdin []byte) {
		n++
		p.put(t, fmt.Sprint("w", os.Getpid(), "-", n))
		p.call(t, bytes.NewReader(stdin))
	})
}

// TestHugePrompt: 32 MB are read to the end, cost no memory, and leave nothing.
func TestHugePrompt(t *testing.T) {
	p := configured(t, nil)
	p.put(t, "w")
	stdin := strings.TrimSuffix(event("UserPromptSubmit"), "}") + `,"prompt":"` + strings.Repeat("planted ", 4<<20) + `","prompt_id":"p"}`
	var stdout, stderr bytes.Buffer
	cmd := p.command(t, nil)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	pipe, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	// All but the end, so that it is still there to be looked at.
	if _, err := io.WriteString(pipe, stdin[:len(stdin)-1]); err != nil {
		t.Errorf("the agent's write fails: %v", err)
	}
	if most := peakMemory(t, cmd.Process.Pid); most > 24<<20 {
		t.Errorf("%d MB of memory", most>>20)
	}
	if _, err := io.WriteString(pipe, stdin[len(stdin)-1:]); err != nil {
		t.Errorf("the agent's write fails: %v", err)
	}
	if err := errors.Join(pipe.Close(), cmd.Wait()); err != nil {
		t.Fatal(err)
	}
	check(t, stdout.String(), stderr.String())
	if !strings.Contains(stdout.String(), "words of w") {
		t.Errorf("stdout = %q", stdout.String())
	}
	if got := p.notes(t); len(got) != 1 {
		t.Errorf("%d notes", len(got))
	}
	nowhere(t, p.home, "planted")
}

// peakMemory is the most memory that a process has had, in bytes; 0 where that
// is not known. (What the kernel says after its end counts ours, too.)
func peakMemory(t *testing.T, pid int) int64 {
	t.Helper()
	if runtime.GOOS != "linux" {
		return 0
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	var kb int64
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	if _, err := fmt.Sscan(rest, &kb); err != nil {
		t.Fatal(err)
	}
	return kb << 10
}

// nowhere checks that a text is in no file of a folder.
func nowhere(t *testing.T, dir, text string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if strings.Contains(string(data), text) {
			t.Errorf("%s holds %q", path, text)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// TestParallelToolCallsGetOneCopy: Claude Code runs the hooks of parallel tools
// at the same moment.
func TestParallelToolCallsGetOneCopy(t *testing.T) {
	for round := range 5 {
		p := configured(t, nil)
		p.put(t, "w")
		outs := make([]string, 6)
		var wg sync.WaitGroup
		for i := range outs {
			wg.Go(func() {
				outs[i] = p.call(t, strings.NewReader(event("PreToolUse", "tool_use_id", fmt.Sprint("toolu_", i))))
			})
		}
		wg.Wait()
		if n := strings.Count(strings.Join(outs, ""), "words of w"); n != 1 {
			t.Errorf("round %d: %d copies", round, n)
		}
		if got := p.notes(t); len(got) != len(outs) {
			t.Errorf("round %d: %d notes, want %d", round, len(got), len(outs))
		}
	}
}

// TestBrokenPipes: whoever closes its end does not change the exit code.
func TestBrokenPipes(t *testing.T) {
	p := configured(t, nil)
	p.put(t, "w")
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	cmd := p.command(t, strings.NewReader(event("UserPromptSubmit")))
	cmd.Stdout, cmd.Stderr = w, &stderr
	if err := cmd.Run(); err != nil {
		t.Errorf("exit: %v", err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	check(t, "", stderr.String())
	if waits, err := whisper.Claimed(p.home, session); err != nil || len(waits) != 1 {
		t.Errorf("claimed and not arrived: %v, %v; want one", waits, err)
	}
}

func TestClosedStdin(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("needs a shell")
	}
	p := configured(t, nil)
	cmd := exec.CommandContext(t.Context(), "sh", "-c", binary+" --home "+p.home+" <&- ; echo $?")
	cmd.Env = p.env
	out, err := cmd.CombinedOutput()
	if err != nil || string(out) != "0\n" {
		t.Errorf("%q, %v", out, err)
	}
}

func TestForPeople(t *testing.T) {
	for flag, want := range map[string]string{"--version": "undersong-hook dev\n", "--help": "undersong init", "-h": "undersong init"} {
		out, err := exec.CommandContext(t.Context(), binary, flag).CombinedOutput()
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("%s: %q, %v", flag, out, err)
		}
	}
}

// TestCrashPoints: killed at each point, nothing is lost.
func TestCrashPoints(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("crash points need kill")
	}
	crashing := filepath.Join(t.TempDir(), "undersong-hook")
	if err := build(crashing, "-tags", "crashpoints"); err != nil {
		t.Fatal(err)
	}
	for _, point := range []string{"hook-note-written", "hook-whisper-claimed"} {
		t.Run(point, func(t *testing.T) {
			p := configured(t, nil)
			p.put(t, "w")
			mark := filepath.Join(t.TempDir(), "mark")
			cmd := p.command(t, strings.NewReader(event("UserPromptSubmit")))
			cmd.Path = crashing
			cmd.Env = append(cmd.Env, "UNDERSONG_CRASH="+point, "UNDERSONG_CRASH_MARK="+mark)
			out, err := cmd.Output()
			if err == nil || len(out) > 0 {
				t.Errorf("not killed: %q, %v", out, err)
			}
			if _, err := os.Stat(mark); err != nil {
				t.Errorf("the point was not reached: %v", err)
			}
			if got := p.notes(t); len(got) != 1 {
				t.Errorf("%d notes, want 1", len(got))
			}
			if err := whisper.Return(p.home, session, "w", time.Now()); err != nil {
				t.Fatal(err)
			}
			if got := p.call(t, strings.NewReader(event("UserPromptSubmit"))); !strings.Contains(got, "words of w") {
				t.Errorf("the whisper is lost: %q", got)
			}
		})
	}
}

// started is what the fake daemon says of itself.
type started struct {
	Args, Env []string
	Dir       string
	Streams   []string // what the three streams are
	Leader    bool     // of a session of its own
}

// fakeDaemon takes the lock, says how it was started, and stays until there is
// a file named stop.
func fakeDaemon(dir string) {
	release, err := lock(filepath.Join(os.Getenv("UNDERSONG_HOME"), "daemon.lock"))
	if err != nil {
		return
	}
	defer release()
	wd, err := os.Getwd()
	if err != nil {
		panic(err)
	}
	self := started{Args: os.Args, Env: os.Environ(), Dir: wd, Leader: sessionLeader()}
	for fd := range 3 {
		target, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
		if err != nil {
			target = err.Error()
		}
		self.Streams = append(self.Streams, target)
	}
	data, err := json.Marshal(self)
	if err != nil {
		panic(err)
	}
	name := filepath.Join(dir, fmt.Sprintf("started-%d", os.Getpid()))
	if err := os.WriteFile(name+".tmp", data, 0o600); err != nil {
		panic(err)
	}
	if err := os.Rename(name+".tmp", name); err != nil {
		panic(err)
	}
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(filepath.Join(dir, "stop")); err == nil {
			return
		}
	}
}

// TestARepositoryNamesNoStateDirectory: a repository's settings set the hook's
// environment, and a clone made with umask 077 has files of mode 0600. The
// configuration names the program that the hook starts.
func TestARepositoryNamesNoStateDirectory(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	mark, repository := t.TempDir(), t.TempDir()
	carried := filepath.Join(repository, ".local", "state", "undersong")
	if err := note.SaveConfig(carried, note.Config{
		ConsentedAt: time.Now(), Daemon: self, Env: map[string]string{daemonVariable: mark},
	}); err != nil {
		t.Fatal(err)
	}
	p := configured(t, nil)
	for i, set := range [][]string{
		{"UNDERSONG_HOME=" + carried},
		{"UNDERSONG_HOME=/proc/self/cwd/.local/state/undersong"},
		{"HOME=" + repository, "LOCALAPPDATA=" + filepath.Dir(carried)},
		{"XDG_STATE_HOME=" + filepath.Dir(carried)},
	} {
		cmd := p.command(t, strings.NewReader(event("UserPromptSubmit", "prompt_id", fmt.Sprint("p", i))))
		cmd.Env, cmd.Dir = append(slices.Clip(p.env), set...), repository
		if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("%q: %v: %s", set, err, out)
		}
		if notes, err := note.List(p.home); err != nil || len(notes) != i+1 {
			t.Errorf("%q: %d notes in the person's own folder, %v", set, len(notes), err)
		}
	}
	if files, err := os.ReadDir(carried); err != nil || len(files) != 1 {
		t.Errorf("the repository's folder has %v, %v; want its configuration alone", files, err)
	}
	if started, err := os.ReadDir(mark); err != nil || len(started) > 0 {
		t.Errorf("the repository's program was started: %v, %v", started, err)
	}
}

func TestDaemonIsStarted(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("looks into /proc")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	p := configured(t, func(c *note.Config) {
		c.Daemon = self
		c.Env = map[string]string{daemonVariable: dir, "PATH": "/recorded", "UNDERSONG_HOME": "/elsewhere"}
	})
	begin := time.Now()
	p.call(t, strings.NewReader(event("SessionStart")))
	if took := time.Since(begin); took > 20*time.Second {
		t.Errorf("the hook waited %v for the daemon", took)
	}
	running := func() []string {
		names, err := filepath.Glob(filepath.Join(dir, "started-*"))
		if err != nil {
			t.Fatal(err)
		}
		return slices.DeleteFunc(names, func(n string) bool { return strings.HasSuffix(n, ".tmp") })
	}
	poll(t, "the daemon runs", func() bool { return len(running()) == 1 })
	data, err := os.ReadFile(running()[0])
	if err != nil {
		t.Fatal(err)
	}
	var got started
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	slices.Sort(got.Env)
	want := started{
		Args:    []string{self, "daemon", "run"},
		Env:     []string{"PATH=/recorded", "UNDERSONG_HOME=" + p.home, daemonVariable + "=" + dir},
		Dir:     p.home,
		Streams: []string{os.DevNull, os.DevNull, os.DevNull},
		Leader:  true,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("daemon (-want +got):\n%s", diff)
	}

	// While it runs, no hook starts another one, whatever the marker says.
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(filepath.Join(p.home, "daemon.start"), old, old); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		p.call(t, strings.NewReader(event("Stop")))
	}
	info, err := os.Stat(filepath.Join(p.home, "daemon.start"))
	if err != nil || !info.ModTime().Equal(old.Truncate(time.Nanosecond)) {
		t.Errorf("another start was tried: %v, %v", info.ModTime(), err)
	}

	// When it has left, the next hook starts one.
	if err := os.WriteFile(filepath.Join(dir, "stop"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	poll(t, "the daemon has left", func() bool {
		release, err := lock(filepath.Join(p.home, "daemon.lock"))
		if err == nil {
			release()
		}
		return err == nil
	})
	if err := os.Remove(filepath.Join(dir, "stop")); err != nil {
		t.Fatal(err)
	}
	p.call(t, strings.NewReader(event("Stop")))
	poll(t, "a second daemon runs", func() bool { return len(running()) == 2 })
	if err := os.WriteFile(filepath.Join(dir, "stop"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	nowhere(t, p.home, "planted-token")
}

// TestBrokenDaemonIsTriedSeldom: a daemon that cannot run costs one process per
// two seconds, not one per hook.
func TestBrokenDaemonIsTriedSeldom(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("needs a shell")
	}
	dir := t.TempDir()
	script := filepath.Join(dir, "undersong")
	if err := os.WriteFile(script, []byte("#!/bin/sh\necho x >> "+dir+"/tries\nexit 1\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	p := configured(t, func(c *note.Config) { c.Daemon = script })
	tries := func() int {
		data, _ := os.ReadFile(filepath.Join(dir, "tries"))
		return len(data) / 2
	}
	begin := time.Now()
	for range 10 {
		p.call(t, strings.NewReader(event("Stop")))
	}
	most := 1 + int(time.Since(begin)/(2*time.Second))
	poll(t, "it was tried", func() bool { return tries() > 0 })
	if got := tries(); got > most {
		t.Errorf("tried %d times, at most %d", got, most)
	}
	// A clock that was set back must not silence the hook for ever.
	future := time.Now().Add(24 * time.Hour)
	if err := os.Chtimes(filepath.Join(p.home, "daemon.start"), future, future); err != nil {
		t.Fatal(err)
	}
	before := tries()
	p.call(t, strings.NewReader(event("Stop")))
	poll(t, "it was tried again", func() bool { return tries() > before })
}

func poll(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !done(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not seen in time: %s", what)
		}
	}
}

// TestClosure: the hook starts fast because it links little. Everything here is
// small; the network, cryptography, Kubernetes and YAML are not.
func TestClosure(t *testing.T) {
	const module = "github.com/undersong-dev/undersong/"
	want := []string{
		module + "agent/hook", module + "agent/internal/durable", module + "agent/internal/object", module + "agent/note",
		module + "agent/whisper", module + "cmd/undersong-hook", module + "internal/crash",
	}
	for _, system := range []string{"linux", "darwin", "windows"} {
		cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", ".")
		cmd.Env = append(os.Environ(), "GOOS="+system)
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		got := strings.Fields(string(out))
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: packages (-want +got):\n%s", system, diff)
		}
		cmd = exec.CommandContext(t.Context(), "go", "list", "-deps", ".")
		cmd.Env = append(os.Environ(), "GOOS="+system)
		if out, err = cmd.Output(); err != nil {
			t.Fatal(err)
		}
		for _, heavy := range []string{"net", "net/http", "crypto/tls", "crypto/rand", "os/exec", "regexp", "text/template", "log/slog"} {
			if slices.Contains(strings.Fields(string(out)), heavy) {
				t.Errorf("%s: links %s", system, heavy)
			}
		}
	}
}

func TestOtherSystemsBuild(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the standard library for each")
	}
	for _, system := range []string{"darwin", "windows"} {
		cmd := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(t.TempDir(), "hook"), ".")
		cmd.Env = append(os.Environ(), "GOOS="+system, "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", system, err, out)
		}
	}
}
