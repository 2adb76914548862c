package appserver

import (
	"context"
	"fmt"
	"time"

	"github.com/undersong-dev/undersong/internal/letta"
)

// together is how close messages are stored that were given together.
const together = 100 * time.Millisecond

// Lookup implements [letta.Client].
//
// Four know something: this client, of turns that it saw end; the server's
// memory, of what runs now and which client ids were in which run since it
// started; the conversation's tags, of turns that were cancelled; and the
// listing, of what was stored. The listing alone cannot tell
// an answer from half of one, nor two messages of one turn from a message
// that was never answered and the next.
func (c *Client) Lookup(ctx context.Context, ref letta.Ref, id string) (letta.Delivery, letta.Turn, error) {
	const op = "look up"
	if err := checkIDs(op, ref.AgentID, ref.ConversationID); err != nil {
		return letta.DeliveryUnknown, letta.Turn{}, err
	}
	if !clientID.MatchString(id) {
		return letta.DeliveryUnknown, letta.Turn{}, fmt.Errorf("%s: %w: not a client id", op, letta.ErrInvalid)
	}
	conn, err := c.connect(ctx, op)
	if err != nil {
		return letta.DeliveryUnknown, letta.Turn{}, err
	}
	state, leave, err := conn.start(ctx, op, ref)
	if err != nil {
		return letta.DeliveryUnknown, letta.Turn{}, err
	}
	defer leave()
	view := conn.look(state)
	h, err := c.history(ctx, op, ref, id, view)
	if err != nil {
		return letta.DeliveryUnknown, letta.Turn{}, err
	}
	turn := letta.Turn{RunID: view.runOf(id)}
	c.mu.Lock()
	seen, saw := c.ended[id]
	c.mu.Unlock()
	switch {
	case saw:
		if turn = seen.turn; turn.StopReason != letta.StopEndTurn {
			turn.Reply = nil
		}
	case view.running && h.last:
		// Nothing was given to the conversation after it, and it runs.
		turn.RunID = view.runID
		return letta.DeliveryRunning, turn, nil
	case view.running && !h.stored && !h.compacted && !view.knows(id):
		// It may be ours: it is not stored in its first moments.
		turn.RunID = view.runID
		return letta.DeliveryRunning, turn, nil
	}
	switch {
	case saw && turn.StopReason != letta.StopEndTurn && h.stored:
		return letta.DeliveryNoReply, turn, nil
	case h.stored && h.answered:
		if !saw {
			switch was, err := c.cancelled(ctx, op, ref, id); {
			case err != nil:
				return letta.DeliveryUnknown, letta.Turn{}, err
			case was:
				turn.StopReason = letta.StopCancelled
				return letta.DeliveryNoReply, turn, nil
			}
		}
		turn.StopReason, turn.Reply = letta.StopEndTurn, h.reply
		return letta.DeliveryReplied, turn, nil
	case h.stored:
		return letta.DeliveryNoReply, turn, nil
	case saw && turn.StopReason == letta.StopEndTurn:
		return letta.DeliveryReplied, turn, nil // compacted since
	case saw && !h.compacted:
		// It failed or was cancelled before it was stored.
		return letta.DeliveryAbsent, turn, nil
	case h.compacted, view.knows(id):
		return letta.DeliveryUnknown, turn, nil
	}
	return letta.DeliveryAbsent, letta.Turn{}, nil
}

// history is what the listing tells of one input.
type history struct {
	stored    bool
	last      bool // no other input follows it
	answered  bool
	compacted bool
	reply     []letta.Message
}

func (c *Client) history(ctx context.Context, op string, ref letta.Ref, id string, view chatView) (history, error) {
	var h history
	var own, previous letta.Message
	inside := false
	err := c.list(ctx, op, ref, "", func(m letta.Message) {
		switch {
		case m.Type == letta.SummaryMessage:
			h.compacted = true
		case m.Type == letta.UserMessage && m.OTID == id:
			// Sent again: what counts is the last time.
			own, previous = m, m
			h = history{stored: true, last: true, compacted: h.compacted}
			inside = true
		case m.Type == letta.UserMessage && inside:
			// A message behind an answer begins a turn.
			if h.last = !h.answered && c.sameTurn(view, own, previous, m); !h.last {
				inside = false
				return
			}
			previous = m
		case inside && m.Type == letta.AssistantMessage:
			h.reply = append(h.reply, m)
			h.answered = true
		case inside:
			h.answered = false // a call of a tool, or what came of it
		}
	})
	if !h.answered {
		h.reply = nil
	}
	return h, err
}

// sameTurn reports whether a message that follows another belongs to its turn:
// given together with it, or stored once more by the server, under an id of
// the server's, when it asked the model again.
func (c *Client) sameTurn(view chatView, own, previous, m letta.Message) bool {
	switch {
	case view.knows(m.OTID):
		return view.together(own.OTID, m.OTID)
	case m.Text == own.Text || m.Text == previous.Text:
		return true
	case view.knows(own.OTID):
		return false
	}
	return !m.At.IsZero() && m.At.Sub(previous.At) <= together
}
