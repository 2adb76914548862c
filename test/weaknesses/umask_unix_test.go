//go:build unix

package weaknesses

import (
	"syscall"
	"testing"
)

// withoutUmask lets files have the mode that they are made with.
func withoutUmask(t *testing.T) {
	t.Helper()
	old := syscall.Umask(0)
	t.Cleanup(func() { syscall.Umask(old) })
}
