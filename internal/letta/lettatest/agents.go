package lettatest

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// contextWindow is what the real server takes for a model that it does not
// know.
const contextWindow = 128000

// blockLimit is what the real server gives a block that asks for none. It
// shows the number to the model and refuses no value for it.
const blockLimit = 100000

func (s *Server) agentLocked(id string) (*agent, error) {
	a, ok := s.state.Agents[id]
	if !ok {
		return nil, notFound("Agent")
	}
	return a, nil
}

func (s *Server) createAgent(w http.ResponseWriter, r *http.Request, _ params) error {
	body := struct {
		Name             string   `json:"name"`
		Model            string   `json:"model"`
		System           string   `json:"system"`
		Tags             []string `json:"tags"`
		Tools            []string `json:"tools"`
		IncludeBaseTools bool     `json:"include_base_tools"`
		MemoryBlocks     []block  `json:"memory_blocks"`
	}{IncludeBaseTools: true}
	if err := decode(r, &body); err != nil {
		return err
	}
	if body.Model == "" {
		return refuse(http.StatusBadRequest, "Must specify either model or llm_config in request")
	}
	tools := slices.Clone(body.Tools)
	if body.IncludeBaseTools {
		tools = append(tools, "conversation_search", "memory_insert", "memory_replace")
	}
	slices.Sort(tools)
	s.mu.Lock()
	defer s.mu.Unlock()
	a := &agent{
		ID: newID("agent"), Name: body.Name, Model: body.Model, System: body.System,
		Tags: body.Tags, Tools: slices.Compact(tools), CreatedAt: s.nowLocked(), Teachers: map[string]string{},
	}
	for _, b := range body.MemoryBlocks {
		a.Blocks = append(a.Blocks, newBlock(b))
	}
	s.state.Agents[a.ID] = a
	s.saveLocked()
	return s.answer(w, a.view(url.Values{"include": {"agent.blocks", "agent.tags", "agent.tools"}}))
}

func newBlock(b block) *block {
	b.ID = newID("block")
	if b.Limit == 0 {
		b.Limit = blockLimit
	}
	return &b
}

// view is the agent as it is sent. Relations that are not asked for are
// empty, not absent.
func (a *agent) view(query url.Values) map[string]any {
	include := query["include"]
	blocks, tags, tools := []block{}, []string{}, []map[string]any{}
	if slices.Contains(include, "agent.blocks") {
		for _, b := range a.Blocks {
			blocks = append(blocks, *b)
		}
	}
	if slices.Contains(include, "agent.tags") {
		tags = append(tags, a.Tags...)
	}
	if slices.Contains(include, "agent.tools") {
		for _, name := range a.Tools {
			tools = append(tools, map[string]any{"id": "tool-" + name, "name": name, "tool_type": "letta_core"})
		}
	}
	return map[string]any{
		"id": a.ID, "name": a.Name, "model": a.Model, "system": a.System, "agent_type": "letta_v1_agent",
		"created_at": a.CreatedAt, "llm_config": map[string]any{"model": a.Model, "context_window": contextWindow}, "blocks": blocks, "tags": tags, "tools": tools,
	}
}

func (s *Server) listAgents(w http.ResponseWriter, r *http.Request, _ params) error {
	query := r.URL.Query()
	tags := query["tags"]
	s.mu.Lock()
	defer s.mu.Unlock()
	var agents []*agent
	for _, a := range s.state.Agents {
		has := 0
		for _, tag := range tags {
			if slices.Contains(a.Tags, tag) {
				has++
			}
		}
		all := query.Get("match_all_tags") == "true"
		if len(tags) == 0 || (all && has == len(tags)) || (!all && has > 0) {
			agents = append(agents, a)
		}
	}
	// Newest first, and after means older.
	slices.SortFunc(agents, func(a, b *agent) int { return b.CreatedAt.Compare(a.CreatedAt) })
	if cursor, ok := s.state.Agents[query.Get("after")]; ok {
		agents = slices.DeleteFunc(agents, func(a *agent) bool { return !a.CreatedAt.Before(cursor.CreatedAt) })
	}
	views := []map[string]any{}
	for _, a := range agents[:min(len(agents), limit(r, 50))] {
		views = append(views, a.view(query))
	}
	return s.answer(w, views)
}

func (s *Server) getAgent(w http.ResponseWriter, r *http.Request, p params) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	a, err := s.agentLocked(p["agent"])
	if err != nil {
		return err
	}
	return s.answer(w, a.view(r.URL.Query()))
}

