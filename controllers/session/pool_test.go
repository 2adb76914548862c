package session

import (
	"context"
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/undersong-dev/undersong/internal/letta"
)

// turnTime is how long a turn of these tests takes.
const turnTime = 30 * time.Second

// office is a memory whose sessions always have more to say. It plays the
// queue: it steps a session when it is woken, as a reconcile would.
type office struct {
	turns *Turns
	slots int
	claim map[types.NamespacedName]claim
	// left is how many deltas a session still has.
	left map[types.NamespacedName]int
	// served counts the turns of each owner, waited is the longest wait of
	// each session.
	served  map[string]int
	asked   map[types.NamespacedName]time.Time
	waited  map[types.NamespacedName]time.Duration
	running int
	clock   clock.PassiveClock
}

func newOffice(t *testing.T, slots int) *office {
	t.Helper()
	o := &office{
		turns: NewTurns(), slots: slots, claim: map[types.NamespacedName]claim{}, left: map[types.NamespacedName]int{},
		served: map[string]int{}, asked: map[types.NamespacedName]time.Time{}, waited: map[types.NamespacedName]time.Duration{}, clock: clock.RealClock{},
	}
	open(t, o.turns)
	return o
}

// open runs the turns until the end of the test, and waits for the last.
func open(t *testing.T, turns *Turns) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = turns.Start(ctx) // never fails
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
}

func (o *office) add(name string, c claim, deltas int) types.NamespacedName {
	session := types.NamespacedName{Name: name}
	o.claim[session], o.left[session] = c, deltas
	o.step(session)
	return session
}

// step is one reconcile.
func (o *office) step(session types.NamespacedName) {
	if state, _, _ := o.turns.look(session, "id"); state == turnDone {
		o.running--
		o.left[session]--
		o.turns.drop(session)
	} else if state == turnRunning {
		return
	}
	if o.left[session] == 0 {
		return
	}
	if _, ok := o.asked[session]; !ok {
		o.asked[session] = o.clock.Now()
	}
	if !o.turns.reserve("memory", session, o.claim[session], o.slots) {
		return
	}
	o.waited[session] = max(o.waited[session], o.clock.Since(o.asked[session]))
	delete(o.asked, session)
	o.served[o.claim[session].owner]++
	o.running++
	o.turns.prepare(session, "id")
	o.turns.start(session, "id", func(context.Context) (letta.Turn, error) {
		<-time.After(turnTime)
		return letta.Turn{}, nil
	})
}

// run lets a while pass.
func (o *office) run(d time.Duration) {
	end := time.After(d)
	for {
		select {
		case e := <-o.turns.Events:
			o.step(types.NamespacedName{Namespace: e.Object.GetNamespace(), Name: e.Object.GetName()})
		case <-end:
			return
		}
	}
}

// crowd adds so many sessions of so many owners without end.
func (o *office) crowd(sessions, owners int) {
	for i := range sessions {
		o.add(fmt.Sprintf("s%d", i), claim{owner: fmt.Sprintf("owner-%d", i%owners)}, math.MaxInt)
	}
}

// newcomer measures, in turns, how long a single delta waits in a crowd.
func newcomer(t *testing.T, sessions, owners, slots int, after time.Duration) float64 {
	t.Helper()
	o := newOffice(t, slots)
	o.crowd(sessions, owners)
	o.run(after)
	session := o.add("newcomer", claim{owner: "newcomer"}, 1)
	o.run(2 * time.Hour)
	if o.left[session] != 0 {
		t.Fatal("the newcomer was never served")
	}
	if o.running > slots {
		t.Errorf("%d turns at one time, want at most %d", o.running, slots)
	}
	return float64(o.waited[session]) / float64(turnTime)
}

func TestANewcomerWaitsNoLongerThanTheNumber(t *testing.T) {
	for name, c := range map[string]struct {
		reason                  string
		sessions, owners, slots int
		after                   time.Duration
	}{
		"200 sessions of 20 owners":         {"the bar", 200, 20, 4, 5 * time.Minute},
		"at once":                           {"all begin at the same moment", 200, 20, 4, 0},
		"one place":                         {"everybody passes through it", 40, 20, 1, time.Minute},
		"more places than owners":           {"then a single turn at most", 200, 3, 8, time.Minute},
		"one owner with all sessions":       {"he has everything, and gives the next place away", 200, 1, 4, time.Minute},
		"an odd number":                     {"rounded up", 70, 7, 3, 10 * time.Minute},
		"in the middle of everybody's turn": {"turns do not end together", 200, 20, 4, 5*time.Minute + 17*time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				bar := math.Ceil(float64(c.owners) / float64(c.slots))
				got := newcomer(t, c.sessions, c.owners, c.slots, c.after)
				t.Logf("a single delta waited for %.1f turns of %.0f", got, bar) // test/bench/delivery reads it
				if got > bar {
					t.Errorf("%s: want at most ⌈%d ÷ %d⌉ turns", c.reason, c.owners, c.slots)
				}
			})
		})
	}
}

