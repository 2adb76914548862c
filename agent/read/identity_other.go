//go:build !unix

package read

import "io/fs"

// identity knows nothing here: the signature of the bytes tells files apart.
func identity(fs.FileInfo) (dev, inode uint64) { return 0, 0 }
