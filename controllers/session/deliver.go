package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/controllers/budget"
	"github.com/undersong-dev/undersong/controllers/connect"
	"github.com/undersong-dev/undersong/internal/crash"
	"github.com/undersong-dev/undersong/internal/letta"
	"github.com/undersong-dev/undersong/internal/outcome"
	"github.com/undersong-dev/undersong/internal/store"
	"github.com/undersong-dev/undersong/internal/transcript"
)

const (
	// defaultConcurrentTurns is spec.delivery.maxConcurrentTurns where it is
	// omitted.
	defaultConcurrentTurns = 4
	// waitForSlot is the longest wait for a place among a memory's turns; a
	// place that comes free wakes the Session earlier.
	waitForSlot = 15 * time.Second
	// maxPasses bounds the runs of lines without words that one reconcile
	// passes over.
	maxPasses = 16
)

// deliver gives the verified words to the session's Letta conversation, one
// turn at a time. When it returns nil the newest delivery was answered, or
// nothing with words is left.
//
//	(none) ──ledger──▶ Sending ──turn──▶ Delivered ──publish──▶ Published
//	                    │   ▲
//	                    ▼   │ a turn without an answer
//	                   Nudging
//
// The ledger is written before anything is sent, and nothing is sent but in a
// later reconcile after a live read, so that two processes, or one that died,
// never send the same words twice knowingly.
func (r *Reconciler) deliver(ctx context.Context, s *scope) error {
	if err := r.requests(ctx, s); err != nil {
		return err
	}
	d := s.ses.Status.SyncState.Delivery
	if d != nil && d.Phase == v1alpha1.DeliveryDelivered {
		return nil // the answer is published before more is sent
	}
	if m := s.mem.Spec.Suspend; m == v1alpha1.SuspendDelivery || m == v1alpha1.SuspendAll {
		if d == nil || d.Phase == v1alpha1.DeliveryPublished || !r.Turns.runs(s.key, clientID(d)) {
			r.Turns.abandon(s.key)
			return outcome.Waitf(v1alpha1.SuspendedReason, 5*time.Minute, "spec.suspend of TeamMemory %s holds deliveries back", s.mem.Name)
		}
		// What was sent is answered, and the answer is recorded.
	}
	bucket, err := r.Connect.Store(ctx, s.mem)
	if err != nil {
		return err
	}
	if d != nil && (d.Phase == v1alpha1.DeliverySending || d.Phase == v1alpha1.DeliveryNudging) {
		return r.mend(ctx, s, bucket, r.settle(ctx, s, bucket, d))
	}
	if !backlog(s.ses) {
		return r.beginParked(ctx, s, bucket)
	}
	if r.Turns.queued(s.key) {
		return noPlace(s) // what it has to say is known, and there is no place yet
	}
	if err := r.Connect.Resting(s.mem); err != nil {
		return err
	}
	if wait := r.pause(s); wait > 0 {
		return underWay(s, wait, "more words are gathered for the next turn; see spec.delivery.minIntervalSeconds of TeamMemory "+s.mem.Name)
	}
	return r.mend(ctx, s, bucket, r.begin(ctx, s, bucket))
}

// pause is how long a session that goes on gathers words for its next turn.
func (r *Reconciler) pause(s *scope) time.Duration {
	n := s.mem.Spec.Delivery.MinIntervalSeconds
	if n == nil || *n == 0 || r.state(s.ses) == v1alpha1.SessionEnded {
		return 0
	}
	return r.Turns.pause(s.key, time.Duration(*n)*time.Second)
}

// begin passes over lines without words and writes the ledger for the next
// batch with words.
func (r *Reconciler) begin(ctx context.Context, s *scope, bucket *store.Bucket) error {
	if err := r.inherit(ctx, s, bucket); err != nil {
		return err
	}
	seen, err := r.seen(ctx, s, bucket)
	if err != nil {
		return err
	}
	for range maxPasses {
		b, err := r.next(ctx, s, bucket, seen)
		if err != nil || b == nil {
			return err
		}
		if len(b.entries) > 0 {
			return r.ledger(ctx, s, bucket, seen, b)
		}
		r.advance(s, b)
	}
	return outcome.Waitf(v1alpha1.ProgressingReason, 0, "more lines wait to be delivered")
}

// next collects the next batch of the first writer that has one.
func (r *Reconciler) next(ctx context.Context, s *scope, bucket *store.Bucket, seen *seenSet) (*batch, error) {
	for i := range s.ses.Status.SyncState.Writers {
		w := &s.ses.Status.SyncState.Writers[i]
		if w.Delivered.Segments >= deliverable(w) {
			continue
		}
		return r.collect(ctx, s, bucket, seen, w, w.Delivered, r.limitsOf(s))
	}
	return nil, nil //nolint:nilnil // nothing left is an answer
}

const (
	// windowPart is the part of the model's window that one batch may fill,
	// and entryPart the part that one record may.
	windowPart = 8
	entryPart  = 4
	// minBatchBytes is the least of both: a window that small is a mistake.
	minBatchBytes = 1 << 10
)

