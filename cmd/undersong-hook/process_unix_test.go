//go:build unix

package main_test

import (
	"os"
	"syscall"
)

// lock takes the daemon's lock as the daemon does, and returns how to let go.
func lock(name string) (func(), error) {
	file, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = file.Close()
		return nil, err
	}
	return func() { _ = file.Close() }, nil
}

// sessionLeader reports whether this process began a session of its own.
func sessionLeader() bool {
	sid, _, errno := syscall.Syscall(syscall.SYS_GETSID, 0, 0, 0)
	return errno == 0 && int(sid) == os.Getpid()
}
