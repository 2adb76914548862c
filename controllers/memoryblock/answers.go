package memoryblock

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/undersong-dev/undersong/controllers/connect"
	"github.com/undersong-dev/undersong/internal/letta"
)

// maxAnswers bounds how many answers are kept of each kind. What falls out is
// asked again.
const maxAnswers = 4096

// answers are what Letta said a moment ago. A memory has a handful of blocks
// for each project, and all of them are looked at when a process begins, every
// half an hour, and five at once after a turn: without this each would list all
// agents of the memory and read a whole agent for its own label.
type answers struct {
	mu     sync.Mutex
	kept   map[keptKey]answer[[]connect.Kept]
	agents map[string]answer[letta.Memory]
}

type keptKey struct {
	memory     types.UID
	generation int64
	// changes is how often an agent was replaced so far.
	changes int64
}

type answer[T any] struct {
	at    time.Time
	value T
}

// recall returns an answer that is not older than share.
func recall[K comparable, T any](a *answers, kept *map[K]answer[T], key K, now time.Time, share time.Duration) (T, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	have, ok := (*kept)[key]
	age := now.Sub(have.at)
	return have.value, ok && age >= 0 && age < share
}

// note keeps an answer.
func note[K comparable, T any](a *answers, kept *map[K]answer[T], key K, now time.Time, value T) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if *kept == nil || len(*kept) >= maxAnswers {
		*kept = map[K]answer[T]{}
	}
	(*kept)[key] = answer[T]{now, value}
}

// keeper returns the agent that keeps a Learned block, empty if there is none,
// and its memory. That something is not there is never an earlier answer.
func (r *Reconciler) keeper(ctx context.Context, c letta.Client, s *scope) (agent string, memory letta.Memory, err error) {
	agent, memory, err = r.ask(ctx, c, s, r.Share)
	if r.Share > 0 && errors.Is(err, letta.ErrNotFound) {
		agent, memory, err = r.ask(ctx, c, s, 0)
	}
	return agent, memory, err
}

// ask asks Letta for what share says may not be taken from an earlier answer.
func (r *Reconciler) ask(ctx context.Context, c letta.Client, s *scope, share time.Duration) (string, letta.Memory, error) {
	of := func(agents []connect.Kept) string {
		if i := slices.IndexFunc(agents, func(k connect.Kept) bool { return k.Project == s.block.Spec.Project }); i >= 0 {
			return agents[i].ID
		}
		return ""
	}
	key, now := keptKey{s.mem.UID, s.mem.Generation, r.Agents.Changes()}, r.Clock.Now()
	agents, ok := recall(&r.answers, &r.answers.kept, key, now, share)
	if agent := of(agents); !ok || agent == "" {
		var err error
		if agents, err = connect.KeptOf(ctx, c, s.mem); err != nil {
			return "", letta.Memory{}, err
		}
		note(&r.answers, &r.answers.kept, key, now, agents)
	}
	agent := of(agents)
	if agent == "" {
		return "", letta.Memory{}, nil
	}
	// Good as long as nobody saw a newer revision.
	if memory, ok := recall(&r.answers, &r.answers.agents, agent, now, share); ok && memory.Revision == r.Agents.Newest(agent) {
		return agent, memory, nil
	}
	memory, err := c.Memory(ctx, agent)
	if err != nil {
		return agent, letta.Memory{}, err
	}
	note(&r.answers, &r.answers.agents, agent, now, memory)
	return agent, memory, nil
}
