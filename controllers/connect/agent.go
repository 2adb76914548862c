package connect

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/internal/crash"
	"github.com/undersong-dev/undersong/internal/letta"
	"github.com/undersong-dev/undersong/internal/outcome"
)

// Tags of the agents that undersong makes. They are the truth about which
// agent belongs to which memory and project.
const (
	ownTag        = "undersong"
	memoryTagHead = "undersong-memory:"
	projectTag    = "undersong-project:"
	templateTag   = "undersong-template:"
)

// MemoryTag is the tag of all agents of a memory.
func MemoryTag(m *v1alpha1.TeamMemory) string {
	return memoryTagHead + m.Namespace + "/" + m.Name
}

// Project is the project whose agent hears a session: the session's own under
// scope Project, none under scope Team or where one agent is named.
func Project(m *v1alpha1.TeamMemory, remote string) string {
	if m.Spec.Scope == v1alpha1.ScopeTeam || m.Spec.Agent.ID != "" {
		return ""
	}
	return remote
}

// ProjectOf reads the project from an agent's tags.
func ProjectOf(a letta.Agent) (string, bool) {
	for _, t := range a.Tags {
		if p, ok := strings.CutPrefix(t, projectTag); ok {
			return p, true
		}
	}
	return "", false
}

// Kept is the agent that keeps the memory of a project.
type Kept struct {
	// ID is Letta's.
	ID string
	// Project is the remote, empty for an agent of all projects.
	Project string
}

// KeptOf lists the agents that keep a memory: the one that spec names, or those
// that undersong made and would use today, of two for one project the oldest.
func KeptOf(ctx context.Context, c letta.Client, m *v1alpha1.TeamMemory) ([]Kept, error) {
	if id := m.Spec.Agent.ID; id != "" {
		return []Kept{{ID: id}}, nil
	}
	found, err := c.AgentsByTag(ctx, []string{ownTag, MemoryTag(m)})
	if err != nil {
		return nil, err
	}
	var kept []Kept
	for _, a := range found {
		project, ok := ProjectOf(a)
		if !ok || Project(m, project) != project || slices.ContainsFunc(kept, func(k Kept) bool { return k.Project == project }) {
			continue
		}
		if project == "" && m.Spec.Scope != v1alpha1.ScopeTeam {
			continue // made while the scope was Team
		}
		kept = append(kept, Kept{ID: a.ID, Project: project})
	}
	return kept, nil
}

// Agents finds the agent of a memory's project, and makes it when there is
// none. One process makes one agent: two sessions that begin at the same time
// wait for each other. It also knows how new each agent's memory is.
type Agents struct {
	// Clock tells when an agent is looked at again. Nil means never.
	Clock clock.PassiveClock
	// Pinned returns the blocks that the team writes itself, for an agent that
	// is about to be made. Nil means none.
	Pinned func(ctx context.Context, m *v1alpha1.TeamMemory, project string) ([]letta.Block, error)

	// Recorder tells of agents of older versions. Nil means that nobody is
	// told.
	Recorder events.EventRecorder

	mu     sync.Mutex
	keys   map[agentKey]*agentEntry
	newest map[string]string
	told   map[string]bool
	// changes is for Changes.
	changes int64
}

// Changes counts how often another agent took a project over, as far as this
// process knows: what was heard of agents before is old.
func (a *Agents) Changes() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.changes
}

func (a *Agents) changed() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.changes++
}

// Saw notes the newest revision of an agent's memory.
func (a *Agents) Saw(agentID, revision string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.newest == nil {
		a.newest = map[string]string{}
	}
	a.newest[agentID] = revision
}

// Newest is the revision that was seen last, empty where none was since this
// process began.
func (a *Agents) Newest(agentID string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.newest[agentID]
}

type agentKey struct {
	memory  types.UID
	project string
	// id is the agent that spec names, empty for one that is made.
	id string
}

// agentFresh is how long an agent is taken for what it was when it was last
// looked at.
const agentFresh = 5 * time.Minute

type agentEntry struct {
	// busy is a lock that can be given up on: it holds one token.
	busy chan struct{}
	id   string
	at   time.Time
	// window is the model's context, in tokens.
	window atomic.Int64
}

// Ensure returns the id of the agent.
func (a *Agents) Ensure(ctx context.Context, c letta.Client, m *v1alpha1.TeamMemory, project string) (string, error) {
	e := a.entry(agentKey{m.UID, project, m.Spec.Agent.ID})
	select {
	case e.busy <- struct{}{}:
	case <-ctx.Done():
		return "", ctx.Err()
	}
	defer func() { <-e.busy }()
	if e.id != "" && (a.Clock == nil || a.Clock.Since(e.at) < agentFresh) {
		return e.id, nil
	}
	agent, err := a.find(ctx, c, m, project)
	if err != nil {
		return "", err
	}
	if err := safe(agent); err != nil {
		return "", err
	}
	if e.id != agent.ID {
		a.changed()
	}
	e.id = agent.ID
	e.window.Store(agent.ContextWindow)
	if a.Clock != nil {
		e.at = a.Clock.Now()
	}
	return e.id, nil
}

// Window is the size of the agent's model's context, in tokens; 0 while it is
// not known, or the back end does not tell.
func (a *Agents) Window(m *v1alpha1.TeamMemory, project string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	if e, ok := a.keys[agentKey{m.UID, project, m.Spec.Agent.ID}]; ok {
		return int(e.window.Load())
	}
	return 0
}

