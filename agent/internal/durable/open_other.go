//go:build !unix

package durable

import "os"

// Open opens a small file of ours for a process that ends at once.
func Open(name string, flag int, perm os.FileMode) (*os.File, error) {
	return os.OpenFile(name, flag, perm) //nolint:gosec // callers build the name
}
