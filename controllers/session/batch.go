package session

import (
	"context"
	"fmt"
	"strings"

	"github.com/google/uuid"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/controllers/internal/text"
	"github.com/undersong-dev/undersong/internal/segment"
	"github.com/undersong-dev/undersong/internal/store"
	"github.com/undersong-dev/undersong/internal/transcript"
)

// defaultBatchBytes is spec.delivery.maxBatchBytes where it is omitted.
const defaultBatchBytes = 32 << 10

// namespaceUUID makes delivery ids our own.
var namespaceUUID = uuid.NewSHA1(uuid.NameSpaceURL, []byte("https://undersong.dev/delivery"))

// batch is a run of one writer's lines between two cuts, and the words in it
// that no earlier batch had.
type batch struct {
	workstation string
	from, to    v1alpha1.Cut
	// entries are the words, in file order.
	entries []transcript.Entry
	// ids are the identities of the records whose words these are.
	ids []string
	// lines between the cuts.
	lines int64
	// lastIndex is the main stream's index reached at to; unset without a
	// line of the main stream.
	lastIndex    int64
	hasLastIndex bool
	// state is what the records say of the session.
	state transcript.State
}

// id is the delivery's id: the same cuts of the same Session have the same id,
// whoever computes it.
func (b *batch) id(s *scope) string {
	cuts := fmt.Sprintf("%s/%s/%s/%s/%d.%d-%d.%d", s.ses.Namespace, s.ses.Name, s.ses.UID, b.workstation, b.from.Segments, b.from.Lines, b.to.Segments, b.to.Lines)
	return uuid.NewSHA1(namespaceUUID, []byte(cuts)).String()
}

// limits says where a batch ends: at the cut until, if there is one, else
// before the record that would make it larger than bytes.
type limits struct {
	bytes int
	until *v1alpha1.Cut
}

// collect gathers the writer's next batch from the cut from. It is empty, with
// equal cuts, when nothing verified is left. Without a fixed end it reads on
// over lines without words, but not over more than one segment of them, so
// that a reconcile stays short.
func (r *Reconciler) collect(ctx context.Context, s *scope, bucket *store.Bucket, seen *seenSet, w *v1alpha1.WriterSync, from v1alpha1.Cut, l limits) (*batch, error) {
	b := &batch{workstation: w.Workstation, from: from, to: from}
	have := map[string]bool{}
	size := 0
	for b.to.Segments < w.Verified.Segments && !reached(b.to, l.until) {
		a, err := r.load(ctx, s, bucket, segmentID{w.Workstation, b.to.Segments + 1})
		if err != nil {
			return nil, err
		}
		full := b.take(s, a, seen, have, &size, l)
		if full || (l.until == nil && len(b.entries) == 0 && b.lines > 0) {
			break
		}
	}
	return b, nil
}

// take adds the lines of one segment and reports whether the batch is full.
func (b *batch) take(s *scope, a *archived, seen *seenSet, have map[string]bool, size *int, l limits) bool {
	h := &a.header
	kind := transcript.MainStream
	if h.Stream != segment.MainStream {
		kind = transcript.AgentStream
	}
	for i := int(b.to.Lines); i < len(a.lines); i++ {
		if reached(b.to, l.until) {
			return true
		}
		entries, id := b.words(s, a, kind, i, seen, have)
		n := bytesOf(entries)
		if l.until == nil && len(b.entries) > 0 && n > 0 && *size+n > l.bytes {
			return true
		}
		if len(entries) > 0 {
			b.entries = append(b.entries, entries...)
			b.ids = append(b.ids, id)
			have[id] = true
			*size += n
		}
		b.to.Lines++
		b.lines++
		if kind == transcript.MainStream && h.Indexes[i] != segment.NoIndex {
			b.lastIndex, b.hasLastIndex = h.Indexes[i], true
		}
	}
	// Behind its last line a segment speaks for withheld lines, too.
	if kind == transcript.MainStream && !a.gap() {
		b.lastIndex, b.hasLastIndex = h.LastIndex, true
	}
	b.to = v1alpha1.Cut{Segments: b.to.Segments + 1}
	return false
}

// words returns the new words of line i and the identity of its record.
func (b *batch) words(s *scope, a *archived, kind transcript.StreamKind, i int, seen *seenSet, have map[string]bool) ([]transcript.Entry, string) {
	rec, err := transcript.Parse(a.lines[i])
	if err != nil {
		return nil, ""
	}
	if kind == transcript.MainStream {
		b.state.Fold(rec, s.ses.Spec.SessionID)
	} else {
		return nil, "" // a subagent's talk is archived and not the session's
	}
	id := transcript.ID(rec, a.header.Generation, a.header.Stream, a.header.Offsets[i])
	if have[id] || seen.has(id) {
		return nil, id
	}
	return rec.Entries(kind, s.ses.Spec.SessionID), id
}

// message renders the batch as one message to the agent.
func (b *batch) message(s *scope, id string) string {
	var w strings.Builder
	fmt.Fprintf(&w, "<transcript_delta id=%q session=%q project=%q>\n", id, s.ses.Spec.SessionID, s.ses.Spec.Project.Remote)
	transcript.Render(&w, b.entries)
	w.WriteString("</transcript_delta>")
	return w.String()
}

// nudge asks for the answer to a delta that Letta has and did not answer.
func nudge(id string) string {
	return fmt.Sprintf("The transcript_delta with the id %q was not answered. Handle it now, once, and answer as always.", id)
}

// advance moves the writer's watermark to the end of the batch.
func (r *Reconciler) advance(s *scope, b *batch) {
	w := ensureSync(s.ses, b.workstation)
	w.Delivered = b.to
	w.Lines += b.lines
	if b.hasLastIndex {
		w.LastProcessedIndex = b.lastIndex
		s.ses.Status.SyncState.LastProcessedIndex = b.lastIndex
	}
	st := &s.ses.Status
	if t := r.label(b.state.Title, 60); t != "" {
		st.Title = t
	}
	if t := r.label(b.state.Tag, 60); t != "" {
		st.Tag = t
	}
	if t := r.label(b.state.PullRequest, 200); t != "" {
		st.PullRequest = t
	}
}

// label makes a text of the transcript fit for a column: scanned, printable,
// at most n characters.
func (r *Reconciler) label(s string, n int) string {
	clean, _ := r.Redactor.Text(s)
	return text.Label(clean, n)
}

// reached reports whether a cut is at or behind the end, if there is one.
func reached(c v1alpha1.Cut, end *v1alpha1.Cut) bool {
	return end != nil && (c.Segments > end.Segments || (c.Segments == end.Segments && c.Lines >= end.Lines))
}

func bytesOf(entries []transcript.Entry) int {
	n := 0
	for _, e := range entries {
		n += len(e.Text)
	}
	return n
}
