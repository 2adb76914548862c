package spool

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/undersong-dev/undersong/agent/internal/durable"
	"github.com/undersong-dev/undersong/agent/read"
	"github.com/undersong-dev/undersong/internal/crash"
	"github.com/undersong-dev/undersong/internal/segment"
)

const stateFile = "state.json"

// Session is the spool of one session. Its methods may be called from several
// goroutines; a step of one is whole before the next begins.
type Session struct {
	spool *Spool
	dir   string

	mu    sync.Mutex
	state State
	saved []byte // state as it is on the disk
}

// Name returns the name of the Session.
func (s *Session) Name() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state.Name
}

// State returns a copy of the state.
func (s *Session) State() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state.clone()
}

// Update changes the state in one durable step. A change that changes nothing
// writes nothing; after an error the state is as it was.
func (s *Session) Update(change func(*State)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := s.state.clone()
	change(&next)
	return s.saveLocked(next)
}

func (s *Session) saveLocked(next State) error {
	data, err := json.MarshalIndent(next, "", "  ")
	if err != nil {
		return fmt.Errorf("save session state: %w", err)
	}
	if bytes.Equal(data, s.saved) {
		return nil
	}
	path := filepath.Join(s.dir, stateFile)
	if err := s.spool.options.FS.WriteFile(path, data); err != nil {
		// The file may be replaced all the same, when only the last sync
		// failed. Memory follows the disk, or the next segment would take the
		// place of one that a state on the disk names.
		if now, rerr := durable.ReadFile(path, maxState); rerr == nil && bytes.Equal(now, data) {
			s.state, s.saved = next, nil
		}
		return fmt.Errorf("save session state: %w", err)
	}
	s.state, s.saved = next, data
	return nil
}

// Room says whether Append would take a segment now: nil, ErrFull or
// ErrBehind.
func (s *Session) Room() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.roomLocked()
}

func (s *Session) roomLocked() error {
	switch {
	case len(s.state.Segments) >= MaxSegments:
		return ErrBehind
	case s.spool.Full():
		return ErrFull
	}
	return nil
}

// imports is the number of segments of lines of before init that wait.
func (s *Session) imports() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for i := range s.state.Segments {
		if s.state.Segments[i].Import {
			n++
		}
	}
	return n
}

// Append makes a segment of what was read and moves the stream's cursor, in
// one durable step. A batch without lines only moves the cursor.
func (s *Session) Append(stream string, batch read.Batch) error {
	return s.append(batch, func(next *State) error {
		if next.Cursors == nil {
			next.Cursors = map[string]read.Cursor{}
		}
		old := next.Cursors[stream]
		next.Cursors[stream] = batch.Cursor
		return follows(batch, old)
	})
}

// AppendImport is Append for lines of before init.
func (s *Session) AppendImport(stream string, batch read.Batch) error {
	return s.append(batch, func(next *State) error {
		if next.Imports == nil {
			next.Imports = map[string]Import{}
		}
		old := next.Imports[stream].Cursor
		next.Imports[stream] = Import{Cursor: batch.Cursor}
		return follows(batch, old)
	})
}

// follows is ErrMoved for a batch that was read from another place than where
// the stream is now.
func follows(batch read.Batch, now read.Cursor) error {
	if b := batch.Began; b != nil && (b.Offset != now.Offset || b.Generation != now.Generation) {
		return ErrMoved
	}
	return nil
}

// append makes a segment in one step with what move changes.
func (s *Session) append(batch read.Batch, move func(*State) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := s.state.clone()
	if err := move(&next); err != nil {
		return err
	}
	if from := strings.ToLower(batch.ForkedFrom); next.Project == nil && sessionID.MatchString(from) {
		next.ForkedFrom = from // of another form it cannot stand in a Session
	}
	if len(batch.Lines) == 0 {
		return s.saveLocked(next)
	}
	if err := s.roomLocked(); err != nil {
		return err
	}
	size, err := s.writeLocked(&next, batch)
	if err != nil {
		return err
	}
	if err := s.receive(&next, batch); err != nil {
		return err
	}
	crash.Point(crash.AgentSegmentWritten)
	if next.Project == nil {
		next.Project = batch.Project
	}
	describe(&next, batch)
	err = s.saveLocked(next)
	if s.state.Head == next.Head {
		s.spool.bytes.Add(size)
	}
	if err != nil {
		return err
	}
	crash.Point(crash.AgentCursorWritten)
	return nil
}

// describe enters what a batch says of the session as it is now. Lines of before
// say nothing of one that went on since.
func describe(next *State, batch read.Batch) {
	old := batch.Header.Import
	if next.Ended && !next.Ending && !old {
		next.Ended = false // it was resumed
	}
	if branch := batch.Branch.String(); branch != "" && (!old || len(next.Cursors) == 0) {
		next.Branch = branch
	}
}

