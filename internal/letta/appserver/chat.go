package appserver

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/undersong-dev/undersong/internal/letta"
)

// chat is what is known of a conversation from its events. The connection's
// lock guards it.
type chat struct {
	// uses counts the calls that look at it now.
	uses int
	// status is the server's word for what its loop does.
	status string
	// active are the runs under way.
	active []string
	// byRun has the client ids of each run that the server remembers. A turn
	// has several runs: one for each step and for each time it was tried
	// again.
	byRun map[string][]string
	// queued are the client ids that wait for a turn.
	queued []string
	// turn is the one that this client waits for.
	turn *turn
}

// chatView is a copy.
type chatView struct {
	running bool
	runID   string
	runs    []string // under way
	byRun   map[string][]string
	queued  []string
}

// active are the client ids that the server works on, or will.
func (v chatView) active() []string {
	ids := slices.Clone(v.queued)
	for _, run := range v.runs {
		ids = append(ids, v.byRun[run]...)
	}
	return ids
}

// runOf is the last run of a client id, "" if the server knows none.
func (v chatView) runOf(clientID string) string {
	var last string
	for run, ids := range v.byRun {
		if slices.Contains(ids, clientID) && (last == "" || later(run, last)) {
			last = run
		}
	}
	return last
}

// knows reports whether the server has given a run to the client id.
func (v chatView) knows(clientID string) bool { return v.runOf(clientID) != "" }

// together reports whether two client ids were in one run.
func (v chatView) together(a, b string) bool {
	for _, ids := range v.byRun {
		if slices.Contains(ids, a) && slices.Contains(ids, b) {
			return true
		}
	}
	return false
}

// later compares ids that end in a number: "local-run-10" is later than
// "local-run-9".
func later(a, b string) bool {
	if len(a) != len(b) {
		return len(a) > len(b)
	}
	return a > b
}

// running reports whether the server works on the conversation. Right after a
// failed turn it says that it waits while it has an active run.
func (s *chat) running() bool {
	return (s.status != "" && s.status != "WAITING_ON_INPUT") || len(s.active) > 0 || len(s.queued) > 0
}

// take takes one event.
func (s *chat) take(kind string, data json.RawMessage) {
	switch kind {
	case "update_loop_status":
		var e struct {
			Loop struct {
				Status string              `json:"status"`
				Active []string            `json:"active_run_ids"`
				ByRun  map[string][]string `json:"client_message_ids_by_run_id"`
			} `json:"loop_status"`
		}
		if lenient(data, &e) != nil {
			return
		}
		s.status, s.active = e.Loop.Status, e.Loop.Active
		if e.Loop.ByRun == nil {
			e.Loop.ByRun = map[string][]string{}
		}
		s.byRun = e.Loop.ByRun
		if s.turn != nil {
			s.turn.runs(s.byRun)
		}
	case "update_queue":
		var e struct {
			Queue []struct {
				ClientID string `json:"client_message_id"`
			} `json:"queue"`
			Removed []struct {
				ClientID    string `json:"client_message_id"`
				Disposition string `json:"disposition"`
			} `json:"removed"`
		}
		if lenient(data, &e) != nil {
			return
		}
		s.queued = nil
		for _, q := range e.Queue {
			s.queued = append(s.queued, q.ClientID)
		}
		for _, r := range e.Removed {
			if s.turn != nil && s.turn.ids[r.ClientID] && r.Disposition == "dequeued" {
				s.turn.begun = true
			}
		}
	case "stream_delta":
		var e struct {
			Delta delta `json:"delta"`
		}
		if lenient(data, &e) == nil && s.turn != nil {
			s.turn.delta(e.Delta)
		}
	case "turn_finished":
		var e struct {
			StopReason string `json:"stop_reason"`
			RunID      string `json:"run_id"`
		}
		if lenient(data, &e) == nil && s.turn != nil {
			s.turn.finish(e.StopReason, e.RunID)
		}
	}
	if s.turn != nil {
		s.turn.moved = true
	}
}

// delta is a piece of what happens in a turn.
type delta struct {
	wireMessage
	ErrorType string `json:"error_type"`
	// Message is a sentence, of error_message only.
	Message string `json:"message"`

	PromptTokens     int64 `json:"prompt_tokens"`
	CompletionTokens int64 `json:"completion_tokens"`
	TotalTokens      int64 `json:"total_tokens"`
}

// turn makes a turn of events. The connection's lock guards it until done is
// closed.
type turn struct {
	ids map[string]bool
	// known are runs of the same client ids from before.
	known map[string]bool
	ours  map[string]bool
	// begun: the server works on our input. What comes before belongs to a
	// turn that is not over, whatever the server said.
	begun bool
	// moved: something was heard since the input was given.
	moved   bool
	limited bool // the model's provider limits the server
	over    bool
	turn    letta.Turn
	done    chan struct{}
}

func newTurn(in []letta.Input, v chatView) *turn {
	t := &turn{ids: map[string]bool{}, known: map[string]bool{}, ours: map[string]bool{}, done: make(chan struct{})}
	for _, m := range in {
		t.ids[m.ClientID] = true
	}
	for run := range v.byRun {
		t.known[run] = true
	}
	return t
}

// runs learns which runs are ours.
func (t *turn) runs(byRun map[string][]string) {
	for run, ids := range byRun {
		if t.known[run] || t.ours[run] {
			continue
		}
		for _, id := range ids {
			if t.ids[id] {
				t.ours[run], t.begun = true, true
				if t.turn.RunID == "" || later(run, t.turn.RunID) {
					t.turn.RunID = run
				}
			}
		}
	}
}

func (t *turn) delta(d delta) {
	if t.over || !t.begun || (d.RunID != "" && t.known[d.RunID]) {
		return
	}
	switch d.MessageType {
	case letta.AssistantMessage:
		m := d.message()
		if n := len(t.turn.Reply); n > 0 && m.ID != "" && t.turn.Reply[n-1].ID == m.ID {
			t.turn.Reply[n-1].Text += m.Text // pieces of one message
			return
		}
		t.turn.Reply = append(t.turn.Reply, m)
	case "usage_statistics": // one for each step
		u := &t.turn.Usage
		u.PromptTokens += max(0, d.PromptTokens)
		u.CompletionTokens += max(0, d.CompletionTokens)
		u.TotalTokens += max(0, d.TotalTokens)
		u.Reported = true
	case "error_message":
		t.limited = strings.HasPrefix(d.Message, "429")
	}
}

// finish ends the turn.
func (t *turn) finish(stopReason, runID string) {
	if t.over || !t.begun || t.known[runID] {
		return // another turn's end
	}
	t.over = true
	if runID != "" {
		t.turn.RunID = runID
	}
	if t.turn.StopReason = quotable(stopReason); t.turn.StopReason == letta.StopEndTurn {
		t.limited = false // it was tried again and went well
	}
	close(t.done)
}
