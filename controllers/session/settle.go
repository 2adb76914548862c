package session

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/controllers/connect"
	"github.com/undersong-dev/undersong/internal/crash"
	"github.com/undersong-dev/undersong/internal/letta"
	"github.com/undersong-dev/undersong/internal/outcome"
	"github.com/undersong-dev/undersong/internal/store"
)

const (
	// waitForTurn is how long to wait for a turn of this process; its end
	// wakes the Session earlier.
	waitForTurn = time.Minute
	// waitForForeignTurn is how often to ask about a turn of another process.
	waitForForeignTurn = 2 * time.Second
	// waitForBusy is how often to try while somebody else's turn runs in the
	// conversation.
	waitForBusy = 5 * time.Second
	// waitForCache is how long to wait for the cache to see our own write.
	waitForCache = 100 * time.Millisecond
	// working says what is under way, from the ledger to the answer: were the
	// steps told apart, each would be a write.
	working = "Letta works on the newest words"
	// maxRetry is the longest wait between two tries of a failing turn.
	maxRetry = 5 * time.Minute
)

// settle brings a delivery that is in the ledger to its end. When this process
// prepared it, it is sent; when it ran here, its result is taken; otherwise
// nobody here knows what became of it, and Letta is asked.
func (r *Reconciler) settle(ctx context.Context, s *scope, bucket *store.Bucket, d *v1alpha1.Delivery) error {
	state, turn, err := r.Turns.look(s.key, clientID(d))
	switch state {
	case turnPrepared:
		return r.send(ctx, s, bucket, d)
	case turnRunning:
		return underWay(s, waitForTurn, working)
	case turnDone:
		if err == nil {
			return r.record(ctx, s, bucket, d, turn)
		}
		r.Turns.drop(s.key)
		return r.failed(ctx, s, turn, err)
	case turnUnknown:
	}
	if wait := r.Turns.rest(s.key); wait > 0 {
		return underWay(s, wait, working)
	}
	if r.Turns.queued(s.key) {
		return noPlace(s)
	}
	if err := r.Connect.Resting(s.mem); err != nil {
		return err
	}
	if wait := r.takeover(s, d); wait > 0 {
		return outcome.Waitf(v1alpha1.ProgressingReason, wait, "another controller began a delivery; its lease runs out first")
	}
	return r.lookUp(ctx, s, bucket, d)
}

// takeover is how long a delivery is left alone that this process has not sent:
// until nobody else can be at it who led before. It may also be that another one
// leads now, and this one has not noticed: the ledger is then younger than its
// own lead, and waited for from the moment at which it is first met.
func (r *Reconciler) takeover(s *scope, d *v1alpha1.Delivery) time.Duration {
	since := r.started
	if id := clientID(d); d.At != nil && d.At.After(r.started) {
		if r.Turns.sentHere(s.key, id) {
			return 0
		}
		since = r.Turns.met(s.key, id, r.Clock.Now())
	}
	// Never longer than the delay itself, should the clock be set back.
	return min(r.TakeoverDelay-r.Clock.Since(since), r.TakeoverDelay)
}

// send starts the turn, if the API server still has the ledger as this
// reconcile read it.
func (r *Reconciler) send(ctx context.Context, s *scope, bucket *store.Bucket, d *v1alpha1.Delivery) error {
	live := &v1alpha1.Session{}
	if err := r.Live.Get(ctx, s.key, live); err != nil {
		return fmt.Errorf("read the Session live: %w", err)
	}
	if live.Status.SyncState == nil || !equality.Semantic.DeepEqual(live.Status.SyncState.Delivery, d) {
		return underWay(s, waitForCache, working)
	}
	c, err := r.Connect.Letta(ctx, s.mem)
	if err != nil {
		return err
	}
	_, b, err := r.again(ctx, s, bucket, d)
	if err != nil {
		return err
	}
	text := nudge(d.ID)
	if d.Phase == v1alpha1.DeliverySending {
		if len(b.entries) == 0 { // all of it was erased meanwhile
			if !r.unpark(s, d) {
				r.advance(s, b)
			}
			d.Phase = v1alpha1.DeliveryPublished
			r.Turns.drop(s.key)
			return onward(s, 0, working)
		}
		text = b.message(s, d.ID) + corrections(d)
	}
	ref := letta.Ref{AgentID: s.ses.Status.SyncState.AgentID, ConversationID: s.ses.Status.SyncState.ConversationID}
	in := []letta.Input{{ClientID: clientID(d), Text: text}}
	if err := r.place(ctx, s, b.imported); err != nil {
		return err
	}
	if d.At == nil || r.Clock.Since(d.At.Time) >= turnTimeout(s.mem)/2 {
		// Whoever finds the turn running takes its age from the ledger.
		return r.prepared(s, d)
	}
	if err := r.refresh(ctx, s, c); err != nil {
		return err
	}
	opt := letta.SendOptions{Timeout: turnTimeout(s.mem)}
	bill := r.bill(s, clientID(d), b.imported, len(text))
	started := r.Turns.start(s.key, clientID(d), func(ctx context.Context) (letta.Turn, error) {
		turn, err := c.Send(ctx, ref, in, opt)
		crash.Point(crash.ControllerTurnSent)
		bill(turn, err)
		return turn, err
	})
	if !started {
		return underWay(s, waitForCache, working)
	}
	return underWay(s, waitForTurn, working)
}

