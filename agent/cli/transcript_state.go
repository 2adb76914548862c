package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/undersong-dev/undersong/agent/internal/durable"
	"github.com/undersong-dev/undersong/internal/transcript"
)

// cursor is how far a stream was read, and what it held. It is kept in the file
// of --state.
type cursor struct {
	Session string `json:"session"`
	Stream  string `json:"stream"`

	// Path is where the file was found last.
	Path string `json:"path"`

	// Generation counts the files that took this one's place.
	Generation int64                `json:"generation,omitempty"`
	Signature  transcript.Signature `json:"signature"`
	Lines      int64                `json:"lines"`

	// State is what the records say of the session so far.
	State transcript.State `json:"state"`

	// Records are those that the file held: role:uuid where they have words,
	// :uuid where they have none.
	Records []string `json:"records,omitempty"`
}

// stateFile is the file of --state.
type stateFile struct {
	path string

	Version int      `json:"version"`
	Streams []cursor `json:"streams"`
}

const (
	stateVersion = 1
	maxStateFile = 1 << 30
)

// loadState reads the file of --state; one that is not there is empty. Without a
// path there is no state, and nil is returned.
func loadState(path string) (*stateFile, error) {
	if path == "" {
		return nil, nil //nolint:nilnil // no state was asked for
	}
	s := &stateFile{path: path, Version: stateVersion}
	data, err := durable.ReadFile(path, maxStateFile)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read --state: %w", err)
	}
	if err := json.Unmarshal(data, s); err != nil || s.Version != stateVersion {
		return nil, fmt.Errorf("read --state: %w", errors.New(path+" is not a file that this version of undersong transcript has written"))
	}
	return s, nil
}

// save writes the file.
func (s *stateFile) save() error {
	if s == nil {
		return nil
	}
	data, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("write --state: %w", err)
	}
	if err := durable.WriteFile(s.path, append(data, '\n')); err != nil {
		return fmt.Errorf("write --state: %w", err)
	}
	return nil
}

// pass returns the reading that a file needs: on from the cursor if the file
// still begins with what was read, all of it again, as the next generation, if
// not.
//
// A file of a known session that holds something else is no next generation
// while the one that was read is still where it was: Claude Code leaves a stub
// behind where it moved a session away from. That is read by itself, and leftover
// says so.
func (s *stateFile) pass(o origin) (p *pass, leftover bool, err error) {
	path, err := filepath.Abs(o.path)
	if err != nil {
		return nil, false, err
	}
	p = &pass{origin: o, cursor: cursor{Session: o.session, Stream: o.stream, Path: path}}
	known := s.find(o)
	if known == nil {
		return p, false, nil
	}
	fits, err := known.fits(path)
	if err != nil {
		return nil, false, err
	}
	if fits {
		p.cursor, p.old = *known, known.Signature.Offset > 0
		p.cursor.Path = path
		p.cursor.Records = slices.Clone(known.Records)
		return p, false, nil
	}
	if known.Path != path {
		if there, err := known.fits(known.Path); err == nil && there {
			return p, true, nil
		}
	}
	p.cursor.Generation = known.Generation + 1
	return p, false, nil
}

func (s *stateFile) find(o origin) *cursor {
	if s == nil || o.session == "" {
		return nil
	}
	for i := range s.Streams {
		if s.Streams[i].Session == o.session && s.Streams[i].Stream == o.stream {
			return &s.Streams[i]
		}
	}
	return nil
}

// keep replaces the cursor of a stream.
func (s *stateFile) keep(c cursor) {
	if s == nil || c.Session == "" {
		return
	}
	if known := s.find(origin{session: c.Session, stream: c.Stream}); known != nil {
		*known = c
		return
	}
	s.Streams = append(s.Streams, c)
}

// fits reports whether the file at the path begins with what was read.
func (c *cursor) fits(path string) (bool, error) {
	file, err := os.Open(path) //nolint:gosec // the user named it, now or before
	if err != nil {
		return false, err
	}
	defer func() { _ = file.Close() }() // nothing was written
	return c.Signature.Matches(file)
}

// roles maps the records of a cursor to who said their words, "" for none.
func (c *cursor) roles() map[string]string {
	roles := make(map[string]string, len(c.Records))
	for _, record := range c.Records {
		role, id, _ := strings.Cut(record, ":")
		roles[id] = role
	}
	return roles
}
