package hook

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/undersong-dev/undersong/agent/internal/durable"
	"github.com/undersong-dev/undersong/agent/note"
)

// onceDir has a folder for each span of time, and in it a file for each prompt
// and tool call that was answered then.
const onceDir = "once"

// markFile, in onceDir, is what these files are links to: making a file can
// cost as much as starting the process.
const markFile = "mark"

// onceSpan is that span. Two hooks for one event start together, so this span
// and the one before are all that is looked at.
const onceSpan = 10 * time.Minute

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
	dir := filepath.Join(h.home, onceDir)
	if _, err := os.Lstat(filepath.Join(dir, span(h.at.Add(-onceSpan)), name)); err == nil {
		return false
	}
	return !errors.Is(h.mark(filepath.Join(dir, span(h.at), name)), fs.ErrExist)
}

// mark makes a file, or returns fs.ErrExist where there is one.
func (h call) mark(path string) error {
	mark := filepath.Join(h.home, onceDir, markFile)
	err := os.Link(mark, path)
	if !errors.Is(err, fs.ErrNotExist) {
		if err == nil || errors.Is(err, fs.ErrExist) {
			return err
		}
		return durable.Create(path) // no links here, or no more of them
	}
	// The first one of this span, or ever. Where no daemon can start, nobody
	// else removes the older ones.
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	if err := sweepOnce(h.home, h.at); err != nil {
		h.log("sweep marks", err)
	}
	if err := durable.Create(mark); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return durable.Create(path)
}

// span names the span of time that a moment is in.
func span(at time.Time) string {
	return strconv.FormatInt(at.Unix()/int64(onceSpan/time.Second), 10)
}

// Sweep removes what hooks leave behind and nobody needs any more. The daemon
// calls it now and then.
func Sweep(home string, now time.Time) error {
	if err := errors.Join(note.Sweep(home, now), sweepOnce(home, now)); err != nil {
		return fmt.Errorf("sweep after hooks: %w", err)
	}
	return nil
}

// sweepOnce removes the marks of spans that nobody looks at any more.
func sweepOnce(home string, now time.Time) error {
	var errs []error
	dir := filepath.Join(home, onceDir)
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		errs = append(errs, err)
	}
	keep := []string{markFile, span(now), span(now.Add(-onceSpan))}
	for _, e := range entries {
		if !slices.Contains(keep, e.Name()) {
			errs = append(errs, os.RemoveAll(filepath.Join(dir, e.Name())))
		}
	}
	return errors.Join(errs...)
}
