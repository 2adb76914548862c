package read

import (
	"time"

	"github.com/undersong-dev/undersong/internal/redact"
	"github.com/undersong-dev/undersong/internal/segment"
)

// Project is the repository a record was written in.
type Project struct {
	// Name is for people; Remote is the normalized remote.
	Name   string `json:"name"`
	Remote string `json:"remote"`
}

// Verdict is the answer to the question whether a record may be heard.
type Verdict struct {
	Allowed bool
	Project Project // where Allowed
	Reason  string  // where not: one of a fixed set, seen by the whole team

	// Root is the working tree of the record's folder, whether it is allowed or not.
	// Empty where nobody knows.
	Root string

	// Redactor has the rules of the record's repository besides; nil without any.
	Redactor *redact.Redactor
}

// Reasons of withheld ranges that this package gives itself.
const (
	ReasonBeforeInit   = "before init"
	ReasonOtherProject = "other project"
	ReasonInherited    = "inherited"
	// ReasonSent is given for lines that were sent before: by the plugin, or by an
	// earlier registration of this workstation.
	ReasonSent = "sent before"
	// ReasonTooLong is given for a line that is longer than what can be scanned.
	ReasonTooLong = "too long"
)

// Batch is what one call of Next read.
type Batch struct {
	// Header is that of the segment, without session, workstation, number,
	// previous chain and time.
	Header segment.Header

	// Lines are the body. Empty when nothing may be heard: then there is no
	// segment, and only the cursor moves.
	Lines []redact.Redacted

	// Began is where the session said that the stream was when this was read; nil
	// where nothing can have changed that. The reader leaves it to its caller.
	Began *Cursor

	// Withheld are the ranges of the header, with their times.
	Withheld []Withheld

	// Times are those of the lines: what a record says, else what the newest
	// before it said; zero where none did.
	Times []time.Time

	// Cursor is the cursor after this batch.
	Cursor Cursor

	// Moved says that Cursor differs from the one before.
	Moved bool

	// More says that complete lines remain. Over says that the next one is no
	// history.
	More, Over bool

	// Project is that of the body lines; nil without any.
	Project *Project

	// Chained says that a record of the talk itself was read, heard or not, and
	// not only what the harness notes for itself.
	Chained bool

	// Branch and ForkedFrom are the newest known, redacted; often empty.
	Branch     redact.Redacted
	ForkedFrom string

	// Spoken are the ids, of those asked for, that the transcript shows as
	// given to the agent.
	Spoken []string
}

// builder collects a batch line by line.
type builder struct {
	batch Batch
	size  int64 // of the body, with line ends
	input int64 // read, captured or not
	most  int64 // of input
	run   *Withheld
}

func newBuilder(stream string, cur Cursor, at time.Time) *builder {
	b := &builder{most: maxInput}
	b.batch.Cursor = cur.Clone()
	h := &b.batch.Header
	h.Stream = stream
	h.Generation = cur.Generation
	h.Offset = cur.Offset
	if len(cur.Pending) > 0 {
		h.Offset = cur.Pending[0].FromOffset
	}
	h.Findings = map[string]int{}
	h.Rules = redact.RulesVersion
	h.At = at
	return b
}

// maxInput bounds what one batch reads, so that a file of nothing but large
// records that are left out does not hold up the other sessions.
const maxInput = 64 << 20

// maxHistory is the same where history is read: it can wait, and what is said
// meanwhile should not.
const maxHistory = 8 << 20

// keep adds a body line.
func (b *builder) keep(offset, length, index int64, line redact.Redacted, findings redact.Findings) {
	b.flush()
	h := &b.batch.Header
	h.Offsets = append(h.Offsets, offset)
	h.Indexes = append(h.Indexes, index)
	for rule, n := range findings {
		h.Findings[rule] += n
	}
	b.batch.Lines = append(b.batch.Lines, line)
	b.batch.Times = append(b.batch.Times, b.batch.Cursor.LastTime)
	b.size += int64(line.Len()) + 1
	b.pass(offset+length, index)
}

