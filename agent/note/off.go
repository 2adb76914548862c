package note

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/undersong-dev/undersong/agent/internal/durable"
)

const (
	// offDir has a folder for each session that was switched off at some time.
	offDir = "off"

	// openOff, in it, is there while the session is off. When it is on again
	// the file is renamed to the size of the transcript, a dash and the time.
	openOff = "open"

	// maxOff bounds such a file, in bytes.
	maxOff = 16 << 10

	// keepOff is how long a folder is kept of which nobody took anything, and
	// whose transcript is gone.
	keepOff = 90 * 24 * time.Hour
)

// Off is a time in which a session was switched off: no hook left a note.
type Off struct {
	// Version is 1.
	Version int `json:"version"`

	// Transcript is where the session's transcript was, From its size when the
	// time began, Since when that was.
	Transcript string    `json:"transcript"`
	From       int64     `json:"from"`
	Since      time.Time `json:"since"`

	// To is the transcript's size when the time ended, Until when that was. A
	// zero Until: it goes on.
	To    int64     `json:"-"`
	Until time.Time `json:"-"`

	// Name is that of the file, for DropOff.
	Name string `json:"-"`
}

// offOf is the folder of a session, whose id is one in whatever case.
func offOf(home, session string) string {
	return filepath.Join(home, offDir, strings.ToLower(session))
}

// IsOff says whether a session is marked as switched off, in one system call.
func IsOff(home, session string) bool {
	_, err := os.Lstat(filepath.Join(offOf(home, session), openOff))
	return err == nil
}

// BeginOff marks a session as switched off. The first call of a time counts. It
// does not sync, like Write.
func BeginOff(home, session, transcript string, now time.Time) error {
	data, err := json.Marshal(Off{Version: Version, Transcript: transcript, From: sizeOf(transcript), Since: now})
	if err != nil {
		return fmt.Errorf("mark session off: %w", err)
	}
	if len(data) > maxOff {
		return fmt.Errorf("mark session off: %w", durable.ErrTooLarge)
	}
	dir := offOf(home, session)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("mark session off: %w", err)
	}
	// Whole from the first moment, and never in the place of an earlier one.
	temp := filepath.Join(dir, durable.TempName(openOff))
	if err := os.WriteFile(temp, data, 0o600); err != nil {
		_ = os.Remove(temp) // the first error says what is wrong
		return fmt.Errorf("mark session off: %w", err)
	}
	err = os.Link(temp, filepath.Join(dir, openOff))
	if err == nil || errors.Is(err, fs.ErrExist) {
		_ = os.Remove(temp) // swept later
		return nil
	}
	if err := os.Rename(temp, filepath.Join(dir, openOff)); err != nil { // no links here
		return fmt.Errorf("mark session off: %w", err)
	}
	return nil
}

// EndOff notes that a session is on again. Where it was never off that is one
// system call.
func EndOff(home, session, transcript string, now time.Time) error {
	if !IsOff(home, session) {
		return nil
	}
	dir := offOf(home, session)
	name := strconv.FormatInt(sizeOf(transcript), 10) + "-" + strconv.FormatInt(now.UnixNano(), 10)
	err := os.Rename(filepath.Join(dir, openOff), filepath.Join(dir, name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // a parallel hook was first
		return fmt.Errorf("mark session on: %w", err)
	}
	return nil
}

func sizeOf(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0 // it is not there yet
	}
	return info.Size()
}

// Offs returns the times in which a session was off and that DropOff did not
// drop. A mark that cannot be read is one that began with the transcript.
func Offs(home, session string) ([]Off, error) {
	dir := offOf(home, session)
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list times off: %w", err)
	}
	var list []Off
	for _, e := range entries {
		if durable.IsTemp(e.Name()) {
			continue
		}
		off := Off{Name: e.Name()}
		if data, err := durable.ReadFile(filepath.Join(dir, e.Name()), maxOff); err == nil {
			if json.Unmarshal(data, &off) != nil {
				off = Off{Name: e.Name()}
			}
		} else if errors.Is(err, fs.ErrNotExist) {
			return Offs(home, session) // it ended just now
		}
		off.Name = e.Name()
		if size, nanos, ended := strings.Cut(e.Name(), "-"); ended {
			to, err1 := strconv.ParseInt(size, 10, 64)
			at, err2 := strconv.ParseInt(nanos, 10, 64)
			if err1 != nil || err2 != nil {
				continue // not ours
			}
			off.To, off.Until = to, time.Unix(0, at).UTC()
		} else if e.Name() != openOff {
			continue
		}
		list = append(list, off)
	}
	return list, nil
}

// DropOff drops a time that ended: it is known elsewhere.
func DropOff(home, session, name string) error {
	if name == openOff || name != filepath.Base(name) || !ValidSession(session) {
		return fmt.Errorf("drop time off: %w", durable.ErrName)
	}
	dir := offOf(home, session)
	if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("drop time off: %w", err)
	}
	_ = os.Remove(dir) // it is empty, or a new time began
	return nil
}

// sweepOff forgets sessions that were switched off long ago and of which nothing
// is left. As long as there is a transcript, somebody may bring in history.
func sweepOff(home string, now time.Time) error {
	entries, err := os.ReadDir(filepath.Join(home, offDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var errs []error
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || now.Sub(info.ModTime()) < keepOff {
			continue
		}
		offs, err := Offs(home, e.Name())
		there := func(off Off) bool { _, err := os.Stat(off.Transcript); return err == nil }
		if err != nil || slices.ContainsFunc(offs, there) {
			continue
		}
		errs = append(errs, os.RemoveAll(filepath.Join(home, offDir, e.Name())))
	}
	return errors.Join(errs...)
}
