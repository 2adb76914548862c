package weaknesses

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/undersong-dev/undersong/agent/daemon"
	"github.com/undersong-dev/undersong/agent/hook"
	"github.com/undersong-dev/undersong/agent/note"
	"github.com/undersong-dev/undersong/agent/spool"
	"github.com/undersong-dev/undersong/agent/statefile"
	"github.com/undersong-dev/undersong/agent/upload"
	"github.com/undersong-dev/undersong/agent/whisper"
	"github.com/undersong-dev/undersong/test/tools"
)

const project = "git.example.com/lighthouse/lantern"

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// desk is a workstation of one person who works in one repository, and one
// session there.
type desk struct {
	t       *testing.T
	user    string // the person's folder
	home    string // the state directory
	cwd     string // the repository
	session string
	path    string // of the transcript
	n       int
}

func sit(t *testing.T) *desk {
	t.Helper()
	user := t.TempDir()
	d := &desk{t: t, user: user, home: filepath.Join(user, "state"), cwd: filepath.Join(user, "lantern"), session: uuid.NewString()}
	d.path = filepath.Join(user, ".claude", "projects", "-lantern", d.session+".jsonl")
	for name, value := range map[string]string{
		"UNDERSONG_HOME": d.home, "HOME": user, "LETTA_MODE": "", "LETTA_HOME": "", "CLAUDE_PROJECT_DIR": d.cwd,
		"CLAUDE_CODE_ENTRYPOINT": "cli", "UNDERSONG_SESSION": "", "CLAUDE_PID": "", "CLAUDE_ENV_FILE": "",
	} {
		t.Setenv(name, value)
	}
	d.file(filepath.Join(d.cwd, ".git", "HEAD"), "ref: refs/heads/main\n")
	d.file(filepath.Join(d.cwd, ".git", "config"), "[remote \"origin\"]\n\turl = https://"+project+".git\n")
	d.must(note.SaveConfig(d.home, note.Config{
		Server: "https://127.0.0.1:1", Kubeconfig: filepath.Join(user, "no-kubeconfig"), Namespace: "alpha", Memory: "main", Owner: "ada",
		StoreHost: "https://127.0.0.1:1", Daemon: filepath.Join(user, "no-daemon"), ConsentedAt: time.Now(), IdleExitSeconds: -1,
	}))
	d.file(filepath.Join(d.home, note.PolicyFile),
		`{"version":1,"include":["git.example.com/lighthouse/*"],"recall":true,"mode":"brief","maxCharacters":4000}`)
	_, err := daemon.NewIdentity(d.home)
	d.must(err)
	_, err = upload.NewRegistry(d.home)
	d.must(err)
	_, err = daemon.WriteBaseline(d.home, filepath.Join(user, ".claude", "projects"))
	d.must(err)
	return d
}

func (d *desk) must(err error) {
	d.t.Helper()
	if err != nil {
		d.t.Fatal(err)
	}
}

func (d *desk) file(path, text string) {
	d.t.Helper()
	d.must(os.MkdirAll(filepath.Dir(path), 0o700))
	d.must(os.WriteFile(path, []byte(text), 0o600))
}

func (d *desk) read(path string) string {
	d.t.Helper()
	data, err := os.ReadFile(path)
	d.must(err)
	return string(data)
}

// event is what Claude Code writes to a hook; fields are name, value, ….
func (d *desk) event(name string, fields ...string) string {
	d.n++
	in := map[string]string{
		"hook_event_name": name, "session_id": d.session, "transcript_path": d.path, "cwd": d.cwd,
		"permission_mode": "default", "prompt_id": fmt.Sprint("p", d.n), "tool_use_id": fmt.Sprint("t", d.n),
	}
	if name == "SessionStart" {
		delete(in, "permission_mode")
	}
	for i := 0; i < len(fields); i += 2 {
		in[fields[i]] = fields[i+1]
	}
	data, err := json.Marshal(in)
	d.must(err)
	return string(data)
}

// hook calls the hook and returns its stdout, which is one JSON object or
// nothing.
func (d *desk) hook(name string, fields ...string) string {
	d.t.Helper()
	var out bytes.Buffer
	hook.Run(strings.NewReader(d.event(name, fields...)), &out, hook.Env{Now: time.Now, Home: d.home})
	d.oneObject(out.String())
	return out.String()
}

