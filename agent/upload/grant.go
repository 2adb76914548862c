package upload

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/internal/seal"
)

// lowSlots is the number of unused slots below which more are asked for.
const lowSlots = 8

var (
	// ErrNoSlot: every slot of the newest grant is used.
	ErrNoSlot = errors.New("no slot is left")
	// ErrOtherHost: a grant names another store than the one pinned at init.
	ErrOtherHost = errors.New("the grant names another store host than the one recorded at init: if the store was moved, run undersong init again")
	// ErrGrant: a grant cannot be opened with this workstation's key.
	ErrGrant = errors.New("the grant cannot be opened")
)

// Grants holds the newest grant and says which of its slots are unused. Its
// methods may be called from several goroutines.
type Grants struct {
	identity  seal.Identity
	storeHost string
	registry  *Registry

	mu      sync.Mutex
	request int64 // that the newest grant answers
	slots   []seal.Slot
	spent   bool // the store refused a URL of this grant
	good    bool // the store took an object with this grant
	bad     int  // grants in a row that never worked
}

// NewGrants returns an empty set. Used slots are recorded in registry.
// storeHost is scheme://host[:port].
func NewGrants(identity seal.Identity, storeHost string, registry *Registry) *Grants {
	return &Grants{identity: identity, storeHost: storeHost, registry: registry}
}

// Offer takes the grant of the Workstation's status, if it is newer than the
// one at hand. It says whether it was taken.
func (g *Grants) Offer(grant *v1alpha1.Grant) (bool, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if grant == nil || grant.Request <= g.request {
		return false, nil
	}
	g.request, g.slots, g.spent, g.good = grant.Request, nil, false, false
	opened, err := g.identity.OpenGrant(grant.Sealed)
	if err != nil {
		g.bad++
		return false, fmt.Errorf("open grant: %w", ErrGrant) // not the cause: it may quote what it read
	}
	for _, slot := range opened.Slots {
		if !sameHost(slot.URL, g.storeHost) {
			g.bad++
			return false, fmt.Errorf("open grant: %w", ErrOtherHost)
		}
	}
	slices.SortFunc(opened.Slots, func(a, b seal.Slot) int { return int(a.N - b.N) })
	g.slots = opened.Slots
	return true, nil
}

// sameHost says whether a URL leads to exactly that scheme, host and port, and
// names no user.
func sameHost(text, host string) bool {
	u, err := url.Parse(text)
	return err == nil && u.User == nil && u.Opaque == "" && u.Host != "" && u.Scheme+"://"+u.Host == host
}

// Take returns the next unused slot and records, durably, that it is used.
func (g *Grants) Take() (seal.Slot, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	unused := g.unusedLocked()
	if len(unused) == 0 {
		return seal.Slot{}, ErrNoSlot
	}
	return unused[0], g.registry.use(unused[0].N)
}

// Slot returns a slot that was taken before, if its URL is still at hand.
func (g *Grants) Slot(n int64) (seal.Slot, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	i := slices.IndexFunc(g.slots, func(s seal.Slot) bool { return s.N == n })
	if i < 0 || g.spent {
		return seal.Slot{}, false
	}
	return g.slots[i], true
}

// Low says whether more slots should be asked for.
func (g *Grants) Low() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.unusedLocked()) < lowSlots
}

// pace returns how long to wait after one request before the next, so that
// grants which do not work are not asked for in a loop.
func (g *Grants) pace(b Backoff) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	wait := time.Duration(0)
	for i := range g.bad {
		if i == 0 {
			wait = b.Min
		} else if wait < b.Max {
			wait *= 2
		}
	}
	return min(wait, b.Max)
}

// Worked notes that the store took an object with this grant.
func (g *Grants) Worked() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.good, g.bad = true, 0
}

// Refuse notes that the store refused a URL of this grant. All of them were
// signed at one time, so none is tried again. It says whether the grant had
// worked before, as one that expired has.
func (g *Grants) Refuse() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.spent && !g.good {
		g.bad++
	}
	g.spent = true
	return g.good
}

func (g *Grants) unusedLocked() []seal.Slot {
	if g.spent {
		return nil
	}
	used := g.registry.used()
	for i, slot := range g.slots {
		if slot.N > used {
			return g.slots[i:]
		}
	}
	return nil
}
