package lettatest

import (
	"context"
	"io"
	"maps"
	"net/http"
	"slices"
	"sync"
)

// Fault disturbs one request. Exactly one of the disturbances is meant to be
// set.
type Fault struct {
	// Route to disturb, as in [Server.Requests]; "" means any.
	Route string
	// Nth such request from now; 0 and 1 mean the next.
	Nth int

	// Status answers with this status, Header and Body and does nothing.
	Status int
	Header http.Header
	Body   string
	// Hang answers nothing until the client goes away or the server closes.
	Hang bool
	// DropBefore closes the connection and does nothing.
	DropBefore bool
	// DropAfter does everything, a turn to its end, and then closes the
	// connection without an answer.
	DropAfter bool
	// CutAfter closes the connection after so many bytes of the answer's
	// body. A turn goes on.
	CutAfter int
}

// Inject orders a fault. Several can wait; each strikes once.
func (s *Server) Inject(f Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, f)
}

// Faults is the number of ordered faults that have not struck: a test whose
// fault did not strike has tested something else.
func (s *Server) Faults() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.faults) + len(s.failures)
}

func (s *Server) takeFaultLocked(route string) *Fault {
	var struck *Fault
	for i := range s.faults {
		f := &s.faults[i]
		if f.Route != "" && f.Route != route {
			continue
		}
		if f.Nth > 1 {
			f.Nth--
			continue
		}
		if struck == nil {
			hit := *f
			struck = &hit
			f.Nth = -1
		}
	}
	s.faults = slices.DeleteFunc(s.faults, func(f Fault) bool { return f.Nth == -1 })
	return struck
}

// disturb carries out a fault.
func (s *Server) disturb(f Fault, w http.ResponseWriter, r *http.Request, handle http.HandlerFunc) {
	switch {
	case f.Status != 0:
		maps.Copy(w.Header(), f.Header)
		w.WriteHeader(f.Status)
		_, _ = io.WriteString(w, f.Body) // a client that has gone needs no answer
	case f.Hang:
		// The body must be read, or the server does not notice that the
		// client has gone.
		_, _ = io.Copy(io.Discard, r.Body)
		select {
		case <-r.Context().Done():
		case <-s.done:
		}
	case f.DropBefore:
		panic(http.ErrAbortHandler)
	case f.DropAfter:
		handle(&nowhere{header: http.Header{}}, r.WithContext(context.WithoutCancel(r.Context())))
		panic(http.ErrAbortHandler)
	case f.CutAfter > 0:
		handle(&cut{ResponseWriter: w, left: f.CutAfter}, r)
		panic(http.ErrAbortHandler)
	}
}

// nowhere is an answer that nobody gets.
type nowhere struct{ header http.Header }

func (n *nowhere) Header() http.Header         { return n.header }
func (n *nowhere) Write(p []byte) (int, error) { return len(p), nil }
func (n *nowhere) WriteHeader(int)             {}
func (n *nowhere) Flush()                      {}

// cut lets some bytes through and then breaks the connection.
type cut struct {
	http.ResponseWriter
	left int
}

func (c *cut) Write(p []byte) (int, error) {
	if len(p) < c.left {
		c.left -= len(p)
		return c.ResponseWriter.Write(p)
	}
	_, _ = c.ResponseWriter.Write(p[:c.left])
	_ = http.NewResponseController(c.ResponseWriter).Flush() // so that the bytes before the cut arrive
	panic(http.ErrAbortHandler)
}

// Unwrap lets a response controller flush.
func (c *cut) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// TurnFault makes a turn fail.
type TurnFault struct {
	// StopReason of the turn; "" means llm_api_error.
	StopReason string
	// ErrorType of an error event, llm_rate_limit for example; "" sends none.
	ErrorType string
	// Stored: the first step ends and its messages, the user's among them,
	// are stored before the failure. Otherwise nothing is.
	Stored bool
	// NoStop: the stream ends without a stop reason.
	NoStop bool
}

// FailTurn makes the next turn fail. Several can wait.
func (s *Server) FailTurn(f TurnFault) {
	if f.StopReason == "" {
		f.StopReason = "llm_api_error" // the zero TurnFault would be none
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failures = append(s.failures, f)
}

// HoldTurns keeps every turn that begins from now on from ending, other than
// by cancelling, until release is called.
func (s *Server) HoldTurns() (release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	gate := make(chan struct{})
	s.gate = gate
	var once sync.Once
	return func() {
		once.Do(func() {
			close(gate)
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.gate == gate {
				s.gate = nil
			}
		})
	}
}

// ExpireReplays forgets which otids belong to which run, as the real server
// does after three hours: a request that comes again now runs again.
func (s *Server) ExpireReplays() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.state.ByOTID)
	s.saveLocked()
}
