package read

import (
	"cmp"

	"github.com/undersong-dev/undersong/internal/transcript"
)

// refuse returns why a line may not be heard, or "". It keeps, in the cursor,
// what later lines depend on.
func (s *step) refuse(line transcript.Line, record transcript.Record) string {
	cur := &s.batch.Cursor
	if !record.Timestamp.IsZero() {
		cur.LastTime = record.Timestamp
	}
	if line.Offset < cur.Baseline || s.beforeInit(record) {
		return s.hush(ReasonBeforeInit)
	}
	if reason := s.kept(line); reason != "" {
		return s.hush(reason)
	}
	if reason := s.silent(line, record); reason != "" {
		return s.hush(reason)
	}
	if h := s.src.History; h != nil && h.Dated && cur.LastTime.IsZero() {
		return ReasonBeforeInit // it may as well be of after it
	}
	if !record.Timestamp.IsZero() && record.Timestamp.Before(s.src.ForkedAt) {
		// Where it was said it was heard, or was not to be.
		return s.hush(ReasonInherited)
	}
	if retells(record) && cur.Hushed != "" {
		return cur.Hushed
	}
	verdict := s.verdict()
	if !verdict.Allowed {
		return s.hush(verdict.Reason)
	}
	if s.want.Project == nil {
		s.want.Project = &verdict.Project
	} else if s.want.Project.Remote != verdict.Project.Remote {
		return s.hush(ReasonOtherProject)
	}
	if record.CompactSummary && (cur.NoSummaries || s.want.NoSummaries) {
		return s.hush(ReasonRetells)
	}
	if s.prompt(record) {
		cur.Hushed = ""
	}
	return ""
}

// beforeInit says whether a line that lies behind what the file had at init is of
// before it all the same. A file that was there then and was replaced since
// begins with what was said before, and a fork begins with copies: of these the
// newest time that a record gave tells, and before the first one nothing is
// heard of a replaced file. In all other files what is new was written since,
// whatever it says: a clock may be wrong.
func (s *step) beforeInit(record transcript.Record) bool {
	cur := &s.batch.Cursor
	if cur.Generation == 0 || s.src.Baseline == 0 {
		return record.ForkedFrom != "" && cur.LastTime.Before(s.src.Init) && !cur.LastTime.IsZero()
	}
	return cur.LastTime.IsZero() || cur.LastTime.Before(s.src.Init)
}

// kept returns the reason for which a line was withheld when the stream was read
// before, "" where it was not.
func (s *step) kept(line transcript.Line) string {
	cur := &s.batch.Cursor
	for i := range cur.Kept {
		if cur.Kept[i].covers(line, cur.LastTime, cur.Generation) {
			return cur.Kept[i].Reason
		}
	}
	return ""
}

// ReasonRetells is given for a compact summary of a session of which something
// was withheld.
const ReasonRetells = "retells withheld lines"

// hush notes that something was withheld.
func (s *step) hush(reason string) string {
	s.batch.Cursor.Hushed = reason
	s.batch.Cursor.NoSummaries = true
	return reason
}

// NestedEntrypoint is what a record of a nested session is taken to say.
const NestedEntrypoint = "sdk-nested"

// verdict asks for consent, once per place.
func (s *step) verdict() Verdict {
	cur := &s.batch.Cursor
	at := place{cwd: cmp.Or(cur.LastCwd, s.src.Cwd), entrypoint: cmp.Or(cur.LastEntrypoint, s.src.Entrypoint)}
	if s.src.Nested {
		at.entrypoint = NestedEntrypoint
	}
	verdict, asked := s.verdicts[at]
	if !asked {
		verdict = s.Decide(at.cwd, at.entrypoint)
		s.verdicts[at] = verdict
	}
	return verdict
}

// retells says whether a record without a working directory of its own repeats
// what a person said.
func retells(record transcript.Record) bool {
	switch record.Type {
	case "last-prompt", "ai-title", "summary", "queue-operation":
		return true
	}
	return false
}

// prompt says whether a record holds a person's own words.
func (s *step) prompt(record transcript.Record) bool {
	if record.Type != "user" {
		return false
	}
	kind := transcript.MainStream
	if s.src.Stream != Main {
		kind = transcript.AgentStream
	}
	for _, entry := range record.Entries(kind, s.src.Session) {
		if entry.Speaker == transcript.User {
			return true
		}
	}
	return false
}
