package session

import (
	"context"
	"errors"
	"slices"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/internal/segment"
	"github.com/undersong-dev/undersong/internal/store"
	"github.com/undersong-dev/undersong/internal/transcript"
)

// Bounds of what is carried along.
const (
	// carrySegments and carryRaw bound how far back is looked, in segments and in
	// their bytes.
	carrySegments = 8
	carryRaw      = segment.CloseAt
	// carryBytes bounds the tool lines carried along. It does not depend on the
	// size of batches: a person may change that between two tries of one delivery.
	carryBytes = 8 << 10
)

// policyOf says what besides words becomes memory: of a delivery in the ledger,
// what was so when its text was made, else what the memory says now.
func policyOf(mem *v1alpha1.TeamMemory, d *v1alpha1.Delivery) transcript.Policy {
	results, thinking := mem.Spec.Capture.ToolResults, mem.Spec.Capture.Thinking
	if d != nil {
		results, thinking = d.ToolResults, d.Thinking
	}
	p := transcript.Policy{Thinking: thinking == v1alpha1.AllowanceAllow}
	switch results {
	case v1alpha1.ToolResultsAll:
		p.ToolResults = transcript.AllResults
	case v1alpha1.ToolResultsNone:
		p.ToolResults = transcript.NoResults
	case v1alpha1.ToolResultsLocal:
	}
	return p
}

// said are the entries of one record.
type said struct {
	id      string
	entries []transcript.Entry
}

// talks reports whether a person or the assistant says something.
func talks(entries []transcript.Entry) bool {
	return slices.ContainsFunc(entries, func(e transcript.Entry) bool {
		return e.Speaker == transcript.User || e.Speaker == transcript.Assistant
	})
}

// carry returns the newest tool lines right before a cut, where the batch's first
// words are: those that earlier batches passed over, because tools alone make no
// turn. It tells the batch the calls whose results are still to come, too.
//
// It reads the archive only, and stops at words and at what was delivered. So a
// delivery that is tried again carries the same lines.
func (c *collecting) carry(ctx context.Context, first transcript.Record) ([]said, error) {
	var (
		records []transcript.Record // newest first
		ids     []string
		have    = map[string]bool{}
		missing = c.tools.Missing(first)
		ended   bool
		raw     int
	)
	at := c.to
	for range carrySegments {
		a, err := c.load(ctx, c.s, c.bucket, idOf(ensureSync(c.s.ses, c.batch.workstation), at.Segments+1))
		if errors.Is(err, store.ErrNotExist) {
			break // older than what the archive keeps
		}
		if err != nil {
			return nil, err
		}
		lines := a.lines
		if at == c.to {
			lines = lines[:at.Lines]
		}
		for i, line := range slices.Backward(lines) {
			raw += len(line)
			rec, err := transcript.Parse(line)
			if err != nil || a.header.Stream != segment.MainStream {
				continue
			}
			missing = append(missing, c.tools.Missing(rec)...)
			c.tools.Fold(rec)
			if ended {
				continue
			}
			id := transcript.ID(rec, a.header.Generation, a.header.Stream, a.header.Offsets[i])
			if c.seen.has(id) || talks(rec.Entries(transcript.MainStream, c.s.ses.Spec.SessionID)) {
				ended = true
			} else if !have[id] {
				have[id] = true
				records, ids = append(records, rec), append(ids, id)
			}
		}
		missing = slices.DeleteFunc(missing, c.tools.Has)
		if (ended && len(missing) == 0) || raw > carryRaw || at.Segments == 0 {
			break
		}
		at = v1alpha1.Cut{Segments: at.Segments - 1}
	}
	// The calls are known only now, so the results get their names.
	var carried []said
	size := 0
	for i, rec := range records {
		entries := rec.Memory(transcript.MainStream, c.s.ses.Spec.SessionID, c.limits.policy, &c.tools)
		if size += bytesOf(entries); size > carryBytes {
			break
		}
		if len(entries) > 0 {
			carried = append(carried, said{ids[i], entries})
		}
	}
	slices.Reverse(carried)
	return carried, nil
}
