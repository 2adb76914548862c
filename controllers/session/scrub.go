package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/internal/crash"
	"github.com/undersong-dev/undersong/internal/letta"
	"github.com/undersong-dev/undersong/internal/outcome"
	"github.com/undersong-dev/undersong/internal/segment"
	"github.com/undersong-dev/undersong/internal/store"
)

// eventScrubbed is the reason of the event of a Session out of whose words a text
// was taken.
const eventScrubbed = "Scrubbed"

// maxAbandoned bounds status.syncState.abandoned.
const maxAbandoned = 8

// abandon notes that the session's conversation, which cannot be deleted, is not
// gone on with.
func abandon(y *v1alpha1.SyncState) {
	y.Abandoned = slices.DeleteFunc(y.Abandoned, func(id string) bool { return id == y.ConversationID })
	y.Abandoned = append(y.Abandoned, y.ConversationID)
	y.Abandoned = y.Abandoned[max(0, len(y.Abandoned)-maxAbandoned):]
}

// leftConversation says of a conversation that it stays.
func leftConversation(id string) string {
	return "the conversation " + id + " at Letta, which this back end cannot delete; nobody goes on with it"
}

// maxScrubbed bounds the segments that one reconcile rewrites.
const maxScrubbed = 16

// Scrubs is where the Scrubber, which looks for a text in everything, leaves the
// Sessions in which it found it, for the Reconciler, which alone changes what a
// Session has. It is lost with the process: the Scrubber then looks again.
type Scrubs struct {
	// Events wakes a Session that something is left for.
	Events chan event.GenericEvent

	mu    sync.Mutex
	tasks map[types.NamespacedName]*scrubTask
	// round counts how often somebody waited for the reconciles that run; open
	// has those that do, by the round in which they began.
	round int
	open  map[int]int
}

// NewScrubs returns an empty one.
func NewScrubs() *Scrubs {
	return &Scrubs{Events: make(chan event.GenericEvent, 16), tasks: map[types.NamespacedName]*scrubTask{}, open: map[int]int{}}
}

// scrubTask is what is to be done in one Session.
type scrubTask struct {
	// hits are the lines in which the text stands, by segment.
	hits map[segmentID][]int
	// said means that it stands in the session's conversation, and named that it
	// stands in the session's record, which is written anew.
	said, named bool

	// unsaid and rewritten are how far it is.
	unsaid    bool
	rewritten int
	// stays means that the conversation could not be deleted.
	stays bool
	// left is what could not be reached.
	left []string
	done chan struct{}
}

// ids are the segments, in order.
func (t *scrubTask) ids() []segmentID {
	return slices.SortedFunc(maps.Keys(t.hits), func(a, b segmentID) int {
		return cmp.Or(cmp.Compare(a.workstation, b.workstation), cmp.Compare(a.chapter, b.chapter), cmp.Compare(a.seq, b.seq))
	})
}

// task is what is to be done in a Session, nil if nothing.
func (q *Scrubs) task(key types.NamespacedName) *scrubTask {
	if q == nil {
		return nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.tasks[key]
}

// put leaves a task for a Session.
func (q *Scrubs) put(key types.NamespacedName, t *scrubTask) {
	t.done = make(chan struct{})
	q.mu.Lock()
	defer q.mu.Unlock()
	q.tasks[key] = t
}

// take takes it back, done or not.
func (q *Scrubs) take(key types.NamespacedName) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.tasks, key)
}

// begin notes that a reconcile runs, until the returned function is called.
func (q *Scrubs) begin() (end func()) {
	if q == nil {
		return func() {}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	round := q.round
	q.open[round]++
	return func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		if q.open[round]--; q.open[round] == 0 {
			delete(q.open, round)
		}
	}
}

// settled returns a function that says whether all reconciles are over that run
// now: they began before the caller's TeamMemory was theirs.
func (q *Scrubs) settled() func() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.round++
	round := q.round
	return func() bool {
		q.mu.Lock()
		defer q.mu.Unlock()
		for began := range q.open {
			if began < round {
				return false
			}
		}
		return true
	}
}

// wake puts a Session into the queue.
func (q *Scrubs) wake(key types.NamespacedName) {
	select {
	case q.Events <- wake(key):
	default: // it is tried again
	}
}

// scrub takes a text out of the Session, where the Scrubber found it: first of
// all that Letta and status have, then of the archive. Until that is done nothing
// more is given to Letta, and after each step the next process can begin again.
// The redactor of the memory finds the text; who may not know it need not.
func (r *Reconciler) scrub(ctx context.Context, s *scope) error {
	t := r.Scrubs.task(s.key)
	if t == nil {
		return nil
	}
	bucket, err := r.Connect.Store(ctx, s.mem)
	if err != nil {
		return err
	}
	if !t.unsaid {
		if err := r.unsay(ctx, s, t); err != nil {
			return err
		}
		s.anew = s.anew || t.named
		s.after = append(s.after, func(context.Context) {
			t.unsaid = true
		})
		return outcome.Waitf(v1alpha1.ProgressingReason, time.Millisecond, "a text is taken out of the session, as spec.scrubs of TeamMemory %s asks", s.mem.Name)
	}
	ids := t.ids()
	for n := 0; t.rewritten < len(ids); n++ {
		if n == maxScrubbed {
			return outcome.Waitf(v1alpha1.ProgressingReason, time.Millisecond, "a text is taken out of the session, as spec.scrubs of TeamMemory %s asks", s.mem.Name)
		}
		if err := r.scrubSegment(ctx, s, bucket, t, ids[t.rewritten]); err != nil {
			return err
		}
		t.rewritten++
	}
	if len(t.hits) > 0 {
		r.tell(s, corev1.EventTypeWarning, eventScrubbed, "a text was taken out of the words of this session, as a lead asked by spec.scrubs of its TeamMemory")
	}
	s.after = append(s.after, func(context.Context) {
		r.Scrubs.take(s.key)
		close(t.done)
	})
	return nil
}