// underWay waits for a turn. While an earlier try's failure stands in the
// condition it is left there until a turn succeeds: a condition that flaps
// with every try would write and report each of them.
func underWay(s *scope, after time.Duration, message string) error {
	return keeping(s, after, message, v1alpha1.LettaUnavailableReason, v1alpha1.LettaRejectedReason, v1alpha1.DeliveryParkedReason)
}

// onward waits after a turn that succeeded. Parked deliveries are still told
// of, as long as there are any.
func onward(s *scope, after time.Duration, message string) error {
	if len(s.ses.Status.SyncState.Parked) > 0 {
		return keeping(s, after, message, v1alpha1.DeliveryParkedReason)
	}
	return outcome.Waitf(v1alpha1.ProgressingReason, after, "%s", message)
}

// keeping waits, and leaves a failure for one of these reasons in the
// condition.
func keeping(s *scope, after time.Duration, message string, reasons ...string) error {
	c := apimeta.FindStatusCondition(s.ses.Status.Conditions, v1alpha1.DeliveredCondition)
	if c != nil && c.Status == metav1.ConditionFalse && slices.Contains(reasons, c.Reason) {
		return outcome.RetryAfterf(c.Reason, max(after, time.Millisecond), "%s", c.Message)
	}
	return outcome.Waitf(v1alpha1.ProgressingReason, after, "%s", message)
}

// again collects a delivery's batch once more, by its cuts.
func (r *Reconciler) again(ctx context.Context, s *scope, bucket *store.Bucket, d *v1alpha1.Delivery) (*seenSet, *batch, error) {
	seen, err := r.seen(ctx, s, bucket)
	if err != nil {
		return nil, nil, err
	}
	if w := ensureSync(s.ses, d.Workstation); !reached(v1alpha1.Cut{Segments: w.Verified.Segments}, &d.To) {
		return nil, nil, outcome.RetryAfterf(v1alpha1.SegmentMissingReason, waitForSegment, "segments of the delivery under way were lost from the archive and are asked for again")
	}
	if b := r.memos.get(s, d); b != nil {
		return seen, b, nil
	}
	l := limits{entry: maxEntry, until: &d.To, policy: policyOf(s.mem, d)}
	if d.MaxEntryBytes != 0 {
		l.entry = int(d.MaxEntryBytes)
	}
	b, err := r.collect(ctx, s, bucket, seen, ensureSync(s.ses, d.Workstation), d.From, l)
	if err == nil {
		r.memos.put(s, d, b)
	}
	return seen, b, err
}

// lookUp asks Letta what became of a delivery.
//
//	Replied → record    Running → wait, cancel what takes too long
//	NoReply → nudge     Absent  → send    Unknown → send again, counted
//
// What was tried too often is parked instead.
func (r *Reconciler) lookUp(ctx context.Context, s *scope, bucket *store.Bucket, d *v1alpha1.Delivery) error {
	c, err := r.Connect.Letta(ctx, s.mem)
	if err != nil {
		return err
	}
	// What is found out is billed beside what status has.
	if err := r.Budget.Load(ctx, s.mem); err != nil {
		return err
	}
	st := s.ses.Status.SyncState
	ref := letta.Ref{AgentID: st.AgentID, ConversationID: st.ConversationID}
	found, turn, err := c.Lookup(ctx, ref, clientID(d))
	if err != nil {
		return r.lettaError(s, err)
	}
	switch found {
	case letta.DeliveryReplied:
		return r.record(ctx, s, bucket, d, turn)
	case letta.DeliveryRunning:
		if r.overdue(s, d) {
			return r.cancel(ctx, s, c, ref)
		}
		return underWay(s, waitForForeignTurn, working)
	case letta.DeliveryNoReply, letta.DeliveryAbsent, letta.DeliveryUnknown:
	}
	// Nothing ran, and nothing was refused: that is no attempt.
	idle := found == letta.DeliveryAbsent && turn.RunID == ""
	_, b, err := r.again(ctx, s, bucket, d)
	if err != nil {
		return err
	}
	if !idle {
		r.bill(s, clientID(d), b.imported, bytesOf(b.entries))(turn, nil)
	}
	if r.hopeless(s, d) && (!idle || r.Turns.refusals(s.key) > 0) {
		return r.park(s, d, b)
	}
	if err := r.place(ctx, s, b.imported); err != nil {
		return err
	}
	switch {
	case idle:
		r.Turns.prepare(s.key, clientID(d))
		return r.send(ctx, s, bucket, d)
	case found == letta.DeliveryNoReply:
		d.Phase = v1alpha1.DeliveryNudging
	case found == letta.DeliveryUnknown:
		resends.Inc()
	}
	// Under a fresh id: the server would repeat a failure under the same one.
	retries.Inc()
	d.Attempts++
	return r.prepared(s, d)
}

