//go:build unix

package hook

import (
	"errors"
	"os"
	"syscall"

	"github.com/undersong-dev/undersong/agent/internal/durable"
)

// locked reports whether another process holds the lock. A shared lock is
// enough to ask: hooks do not get in each other's way with it.
func locked(name string) bool {
	file, err := durable.Open(name, os.O_RDONLY, 0)
	if err != nil {
		return false // no daemon has run here yet
	}
	defer func() { _ = file.Close() }() // lets go of the lock, too
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_SH|syscall.LOCK_NB)
	return errors.Is(err, syscall.EWOULDBLOCK)
}

// detached puts the daemon into a session of its own, so that it does not end
// with the agent's terminal.
func detached() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }
