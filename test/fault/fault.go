// Package fault makes the nth request over HTTP fail, once, so that a test can
// fail each outside call in turn and compare the end with the undisturbed one.
package fault

import (
	"errors"
	"net/http"
	"sync/atomic"
)

// ErrInjected is the failure. It looks like a lost connection.
var ErrInjected = errors.New("injected: the connection was lost")

// Mode says when a request fails.
type Mode int

const (
	// Before: the request does not reach the server.
	Before Mode = iota
	// After: the server has carried it out, and its answer is lost.
	After
)

// Counter counts requests and fails one of them. It is shared by all
// transports of one process under test.
type Counter struct {
	// At is the number of the request that fails, from 1. Zero fails none.
	At int64
	// Mode says when it fails.
	Mode Mode

	n    atomic.Int64
	what atomic.Pointer[string]
}

// Calls is the number of requests so far.
func (c *Counter) Calls() int64 { return c.n.Load() }

// Failed says which request failed, empty if none did.
func (c *Counter) Failed() string {
	if s := c.what.Load(); s != nil {
		return *s
	}
	return ""
}

// Wrap makes a transport count. base may be nil.
func (c *Counter) Wrap(base http.RoundTripper) http.RoundTripper {
	if base == nil {
		base = http.DefaultTransport
	}
	return &transport{counter: c, base: base}
}

type transport struct {
	counter *Counter
	base    http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	c := t.counter
	if c.n.Add(1) != c.At {
		return t.base.RoundTrip(r)
	}
	what := r.Method + " " + r.URL.Path
	c.what.Store(&what)
	if c.Mode == Before {
		return nil, ErrInjected
	}
	res, err := t.base.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	return nil, errors.Join(ErrInjected, res.Body.Close())
}
