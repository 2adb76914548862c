package durable

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
)

// tempPrefix starts the name of every temporary file. SafeName never returns
// a name with a dot, so that no file of ours looks like one.
const tempPrefix = ".tmp-"

// ErrTooLarge is returned by a bounded read of a file beyond its bound.
var ErrTooLarge = errors.New("file is too large")

// Op names one operation on the disk.
type Op string

// The operations, in the order in which WriteFile makes them, then the others.
const (
	OpCreate  Op = "create"
	OpWrite   Op = "write"
	OpSync    Op = "sync"
	OpClose   Op = "close"
	OpRename  Op = "rename"
	OpSyncDir Op = "syncdir"
	OpRemove  Op = "remove"
	OpMkdir   Op = "mkdir"
)

// FS makes the operations of this package. The zero value is the real thing;
// the functions of the package use it.
type FS struct {
	// Before is asked before each operation. An error stops it, and is what
	// the caller gets: a test that keeps returning one from the n-th on sees
	// the disk as a crash there leaves it. Nil asks nobody.
	Before func(op Op, name string) error
}

// WriteFile replaces the file by data, mode 0600. The directory must exist.
func WriteFile(name string, data []byte) error { return FS{}.WriteFile(name, data) }

// WriteFileFrom is WriteFile for what does not fit in memory: write writes it.
func WriteFileFrom(name string, write func(io.Writer) error) error {
	return FS{}.WriteFileFrom(name, write)
}

// WriteFileIn is WriteFile for a slash-separated name below root. A symbolic
// link in the name that leads out of root is an error; one in the place of the
// file itself is replaced, not followed.
func WriteFileIn(root *os.Root, name string, data []byte) error {
	return FS{}.WriteFileIn(root, name, data)
}

// Rename moves a file, within one file system, and syncs both directories. A
// file of the new name is replaced.
func Rename(from, to string) error { return FS{}.Rename(from, to) }

// Remove removes a file or an empty directory. An absent one is success.
func Remove(name string) error { return FS{}.Remove(name) }

// MkdirAll makes a directory and its parents, mode 0700. Those that exist keep
// their mode.
func MkdirAll(dir string) error { return FS{}.MkdirAll(dir) }

// WriteFile is the method behind the function of this name.
func (f FS) WriteFile(name string, data []byte) error {
	return f.WriteFileFrom(name, all(data))
}

// all writes data.
func all(data []byte) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	}
}

// WriteFileFrom is the method behind the function of this name.
func (f FS) WriteFileFrom(name string, write func(io.Writer) error) error {
	root, err := os.OpenRoot(filepath.Dir(name))
	if err != nil {
		return fmt.Errorf("open directory: %w", err)
	}
	defer func() { _ = root.Close() }() // nothing was written through it
	return f.writeIn(root, filepath.Base(name), write)
}

// WriteFileIn is the method behind the function of this name.
func (f FS) WriteFileIn(root *os.Root, name string, data []byte) error {
	return f.writeIn(root, name, all(data))
}

func (f FS) writeIn(root *os.Root, name string, write func(io.Writer) error) error {
	dir := path.Dir(name)
	temp, file, err := f.createTemp(root, dir)
	if err != nil {
		return err
	}
	if err := f.fill(file, temp, write); err != nil {
		// After a real failure, a full disk above all, the temporary file must
		// not take the space that the next attempt needs.
		return errors.Join(err, f.drop(root, temp))
	}
	err = f.do(OpRename, name, func() error { return root.Rename(temp, name) })
	if err != nil {
		return errors.Join(fmt.Errorf("replace file: %w", err), f.drop(root, temp))
	}
	return f.syncDir(root, dir)
}

// createTemp makes an empty file beside the one to be replaced.
func (f FS) createTemp(root *os.Root, dir string) (string, *os.File, error) {
	var file *os.File
	for range 100 {
		name := path.Join(dir, tempPrefix+strconv.FormatUint(rand.Uint64(), 36)) //nolint:gosec // only has to be new; O_EXCL decides
		err := f.do(OpCreate, name, func() (err error) {
			file, err = root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
			return err
		})
		if err == nil {
			return name, file, nil
		}
		if !errors.Is(err, fs.ErrExist) {
			return "", nil, fmt.Errorf("create temporary file: %w", err)
		}
	}
	return "", nil, errors.New("create temporary file: every name is taken")
}

// fill writes, syncs and closes the temporary file.
func (f FS) fill(file *os.File, name string, write func(io.Writer) error) error {
	err := f.do(OpWrite, name, func() error { return write(file) })
	if err == nil {
		err = f.do(OpSync, name, file.Sync)
		if errors.Is(err, syscall.ENOTSUP) {
			err = nil // some network file systems cannot; the rename is what is left
		}
	}
	if cerr := f.do(OpClose, name, file.Close); err == nil {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("write temporary file: %w", err)
	}
	return nil
}

