package cli

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
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

	// Records is the size of the list of the records that the file held, which
	// stands behind the header: in each line role:uuid, as a JSON string, where
	// they have words, and :uuid where they have none.
	Records int64 `json:"records"`

	kept section // the list, in the file of --state as it was read
	more *spill  // what came since
}

// section is a part of a file.
type section struct{ from, size int64 }

// note adds a record to the list.
func (c *cursor) note(role, id string) error {
	text, err := json.Marshal(role + ":" + id)
	if err != nil {
		return err
	}
	c.more.buf.Write(append(text, '\n'))
	return c.more.flush()
}

// stateFile is the file of --state: a header in one line, and behind it the
// lists of the streams' records.
type stateFile struct {
	path   string
	file   *os.File // as it was read; nil if there was none
	spills []*spill // of all cursors

	Version int      `json:"version"`
	Streams []cursor `json:"streams"`
}

const (
	stateVersion = 2
	// maxStateHeader bounds the header: some hundred bytes for each stream.
	maxStateHeader = 64 << 20
)

// loadState reads the file of --state; one that is not there is empty. Without a
// path there is no state, and nil is returned.
func loadState(path string) (*stateFile, error) {
	if path == "" {
		return nil, nil //nolint:nilnil // no state was asked for
	}
	s := &stateFile{path: path, Version: stateVersion}
	file, info, err := openTranscript(path)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read --state: %w", err)
	}
	s.file = file
	head, err := bufio.NewReader(io.LimitReader(file, maxStateHeader)).ReadBytes('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, errors.Join(fmt.Errorf("read --state: %w", err), file.Close())
	}
	at := int64(len(head))
	err = json.Unmarshal(head, s)
	for i := range s.Streams {
		c := &s.Streams[i]
		c.kept = section{at, max(0, c.Records)}
		at += c.kept.size
	}
	if err != nil || s.Version != stateVersion || at != info.Size() {
		err := errors.New(path + " is not a file that this version of undersong transcript has written")
		return nil, errors.Join(fmt.Errorf("read --state: %w", err), file.Close())
	}
	return s, nil
}

// save writes the file. Nothing of it can be read afterwards.
func (s *stateFile) save() error {
	if s == nil {
		return nil
	}
	err := durable.WriteFileFrom(s.path, func(to io.Writer) error {
		w := bufio.NewWriter(to)
		for i := range s.Streams {
			c := &s.Streams[i]
			if c.Records = c.kept.size; c.more != nil {
				c.Records += c.more.len()
			}
		}
		head, err := json.Marshal(s)
		if err != nil {
			return err
		}
		_, _ = w.Write(append(head, '\n')) // Flush says it
		for i := range s.Streams {
			if _, err := io.Copy(w, s.records(&s.Streams[i])); err != nil {
				return err
			}
		}
		return errors.Join(w.Flush(), s.close()) // an open file cannot be replaced everywhere
	})
	if err != nil {
		return fmt.Errorf("write --state: %w", err)
	}
	return nil
}

// close drops what the state holds open. It may be called more than once.
func (s *stateFile) close() error {
	if s == nil {
		return nil
	}
	var errs []error
	for _, spill := range s.spills {
		errs = append(errs, spill.close())
	}
	if s.file != nil {
		errs = append(errs, s.file.Close())
		s.file = nil
	}
	return errors.Join(errs...)
}

// records reads the list of a cursor.
func (s *stateFile) records(c *cursor) io.Reader {
	var parts []io.Reader
	if c.kept.size > 0 {
		parts = append(parts, io.NewSectionReader(s.file, c.kept.from, c.kept.size))
	}
	if c.more != nil {
		parts = append(parts, c.more.reader())
	}
	return io.MultiReader(parts...)
}

// each calls f for each record of a cursor.
func (s *stateFile) each(c *cursor, f func(role, id string) error) error {
	lines := bufio.NewReader(s.records(c))
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) && len(line) == 0 {
			return nil
		}
		var text string
		if err == nil {
			err = json.Unmarshal(line, &text)
		}
		if err != nil {
			return fmt.Errorf("read --state: %w", err)
		}
		role, id, _ := strings.Cut(text, ":")
		if err := f(role, id); err != nil {
			return err
		}
	}
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
	if s != nil {
		p.cursor.more = new(spill)
		s.spills = append(s.spills, p.cursor.more)
	}
	known := s.find(o)
	if known == nil {
		return p, false, nil
	}
	fits, err := known.fits(path)
	if err != nil {
		return nil, false, err
	}
	if fits {
		more := p.cursor.more
		p.cursor, p.old = *known, known.Signature.Offset > 0
		p.cursor.Path = path
		if p.cursor.more == nil { // else it was read in this call, in another place
			p.cursor.more = more
		}
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
