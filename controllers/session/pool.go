package session

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// claim says for whom a place among a memory's turns is wanted.
type claim struct {
	owner string
	// imported words are older than the undersong of their workstation. They
	// wait for everything that is live.
	imported bool
}

// pool shares the turns that a memory runs at one time out to the owners of
// its sessions.
//
// A place that comes free goes to an owner who has none, if one waits, else to
// one of those with the fewest; among these to the one whose last place came
// free the longest ago, or who has waited the longest. Whoever gets one goes
// to the end of the row, and so does whoever gives one back. So while an owner
// without a place waits, each other owner is served once before him at most,
// and those who hold the places when he comes are served after him: with b
// other owners at work and p places he waits for at most b places to come
// free, which is ⌈b ÷ p⌉ turns.
type pool struct {
	limit int
	held  int
	// imports of the places are held by imports. They get half of the places,
	// or the only one: who talks now must not wait for a place each time.
	imports int
	// by counts the places that each owner holds.
	by map[string]int
	// live and imported are the rows of those who wait.
	live, imported row
}

// row is those who wait for a place, owner by owner.
type row struct {
	owners   []string
	sessions map[string][]types.NamespacedName
}

func newPool() *pool {
	return &pool{by: map[string]int{}, live: row{sessions: map[string][]types.NamespacedName{}}, imported: row{sessions: map[string][]types.NamespacedName{}}}
}

func (p *pool) row(c claim) *row {
	if c.imported {
		return &p.imported
	}
	return &p.live
}

// enter puts a session at the end of its owner's part of the row.
func (p *pool) enter(session types.NamespacedName, c claim) {
	r := p.row(c)
	if len(r.sessions[c.owner]) == 0 {
		r.owners = append(r.owners, c.owner)
	}
	r.sessions[c.owner] = append(r.sessions[c.owner], session)
}

// leave takes a session off the row.
func (p *pool) leave(session types.NamespacedName, c claim) {
	r := p.row(c)
	rest := slices.DeleteFunc(r.sessions[c.owner], func(w types.NamespacedName) bool { return w == session })
	if r.sessions[c.owner] = rest; len(rest) == 0 {
		r.remove(c.owner)
	}
}

func (r *row) remove(owner string) {
	delete(r.sessions, owner)
	r.owners = slices.DeleteFunc(r.owners, func(o string) bool { return o == owner })
}

// last puts an owner who waits at the end.
func (r *row) last(owner string) {
	if i := slices.Index(r.owners, owner); i >= 0 {
		r.owners = append(slices.Delete(r.owners, i, i+1), owner)
	}
}

// next gives a place to the session whose turn it is. It reports false when
// there is no place, or nobody waits.
func (p *pool) next() (types.NamespacedName, bool) {
	if p.held >= p.limit {
		return types.NamespacedName{}, false
	}
	for _, r := range []*row{&p.live, &p.imported} {
		if len(r.owners) == 0 || (r == &p.imported && p.imports >= max(p.limit/2, 1)) {
			continue
		}
		// The first of those who hold the fewest.
		owner := slices.MinFunc(r.owners, func(a, b string) int { return p.by[a] - p.by[b] })
		session := r.sessions[owner][0]
		if r.sessions[owner] = r.sessions[owner][1:]; len(r.sessions[owner]) == 0 {
			r.remove(owner)
		}
		p.held++
		if r == &p.imported {
			p.imports++
		}
		p.by[owner]++
		p.live.last(owner)
		p.imported.last(owner)
		return session, true
	}
	return types.NamespacedName{}, false
}

// free takes a place back.
func (p *pool) free(c claim) {
	p.held--
	if c.imported {
		p.imports--
	}
	if p.by[c.owner]--; p.by[c.owner] == 0 {
		delete(p.by, c.owner)
	}
	p.live.last(c.owner)
	p.imported.last(c.owner)
}

// idle reports whether nobody holds or wants a place.
func (p *pool) idle() bool {
	return p.held == 0 && len(p.live.owners) == 0 && len(p.imported.owners) == 0
}

// waiting is a session on a pool's row.
type waiting struct {
	memory types.UID
	claim  claim
	since  time.Time
}
