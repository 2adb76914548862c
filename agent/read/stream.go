package read

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"

	"k8s.io/utils/clock"

	"github.com/undersong-dev/undersong/internal/redact"
	"github.com/undersong-dev/undersong/internal/segment"
	"github.com/undersong-dev/undersong/internal/transcript"
)

// Reader reads streams. Its fields are set once; it may be shared.
type Reader struct {
	Redactor *redact.Redactor
	Clock    clock.PassiveClock

	// Decide answers whether a record of this working directory and entry point
	// may be heard now. It is asked once per directory in a batch.
	Decide func(cwd, entrypoint string) Verdict

	// Policy says what the team hears besides words; nil means its zero value.
	Policy func() transcript.Policy
}

// Want is what the caller knows of the session besides the stream.
type Want struct {
	// Project of the Session; nil before its first captured record, which
	// then decides.
	Project *Project

	// NoSummaries says that something was withheld of another stream.
	NoSummaries bool

	// Claimed are ids of whispers to look for in the main stream.
	Claimed []string
}

// Next reads one batch. It returns ErrMissing while there is no file. Reading
// ends at the last complete line, when the segment is full, or when ctx is
// done; the batch so far is then still good.
func (r *Reader) Next(ctx context.Context, src Source, cur Cursor, want Want) (Batch, error) {
	if cur.fresh() {
		cur.Baseline = src.Baseline
		cur.Kept = append(slices.Clip(cur.Kept), src.Kept...)
	}
	now := r.Clock.Now().UTC()
	generation := cur.Generation
	at, cur, err := open(src, cur, now)
	if err != nil {
		return Batch{}, err
	}
	defer at.close()
	if src.History != nil && cur.Generation != generation {
		return Batch{}, ErrReplaced // nobody agreed to what it holds now
	}

	s := &step{Reader: r, src: src, want: want, builder: newBuilder(src.Stream, cur, now), verdicts: map[place]Verdict{}}
	if src.History != nil {
		s.most, s.batch.Header.Import = maxHistory, true
	}
	// What is signed is what was read: were the file signed again at the end, one
	// that was cut and has grown in between would pass for it.
	lines := transcript.NewSignedLines(at.file, at.signer)
	for ctx.Err() == nil && lines.Next() {
		line := lines.Line()
		if !s.line(line) || s.full() {
			s.batch.More = !s.batch.Over
			break
		}
	}
	if err := lines.Err(); err != nil {
		return Batch{}, fmt.Errorf("read transcript: %w", withoutPath(err))
	}
	batch := s.finish(s.Redactor)
	batch.Project = s.want.Project
	if len(batch.Lines) == 0 {
		batch.Project = nil
	}
	if batch.Cursor.Signature, err = lines.Signature(batch.Cursor.Offset); err != nil {
		return Batch{}, fmt.Errorf("read transcript: %w", withoutPath(err))
	}
	batch.Branch = s.branch
	batch.ForkedFrom = s.state.ForkedFrom
	return batch, nil
}

// place is what consent depends on.
type place struct{ cwd, entrypoint string }

// step is one call of Next.
type step struct {
	*Reader
	*builder
	src      Source
	want     Want
	state    transcript.State
	verdicts map[place]Verdict

	branch redact.Redacted // by the rules of the repository that named it
}

// line takes one line into the batch. It returns false when the line belongs
// into the next segment, or into none that is to be read.
func (s *step) line(line transcript.Line) bool {
	s.input += line.Length
	record, err := transcript.Parse(line.Raw)
	if s.src.History.ends(line, record, s.batch.Header.At) {
		s.batch.Over = true
		return false
	}
	if err == transcript.ErrBlank && !line.TooLong { //nolint:errorlint // a sentinel that Parse returns as it is
		s.pass(line.Offset+line.Length, segment.NoIndex)
		return true
	}
	index := int64(segment.NoIndex)
	if err == nil {
		index = s.batch.Cursor.NextIndex
	}
	s.listen(record, line.Raw)
	if record.Cwd != "" {
		s.batch.Cursor.LastCwd, s.batch.Cursor.LastEntrypoint = record.Cwd, record.Entrypoint
	}
	s.batch.Chained = s.batch.Chained || record.UUID != ""
	if record.ForkedFrom != "" {
		s.state.ForkedFrom = record.ForkedFrom // the copies are withheld
	}
	if reason := s.refuse(line, record); reason != "" {
		s.withhold(line.Offset, line.Length, index, record.Timestamp, reason)
		return true
	}
	if line.TooLong {
		s.withhold(line.Offset, line.Length, index, record.Timestamp, ReasonTooLong) // nothing about it was refused
		return true
	}
	redacted, findings := s.redact(line, record)
	if !s.fits(int64(redacted.Len())) {
		return false // what the line changed in the cursor it changes again
	}
	before := s.state.Branch
	s.state.Fold(record, s.src.Session)
	if s.state.Branch != before {
		s.branch, _ = s.redactor().Text(s.state.Branch)
	}
	s.keep(line.Offset, line.Length, index, redacted, findings)
	s.calls(record)
	return true
}

// Rules of findings for what the team's policy does not hear.
const (
	ruleThinking   = "policy-thinking"
	ruleToolResult = "policy-tool-result"
)

// redactor is that of the repository of the line at hand.
func (s *step) redactor() *redact.Redactor { return cmp.Or(s.verdict().Redactor, s.Redactor) }

// redact returns the body line for a transcript line.
func (s *step) redact(line transcript.Line, record transcript.Record) (redact.Redacted, redact.Findings) {
	redactor := s.redactor()
	if record.Type == "" {
		return redactor.Line(line.Raw)
	}
	var policy transcript.Policy
	if s.Policy != nil {
		policy = s.Policy()
	}
	raw, thoughts, results := record.Without(policy, func(id string) bool {
		return slices.Contains(s.batch.Cursor.Calls, id)
	})
	redacted, findings := redactor.Line(raw)
	for rule, n := range map[string]int{ruleThinking: thoughts, ruleToolResult: results} {
		if n == 0 {
			continue
		}
		if findings == nil {
			findings = redact.Findings{}
		}
		findings[rule] += n
	}
	return redacted, findings
}

// maxCalls bounds the calls whose results are waited for.
const maxCalls = 256

// calls keeps, in the cursor, the calls of local tools whose results are still
// to come: a result does not say which tool it is of.
func (s *step) calls(record transcript.Record) {
	cur := &s.batch.Cursor
	cur.Calls = append(cur.Calls, record.LocalCalls()...)
	for _, id := range record.Results() {
		cur.Calls = slices.DeleteFunc(cur.Calls, func(c string) bool { return c == id })
	}
	cur.Calls = cur.Calls[max(len(cur.Calls)-maxCalls, 0):]
}

// listen looks for whispers that this record shows as given.
func (s *step) listen(record transcript.Record, raw []byte) {
	if s.src.Stream != Main || record.Type != "attachment" {
		return
	}
	for _, id := range s.want.Claimed {
		// Ids are random, so the id itself is enough, however deep in JSON it
		// is escaped.
		if bytes.Contains(raw, []byte(id)) {
			s.batch.Spoken = append(s.batch.Spoken, id)
		}
	}
}
