package session

import (
	"context"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/internal/letta"
)

// turnState says what this process knows of a turn.
type turnState int

const (
	// turnUnknown: this process has nothing to do with the turn. Another one
	// may have sent it.
	turnUnknown turnState = iota
	// turnPrepared: this process wrote the ledger and has sent nothing.
	turnPrepared
	// turnRunning: sent, no answer yet.
	turnRunning
	// turnDone: answered or failed.
	turnDone
)

// Turns runs Letta turns, which take seconds to minutes, outside of the
// workers of the queue. It holds at most one turn for each session and a
// bounded number for each memory.
//
// What it knows is lost with the process; the ledger in status is what
// survives.
type Turns struct {
	// Events tells the queue that a session's turn ended or that it may begin.
	Events chan event.GenericEvent

	jobs chan job

	mu       sync.Mutex
	sessions map[types.NamespacedName]*turn
	memories map[types.UID]*pool
	failures map[types.NamespacedName]failure
}

// failure counts a session's failed turns.
type failure struct {
	count int
	until time.Time
}

// job is a turn to run.
type job struct {
	session types.NamespacedName
	turn    *turn
	send    func(context.Context) (letta.Turn, error)
}

// turn is one session's turn.
type turn struct {
	clientID string
	memory   types.UID
	held     bool // counts against the memory's pool
	state    turnState
	reply    letta.Turn
	err      error
}

// pool counts one memory's turns and keeps those that wait, in order.
type pool struct {
	held    int
	waiting []types.NamespacedName
}

// leave takes a session off the waiting list.
func (p *pool) leave(session types.NamespacedName) {
	p.waiting = slices.DeleteFunc(p.waiting, func(w types.NamespacedName) bool { return w == session })
}

// NewTurns returns an empty pool.
func NewTurns() *Turns {
	return &Turns{
		Events:   make(chan event.GenericEvent, 256),
		jobs:     make(chan job, 256),
		sessions: map[types.NamespacedName]*turn{},
		memories: map[types.UID]*pool{},
		failures: map[types.NamespacedName]failure{},
	}
}

// Start runs the turns until ctx ends. It then begins none and waits for those
// that run, as long as the process is given: a back end may cancel a turn whose
// last listener goes. Their answers are found by the next leader.
func (t *Turns) Start(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	for {
		select {
		case <-ctx.Done():
			return nil
		case j := <-t.jobs:
			running.Go(func() {
				reply, err := j.send(context.WithoutCancel(ctx))
				t.finish(ctx, j, reply, err)
			})
		}
	}
}

// reserve takes a place in the memory's pool for the session, or puts it on
// the waiting list and reports false. A session that holds a place keeps it.
func (t *Turns) reserve(memory types.UID, session types.NamespacedName, limit int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	s, ok := t.sessions[session]
	if ok && s.held {
		return true
	}
	p := t.memories[memory]
	if p == nil {
		p = &pool{}
		t.memories[memory] = p
	}
	if p.held >= limit {
		if !slices.Contains(p.waiting, session) {
			p.waiting = append(p.waiting, session)
		}
		return false
	}
	p.leave(session)
	p.held++
	if !ok {
		s = &turn{}
		t.sessions[session] = s
	}
	s.memory, s.held = memory, true
	return true
}

// prepare notes that this process is about to write the ledger for clientID
// and may send it without looking first.
func (t *Turns) prepare(session types.NamespacedName, clientID string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := &turn{clientID: clientID, state: turnPrepared}
	// The place goes along, but not that of a turn that still runs, of a
	// Session of the same name that was deleted: its end must not be taken
	// for the end of this one.
	if old, ok := t.sessions[session]; ok && old.state != turnRunning {
		s.memory, s.held = old.memory, old.held
	}
	t.sessions[session] = s
}

// start sends a prepared turn. It reports false when there is nothing prepared
// under that id, or it has no place.
func (t *Turns) start(session types.NamespacedName, clientID string, send func(context.Context) (letta.Turn, error)) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	s, ok := t.sessions[session]
	if !ok || s.clientID != clientID || s.state != turnPrepared || !s.held {
		return false
	}
	select {
	case t.jobs <- job{session: session, turn: s, send: send}:
		s.state = turnRunning
		return true
	default:
		return false // far more turns than any pool allows; try again
	}
}

// look returns what is known of the turn under clientID.
func (t *Turns) look(session types.NamespacedName, clientID string) (turnState, letta.Turn, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s, ok := t.sessions[session]
	if !ok || s.clientID != clientID {
		return turnUnknown, letta.Turn{}, nil
	}
	return s.state, s.reply, s.err
}

// drop forgets the session's turn, unless it runs, and frees its place.
func (t *Turns) drop(session types.NamespacedName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range t.memories {
		p.leave(session)
	}
	s, ok := t.sessions[session]
	if !ok || s.state == turnRunning {
		return
	}
	t.releaseLocked(s)
	delete(t.sessions, session)
}

// failed counts a failed turn of a session and notes until when it is to be
// left alone. The count is forgotten by worked.
func (t *Turns) failed(session types.NamespacedName, now time.Time, wait func(failures int) time.Duration) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	f := t.failures[session]
	f.count++
	d := wait(f.count)
	f.until = now.Add(d)
	t.failures[session] = f
	return d
}

// worked forgets the failures of a session.
func (t *Turns) worked(session types.NamespacedName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.failures, session)
}

// rest is how long a session is still to be left alone after a failure.
func (t *Turns) rest(session types.NamespacedName, now time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.failures[session].until.Sub(now)
}

// abandon gives up a turn whose ledger may not stand in status: a later
// reconcile looks before it sends.
func (t *Turns) abandon(session types.NamespacedName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s, ok := t.sessions[session]; ok && s.state == turnPrepared {
		t.releaseLocked(s)
		delete(t.sessions, session)
	}
}

// finish records the end of a turn, frees its place and wakes the session.
func (t *Turns) finish(ctx context.Context, j job, reply letta.Turn, err error) {
	t.mu.Lock()
	j.turn.state, j.turn.reply, j.turn.err = turnDone, reply, err
	t.releaseLocked(j.turn)
	t.mu.Unlock()
	select {
	case t.Events <- wake(j.session):
	case <-ctx.Done():
	}
}

// releaseLocked frees a turn's place and wakes the session that waited
// longest. The caller holds mu.
func (t *Turns) releaseLocked(s *turn) {
	if !s.held {
		return
	}
	s.held = false
	p := t.memories[s.memory]
	p.held--
	if len(p.waiting) > 0 {
		next := p.waiting[0]
		p.waiting = p.waiting[1:]
		select {
		case t.Events <- wake(next):
		default: // the session's own timer wakes it
		}
	}
	if p.held == 0 && len(p.waiting) == 0 {
		delete(t.memories, s.memory)
	}
}

// wake is an event that puts a session into the queue.
func wake(session types.NamespacedName) event.GenericEvent {
	return event.GenericEvent{Object: &v1alpha1.Session{ObjectMeta: metav1.ObjectMeta{Namespace: session.Namespace, Name: session.Name}}}
}
