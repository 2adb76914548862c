package claude

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The size of a Terminal.
const (
	terminalRows    = 60
	terminalColumns = 160
)

// poll is how often a Terminal is looked at while something is waited for.
const poll = 50 * time.Millisecond

// Terminal is Claude Code in a terminal of its own.
type Terminal struct {
	cmd    *exec.Cmd
	master *os.File
	done   chan struct{}

	mu     sync.Mutex
	screen *screen
}

// OpenTerminal starts a program in a pseudoterminal.
func OpenTerminal(dir string, env []string, program string, args ...string) (*Terminal, error) {
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	fd := int(master.Fd())
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: terminalRows, Col: terminalColumns})
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open a terminal: %w", err), master.Close())
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil, errors.Join(err, master.Close())
	}
	cmd := exec.Command(program, args...) //nolint:noctx // ended by Kill and Close, which say how
	cmd.Dir, cmd.Env = dir, env
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	err = cmd.Start()
	if cerr := slave.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return nil, errors.Join(err, master.Close())
	}
	t := &Terminal{cmd: cmd, master: master, done: make(chan struct{}), screen: newScreen(terminalRows, terminalColumns)}
	go t.read()
	go func() {
		_ = cmd.Wait() // how it ended is the test's own doing
		close(t.done)
	}()
	return t, nil
}

// read shows what comes, and answers what a program may ask a terminal.
func (t *Terminal) read() {
	buffer := make([]byte, 64<<10)
	for {
		n, err := t.master.Read(buffer)
		t.mu.Lock()
		_, _ = t.screen.Write(buffer[:n]) // never fails
		t.mu.Unlock()
		if strings.Contains(string(buffer[:n]), "\x1b[c") {
			_ = t.Type("\x1b[?1;2c") // the program goes on without, only later
		}
		if err != nil {
			return // the program has gone
		}
	}
}

// PID is the process's.
func (t *Terminal) PID() int { return t.cmd.Process.Pid }

// Screen is what stands on the screen.
func (t *Terminal) Screen() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.screen.String()
}

// Type sends keys.
func (t *Terminal) Type(keys string) error {
	_, err := t.master.WriteString(keys)
	return err
}

// Until looks at the screen until a condition holds.
func (t *Terminal) Until(ctx context.Context, within time.Duration, what string, holds func(screen string) bool) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for !holds(t.Screen()) {
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: not within %s; the screen:\n%s", what, within, t.Screen())
		case <-t.done:
			return fmt.Errorf("%s: Claude Code has ended; the screen:\n%s", what, t.Screen())
		case <-tick.C:
		}
	}
	return nil
}

// Gone waits until the program has ended.
func (t *Terminal) Gone(ctx context.Context, within time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	select {
	case <-t.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("Claude Code still runs after %s; the screen:\n%s", within, t.Screen()) //nolint:staticcheck // a name begins it
	}
}

// Signal sends the program a signal.
func (t *Terminal) Signal(s syscall.Signal) error { return t.cmd.Process.Signal(s) }

// Close closes the terminal, as a person closes its window, and kills what does
// not go by itself.
func (t *Terminal) Close() {
	_ = t.master.Close() // a hangup
	select {
	case <-t.done:
	case <-time.After(5 * time.Second): //nolint:forbidigo // a program that does not listen
		_ = t.cmd.Process.Kill() // it may have gone meanwhile
		<-t.done
	}
}
