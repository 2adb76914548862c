package connect

import (
	"context"
	"errors"
	"iter"
	"math/rand/v2"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/undersong-dev/undersong/internal/letta"
)

const (
	// firstRest and maxRest bound how long an endpoint that fails is left
	// alone. The time doubles with each failure in a row.
	firstRest = time.Second
	maxRest   = time.Minute
	// probing is how long one call that asks whether the endpoint answers again
	// may take before another one does; the deadlines of calls are shorter.
	probing = time.Minute
)

// gate holds the calls to one endpoint back after it failed, whoever makes
// them: a thousand sessions on a dead Letta must not be a thousand retries.
//
//	open ──a call fails──▶ closed ──time passes──▶ one call is let through
//	  ▲                      ▲                        │
//	  │                      └──────── it fails ──────┤
//	  └──────────────── it is answered ───────────────┘
type gate struct {
	clock clock.PassiveClock
	first time.Duration

	mu       sync.Mutex
	failures int
	until    time.Time
	// probe is until when the one call is waited for.
	probe time.Time
	// asked says that the endpoint answered, and asked to wait.
	asked bool
}

// restingError says that a call was not made. It is letta.ErrUnavailable.
type restingError struct {
	after time.Duration
	asked bool
}

// Error has the text of what closed the gate.
func (e *restingError) Error() string {
	return (&letta.RetryError{Limited: e.asked}).Error()
}

// Is makes it an ErrUnavailable.
func (e *restingError) Is(target error) bool { return target == letta.ErrUnavailable }

// closed says for how long calls are held back; zero when they are not.
func (g *gate) closed() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.closedLocked()
}

func (g *gate) closedLocked() error {
	now := g.clock.Now()
	// Never longer than the longest there is, should the clock be set back.
	wait := min(g.until.Sub(now), letta.MaxRetryAfter)
	switch {
	case wait > 0:
	case g.probe.After(now):
		wait = g.first // it is being asked
	default:
		return nil
	}
	// Not all at the same moment.
	return &restingError{after: wait + jitter(max(wait, g.first)), asked: g.asked}
}

// enter lets a call through, or says why not. half says that it is the one
// that tries whether the endpoint answers again.
func (g *gate) enter() (half bool, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.closedLocked(); err != nil {
		return false, err
	}
	if g.failures > 0 {
		g.probe = g.clock.Now().Add(probing)
		return true, nil
	}
	return false, nil
}

// leave notes how a call ended that began at since.
func (g *gate) leave(since time.Time, err error) {
	var retry *letta.RetryError
	down := errors.Is(err, letta.ErrUnavailable) || errors.Is(err, letta.ErrOutcomeUnknown)
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case errors.Is(err, context.Canceled):
		g.probe = time.Time{} // ours, and says nothing of the endpoint
	case errors.As(err, &retry), down:
		now := g.clock.Now()
		g.probe = time.Time{}
		if since.Before(g.until) {
			return // of a call from before the gate closed: the same failure
		}
		g.failures++
		rest := min(g.first<<min(g.failures-1, 10), maxRest)
		rest += jitter(rest)
		g.asked = retry != nil && (retry.Limited || retry.After > 0)
		if retry != nil && retry.After > rest {
			rest = retry.After
		}
		g.until = now.Add(rest)
	default: // it answers
		g.failures, g.until, g.probe = 0, time.Time{}, time.Time{}
	}
}

// jitter is up to a quarter of d.
func jitter(d time.Duration) time.Duration {
	return rand.N(d/4 + 1) //nolint:gosec // spreads load, guards nothing
}

// gated is a client whose calls pass a gate.
type gated struct {
	letta.Client
	gate *gate
}

// pass makes one call.
func pass[T any](g *gate, call func() (T, error)) (T, error) {
	var none T
	if _, err := g.enter(); err != nil {
		return none, err
	}
	since := g.clock.Now()
	v, err := call()
	g.leave(since, err)
	return v, err
}

func (c gated) Capabilities(ctx context.Context) (letta.Capabilities, error) {
	return pass(c.gate, func() (letta.Capabilities, error) { return c.Client.Capabilities(ctx) })
}

func (c gated) CreateAgent(ctx context.Context, spec letta.AgentSpec) (letta.Agent, error) {
	return pass(c.gate, func() (letta.Agent, error) { return c.Client.CreateAgent(ctx, spec) })
}