func TestOwnersAreServedAlike(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t, 4)
		// One owner has as many sessions as all others together.
		for i := range 19 {
			o.add(fmt.Sprintf("loud-%d", i), claim{owner: "loud"}, math.MaxInt)
		}
		o.crowd(19, 19)
		o.run(5 * time.Minute) // at first there is nobody else
		clear(o.served)
		o.run(100 * time.Minute) // 800 turns, 40 for each of 20
		for owner, n := range o.served {
			if n < 39 || n > 41 {
				t.Errorf("%s had %d turns, want 40 as everybody", owner, n)
			}
		}
	})
}

func TestLiveGoesBeforeImport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t, 4)
		for i := range 50 {
			o.add(fmt.Sprintf("import-%d", i), claim{owner: "archivist", imported: true}, math.MaxInt)
		}
		o.run(5 * time.Minute)
		live := o.add("live", claim{owner: "archivist"}, 20)
		other := o.add("other", claim{owner: "other"}, 20)
		before := o.served["archivist"]
		o.run(20 * time.Minute)
		if o.left[live] != 0 || o.left[other] != 0 {
			t.Errorf("%d and %d live deltas are left", o.left[live], o.left[other])
		}
		if o.waited[live] > 0 || o.waited[other] > 0 {
			t.Errorf("live words waited %s and %s while imports ran, want two of the four places at any time", o.waited[live], o.waited[other])
		}
		o.run(5 * time.Minute)
		if o.served["archivist"] < before+20+10 {
			t.Error("imports do not go on after what is live")
		}
	})
}

func TestAPlaceThatIsNotUsedIsGivenOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := NewTurns()
		open(t, turns)
		a, b, c := types.NamespacedName{Name: "a"}, types.NamespacedName{Name: "b"}, types.NamespacedName{Name: "c"}
		if !turns.reserve("m", a, claim{owner: "a"}, 1) || turns.reserve("m", b, claim{owner: "b"}, 1) || turns.reserve("m", c, claim{owner: "c"}, 1) {
			t.Fatal("want one place, for the first")
		}
		turns.unused(a)
		if e := <-turns.Events; e.Object.GetName() != "b" {
			t.Errorf("%s was woken, want b", e.Object.GetName())
		}
		// b is gone meanwhile.
		turns.drop(b)
		if e := <-turns.Events; e.Object.GetName() != "c" {
			t.Errorf("%s was woken, want c", e.Object.GetName())
		}
		if !turns.reserve("m", c, claim{owner: "c"}, 1) {
			t.Error("c has no place")
		}
		turns.prepare(c, "id")
		turns.unused(c)
		if turns.reserve("m", a, claim{owner: "a"}, 1) {
			t.Error("a prepared turn lost its place")
		}
		if n, _ := turns.queue(); n != 1 || !turns.queued(a) || turns.queued(c) {
			t.Errorf("%d wait, want a alone", n)
		}
		turns.drop(c)
		turns.drop(a)
		if len(turns.memories) != 0 || len(turns.waits) != 0 || len(turns.sessions) != 0 {
			t.Errorf("something is left of nobody: %v %v %v", turns.memories, turns.waits, turns.sessions)
		}
	})
}

func TestAHigherLimitIsUsedAtOnce(t *testing.T) {
	turns := NewTurns()
	for i := range 5 {
		turns.reserve("m", types.NamespacedName{Name: fmt.Sprint(i)}, claim{owner: fmt.Sprint(i)}, 1)
	}
	turns.reserve("m", types.NamespacedName{Name: "4"}, claim{owner: "4"}, 4)
	if n, _ := turns.queue(); n != 1 || len(turns.wakes) != 3 {
		t.Errorf("%d wait and %d are woken, want 1 and 3: four places for five", n, len(turns.wakes))
	}
}
