//go:build unix

package durable

import (
	"io/fs"
	"os"
	"syscall"
)

// Ours reports whether a file belongs to the user of this process. In a folder
// that all may write to, a file of the right name may be anybody's.
func Ours(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == os.Geteuid()
}

// Links returns how many names a file has.
func Links(info fs.FileInfo) uint64 {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(stat.Nlink) //nolint:unconvert // its type differs between systems
	}
	return 1
}
