package appserver

import (
	"context"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/undersong-dev/undersong/internal/letta"
)

// tools are what an agent may use. Another name in this list would let the
// words of strangers reach the server's files.
var tools = []string{"memory"}

// Send implements [letta.Client].
func (c *Client) Send(ctx context.Context, ref letta.Ref, in []letta.Input, opt letta.SendOptions) (letta.Turn, error) {
	const op = "send"
	if err := checkIDs(op, ref.AgentID, ref.ConversationID); err != nil {
		return letta.Turn{}, err
	}
	if err := checkInputs(op, in); err != nil {
		return letta.Turn{}, err
	}
	if !c.hold(ref) {
		return letta.Turn{}, fmt.Errorf("%s: %w", op, &letta.BusyError{})
	}
	defer c.release(ref)
	if err := c.settled(ctx, op, in); err != nil {
		return letta.Turn{}, err
	}
	conn, err := c.connect(ctx, op)
	if err != nil {
		return letta.Turn{}, err
	}
	state, leave, err := conn.start(ctx, op, ref)
	if err != nil {
		return letta.Turn{}, err
	}
	defer leave()
	if err := c.prepare(ctx, op, conn, ref); err != nil {
		return letta.Turn{}, err
	}
	view := conn.look(state)
	if view.running {
		return letta.Turn{}, fmt.Errorf("%s: %w", op, &letta.BusyError{RunID: view.runID})
	}
	timeout := opt.Timeout
	if timeout <= 0 {
		timeout = letta.DefaultTurnTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return c.run(ctx, op, conn, state, ref, in, view)
}

func checkInputs(op string, in []letta.Input) error {
	if len(in) == 0 {
		return fmt.Errorf("%s: %w: no input", op, letta.ErrInvalid)
	}
	seen := map[string]bool{}
	for _, m := range in {
		if !clientID.MatchString(m.ClientID) || seen[m.ClientID] {
			return fmt.Errorf("%s: %w: not a client id of its own", op, letta.ErrInvalid)
		}
		seen[m.ClientID] = true
		if m.Text == "" || len(m.Text) > letta.MaxText || !utf8.ValidString(m.Text) {
			return fmt.Errorf("%s: %w: the text is empty, too long or no UTF-8", op, letta.ErrInvalid)
		}
	}
	return nil
}

// hold takes the conversation for one turn of this client. The server would
// make one turn of two inputs.
func (c *Client) hold(ref letta.Ref) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.busy[ref] {
		return false
	}
	c.busy[ref] = true
	return true
}

func (c *Client) release(ref letta.Ref) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.busy, ref)
}

// settled waits until the server has forgotten that it just had these ids.
func (c *Client) settled(ctx context.Context, op string, in []letta.Input) error {
	var wait time.Duration
	c.mu.Lock()
	for _, m := range in {
		if e, ok := c.ended[m.ClientID]; ok {
			wait = max(wait, settle-c.clock.Since(e.at))
		}
	}
	c.mu.Unlock()
	if wait <= 0 {
		return nil
	}
	select {
	case <-c.clock.After(wait):
		return nil
	case <-ctx.Done():
		return failed(ctx, op, nil, false)
	}
}

// prepare does what a turn needs besides: no dreams, and the connection that
// keeps the turn alive when the first is cut.
func (c *Client) prepare(ctx context.Context, op string, conn *conn, ref letta.Ref) error {
	if err := c.noDreams(ctx, op, conn, ref.AgentID); err != nil {
		return err
	}
	second, err := c.ensure(ctx, op, &c.second)
	if err != nil {
		return err
	}
	return second.subscribe(ctx, op, ref)
}

// run gives the input and waits for the end of its turn.
func (c *Client) run(ctx context.Context, op string, conn *conn, state *chat, ref letta.Ref, in []letta.Input, view chatView) (letta.Turn, error) {
	messages := make([]map[string]any, 0, len(in))
	for _, m := range in {
		messages = append(messages, map[string]any{"role": "user", "content": m.Text, "client_message_id": m.ClientID})
	}
	t := newTurn(in, view)
	conn.mu.Lock()
	state.turn = t
	conn.mu.Unlock()
	defer func() {
		conn.mu.Lock()
		state.turn = nil
		conn.mu.Unlock()
	}()

	answers, end, err := conn.ask(ctx, op, true, map[string]any{
		"type": "input", "runtime": wireRef(ref),
		"payload": map[string]any{
			"kind": "create_message", "messages": messages,
			"client_tool_allowlist": tools, "exclude_interactive_tools": true,
		},
	})
	if err != nil {
		return letta.Turn{}, err
	}
	defer end()
	short, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	data, err := conn.await(short, op, true, answers)
	if err != nil {
		return letta.Turn{}, err
	}
	var accepted struct {
		Accepted    bool   `json:"accepted"`
		Disposition string `json:"disposition"`
	}
	if err := decode(op, data, &accepted); err != nil {
		return letta.Turn{}, err
	}
	if !accepted.Accepted {
		// Its queue is full, or it goes down.
		return letta.Turn{}, fmt.Errorf("%s: %w", op, &letta.RetryError{})
	}
	if accepted.Disposition == "started" {
		conn.mu.Lock()
		t.begun = true
		conn.mu.Unlock()
	}
	return c.wait(ctx, op, conn, t)
}

