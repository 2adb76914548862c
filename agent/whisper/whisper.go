package whisper

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
	"github.com/undersong-dev/undersong/agent/internal/object"
)

const (
	// Version is the version of the whisper file.
	Version = 1

	// MaxShown is how often a whisper is shown whose arrival is not seen.
	MaxShown = 3

	// keepDone is how long a whisper that is done is remembered, so that the
	// same one is not put again while a status still holds it.
	keepDone = 7 * 24 * time.Hour

	// maxFile bounds a whisper file, in bytes.
	maxFile = 256 << 10

	// maxWords bounds its text, in bytes.
	maxWords = 64 << 10

	// maxWaiting bounds how many waiting whispers a claim looks at. More of
	// them could not be shown anyway.
	maxWaiting = 64
)

// The folders of a session. A whisper is in one of them.
const (
	waiting = "waiting"
	claimed = "claimed"
	done    = "done"
)

// ErrInvalid is returned for a whisper that cannot be kept.
var ErrInvalid = errors.New("invalid whisper")

// Whisper is one message of a team's memory to a session.
type Whisper struct {
	// Version is 1.
	Version int `json:"version"`

	// ID names the whisper; it is what the daemon looks for in the transcript.
	ID string `json:"id"`

	// Session is the session's id.
	Session string `json:"session"`

	// Project and Memory say where it comes from.
	Project string `json:"project,omitempty"`
	Memory  string `json:"memory,omitempty"`

	// Label is that of the memory block that the text shows, or of which it
	// says what changed. Empty for a message.
	Label string `json:"label,omitempty"`

	// Trust says who stands for the text. Empty means learned.
	Trust string `json:"trust,omitempty"`

	// Value is the whole block as it is with this text: what the agent knows
	// of it once the text has arrived. Empty without a Label.
	Value string `json:"value,omitempty"`

	// Source is what a message came from.
	Source Source `json:"source,omitzero"`

	// Text is for the agent. Empty: only the person is told.
	Text string `json:"text,omitempty"`

	// Notice is one line for the person. Empty: the person is told nothing.
	Notice string `json:"notice,omitempty"`

	// At is when the memory said it. Newer ones are shown first.
	At time.Time `json:"at"`

	// Expires is when it is not worth showing any more. Zero means never.
	Expires time.Time `json:"expires,omitzero"`

	// Shown is how often it was claimed, this time included.
	Shown int `json:"-"`

	// ClaimedAt is when it was claimed last. Claimed fills it.
	ClaimedAt time.Time `json:"-"`
}

// Source says what a message came from. Every field may be empty.
type Source struct {
	// Session is the name of the Session; Workstation, FromSegment and
	// ToSegment name its lines that the agent was given.
	Session     string `json:"session,omitempty"`
	Workstation string `json:"workstation,omitempty"`
	FromSegment int64  `json:"fromSegment,omitempty"`
	ToSegment   int64  `json:"toSegment,omitempty"`

	// Agent and Conversation are Letta's, Revision that of the memory.
	Agent        string `json:"agent,omitempty"`
	Conversation string `json:"conversation,omitempty"`
	Revision     string `json:"revision,omitempty"`
}

// message reports whether the memory said it, as against what a block shows
// and what the person alone is told.
func (w Whisper) message() bool { return w.Text != "" && w.Label == "" }

func (w Whisper) expired(now time.Time) bool { return !w.Expires.IsZero() && !now.Before(w.Expires) }

// Put stores a whisper, durably. One that is waiting, claimed or done already
// is not stored again.
func Put(home string, w Whisper) error {
	if w.Text == "" && w.Notice == "" {
		return fmt.Errorf("put whisper without words: %w", ErrInvalid)
	}
	if err := store(home, w, durable.MkdirAll, durable.WriteFile); err != nil {
		return fmt.Errorf("put whisper: %w", err)
	}
	return nil
}

// putAttempts bounds how often the folders of a session are made again that a
// sweep took for empty at the same moment.
const putAttempts = 3