func (c gated) Agent(ctx context.Context, agentID string) (letta.Agent, error) {
	return pass(c.gate, func() (letta.Agent, error) { return c.Client.Agent(ctx, agentID) })
}

func (c gated) AgentsByTag(ctx context.Context, tags []string) ([]letta.Agent, error) {
	return pass(c.gate, func() ([]letta.Agent, error) { return c.Client.AgentsByTag(ctx, tags) })
}

func (c gated) CreateConversation(ctx context.Context, agentID string, spec letta.ConversationSpec) (letta.Conversation, error) {
	return pass(c.gate, func() (letta.Conversation, error) { return c.Client.CreateConversation(ctx, agentID, spec) })
}

func (c gated) Conversation(ctx context.Context, ref letta.Ref) (letta.Conversation, error) {
	return pass(c.gate, func() (letta.Conversation, error) { return c.Client.Conversation(ctx, ref) })
}

func (c gated) Conversations(ctx context.Context, agentID, summarySearch string) ([]letta.Conversation, error) {
	return pass(c.gate, func() ([]letta.Conversation, error) { return c.Client.Conversations(ctx, agentID, summarySearch) })
}

func (c gated) Cancel(ctx context.Context, ref letta.Ref) error {
	_, err := pass(c.gate, func() (struct{}, error) { return struct{}{}, c.Client.Cancel(ctx, ref) })
	return err
}

func (c gated) Memory(ctx context.Context, agentID string) (letta.Memory, error) {
	return pass(c.gate, func() (letta.Memory, error) { return c.Client.Memory(ctx, agentID) })
}

func (c gated) PutBlock(ctx context.Context, agentID string, b letta.Block, reason string) (string, error) {
	return pass(c.gate, func() (string, error) { return c.Client.PutBlock(ctx, agentID, b, reason) })
}

func (c gated) DeleteBlock(ctx context.Context, agentID, label, reason string) (string, error) {
	return pass(c.gate, func() (string, error) { return c.Client.DeleteBlock(ctx, agentID, label, reason) })
}

func (c gated) BlockHistory(ctx context.Context, agentID, label string, limit int) ([]letta.BlockRevision, error) {
	return pass(c.gate, func() ([]letta.BlockRevision, error) { return c.Client.BlockHistory(ctx, agentID, label, limit) })
}

func (c gated) Recompile(ctx context.Context, ref letta.Ref) error {
	_, err := pass(c.gate, func() (struct{}, error) { return struct{}{}, c.Client.Recompile(ctx, ref) })
	return err
}

func (c gated) Lookup(ctx context.Context, ref letta.Ref, clientID string) (letta.Delivery, letta.Turn, error) {
	type found struct {
		d letta.Delivery
		t letta.Turn
	}
	f, err := pass(c.gate, func() (found, error) {
		d, t, err := c.Client.Lookup(ctx, ref, clientID)
		return found{d, t}, err
	})
	return f.d, f.t, err
}

// Send is not the call that tries whether the endpoint answers again: it can
// take minutes, and a turn costs money. A short one goes before it.
func (c gated) Send(ctx context.Context, ref letta.Ref, in []letta.Input, opt letta.SendOptions) (letta.Turn, error) {
	half, err := c.gate.enter()
	if err != nil {
		return letta.Turn{}, err
	}
	if half {
		since := c.gate.clock.Now()
		_, err := c.Client.Conversation(ctx, ref)
		c.gate.leave(since, err)
		if errors.Is(err, letta.ErrUnavailable) {
			return letta.Turn{}, err
		}
	}
	since := c.gate.clock.Now()
	turn, err := c.Client.Send(ctx, ref, in, opt)
	if errors.Is(err, letta.ErrOutcomeUnknown) {
		return turn, err // a lost or endless turn says nothing of the others
	}
	c.gate.leave(since, err)
	return turn, err
}

// Messages passes the gate once, and tells it nothing.
func (c gated) Messages(ctx context.Context, ref letta.Ref, after string) iter.Seq2[letta.Message, error] {
	if err := c.gate.closed(); err != nil {
		return func(yield func(letta.Message, error) bool) { yield(letta.Message{}, err) }
	}
	return c.Client.Messages(ctx, ref, after)
}