// wait waits for the end of a turn that was accepted.
func (c *Client) wait(ctx context.Context, op string, conn *conn, t *turn) (letta.Turn, error) {
	unheard := c.clock.NewTimer(c.timeout)
	defer unheard.Stop()
	for {
		select {
		case <-t.done:
		case <-ctx.Done():
			return letta.Turn{}, failed(ctx, op, nil, true)
		case <-conn.gone:
			select {
			case <-t.done: // heard before the connection was lost
			default:
				return letta.Turn{}, failed(ctx, op, errLost, true)
			}
		case <-unheard.C():
			conn.mu.Lock()
			moved := t.moved
			conn.mu.Unlock()
			if !moved {
				return letta.Turn{}, fmt.Errorf("%s: %w: the turn was accepted and did not begin", op, letta.ErrOutcomeUnknown)
			}
			continue
		}
		break
	}
	conn.mu.Lock()
	result, limited := t.turn, t.limited
	conn.mu.Unlock()
	c.remember(t, result)
	return result, failure(op, result.StopReason, limited)
}

// remember keeps how a turn ended. The server keeps no trace of it: a
// cancelled turn's half an answer is listed like a whole one.
func (c *Client) remember(t *turn, result letta.Turn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.clock.Now()
	if len(c.ended) >= maxRemembered {
		oldest, at := "", now
		for id, e := range c.ended {
			if !e.at.After(at) {
				oldest, at = id, e.at
			}
		}
		delete(c.ended, oldest)
	}
	for id := range t.ids {
		c.ended[id] = ended{at: now, turn: result}
	}
}

// failure is the error of a turn that is over, nil if it ended well.
func failure(op, stopReason string, limited bool) error {
	switch {
	case stopReason == letta.StopEndTurn:
		return nil
	case limited:
		return fmt.Errorf("%s: %w: %s: %w", op, letta.ErrTurnFailed, stopReason, &letta.RetryError{Limited: true})
	case stopReason == letta.StopRequiresApproval:
		return fmt.Errorf("%s: %w: %w", op, letta.ErrTurnFailed, letta.ErrApprovalPending)
	case stopReason == "insufficient_credits":
		return fmt.Errorf("%s: %w: %w", op, letta.ErrTurnFailed, letta.ErrQuota)
	}
	return fmt.Errorf("%s: %w: %s", op, letta.ErrTurnFailed, stopReason)
}

// Cancel implements [letta.Client]. The server says at once that it has
// stopped, and tells of the turn's end only when the model has answered. A
// model that never does would hold the turn for ever, so that after a while
// the turn is over here.
func (c *Client) Cancel(ctx context.Context, ref letta.Ref) error {
	const op = "cancel"
	if err := checkIDs(op, ref.AgentID, ref.ConversationID); err != nil {
		return err
	}
	conn, err := c.connect(ctx, op)
	if err != nil {
		return err
	}
	state, leave, err := conn.start(ctx, op, ref)
	if err != nil {
		return err
	}
	defer leave()
	if view := conn.look(state); view.running {
		// First the mark: a cancelled turn without one can look answered.
		if err := c.mark(ctx, op, ref, view.active()); err != nil {
			return err
		}
	}
	var answer struct {
		Aborted bool `json:"aborted"`
	}
	// To cancel twice is no harm: the outcome is known, or asked for again.
	if err := conn.call(ctx, op, false, map[string]any{"type": "abort_message", "runtime": wireRef(ref)}, &answer); err != nil {
		return err
	}
	conn.mu.Lock()
	t := state.turn
	conn.mu.Unlock()
	if !answer.Aborted || t == nil {
		return nil
	}
	select {
	case <-t.done:
	case <-conn.gone:
	case <-ctx.Done():
	case <-c.clock.After(cancelGrace):
	}
	conn.mu.Lock()
	defer conn.mu.Unlock()
	if !t.over {
		t.begun = true
		t.finish(letta.StopCancelled, "")
	}
	return nil
}

// noDreams switches off what an agent does with the model when nobody asked.
// Once for each agent: the server keeps it.
func (c *Client) noDreams(ctx context.Context, op string, conn *conn, agentID string) error {
	c.mu.Lock()
	done := c.quiet[agentID]
	c.mu.Unlock()
	if done {
		return nil
	}
	err := conn.call(ctx, op, false, map[string]any{
		"type": "set_reflection_settings", "runtime": scope{agentID, "default"}, "scope": "both",
		"settings": map[string]any{"trigger": "off", "step_count": 25},
	}, nil)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.quiet[agentID] = true
	return nil
}
