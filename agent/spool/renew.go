package spool

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/undersong-dev/undersong/agent/internal/durable"
	"github.com/undersong-dev/undersong/agent/read"
	"github.com/undersong-dev/undersong/internal/redact"
	"github.com/undersong-dev/undersong/internal/segment"
)

const (
	// madeSuffix is added to a spool's folder while the next one is made, oldSuffix
	// to the one that it takes the place of.
	madeSuffix = ".made"
	oldSuffix  = ".old"
)

// Place is how far an earlier registration of this workstation has come in a
// stream. What is before it is in the archive under that one's name.
type Place struct {
	Stream     string `json:"stream"`
	Generation int64  `json:"generation,omitempty"`
	Offset     int64  `json:"offset"`

	// Import says that it is of lines of before init that were brought in.
	Import bool `json:"import,omitempty"`
}

// Renew gives every session of a spool to a new Workstation of the same owner:
// what is not verified gets a chain of its own, from its beginning, and reading
// goes on where it was. What a session is, and what of it was withheld, stays.
// The folder is replaced in one step; nobody else may have it open.
func Renew(o Options, workstation string) error {
	if _, err := os.Stat(o.Dir); errors.Is(err, fs.ErrNotExist) && !exists(o.Dir+oldSuffix) {
		return nil // nothing was read
	}
	s, err := Open(o)
	if err != nil {
		return err
	}
	redactor, err := redact.New()
	if err != nil {
		return fmt.Errorf("renew sessions: %w", err)
	}
	made := o.Dir + madeSuffix
	if err := os.RemoveAll(made); err != nil {
		return fmt.Errorf("renew sessions: %w", err)
	}
	for _, session := range s.Sessions() {
		n := renewal{session: session, redactor: redactor, workstation: workstation, dir: filepath.Join(made, filepath.Base(session.dir))}
		if err := n.make(); err != nil {
			return fmt.Errorf("renew session %s: %w", session.state.SessionID, err)
		}
	}
	for _, folder := range s.Damaged() {
		if err := keepDamaged(o.FS, filepath.Join(o.Dir, folder), filepath.Join(made, folder)); err != nil {
			return fmt.Errorf("renew session %s: %w", folder, err)
		}
	}
	if err := o.FS.MkdirAll(made); err != nil {
		return fmt.Errorf("renew sessions: %w", err)
	}
	if err := o.FS.Rename(o.Dir, o.Dir+oldSuffix); err != nil {
		return fmt.Errorf("renew sessions: %w", err)
	}
	if err := o.FS.Rename(made, o.Dir); err != nil {
		return fmt.Errorf("renew sessions: %w", err)
	}
	if err := os.RemoveAll(o.Dir + oldSuffix); err != nil {
		return fmt.Errorf("renew sessions: %w", err)
	}
	return nil
}

// Settle finishes, or takes back, what a crash left of Renew. Open does so, too;
// who only looks at what waits must call it first.
func Settle(dir string) error { return settle(Options{Dir: dir}) }