// writeLocked writes the segment's file, and enters it into next. It returns
// the size of the file.
func (s *Session) writeLocked(next *State, batch read.Batch) (int64, error) {
	h := batch.Header
	h.Session = next.Name
	h.Workstation = s.spool.options.Workstation
	h.Seq = next.Head.Segments + 1
	h.PreviousChain = next.Head.Chain
	previous, err := segment.ParseSum(next.Head.Chain)
	if err != nil {
		return 0, fmt.Errorf("spool segment: %w", err)
	}
	raw, err := segment.Encode(h, batch.Lines)
	if err != nil {
		return 0, fmt.Errorf("spool segment: %w", err)
	}
	packed := segment.Pack(raw)
	if err := s.spool.options.FS.WriteFile(filepath.Join(s.dir, segmentFile(h.Seq)), packed); err != nil {
		return 0, fmt.Errorf("spool segment: %w", err)
	}
	digest := segment.Sum(sha256.Sum256(raw))
	next.Segments = append(next.Segments, Segment{
		Seq: h.Seq, Stream: h.Stream, Lines: int64(len(batch.Lines)), Bytes: int64(len(raw)),
		Digest: digest.String(), Chain: previous.NextDigest(digest).String(), CreatedAt: h.At, SlotState: SlotNone, Import: h.Import,
	})
	next.Head, _ = next.At(h.Seq)
	return int64(len(packed)), nil
}

// Read returns the packed bytes of a segment that is not verified. An error
// that is fs.ErrNotExist means that they are lost.
func (s *Session) Read(seq int64) ([]byte, error) {
	data, err := durable.ReadFile(filepath.Join(s.dir, segmentFile(seq)), segment.MaxPacked)
	if err != nil {
		if perr, ok := errors.AsType[*fs.PathError](err); ok {
			err = perr.Err
		}
		return nil, fmt.Errorf("read segment %d: %w", seq, err)
	}
	return data, nil
}

// Drop forgets the segments up to the one with that number: the archive has
// them. The state is written first; a file that a crash leaves behind is
// removed by Open.
func (s *Session) Drop(seq int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	mark, ok := s.state.At(seq)
	if !ok {
		return fmt.Errorf("drop segments up to %d: not among those that wait", seq)
	}
	next := s.state.clone()
	next.Verified = mark
	next.Segments = slices.DeleteFunc(next.Segments, func(g Segment) bool { return g.Seq <= seq })
	next.Gone = slices.DeleteFunc(next.Gone, func(g int64) bool { return g <= seq })
	dropped := s.state.Segments[:len(s.state.Segments)-len(next.Segments)]
	if err := s.saveLocked(next); err != nil {
		return err
	}
	var errs []error
	for _, g := range dropped {
		errs = append(errs, s.remove(g.Seq))
	}
	return errors.Join(errs...)
}

// Withdraw notes that a person deleted the Session: what waits is dropped, and
// the session is neither read nor sent any more.
func (s *Session) Withdraw() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := s.state.clone()
	dropped := next.Segments
	next.Withdrawn, next.Segments, next.Gone = true, nil, nil
	next.Verified = next.Head
	if err := s.saveLocked(next); err != nil {
		return err
	}
	var errs []error
	for _, g := range dropped {
		errs = append(errs, s.remove(g.Seq))
	}
	return errors.Join(errs...)
}

// Expire notes that the Session's time was over: it is made again as soon as
// there is something to say. What waits stays, and is something to say.
func (s *Session) Expire() error {
	return s.Update(func(state *State) {
		state.UID, state.Expired = "", true
		if len(state.Segments) > 0 {
			state.Applied = nil
		}
	})
}

// remove removes a segment's file.
func (s *Session) remove(seq int64) error {
	path := filepath.Join(s.dir, segmentFile(seq))
	info, err := os.Stat(path)
	if err != nil {
		return nil //nolint:nilerr // lost already
	}
	if err := s.spool.options.FS.Remove(path); err != nil {
		return fmt.Errorf("drop segment %d: %w", seq, err)
	}
	s.spool.bytes.Add(-info.Size())
	return nil
}

// tidy removes the files that the state does not name, and counts the others.
func (s *Session) tidy() error {
	files, err := os.ReadDir(s.dir)
	if err != nil {
		return fmt.Errorf("open session: %w", err)
	}
	for _, file := range files {
		seq, ok := segmentSeq(file.Name())
		if !ok {
			continue
		}
		if s.state.Segment(seq) == nil {
			// Not the fault operations of a test: Open is repeated until it works.
			if err := os.Remove(filepath.Join(s.dir, file.Name())); err != nil {
				return fmt.Errorf("open session: %w", err)
			}
			continue
		}
		if info, err := file.Info(); err == nil {
			s.spool.bytes.Add(info.Size())
		}
	}
	return nil
}
