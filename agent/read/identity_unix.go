//go:build unix

package read

import (
	"io/fs"
	"syscall"
)

// identity returns the device and inode of a file.
func identity(info fs.FileInfo) (dev, inode uint64) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0
	}
	return uint64(st.Dev), st.Ino //nolint:unconvert // its type differs between systems
}
