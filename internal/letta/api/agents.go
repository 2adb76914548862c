package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/undersong-dev/undersong/internal/letta"
)

// pageSize of the listings of agents and conversations.
const pageSize = 50

// createAgent is the body of a creation. What is not ours to choose is left
// to the server.
type createAgent struct {
	Name         string      `json:"name"`
	Model        string      `json:"model,omitempty"`
	Embedding    string      `json:"embedding,omitempty"`
	System       string      `json:"system,omitempty"`
	Tags         []string    `json:"tags"`
	MemoryBlocks []wireBlock `json:"memory_blocks"`

	// AgentType is the loop that answers in plain assistant messages; in the
	// older ones a reply is a call of the tool send_message.
	AgentType string `json:"agent_type"`
	// Tools are names of tools the server has. The archived server adds to
	// them, unless told not to: its base tools (search in conversations and
	// archive, several memory tools), tool rules, tools to speak to other
	// agents, a data source. "memory" is its one tool that creates, edits and
	// deletes blocks; it is a base tool by itself only for some models, so it
	// is asked for by name.
	Tools                  []string `json:"tools"`
	IncludeBaseTools       bool     `json:"include_base_tools"`
	IncludeBaseToolRules   bool     `json:"include_base_tool_rules"`
	IncludeMultiAgentTools bool     `json:"include_multi_agent_tools"`
	IncludeDefaultSource   bool     `json:"include_default_source"`
	// InitialMessages: left out, the server makes up a boot conversation.
	InitialMessages []string `json:"initial_message_sequence"`
}

// CreateAgent implements [letta.Client].
func (c *Client) CreateAgent(ctx context.Context, spec letta.AgentSpec) (letta.Agent, error) {
	const op = "create agent"
	body := createAgent{
		Name:            spec.Name,
		Model:           spec.Model,
		Embedding:       spec.Embedding,
		System:          spec.System,
		Tags:            append([]string{}, spec.Tags...),
		MemoryBlocks:    []wireBlock{},
		AgentType:       "letta_v1_agent",
		Tools:           []string{"memory"},
		InitialMessages: []string{},
	}
	for _, b := range spec.Blocks {
		if !letta.ValidLabel(b.Label) {
			return letta.Agent{}, fmt.Errorf("%s: %w: not a label", op, letta.ErrInvalid)
		}
		body.MemoryBlocks = append(body.MemoryBlocks, wireBlock{Label: b.Label, Value: b.Value, Description: b.Description, ReadOnly: b.ReadOnly})
	}
	var made wireAgent
	if err := c.call(ctx, request{op: op, method: http.MethodPost, path: "/v1/agents/", body: body, effect: true}, &made); err != nil {
		return letta.Agent{}, err
	}
	if made.ID == "" {
		return letta.Agent{}, fmt.Errorf("%s: %w: the answer has no id", op, letta.ErrOutcomeUnknown)
	}
	agent := made.agent()
	if len(agent.Tools) == 0 {
		agent.Tools = nil // a creation's answer need not hold relations
	}
	return agent, nil
}

// Agent implements [letta.Client].
func (c *Client) Agent(ctx context.Context, agentID string) (letta.Agent, error) {
	const op = "read agent"
	a, err := c.agent(ctx, op, agentID, "agent.tags", "agent.tools")
	if err != nil {
		return letta.Agent{}, err
	}
	return a.agent(), nil
}

// UpdateAgent implements [letta.Client].
func (c *Client) UpdateAgent(ctx context.Context, agentID string, patch letta.AgentPatch) (letta.Agent, error) {
	const op = "update agent"
	if err := checkIDs(op, agentID); err != nil {
		return letta.Agent{}, err
	}
	body := struct {
		System string   `json:"system"`
		Tags   []string `json:"tags"`
	}{patch.System, append([]string{}, patch.Tags...)}
	var made wireAgent
	if err := c.call(ctx, request{op: op, method: http.MethodPatch, path: "/v1/agents/" + agentID, body: body}, &made); err != nil {
		return letta.Agent{}, err
	}
	return c.Agent(ctx, agentID) // the answer need not hold relations
}

