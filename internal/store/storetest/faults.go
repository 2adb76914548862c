package storetest

import (
	"errors"
	"io"
	"net/http"
	"sync"

	"github.com/undersong-dev/undersong/internal/store"
)

var errInjected = errors.New("storetest: fault as ordered")

// Faults is a transport that counts calls and makes one of them fail. It goes
// into store.Options. It is safe for concurrent use.
type Faults struct {
	base  http.RoundTripper
	after bool

	mu    sync.Mutex
	calls int
	at    int
}

// FailNth returns a transport that fails the n-th call, from 1, before it
// reaches the server, and lets all others through base. A nil base is
// store.Transport(). With n below 1 it only counts.
func FailNth(base http.RoundTripper, n int) *Faults {
	if base == nil {
		base = store.Transport()
	}
	return &Faults{base: base, at: n}
}

// LoseNth is FailNth with the worse fault: the server has done what it was
// asked, and the answer is lost.
func LoseNth(base http.RoundTripper, n int) *Faults {
	f := FailNth(base, n)
	f.after = true
	return f
}

// Calls returns how many calls there were since the start or the last Arm.
func (f *Faults) Calls() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls
}

// Arm starts counting anew; the n-th call from now fails, none with n below 1.
func (f *Faults) Arm(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls, f.at = 0, n
}

// next counts a call and reports whether it is the one to fail.
func (f *Faults) next() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls++
	return f.calls == f.at
}

// RoundTrip implements http.RoundTripper.
func (f *Faults) RoundTrip(req *http.Request) (*http.Response, error) {
	fail := f.next()
	if fail && !f.after {
		if req.Body != nil {
			_ = req.Body.Close() // as a transport must
		}
		return nil, errInjected
	}
	res, err := f.base.RoundTrip(req)
	if err == nil && fail {
		_, _ = io.Copy(io.Discard, res.Body) // the server may finish
		_ = res.Body.Close()
		return nil, errInjected
	}
	return res, err
}
