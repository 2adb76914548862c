package hook

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/undersong-dev/undersong/agent/internal/durable"
	"github.com/undersong-dev/undersong/agent/note"
)

// onceDir holds an empty file for each prompt and tool call that was answered.
const onceDir = "once"

// keepOnce is how long these are kept. Two hooks for one event start together.
const keepOnce = time.Hour

// first reports whether no other call has this event. The same hook in the
// user's settings and in a plugin fires twice for each. The other events have
// no id of their own (a prompt's id is in two Stops when the first one was
// refused), and twice the same note there does no harm.
func (h call) first() bool {
	id := ""
	switch h.event {
	case UserPromptSubmit:
		id = h.promptID
	case PreToolUse:
		id = h.toolUseID
	}
	if id == "" {
		return true
	}
	name, err := durable.SafeName(h.session + " " + h.event + " " + id)
	if err != nil {
		return true
	}
	path := filepath.Join(h.home, onceDir, name)
	err = createNew(path)
	if errors.Is(err, fs.ErrNotExist) { // the first one ever
		_ = os.Mkdir(filepath.Dir(path), 0o700) // another call may have; the next error tells
		err = createNew(path)
	}
	return !errors.Is(err, fs.ErrExist)
}

// createNew makes an empty file, and fails when there is one.
func createNew(path string) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) //nolint:gosec // the name is ours
	if err != nil {
		return err
	}
	return file.Close()
}

// Sweep removes what hooks leave behind: the marks of calls older than an hour,
// and notes that a kill left half written. The daemon calls it now and then.
func Sweep(home string, now time.Time) error {
	err := errors.Join(
		sweep(filepath.Join(home, onceDir), now, func(string) bool { return true }),
		sweep(note.Dir(home), now, durable.IsTemp),
	)
	if err != nil {
		return fmt.Errorf("sweep after hooks: %w", err)
	}
	return nil
}

// sweep removes old files of some names.
func sweep(dir string, now time.Time, which func(name string) bool) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, e := range entries {
		if !which(e.Name()) {
			continue
		}
		info, err := e.Info()
		if err != nil || now.Sub(info.ModTime()) < keepOnce {
			continue // gone, or young
		}
		errs = append(errs, os.Remove(filepath.Join(dir, e.Name())))
	}
	return errors.Join(errs...)
}
