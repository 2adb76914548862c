package session

import (
	"context"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/internal/letta"
	"github.com/undersong-dev/undersong/internal/outcome"
	"github.com/undersong-dev/undersong/internal/store"
	"github.com/undersong-dev/undersong/internal/transcript"
)

const (
	// parkAfter is how many attempts a delivery has while other sessions'
	// turns go well: then it is at fault, not Letta or the model.
	parkAfter = 5
	// parkAnyway is how many it has in any case. With the longest waits in
	// between they take more than an hour.
	parkAnyway = 20
	// maxParked bounds status.syncState.parked. When Letta fails for all, it
	// keeps the session from giving up everything it has.
	maxParked = 8
	// parkedAgain is when a parked delivery is tried again.
	parkedAgain = 24 * time.Hour
)

// turnTimeout is how long one turn may take.
func turnTimeout(m *v1alpha1.TeamMemory) time.Duration {
	if n := m.Spec.Delivery.TurnTimeoutSeconds; n != nil {
		return time.Duration(*n) * time.Second
	}
	return letta.DefaultTurnTimeout
}

// overdue reports whether a turn of this delivery, if one still runs, runs too
// long.
func (r *Reconciler) overdue(s *scope, d *v1alpha1.Delivery) bool {
	return d != nil && d.At != nil && r.Clock.Since(d.At.Time) >= turnTimeout(s.mem)
}

// cancel asks Letta to end a turn that takes too long. What became of it is
// looked up afterwards, and asked for again a little later each time: a server
// that does not end it must not be asked all the time.
func (r *Reconciler) cancel(ctx context.Context, s *scope, c letta.Client, ref letta.Ref) error {
	wait := r.Turns.failed(s.key, true, r.retryAfter)
	if err := c.Cancel(ctx, ref); err != nil {
		return r.lettaError(s, err)
	}
	turns.WithLabelValues(resultCancelled).Inc()
	return outcome.RetryAfterf(v1alpha1.LettaRejectedReason, wait, "Letta's turn did not end within %s and is cancelled; if it goes on, restart Letta, or raise spec.delivery.turnTimeoutSeconds of TeamMemory %s", turnTimeout(s.mem), s.mem.Name)
}

// cancelRunning cancels whatever runs in the session's conversation.
func (r *Reconciler) cancelRunning(ctx context.Context, s *scope) error {
	c, err := r.Connect.Letta(ctx, s.mem)
	if err != nil {
		return err
	}
	st := s.ses.Status.SyncState
	return r.cancel(ctx, s, c, letta.Ref{AgentID: st.AgentID, ConversationID: st.ConversationID})
}

// hopeless reports whether a delivery was tried often enough.
func (r *Reconciler) hopeless(s *scope, d *v1alpha1.Delivery) bool {
	tries := max(int(d.Attempts), r.Turns.refusals(s.key))
	if tries < parkAfter || (len(s.ses.Status.SyncState.Parked) >= maxParked && !parked(s.ses, d.ID)) {
		return false
	}
	since := time.Time{}
	if d.At != nil {
		since = d.At.Time
	}
	return tries >= parkAnyway || r.Turns.othersWork(s.mem.UID, s.key, since)
}

func parked(ses *v1alpha1.Session, id string) bool {
	return slices.ContainsFunc(ses.Status.SyncState.Parked, func(p v1alpha1.ParkedDelivery) bool { return p.Delivery.ID == id })
}

// park gives a delivery up for now, so that it does not keep what comes after
// it from the memory. The archive has its words, status its cuts.
func (r *Reconciler) park(s *scope, d *v1alpha1.Delivery, b *batch) error {
	st := s.ses.Status.SyncState
	p := v1alpha1.ParkedDelivery{
		Delivery: *d, Lines: b.lines, At: metav1.NewTime(r.Clock.Now().Truncate(time.Second)), MemoryGeneration: s.mem.Generation,
	}
	if !r.unpark(s, d) {
		r.advance(s, b)
	}
	st.Parked = append(st.Parked, p)
	st.Delivery = nil
	r.spend(s)
	r.Turns.drop(s.key)
	s.after = append(s.after, func(context.Context) {
		r.Turns.worked(s.key)
		parkings.Inc()
	})
	return outcome.RetryAfterf(v1alpha1.DeliveryParkedReason, time.Millisecond, "%s", parkedMessage(s))
}

// unpark takes a delivery off the list, and reports whether it was there: then
// the writer's watermark is beyond it already.
func (r *Reconciler) unpark(s *scope, d *v1alpha1.Delivery) bool {
	st := s.ses.Status.SyncState
	n := len(st.Parked)
	st.Parked = slices.DeleteFunc(st.Parked, func(p v1alpha1.ParkedDelivery) bool { return p.Delivery.ID == d.ID })
	return len(st.Parked) < n
}

// beginParked tries the first parked delivery again whose time has come. It is
// called when nothing newer is left.
func (r *Reconciler) beginParked(ctx context.Context, s *scope, bucket *store.Bucket) error {
	st := s.ses.Status.SyncState
	for i := range st.Parked {
		p := &st.Parked[i]
		if r.untilRetry(s, p) > 0 {
			continue
		}
		if r.Turns.queued(s.key) {
			return noPlace(s)
		}
		if err := r.Connect.Resting(s.mem); err != nil {
			return err
		}
		d := p.Delivery
		d.RenderVersion = transcript.RenderVersion
		d.Phase = v1alpha1.DeliverySending
		_, b, err := r.again(ctx, s, bucket, &d)
		if err != nil {
			return err
		}
		if len(b.entries) == 0 {
			r.unpark(s, &d) // said meanwhile in another way, or forgotten
			return outcome.Waitf(v1alpha1.ProgressingReason, 0, "%s", working)
		}
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
		d.Attempts++
		p.MemoryGeneration, p.At = s.mem.Generation, metav1.NewTime(r.Clock.Now().Truncate(time.Second))
		st.Delivery = &d
		return r.prepared(s, &d)
	}
	return nil
}

// untilRetry is how long a parked delivery is left alone; not more than zero
// when its time has come.
func (r *Reconciler) untilRetry(s *scope, p *v1alpha1.ParkedDelivery) time.Duration {
	if p.MemoryGeneration != s.mem.Generation {
		return 0
	}
	return min(parkedAgain-r.Clock.Since(p.At.Time), parkedAgain)
}

// tell is the error of a session that has nothing left but parked deliveries;
// nil if it has none.
func (r *Reconciler) tellParked(s *scope) error {
	if s.ses.Status.SyncState == nil || len(s.ses.Status.SyncState.Parked) == 0 {
		return nil
	}
	wait := parkedAgain
	for i := range s.ses.Status.SyncState.Parked {
		wait = min(wait, r.untilRetry(s, &s.ses.Status.SyncState.Parked[i]))
	}
	return outcome.RetryAfterf(v1alpha1.DeliveryParkedReason, max(wait, time.Second), "%s", parkedMessage(s))
}

func parkedMessage(s *scope) string {
	return "some words were given up for now after many turns without an answer, see status.syncState.parked; they are tried again in a day, or at once when the spec of TeamMemory " + s.mem.Name + " is changed, for example to another model"
}
