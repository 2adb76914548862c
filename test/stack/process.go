package stack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// stopWithin is how long a process may take to stop before it is killed.
const stopWithin = 20 * time.Second

// Process is one of our binaries at work.
type Process struct {
	// Name is the binary's.
	Name string

	cmd  *exec.Cmd
	done chan struct{}
	err  error
	logs io.Closer
}

// start runs a binary with its output in a file, in a process group of its
// own, so that Ctrl-C reaches only the one that cleans up.
func start(name, logfile, path string, env []string, args ...string) (*Process, error) {
	logs, err := os.OpenFile(logfile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(path, args...) //nolint:noctx // stopped by Stop and Kill, which say how
	cmd.Env = env
	cmd.Stdout, cmd.Stderr = logs, logs
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", name, err), logs.Close())
	}
	p := &Process{Name: name, cmd: cmd, done: make(chan struct{}), logs: logs}
	go func() {
		p.err = cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// PID is the process's id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Exited is closed once the process has ended.
func (p *Process) Exited() <-chan struct{} { return p.done }

// Kill kills the process as kill -9 does, and waits until it is gone.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // it may be gone already
	<-p.done
	_ = p.logs.Close() // nothing writes any more
}

// Stop asks the process to stop and kills it if it does not.
func (p *Process) Stop() error {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may be gone already
	ctx, cancel := context.WithTimeout(context.Background(), stopWithin)
	defer cancel()
	select {
	case <-p.done:
		_ = p.logs.Close() // nothing writes any more
		return nil
	case <-ctx.Done():
		p.Kill()
		return fmt.Errorf("stop %s: it did not stop within %s and was killed", p.Name, stopWithin)
	}
}
