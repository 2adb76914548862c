package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"regexp"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/undersong-dev/undersong/internal/letta"
)

var (
	clientID = regexp.MustCompile(`^[A-Za-z0-9_.:/-]{1,128}$`)
	// token is what may be quoted of a server's stop reasons and error types:
	// names, and no sentences.
	token = regexp.MustCompile(`^[a-z0-9_]{1,64}$`)

	errIdle = errors.New("the stream fell silent")
)

type sendMessage struct {
	Type    string `json:"type"`
	Role    string `json:"role"`
	Content string `json:"content"`
	OTID    string `json:"otid"`
}

type sendBody struct {
	Messages []sendMessage `json:"messages"`
	// Streaming, in the background: the only mode in which the server
	// recognises a repeat. Without streaming there is not even a lock, and
	// the run does not know its conversation.
	Streaming    bool `json:"streaming"`
	Background   bool `json:"background"`
	StreamTokens bool `json:"stream_tokens"`
	IncludePings bool `json:"include_pings"`
}

// Send implements [letta.Client].
func (c *Client) Send(ctx context.Context, ref letta.Ref, in []letta.Input, opt letta.SendOptions) (letta.Turn, error) {
	const op = "send"
	if err := checkIDs(op, ref.AgentID, ref.ConversationID); err != nil {
		return letta.Turn{}, err
	}
	body := sendBody{Streaming: true, Background: true, IncludePings: true}
	seen := map[string]bool{}
	for _, m := range in {
		if !clientID.MatchString(m.ClientID) || seen[m.ClientID] {
			return letta.Turn{}, fmt.Errorf("%s: %w: not a client id of its own", op, letta.ErrInvalid)
		}
		seen[m.ClientID] = true
		if m.Text == "" || len(m.Text) > letta.MaxText || !utf8.ValidString(m.Text) {
			return letta.Turn{}, fmt.Errorf("%s: %w: the text is empty, too long or no UTF-8", op, letta.ErrInvalid)
		}
		body.Messages = append(body.Messages, sendMessage{Type: "message", Role: "user", Content: m.Text, OTID: m.ClientID})
	}
	if len(in) == 0 {
		return letta.Turn{}, fmt.Errorf("%s: %w: no input", op, letta.ErrInvalid)
	}
	timeout := opt.Timeout
	if timeout <= 0 {
		timeout = letta.DefaultTurnTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	ctx, giveUp, end := c.listen(ctx, ref)
	defer end()
	t, _, err := c.readTurn(ctx, request{
		op: op, method: http.MethodPost, path: "/v1/conversations/" + ref.ConversationID + "/messages",
		body: body, stream: true, effect: true,
	}, c.idle, c.idle)
	if err != nil && giveUp() {
		t.turn.StopReason, t.turn.Reply, err = letta.StopCancelled, nil, nil
	}
	if err != nil {
		return t.turn, err
	}
	return t.turn, t.failure(op)
}

// errCancelled ends a Send whose turn was cancelled and does not end.
var errCancelled = errors.New("the turn was cancelled")

// listening is a Send that waits for the end of its turn.
type listening struct {
	stop context.CancelCauseFunc
	done chan struct{}
}

// listen lets Cancel find a Send. cancelled reports whether Cancel ended it;
// end must be called.
func (c *Client) listen(ctx context.Context, ref letta.Ref) (_ context.Context, cancelled func() bool, end func()) {
	ctx, stop := context.WithCancelCause(ctx)
	l := &listening{stop: stop, done: make(chan struct{})}
	c.mu.Lock()
	if c.sends[ref] == nil {
		c.sends[ref] = map[*listening]bool{}
	}
	c.sends[ref][l] = true
	c.mu.Unlock()
	return ctx, func() bool { return errors.Is(context.Cause(ctx), errCancelled) }, func() {
		c.mu.Lock()
		delete(c.sends[ref], l)
		if len(c.sends[ref]) == 0 {
			delete(c.sends, ref)
		}
		c.mu.Unlock()
		close(l.done)
		stop(nil)
	}
}

// Cancel implements [letta.Client]. The server says at once that the run is
// cancelled, and ends its stream only when the model has answered. A model
// that never does would hold the turn for ever, so that after a while it is
// over here.
func (c *Client) Cancel(ctx context.Context, ref letta.Ref) error {
	const op = "cancel turn"
	if err := checkIDs(op, ref.AgentID, ref.ConversationID); err != nil {
		return err
	}
	c.mu.Lock()
	sends := slices.Collect(maps.Keys(c.sends[ref]))
	c.mu.Unlock()
	err := c.call(ctx, request{op: op, method: http.MethodPost, path: "/v1/conversations/" + ref.ConversationID + "/cancel", conflictIsNone: true}, nil)
	if errors.Is(err, errNoneRuns) {
		return nil
	}
	if err != nil {
		return err
	}
	grace := time.NewTimer(cancelGrace)
	defer grace.Stop()
	for _, l := range sends {
		select {
		case <-l.done:
		case <-ctx.Done():
			return nil // it is cancelled; its Send goes on waiting
		case <-grace.C:
			for _, l := range sends {
				l.stop(errCancelled)
			}
			return nil
		}
	}
	return nil
}

// readTurn sends the request and reads the stream until the turn is over. If
// it returns no error, it is over, well or badly. opened says that the server
// accepted the request. An error after that is ErrOutcomeUnknown. It gives up
// when the answer does not begin within first, or is silent for idle.
func (c *Client) readTurn(ctx context.Context, r request, first, idle time.Duration) (t turnReader, opened bool, err error) {
	ctx, abort := context.WithCancelCause(ctx)
	defer abort(nil)
	watch := time.AfterFunc(first, func() { abort(errIdle) })
	defer watch.Stop()

	res, err := c.open(ctx, r)
	if err != nil {
		return t, false, err
	}
	defer func() { _ = res.Body.Close() }() // what follows the end is of no interest
	if kind, _, err := mime.ParseMediaType(res.Header.Get("Content-Type")); err != nil || kind != "text/event-stream" {
		return t, true, fmt.Errorf("%s: %w: the answer is no event stream", r.op, letta.ErrOutcomeUnknown)
	}
	watch.Reset(idle)
	stream := newEvents(awake{res.Body, func() { watch.Reset(idle) }})
	for {
		ev, err := stream.next()
		switch {
		case err == nil:
			if !t.add(ev) {
				continue
			}
		case t.over():
			// The end was cut off after the turn had told how it went.
		case errors.Is(err, io.EOF):
			return t, true, fmt.Errorf("%s: %w: the stream ended before the turn", r.op, letta.ErrOutcomeUnknown)
		case errors.Is(err, errEventTooLong), errors.Is(err, errStreamTooLong):
			return t, true, fmt.Errorf("%s: %w: %w", r.op, letta.ErrOutcomeUnknown, err)
		default:
			return t, true, lost(ctx, r.op, err, true)
		}
		if t.over() {
			return t, true, nil
		}
		// "[DONE]" alone says nothing about what was done.
		return t, true, fmt.Errorf("%s: %w: the stream does not say how the turn ended", r.op, letta.ErrOutcomeUnknown)
	}
}

// awake calls tick whenever something was read.
type awake struct {
	r    io.Reader
	tick func()
}

func (a awake) Read(p []byte) (int, error) {
	n, err := a.r.Read(p)
	if n > 0 {
		a.tick()
	}
	return n, err
}

// turnReader makes a turn of the events of a stream.
type turnReader struct {
	turn      letta.Turn
	errorType string // of an error event
}

// over reports whether the stream has told how the turn ended.
func (t *turnReader) over() bool { return t.turn.StopReason != "" || t.errorType != "" }

// add takes one event and reports whether it is the stream's last. A stream
// ends with "[DONE]", or with an error event that the server may or may not
// follow by it.
func (t *turnReader) add(ev event) (last bool) {
	if string(ev.data) == "[DONE]" {
		return true
	}
	var m wireMessage
	if lenient(ev.data, &m) != nil {
		return false // not ours to understand
	}
	if m.RunID != "" && t.turn.RunID == "" {
		t.turn.RunID = m.RunID
	}
	switch {
	case ev.name == "error", m.MessageType == "error_message":
		t.errorType = quotable(m.ErrorType)
		if t.turn.StopReason == "" || t.turn.StopReason == letta.StopEndTurn {
			t.turn.StopReason = "error"
		}
		return true
	case m.MessageType == "stop_reason":
		t.turn.StopReason = quotable(m.StopReason)
	case m.MessageType == "usage_statistics":
		t.turn.Usage = letta.Usage{
			PromptTokens:     max(0, m.PromptTokens),
			CompletionTokens: max(0, m.CompletionTokens),
			TotalTokens:      max(0, m.TotalTokens),
			Reported:         true,
		}
	case m.MessageType == letta.AssistantMessage:
		msg := m.message()
		if n := len(t.turn.Reply); n > 0 && msg.ID != "" && t.turn.Reply[n-1].ID == msg.ID {
			t.turn.Reply[n-1].Text += msg.Text // pieces of one message
			break
		}
		t.turn.Reply = append(t.turn.Reply, msg)
	}
	return false
}

func quotable(s string) string {
	if token.MatchString(s) {
		return s
	}
	return "other"
}

// failure is the error of a turn that is over, nil if it ended well.
func (t *turnReader) failure(op string) error {
	why := t.turn.StopReason
	if t.errorType != "" {
		why = t.errorType
	}
	switch {
	case t.errorType == "" && why == letta.StopEndTurn:
		return nil
	case t.errorType == "llm_rate_limit":
		return fmt.Errorf("%s: %w: %s: %w", op, letta.ErrTurnFailed, why, &letta.RetryError{Limited: true})
	case t.turn.StopReason == letta.StopRequiresApproval:
		return fmt.Errorf("%s: %w: %w", op, letta.ErrTurnFailed, letta.ErrApprovalPending)
	case t.turn.StopReason == "insufficient_credits":
		return fmt.Errorf("%s: %w: %w", op, letta.ErrTurnFailed, letta.ErrQuota)
	}
	return fmt.Errorf("%s: %w: %s", op, letta.ErrTurnFailed, why)
}
