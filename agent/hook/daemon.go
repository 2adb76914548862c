package hook

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/undersong-dev/undersong/agent/internal/durable"
	"github.com/undersong-dev/undersong/agent/note"
)

// LockFile names the file, in the state directory, that the daemon holds locked
// while it runs.
const LockFile = "daemon.lock"

const (
	// startFile has the time of the last attempt to start the daemon.
	startFile = "daemon.start"

	// startEvery is the least time between two attempts, so that a daemon that
	// cannot run does not cost every hook a process.
	startEvery = 2 * time.Second
)

var errDaemonPath = errors.New("path of the daemon is not absolute")

// Wake starts the daemon of a state directory unless one runs, as a hook does,
// for a command that stopped it: however short ago somebody tried.
func Wake(home string, config note.Config, now time.Time) error {
	if err := os.Remove(filepath.Join(home, startFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("mark attempt: %w", err)
	}
	return call{home: home, config: config, at: now}.wakeDaemon()
}

// wakeDaemon starts the daemon unless one runs, and does not wait for it.
// Two hooks may both start one: the lock decides. While a hook looks, it holds
// the lock itself for some microseconds; the daemon tries more than once.
func (h call) wakeDaemon() error {
	if locked(filepath.Join(h.home, LockFile)) {
		return nil
	}
	mark := filepath.Join(h.home, startFile)
	info, err := os.Stat(mark)
	if err == nil {
		// A time to come is that of a clock that was set back.
		if since := h.at.Sub(info.ModTime()); since >= 0 && since < startEvery {
			return nil
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = durable.Create(mark)
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("mark attempt: %w", err)
	}
	if err := os.Chtimes(mark, h.at, h.at); err != nil {
		return fmt.Errorf("mark attempt: %w", err)
	}
	return h.startDaemon()
}

// startDaemon starts the daemon on its own: in a session of its own, with
// nothing of ours open, since Claude Code waits for whoever holds its pipes, in
// the state directory and with the environment that init recorded. Of the
// hook's environment, which holds tokens and what a repository's settings put
// there, it gets nothing but where the state directory is.
func (h call) startDaemon() error {
	if !filepath.IsAbs(h.config.Daemon) {
		return errDaemonPath
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("open null device: %w", err)
	}
	defer func() { _ = null.Close() }() // the daemon has its own
	process, err := os.StartProcess(h.config.Daemon, []string{h.config.Daemon, "daemon", "run"}, &os.ProcAttr{
		Dir:   h.home,
		Env:   daemonEnv(h.config, h.home),
		Files: []*os.File{null, null, null},
		Sys:   detached(),
	})
	if err != nil {
		return fmt.Errorf("start process: %w", err)
	}
	if err := process.Release(); err != nil {
		return fmt.Errorf("release process: %w", err)
	}
	return nil
}

func daemonEnv(config note.Config, home string) []string {
	env := []string{note.HomeVariable + "=" + home}
	for name, value := range config.Env {
		if name != note.HomeVariable {
			env = append(env, name+"="+value)
		}
	}
	slices.Sort(env)
	return env
}
