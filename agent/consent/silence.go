package consent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gofrs/flock"

	"github.com/undersong-dev/undersong/agent/internal/durable"
)

// Reasons of silences. The whole team sees them beside withheld ranges.
const (
	ReasonPaused    = "paused"
	ReasonPrivate   = "private"
	ReasonOff       = "off"
	ReasonForgotten = "forgotten"

	// ReasonUninstalled is that of the time between uninstall and the next init.
	ReasonUninstalled = "uninstalled"
)

const (
	silenceFile    = "silence.json"
	silenceLock    = "silence.lock"
	silenceVersion = 1

	// maxSilences bounds the file, in bytes: an open silence of every session has
	// the size of every transcript.
	maxSilences = 64 << 20

	// heedSilence is how long a silence that ended is heeded when what is said
	// now is read: transcripts are kept, by default, for 30 days, and a copy of
	// one may come late. It is kept for ever, for who brings in history.
	heedSilence = 90 * 24 * time.Hour

	// lockPatience is how long another process is waited for.
	lockPatience = 5 * time.Second
)

// ErrSilences: what was paused is not known, so nothing may be read.
var ErrSilences = errors.New("silence.json, which says what was paused, cannot be read: repair or remove it; without it undersong does not know what you wanted to keep private")

// errTooMany: the file would be larger than what is read of it.
var errTooMany = fmt.Errorf("record what is not to be heard: silence.json would grow over %d MiB: end what is over first (undersong resume, undersong resume --session); nothing was changed", maxSilences>>20)

// Silence is a time in which nothing may be heard, of one session or of all.
type Silence struct {
	// Reason is one of the reasons of silences.
	Reason string `json:"reason"`

	// Session is the session meant. Empty means every one.
	Session string `json:"session,omitempty"`

	// Root is the working tree meant. Empty means wherever it was said.
	Root string `json:"root,omitempty"`

	// Since is when it began, Until when it ended or is to end. A zero Until
	// means that somebody will end it.
	Since time.Time `json:"since"`
	Until time.Time `json:"until,omitzero"`

	// ByClock says that Until was set in advance.
	ByClock bool `json:"byClock,omitempty"`

	// Projects is the folder below which transcripts were looked for.
	Projects string `json:"projects,omitempty"`

	// Sizes are those of all transcripts when it began, by path; of one session's,
	// those that can be its own. They are there until the end was measured; a file
	// that is not among them was not there.
	Sizes map[string]int64 `json:"sizes,omitempty"`

	// Ranges are, after the end, the bytes that were written within.
	Ranges map[string]Range `json:"ranges,omitempty"`

	// Measured says that Ranges holds.
	Measured bool `json:"measured,omitempty"`

	// Gone is when no transcript of the session was found any more.
	Gone time.Time `json:"gone,omitzero"`
}

// own returns what of all transcripts the silence keeps: of a silence of one
// session not the others'.
func (s *Silence) own(sizes map[string]int64) map[string]int64 {
	if s.Session == "" {
		return maps.Clone(sizes)
	}
	own := map[string]int64{}
	for path, size := range sizes {
		if can, _ := belongs(path, s.Session); can {
			own[path] = size
		}
	}
	return own
}

// belongs says, by its name, whether a transcript can be a session's, and whether
// it must be. An older Claude Code put the files of subagents beside those of
// sessions, without the session's id in their names.
func belongs(path, session string) (can, must bool) {
	base := strings.ToLower(filepath.Base(path))
	if base == strings.ToLower(session)+".jsonl" {
		return true, true
	}
	folders := strings.Split(strings.ToLower(filepath.ToSlash(filepath.Dir(path))), "/")
	if slices.Contains(folders, strings.ToLower(session)) {
		return true, true
	}
	return strings.HasPrefix(base, "agent-") && !slices.Contains(folders, "subagents"), false
}

