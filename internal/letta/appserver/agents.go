package appserver

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/undersong-dev/undersong/internal/letta"
)

// madeTag is the tag that says when an agent was made. The server does not,
// and its own order is that of the last use.
const madeTag = "undersong-made:"

// madeLayout sorts as text.
const madeLayout = "2006-01-02T15:04:05.000000000Z"

// serverTags are tags that the server adds.
var serverTags = []string{"git-memory-enabled", "origin:letta-code"}

type wireAgent struct {
	ID     string   `json:"id"`
	Name   string   `json:"name"`
	Model  string   `json:"model"`
	System string   `json:"system"`
	Tags   []string `json:"tags"`
	Tools  []string `json:"tools"`
	LLM    struct {
		ContextWindow int64 `json:"context_window"`
	} `json:"llm_config"`
}

// agent converts an agent. Its tools are those that the server keeps for it,
// and memory, which is offered with each input.
func (a wireAgent) agent() letta.Agent {
	out := letta.Agent{ID: a.ID, Name: a.Name, Model: a.Model, System: a.System, Tools: append(slices.Clone(tools), a.Tools...), ContextWindow: max(0, a.LLM.ContextWindow)}
	slices.Sort(out.Tools)
	out.Tools = slices.Compact(out.Tools)
	for _, tag := range a.Tags {
		if made, ok := strings.CutPrefix(tag, madeTag); ok {
			if t, err := time.Parse(madeLayout, made); err == nil {
				out.CreatedAt = t
			}
			continue
		}
		if !slices.Contains(serverTags, tag) {
			out.Tags = append(out.Tags, tag)
		}
	}
	return out
}

// CreateAgent implements [letta.Client]. Embedding has no meaning here.
func (c *Client) CreateAgent(ctx context.Context, spec letta.AgentSpec) (letta.Agent, error) {
	const op = "create agent"
	blocks := make([]map[string]any, 0, len(spec.Blocks))
	for _, b := range spec.Blocks {
		if !letta.ValidLabel(b.Label) {
			return letta.Agent{}, fmt.Errorf("%s: %w: not a label", op, letta.ErrInvalid)
		}
		blocks = append(blocks, map[string]any{"label": b.Label, "value": b.Value, "description": describeBlock(b.Label, b.Description)})
	}
	body := map[string]any{
		"name": spec.Name, "system": spec.System, "memory_blocks": blocks,
		"tags": append(slices.Clone(spec.Tags), madeTag+c.clock.Now().UTC().Format(madeLayout)),
	}
	if spec.Model != "" {
		body["model"] = spec.Model
	}
	conn, err := c.connect(ctx, op)
	if err != nil {
		return letta.Agent{}, err
	}
	var made struct {
		Agent wireAgent `json:"agent"`
	}
	if err := conn.call(ctx, op, true, map[string]any{"type": "agent_create", "body": body}, &made); err != nil {
		return letta.Agent{}, err
	}
	if made.Agent.ID == "" {
		return letta.Agent{}, fmt.Errorf("%s: %w: the answer has no id", op, letta.ErrOutcomeUnknown)
	}
	// Before its first turn at the latest it is switched off again.
	_ = c.noDreams(ctx, op, conn, made.Agent.ID)
	return made.Agent.agent(), nil
}

// Agent implements [letta.Client].
func (c *Client) Agent(ctx context.Context, agentID string) (letta.Agent, error) {
	const op = "read agent"
	a, err := c.agent(ctx, op, agentID)
	if err != nil {
		return letta.Agent{}, err
	}
	return a.agent(), nil
}

// UpdateAgent implements [letta.Client]. The server makes an agent that does
// not exist, and replaces all tags, its own as well: so it is read first.
func (c *Client) UpdateAgent(ctx context.Context, agentID string, patch letta.AgentPatch) (letta.Agent, error) {
	const op = "update agent"
	a, err := c.agent(ctx, op, agentID)
	if err != nil {
		return letta.Agent{}, err
	}
	tags := slices.Clone(patch.Tags)
	for _, tag := range a.Tags {
		if strings.HasPrefix(tag, madeTag) || slices.Contains(serverTags, tag) {
			tags = append(tags, tag)
		}
	}
	var updated struct {
		Agent wireAgent `json:"agent"`
	}
	body := map[string]any{"system": patch.System, "tags": tags}
	if err := c.request(ctx, op, false, map[string]any{"type": "agent_update", "agent_id": agentID, "body": body}, &updated); err != nil {
		return letta.Agent{}, err
	}
	return c.Agent(ctx, agentID)
}

func (c *Client) agent(ctx context.Context, op, agentID string) (wireAgent, error) {
	if err := checkIDs(op, agentID); err != nil {
		return wireAgent{}, err
	}
	var found struct {
		Agent wireAgent `json:"agent"`
	}
	if err := c.request(ctx, op, false, map[string]any{"type": "agent_retrieve", "agent_id": agentID}, &found); err != nil {
		return wireAgent{}, err
	}
	if found.Agent.ID != agentID {
		return wireAgent{}, fmt.Errorf("%s: %w: the answer is another agent", op, letta.ErrInvalid)
	}
	return found.Agent, nil
}

// AgentsByTag implements [letta.Client].
func (c *Client) AgentsByTag(ctx context.Context, tags []string) ([]letta.Agent, error) {
	const op = "find agents"
	if len(tags) == 0 || slices.Contains(tags, "") {
		return nil, fmt.Errorf("%s: %w: no tag", op, letta.ErrInvalid)
	}
	var page struct {
		Agents []wireAgent `json:"agents"`
	}
	err := c.request(ctx, op, false, map[string]any{"type": "agent_list", "query": map[string]any{"tags": tags, "limit": listAll}}, &page)
	if err != nil {
		return nil, err
	}
	var agents []letta.Agent
	for _, w := range page.Agents {
		a := w.agent()
		if !slices.ContainsFunc(tags, func(tag string) bool { return !slices.Contains(a.Tags, tag) }) {
			agents = append(agents, a)
		}
	}
	// An agent that somebody else made has no time, and comes last.
	slices.SortFunc(agents, func(a, b letta.Agent) int {
		if a.CreatedAt.IsZero() != b.CreatedAt.IsZero() {
			if a.CreatedAt.IsZero() {
				return 1
			}
			return -1
		}
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
	return agents, nil
}
