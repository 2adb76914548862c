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

// gate holds calls back after one failed, whoever makes them: a thousand
// sessions on a dead Letta must not be a thousand retries.
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
	// asked says that what closed it was an answer, which asked to wait.
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

// giveUp takes back an enter after which no call was made.
func (g *gate) giveUp() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.probe = time.Time{}
}

// leave notes what a call that began at since says of what is behind the gate.
func (g *gate) leave(since time.Time, v verdict, retry *letta.RetryError) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch v {
	case silent:
		g.probe = time.Time{}
	case failed:
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
	case answered:
		if g.asked && since.Before(g.until) {
			return // let through before it asked to wait
		}
		g.failures, g.until, g.probe, g.asked = 0, time.Time{}, time.Time{}, false
	}
}

// verdict is what the end of a call says of what is behind a gate.
type verdict int

const (
	silent verdict = iota
	answered
	failed
)

// judge tells whose trouble an error is. One request's own — a clash in a
// conversation, a memory that is being written, a model that has enough —
// closes nothing: the endpoint answered.
func judge(err error) (endpoint, memory verdict, retry *letta.RetryError) {
	errors.As(err, &retry)
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, letta.ErrUnsupported):
		return silent, silent, nil // ours, or no call at all
	case errors.Is(err, letta.ErrTurnFailed):
		return answered, answered, nil // a turn ran, whatever stopped it
	case retry != nil && retry.Down:
		return failed, silent, retry
	case retry != nil && retry.Limited:
		return answered, failed, retry
	case retry != nil:
		return answered, answered, nil
	case errors.Is(err, letta.ErrUnavailable), errors.Is(err, letta.ErrOutcomeUnknown):
		return failed, silent, nil // no answer came
	}
	return answered, answered, nil
}

// gates are the two that each call passes: its endpoint's, which closes when
// that is down, and the one of its memory, which closes when Letta says "too
// many requests" to that one's key. Another team at the same endpoint is not
// kept waiting by it.
type gates struct{ endpoint, memory *gate }

// closed says for how long calls are held back; nil when they are not.
func (p gates) closed() error {
	if err := p.endpoint.closed(); err != nil {
		return err
	}
	return p.memory.closed()
}

// enter lets a call through, or says why not. half says that it is the one
// that tries whether a gate can open again.
func (p gates) enter() (half bool, err error) {
	tries, err := p.endpoint.enter()
	if err != nil {
		return false, err
	}
	half, err = p.memory.enter()
	if err != nil && tries {
		p.endpoint.giveUp()
	}
	return tries || half, err
}

// leave notes how a call ended that began at since.
func (p gates) leave(since time.Time, err error) {
	endpoint, memory, retry := judge(err)
	p.endpoint.leave(since, endpoint, retry)
	p.memory.leave(since, memory, retry)
}

func (p gates) now() time.Time { return p.endpoint.clock.Now() }

// jitter is up to a quarter of d.
func jitter(d time.Duration) time.Duration {
	return rand.N(d/4 + 1) //nolint:gosec // spreads load, guards nothing
}

// gated is a client whose calls pass gates.
type gated struct {
	letta.Client
	gates gates
}

// pass makes one call.
func pass[T any](g gates, call func() (T, error)) (T, error) {
	var none T
	if _, err := g.enter(); err != nil {
		return none, err
	}
	since := g.now()
	v, err := call()
	g.leave(since, err)
	return v, err
}

func (c gated) Capabilities(ctx context.Context) (letta.Capabilities, error) {
	return pass(c.gates, func() (letta.Capabilities, error) { return c.Client.Capabilities(ctx) })
}

func (c gated) CreateAgent(ctx context.Context, spec letta.AgentSpec) (letta.Agent, error) {
	return pass(c.gates, func() (letta.Agent, error) { return c.Client.CreateAgent(ctx, spec) })
}

func (c gated) Agent(ctx context.Context, agentID string) (letta.Agent, error) {
	return pass(c.gates, func() (letta.Agent, error) { return c.Client.Agent(ctx, agentID) })
}

func (c gated) UpdateAgent(ctx context.Context, agentID string, patch letta.AgentPatch) (letta.Agent, error) {
	return pass(c.gates, func() (letta.Agent, error) { return c.Client.UpdateAgent(ctx, agentID, patch) })
}

