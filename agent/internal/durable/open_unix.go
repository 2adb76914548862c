//go:build unix

package durable

import (
	"errors"
	"os"
	"syscall"
)

// Open opens a small file of ours for a process that ends at once. os.OpenFile
// first asks the system to be told when the file can be read, which for a
// regular file it refuses: six more calls, as much as a hook's whole reading.
func Open(name string, flag int, perm os.FileMode) (*os.File, error) {
	for {
		fd, err := syscall.Open(name, flag|syscall.O_CLOEXEC, uint32(perm.Perm()))
		switch {
		case err == nil:
			return os.NewFile(uintptr(fd), name), nil
		case !errors.Is(err, syscall.EINTR):
			return nil, &os.PathError{Op: "open", Path: name, Err: err}
		}
	}
}