func (s *Server) patchAgent(w http.ResponseWriter, r *http.Request, p params) error {
	var body struct {
		System *string   `json:"system"`
		Tags   *[]string `json:"tags"`
	}
	if err := decode(r, &body); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	a, err := s.agentLocked(p["agent"])
	if err != nil {
		return err
	}
	if body.System != nil {
		a.System = *body.System
	}
	if body.Tags != nil {
		a.Tags = *body.Tags
	}
	s.saveLocked()
	return s.answer(w, a.view(r.URL.Query()))
}

func (s *Server) deleteAgent(w http.ResponseWriter, _ *http.Request, p params) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := s.agentLocked(p["agent"]); err != nil {
		return err
	}
	delete(s.state.Agents, p["agent"])
	s.saveLocked()
	return s.answer(w, map[string]any{"message": "Agent deleted"})
}

func (s *Server) listBlocks(w http.ResponseWriter, _ *http.Request, p params) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	a, err := s.agentLocked(p["agent"])
	if err != nil {
		return err
	}
	return s.answer(w, append([]*block{}, a.Blocks...))
}

func (s *Server) getBlock(w http.ResponseWriter, _ *http.Request, p params) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	a, err := s.agentLocked(p["agent"])
	if err != nil {
		return err
	}
	b := a.block(p["label"])
	if b == nil {
		return notFound("Block")
	}
	return s.answer(w, b)
}

func (s *Server) patchBlock(w http.ResponseWriter, r *http.Request, p params) error {
	var body struct {
		Value       *string `json:"value"`
		Description *string `json:"description"`
		ReadOnly    *bool   `json:"read_only"`
	}
	if err := decode(r, &body); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	a, err := s.agentLocked(p["agent"])
	if err != nil {
		return err
	}
	b := a.block(p["label"])
	if b == nil {
		return notFound("Block")
	}
	if body.Value != nil {
		b.Value = *body.Value
	}
	if body.Description != nil {
		b.Description = *body.Description
	}
	if body.ReadOnly != nil {
		b.ReadOnly = *body.ReadOnly
	}
	s.saveLocked()
	return s.answer(w, b)
}

func (s *Server) createBlock(w http.ResponseWriter, r *http.Request, _ params) error {
	var body block
	if err := decode(r, &body); err != nil {
		return err
	}
	if body.Label == "" {
		return refuse(http.StatusUnprocessableEntity, "[{'type': 'missing', 'loc': ('body', 'label')}]")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	b := newBlock(body)
	s.state.Blocks[b.ID] = b
	s.saveLocked()
	return s.answer(w, b)
}

func (s *Server) attachBlock(w http.ResponseWriter, r *http.Request, p params) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	a, err := s.agentLocked(p["agent"])
	if err != nil {
		return err
	}
	b, ok := s.state.Blocks[p["block"]]
	if !ok {
		return notFound("Block")
	}
	if a.block(b.Label) != nil {
		// The real server has a unique index over agent and label.
		return refuse(http.StatusConflict, "unique violation")
	}
	delete(s.state.Blocks, b.ID)
	a.Blocks = append(a.Blocks, b)
	s.saveLocked()
	return s.answer(w, a.view(r.URL.Query()))
}

func (s *Server) detachBlock(w http.ResponseWriter, r *http.Request, p params) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	a, err := s.agentLocked(p["agent"])
	if err != nil {
		return err
	}
	i := slices.IndexFunc(a.Blocks, func(b *block) bool { return b.ID == p["block"] })
	if i < 0 {
		return notFound("Block")
	}
	s.state.Blocks[p["block"]] = a.Blocks[i]
	a.Blocks = slices.Delete(a.Blocks, i, i+1)
	s.saveLocked()
	return s.answer(w, a.view(r.URL.Query()))
}

func (s *Server) deleteBlock(w http.ResponseWriter, _ *http.Request, p params) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.state.Blocks[p["block"]]; !ok {
		return notFound("Block")
	}
	delete(s.state.Blocks, p["block"])
	s.saveLocked()
	return s.answer(w, nil)
}

// blockAgents lists who has a block. Here no two agents share one.
func (s *Server) blockAgents(w http.ResponseWriter, r *http.Request, p params) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	views := []map[string]any{}
	for _, a := range s.state.Agents {
		if slices.ContainsFunc(a.Blocks, func(b *block) bool { return b.ID == p["block"] }) {
			views = append(views, a.view(r.URL.Query()))
		}
	}
	if _, ok := s.state.Blocks[p["block"]]; !ok && len(views) == 0 {
		return notFound("Block")
	}
	return s.answer(w, views)
}

// prompt is what an agent is told before anything else: its instruction and
// its memory.
func (a *agent) prompt() string {
	var b strings.Builder
	b.WriteString(a.System)
	for _, v := range a.Blocks {
		b.WriteString("\n\n<" + v.Label + ">\n" + v.Value + "\n</" + v.Label + ">")
	}
	return b.String()
}