func (d *desk) oneObject(stdout string) {
	d.t.Helper()
	if stdout == "" {
		return
	}
	decoder := json.NewDecoder(strings.NewReader(stdout))
	var object map[string]any
	if err := decoder.Decode(&object); err != nil {
		d.t.Errorf("stdout is no JSON object: %v: %q", err, stdout)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		d.t.Errorf("something follows the object: %q", stdout)
	}
}

// whisper stores a message of the memory, n minutes ago.
func (d *desk) whisper(id, text string, minutes int) {
	d.t.Helper()
	d.must(whisper.Put(d.home, whisper.Whisper{
		ID: id, Session: d.session, Project: project, Memory: "main", Text: text, Notice: "undersong: a note",
		At: time.Now().Add(-time.Duration(minutes) * time.Minute),
	}))
}

// say appends so many records to the transcript.
func (d *desk) say(records int) {
	d.t.Helper()
	var b strings.Builder
	for range records {
		d.n++
		fmt.Fprintf(&b, `{"type":"user","uuid":"%s-%d","sessionId":%q,"cwd":%q,"origin":{"kind":"human"},"promptSource":"typed",`+
			`"message":{"role":"user","content":"words %d"}}`+"\n", d.session, d.n, d.session, d.cwd, d.n)
	}
	d.must(os.MkdirAll(filepath.Dir(d.path), 0o700))
	file, err := os.OpenFile(d.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	d.must(err)
	_, err = file.WriteString(b.String())
	d.must(errors.Join(err, file.Close()))
}

var quick = daemon.Timing{
	Late: []time.Duration{50 * time.Millisecond, 500 * time.Millisecond}, Tool: 50 * time.Millisecond,
	Missing: []time.Duration{20 * time.Millisecond, 100 * time.Millisecond},
	Poll:    200 * time.Millisecond, Blocked: 200 * time.Millisecond, GiveUp: 24 * time.Hour,
}

// start runs the daemon until the test ends.
func (d *desk) start() { d.run(quick) }

// run runs the daemon until stop is called, or the test ends.
func (d *desk) run(timing daemon.Timing) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- daemon.Run(ctx, daemon.Options{Home: d.home, Version: "test", Timing: &timing}) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				d.t.Errorf("daemon: %v", err)
			}
		})
	}
	d.t.Cleanup(stop)
	return stop
}

// spooled waits until so many lines of the session were read to be sent, and
// then a moment longer for more.
func (d *desk) spooled(lines int64) {
	d.t.Helper()
	var state spool.State
	d.eventually(fmt.Sprintf("%d lines are spooled", lines), func() error {
		data, err := os.ReadFile(filepath.Join(d.home, daemon.SessionsDir, d.session, "state.json"))
		if err != nil {
			return err
		}
		if err := json.Unmarshal(data, &state); err != nil {
			return err
		}
		if state.Head.Lines < lines {
			return fmt.Errorf("%d lines", state.Head.Lines)
		}
		return nil
	})
	if state.Head.Lines != lines {
		d.t.Errorf("%d lines are spooled, want %d", state.Head.Lines, lines)
	}
}

func (d *desk) eventually(what string, f func() error) {
	d.t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			d.t.Fatalf("not seen in time: %s: %v", what, err)
		}
		<-tick.C
	}
}

// state is what the state files say after 42 lines were processed.
func (d *desk) state() statefile.State {
	return statefile.State{
		SessionID: d.session, ConversationID: "conv-1", AgentID: "agent-1", LastProcessedIndex: 41, LastSeenMessageID: "message-9", StartedAt: now,
	}
}

// expectState compares what the files say.
func (d *desk) expectState(want statefile.State) {
	d.t.Helper()
	got, err := statefile.Read(d.cwd, want.SessionID)
	want.Wrote = nil
	if err != nil || got != want {
		d.t.Errorf("state files say %+v, %v; want %+v", got, err, want)
	}
}

// tree returns every file below a folder, with its mode.
func (d *desk) tree(dir string) map[string]fs.FileMode {
	d.t.Helper()
	found := map[string]fs.FileMode{}
	d.must(filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err == nil && path != dir {
			found[strings.TrimPrefix(path, dir+"/")] = info.Mode()
		}
		return err
	}))
	return found
}

// binary builds the hook as it is installed.
func binary(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "undersong-hook")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", path, "./cmd/undersong-hook")
	build.Dir = tools.Root()
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the hook: %v: %s", err, out)
	}
	return path
}