// agent reads an agent with some of its relations: without being asked the
// server leaves them empty, not absent.
func (c *Client) agent(ctx context.Context, op, agentID string, include ...string) (wireAgent, error) {
	if err := checkIDs(op, agentID); err != nil {
		return wireAgent{}, err
	}
	var a wireAgent
	if err := c.get(ctx, op, "/v1/agents/"+agentID, url.Values{"include": include}, &a); err != nil {
		return wireAgent{}, err
	}
	if a.ID != agentID {
		return wireAgent{}, fmt.Errorf("%s: %w: the answer is another agent", op, letta.ErrInvalid)
	}
	return a, nil
}

// AgentsByTag implements [letta.Client].
func (c *Client) AgentsByTag(ctx context.Context, tags []string) ([]letta.Agent, error) {
	const op = "find agents"
	if len(tags) == 0 || slices.Contains(tags, "") {
		return nil, fmt.Errorf("%s: %w: no tag", op, letta.ErrInvalid)
	}
	query := url.Values{
		"tags":           tags,
		"match_all_tags": {"true"},
		"include":        {"agent.tags", "agent.tools"},
	}
	var agents []letta.Agent
	err := pages(op, query,
		func(q url.Values) ([]wireAgent, error) {
			var page []wireAgent
			return page, c.get(ctx, op, "/v1/agents/", q, &page)
		},
		func(a wireAgent) string { return a.ID },
		func(a wireAgent) {
			// A server that does not know match_all_tags returns more.
			for _, tag := range tags {
				if !slices.Contains(a.Tags, tag) {
					return
				}
			}
			agents = append(agents, a.agent())
		})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(agents, func(a, b letta.Agent) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
	return agents, nil
}

// pages walks a listing whose cursor is the id of the last item, until a page
// brings nothing new, and gives each item once.
func pages[T any](op string, query url.Values, fetch func(url.Values) ([]T, error), key func(T) string, item func(T)) error {
	query.Set("limit", strconv.Itoa(pageSize))
	seen := map[string]bool{}
	for range maxPages {
		page, err := fetch(query)
		if err != nil {
			return err
		}
		fresh := false
		for _, v := range page {
			if k := key(v); k != "" && !seen[k] {
				seen[k], fresh = true, true
				item(v)
			}
		}
		if !fresh {
			return nil
		}
		query.Set("after", key(page[len(page)-1]))
	}
	return fmt.Errorf("%s: %w: the listing has no end", op, letta.ErrInvalid)
}

// Memory implements [letta.Client].
func (c *Client) Memory(ctx context.Context, agentID string) (letta.Memory, error) {
	a, err := c.agent(ctx, "read memory", agentID, "agent.blocks")
	if err != nil {
		return letta.Memory{}, err
	}
	all := make([]letta.Block, 0, len(a.Blocks))
	for _, b := range a.Blocks {
		all = append(all, b.block())
	}
	slices.SortStableFunc(all, func(a, b letta.Block) int { return cmp.Compare(a.Label, b.Label) })
	revision := letta.Revision(all) // of what is not shown, too
	blocks := slices.DeleteFunc(slices.Clone(all), func(b letta.Block) bool { return !letta.ValidLabel(b.Label) })
	return letta.Memory{Revision: revision, Blocks: blocks, Rejected: len(all) - len(blocks)}, nil
}

// PutBlock implements [letta.Client]. This back end keeps no history, so that
// the reason is dropped.
func (c *Client) PutBlock(ctx context.Context, agentID string, b letta.Block, _ string) (string, error) {
	const op = "write block"
	if err := checkIDs(op, agentID); err != nil {
		return "", err
	}
	if !letta.ValidLabel(b.Label) {
		return "", fmt.Errorf("%s: %w: not a label", op, letta.ErrInvalid)
	}
	patch := struct {
		Value       string  `json:"value"`
		Description *string `json:"description,omitempty"`
		ReadOnly    bool    `json:"read_only"`
	}{Value: b.Value, ReadOnly: b.ReadOnly}
	if b.Description != "" {
		patch.Description = &b.Description
	}
	// Writing the same value again does no harm, so that a lost answer is
	// just a failure.
	err := c.call(ctx, request{op: op, method: http.MethodPatch, path: "/v1/agents/" + agentID + "/core-memory/blocks/" + b.Label, body: patch}, nil)
	if errors.Is(err, letta.ErrNotFound) {
		err = c.addBlock(ctx, op, agentID, b)
	}
	if err != nil {
		return "", err
	}
	m, err := c.Memory(ctx, agentID)
	if err != nil {
		return "", err
	}
	return m.Revision, nil
}

// addBlock makes a block and attaches it. Between the two calls the block
// belongs to nobody; it is then litter, not memory.
func (c *Client) addBlock(ctx context.Context, op, agentID string, b letta.Block) error {
	// First make sure that it is the block that is missing, not the agent.
	if _, err := c.agent(ctx, op, agentID); err != nil {
		return err
	}
	var made wireBlock
	body := wireBlock{Label: b.Label, Value: b.Value, Description: b.Description, ReadOnly: b.ReadOnly}
	if err := c.call(ctx, request{op: op, method: http.MethodPost, path: "/v1/blocks/", body: body}, &made); err != nil {
		return err
	}
	if err := checkIDs(op, made.ID); err != nil {
		return err
	}
	return c.call(ctx, request{op: op, method: http.MethodPatch, path: "/v1/agents/" + agentID + "/core-memory/blocks/attach/" + made.ID}, nil)
}

// DeleteBlock implements [letta.Client]. The block is taken from the agent
// first, and deleted where no other agent has it: an agent that somebody else
// made can share one. Between the two calls it belongs to nobody.
func (c *Client) DeleteBlock(ctx context.Context, agentID, label, _ string) (string, error) {
	const op = "delete block"
	if !letta.ValidLabel(label) {
		return "", fmt.Errorf("%s: %w: not a label", op, letta.ErrInvalid)
	}
	a, err := c.agent(ctx, op, agentID, "agent.blocks")
	if err != nil {
		return "", err
	}
	for _, b := range a.Blocks {
		if b.Label != label {
			continue
		}
		if err := c.dropBlock(ctx, op, agentID, b.ID); err != nil {
			return "", err
		}
	}
	m, err := c.Memory(ctx, agentID)
	if err != nil {
		return "", err
	}
	return m.Revision, nil
}

func (c *Client) dropBlock(ctx context.Context, op, agentID, blockID string) error {
	if err := checkIDs(op, blockID); err != nil {
		return err
	}
	err := c.call(ctx, request{op: op, method: http.MethodPatch, path: "/v1/agents/" + agentID + "/core-memory/blocks/detach/" + blockID}, nil)
	if err != nil && !errors.Is(err, letta.ErrNotFound) {
		return err
	}
	var others []wireAgent
	err = c.get(ctx, op, "/v1/blocks/"+blockID+"/agents", url.Values{"limit": {"1"}}, &others)
	if err == nil && len(others) == 0 {
		err = c.call(ctx, request{op: op, method: http.MethodDelete, path: "/v1/blocks/" + blockID}, nil)
	}
	if errors.Is(err, letta.ErrNotFound) {
		return nil // somebody was faster
	}
	return err
}

// BlockHistory implements [letta.Client]: this back end keeps none.
func (c *Client) BlockHistory(ctx context.Context, agentID, label string, limit int) ([]letta.BlockRevision, error) {
	const op = "read history"
	if !letta.ValidLabel(label) || limit < 1 {
		return nil, fmt.Errorf("%s: %w: not a label, or no limit", op, letta.ErrInvalid)
	}
	_, err := c.agent(ctx, op, agentID)
	return nil, err
}

// Recompile implements [letta.Client].
func (c *Client) Recompile(ctx context.Context, ref letta.Ref) error {
	const op = "recompile"
	if err := checkIDs(op, ref.AgentID, ref.ConversationID); err != nil {
		return err
	}
	return c.call(ctx, request{op: op, method: http.MethodPost, path: "/v1/conversations/" + ref.ConversationID + "/recompile"}, nil)
}