func (c gated) AgentsByTag(ctx context.Context, tags []string) ([]letta.Agent, error) {
	return pass(c.gates, func() ([]letta.Agent, error) { return c.Client.AgentsByTag(ctx, tags) })
}

func (c gated) CreateConversation(ctx context.Context, agentID string, spec letta.ConversationSpec) (letta.Conversation, error) {
	return pass(c.gates, func() (letta.Conversation, error) { return c.Client.CreateConversation(ctx, agentID, spec) })
}

func (c gated) Conversation(ctx context.Context, ref letta.Ref) (letta.Conversation, error) {
	return pass(c.gates, func() (letta.Conversation, error) { return c.Client.Conversation(ctx, ref) })
}

func (c gated) Conversations(ctx context.Context, agentID, summarySearch string) ([]letta.Conversation, error) {
	return pass(c.gates, func() ([]letta.Conversation, error) { return c.Client.Conversations(ctx, agentID, summarySearch) })
}

func (c gated) DeleteConversation(ctx context.Context, ref letta.Ref) error {
	_, err := pass(c.gates, func() (struct{}, error) { return struct{}{}, c.Client.DeleteConversation(ctx, ref) })
	return err
}

func (c gated) Cancel(ctx context.Context, ref letta.Ref) error {
	_, err := pass(c.gates, func() (struct{}, error) { return struct{}{}, c.Client.Cancel(ctx, ref) })
	return err
}

func (c gated) Memory(ctx context.Context, agentID string) (letta.Memory, error) {
	return pass(c.gates, func() (letta.Memory, error) { return c.Client.Memory(ctx, agentID) })
}

func (c gated) PutBlock(ctx context.Context, agentID string, b letta.Block, reason string) (string, error) {
	return pass(c.gates, func() (string, error) { return c.Client.PutBlock(ctx, agentID, b, reason) })
}

func (c gated) DeleteBlock(ctx context.Context, agentID, label, reason string) (string, error) {
	return pass(c.gates, func() (string, error) { return c.Client.DeleteBlock(ctx, agentID, label, reason) })
}

func (c gated) BlockHistory(ctx context.Context, agentID, label string, limit int) ([]letta.BlockRevision, error) {
	return pass(c.gates, func() ([]letta.BlockRevision, error) { return c.Client.BlockHistory(ctx, agentID, label, limit) })
}

func (c gated) Recompile(ctx context.Context, ref letta.Ref) error {
	_, err := pass(c.gates, func() (struct{}, error) { return struct{}{}, c.Client.Recompile(ctx, ref) })
	return err
}

func (c gated) Lookup(ctx context.Context, ref letta.Ref, clientID string) (letta.Delivery, letta.Turn, error) {
	type found struct {
		d letta.Delivery
		t letta.Turn
	}
	f, err := pass(c.gates, func() (found, error) {
		d, t, err := c.Client.Lookup(ctx, ref, clientID)
		return found{d, t}, err
	})
	return f.d, f.t, err
}

// Send is not the call that tries whether the endpoint answers again: it can
// take minutes, and a turn costs money. A short one goes before it.
func (c gated) Send(ctx context.Context, ref letta.Ref, in []letta.Input, opt letta.SendOptions) (letta.Turn, error) {
	half, err := c.gates.enter()
	if err != nil {
		return letta.Turn{}, err
	}
	if half {
		since := c.gates.now()
		_, err := c.Client.Conversation(ctx, ref)
		c.gates.leave(since, err)
		if errors.Is(err, letta.ErrUnavailable) {
			return letta.Turn{}, err
		}
	}
	since := c.gates.now()
	turn, err := c.Client.Send(ctx, ref, in, opt)
	if errors.Is(err, letta.ErrOutcomeUnknown) {
		return turn, err // a lost or endless turn says nothing of the others
	}
	c.gates.leave(since, err)
	return turn, err
}

// Messages passes the gates once, and tells it nothing.
func (c gated) Messages(ctx context.Context, ref letta.Ref, after string) iter.Seq2[letta.Message, error] {
	if err := c.gates.closed(); err != nil {
		return func(yield func(letta.Message, error) bool) { yield(letta.Message{}, err) }
	}
	return c.Client.Messages(ctx, ref, after)
}