// store puts a whisper among those that wait, unless it is known.
func store(home string, w Whisper, mkdir func(string) error, write func(string, []byte) error) error {
	dir, err := sessionDir(home, w.Session)
	if err != nil {
		return err
	}
	name, err := fileName(w.At, 0, w.ID)
	if err != nil {
		return err
	}
	data, err := format(w)
	if err != nil {
		return err
	}
	for range putAttempts {
		var known bool
		if known, err = ready(dir, w.ID, mkdir); known {
			return nil
		}
		if err == nil && w.message() {
			err = provide(dir)
		}
		if err == nil {
			err = write(filepath.Join(dir, waiting, name), data)
		}
		if !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	return err
}

// ready makes the folders of a session, and reports whether a whisper is in one
// of them.
func ready(dir, id string, mkdir func(string) error) (known bool, err error) {
	// In the order in which hooks move a whisper, so that none slips by.
	for _, state := range []string{waiting, claimed, done} {
		if err := mkdir(filepath.Join(dir, state)); err != nil {
			return false, err
		}
		names, err := find(filepath.Join(dir, state), id)
		if err != nil || len(names) > 0 {
			return err == nil, err
		}
	}
	return false, nil
}

// format returns the content of a whisper's file.
func format(w Whisper) ([]byte, error) {
	w.Version = Version
	data, err := json.Marshal(w)
	if err != nil {
		return nil, fmt.Errorf("format whisper: %w", err)
	}
	if len(data) > maxFile || len(w.Text) >= maxWords {
		return nil, fmt.Errorf("put whisper of %d bytes: %w", len(data), ErrInvalid)
	}
	return data, nil
}

// Claimed returns the whispers that were printed and not seen to arrive,
// oldest first.
func Claimed(home, session string) ([]Whisper, error) {
	dir, err := sessionDir(home, session)
	if err != nil {
		return nil, fmt.Errorf("list claimed whispers: %w", err)
	}
	names, err := list(filepath.Join(dir, claimed))
	if err != nil {
		return nil, fmt.Errorf("list claimed whispers: %w", err)
	}
	var out []Whisper
	for _, name := range names {
		path := filepath.Join(dir, claimed, name)
		w, err := read(path, session)
		if err != nil {
			// Nobody can show it again; the status that it came from can.
			if err := durable.Remove(path); err != nil {
				return out, err
			}
			continue
		}
		info, err := os.Stat(path)
		if err != nil {
			continue // moved since
		}
		w.Shown++
		w.ClaimedAt = info.ModTime()
		out = append(out, w)
	}
	return out, nil
}

// Unheard returns the whispers that wait or were printed and not seen to arrive.
func Unheard(home, session string) ([]Whisper, error) {
	dir, err := sessionDir(home, session)
	if err != nil {
		return nil, fmt.Errorf("list whispers: %w", err)
	}
	var out []Whisper
	for _, state := range []string{waiting, claimed} {
		names, err := list(filepath.Join(dir, state))
		if err != nil {
			return out, fmt.Errorf("list whispers: %w", err)
		}
		for _, name := range names {
			if w, err := read(filepath.Join(dir, state, name), session); err == nil {
				out = append(out, w)
			}
		}
	}
	return out, nil
}

// Delivered says that a whisper's id was read in the transcript. One that is
// unknown or done is success.
func Delivered(home, session, id string) error {
	dir, err := sessionDir(home, session)
	if err != nil {
		return fmt.Errorf("mark whisper delivered: %w", err)
	}
	// It may wait again: the transcript was read after Return.
	for _, state := range []string{claimed, waiting} {
		if err := move(dir, state, done, id, nil); err != nil {
			return fmt.Errorf("mark whisper delivered: %w", err)
		}
	}
	return nil
}

// Return says that a claimed whisper did not arrive. It waits again, unless it
// was shown three times or has expired; then it is done. One that is not
// claimed is success.
func Return(home, session, id string, now time.Time) error {
	dir, err := sessionDir(home, session)
	if err != nil {
		return fmt.Errorf("return whisper: %w", err)
	}
	giveUp := func(name string) bool {
		w, err := read(filepath.Join(dir, claimed, name), session)
		return err != nil || w.Shown+1 >= MaxShown || w.expired(now)
	}
	if err := move(dir, claimed, done, id, giveUp); err != nil {
		return fmt.Errorf("return whisper: %w", err)
	}
	if err := move(dir, claimed, waiting, id, nil); err != nil {
		return fmt.Errorf("return whisper: %w", err)
	}
	// It was not heard, so it keeps no other one back.
	if err := release(dir); err != nil {
		return fmt.Errorf("return whisper: %w", err)
	}
	return nil
}

// Withdraw takes a whisper back, wherever it is: it is not shown any more. One
// that is unknown is success.
func Withdraw(home, session, id string) error {
	dir, err := sessionDir(home, session)
	if err != nil {
		return fmt.Errorf("withdraw whisper: %w", err)
	}
	for _, state := range []string{waiting, claimed} {
		if err := move(dir, state, done, id, nil); err != nil {
			return fmt.Errorf("withdraw whisper: %w", err)
		}
	}
	return nil
}

// move renames the files of an id, those that a condition holds for. On the way
// back to waiting the count in the name grows, so that both change at once.
func move(dir, from, to, id string, where func(name string) bool) error {
	names, err := find(filepath.Join(dir, from), id)
	if err != nil {
		return err
	}
	for _, name := range names {
		if where != nil && !where(name) {
			continue
		}
		next := name
		if to == waiting {
			parts := parse(name)
			next = nameOf(parts.at, parts.shown+1, parts.id)
		}
		err := durable.Rename(filepath.Join(dir, from, name), filepath.Join(dir, to, next))
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // a hook was faster
			return err
		}
	}
	return nil
}

