//go:build envtest

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"

	"github.com/undersong-dev/undersong/agent/note"
	"github.com/undersong-dev/undersong/test/replay"
	"github.com/undersong-dev/undersong/test/stack"
)

// newcomer is somebody who has two binaries in a folder, a kubeconfig where
// kubectl has it, a repository, and the README.
type newcomer struct {
	*world
	bin string
	env []string
}

// TestANewcomer goes the way of the README, and looks at every word that is
// printed on it. Run it with -v to read what a person reads.
func TestANewcomer(t *testing.T) {
	w := newWorld(t, nil)
	w.startController()
	n := w.newcomer()
	line := cable(t, host(parts.Cluster.User("ada").Host))
	config, err := os.ReadFile(n.desk.Kubeconfig())
	w.must(err)
	config = bytes.ReplaceAll(config, []byte(host(parts.Cluster.User("ada").Host)), []byte(line.address))
	n.write(filepath.Join(n.desk.Home, ".kube", "config"), string(config))
	settings := filepath.Join(n.desk.ClaudeDir(), "settings.json")
	// Indented by one, with hooks of somebody else, and without a last newline.
	const own = "{\n \"model\": \"opus\",\n \"hooks\": {\n  \"Stop\": [{\"hooks\": [{\"type\": \"command\", \"command\": \"say done <&>\"}]}]\n },\n \"env\": {\"A\": \"b\"}\n}"
	n.write(settings, own)

	n.says("status", nil, "not configured", "nothing is recorded", "undersong init")
	n.says("doctor", errors.ErrUnsupported, "undersong init")
	n.says("init --install-hooks", errors.ErrUnsupported, "--yes")
	n.says("init --install-hooks --yes", nil,
		"You are ada", "team "+w.team.Namespace, "git.example.com/lighthouse/**", "What was written before now is not sent", "The hooks are in "+settings, "takes what this workstation sends")
	hooks, err := os.ReadFile(settings)
	w.must(err)
	if !bytes.Contains(hooks, []byte(filepath.Join(n.bin, "undersong-hook")+" "+note.HomeFlag+" "+n.desk.State+`"`)) || !bytes.Contains(hooks, []byte("say done <&>")) {
		t.Errorf("the settings are now\n%s", hooks)
	}

	// One hook call by hand.
	id := uuid.NewString()
	s := replay.New(n, n.desk.ClaudeDir(), n.cwd, id)
	call, err := json.Marshal(map[string]string{
		"hook_event_name": "SessionStart", "source": "startup", "session_id": id, "cwd": n.cwd,
		"transcript_path": s.Transcript,
	})
	w.must(err)
	said, err := n.run(string(call), "undersong-hook")
	w.must(err)
	t.Logf("$ undersong-hook < session-start.json\n%s", said)
	if said != "" {
		t.Errorf("the hook said %q before anything was known of the team", said)
	}
	w.must(n.comesToSay("status", "recorded for team "+w.team.Namespace, ", connected", "projects git.example.com/lighthouse/**"))
	w.sessions = append(w.sessions, s)
	told := w.turn(s, "The first words of somebody new.", "Welcome.").Message
	w.processed()
	w.must(n.comesToSay("status", "here", "recorded for team "+w.team.Namespace, ", connected", "nothing", "lighthouse/lantern"))
	told += w.turn(s, "More words of somebody new.", "Welcome again.").Message
	t.Logf("told at the prompts: %s", told)
	if strings.Count(told, "recorded") != 1 || !strings.Contains(told, w.team.Namespace) {
		t.Errorf("the person was told %q", told)
	}
	w.processed()
	n.says("verify "+id, nil, "the chain is whole")

	// No network: neither cluster nor store.
	line.cut()
	w.must(parts.RestartS3(t.Context(), func() error {
		w.turn(s, "Words without a network.", "They wait.")
		err := n.comesToSay("status", "not connected", "What is wrong", "API server cannot be reached", "object store cannot be reached", "to be archived", "kept here, and sent when it can be")
		n.says("doctor", errors.ErrUnsupported, "API server cannot be reached", "kubectl", "what is recorded waits")
		n.says("verify "+id, errors.ErrUnsupported, "API server cannot be reached")
		return err
	}))
	line.mend(t)
	w.processed()
	w.must(n.comesToSay("status", ", connected", "nothing"))
	w.must(n.comesToSay("verify "+id, "read to its end", "verified      all", "the chain is whole"))

	n.says("pause", nil, "Paused", "undersong resume")
	n.says("status", nil, "not recorded: paused", "undersong resume", "consent")
	n.says("resume", nil, "Recorded and shown again from now on")
	w.must(n.comesToSay("status", "recorded for"))
	n.says("doctor", nil, "ok    daemon", "ok    rights", "ok    object store")

	n.says("uninstall", errors.ErrUnsupported, "--yes")
	n.says("uninstall --yes", nil, settings+" is what it was before init", "no longer registered", "--erase")
	after, err := os.ReadFile(settings)
	w.must(err)
	if string(after) != own {
		t.Errorf("the settings were\n%s\nand are\n%s", own, after)
	}
	n.says("status", nil, "nothing is recorded")
	if err := stack.CheckTold(w.conversations(), w.said); err != nil {
		t.Error(err)
	}
}