// Range is a run of bytes of a file: from From to before To.
type Range struct {
	From int64 `json:"from"`
	To   int64 `json:"to"`
}

// Open says whether the silence goes on.
func (s *Silence) Open(now time.Time) bool { return s.Until.IsZero() || now.Before(s.Until) }

// Bytes returns what of a file was written within the silence, as far as the
// silence measured it. open: the end is not known yet. A file that was moved is
// known by its name, which is the session's or the subagent's id.
func (s *Silence) Bytes(path string) (r Range, open, ok bool) {
	if s.Measured {
		r, ok = lookUp(s.Ranges, path)
		return r, false, ok
	}
	from, _ := lookUp(s.Sizes, path)
	return Range{From: from}, true, true
}

// Measures says whether the size of a file was known when the silence began.
func (s *Silence) Measures(path string) bool {
	_, ok := lookUp(s.Sizes, path)
	return ok
}

func lookUp[V any](byPath map[string]V, path string) (V, bool) {
	if v, ok := byPath[path]; ok {
		return v, true
	}
	base := filepath.Base(path)
	for other, v := range byPath {
		if filepath.Base(other) == base {
			return v, true
		}
	}
	var none V
	return none, false
}

// close ends the silence with the sizes of now.
func (s *Silence) close(sizes map[string]int64) {
	s.Ranges = map[string]Range{}
	for path, size := range s.own(sizes) {
		from, _ := lookUp(s.Sizes, path)
		if size < from {
			from = 0 // another file took the place
		}
		if size > from {
			s.Ranges[path] = Range{From: from, To: size}
		}
	}
	s.Sizes, s.Measured = nil, true
}

// Silences are all that are known, oldest first.
type Silences struct {
	Version int       `json:"version"`
	List    []Silence `json:"silences"`
}

// Measure returns the size of every transcript that is known now. projects is
// the folder to look in.
type Measure func(projects string) (map[string]int64, error)

// LoadSilences reads what UpdateSilences wrote. None is no error, ErrSilences
// is.
func LoadSilences(home string) (*Silences, error) {
	data, err := durable.ReadFile(filepath.Join(home, silenceFile), maxSilences)
	if errors.Is(err, fs.ErrNotExist) {
		return &Silences{Version: silenceVersion}, nil
	}
	if err != nil {
		return nil, ErrSilences
	}
	var s Silences
	if err := json.Unmarshal(data, &s); err != nil || s.Version != silenceVersion {
		return nil, ErrSilences
	}
	return &s, nil
}

// UpdateSilences changes what is known in one durable step, and measures what
// ended by the clock. A change that changes nothing writes nothing.
func UpdateSilences(ctx context.Context, home string, now time.Time, measure Measure, change func(*Silences) error) error {
	lock := flock.New(filepath.Join(home, silenceLock), flock.SetPermissions(0o600))
	within, cancel := context.WithTimeout(ctx, lockPatience)
	defer cancel()
	if taken, err := lock.TryLockContext(within, lockPatience/100); !taken {
		return fmt.Errorf("record what is not to be heard: %w", errors.Join(err, errors.New("another process holds the lock")))
	}
	defer func() { _ = lock.Unlock() }() // the system does it otherwise
	s, err := LoadSilences(home)
	if err != nil {
		return err
	}
	before, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("record what is not to be heard: %w", err)
	}
	if err := s.expire(now, measure); err != nil {
		return err
	}
	if err := change(s); err != nil {
		return err
	}
	after, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("record what is not to be heard: %w", err)
	}
	if string(after) == string(before) {
		return nil
	}
	if len(after) > maxSilences {
		return errTooMany // it could not be read again
	}
	if err := durable.WriteFile(filepath.Join(home, silenceFile), after); err != nil {
		return fmt.Errorf("record what is not to be heard: %w", err)
	}
	return nil
}

