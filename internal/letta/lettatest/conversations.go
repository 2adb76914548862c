package lettatest

import (
	"maps"
	"net/http"
	"slices"
	"strings"
)

func (s *Server) conversationLocked(id string) (*conversation, error) {
	c, ok := s.state.Conversations[id]
	if !ok || c.Deleted {
		return nil, notFound("Conversation")
	}
	return c, nil
}

func (s *Server) createConversation(w http.ResponseWriter, r *http.Request, _ params) error {
	var body struct {
		Summary string `json:"summary"`
	}
	if err := decode(r, &body); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	a, err := s.agentLocked(r.URL.Query().Get("agent_id"))
	if err != nil {
		return err
	}
	c := &conversation{
		ID: newID("conv"), AgentID: a.ID, Summary: body.Summary, CreatedAt: s.nowLocked(), Deltas: map[string]bool{},
	}
	// The compiled system prompt is the first message of every conversation.
	// It holds the memory of that moment.
	c.store(&message{ID: newID("message"), Role: "system", Text: a.prompt(), At: c.CreatedAt})
	s.state.Conversations[c.ID] = c
	s.saveLocked()
	return s.answer(w, c.view())
}

func (c *conversation) view() map[string]any {
	ids := []string{}
	for _, m := range c.byPosition() {
		if m.InContext {
			ids = append(ids, m.ID)
		}
	}
	return map[string]any{
		"id": c.ID, "agent_id": c.AgentID, "summary": c.Summary, "created_at": c.CreatedAt,
		"last_message_at": c.LastMessageAt, "in_context_message_ids": ids,
	}
}

func (s *Server) listConversations(w http.ResponseWriter, r *http.Request, _ params) error {
	query := r.URL.Query()
	s.mu.Lock()
	defer s.mu.Unlock()
	found := s.state.conversations()
	found = slices.DeleteFunc(found, func(c *conversation) bool {
		return (query.Get("agent_id") != "" && c.AgentID != query.Get("agent_id")) ||
			!strings.Contains(c.Summary, query.Get("summary_search"))
	})
	ascending := query.Get("order") == "asc"
	if !ascending {
		slices.Reverse(found)
	}
	if after := query.Get("after"); after != "" {
		// Unlike the cursor of messages this one must exist.
		cursor, ok := s.state.Conversations[after]
		if !ok {
			return notFound("Conversation")
		}
		found = slices.DeleteFunc(found, func(c *conversation) bool {
			if ascending {
				return !c.CreatedAt.After(cursor.CreatedAt)
			}
			return !c.CreatedAt.Before(cursor.CreatedAt)
		})
	}
	views := []map[string]any{}
	for _, c := range found[:min(len(found), limit(r, 50))] {
		views = append(views, c.view())
	}
	return s.answer(w, views)
}

func (s *Server) getConversation(w http.ResponseWriter, _ *http.Request, p params) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, err := s.conversationLocked(p["id"])
	if err != nil {
		return err
	}
	return s.answer(w, c.view())
}

func (s *Server) patchConversation(w http.ResponseWriter, r *http.Request, p params) error {
	var body struct {
		Summary *string `json:"summary"`
	}
	if err := decode(r, &body); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c, err := s.conversationLocked(p["id"])
	if err != nil {
		return err
	}
	if body.Summary != nil {
		c.Summary = *body.Summary
	}
	s.saveLocked()
	return s.answer(w, c.view())
}

// deleteConversation marks it: it is gone for every call, and its messages
// stay in the file.
func (s *Server) deleteConversation(w http.ResponseWriter, _ *http.Request, p params) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, err := s.conversationLocked(p["id"])
	if err != nil {
		return err
	}
	c.Deleted = true
	s.saveLocked()
	return s.answer(w, nil)
}

