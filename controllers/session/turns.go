package session

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
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
// bounded number for each memory, shared out fairly between owners.
//
// What it knows is lost with the process; the ledger in status is what
// survives.
type Turns struct {
	// Events tells the queue that a session's turn ended or that it may begin.
	Events chan event.GenericEvent
	// Clock tells how long a session waits for its place.
	Clock clock.PassiveClock

	jobs  chan job
	woken chan struct{}

	mu       sync.Mutex
	sessions map[types.NamespacedName]*turn
	memories map[types.UID]*pool
	waits    map[types.NamespacedName]waiting
	failures map[types.NamespacedName]failure
	begun    map[types.NamespacedName]time.Time
	// answered is when a turn of a memory last went well.
	answered map[types.UID]answered
	// costs are what turns cost and status does not have yet.
	costs map[types.NamespacedName][]cost
	// billed is the newest turn of each session that was counted.
	billed map[types.NamespacedName]string
	// sent is the newest turn of each session that was sent from here, foreign
	// the newest that another process prepared, and when it was met.
	sent    map[types.NamespacedName]string
	foreign map[types.NamespacedName]meeting
	// wakes are the events to come.
	wakes []types.NamespacedName
}

// meeting is when a turn of another process was first met.
type meeting struct {
	clientID string
	at       time.Time
}

// failure counts a session's failed turns.
type failure struct {
	count int
	until time.Time
	// refused counts those that failed for what they are, not for a server
	// that cannot be reached.
	refused int
}

// answered is the newest turn of a memory that went well, and whose it was.
type answered struct {
	session types.NamespacedName
	at      time.Time
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
	claim    claim
	held     bool // counts against the memory's pool
	state    turnState
	reply    letta.Turn
	err      error
}

// NewTurns returns an empty pool.
func NewTurns() *Turns {
	return &Turns{
		Events:   make(chan event.GenericEvent, 256),
		Clock:    clock.RealClock{},
		jobs:     make(chan job, 256),
		woken:    make(chan struct{}, 1),
		sessions: map[types.NamespacedName]*turn{},
		memories: map[types.UID]*pool{},
		waits:    map[types.NamespacedName]waiting{},
		failures: map[types.NamespacedName]failure{},
		begun:    map[types.NamespacedName]time.Time{},
		answered: map[types.UID]answered{},
		costs:    map[types.NamespacedName][]cost{},
		billed:   map[types.NamespacedName]string{},
		sent:     map[types.NamespacedName]string{},
		foreign:  map[types.NamespacedName]meeting{},
	}
}

// Start runs the turns until ctx ends. It then begins none and waits for those
// that run, as long as the process is given: a back end may cancel a turn whose
// last listener goes. Their answers are found by the next leader.
func (t *Turns) Start(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	for {
		events, next := t.toWake()
		select {
		case <-ctx.Done():
			return nil
		case j := <-t.jobs:
			running.Go(func() {
				reply, err := j.send(context.WithoutCancel(ctx))
				t.finish(j, reply, err)
			})
		case events <- next:
			t.mu.Lock()
			t.wakes = t.wakes[1:]
			t.mu.Unlock()
		case <-t.woken:
		}
	}
}

// toWake is the next event, and where it goes; a nil channel without one.
func (t *Turns) toWake() (chan<- event.GenericEvent, event.GenericEvent) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.wakes) == 0 {
		return nil, event.GenericEvent{}
	}
	return t.Events, wake(t.wakes[0])
}

// wakeLocked puts a session into the queue. The caller holds mu.
func (t *Turns) wakeLocked(session types.NamespacedName) {
	t.wakes = append(t.wakes, session)
	select {
	case t.woken <- struct{}{}:
	default: // it will look
	}
}

// reserve takes a place in the memory's pool for the session, or puts it on
// the waiting list and reports false. A session that holds a place keeps it.
func (t *Turns) reserve(memory types.UID, session types.NamespacedName, c claim, limit int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s, ok := t.sessions[session]; ok && s.held {
		return true
	}
	w, ok := t.waits[session]
	if ok && (w.memory != memory || w.claim != c) {
		t.leaveLocked(session)
		ok = false
	}
	p := t.memories[memory]
	if p == nil {
		p = newPool()
		t.memories[memory] = p
	}
	p.limit = limit
	if !ok {
		t.waits[session] = waiting{memory: memory, claim: c, since: t.Clock.Now()}
		p.enter(session, c)
	}
	t.grantLocked(p, session)
	s := t.sessions[session]
	return s != nil && s.held
}

// grantLocked gives the free places of a pool away, and wakes who gets one,
// except the caller. The caller holds mu.
func (t *Turns) grantLocked(p *pool, caller types.NamespacedName) {
	for {
		session, ok := p.next()
		if !ok {
			return
		}
		w := t.waits[session]
		delete(t.waits, session)
		turnWait.Observe(t.Clock.Since(w.since).Seconds())
		s := t.sessions[session]
		if s == nil {
			s = &turn{}
			t.sessions[session] = s
		}
		s.memory, s.claim, s.held = w.memory, w.claim, true
		if session != caller {
			t.wakeLocked(session)
		}
	}
}

// leaveLocked takes a session off the waiting list. The caller holds mu.
func (t *Turns) leaveLocked(session types.NamespacedName) {
	w, ok := t.waits[session]
	if !ok {
		return
	}
	delete(t.waits, session)
	if p := t.memories[w.memory]; p != nil {
		p.leave(session, w.claim)
		t.forgetLocked(w.memory)
	}
}

// forgetLocked drops a pool that nobody uses. The caller holds mu.
func (t *Turns) forgetLocked(memory types.UID) {
	if p := t.memories[memory]; p != nil && p.idle() {
		delete(t.memories, memory)
	}
}

// queued reports whether a session is on the waiting list: nothing that it
// could read would get it a place.
func (t *Turns) queued(session types.NamespacedName) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, ok := t.waits[session]
	return ok
}

// queue says how many sessions wait for a place, and since when the first of
// them does.
func (t *Turns) queue() (n int, oldest time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, w := range t.waits {
		oldest = max(oldest, t.Clock.Since(w.since))
	}
	return len(t.waits), oldest
}

// unused gives back a place that a reconcile got and made no use of.
func (t *Turns) unused(session types.NamespacedName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s, ok := t.sessions[session]
	if !ok || !s.held || s.state == turnPrepared || s.state == turnRunning {
		return
	}
	t.releaseLocked(s)
	if s.state == turnUnknown {
		delete(t.sessions, session)
	}
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
		s.memory, s.claim, s.held = old.memory, old.claim, old.held
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
		t.begun[session] = t.Clock.Now()
		t.sent[session] = clientID
		delete(t.foreign, session)
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

// sentHere reports whether the turn under clientID was the last to be sent from
// here, also when it is over and forgotten.
func (t *Turns) sentHere(session types.NamespacedName, clientID string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.sent[session] == clientID
}

// met is when a turn that another process prepared was first met.
func (t *Turns) met(session types.NamespacedName, clientID string, now time.Time) time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.foreign[session].clientID != clientID {
		t.foreign[session] = meeting{clientID, now}
	}
	return t.foreign[session].at
}

// runs reports whether the turn under clientID was sent from here, and what
// became of it is still known.
func (t *Turns) runs(session types.NamespacedName, clientID string) bool {
	state, _, _ := t.look(session, clientID)
	return state == turnRunning || state == turnDone
}

// give takes a session off the waiting list, and gives back a place that it
// does not use.
func (t *Turns) give(session types.NamespacedName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.leaveLocked(session)
	if s, ok := t.sessions[session]; ok && s.state != turnRunning {
		t.releaseLocked(s)
	}
}

// drop forgets the session's turn, unless it runs, and frees its place.
func (t *Turns) drop(session types.NamespacedName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.leaveLocked(session)
	s, ok := t.sessions[session]
	if !ok || s.state == turnRunning {
		return
	}
	t.releaseLocked(s)
	delete(t.sessions, session)
}

// failed counts a failed turn of a session and notes until when it is to be
// left alone. refused says that the turn failed for what it is. The counts are
// forgotten by worked.
func (t *Turns) failed(session types.NamespacedName, refused bool, wait func(failures int) time.Duration) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	f := t.failures[session]
	f.count++
	if refused {
		f.refused++
	}
	d := wait(f.count)
	f.until = t.Clock.Now().Add(d)
	t.failures[session] = f
	return d
}

// worked forgets the failures of a session.
func (t *Turns) worked(session types.NamespacedName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.failures, session)
}

// forget drops what is known of a session that is gone, except its turn.
func (t *Turns) forget(session types.NamespacedName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.failures, session)
	delete(t.begun, session)
	delete(t.costs, session)
	delete(t.billed, session)
	delete(t.sent, session)
	delete(t.foreign, session)
}

// refusals is how many turns of a session failed in a row for what they are.
func (t *Turns) refusals(session types.NamespacedName) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.failures[session].refused
}

// othersWork reports whether a turn of another session of the memory went well
// after since.
func (t *Turns) othersWork(memory types.UID, session types.NamespacedName, since time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	a := t.answered[memory]
	return a.session != session && a.at.After(since)
}

// maxBegun bounds what is remembered of the beginnings of turns.
const maxBegun = 4096

// pause is how long a session is to wait for its next turn, when two of its
// turns are not to begin within interval.
func (t *Turns) pause(session types.NamespacedName, interval time.Duration) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.begun) > maxBegun {
		// No interval is longer than an hour.
		maps.DeleteFunc(t.begun, func(_ types.NamespacedName, at time.Time) bool { return t.Clock.Since(at) > time.Hour })
	}
	at, ok := t.begun[session]
	if !ok {
		return 0
	}
	// Never longer than the interval, should the clock be set back.
	return min(interval-t.Clock.Since(at), interval)
}

// owe notes what a turn of a session cost, until status has it. It reports
// false for one that is noted already.
func (t *Turns) owe(session types.NamespacedName, clientID string, c cost) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.billed[session] == clientID {
		return false
	}
	t.billed[session] = clientID
	t.costs[session] = append(t.costs[session], c)
	return true
}

// owed is what status does not have yet.
func (t *Turns) owed(session types.NamespacedName) []cost {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.costs[session])
}

// paid forgets the first n costs of a session, which status has now.
func (t *Turns) paid(session types.NamespacedName, n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if costs := t.costs[session]; len(costs) > n {
		t.costs[session] = costs[n:]
	} else {
		delete(t.costs, session)
	}
}

// rest is how long a session is still to be left alone after a failure.
func (t *Turns) rest(session types.NamespacedName) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.failures[session].until.Sub(t.Clock.Now())
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
func (t *Turns) finish(j job, reply letta.Turn, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	j.turn.state, j.turn.reply, j.turn.err = turnDone, reply, err
	if err == nil {
		t.answered[j.turn.memory] = answered{j.session, t.Clock.Now()}
	}
	// The session first: what it has next stands behind those who wait.
	t.wakeLocked(j.session)
	t.releaseLocked(j.turn)
}

// releaseLocked frees a turn's place for the next session that waits. The
// caller holds mu.
func (t *Turns) releaseLocked(s *turn) {
	if !s.held {
		return
	}
	s.held = false
	p := t.memories[s.memory]
	p.free(s.claim)
	t.grantLocked(p, types.NamespacedName{})
	t.forgetLocked(s.memory)
}

// wake is an event that puts a session into the queue.
func wake(session types.NamespacedName) event.GenericEvent {
	return event.GenericEvent{Object: &v1alpha1.Session{ObjectMeta: metav1.ObjectMeta{Namespace: session.Namespace, Name: session.Name}}}
}