// failed says what a turn's error means. The next reconcile asks Letta what
// became of it.
//
// It waits longer with each failure, whatever else wakes the Session: a turn
// costs money, and a queue's own backoff begins anew with every wait.
func (r *Reconciler) failed(ctx context.Context, s *scope, turn letta.Turn, err error) error {
	if _, busy := errors.AsType[*letta.BusyError](err); busy { // nothing was sent
		if r.overdue(s, s.ses.Status.SyncState.Delivery) {
			return r.cancelRunning(ctx, s) // what runs there is older than any turn may be
		}
		return underWay(s, waitForBusy, "another turn runs in the conversation")
	}
	refused := errors.Is(err, letta.ErrTurnFailed) || errors.Is(err, letta.ErrInvalid)
	wait := r.Turns.failed(s.key, refused, r.retryAfter)
	switch {
	case errors.Is(err, letta.ErrOutcomeUnknown):
		turns.WithLabelValues(resultUnknown).Inc()
	case refused:
		turns.WithLabelValues(resultFailed).Inc()
	}
	if errors.Is(err, letta.ErrTurnFailed) && !errors.Is(err, letta.ErrQuota) && !errors.Is(err, letta.ErrUnauthorized) && !errors.Is(err, letta.ErrUnavailable) && !errors.Is(err, letta.ErrApprovalPending) {
		return outcome.RetryAfterf(v1alpha1.LettaRejectedReason, wait, "Letta's turn ended with %s; it is tried again, see the model's logs at Letta", stopReason(turn))
	}
	err = r.lettaError(s, err)
	if o := *outcome.Of(err); o.Kind == outcome.Retry && o.After < wait {
		o.After = wait
		return &o
	}
	return err
}

// retryAfter is how long to wait after so many failed turns in a row.
func (r *Reconciler) retryAfter(failures int) time.Duration {
	base := r.RetryBase
	if base == 0 {
		base = 2 * time.Second
	}
	d := min(base<<min(failures-1, 10), maxRetry)
	return d + rand.N(d/4+1) //nolint:gosec // spreads load, guards nothing
}

// stopReason is a turn's stop reason, fit for a message.
func stopReason(t letta.Turn) string {
	if t.StopReason == "" {
		return "an error"
	}
	for _, c := range t.StopReason {
		if (c < 'a' || c > 'z') && c != '_' {
			return "an error"
		}
	}
	return t.StopReason
}

// lettaError gives an error its reason, and forgets an agent or conversation
// that Letta no longer has, so that the next reconcile makes a new one.
func (r *Reconciler) lettaError(s *scope, err error) error {
	if errors.Is(err, letta.ErrNotFound) {
		// Where spec names the agent, the next reconcile asks for it and says
		// so if it is not there.
		r.Agents.Forget(s.mem, connect.Project(s.mem, s.ses.Spec.Project.Remote))
		st := s.ses.Status.SyncState
		st.AgentID, st.ConversationID = "", ""
		if d := st.Delivery; d != nil && d.Phase != v1alpha1.DeliveryPublished {
			// What was not answered is sent to the new conversation.
			st.Delivery = nil
			r.Turns.drop(s.key)
		}
		return outcome.Retryf(v1alpha1.AgentNotFoundReason, "Letta no longer has this session's agent or conversation; a new one is made")
	}
	return r.Connect.LettaError(s.mem, err)
}

// record notes that a delivery was answered: first the seen-set, then, with
// the status, the watermark.
func (r *Reconciler) record(ctx context.Context, s *scope, bucket *store.Bucket, d *v1alpha1.Delivery, turn letta.Turn) error {
	seen, b, err := r.again(ctx, s, bucket, d)
	if err != nil {
		return err
	}
	if err := r.writeSeen(ctx, s, bucket, seen, b); err != nil {
		return err
	}
	st := s.ses.Status.SyncState
	st.Corrections = slices.DeleteFunc(st.Corrections, func(id string) bool { return slices.Contains(d.Corrections, id) })
	if !r.unpark(s, d) {
		r.advance(s, b)
	}
	d.Phase = v1alpha1.DeliveryDelivered
	r.memos.drop(s.key)
	s.ses.Status.Usage.Turns++
	r.bill(s, clientID(d), b.imported, bytesOf(b.entries))(turn, nil)
	r.spend(s)
	r.Turns.worked(s.key)
	s.after = append(s.after, func(context.Context) { turns.WithLabelValues(resultReplied).Inc() })
	crash.Point(crash.ControllerDelivered)
	return nil // it is published in the same write, or if that fails in a later one
}
