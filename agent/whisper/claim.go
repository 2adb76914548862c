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

	"github.com/undersong-dev/undersong/agent/internal/durable"
	"github.com/undersong-dev/undersong/agent/note"
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

// Pace is the number of prompts of which at most one shows a message: a memory
// that speaks at every prompt is not listened to.
const Pace = 3

const (
	// holdFile, in a session's folder, is there from the claim of a message on.
	// Its size is the number of prompts since.
	holdFile = "hold"

	// freeFile is what it is called while nothing is held back. To rename a file
	// costs a hook less than to make one, which can take as long as starting it.
	freeFile = "free"
)

// Limit bounds a claim.
type Limit struct {
	// Chars is the most UTF-16 units of text. 0 means DefaultChars; more than
	// MaxChars means MaxChars.
	Chars int

	// TextOnly leaves those waiting that have a notice and no text.
	TextOnly bool

	// Mode leaves those waiting that it does not show. Empty shows all.
	Mode note.Recall

	// Wish narrows Mode. It is asked only when something waits; nil does not.
	Wish func() note.Recall
}

func (l Limit) mode() note.Recall {
	if l.Wish == nil {
		return note.Narrow(l.Mode)
	}
	return note.Narrow(l.Mode, l.Wish())
}

func (l Limit) shows(mode note.Recall, w Whisper) bool {
	switch {
	case w.Text == "":
		return !l.TextOnly
	case w.Label != "":
		return mode.Shows(w.Label)
	}
	return mode != note.RecallOff
}

// Prompted says that a person has typed a prompt: it counts towards the pace.
func Prompted(home, session string) error {
	dir, err := sessionDir(home, session)
	if err != nil {
		return fmt.Errorf("count prompt: %w", err)
	}
	hold := filepath.Join(dir, holdFile)
	info, err := os.Stat(hold)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil // nothing is held back
	case err == nil && info.Size() < Pace-1:
		err = count(hold)
	case err == nil:
		err = release(dir)
	}
	if err != nil {
		return fmt.Errorf("count prompt: %w", err)
	}
	return nil
}

// count notes one prompt more.
func count(hold string) error {
	file, err := durable.Open(hold, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	_, err = file.Write([]byte{'.'})
	return errors.Join(err, file.Close())
}

// release lets the next message be shown. Where nothing is held back that is
// success.
func release(dir string) error {
	hold := filepath.Join(dir, holdFile)
	err := os.Truncate(hold, 0)
	if err == nil {
		err = os.Rename(hold, filepath.Join(dir, freeFile))
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// provide leaves a session's folder the file that a claim renames, unless it
// has it. A hook that holds a message back at this very moment makes a second
// one: then one message is shown sooner than it should.
func provide(dir string) error {
	for _, name := range []string{holdFile, freeFile} {
		if _, err := os.Lstat(filepath.Join(dir, name)); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return durable.Create(filepath.Join(dir, freeFile))
}

// Claim takes what waits for a session, as far as it fits, and returns the text
// for the agent, the lines for the person, and the whispers in both: blocks
// first, then one message if the pace allows it, the newest first. Nothing
// waits: all are empty. What does not fit stays and is counted in the text; of
// the first one alone, a part is shown. Of several claims at once, each whisper
// goes to one.
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
	c := &claim{dir: dir, now: now, page: newPage(min(chars, MaxChars)), told: newLines(maxNotices)}
	if len(found) > 1 {
		c.page.left -= moreReserve
	}
	for _, w := range found {
		c.one(w)
	}
	if len(c.got) == 0 {
		return "", "", nil, nil
	}
	if c.more > 0 && len(c.page.parts) > 0 {
		c.page.more(c.more)
	}
	return c.page.String(), c.told.String(), c.got, nil
}

// claim is one call of Claim.
type claim struct {
	dir   string
	now   time.Time
	page  *page
	told  *lines
	got   []Whisper
	more  int  // texts that stay
	spoke bool // a message is among those taken
}

// one takes one whisper, if it fits and no other hook does.
func (c *claim) one(w candidate) {
	if w.Text == "" && !c.told.fits(w.Notice) {
		return // has no other way to be shown, so it waits
	}
	element, fits := c.page.element(w.Whisper, c.now)
	if !fits || w.message() && !c.turn() {
		c.more++
		return
	}
	to := claimed
	if w.Text == "" {
		to = done
	}
	if !take(c.dir, w.name, to, c.now) {
		if w.message() {
			_ = release(c.dir) // else the next one waits for some prompts
		}
		return // another hook prints it
	}
	c.spoke = c.spoke || w.message()
	c.page.add(element)
	c.told.add(w.Notice)
	w.Shown++
	c.got = append(c.got, w.Whisper)
}

// turn reports whether a message may be shown now, and holds back the next
// ones. Of several hooks, one gets true.
func (c *claim) turn() bool {
	if c.spoke {
		return false
	}
	hold := filepath.Join(c.dir, holdFile)
	err := os.Rename(filepath.Join(c.dir, freeFile), hold)
	if errors.Is(err, fs.ErrNotExist) {
		err = durable.Create(hold) // another hook was first, or there is none yet
	}
	return err == nil
}

// candidate is a whisper that waits, with the name of its file.
type candidate struct {
	Whisper
	name string
}

// candidates returns what could be shown now: messages last, the newest first
// among each. Whispers that
// expired while waiting, and files that cannot be read, are put away.
func candidates(dir, session string, now time.Time, limit Limit) ([]candidate, error) {
	names, err := list(filepath.Join(dir, waiting))
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return nil, nil
	}
	mode := limit.mode()
	slices.Reverse(names)
	var out, messages []candidate
	for _, name := range names[:min(len(names), maxWaiting)] {
		path := filepath.Join(dir, waiting, name)
		w, err := read(path, session)
		switch {
		case errors.Is(err, fs.ErrNotExist): // another hook took it
		case err != nil:
			_ = os.Remove(path) // the status that it came from can bring it again
		case w.expired(now):
			take(dir, name, done, now)
		case !limit.shows(mode, w):
		case w.message():
			messages = append(messages, candidate{Whisper: w, name: name})
		default:
			out = append(out, candidate{Whisper: w, name: name})
		}
	}
	return append(out, messages...), nil
}

// take moves a waiting whisper and reports whether this process did. It does
// not sync: after a power loss the whisper waits again.
func take(dir, name, to string, now time.Time) bool {
	from := filepath.Join(dir, waiting, name)
	// Before the rename, so that a claimed file never has an older time.
	_ = os.Chtimes(from, now, now) // another hook may have taken it; the rename tells
	return os.Rename(from, filepath.Join(dir, to, name)) == nil
}

// lines collects what the person sees, which is one line.
type lines struct {
	lines []string
	left  int // UTF-16 units, between after each part included
}

// between stands between two notices; speaker begins them, and is said once.
const (
	between = "; "
	speaker = "undersong: "
)

func newLines(limit int) *lines { return &lines{left: limit + len(between)} }

func (l *lines) fits(line string) bool {
	return len(l.lines) == 0 || units(line) <= l.left-len(between)
}

func (l *lines) add(line string) {
	if len(l.lines) > 0 {
		line = strings.TrimPrefix(line, speaker)
	}
	line = plainLine(line, l.left-len(between))
	if line != "" && !slices.Contains(l.lines, line) {
		l.lines = append(l.lines, line)
		l.left -= units(line) + len(between)
	}
}

func (l *lines) String() string { return strings.Join(l.lines, between) }
