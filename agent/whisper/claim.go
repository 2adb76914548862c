package whisper

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const (
	// DefaultChars is the limit of what a claim prints, in UTF-16 units.
	DefaultChars = 4000

	// MaxChars is what Claude Code gives to the model; it replaces longer
	// output by a preview.
	MaxChars = 10000

	// maxNotices bounds what the person sees at once, in UTF-16 units.
	maxNotices = 1000
)

// Limit bounds a claim.
type Limit struct {
	// Chars is the most UTF-16 units of text. 0 means DefaultChars; more than
	// MaxChars means MaxChars.
	Chars int

	// TextOnly leaves those waiting that have a notice and no text.
	TextOnly bool

	// NoticesOnly leaves those waiting that have a text: the team shows
	// nothing of its memory now.
	NoticesOnly bool
}

// Claim takes what waits for a session, newest first, as far as it fits, and
// returns the text for the agent, the lines for the person, and the whispers in
// both. Nothing waits: all are empty. What does not fit stays and is counted in
// the text; of the newest one alone, a part is shown. Of several claims at
// once, each whisper goes to one.
func Claim(home, session string, now time.Time, limit Limit) (text, notices string, got []Whisper, err error) {
	dir, err := sessionDir(home, session)
	if err != nil {
		return "", "", nil, fmt.Errorf("claim whispers: %w", err)
	}
	found, err := candidates(dir, session, now, limit)
	if err != nil {
		return "", "", nil, fmt.Errorf("claim whispers: %w", err)
	}
	chars := limit.Chars
	if chars <= 0 {
		chars = DefaultChars
	}
	page, told := newPage(min(chars, MaxChars)), newLines(maxNotices)
	if len(found) > 1 {
		page.left -= moreReserve
	}
	more := 0
	for _, c := range found {
		if c.Text == "" && !told.fits(c.Notice) {
			continue // has no other way to be shown, so it waits
		}
		element, fits := page.element(c.Whisper, now)
		if !fits {
			more++
			continue
		}
		to := claimed
		if c.Text == "" {
			to = done
		}
		if !take(dir, c.name, to, now) {
			continue // another hook prints it
		}
		page.add(element)
		told.add(c.Notice)
		c.Shown++
		got = append(got, c.Whisper)
	}
	if len(got) == 0 {
		return "", "", nil, nil
	}
	if more > 0 {
		page.more(more)
	}
	return page.String(), told.String(), got, nil
}

// candidate is a whisper that waits, with the name of its file.
type candidate struct {
	Whisper
	name string
}

// candidates returns what could be shown now, newest first. Whispers that
// expired while waiting, and files that cannot be read, are put away.
func candidates(dir, session string, now time.Time, limit Limit) ([]candidate, error) {
	names, err := list(filepath.Join(dir, waiting))
	if err != nil {
		return nil, err
	}
	slices.Reverse(names)
	var out []candidate
	for _, name := range names[:min(len(names), maxWaiting)] {
		path := filepath.Join(dir, waiting, name)
		w, err := read(path, session)
		switch {
		case errors.Is(err, fs.ErrNotExist): // another hook took it
		case err != nil:
			_ = os.Remove(path) // the status that it came from can bring it again
		case w.expired(now):
			take(dir, name, done, now)
		case limit.TextOnly && w.Text == "", limit.NoticesOnly && w.Text != "":
		default:
			out = append(out, candidate{Whisper: w, name: name})
		}
	}
	return out, nil
}

// take moves a waiting whisper and reports whether this process did. It does
// not sync: after a power loss the whisper waits again.
func take(dir, name, to string, now time.Time) bool {
	from := filepath.Join(dir, waiting, name)
	// Before the rename, so that a claimed file never has an older time.
	_ = os.Chtimes(from, now, now) // another hook may have taken it; the rename tells
	return os.Rename(from, filepath.Join(dir, to, name)) == nil
}

// lines collects what the person sees.
type lines struct {
	lines []string
	left  int // UTF-16 units, a line end after each line included
}

func newLines(limit int) *lines { return &lines{left: limit + 1} }

func (l *lines) fits(line string) bool { return len(l.lines) == 0 || units(line) < l.left }

func (l *lines) add(line string) {
	if line = plainLine(line, l.left-1); line != "" {
		l.lines = append(l.lines, line)
		l.left -= units(line) + 1
	}
}

func (l *lines) String() string { return strings.Join(l.lines, "\n") }
