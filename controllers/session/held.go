package session

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/internal/outcome"
	"github.com/undersong-dev/undersong/internal/redact"
)

const (
	// maxHeld bounds the held segments of one writer.
	maxHeld = 16
	// waitForRelease is how often a held segment is told of; a change of the
	// TeamMemory or a request wakes the Session earlier.
	waitForRelease = 10 * time.Minute
)

// report tells of secrets that the second pass found in a segment, by rule,
// stream and line, and holds the segment where the memory wants that. The
// archive has it without them either way.
func (v *verification) report(c *candidate, found []redact.Findings) {
	rules := map[string]bool{}
	var lines []int64
	for i, f := range found {
		if len(f) > 0 {
			lines = append(lines, int64(i)+1)
		}
		for rule := range f {
			rules[rule] = true
		}
	}
	if len(lines) == 0 {
		return
	}
	first, last := lines[0], lines[len(lines)-1]
	names := slices.Sorted(maps.Keys(rules))
	v.r.tell(v.s, corev1.EventTypeWarning, v1alpha1.SecretFoundReason, fmt.Sprintf(
		"secrets that the workstation had missed were removed: %s, in stream %s, lines %d to %d of segment %d of workstation %s; change them, and update undersong there",
		strings.Join(names[:min(len(names), 8)], ", "), c.header.Stream, first, last, c.seq, v.writer.Workstation))
	if v.s.mem.Spec.OnSecret != v1alpha1.OnSecretQuarantine {
		return
	}
	held := v1alpha1.HeldSegment{Segment: c.seq, FromLine: first, ToLine: last}
	if !slices.ContainsFunc(v.sync.Held, func(h v1alpha1.HeldSegment) bool { return h.Segment == c.seq }) {
		v.sync.Held = append(v.sync.Held, held)
	}
}

// tellHeld is the error of a session that has nothing left but held segments;
// nil if it has none.
func tellHeld(s *scope) error {
	if s.ses.Status.SyncState == nil || backlog(s.ses) {
		return nil
	}
	for _, w := range s.ses.Status.SyncState.Writers {
		if len(w.Held) == 0 {
			continue
		}
		h := w.Held[0]
		return outcome.RetryAfterf(v1alpha1.SecretFoundReason, waitForRelease, "segment %d of workstation %s is held: its lines %d to %d had secrets, which the archive has no more. Set spec.onSecret of TeamMemory %s to Redact to deliver the rest, or have the lines forgotten",
			h.Segment, w.Workstation, h.FromLine, h.ToLine, s.mem.Name)
	}
	return nil
}

// release lets go of held segments whose lines with secrets were erased.
func release(sync *v1alpha1.WriterSync, segment int64, erased map[int]bool) {
	sync.Held = slices.DeleteFunc(sync.Held, func(h v1alpha1.HeldSegment) bool {
		if h.Segment != segment {
			return false
		}
		for line := h.FromLine; line <= h.ToLine; line++ {
			if !erased[int(line)-1] {
				return false
			}
		}
		return true
	})
}