// Sweep forgets what was claimed or done a week ago, what has expired waiting,
// sessions without whispers, starts of a week ago, and what was known of
// folders and projects that are out of use. The daemon calls it now and then, and not while
// it puts.
func Sweep(home string, now time.Time) error {
	sessions, err := os.ReadDir(filepath.Join(home, rootDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("sweep whispers: %w", err)
	}
	var errs []error
	for _, s := range sessions {
		if s.IsDir() {
			errs = append(errs, sweep(filepath.Join(home, rootDir, s.Name()), now))
		}
	}
	errs = append(errs, sweepFolder(filepath.Join(home, startsDir), now, keepDone))
	for _, dir := range []string{placeDir, memoryDir, briefDir} {
		errs = append(errs, sweepFolder(filepath.Join(home, recallDir, dir), now, keepRecall))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("sweep whispers: %w", err)
	}
	return nil
}

// sweepFolder removes the files of a folder that are older than that.
func sweepFolder(dir string, now time.Time, keep time.Duration) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var errs []error
	for _, e := range entries {
		errs = append(errs, removeOlder(filepath.Join(dir, e.Name()), now, keep))
	}
	return errors.Join(errs...)
}

func sweep(dir string, now time.Time) error {
	errs := []error{durable.RemoveTemps(filepath.Join(dir, waiting))}
	for _, state := range []string{waiting, claimed, done} {
		names, err := list(filepath.Join(dir, state))
		errs = append(errs, err)
		for _, name := range names {
			errs = append(errs, sweepFile(dir, state, name, now))
		}
	}
	// A session that has a whisper needs all of its folders.
	for _, state := range []string{waiting, claimed, done} {
		entries, err := os.ReadDir(filepath.Join(dir, state))
		if len(entries) > 0 || err != nil && !errors.Is(err, fs.ErrNotExist) {
			return errors.Join(append(errs, err)...)
		}
	}
	for _, state := range []string{waiting, claimed, done, holdFile, freeFile, "."} {
		errs = append(errs, durable.Remove(filepath.Join(dir, state)))
	}
	return errors.Join(errs...)
}

func sweepFile(dir, state, name string, now time.Time) error {
	path := filepath.Join(dir, state, name)
	if state == waiting {
		w, err := decode(path)
		switch {
		case errors.Is(err, fs.ErrNotExist): // a hook was faster
			return nil
		case err != nil:
			return durable.Remove(path)
		case w.expired(now):
			// Remembered like the others: the status may still hold it.
			err := durable.Rename(path, filepath.Join(dir, done, name))
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			return err
		}
		return nil
	}
	return removeOlder(path, now, keepDone)
}

