package note

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/undersong-dev/undersong/agent/internal/durable"
)

const (
	// spareDir has empty files that the daemon made, for hooks to take. To make
	// one can take a busy disk as long as a hook needs to start; to rename one
	// takes a tenth of that.
	spareDir = "spare"

	// spares is how many there are. A session's first seconds need three.
	spares = 16

	// spareTries is how many names a hook tries before it makes a file.
	spareTries = 4
)

// Provide makes the spare files that are not there. The daemon calls it when
// hooks may have taken some.
func Provide(home string) error {
	if err := durable.MkdirAll(filepath.Join(home, spareDir)); err != nil {
		return fmt.Errorf("make spare files: %w", err)
	}
	for i := range spares {
		name := spareName(home, i)
		info, err := os.Lstat(name)
		if err == nil && info.Mode().IsRegular() && info.Size() == 0 {
			continue
		}
		if err == nil {
			err = os.RemoveAll(name) // not one of ours
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("make spare files: %w", err)
		}
		if err := durable.Create(name); err != nil {
			return fmt.Errorf("make spare files: %w", err)
		}
	}
	return nil
}

func spareName(home string, i int) string {
	return filepath.Join(home, spareDir, strconv.Itoa(i%spares))
}

// WriteFile replaces a file of the state directory, for a hook: whole from the
// first moment, but not synced, and where there is a spare file without making
// one. The folder must exist.
func WriteFile(home, name string, data []byte) error {
	temp := filepath.Join(filepath.Dir(name), durable.TempName(strconv.Itoa(os.Getpid())+"-"+filepath.Base(name)))
	file, err := newFile(home, temp)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(temp, name)
	}
	if err != nil {
		_ = os.Remove(temp) // the first error says what is wrong
	}
	return err
}

// newFile opens an empty file of that name, which nothing has yet.
func newFile(home, name string) (*os.File, error) {
	for i := range spareTries {
		err := os.Rename(spareName(home, os.Getpid()+i), name)
		if err == nil {
			return durable.Open(name, os.O_WRONLY, 0)
		}
		if !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	return durable.Open(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
}