func settle(o Options) error {
	old := o.Dir + oldSuffix
	if !exists(old) {
		return nil
	}
	if exists(o.Dir) { // the new one took its place
		return os.RemoveAll(old)
	}
	return o.FS.Rename(old, o.Dir)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// renewal is one session under way to another workstation.
type renewal struct {
	session     *Session
	redactor    *redact.Redactor
	workstation string
	dir         string

	next State
}

func (n *renewal) make() error {
	options := &n.session.spool.options
	old := n.session.State()
	receipts, err := Receipts(options.Dir, old.SessionID)
	if err != nil {
		return err
	}
	if err := options.FS.MkdirAll(n.dir); err != nil {
		return err
	}
	start := segment.Start(old.Name, n.workstation).String()
	n.next = old.clone()
	n.next.Head, n.next.Verified = Mark{Chain: start}, Mark{Chain: start}
	n.next.Segments, n.next.Gone, n.next.Told, n.next.Applied, n.next.Earlier = nil, nil, 0, nil, nil
	target := &Session{spool: n.session.spool, dir: n.dir}
	bySeq := map[int64]Receipt{}
	for _, r := range receipts {
		bySeq[r.Seq] = r
	}
	for _, g := range old.Segments {
		r, known := bySeq[g.Seq]
		h, err := n.take(g)
		if errors.Is(err, ErrDamaged) {
			continue // lost before; verify tells
		}
		if err != nil {
			return err
		}
		n.begin(h)
		if !known {
			continue // verify tells
		}
		made := &n.next.Segments[len(n.next.Segments)-1]
		r.Seq, r.First, r.Digest, r.Chain = made.Seq, n.next.Head.Lines-made.Lines+1, made.Digest, made.Chain
		if err := target.appendReceipt(r); err != nil {
			return err
		}
	}
	n.keep(receipts)
	return target.saveLocked(n.next) // nobody else has it
}

// take writes one segment as the next one of the new chain.
func (n *renewal) take(g Segment) (segment.Header, error) {
	h, lines, _, err := n.session.decode(g.Seq)
	if err != nil {
		return segment.Header{}, err
	}
	previous, err := segment.ParseSum(n.next.Head.Chain)
	if err != nil {
		return segment.Header{}, err
	}
	h.Workstation, h.Seq, h.PreviousChain = n.workstation, n.next.Head.Segments+1, previous.String()
	clean := make([]redact.Redacted, len(lines))
	for i, line := range lines {
		clean[i], _ = n.redactor.Line(line) // it stays what it is
	}
	raw, err := segment.Encode(h, clean)
	if err != nil {
		return segment.Header{}, err
	}
	if err := n.session.spool.options.FS.WriteFile(filepath.Join(n.dir, segmentFile(h.Seq)), segment.Pack(raw)); err != nil {
		return segment.Header{}, err
	}
	digest := segment.Sum(sha256.Sum256(raw))
	g.Seq, g.Bytes, g.Digest, g.Chain = h.Seq, int64(len(raw)), digest.String(), previous.NextDigest(digest).String()
	g.Slot, g.SlotState, g.ResentAt = 0, SlotNone, nil
	n.next.Segments = append(n.next.Segments, g)
	n.next.Head, _ = n.next.At(g.Seq)
	return h, nil
}

// begin notes where the new chain begins in a stream.
func (n *renewal) begin(h segment.Header) {
	for _, p := range n.next.Earlier {
		if p.Stream == h.Stream && p.Generation == h.Generation && p.Import == h.Import {
			return
		}
	}
	n.next.Earlier = append(n.next.Earlier, Place{Stream: h.Stream, Generation: h.Generation, Offset: h.Offset, Import: h.Import})
}

// keep lets the cursors remember what the old receipts named as withheld, and
// notes where streams go on of which nothing waits.
func (n *renewal) keep(receipts []Receipt) {
	for stream, one := range n.next.Imports {
		at := one.Cursor.Offset
		if len(one.Cursor.Pending) > 0 {
			at = one.Cursor.Pending[0].FromOffset
		}
		n.begin(segment.Header{Stream: stream, Generation: one.Cursor.Generation, Offset: at, Import: true})
		one.Cursor = read.Remember(one.Cursor, keptOf(receipts, true)[stream])
		n.next.Imports[stream] = one
	}
	for stream, cursor := range n.next.Cursors {
		n.next.Cursors[stream] = read.Remember(cursor, keptOf(receipts, false)[stream])
		at := cursor.Offset
		if len(cursor.Pending) > 0 {
			at = cursor.Pending[0].FromOffset
		}
		n.begin(segment.Header{Stream: stream, Generation: cursor.Generation, Offset: at})
	}
}

// keepDamaged keeps what reset needs of a session that cannot be read.
func keepDamaged(files durable.FS, from, to string) error {
	if err := files.MkdirAll(to); err != nil {
		return err
	}
	for name, limit := range map[string]int64{stateFile: maxState, receiptsFile: maxReceipts} {
		data, err := durable.ReadFile(filepath.Join(from, name), limit)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = files.WriteFile(filepath.Join(to, name), data)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