// withhold adds a line to a withheld range. at is the time that its record gives.
func (b *builder) withhold(offset, length, index int64, at time.Time, reason string) {
	if b.run == nil || b.run.Reason != reason {
		b.flush()
		b.run = &Withheld{Range: segment.Range{FromOffset: offset, FromIndex: segment.NoIndex, ToIndex: segment.NoIndex, Reason: reason}}
	}
	extend(b.run, Withheld{Range: segment.Range{FromIndex: index, ToIndex: index, ToOffset: offset + length}, Since: at, Until: at})
	b.pass(offset+length, index)
}

// extend lets a range reach to the end of the next one.
func extend(r *Withheld, next Withheld) {
	r.ToOffset = next.ToOffset
	if r.FromIndex == segment.NoIndex {
		r.FromIndex = next.FromIndex
	}
	if next.ToIndex != segment.NoIndex {
		r.ToIndex = next.ToIndex
	}
	if !next.Since.IsZero() && (r.Since.IsZero() || next.Since.Before(r.Since)) {
		r.Since = next.Since
	}
	if next.Until.After(r.Until) {
		r.Until = next.Until
	}
}

// pass moves the cursor over a line.
func (b *builder) pass(offset, index int64) {
	b.batch.Cursor.Offset = offset
	if index >= 0 {
		b.batch.Cursor.NextIndex = index + 1
	}
	b.batch.Moved = true
}

// flush ends the withheld range under way.
func (b *builder) flush() {
	if b.run != nil {
		b.batch.Cursor.Pending = appendRange(b.batch.Cursor.Pending, *b.run)
		b.run = nil
	}
}

// maxPending bounds the withheld ranges of one segment: a batch with a body
// closes there, and without one a range is joined to the one before, whatever
// its reason, since only withheld and blank lines lie between. So a talk that
// jumps between folders cannot grow the cursor without end.
const maxPending = 1024

// appendRange adds a range, joined to the last one where they meet.
func appendRange(ranges []Withheld, r Withheld) []Withheld {
	if n := len(ranges); n > 0 {
		last := &ranges[n-1]
		meet := last.ToOffset == r.FromOffset && last.Reason == r.Reason
		if meet || n >= maxPending {
			extend(last, r)
			return ranges
		}
	}
	return append(ranges, r)
}

// fits says whether a line of so many redacted bytes belongs into this
// segment. The first always does: a long line stands alone.
func (b *builder) fits(length int64) bool {
	return len(b.batch.Lines) == 0 || b.size+length < segment.CloseAt
}

// full says that the batch ends here.
func (b *builder) full() bool {
	return b.size >= segment.CloseAt || b.input >= b.most ||
		len(b.batch.Lines) > 0 && len(b.batch.Cursor.Pending) >= maxPending
}

// finish closes the batch after the last line read. Side by side, the lines
// are looked through once more for tokens of which one record has the beginning
// and the next one the end.
func (b *builder) finish(redactor *redact.Redactor) Batch {
	b.flush()
	if len(b.batch.Lines) > 0 {
		b.seams(redactor)
		h := &b.batch.Header
		b.batch.Withheld, b.batch.Cursor.Pending = b.batch.Cursor.Pending, nil
		for _, w := range b.batch.Withheld {
			h.Withheld = append(h.Withheld, w.Range)
		}
		h.EndOffset = b.batch.Cursor.Offset
		h.FirstIndex, h.LastIndex = firstIndex(*h), b.batch.Cursor.NextIndex-1
	}
	return b.batch
}

func (b *builder) seams(redactor *redact.Redactor) {
	raw := make([][]byte, len(b.batch.Lines))
	for i, line := range b.batch.Lines {
		raw[i] = []byte(line.String())
	}
	clean, found := redactor.Lines(raw)
	b.batch.Lines = clean
	for _, findings := range found {
		for rule, n := range findings {
			b.batch.Header.Findings[rule] += n
		}
	}
}

// firstIndex returns the index of the first parsable line that the header
// speaks of.
func firstIndex(h segment.Header) int64 {
	first := int64(segment.NoIndex)
	lower := func(index int64) {
		if index != segment.NoIndex && (first == segment.NoIndex || index < first) {
			first = index
		}
	}
	for _, index := range h.Indexes {
		lower(index)
	}
	for _, r := range h.Withheld {
		lower(r.FromIndex)
	}
	return first
}
