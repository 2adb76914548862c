package lettatest

import (
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"slices"
)

// emit appends an event to the run's stream.
func (r *run) emit(name string, payload map[string]any) {
	v := maps.Clone(payload)
	v["run_id"], v["seq_id"] = r.ID, len(r.Events)+1
	data, err := json.Marshal(v)
	if err != nil {
		data = []byte("{}") // strings, numbers and times only
	}
	event := "data: " + string(data) + "\n\n"
	if name != "" {
		event = "event: " + name + "\n" + event
	}
	r.Events = append(r.Events, event)
}

func (r *run) emitStop(reason string) {
	r.emit("", map[string]any{"message_type": "stop_reason", "stop_reason": reason})
}

func (r *run) emitError(kind, detail string) {
	r.emit("error", map[string]any{
		"message_type": "error_message", "error_type": kind,
		"message": "An error occurred with the LLM request.", "detail": detail,
	})
}

func (r *run) emitDone() { r.Events = append(r.Events, "data: [DONE]\n\n") }

// stream sends the run's events from the one after seq, and what comes, until
// the run is over. The run does not care whether anybody reads.
func (s *Server) stream(w http.ResponseWriter, r *http.Request, turn *run, seq int, pings bool) {
	out := http.NewResponseController(w)
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	w.WriteHeader(http.StatusOK)
	ticker := s.clock.NewTicker(s.opts.PingInterval)
	defer ticker.Stop()
	tick := ticker.C()
	if !pings {
		tick = nil
	}
	send := func(text string) error {
		_, err := io.WriteString(w, text)
		return err
	}
	ping := "data: {\"message_type\":\"ping\",\"run_id\":\"" + turn.ID + "\"}\n\n"
	next := max(0, seq)
	for {
		s.mu.Lock()
		fresh := slices.Clone(turn.Events[min(next, len(turn.Events)):])
		l := s.live[turn.ID]
		var changed chan struct{}
		if l != nil {
			changed = l.changed
		}
		s.mu.Unlock()
		for _, ev := range fresh {
			if s.opts.Strange {
				ev = ": a comment\nid: 7\nretry: 10\ndata: {\"message_type\":\"future_message\",\"id\":{\"x\":1},\"date\":12}\n\n" + ev
			}
			if send(ev) != nil {
				return
			}
		}
		next += len(fresh)
		_ = out.Flush() // every writer this handler meets can
		if l == nil {
			return
		}
		select {
		case <-changed:
		case <-tick:
			if send(ping) != nil {
				return
			}
		case <-r.Context().Done():
			return
		case <-s.done:
			return
		}
	}
}

// replay streams a run that was begun by another request.
func (s *Server) replay(w http.ResponseWriter, r *http.Request, p params) error {
	body := struct {
		RunID         string `json:"run_id"`
		OTID          string `json:"otid"`
		StartingAfter int    `json:"starting_after"`
		IncludePings  bool   `json:"include_pings"`
	}{IncludePings: true}
	if err := decode(r, &body); err != nil {
		return err
	}
	if s.opts.NoRedis {
		return refuse(http.StatusServiceUnavailable, "Background streaming requires Redis to be running.")
	}
	turn, err := s.wanted(p["id"], body.RunID, body.OTID)
	if err != nil {
		return err
	}
	s.stream(w, r, turn, body.StartingAfter, body.IncludePings)
	return nil
}

// wanted finds the run that a replay asks for: by id, by otid, or the newest
// of the conversation. Only the last looks at the conversation.
func (s *Server) wanted(conversationID, runID, otid string) (*run, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var turn *run
	switch {
	case runID != "":
		turn = s.state.Runs[runID]
	case otid != "":
		turn = s.state.Runs[s.state.ByOTID[otid]]
	default:
		for _, l := range s.live {
			if l.run.ConversationID == conversationID && (turn == nil || l.run.CreatedAt.After(turn.CreatedAt)) {
				turn = l.run
			}
		}
		if turn == nil || !turn.Background {
			return nil, refuse(http.StatusBadRequest, "No active runs found for this conversation.")
		}
	}
	if turn == nil {
		return nil, notFound("Run")
	}
	if s.clock.Now().Sub(turn.CreatedAt) >= replayWindow {
		return nil, refuse(http.StatusGone, "Run was created more than 3 hours ago, and is now expired.")
	}
	return turn, nil
}

func (s *Server) cancel(w http.ResponseWriter, _ *http.Request, p params) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := s.conversationLocked(p["id"]); err != nil {
		return err
	}
	results := map[string]string{}
	for id, l := range s.live {
		if l.run.ConversationID == p["id"] {
			l.cancel()
			results[id] = "cancelled"
		}
	}
	for id, turn := range s.state.Runs {
		if turn.ConversationID == p["id"] && turn.Status == "running" && s.live[id] == nil {
			turn.Status, turn.StopReason = "cancelled", "cancelled"
			results[id] = "cancelled"
		}
	}
	s.saveLocked()
	if len(results) == 0 {
		return refuse(http.StatusConflict, "No active runs to cancel")
	}
	return s.answer(w, results)
}

func (s *Server) listRuns(w http.ResponseWriter, r *http.Request, _ params) error {
	query := r.URL.Query()
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []*run
	for _, v := range s.state.Runs {
		if (query.Get("conversation_id") == "" || v.ConversationID == query.Get("conversation_id")) &&
			(query.Get("agent_id") == "" || v.AgentID == query.Get("agent_id")) &&
			(query.Get("active") != "true" || v.Status == "running") {
			found = append(found, v)
		}
	}
	slices.SortFunc(found, func(a, b *run) int { return b.CreatedAt.Compare(a.CreatedAt) })
	views := []map[string]any{}
	for _, v := range found[:min(len(found), limit(r, 100))] {
		views = append(views, v.view())
	}
	return s.answer(w, views)
}

func (s *Server) getRun(w http.ResponseWriter, _ *http.Request, p params) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, ok := s.state.Runs[p["run"]]
	if !ok {
		return notFound("Run")
	}
	return s.answer(w, v.view())
}

func (r *run) view() map[string]any {
	v := map[string]any{
		"id": r.ID, "agent_id": r.AgentID, "conversation_id": r.ConversationID, "status": r.Status,
		"stop_reason": nil, "background": r.Background, "created_at": r.CreatedAt, "completed_at": r.CompletedAt,
	}
	if r.StopReason != "" {
		v["stop_reason"] = r.StopReason
	}
	return v
}
