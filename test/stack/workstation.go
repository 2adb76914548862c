package stack

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/undersong-dev/undersong/agent/note"
)

// startWithin bounds the start of a daemon on a busy machine.
const startWithin = 30 * time.Second

// Workstation is one machine of one user: a home folder, a state directory, a
// kubeconfig and our binaries.
type Workstation struct {
	// User is the person, Name the machine.
	User, Name string
	// Home is the person's home, State undersong's state directory.
	Home, State string
	// Env is added to the environment of all our programs, as the person's own
	// shell has it. HookEnv is added to that of the hook alone.
	Env, HookEnv []string

	stack *Stack
	team  *Team
	env   []string
}

// Workstation makes a workstation of a member of the team. Init configures it.
func (s *Stack) Workstation(team *Team, user, name string) (*Workstation, error) {
	file, err := s.Cluster.Kubeconfig(s.Cluster.User(user), team.Namespace)
	if err != nil {
		return nil, err
	}
	return s.WorkstationWith(team, user, name, file)
}

// WorkstationWith makes a workstation whose user has this kubeconfig.
func (s *Stack) WorkstationWith(team *Team, user, name string, kubeconfig []byte) (*Workstation, error) {
	home := s.path(filepath.Join("workstations", team.Namespace, name))
	w := &Workstation{User: user, Name: name, Home: home, State: filepath.Join(home, "state"), stack: s, team: team}
	w.env = append(basicEnv(home), "UNDERSONG_HOME="+w.State, "CLAUDE_CONFIG_DIR="+w.ClaudeDir())
	for _, dir := range []string{home, w.ClaudeDir()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
	}
	if err := os.WriteFile(w.Kubeconfig(), kubeconfig, 0o600); err != nil {
		return nil, err
	}
	s.daemons = append(s.daemons, w)
	return w, nil
}

// Kubeconfig is the person's kubeconfig.
func (w *Workstation) Kubeconfig() string { return filepath.Join(w.Home, "kubeconfig") }

// ClaudeDir is Claude Code's configuration folder.
func (w *Workstation) ClaudeDir() string { return filepath.Join(w.Home, ".claude") }

// Init runs undersong init, with flags added.
func (w *Workstation) Init(ctx context.Context, flags ...string) error {
	_, err := w.Run(ctx, append([]string{"init", "--kubeconfig", w.Kubeconfig(), "--namespace", w.team.Namespace, "--memory", w.team.Memory, "--yes", "--no-probe"}, flags...)...)
	return err
}

// Run runs the undersong command and returns what it printed.
func (w *Workstation) Run(ctx context.Context, args ...string) (string, error) {
	return w.RunIn(ctx, w.Home, args...)
}

// RunIn is Run in a folder.
func (w *Workstation) RunIn(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(w.stack.bin, "undersong"), args...)
	cmd.Env = slices.Concat(w.env, w.Env)
	cmd.Dir = dir
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("undersong %s: %w: %s", args[0], err, strings.TrimSpace(errs.String()))
	}
	return out.String(), nil
}

// Hook runs the hook as Claude Code does: JSON on stdin, the working directory
// of the shell, an environment of its own. It returns what the hook printed,
// and fails if the hook said anything on stderr or did not exit 0.
func (w *Workstation) Hook(ctx context.Context, cwd string, input any, env ...string) (string, error) {
	data, err := json.Marshal(input)
	if err != nil {
		return "", err
	}
	return w.HookRaw(ctx, cwd, string(data), env...)
}

// HookRaw runs the hook with any stdin. The process that it is told of is one
// that no session started, which a test's own may be.
func (w *Workstation) HookRaw(ctx context.Context, cwd, stdin string, env ...string) (string, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(w.stack.bin, "undersong-hook"), note.HomeFlag, w.State)
	cmd.Env = slices.Concat(w.env, w.Env, []string{
		"CLAUDECODE=1", "CLAUDE_PROJECT_DIR=" + cwd, "CLAUDE_CODE_ENTRYPOINT=cli",
		"CLAUDE_CODE_MESSAGING_TOKEN=token-of-the-harness", "CLAUDE_PID=1",
	}, env, w.HookEnv)
	cmd.Dir = cwd
	cmd.Stdin = strings.NewReader(stdin)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("hook: %w: %s", err, errs.String())
	}
	if errs.Len() > 0 {
		return out.String(), fmt.Errorf("hook: it wrote to stderr: %s", errs.String())
	}
	return out.String(), nil
}

