package session

import (
	"context"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/controllers/internal/text"
	"github.com/undersong-dev/undersong/internal/segment"
	"github.com/undersong-dev/undersong/internal/store"
	"github.com/undersong-dev/undersong/internal/transcript"
)

const (
	// defaultBatchBytes is spec.delivery.maxBatchBytes where it is omitted.
	defaultBatchBytes = 32 << 10
	// maxBatchSegments bounds the segments of a batch whose words do not fill it.
	maxBatchSegments = 64
)

// namespaceUUID makes delivery ids our own.
var namespaceUUID = uuid.NewSHA1(uuid.NameSpaceURL, []byte("https://undersong.dev/delivery"))

// batch is a run of one writer's lines between two cuts, and what of them
// becomes memory and no earlier batch had.
//
// Only words make a batch: one without them is empty, and its lines are passed
// over. The tool lines among them are carried along by the next batch that has
// words, so that a long run of tools, which reaches us call by call, costs no
// turns of its own. From its first words on a batch takes tool lines as it takes
// words, for its cuts, its size and its ids.
type batch struct {
	workstation string
	from, to    v1alpha1.Cut
	// entries are the words and tool lines, in file order; none without words.
	entries []transcript.Entry
	// ids are the identities of the records whose entries these are.
	ids []string
	// tools are the calls seen so far.
	tools transcript.Tools
	// lines between the cuts.
	lines int64
	// lastIndex is the main stream's index reached at to; unset without a
	// line of the main stream.
	lastIndex    int64
	hasLastIndex bool
	// imported says that these are lines of before.
	imported bool
	// limits are those that the batch was made with.
	limits limits
	// state is what the records say of the session.
	state transcript.State
}

// id is the delivery's id: the same cuts of the same Session have the same id,
// whoever computes it.
func (b *batch) id(s *scope) string {
	writer := b.workstation
	if w := syncOf(s.ses, b.workstation); w != nil && w.Chapter > 0 {
		// The same numbers were other words in the chapter before.
		writer = fmt.Sprintf("%s~%d", writer, w.Chapter)
	}
	cuts := fmt.Sprintf("%s/%s/%s/%s/%d.%d-%d.%d", s.ses.Namespace, s.ses.Name, s.ses.UID, writer, b.from.Segments, b.from.Lines, b.to.Segments, b.to.Lines)
	return uuid.NewSHA1(namespaceUUID, []byte(cuts)).String()
}

// limits says where a batch ends: at the cut until, if there is one, else
// before the record that would make it larger than bytes. A text of more than
// entry bytes is cut to its head and tail. The policy says what of a record
// counts.
type limits struct {
	bytes  int
	entry  int
	until  *v1alpha1.Cut
	policy transcript.Policy
}

// collect gathers the writer's next batch from the cut from. It is empty, with
// equal cuts, when nothing verified is left. Without a fixed end it reads on
// over lines without words, but not over more than one segment of them, nor
// behind its words over more than maxBatchSegments, so that a reconcile stays
// short: a hundred subagents can stand between two words.
func (r *Reconciler) collect(ctx context.Context, s *scope, bucket *store.Bucket, seen *seenSet, w *v1alpha1.WriterSync, from v1alpha1.Cut, l limits) (*batch, error) {
	b := &batch{workstation: w.Workstation, from: from, to: from, limits: l}
	c := &collecting{Reconciler: r, batch: b, s: s, bucket: bucket, seen: seen, have: map[string]bool{}}
	end := w.Verified.Segments
	if l.until == nil {
		end = deliverable(w)
	}
	for b.to.Segments < end && !reached(b.to, l.until) {
		a, err := r.load(ctx, s, bucket, idOf(w, b.to.Segments+1))
		if err != nil {
			return nil, err
		}
		if b.lines == 0 {
			b.imported = a.header.Import
		} else if l.until == nil && b.imported != a.header.Import {
			break // they wait in different rows
		}
		full, err := c.take(ctx, a)
		if err != nil {
			return nil, err
		}
		if full || l.until == nil && (len(b.entries) == 0 && b.lines > 0 || b.to.Segments-from.Segments >= maxBatchSegments) {
			break
		}
	}
	return b, nil
}

// collecting is one call of collect.
type collecting struct {
	*Reconciler
	*batch
	s      *scope
	bucket *store.Bucket
	seen   *seenSet
	have   map[string]bool // ids in the batch
	size   int             // of its entries
}

