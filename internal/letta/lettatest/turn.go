package lettatest

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// running is a turn under way.
type running struct {
	run     *run
	changed chan struct{} // closed when it is over
	cancel  context.CancelFunc
}

// execute is a turn: it waits as it is told to, and then does all of its
// steps at once. Nothing of it is visible before.
func (s *Server) execute(ctx context.Context, l *running, c *conversation, a *agent, inputs []input) {
	s.mu.Lock()
	gate := s.gate
	var fault TurnFault
	if len(s.failures) > 0 {
		fault, s.failures = s.failures[0], s.failures[1:]
	}
	s.mu.Unlock()

	var delay <-chan time.Time
	if s.opts.Delay > 0 {
		timer := s.clock.NewTimer(s.opts.Delay)
		defer timer.Stop()
		delay = timer.C()
	}
	for gate != nil || delay != nil {
		select {
		case <-gate:
			gate = nil
		case <-delay:
			delay = nil
		case <-ctx.Done():
			gate, delay = nil, nil
		case <-s.done:
			return // a server that is killed leaves its turns as they are
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx.Err() != nil {
		fault = TurnFault{StopReason: "cancelled"}
	}
	s.stepsLocked(l.run, c, a, inputs, fault)
	now := s.nowLocked()
	l.run.CompletedAt = &now
	l.run.emitDone()
	delete(s.live, l.run.ID)
	close(l.changed)
	s.saveLocked()
}

// stepsLocked hears the inputs, stores messages at the end of each step, and
// writes the stream.
func (s *Server) stepsLocked(r *run, c *conversation, a *agent, inputs []input, fault TurnFault) {
	failed := fault != (TurnFault{})
	if failed && !fault.Stored {
		// The first step did not end: nothing is stored, not even the input.
		r.fail(fault, inputs)
		return
	}
	var texts []string
	for _, in := range inputs {
		c.store(&message{ID: newID("message"), Role: "user", Text: in.text, OTID: in.otid, RunID: r.ID, At: s.nowLocked()})
		texts = append(texts, in.text)
	}
	say := func(m message) {
		m.ID, m.OTID, m.RunID, m.At = newID("message"), newID("otid"), r.ID, s.nowLocked()
		c.store(&m)
		for _, item := range m.items() {
			if item["message_type"] == "assistant_message" {
				item["content"] = m.Text
			}
			r.emit("", item)
		}
	}
	if failed {
		say(message{Role: "assistant", Reasoning: "Thinking.", Tool: "memory"})
		say(message{Role: "tool", Tool: "memory", Text: "error"})
		r.fail(fault, inputs)
		c.Pending = fault.StopReason == "requires_approval"
		return
	}
	reply, changed := a.hear(c, strings.Join(texts, "\n"))
	if len(changed) > 0 {
		say(message{Role: "assistant", Reasoning: "This is worth keeping.", Tool: "memory"})
		say(message{Role: "tool", Tool: "memory", Text: fmt.Sprintf("Updated %s.", strings.Join(changed, ", "))})
	}
	say(message{Role: "assistant", Reasoning: "Answering by rule.", Text: reply})
	r.Status, r.StopReason = "completed", "end_turn"
	r.emitStop("end_turn")
	r.emit("", usage(c, a, reply))
}

// usage estimates what a model would have been given and have said: four
// bytes to a token.
func usage(c *conversation, a *agent, reply string) map[string]any {
	prompt := len(a.System)
	for _, b := range a.Blocks {
		prompt += len(b.Value)
	}
	for _, m := range c.Messages {
		if m.InContext {
			prompt += len(m.Text)
		}
	}
	return map[string]any{
		"message_type": "usage_statistics", "step_count": 1,
		"prompt_tokens": prompt/4 + 1, "completion_tokens": len(reply)/4 + 1,
		"total_tokens": prompt/4 + len(reply)/4 + 2,
	}
}

// fail ends the stream the way the fault wants it.
func (r *run) fail(fault TurnFault, inputs []input) {
	r.Status, r.StopReason = "failed", fault.StopReason
	if r.StopReason == "" {
		r.StopReason = "llm_api_error"
	}
	if r.StopReason == "cancelled" {
		r.Status = "cancelled"
	}
	if fault.NoStop {
		return
	}
	r.emitStop(r.StopReason)
	if fault.ErrorType != "" {
		// Providers quote what they were sent.
		r.emitError(fault.ErrorType, inputs[0].text)
	}
}