// StartDaemon starts the daemon by hand, with env added, and returns once it
// is the workstation's daemon. Usually the hook starts one; that one would find
// the place taken.
func (w *Workstation) StartDaemon(env ...string) (*Process, error) {
	p, err := start("undersong daemon", filepath.Join(w.Home, "daemon.out"), filepath.Join(w.stack.bin, "undersong"), slices.Concat(w.env, w.Env, env), "daemon", "run")
	if err != nil {
		return nil, err
	}
	err = Eventually(context.Background(), startWithin, func() error {
		select {
		case <-p.Exited():
			return nil // a test may have told it to die at once
		default:
		}
		if w.DaemonPID() != p.cmd.Process.Pid {
			return errors.New("the daemon is not in its place")
		}
		return nil
	})
	if err != nil {
		p.Kill()
		return nil, err
	}
	return p, nil
}

// DaemonPID is the pid of the running daemon, 0 if there is none.
func (w *Workstation) DaemonPID() int {
	data, err := os.ReadFile(filepath.Join(w.State, "daemon.json"))
	if err != nil {
		return 0
	}
	var d struct {
		PID int `json:"pid"`
	}
	if json.Unmarshal(data, &d) != nil || d.PID <= 0 || syscall.Kill(d.PID, 0) != nil {
		return 0
	}
	// The pid may be somebody else's by now: it is ours if it says so.
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", d.PID))
	if err == nil && !bytes.Contains(line, []byte("daemon")) {
		return 0
	}
	return d.PID
}

// KillDaemon kills the daemon as kill -9 does.
func (w *Workstation) KillDaemon() {
	if pid := w.DaemonPID(); pid > 0 {
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may have gone meanwhile
		w.waitGone(pid)
		// A hook lets two seconds pass between two attempts to start one.
		_ = os.Remove(filepath.Join(w.State, "daemon.start")) // then the next hook but one does
	}
}

// StopDaemon asks the daemon to stop, and kills it if it does not.
func (w *Workstation) StopDaemon() {
	pid := w.DaemonPID()
	if pid == 0 {
		return
	}
	_ = syscall.Kill(pid, syscall.SIGTERM) // it may have gone meanwhile
	if !w.waitGone(pid) {
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may have gone meanwhile
	}
}

// waitGone waits for a process that is not our child.
func (w *Workstation) waitGone(pid int) bool {
	err := Eventually(context.Background(), 10*time.Second, func() error {
		if syscall.Kill(pid, 0) == nil && !zombie(pid) {
			return errors.New("it still runs")
		}
		return nil
	})
	return err == nil
}

// zombie reports whether a process is dead and not yet collected.
func zombie(pid int) bool {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	i := bytes.LastIndexByte(data, ')')
	return i >= 0 && len(data) > i+2 && data[i+2] == 'Z'
}

// Project makes a checkout with a git remote in the person's home, and returns
// its folder.
func (w *Workstation) Project(name, remote string) (string, error) {
	dir := filepath.Join(w.Home, "src", name)
	git := filepath.Join(dir, ".git")
	if err := os.MkdirAll(git, 0o700); err != nil {
		return "", err
	}
	config := "[core]\n\trepositoryformatversion = 0\n[remote \"origin\"]\n\turl = " + remote + "\n"
	return dir, errors.Join(
		os.WriteFile(filepath.Join(git, "config"), []byte(config), 0o600),
		os.WriteFile(filepath.Join(git, "HEAD"), []byte("ref: refs/heads/main\n"), 0o600),
	)
}

// Eventually calls f until it returns nil or the time is up, and returns its
// last error.
func Eventually(ctx context.Context, within time.Duration, f func() error) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := f()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("after %s: %w", within, err)
		case <-tick.C:
		}
	}
}