// Due says whether a silence ended by the clock and was not measured.
func (s *Silences) Due(now time.Time) bool {
	return slices.ContainsFunc(s.List, func(one Silence) bool { return !one.Measured && !one.Open(now) })
}

// Old says that a silence ended so long ago that nothing which is written now can
// be of it.
func (s *Silence) Old(now time.Time) bool {
	return s.Measured && !s.Until.IsZero() && now.Sub(s.Until) > heedSilence
}

// expire measures what ended by the clock.
func (s *Silences) expire(now time.Time, measure Measure) error {
	for i := range s.List {
		one := &s.List[i]
		if one.Measured || one.Open(now) {
			continue
		}
		sizes, err := measure(one.Projects)
		if err != nil {
			return err
		}
		one.close(sizes)
	}
	s.look(now, measure)
	s.List = slices.DeleteFunc(s.List, func(one Silence) bool {
		return !one.Gone.IsZero() && now.Sub(one.Gone) > heedSilence
	})
	return nil
}

// look notes of which private sessions, of those that are old, there is no
// transcript any more.
func (s *Silences) look(now time.Time, measure Measure) {
	found := map[string]map[string]int64{} // by the folder of transcripts
	for i := range s.List {
		one := &s.List[i]
		if one.Session == "" || !one.Until.IsZero() || now.Sub(one.Since) <= heedSilence {
			continue
		}
		sizes, looked := found[one.Projects]
		if !looked {
			var err error
			if sizes, err = measure(one.Projects); err != nil {
				continue // then nobody knows
			}
			found[one.Projects] = sizes
		}
		there := false
		for path := range sizes {
			_, must := belongs(path, one.Session)
			there = there || must
		}
		switch {
		case there:
			one.Gone = time.Time{}
		case one.Gone.IsZero():
			one.Gone = now.UTC()
		}
	}
}

// Begin adds a silence that begins now, unless one of its kind goes on: then
// only its end is set anew. until is zero for one that somebody will end.
func (s *Silences) Begin(reason, session, projects string, now, until time.Time, sizes map[string]int64) {
	if one := s.Current(reason, session, now); one != nil {
		one.Until, one.ByClock = until, !until.IsZero()
		return
	}
	one := Silence{
		Reason: reason, Session: session, Since: now.UTC(), Until: until.UTC(), ByClock: !until.IsZero(), Projects: projects,
	}
	one.Sizes = one.own(sizes)
	s.List = append(s.List, one)
}

// End ends, now, the silences of a kind that go on. It says how many.
func (s *Silences) End(reason, session string, now time.Time, sizes map[string]int64) int {
	n := 0
	for i := range s.List {
		one := &s.List[i]
		if one.Reason == reason && one.Session == session && one.Open(now) {
			one.Until, one.ByClock = now.UTC(), false
			one.close(sizes)
			n++
		}
	}
	return n
}

// Add adds a silence that is over, unless it is known.
func (s *Silences) Add(one Silence) {
	known := slices.ContainsFunc(s.List, func(other Silence) bool {
		return other.Reason == one.Reason && other.Session == one.Session && other.Root == one.Root && other.Since.Equal(one.Since) &&
			other.Until.Equal(one.Until) && maps.Equal(other.Ranges, one.Ranges)
	})
	if !known {
		s.List = append(s.List, one)
	}
}

// Current returns the silence of a kind that goes on, nil if none does.
func (s *Silences) Current(reason, session string, now time.Time) *Silence {
	for i := range s.List {
		if one := &s.List[i]; one.Reason == reason && one.Session == session && one.Open(now) {
			return one
		}
	}
	return nil
}

// SilenceStamp tells whether the file was replaced.
func SilenceStamp(home string) os.FileInfo {
	info, err := os.Stat(filepath.Join(home, silenceFile))
	if err != nil {
		return nil
	}
	return info
}

// SameStamp reports whether two stamps are of one state of the file.
func SameStamp(a, b os.FileInfo) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size()
}