func (s *Server) compact(w http.ResponseWriter, _ *http.Request, p params) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, err := s.conversationLocked(p["id"])
	if err != nil {
		return err
	}
	before, after := c.compact(s.nowLocked())
	if a, ok := s.state.Agents[c.AgentID]; ok {
		c.recompile(a)
	}
	s.saveLocked()
	return s.answer(w, map[string]any{"summary": "", "num_messages_before": before, "num_messages_after": after})
}

// recompile writes the memory of now into the first message. Without it the
// conversation goes on with the memory that it began with.
func (s *Server) recompile(w http.ResponseWriter, _ *http.Request, p params) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, err := s.conversationLocked(p["id"])
	if err != nil {
		return err
	}
	a, err := s.agentLocked(c.AgentID)
	if err != nil {
		return err
	}
	prompt := c.recompile(a)
	s.saveLocked()
	return s.answer(w, prompt)
}

// recompile returns the new prompt.
func (c *conversation) recompile(a *agent) string {
	prompt := a.prompt()
	for _, m := range c.Messages {
		if m.Role == "system" {
			m.Text = prompt
			break
		}
	}
	return prompt
}

// listMessages lists by position. Before and after compare positions in both
// orders, a cursor that is not known is ignored, and the limit counts stored
// messages: each is then shown as one item or several.
func (s *Server) listMessages(w http.ResponseWriter, r *http.Request, p params) error {
	query := r.URL.Query()
	s.mu.Lock()
	defer s.mu.Unlock()
	items := []map[string]any{}
	c, err := s.conversationLocked(p["id"])
	if err != nil {
		// The real server looks for messages only, and finds none.
		return s.answer(w, items)
	}
	stored := c.byPosition()
	position := func(id string) (int, bool) {
		for _, m := range stored {
			if m.ID == id {
				return m.Position, true
			}
		}
		return 0, false
	}
	after, hasAfter := position(query.Get("after"))
	before, hasBefore := position(query.Get("before"))
	stored = slices.DeleteFunc(stored, func(m *message) bool {
		return (hasAfter && m.Position <= after) || (hasBefore && m.Position >= before)
	})
	if query.Get("order") != "asc" {
		slices.Reverse(stored)
	}
	types := query["include_return_message_types"]
	for _, m := range stored[:min(len(stored), limit(r, 100))] {
		for _, item := range m.items() {
			if len(types) == 0 || slices.Contains(types, item["message_type"].(string)) {
				items = append(items, item)
			}
		}
	}
	return s.answer(w, items)
}

// items are the forms in which a stored message is listed, all with its id.
func (m *message) items() []map[string]any {
	item := func(kind, otid string, more map[string]any) map[string]any {
		v := map[string]any{"id": m.ID, "message_type": kind, "date": m.At, "otid": nil, "run_id": nil, "step_id": nil}
		if otid != "" {
			v["otid"] = otid
		}
		if m.RunID != "" {
			v["run_id"] = m.RunID
		}
		maps.Copy(v, more)
		return v
	}
	switch m.Role {
	case "user":
		return []map[string]any{item("user_message", m.OTID, map[string]any{"content": m.Text})}
	case "summary":
		// Not a summary_message: the real server lists it like a user's.
		return []map[string]any{item("user_message", "", map[string]any{"content": m.Text})}
	case "tool":
		return []map[string]any{item("tool_return_message", m.OTID, map[string]any{"tool_return": m.Text, "name": m.Tool, "status": "success"})}
	case "assistant":
		var out []map[string]any
		if m.Reasoning != "" {
			out = append(out, item("reasoning_message", m.OTID, map[string]any{"reasoning": m.Reasoning}))
		}
		if m.Tool != "" {
			out = append(out, item("tool_call_message", m.OTID+"1", map[string]any{"tool_call": map[string]any{"name": m.Tool, "arguments": "{}"}}))
		}
		if m.Text != "" {
			// The stream sends a text, the listing parts.
			out = append(out, item("assistant_message", m.OTID+"2", map[string]any{"content": []map[string]any{{"type": "text", "text": m.Text}}}))
		}
		return out
	}
	return []map[string]any{item("system_message", "", map[string]any{"content": m.Text})}
}