// removeOlder removes a file that nobody has touched for so long.
func removeOlder(path string, now time.Time, keep time.Duration) error {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // a hook was faster
	}
	if err != nil || now.Sub(info.ModTime()) <= keep {
		return err
	}
	return durable.Remove(path)
}

const rootDir = "whispers"

// sessionDir returns the folder of a session.
func sessionDir(home, session string) (string, error) {
	name, err := durable.SafeName(session)
	if err != nil {
		return "", fmt.Errorf("session id: %w", err)
	}
	return filepath.Join(home, rootDir, name), nil
}

// A file is named <time>-<times shown before>-<id>.json: a list of names is in
// the order of time, and a rename changes folder and count together.
type parts struct {
	at    string
	shown int
	id    string // as SafeName has it
}

const suffix = ".json"

func fileName(at time.Time, shown int, id string) (string, error) {
	safe, err := durable.SafeName(id)
	if err != nil {
		return "", fmt.Errorf("whisper id: %w", err)
	}
	return nameOf(fmt.Sprintf("%020d", max(at.UnixNano(), 0)), shown, safe), nil
}

func nameOf(at string, shown int, safe string) string {
	return at + "-" + strconv.Itoa(min(shown, MaxShown)) + "-" + safe + suffix
}

// parse takes a name apart. What is no name of ours has no id.
func parse(name string) parts {
	rest, isFile := strings.CutSuffix(name, suffix)
	at, rest, hasCount := strings.Cut(rest, "-")
	count, id, hasID := strings.Cut(rest, "-")
	shown, err := strconv.Atoi(count)
	if !isFile || !hasCount || !hasID || len(at) != 20 || err != nil || shown < 0 {
		return parts{}
	}
	return parts{at: at, shown: shown, id: id}
}

// list returns the names of whispers in a folder, oldest first. An absent
// folder has none.
func list(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var names []string
	for _, e := range entries {
		if parse(e.Name()).id != "" {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	return names, err
}

// find returns the names of an id's files in a folder.
func find(dir, id string) ([]string, error) {
	safe, err := durable.SafeName(id)
	if err != nil {
		return nil, fmt.Errorf("whisper id: %w", err)
	}
	names, err := list(dir)
	return slices.DeleteFunc(names, func(name string) bool { return parse(name).id != safe }), err
}

// read returns the whisper in a file. Shown is what the name says: how often
// it was shown before.
func read(path, session string) (Whisper, error) {
	w, err := decode(path)
	if err != nil {
		return Whisper{}, err
	}
	name := parse(filepath.Base(path))
	safe, err := durable.SafeName(w.ID)
	if err != nil || safe != name.id || w.Session != session {
		return Whisper{}, fmt.Errorf("read whisper of another name: %w", ErrInvalid)
	}
	w.Shown = name.shown
	return w, nil
}

// parseFile reads what format writes.
func parseFile(data []byte) (Whisper, error) {
	o, err := object.Parse(data)
	if err != nil {
		return Whisper{}, err
	}
	source := o.Object("source")
	w := Whisper{
		Version: int(o.Int("version")),
		ID:      o.String("id"),
		Session: o.String("session"),
		Project: o.String("project"),
		Memory:  o.String("memory"),
		Label:   o.String("label"),
		Trust:   o.String("trust"),
		Value:   o.String("value"),
		Source: Source{
			Session:      source.String("session"),
			Workstation:  source.String("workstation"),
			FromSegment:  source.Int("fromSegment"),
			ToSegment:    source.Int("toSegment"),
			Agent:        source.String("agent"),
			Conversation: source.String("conversation"),
			Revision:     source.String("revision"),
		},
		Text:    o.String("text"),
		Notice:  o.String("notice"),
		At:      o.Time("at"),
		Expires: o.Time("expires"),
	}
	return w, o.Err()
}

func decode(path string) (Whisper, error) {
	data, err := durable.ReadFile(path, maxFile)
	if err != nil {
		return Whisper{}, err
	}
	w, err := parseFile(data)
	if err != nil {
		return Whisper{}, fmt.Errorf("parse whisper: %w", err)
	}
	if w.Version < 1 || w.Version > Version {
		return Whisper{}, fmt.Errorf("read whisper of version %d: %w", w.Version, ErrInvalid)
	}
	return w, nil
}
