package spool

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/undersong-dev/undersong/agent/internal/durable"
	"github.com/undersong-dev/undersong/internal/redact"
	"github.com/undersong-dev/undersong/internal/segment"
)

// Unsent returns the number of the first segment from which on the cluster was
// told of nothing, one behind the last where it was of all. An object that lies in
// a slot and was never named is read by nobody.
func (s *Session) Unsent() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.unsentLocked()
}

func (s *Session) unsentLocked() int64 {
	from := s.state.Head.Segments + 1
	for _, g := range slices.Backward(s.state.Segments) {
		known := g.Seq <= s.state.Told || s.state.Applied != nil && g.Seq <= s.state.Applied.Segments
		_, err := os.Stat(filepath.Join(s.dir, segmentFile(g.Seq)))
		if known || g.ResentAt != nil || err != nil {
			break
		}
		from = g.Seq
	}
	return from
}

// Erase takes lines out of segments that the cluster was not told of, by segment
// and place in it: a stub stands for each. What may retell them later is withheld.
// A segment that lies in a slot already, or may, gets another one. Lines of other
// segments are left alone; nobody may upload meanwhile.
func (s *Session) Erase(lines map[int64][]int, reason string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := s.state.clone()
	for stream, cursor := range next.Cursors {
		cursor.NoSummaries, cursor.Hushed = true, reason
		next.Cursors[stream] = cursor
	}
	for stream, one := range next.Imports {
		one.Cursor.NoSummaries, one.Cursor.Hushed = true, reason
		next.Imports[stream] = one
	}
	from := s.unsentLocked()
	for seq, which := range lines {
		if seq < from || next.Segment(seq) == nil || len(which) == 0 {
			continue
		}
		if next.Erasing == nil {
			next.Erasing = map[int64][]int{}
		}
		next.Erasing[seq] = which
	}
	if err := s.saveLocked(next); err != nil {
		return err
	}
	return s.eraseLocked()
}

// eraseLocked does what Erase noted. It may be cut off anywhere and done again:
// a stub of a stub is that stub, and a chain follows from the files.
func (s *Session) eraseLocked() error {
	if len(s.state.Erasing) == 0 {
		return nil
	}
	redactor, err := redact.New()
	if err != nil {
		return fmt.Errorf("erase lines: %w", err)
	}
	next := s.state.clone()
	from := next.Head.Segments + 1
	for seq := range next.Erasing {
		from = min(from, seq)
	}
	before, ok := next.At(from - 1)
	if !ok {
		return fmt.Errorf("erase lines: %w", ErrDamaged)
	}
	previous, err := segment.ParseSum(before.Chain)
	if err != nil {
		return fmt.Errorf("erase lines: %w", err)
	}
	for i := range next.Segments {
		g := &next.Segments[i]
		if g.Seq < from {
			continue
		}
		raw, err := s.rewriteLocked(redactor, g.Seq, previous, next.Erasing[g.Seq])
		if err != nil {
			return fmt.Errorf("erase lines of segment %d: %w", g.Seq, err)
		}
		digest := segment.Sum(sha256.Sum256(raw))
		previous = previous.NextDigest(digest)
		g.Bytes, g.Digest, g.Chain = int64(len(raw)), digest.String(), previous.String()
		g.Slot, g.SlotState = 0, SlotNone
	}
	next.Erasing = nil
	next.Head, _ = next.At(next.Head.Segments)
	if err := s.receiptsLocked(&next, from); err != nil {
		return err
	}
	return s.saveLocked(next)
}

// decode reads a segment, and returns the size of its file, too. It is
// ErrDamaged where trying again does not help.
func (s *Session) decode(seq int64) (h segment.Header, lines [][]byte, size int64, _ error) {
	packed, err := s.Read(seq)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, durable.ErrTooLarge) {
			err = fmt.Errorf("%w: %w", ErrDamaged, err)
		}
		return h, nil, 0, err
	}
	raw, err := segment.Unpack(packed)
	if err == nil {
		h, lines, err = segment.Decode(raw)
	}
	if err != nil {
		return h, nil, 0, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return h, lines, int64(len(packed)), nil
}

// rewriteLocked writes a segment's file without some lines, as it follows another
// chain, and returns the segment.
func (s *Session) rewriteLocked(redactor *redact.Redactor, seq int64, previous segment.Sum, erase []int) ([]byte, error) {
	h, lines, size, err := s.decode(seq)
	if err != nil {
		return nil, err
	}
	h.PreviousChain = previous.String()
	clean := make([]redact.Redacted, len(lines))
	for i, line := range lines {
		if slices.Contains(erase, i) {
			clean[i] = redactor.Forgotten(line)
		} else {
			clean[i], _ = redactor.Line(line) // it stays what it is
		}
	}
	raw, err := segment.Encode(h, clean)
	if err != nil {
		return nil, err
	}
	small := segment.Pack(raw)
	if err := s.spool.options.FS.WriteFile(filepath.Join(s.dir, segmentFile(seq)), small); err != nil {
		return nil, err
	}
	s.spool.bytes.Add(int64(len(small)) - size)
	return raw, nil
}

// receiptsLocked writes the receipts of rewritten segments anew.
func (s *Session) receiptsLocked(next *State, from int64) error {
	receipts, err := Receipts(s.spool.options.Dir, next.SessionID)
	if err != nil {
		return err
	}
	var errs []error
	for _, r := range receipts {
		if g := next.Segment(r.Seq); g != nil && r.Seq >= from {
			r.Digest, r.Chain = g.Digest, g.Chain
			errs = append(errs, s.appendReceipt(r))
		}
	}
	return errors.Join(errs...)
}