// Forget drops what is known of an agent, after Letta said that it is gone.
func (a *Agents) Forget(m *v1alpha1.TeamMemory, project string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.keys, agentKey{m.UID, project, m.Spec.Agent.ID})
	a.changes++
}

func (a *Agents) entry(k agentKey) *agentEntry {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.keys == nil {
		a.keys = map[agentKey]*agentEntry{}
	}
	e, ok := a.keys[k]
	if !ok {
		e = &agentEntry{busy: make(chan struct{}, 1)}
		a.keys[k] = e
	}
	return e
}

// find reads the agent that spec names, or finds it by its tags, or makes it.
func (a *Agents) find(ctx context.Context, c letta.Client, m *v1alpha1.TeamMemory, project string) (letta.Agent, error) {
	if id := m.Spec.Agent.ID; id != "" {
		return c.Agent(ctx, id)
	}
	tags := []string{ownTag, MemoryTag(m), projectTag + project}
	found, err := c.AgentsByTag(ctx, tags)
	if err != nil {
		return letta.Agent{}, err
	}
	if len(found) > 0 {
		return a.bringUp(ctx, c, m, found[0]) // the oldest, so that everyone takes the same
	}
	blocks := templateBlocks()
	if a.Pinned != nil {
		pinned, err := a.Pinned(ctx, m, project)
		if err != nil {
			return letta.Agent{}, err
		}
		blocks = overlay(blocks, pinned)
	}
	t := m.Spec.Agent.Template
	name := t.Name
	if project != "" {
		name += " " + project
	}
	agent, err := c.CreateAgent(ctx, letta.AgentSpec{
		Name: name, Model: t.Model, Embedding: t.Embedding, System: instructions,
		Tags: append(tags, templateTag+templateVersion), Blocks: blocks,
	})
	if err == nil {
		crash.Point(crash.ControllerAgentCreated)
	}
	return agent, err
}

// bringUp gives an agent that an older version made the instruction of this
// one, and the blocks that it lacks. What it has learned stays. An instruction
// that a person changed at Letta stays, too, and an event says so.
//
// The tag is written with the instruction, last, so that what was broken off is
// done again. A process that is new tells every conversation to read its prompt
// again before its next turn, and a new version is one.
func (a *Agents) bringUp(ctx context.Context, c letta.Client, m *v1alpha1.TeamMemory, agent letta.Agent) (letta.Agent, error) {
	now := templateTag + templateVersion
	if slices.Contains(agent.Tags, now) {
		return agent, nil
	}
	if !ownText(agent.System) {
		a.tell(m, corev1.EventTypeWarning, v1alpha1.AgentKeptReason, agent.ID, "the instruction of agent %s was changed at Letta and is kept; the one of this version differs, see the runbook \"An agent with an old instruction\"")
		return agent, nil
	}
	memory, err := c.Memory(ctx, agent.ID)
	if err != nil {
		return letta.Agent{}, err
	}
	for _, b := range templateBlocks() {
		if _, ok := memory.Block(b.Label); ok {
			continue
		}
		if _, err := c.PutBlock(ctx, agent.ID, b, "a newer template has it"); err != nil {
			return letta.Agent{}, err
		}
	}
	tags := slices.DeleteFunc(slices.Clone(agent.Tags), func(tag string) bool { return strings.HasPrefix(tag, templateTag) })
	agent, err = c.UpdateAgent(ctx, agent.ID, letta.AgentPatch{System: instructions, Tags: append(tags, now)})
	if err != nil {
		return letta.Agent{}, err
	}
	a.tell(m, corev1.EventTypeNormal, v1alpha1.AgentBroughtUpReason, agent.ID, "agent %s was made by an older version; it has the instruction and the blocks of this one now, and keeps what it has learned")
	return agent, nil
}

// tell emits an event about an agent, once in each process.
func (a *Agents) tell(m *v1alpha1.TeamMemory, kind, reason, agentID, format string) {
	if a.Recorder == nil {
		return
	}
	a.mu.Lock()
	key := reason + " " + string(m.UID) + " " + agentID
	if a.told == nil {
		a.told = map[string]bool{}
	}
	known := a.told[key]
	a.told[key] = true
	a.mu.Unlock()
	if !known {
		a.Recorder.Eventf(m, nil, kind, reason, "Connect", format, agentID)
	}
}

// overlay puts blocks over others of the same label.
func overlay(blocks, over []letta.Block) []letta.Block {
	for _, b := range over {
		i := slices.IndexFunc(blocks, func(o letta.Block) bool { return o.Label == b.Label })
		if i < 0 {
			blocks = append(blocks, b)
			continue
		}
		if b.Description == "" {
			b.Description = blocks[i].Description
		}
		blocks[i] = b
	}
	return blocks
}

// unsafeAgain is how often an agent that may do too much is looked at again.
const unsafeAgain = 5 * time.Minute

// safe refuses an agent with tools other than those that edit its memory: what
// it reads comes from web pages and repositories, and a tool that reads files
// or sends requests would do what they say.
func safe(a letta.Agent) error {
	for _, tool := range a.Tools {
		if tool == "memory" || strings.HasPrefix(tool, "memory_") || strings.HasPrefix(tool, "core_memory_") {
			continue
		}
		// No Stall: nothing tells us when the tools are taken away.
		return outcome.RetryAfterf(v1alpha1.AgentUnsafeReason, unsafeAgain, "the agent %s may use tools other than memory; take them from it at Letta, or let spec.agent.template make one", a.ID)
	}
	return nil
}