// newcomer gives the desk's person an empty machine.
func (w *world) newcomer() *newcomer {
	w.t.Helper()
	ws, err := parts.Workstation(w.team, "ada", "new")
	w.must(err)
	ws.State = filepath.Join(ws.Home, ".local", "state", "undersong")
	w.t.Cleanup(ws.StopDaemon)
	n := &newcomer{world: w, bin: filepath.Join(ws.Home, "bin")}
	n.env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + ws.Home, "TMPDIR=" + os.TempDir()}
	for _, name := range []string{"undersong", "undersong-hook"} {
		data, err := os.ReadFile(filepath.Join(parts.Dir, "bin", name))
		w.must(err)
		w.must(os.MkdirAll(n.bin, 0o700))
		w.must(os.WriteFile(filepath.Join(n.bin, name), data, 0o700))
	}
	w.desk, w.cwd = ws, w.project(ws)
	return n
}

func (n *newcomer) write(path, text string) {
	n.t.Helper()
	n.must(os.MkdirAll(filepath.Dir(path), 0o700))
	n.must(os.WriteFile(path, []byte(text), 0o600))
}

// run runs a binary of the folder in the repository, and returns all that a
// terminal would show.
func (n *newcomer) run(stdin, name string, args ...string) (string, error) {
	if name == "undersong-hook" { // as the settings call it
		args = append(args, note.HomeFlag, n.desk.State)
	}
	cmd := exec.CommandContext(n.t.Context(), filepath.Join(n.bin, name), args...)
	cmd.Env, cmd.Dir, cmd.Stdin = n.env, n.cwd, strings.NewReader(stdin)
	if name == "undersong-hook" {
		cmd.Env = append(n.env, "CLAUDECODE=1", "CLAUDE_PROJECT_DIR="+n.cwd, "CLAUDE_CODE_ENTRYPOINT=cli", "CLAUDE_PID=1")
	}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// Hook lets a session be played here.
func (n *newcomer) Hook(_ context.Context, _ string, input any, _ ...string) (string, error) {
	data, err := json.Marshal(input)
	if err != nil {
		return "", err
	}
	return n.run(string(data), "undersong-hook") //nolint:contextcheck // it runs in the test's own
}

// says runs a command and looks for words in what it prints. With an error it
// must fail.
func (n *newcomer) says(command string, fails error, words ...string) {
	n.t.Helper()
	out, err := n.run("", "undersong", strings.Fields(command)...)
	n.t.Logf("$ undersong %s\n%s(%v)", command, out, err)
	if (err != nil) != (fails != nil) {
		n.t.Errorf("undersong %s: %v", command, err)
	}
	for _, word := range words {
		if !strings.Contains(out, word) {
			n.t.Errorf("undersong %s does not say %q", command, word)
		}
	}
}

// comesToSay waits until a command says the words.
func (n *newcomer) comesToSay(command string, words ...string) error {
	n.t.Helper()
	var out string
	err := stack.Eventually(n.t.Context(), within, func() error {
		var err error
		out, err = n.run("", "undersong", strings.Fields(command)...)
		for _, word := range words {
			if err == nil && !strings.Contains(out, word) {
				err = fmt.Errorf("undersong %s does not say %q", command, word)
			}
		}
		return err
	})
	n.t.Logf("$ undersong %s\n%s", command, out)
	return err
}

// wire is a network cable to a server, that can be cut.
type wire struct {
	address, to string

	mu       sync.Mutex
	listener net.Listener
	open     []net.Conn
}

// cable lays a cable to a server. It carries until it is cut.
func cable(t *testing.T, to string) *wire {
	t.Helper()
	c := &wire{address: "127.0.0.1:0", to: to}
	c.mend(t)
	t.Cleanup(c.cut)
	return c
}

// mend listens, where it did before.
func (c *wire) mend(t *testing.T) {
	t.Helper()
	var l net.Listener
	err := stack.Eventually(t.Context(), within, func() (err error) {
		l, err = (&net.ListenConfig{}).Listen(t.Context(), "tcp", c.address)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.listener, c.address = l, l.Addr().String()
	go func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			go c.carry(from)
		}
	}()
}

func (c *wire) carry(from net.Conn) {
	to, err := (&net.Dialer{}).Dial("tcp", c.to)
	if err != nil {
		_ = from.Close() // the other end sees it
		return
	}
	c.mu.Lock()
	c.open = append(c.open, from, to)
	c.mu.Unlock()
	go func() {
		_, _ = io.Copy(to, from) // an end that closes ends the other
		_ = to.Close()           // likewise
	}()
	_, _ = io.Copy(from, to) // likewise
	_ = from.Close()         // likewise
}

// cut ends what it carries, and refuses what comes.
func (c *wire) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.listener.Close() // it may be cut already
	for _, conn := range c.open {
		_ = conn.Close() // likewise
	}
	c.open = nil
}

// host is the host and port of a URL.
func host(url string) string {
	_, rest, _ := strings.Cut(url, "://")
	return strings.TrimRight(rest, "/")
}
