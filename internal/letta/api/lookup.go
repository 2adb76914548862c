package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"

	"github.com/undersong-dev/undersong/internal/letta"
)

// Lookup implements [letta.Client].
//
// It asks three times at most. The replay of the turn by our id knows
// everything, for three hours. A turn that is not over by the replay is asked
// for by its run. Only when neither tells is the conversation listed: it says
// whether the message was stored, which a failed first step does not do.
func (c *Client) Lookup(ctx context.Context, ref letta.Ref, id string) (letta.Delivery, letta.Turn, error) {
	const op = "look up"
	if err := checkIDs(op, ref.AgentID, ref.ConversationID); err != nil {
		return letta.DeliveryUnknown, letta.Turn{}, err
	}
	if !clientID.MatchString(id) {
		return letta.DeliveryUnknown, letta.Turn{}, fmt.Errorf("%s: %w: not a client id", op, letta.ErrInvalid)
	}
	turn, known, err := c.replay(ctx, op, ref, id)
	if err != nil {
		return letta.DeliveryUnknown, letta.Turn{}, err
	}
	if turn.RunID != "" && turn.StopReason == "" {
		running, err := c.askRun(ctx, op, &turn)
		if err != nil {
			return letta.DeliveryUnknown, letta.Turn{}, err
		}
		if running {
			return letta.DeliveryRunning, turn, nil
		}
	} else if turn.StopReason == letta.StopEndTurn {
		return letta.DeliveryReplied, turn, nil
	}

	h, err := c.history(ctx, op, ref, id)
	if err != nil {
		return letta.DeliveryUnknown, letta.Turn{}, err
	}
	if !h.stored && turn.StopReason == letta.StopEndTurn {
		// The run is known to have ended well; the listing lost it.
		return letta.DeliveryReplied, turn, nil
	}
	if !h.stored {
		return c.notStored(ctx, op, ref, turn, known, h.compacted)
	}
	if turn.RunID == "" && h.runID != "" {
		turn.RunID = h.runID
		running, err := c.askRun(ctx, op, &turn)
		if err != nil {
			return letta.DeliveryUnknown, letta.Turn{}, err
		}
		if running {
			return letta.DeliveryRunning, turn, nil
		}
	}
	// The run's own word counts for more than an answer that may stem from
	// the step before the one that failed.
	if turn.StopReason == letta.StopEndTurn || (turn.StopReason == "" && len(h.reply) > 0) {
		turn.StopReason = letta.StopEndTurn
		turn.Reply = h.reply
		return letta.DeliveryReplied, turn, nil
	}
	turn.Reply = nil
	return letta.DeliveryNoReply, turn, nil
}

// notStored decides for an id that the conversation does not list.
func (c *Client) notStored(ctx context.Context, op string, ref letta.Ref, turn letta.Turn, known, compacted bool) (letta.Delivery, letta.Turn, error) {
	turn.Reply = nil
	if !known {
		// The server could not tell the run by our id, so that a run of the
		// conversation may be ours: its first step is not stored yet.
		running, err := c.anyRun(ctx, op, ref)
		if err != nil {
			return letta.DeliveryUnknown, letta.Turn{}, err
		}
		if running {
			return letta.DeliveryRunning, turn, nil
		}
	}
	if compacted {
		return letta.DeliveryUnknown, turn, nil
	}
	return letta.DeliveryAbsent, turn, nil
}

// replay reads the turn that the server knows under our id. known is false
// where it cannot say whether there is one. A turn without a stop reason is
// not over, or its replay has been forgotten in part.
func (c *Client) replay(ctx context.Context, op string, ref letta.Ref, id string) (turn letta.Turn, known bool, err error) {
	look, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	t, opened, err := c.readTurn(look, request{
		op: op, method: http.MethodPost, path: "/v1/conversations/" + ref.ConversationID + "/stream",
		body: struct {
			OTID         string `json:"otid"`
			IncludePings bool   `json:"include_pings"`
		}{id, true},
		stream: true,
	}, lookFirst, lookIdle)
	switch {
	case err == nil:
		return t.turn, true, nil
	case ctx.Err() != nil, errors.Is(err, letta.ErrUnauthorized):
		return letta.Turn{}, false, err
	case opened:
		return t.turn, t.turn.RunID != "", nil
	case errors.Is(err, letta.ErrNotFound):
		return letta.Turn{}, true, nil // no run under this id, or none any more
	}
	// 410 for a run that is too old, 400, 503 without Redis, no answer: the
	// listing has to tell.
	return letta.Turn{}, false, nil
}

