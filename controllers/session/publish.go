package session

import (
	"context"
	"errors"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/internal/crash"
	"github.com/undersong-dev/undersong/internal/letta"
)

// publish shows what came of the newest delivery: the agent's answer, sealed
// to the owner, and the memory as it is now. When it returns nil both stand in
// status and in the MemoryBlocks.
func (r *Reconciler) publish(ctx context.Context, s *scope) error {
	d := s.ses.Status.SyncState.Delivery
	if d == nil || d.Phase != v1alpha1.DeliveryDelivered {
		return nil
	}
	c, err := r.Connect.Letta(ctx, s.mem)
	if err != nil {
		return err
	}
	turn, err := r.answerOf(ctx, s, c, d)
	if err != nil {
		return err
	}
	if err := r.memory(ctx, s, c); err != nil {
		return err
	}
	if err := r.whisper(ctx, s, d, turn); err != nil {
		return err
	}
	if id := turn.LastMessageID(); id != "" {
		s.ses.Status.SyncState.LastSeenMessageID = id
	}
	d.Phase = v1alpha1.DeliveryPublished
	s.after = append(s.after, func(context.Context) {
		r.Turns.drop(s.key)
		crash.Point(crash.ControllerPublished)
	})
	return nil
}

// answerOf returns the turn's reply: from this process, or from Letta where
// another one had it.
func (r *Reconciler) answerOf(ctx context.Context, s *scope, c letta.Client, d *v1alpha1.Delivery) (letta.Turn, error) {
	if state, turn, err := r.Turns.look(s.key, clientID(d)); state == turnDone && err == nil {
		return turn, nil
	}
	st := s.ses.Status.SyncState
	found, turn, err := c.Lookup(ctx, letta.Ref{AgentID: st.AgentID, ConversationID: st.ConversationID}, clientID(d))
	switch {
	case errors.Is(err, letta.ErrNotFound), err == nil && found != letta.DeliveryReplied:
		// The conversation is gone, or was compacted meanwhile: the words are
		// in the memory, the whisper about them is lost.
		ctrl.LoggerFrom(ctx).Info("Publishing without the answer, which Letta no longer has")
		return letta.Turn{}, nil
	case err != nil:
		return letta.Turn{}, r.Connect.LettaError(s.mem, err)
	}
	return turn, nil
}