// take adds the lines of one segment and reports whether the batch is full.
func (c *collecting) take(ctx context.Context, a *archived) (bool, error) {
	h := &a.header
	main := h.Stream == segment.MainStream
	for i := int(c.to.Lines); i < len(a.lines); i++ {
		if reached(c.to, c.limits.until) {
			return true, nil
		}
		if main { // a subagent's talk is archived and not the session's
			full, err := c.line(ctx, a, i)
			if full || err != nil {
				return full, err
			}
		}
		c.to.Lines++
		c.lines++
		if main && h.Indexes[i] != segment.NoIndex {
			c.lastIndex, c.hasLastIndex = h.Indexes[i], true
		}
	}
	// Behind its last line a segment speaks for withheld lines, too.
	if main && !a.gap() {
		c.lastIndex, c.hasLastIndex = h.LastIndex, true
	}
	c.to = v1alpha1.Cut{Segments: c.to.Segments + 1}
	return false, nil
}

// line adds what becomes memory of line i, unless that makes the batch too large.
func (c *collecting) line(ctx context.Context, a *archived, i int) (full bool, err error) {
	rec, err := transcript.Parse(a.lines[i])
	if err != nil {
		return false, nil //nolint:nilerr // a line that is no record says nothing
	}
	id := transcript.ID(rec, a.header.Generation, a.header.Stream, a.header.Offsets[i])
	if c.have[id] || c.seen.has(id) {
		c.batch.state.Fold(rec, c.s.ses.Spec.SessionID)
		c.tools.Fold(rec)
		return false, nil
	}
	entries := shorten(rec.Memory(transcript.MainStream, c.s.ses.Spec.SessionID, c.limits.policy, &c.tools), c.limits.entry)
	n := bytesOf(entries)
	if c.limits.until == nil && len(c.entries) > 0 && n > 0 && c.size+n > c.limits.bytes {
		return true, nil
	}
	c.batch.state.Fold(rec, c.s.ses.Spec.SessionID)
	if len(c.entries) == 0 {
		if !talks(entries) {
			return false, nil
		}
		carried, err := c.carry(ctx, rec)
		if err != nil {
			return false, err
		}
		for _, record := range carried {
			c.add(record)
		}
		entries = shorten(rec.Memory(transcript.MainStream, c.s.ses.Spec.SessionID, c.limits.policy, &c.tools), c.limits.entry) // with the names of calls
	}
	if len(entries) > 0 {
		c.add(said{id, entries})
	}
	return false, nil
}

// maxEntry bounds the text of one entry, in bytes. A longer one, a pasted log
// for the most part, fits no model's window and would never be answered: its
// head and tail are delivered, all of it is in the archive.
const maxEntry = 256 << 10

// shorten cuts the texts of more than most bytes.
func shorten(entries []transcript.Entry, most int) []transcript.Entry {
	for i := range entries {
		text := entries[i].Text
		if len(text) <= most {
			continue
		}
		head, tail := most*2/3, len(text)-most/4
		for !utf8.RuneStart(text[head]) {
			head--
		}
		for !utf8.RuneStart(text[tail]) {
			tail++
		}
		entries[i].Text = fmt.Sprintf("%s\n[… %d bytes are left out here …]\n%s", text[:head], tail-head, text[tail:])
	}
	return entries
}

// add adds the entries of one record.
func (c *collecting) add(record said) {
	c.entries = append(c.entries, record.entries...)
	c.ids = append(c.ids, record.id)
	c.have[record.id] = true
	c.size += bytesOf(record.entries)
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
	if b.hasLastIndex && b.imported && b.lastIndex < w.LastProcessedIndex {
		return // lines of before, of a session that went on since: it says how it is now
	}
	if b.hasLastIndex {
		w.LastProcessedIndex = b.lastIndex
		s.ses.Status.SyncState.LastProcessedIndex = b.lastIndex
	}
	st := &s.ses.Status
	if s.mem.Spec.Capture.Titles == v1alpha1.TitlesHide {
		return // see summarize
	}
	if t := s.label(b.state.Title, 60); t != "" {
		st.Title = t
	}
	if t := s.label(b.state.Tag, 60); t != "" {
		st.Tag = t
	}
	if t := s.label(b.state.PullRequest, 200); t != "" {
		st.PullRequest = t
	}
}

// label makes a text of the transcript fit for a column: scanned, printable,
// at most n characters.
func (s *scope) label(said string, n int) string {
	clean, _ := s.redactor.Text(said)
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
