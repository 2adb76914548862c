package spool

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/undersong-dev/undersong/agent/internal/durable"
	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/internal/segment"
)

// DefaultLimit is the default of Options.Limit: 2 GiB.
const DefaultLimit = 2 << 30

// maxState bounds state.json. 64 segments, some hundred subagents and their
// withheld ranges need far less.
const maxState = 64 << 20

var (
	// ErrSessionID is returned for a session id that no Session can have.
	ErrSessionID = errors.New("the session id has other characters than lower case letters, digits and dashes, or is too long")
	// ErrFull is returned by Append when the spool has reached its limit.
	ErrFull = errors.New("the spool has reached its size limit: what is read waits until the object store and the cluster take more")
	// ErrBehind is returned by Append when the session has MaxSegments that are
	// not verified.
	ErrBehind = errors.New("too many segments of the session wait for verification")
	// ErrMoved is returned by Append when the session began anew while this was
	// read; it is read again.
	ErrMoved = errors.New("the session began anew while its transcript was read")
	// ErrDamaged is returned for a session whose state.json cannot be read.
	// Nothing but a person, or undersong reset, can mend it.
	ErrDamaged = errors.New("the local state of the session is damaged")
)

var sessionID = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,52}[a-z0-9])?$`)

// Options says where a spool is and whose.
type Options struct {
	Dir         string // the folder sessions of the state directory
	Owner       string // user name as the API server knows it
	Workstation string // name of the Workstation
	Limit       int64  // of all segment files, in bytes; 0 means DefaultLimit
	FS          durable.FS
}

// Spool is the set of sessions of one state directory. One process at a time
// may open it.
type Spool struct {
	options Options
	bytes   atomic.Int64 // of all segment files

	mu       sync.Mutex
	sessions map[string]*Session
	damaged  []string // ids
}

// Open reads every session's state, and removes what a crash left: temporary
// files, and segment files that no state names. A session whose state cannot be
// read is left as it is, and named by Damaged.
func Open(o Options) (*Spool, error) {
	if o.Limit == 0 {
		o.Limit = DefaultLimit
	}
	if err := settle(o); err != nil {
		return nil, fmt.Errorf("open spool: %w", err)
	}
	if err := o.FS.MkdirAll(o.Dir); err != nil {
		return nil, fmt.Errorf("open spool: %w", err)
	}
	s := &Spool{options: o, sessions: map[string]*Session{}}
	folders, err := os.ReadDir(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("open spool: %w", err)
	}
	for _, folder := range folders {
		if !folder.IsDir() {
			continue
		}
		session, err := s.load(filepath.Join(o.Dir, folder.Name()))
		switch {
		case errors.Is(err, errNoState):
			// A crash came between the folder and its first state.
		case errors.Is(err, ErrDamaged):
			s.damaged = append(s.damaged, folder.Name())
		case err != nil: // the disk, which may be well again in a moment
			return nil, err
		default:
			s.sessions[session.state.SessionID] = session
		}
	}
	return s, nil
}

// errNoState: a folder has no state yet.
var errNoState = errors.New("no state")

// load reads one session. ErrDamaged is of what is written there, any other error
// of the disk.
func (s *Spool) load(dir string) (*Session, error) {
	if err := durable.RemoveTemps(dir); err != nil {
		return nil, fmt.Errorf("open session: %w", err)
	}
	data, err := durable.ReadFile(filepath.Join(dir, stateFile), maxState)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, errNoState
	case errors.Is(err, durable.ErrTooLarge):
		return nil, fmt.Errorf("open session: %w", ErrDamaged)
	case err != nil:
		return nil, fmt.Errorf("open session: %w", err)
	}
	session := &Session{spool: s, dir: dir, saved: data}
	if err := json.Unmarshal(data, &session.state); err != nil {
		return nil, fmt.Errorf("open session: %w", ErrDamaged)
	}
	if err := s.check(&session.state, filepath.Base(dir)); err != nil {
		return nil, err
	}
	if err := session.tidy(); err != nil {
		return session, err
	}
	return session, session.eraseLocked() // nobody else has it yet
}

// check refuses a state that this spool cannot have written.
func (s *Spool) check(state *State, folder string) error {
	name, err := durable.SafeName(state.SessionID)
	if err != nil || name != folder || state.Version != stateVersion ||
		state.Name != v1alpha1.SessionName(state.SessionID, s.options.Owner) {
		return fmt.Errorf("open session: %w", ErrDamaged)
	}
	if mark, ok := state.At(state.Head.Segments); !ok || mark != state.Head {
		return fmt.Errorf("open session: %w", ErrDamaged)
	}
	return nil
}

// States returns the states of the sessions of a spool folder, while another
// process may have it open. What cannot be read is left out.
func States(dir string) []State {
	folders, err := os.ReadDir(dir)
	if err != nil {
		return nil // nothing was read yet
	}
	var states []State
	for _, folder := range folders {
		var state State
		data, err := durable.ReadFile(filepath.Join(dir, folder.Name(), stateFile), maxState)
		if err == nil && json.Unmarshal(data, &state) == nil {
			states = append(states, state)
		}
	}
	return states
}

// Read returns the state of one session of a spool folder, while another process
// may have it open. Without one, or with one that cannot be read, false.
func Read(dir, id string) (State, bool) {
	folder, err := durable.SafeName(strings.ToLower(id))
	if err != nil {
		return State{}, false
	}
	var state State
	data, err := durable.ReadFile(filepath.Join(dir, folder, stateFile), maxState)
	return state, err == nil && json.Unmarshal(data, &state) == nil
}

// Transcripts lists the files that a session is read from.
func (s *State) Transcripts() []string {
	paths := []string{s.Transcript}
	for _, path := range s.AgentFiles {
		paths = append(paths, path)
	}
	for _, cursor := range s.Cursors {
		paths = append(paths, cursor.Path)
	}
	for _, one := range s.Imports {
		paths = append(paths, one.Cursor.Path)
	}
	slices.Sort(paths)
	paths = slices.Compact(paths)
	return slices.DeleteFunc(paths, func(path string) bool { return path == "" }) // only imported
}

// Ensure returns the session with that id, made now if it is new. The id is
// taken in lower case. ErrSessionID: no Session can have it.
func (s *Spool) Ensure(id string, now time.Time) (*Session, error) {
	id = strings.ToLower(id)
	if !sessionID.MatchString(id) {
		return nil, ErrSessionID
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if session, ok := s.sessions[id]; ok {
		return session, nil
	}
	folder, err := durable.SafeName(id)
	if err != nil {
		return nil, ErrSessionID
	}
	if slices.Contains(s.damaged, folder) {
		return nil, ErrDamaged
	}
	session := &Session{spool: s, dir: filepath.Join(s.options.Dir, folder)}
	if err := s.options.FS.MkdirAll(session.dir); err != nil {
		return nil, fmt.Errorf("make session: %w", err)
	}
	name := v1alpha1.SessionName(id, s.options.Owner)
	start := segment.Start(name, s.options.Workstation).String()
	err = session.Update(func(state *State) {
		*state = State{
			Version: stateVersion, SessionID: id, Name: name, FirstNote: now.UTC(),
			Head: Mark{Chain: start}, Verified: Mark{Chain: start},
		}
	})
	if err != nil {
		return nil, err
	}
	s.sessions[id] = session
	return session, nil
}

// Session returns the session with that id, if there is one.
func (s *Spool) Session(id string) (*Session, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	session, ok := s.sessions[id]
	return session, ok
}

// Named returns the session whose Session has that name.
func (s *Spool) Named(name string) (*Session, bool) {
	// The name is the id, a dash and eight digits.
	if len(name) < 10 {
		return nil, false
	}
	session, ok := s.Session(name[:len(name)-9])
	if !ok || session.Name() != name {
		return nil, false
	}
	return session, true
}

// Sessions returns every session, those with the oldest waiting segment first
// and the rest by id. Those of which lines of before init wait come after all
// others of which anything does.
func (s *Spool) Sessions() []*Session {
	s.mu.Lock()
	all := make([]*Session, 0, len(s.sessions))
	for _, session := range s.sessions {
		all = append(all, session)
	}
	s.mu.Unlock()

	type key struct {
		row    int
		oldest time.Time
		id     string
	}
	keys := make(map[*Session]key, len(all))
	for _, session := range all {
		state := session.State()
		row := 2 // nothing waits
		if len(state.Segments) > 0 {
			row = 0
			if state.Segments[0].Import {
				row = 1
			}
		}
		keys[session] = key{row, state.Oldest(), state.SessionID}
	}
	slices.SortFunc(all, func(a, b *Session) int {
		x, y := keys[a], keys[b]
		if x.row != y.row {
			return x.row - y.row
		}
		if c := x.oldest.Compare(y.oldest); c != 0 {
			return c
		}
		return strings.Compare(x.id, y.id)
	})
	return all
}

// Prune drops a session of which every segment is verified, and its folder. Of
// its transcript, should it come back, everything would be read again.
func (s *Spool) Prune(id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	session, ok := s.sessions[id]
	if !ok {
		return nil
	}
	if state := session.State(); len(state.Segments) > 0 {
		return errors.New("prune session: some of its segments wait")
	}
	delete(s.sessions, id)
	if err := s.options.FS.Remove(filepath.Join(session.dir, stateFile)); err != nil {
		return fmt.Errorf("prune session: %w", err)
	}
	if err := os.RemoveAll(session.dir); err != nil {
		return fmt.Errorf("prune session: %w", err)
	}
	return nil
}

// Forget drops a session of which nothing was ever read, and its folder.
func (s *Spool) Forget(id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	session, ok := s.sessions[id]
	if !ok {
		return nil
	}
	if state := session.State(); state.Head.Segments > 0 || len(state.Cursors) > 0 {
		return errors.New("forget session: something was read of it")
	}
	delete(s.sessions, id)
	if err := s.options.FS.Remove(filepath.Join(session.dir, stateFile)); err != nil {
		return fmt.Errorf("forget session: %w", err)
	}
	if err := s.options.FS.Remove(session.dir); err != nil {
		return fmt.Errorf("forget session: %w", err)
	}
	return nil
}

// Damaged names the sessions whose state could not be read.
func (s *Spool) Damaged() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.damaged)
}

// Bytes is the size of all segment files.
func (s *Spool) Bytes() int64 { return s.bytes.Load() }

// maxImports is the most segments of lines of before init that wait at a time:
// enough to keep an upload busy, and nothing that what is said now would have to
// wait for.
const maxImports = 8

// RoomForImport says whether lines of before init may be added: few of them
// wait, and three quarters of the spool are free for what is said now.
func (s *Spool) RoomForImport() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	waiting := 0
	for _, session := range s.sessions {
		waiting += session.imports()
	}
	return waiting < maxImports && s.Bytes() < s.options.Limit/4
}

// Full says that the spool has reached its limit.
func (s *Spool) Full() bool { return s.Bytes() >= s.options.Limit }

// segmentFile returns the name of a segment's file.
func segmentFile(seq int64) string { return strconv.FormatInt(seq, 10) + ".seg" }

// segmentSeq is the inverse of segmentFile.
func segmentSeq(name string) (int64, bool) {
	number, ok := strings.CutSuffix(name, ".seg")
	seq, err := strconv.ParseInt(number, 10, 64)
	return seq, ok && err == nil && segmentFile(seq) == name
}
