package read

import (
	"time"

	"github.com/undersong-dev/undersong/internal/transcript"
)

// Silence is a time in which nothing may be heard, as one stream has it: a run
// of its bytes, and, for what was copied or was written late, a span of time.
type Silence struct {
	// Reason stands beside the withheld range.
	Reason string

	// Session is the session meant; empty means every one.
	Session string

	// Root is the working tree meant; empty means wherever it was said. What was
	// said nobody knows where is meant, too.
	Root string

	// From and To bound the bytes: lines of which any byte lies between are
	// withheld. From is at To where the stream has none.
	From, To int64

	// Since and Until bound the time: records that say they are of it are
	// withheld wherever they stand. A zero Until has not come yet.
	Since, Until time.Time

	// Blind says that nobody measured the stream. Then a record that gives no
	// time, as a title does, is of the time of what stands before it.
	Blind bool

	// ByClock says that Until was set in advance: a record that says it is of a
	// later time is heard, though nobody measured when the end came.
	ByClock bool
}

// Elsewhere says whether what was judged was said in another working tree than the
// one meant.
func (w *Silence) Elsewhere(v Verdict) bool {
	return w.Root != "" && v.Root != "" && v.Root != w.Root
}

// within says whether a record is of the time of a silence.
func (w *Silence) within(at time.Time) bool {
	return !at.IsZero() && !at.Before(w.Since) && (w.Until.IsZero() || at.Before(w.Until))
}

// covers says whether a line of the stream was written within the silence. at is
// the time that the record gives, last that of the newest record that gave one.
func (w *Silence) covers(line transcript.Line, at, last, generation time.Time) bool {
	switch {
	case w.within(at):
		return true
	case w.Blind:
		return at.IsZero() && w.within(last)
	case w.ByClock && !w.Until.IsZero() && !at.IsZero() && !at.Before(w.Until):
		return false
	case !w.Until.IsZero() && generation.After(w.Until):
		return false // the bytes were another file's
	}
	return line.Offset+line.Length > w.From && line.Offset < w.To
}

// silent returns the reason of a silence that a line falls into, "" where none
// does. A fork repeats what its origin said: the silences of the origin hold for
// what was copied, and one that goes on for all of the fork.
func (s *step) silent(line transcript.Line, record transcript.Record) string {
	cur := &s.batch.Cursor
	if record.ForkedFrom != "" {
		cur.ForkedFrom = record.ForkedFrom
	}
	origin := cur.ForkedFrom
	if origin == "" {
		origin = s.src.ForkedFrom
	}
	for i := range s.src.Silences {
		w := &s.src.Silences[i]
		if w.Root != "" && w.Elsewhere(s.verdict()) { // most have none, and need no verdict
			continue
		}
		switch {
		case w.Session == "" || w.Session == s.src.Session:
			if w.covers(line, record.Timestamp, cur.LastTime, cur.GenerationAt) {
				return w.Reason
			}
		case w.Session == origin && (w.Until.IsZero() || w.within(cur.LastTime)):
			return w.Reason
		}
	}
	return ""
}
