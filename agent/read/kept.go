package read

import (
	"cmp"
	"slices"
	"time"

	"github.com/undersong-dev/undersong/internal/segment"
	"github.com/undersong-dev/undersong/internal/transcript"
)

// Withheld is a range that stays on the workstation, with the first and the last
// time that records in it give; zero where none gives one. The times never leave.
type Withheld struct {
	segment.Range
	Since time.Time `json:"since,omitzero"`
	Until time.Time `json:"until,omitzero"`
}

// Kept is a range that was withheld when its stream was read before, with the
// generation of the file that its bytes are of. In that file the bytes count, in
// every other one the times: what was withheld once is so for good, whatever the
// rules are when it is read again.
type Kept struct {
	Withheld
	Generation int64 `json:"generation,omitempty"`
}

// maxKept bounds the ranges of one stream. Beyond it neighbours are joined, and
// what lies between them is withheld with them.
const maxKept = 4096

// timed is the generation of a range that has no bytes any more.
const timed = -1

// covers says whether a line was withheld. at is the newest time that a record up
// to the line gave, generation that of its file.
func (k *Kept) covers(line transcript.Line, at time.Time, generation int64) bool {
	if k.Generation == generation {
		return line.Offset < k.ToOffset && line.Offset+line.Length > k.FromOffset
	}
	return !at.Before(k.Since) && !at.After(k.Until)
}

// Withheld returns what the cursor itself knows to be withheld.
func (c *Cursor) Withheld() []Kept {
	kept := slices.Clone(c.Kept)
	for _, w := range c.Pending {
		kept = append(kept, Kept{Withheld: w, Generation: c.Generation})
	}
	return kept
}

// StartOver returns the cursor to read a stream from its beginning with, of which
// kept was withheld besides what the cursor knows. Where the file is the one that
// was read, it is the same generation of it.
func StartOver(cur Cursor, kept []Kept) Cursor {
	next := Cursor{Path: cur.Path, Generation: cur.Generation, GenerationAt: cur.GenerationAt, Baseline: cur.Baseline, ForkedFrom: cur.ForkedFrom}
	here, err := candidate(cur.Path, cur)
	here.close()
	if err != nil || here.file == nil || !here.fits {
		next.Generation, next.Baseline = next.Generation+1, 0
	}
	next.Kept = merge(append(cur.Withheld(), kept...), next.Generation)
	return next
}

// Remember returns the cursor with ranges besides that were withheld of what it
// has read, so that they need not be known from elsewhere any more.
func Remember(cur Cursor, kept []Kept) Cursor {
	cur.Kept = merge(append(slices.Clone(cur.Kept), kept...), cur.Generation)
	return cur
}

// merge returns the ranges as a file of a generation is judged by them: by bytes
// those that are of it, by time the others.
func merge(all []Kept, generation int64) []Kept {
	var bytes, times []Kept
	for _, k := range all {
		switch {
		case k.Reason == ReasonTooLong: // it is so again
		case k.Generation == generation:
			bytes = append(bytes, k)
		case k.Generation == timed:
			times = append(times, k)
		case k.Until.IsZero() && k.FromOffset > 0: // what is before it decides
		default:
			if k.FromOffset == 0 {
				k.Since = time.Time{} // the file began with it
			}
			k.Generation, k.Range = timed, segment.Range{FromIndex: segment.NoIndex, ToIndex: segment.NoIndex, Reason: k.Reason}
			times = append(times, k)
		}
	}
	slices.SortStableFunc(bytes, func(a, b Kept) int { return cmp.Compare(a.FromOffset, b.FromOffset) })
	slices.SortStableFunc(times, func(a, b Kept) int { return a.Since.Compare(b.Since) })
	bytes = joinKept(bytes, func(a, b Kept) bool { return b.FromOffset <= a.ToOffset && b.Reason == a.Reason })
	times = joinKept(times, func(a, b Kept) bool { return !b.Since.After(a.Until) })
	return append(times, bytes...)
}

// joinKept joins each range to the one before it where they meet, and all in
// pairs while there are too many.
func joinKept(ranges []Kept, meet func(a, b Kept) bool) []Kept {
	for pairs := false; ; pairs = true {
		var joined []Kept
		for i, k := range ranges {
			n := len(joined)
			if n == 0 || !meet(joined[n-1], k) && (!pairs || i%2 == 0) {
				joined = append(joined, k)
				continue
			}
			last := &joined[n-1]
			since, to := last.Since, max(last.ToOffset, k.ToOffset)
			extend(&last.Withheld, k.Withheld)
			last.ToOffset = to
			if last.Generation == timed {
				last.Since = since // the earliest, or none
			}
		}
		if ranges = joined; len(ranges) <= maxKept {
			return ranges
		}
	}
}