// limitsOf are those of the next batch: the policy's, and the model's where
// Letta tells.
func (r *Reconciler) limitsOf(s *scope) limits {
	l := limits{bytes: defaultBatchBytes, entry: maxEntry, policy: policyOf(s.mem, nil)}
	if n := s.mem.Spec.Delivery.MaxBatchBytes; n != nil {
		l.bytes = int(*n)
	}
	if window := r.Agents.Window(s.mem, connect.Project(s.mem, s.ses.Spec.Project.Remote)); window > 0 {
		bytes := window * budget.BytesPerToken
		l.bytes = min(l.bytes, max(bytes/windowPart, minBatchBytes))
		l.entry = min(l.entry, max(bytes/entryPart, minBatchBytes))
	}
	return l
}

// ledger takes a place among the memory's turns, makes sure that there is a
// conversation, and notes what is about to be sent.
func (r *Reconciler) ledger(ctx context.Context, s *scope, bucket *store.Bucket, seen *seenSet, b *batch) error {
	if err := r.place(ctx, s, b.imported); err != nil {
		return err
	}
	c, err := r.Connect.Letta(ctx, s.mem)
	if err == nil {
		err = r.conversation(ctx, s, c)
	}
	if err != nil {
		r.Turns.drop(s.key)
		return err
	}
	if l := r.limitsOf(s); l.bytes < b.limits.bytes || l.entry < b.limits.entry {
		// Only now the model's window is known.
		if b, err = r.collect(ctx, s, bucket, seen, ensureSync(s.ses, b.workstation), b.from, l); err != nil {
			return err
		}
	}
	d := &v1alpha1.Delivery{
		ID: b.id(s), Workstation: b.workstation, From: b.from, To: b.to,
		RenderVersion: transcript.RenderVersion, Phase: v1alpha1.DeliverySending, Attempts: 1,
		ToolResults: s.mem.Spec.Capture.ToolResults, Thinking: s.mem.Spec.Capture.Thinking,
		Corrections: slices.Clone(s.ses.Status.SyncState.Corrections),
	}
	if b.limits.entry != maxEntry {
		d.MaxEntryBytes = int32(b.limits.entry) //nolint:gosec // at most maxEntry
	}
	s.ses.Status.SyncState.Delivery = d
	r.memos.put(s, d, b)
	return r.prepared(s, d)
}

// place takes a place among the memory's turns, if the budget allows one more.
// A Session that has one keeps it. An error is an outcome that waits.
func (r *Reconciler) place(ctx context.Context, s *scope, imported bool) error {
	if err := r.Budget.Open(ctx, s.mem, s.ses.Spec.Owner, imported); err != nil {
		r.Turns.give(s.key)
		return err
	}
	if !r.Turns.reserve(s.mem.UID, s.key, claim{s.ses.Spec.Owner, imported}, turnLimit(s.mem)) {
		return noPlace(s)
	}
	return nil
}

func turnLimit(m *v1alpha1.TeamMemory) int {
	if n := m.Spec.Delivery.MaxConcurrentTurns; n != nil {
		return int(*n)
	}
	return defaultConcurrentTurns
}

// noPlace waits for a place.
func noPlace(s *scope) error {
	return underWay(s, waitForSlot, fmt.Sprintf("waits for one of the %d turns that TeamMemory %s runs at a time", turnLimit(s.mem), s.mem.Name))
}

// prepared says that the ledger is in status and will be acted on by the next
// reconcile.
func (r *Reconciler) prepared(s *scope, d *v1alpha1.Delivery) error {
	now := metav1.NewTime(r.Clock.Now().Truncate(time.Second))
	d.At = &now
	r.spend(s)
	r.Turns.prepare(s.key, clientID(d))
	s.after = append(s.after, func(context.Context) { crash.Point(crash.ControllerLedgerWritten) })
	return underWay(s, 0, working)
}

// conversation finds or makes the session's conversation and notes it in
// status. Neither Letta call is idempotent, so it looks before it makes one.
func (r *Reconciler) conversation(ctx context.Context, s *scope, c letta.Client) error {
	st := s.ses.Status.SyncState
	project := connect.Project(s.mem, s.ses.Spec.Project.Remote)
	agent, err := r.Agents.Ensure(ctx, c, s.mem, project)
	if errors.Is(err, letta.ErrNotFound) && s.mem.Spec.Agent.ID != "" {
		return outcome.RetryAfterf(v1alpha1.AgentNotFoundReason, waitForSegment, "Letta has no agent %s; correct spec.agent.id of TeamMemory %s", s.mem.Spec.Agent.ID, s.mem.Name)
	}
	if err != nil {
		return r.lettaError(s, err)
	}
	if st.ConversationID != "" && st.AgentID == agent {
		return nil
	}
	summary := fmt.Sprintf("undersong %s/%s %s", s.ses.Namespace, s.ses.Name, s.ses.UID)
	found, err := c.Conversations(ctx, agent, summary)
	if err != nil {
		return r.lettaError(s, err)
	}
	for _, one := range found {
		if !slices.Contains(st.Abandoned, one.ID) {
			st.AgentID, st.ConversationID = agent, one.ID
			return nil
		}
	}
	made, err := c.CreateConversation(ctx, agent, letta.ConversationSpec{Summary: summary})
	if err != nil {
		return r.lettaError(s, err)
	}
	crash.Point(crash.ControllerConversationCreated)
	st.AgentID, st.ConversationID = agent, made.ID
	return nil
}

// clientID names one attempt of a delivery. The first is the delivery's own
// id; a later one gets a fresh id, because a server that remembers the earlier
// one would give its failure again.
func clientID(d *v1alpha1.Delivery) string {
	if d.Attempts <= 1 {
		return d.ID
	}
	return fmt.Sprintf("%s-%d", d.ID, d.Attempts)
}