// scrubSegment rewrites one segment of the archive, under the same key.
func (r *Reconciler) scrubSegment(ctx context.Context, s *scope, bucket *store.Bucket, t *scrubTask, id segmentID) error {
	key, err := r.find(ctx, s, bucket, id)
	var a *archived
	var raw []byte
	if err == nil {
		a, raw, err = r.read(ctx, s, bucket, id, key)
	}
	if _, bad := errors.AsType[*damageError](err); bad {
		t.left = append(t.left, fmt.Sprintf("segment %d of workstation %s of Session %s, which is damaged or gone: have the bucket restored and scrub again", id.seq, id.workstation, s.ses.Name))
		return nil
	}
	if err != nil {
		return err
	}
	clean, _ := s.redactor.Lines(a.lines)
	if raw, err = segment.Rewrite(raw, clean); err != nil {
		return damaged(id, err)
	}
	delete(s.archive, id)
	if err := bucket.Put(ctx, key, segment.Pack(raw)); err != nil {
		return r.Connect.StoreError(s.mem, err)
	}
	return nil
}

// hearAll is hear for lines of several segments.
func (e *erasure) hearAll(hits map[segmentID][]int) {
	for id, lines := range hits {
		sync := syncOf(e.s.ses, id.workstation)
		if sync == nil {
			continue
		}
		if id.chapter != sync.Chapter {
			e.told = true // how far those came is not known any more
			continue
		}
		a := &archived{header: segment.Header{Seq: id.seq}}
		for _, line := range lines {
			e.hear(a, line, sync)
		}
	}
}

// told reports whether a Session's conversation has some of these lines, or is
// about to.
func told(ses *v1alpha1.Session, hits map[segmentID][]int) bool {
	if y := ses.Status.SyncState; y == nil || y.ConversationID == "" {
		return false
	}
	e := &erasure{s: &scope{ses: ses.DeepCopy()}}
	e.hearAll(hits)
	return e.told
}

// unsay takes the text from what status shows, and from the conversation, if it
// stands there or is just being said: a message cannot be taken back, so the
// conversation goes as a whole, and the session begins another one. What was not
// answered is sent to that one, without the text.
func (r *Reconciler) unsay(ctx context.Context, s *scope, t *scrubTask) error {
	st := &s.ses.Status
	st.Title, st.Tag, st.PullRequest = s.label(st.Title, 60), s.label(st.Tag, 60), s.label(st.PullRequest, 200)
	e := &erasure{r: r, s: s}
	answer := v1alpha1.DeliveryAnswer("")
	if d := st.SyncState.Delivery; d != nil {
		answer = d.Answer
	}
	e.hearAll(t.hits)
	for _, w := range slices.Clone(st.Whispers) {
		if _, found := s.redactor.Text(w.Text); found.Known() > 0 {
			t.said = true
		}
	}
	if !t.said && !e.told {
		return nil
	}
	takeBackAll(st)
	y := st.SyncState
	if y.ConversationID == "" {
		return nil
	}
	c, err := r.Connect.Letta(ctx, s.mem)
	if err != nil {
		return err
	}
	ref := letta.Ref{AgentID: y.AgentID, ConversationID: y.ConversationID}
	d := y.Delivery
	open := d != nil && (d.Phase == v1alpha1.DeliverySending || d.Phase == v1alpha1.DeliveryNudging)
	if open {
		if err := c.Cancel(ctx, ref); err != nil && !errors.Is(err, letta.ErrNotFound) {
			return r.Connect.LettaError(s.mem, err)
		}
	}
	err = c.DeleteConversation(ctx, ref)
	switch {
	case errors.Is(err, letta.ErrUnsupported):
		t.stays = true
		abandon(y)
		t.left = append(t.left, leftConversation(y.ConversationID))
	case err != nil && !errors.Is(err, letta.ErrNotFound):
		return r.Connect.LettaError(s.mem, err)
	}
	crash.Point(crash.ControllerConversationDeleted)
	y.ConversationID, y.LastSeenMessageID = "", ""
	switch {
	case open:
		// Under a fresh id: the server would repeat an answer that it has.
		if err := r.conversation(ctx, s, c); err != nil {
			return err
		}
		d.Phase, d.Answer, d.At = v1alpha1.DeliverySending, answer, nil
		d.Attempts++
		r.Turns.prepare(s.key, clientID(d))
	case d != nil && d.Phase == v1alpha1.DeliveryDelivered:
		// Its answer is gone; what the memory learned is there.
		d.Phase = v1alpha1.DeliveryPublished
		r.Turns.drop(s.key)
	}
	return nil
}
