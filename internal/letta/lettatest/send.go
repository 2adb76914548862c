package lettatest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strings"
)

// input is one user message of a request.
type input struct{ otid, text string }

// send begins a turn, or joins the one that the same otids began before.
func (s *Server) send(w http.ResponseWriter, r *http.Request, p params) error {
	body := struct {
		Messages []struct {
			Role    string          `json:"role"`
			Content json.RawMessage `json:"content"`
			OTID    string          `json:"otid"`
		} `json:"messages"`
		Streaming    bool `json:"streaming"`
		Background   bool `json:"background"`
		IncludePings bool `json:"include_pings"`
	}{Streaming: true, IncludePings: true}
	if err := decode(r, &body); err != nil {
		return err
	}
	if len(body.Messages) == 0 {
		return refuse(http.StatusUnprocessableEntity, "Messages must not be empty")
	}
	if !body.Streaming {
		// The real server runs it: without a lock, without a look at otids,
		// and every time again. Nobody should.
		return refuse(http.StatusBadRequest, "this stand-in has no turns without streaming")
	}
	if body.Background && s.opts.NoRedis {
		return refuse(http.StatusServiceUnavailable, "Background streaming requires Redis to be running.")
	}
	var inputs []input
	var otids []string
	for _, m := range body.Messages {
		inputs = append(inputs, input{m.OTID, contentText(m.Content)})
		if m.OTID != "" {
			otids = append(otids, m.OTID)
		}
	}

	turn, err := s.begin(p["id"], inputs, otids, body.Background)
	if err != nil {
		return err
	}
	s.stream(w, r, turn, 0, body.IncludePings)
	return nil
}

// begin finds the turn that these otids have begun, or begins one.
func (s *Server) begin(conversationID string, inputs []input, otids []string, background bool) (*run, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, err := s.conversationLocked(conversationID)
	if err != nil {
		return nil, err
	}
	a, err := s.agentLocked(c.AgentID)
	if err != nil {
		return nil, err
	}
	now := s.nowLocked()
	c.LastMessageAt = &now // at the request, whatever comes of it

	token := requestToken(otids)
	if known := s.byOTIDLocked(token); background && known != nil {
		return known, nil
	}
	for _, l := range s.live {
		if l.run.ConversationID == c.ID && now.Sub(l.run.CreatedAt) < lockTime {
			return nil, &problem{http.StatusConflict, map[string]any{
				"detail": "CONFLICT: Cannot send a new message: Another request (run_id=" + l.run.ID +
					") is currently being processed for this conversation. Please wait for it to complete.",
				"run_id": l.run.ID,
			}}
		}
	}
	if c.Pending {
		return nil, &problem{http.StatusConflict, map[string]any{"detail": map[string]any{
			"code": "PENDING_APPROVAL", "message": "The agent is waiting for approval.", "pending_request_id": newID("message"),
		}}}
	}

	turn := &run{
		ID: newID("run"), AgentID: a.ID, ConversationID: c.ID, Status: "running", Background: background, CreatedAt: now,
	}
	turn.emit("", map[string]any{"message_type": "ping"})
	s.state.Runs[turn.ID] = turn
	if background {
		s.state.ByOTID[token] = turn.ID
		for _, otid := range otids {
			s.state.ByOTID[otid] = turn.ID
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	l := &running{run: turn, changed: make(chan struct{}), cancel: cancel}
	s.live[turn.ID] = l
	s.ran++
	s.saveLocked()
	s.turns.Go(func() {
		defer cancel()
		s.execute(ctx, l, c, a, inputs)
	})
	return turn, nil
}

// requestToken is the server's name for a request: the hash of its otids in
// their order, or nothing that comes again.
func requestToken(otids []string) string {
	if len(otids) == 0 {
		return newID("token")
	}
	sum := sha256.Sum256([]byte(strings.Join(otids, "|")))
	return hex.EncodeToString(sum[:])[:16]
}

// byOTIDLocked finds a run by an otid or a request's token, within the window.
func (s *Server) byOTIDLocked(key string) *run {
	r, ok := s.state.Runs[s.state.ByOTID[key]]
	if !ok || s.clock.Now().Sub(r.CreatedAt) >= replayWindow {
		return nil
	}
	return r
}

func contentText(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	var parts []struct {
		Text string `json:"text"`
	}
	if json.Unmarshal(raw, &parts) != nil {
		return ""
	}
	var b strings.Builder
	for _, p := range parts {
		b.WriteString(p.Text)
	}
	return b.String()
}