// askRun asks the turn's run whether it goes on, and fills in the stop reason
// if not.
func (c *Client) askRun(ctx context.Context, op string, turn *letta.Turn) (running bool, err error) {
	if !id.MatchString(turn.RunID) {
		return false, nil
	}
	var run wireRun
	err = c.get(ctx, op, "/v1/runs/"+turn.RunID, nil, &run)
	switch {
	case errors.Is(err, letta.ErrNotFound):
		return false, nil
	case err != nil:
		return false, err
	case c.runs(run):
		return true, nil
	case run.StopReason != "":
		turn.StopReason = quotable(run.StopReason)
	case run.Status == "completed":
		turn.StopReason = letta.StopEndTurn
	case run.Status == "failed":
		turn.StopReason = "error"
	case run.Status == "cancelled":
		turn.StopReason = letta.StopCancelled
	}
	return false, nil
}

// anyRun reports whether a turn runs in the conversation.
func (c *Client) anyRun(ctx context.Context, op string, ref letta.Ref) (bool, error) {
	var runs []wireRun
	query := url.Values{"agent_id": {ref.AgentID}, "conversation_id": {ref.ConversationID}, "active": {"true"}}
	if err := c.get(ctx, op, "/v1/runs/", query, &runs); err != nil {
		return false, err
	}
	return slices.ContainsFunc(runs, c.runs), nil
}

// runs reports whether the run goes on, and can be believed to.
func (c *Client) runs(r wireRun) bool {
	return r.active() && (r.CreatedAt.IsZero() || c.clock.Since(r.CreatedAt.Time) < staleRun)
}

// past is what a conversation's listing says of one input.
type past struct {
	stored    bool // the user message is listed
	compacted bool
	runID     string
	reply     []letta.Message
}

func (c *Client) history(ctx context.Context, op string, ref letta.Ref, id string) (past, error) {
	var h past
	var talk []letta.Message // of users and the assistant
	dated := true
	err := c.list(ctx, op, ref, "", func(m letta.Message) bool {
		switch m.Type {
		case letta.SummaryMessage:
			h.compacted = true
			return true
		case letta.UserMessage:
			m.Text = "" // may be large, and is not needed
		case letta.AssistantMessage:
		default:
			return true
		}
		dated = dated && !m.At.IsZero()
		talk = append(talk, m)
		return true
	})
	if err != nil {
		return past{}, err
	}
	if h.compacted && dated {
		// Positions have been given anew, so that the listing's order is not
		// that of time.
		slices.SortStableFunc(talk, func(a, b letta.Message) int { return a.At.Compare(b.At) })
	}
	for i, m := range talk {
		if m.Type != letta.UserMessage || m.OTID != id {
			continue
		}
		h.stored, h.runID = true, m.RunID
		if h.reply = answer(talk, i); len(h.reply) > 0 {
			break // sent twice: the one that was answered counts
		}
	}
	return h, nil
}

// answer picks the reply to the user message at i: what its run said, or,
// where the server does not tell runs, what follows before the next user
// message.
func answer(talk []letta.Message, i int) []letta.Message {
	run := talk[i].RunID
	var reply []letta.Message
	for _, m := range talk {
		if run != "" && m.Type == letta.AssistantMessage && m.RunID == run {
			reply = append(reply, m)
		}
	}
	if reply != nil {
		return reply
	}
	for _, m := range talk[i+1:] {
		if m.Type == letta.UserMessage {
			break
		}
		if m.RunID == "" || run == "" {
			reply = append(reply, m)
		}
	}
	return reply
}
