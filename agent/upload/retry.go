package upload

import (
	"math/rand/v2"
	"time"

	"k8s.io/utils/clock"
)

// Backoff says how long to wait after failures that follow each other: Min,
// doubled each time up to Max, with up to half of it taken off at random, so
// that many laptops do not come back in step.
type Backoff struct{ Min, Max time.Duration }

// DefaultBackoff is for a store or an API server that does not answer.
var DefaultBackoff = Backoff{Min: time.Second, Max: 2 * time.Minute}

// After returns the wait after the n-th failure in a row, from 1.
func (b Backoff) After(n int) time.Duration {
	wait := b.Min
	for i := 1; i < n && wait < b.Max; i++ {
		wait *= 2
	}
	wait = min(wait, b.Max)
	if wait <= 1 {
		return wait
	}
	return wait/2 + time.Duration(rand.Int64N(int64(wait)/2)) //nolint:gosec // only spreads load
}

// retries remembers, by key, when something may be tried again. It belongs to
// one goroutine, which works in passes: within one, time stands still, so that
// what is not due yet is always waited for.
type retries struct {
	clock   clock.PassiveClock
	backoff Backoff
	after   map[string]retry
	began   time.Time
}

type retry struct {
	failures int
	at       time.Time
}

// begin starts a pass.
func (r *retries) begin() { r.began = r.clock.Now() }

// due says whether the key may be tried in this pass.
func (r *retries) due(key string) bool {
	next, waiting := r.after[key]
	return !waiting || !r.began.Before(next.at)
}

// failed notes a failure.
func (r *retries) failed(key string) {
	next := r.after[key]
	next.failures++
	next.at = r.clock.Now().Add(r.backoff.After(next.failures))
	r.after[key] = next
}

// worked forgets earlier failures.
func (r *retries) worked(key string) { delete(r.after, key) }

// wait returns how long it is until the first key that was not due in this
// pass is, and false when there is none. A key that was due and was not tried
// again waits for what it needs, not for time.
func (r *retries) wait() (time.Duration, bool) {
	first, found := time.Time{}, false
	for _, next := range r.after {
		if next.at.After(r.began) && (!found || next.at.Before(first)) {
			first, found = next.at, true
		}
	}
	if !found {
		return 0, false
	}
	return max(first.Sub(r.clock.Now()), 0), true
}