// drop removes a temporary file that is not needed any more.
func (f FS) drop(root *os.Root, name string) error {
	err := f.do(OpRemove, name, func() error { return root.Remove(name) })
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Rename is the method behind the function of this name.
func (f FS) Rename(from, to string) error {
	if err := f.do(OpRename, to, func() error { return os.Rename(from, to) }); err != nil {
		return fmt.Errorf("rename file: %w", err)
	}
	if err := f.syncDirAt(filepath.Dir(to)); err != nil {
		return err
	}
	if filepath.Dir(from) == filepath.Dir(to) {
		return nil
	}
	return f.syncDirAt(filepath.Dir(from))
}

// Remove is the method behind the function of this name.
func (f FS) Remove(name string) error {
	err := f.do(OpRemove, name, func() error { return os.Remove(name) })
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove file: %w", err)
	}
	return f.syncDirAt(filepath.Dir(name))
}

// MkdirAll is the method behind the function of this name.
func (f FS) MkdirAll(dir string) error {
	info, err := os.Stat(dir)
	switch {
	case err == nil && info.IsDir():
		return nil
	case err == nil:
		return fmt.Errorf("make directory: %w", &fs.PathError{Op: "mkdir", Path: dir, Err: syscall.ENOTDIR})
	case !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("make directory: %w", err)
	}
	parent := filepath.Dir(dir)
	if parent == dir { // a root that does not exist: a missing drive
		return fmt.Errorf("make directory: %w", err)
	}
	if err := f.MkdirAll(parent); err != nil {
		return err
	}
	err = f.do(OpMkdir, dir, func() error { return os.Mkdir(dir, 0o700) })
	if err != nil && !errors.Is(err, fs.ErrExist) { // another process was faster
		return fmt.Errorf("make directory: %w", err)
	}
	return f.syncDirAt(parent)
}

// syncDirAt is syncDir for a directory by its path.
func (f FS) syncDirAt(dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("sync directory: %w", err)
	}
	defer func() { _ = root.Close() }() // nothing was written through it
	return f.syncDir(root, ".")
}

// syncDir makes names in a directory durable. Windows has no such call, and
// writes names through with its journal.
func (f FS) syncDir(root *os.Root, dir string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	err := f.do(OpSyncDir, dir, func() error {
		d, err := root.Open(dir)
		if err != nil {
			return err
		}
		return errors.Join(d.Sync(), d.Close())
	})
	// File systems that cannot sync a directory say so in these ways.
	if err == nil || errors.Is(err, syscall.ENOTSUP) || errors.Is(err, syscall.EINVAL) {
		return nil
	}
	return fmt.Errorf("sync directory: %w", err)
}

// do makes one operation, unless a test stops it.
func (f FS) do(op Op, name string, run func() error) error {
	if f.Before != nil {
		if err := f.Before(op, name); err != nil {
			return err
		}
	}
	return run()
}

// IsTemp reports whether a name, without its directory, is that of a temporary
// file. Whoever lists a directory leaves these out.
func IsTemp(name string) bool { return strings.HasPrefix(name, tempPrefix) }

// TempName returns the name, without its directory, under which a file is
// written before it is renamed, for those who write without sync.
func TempName(base string) string { return tempPrefix + base }

// RemoveTemps removes what a crash left of earlier writes in one directory.
// Only the single writer of the directory may call it, and not while it
// writes. An absent directory is success.
func RemoveTemps(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("list directory: %w", err)
	}
	var errs []error
	for _, e := range entries {
		if !IsTemp(e.Name()) {
			continue
		}
		// Without sync: what comes back after a power loss is removed again.
		if err := os.Remove(filepath.Join(dir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("remove temporary file: %w", err))
		}
	}
	return errors.Join(errs...)
}

// Create makes an empty file, mode 0600, and returns fs.ErrExist when there is
// one. It does not sync.
func Create(name string) error {
	file, err := Open(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	return file.Close()
}

// readFirst is how much is read at first, in bytes: most of our files whole.
const readFirst = 4 << 10

// ReadFile returns a file's content, or ErrTooLarge when it has more than
// limit bytes, of which it then reads no more.
func ReadFile(name string, limit int64) ([]byte, error) {
	file, err := Open(name, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	return readAll(file, limit)
}

// ReadFileIn is ReadFile for a name below root. A symbolic link that leads out
// of root is an error.
func ReadFileIn(root *os.Root, name string, limit int64) ([]byte, error) {
	file, err := root.Open(name)
	if err != nil {
		return nil, err
	}
	return readAll(file, limit)
}

func readAll(file *os.File, limit int64) ([]byte, error) {
	defer func() { _ = file.Close() }() // only read
	data := bytes.NewBuffer(make([]byte, 0, readFirst))
	if _, err := data.ReadFrom(io.LimitReader(file, limit+1)); err != nil {
		return nil, err
	}
	if int64(data.Len()) > limit {
		return nil, ErrTooLarge
	}
	return data.Bytes(), nil
}
