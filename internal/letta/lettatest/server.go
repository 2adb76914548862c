package lettatest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

const (
	// version that the server claims to be.
	version = "0.16.8"
	// replayWindow is how long the real server knows a run by its otids.
	replayWindow = 3 * time.Hour
	// lockTime is how long the real server holds a conversation for one turn.
	// It never extends it, so that a longer turn can be overlapped.
	lockTime = 5 * time.Minute
	// pingInterval of a silent stream.
	pingInterval = 20 * time.Second
)

// Options of a Server. The zero value works.
type Options struct {
	// Key that requests must carry; "" lets everybody in.
	Key string
	// StateFile keeps the state over restarts: read by New if it is there,
	// written after each change. "" keeps nothing.
	StateFile string
	// Delay of every turn.
	Delay time.Duration
	// PingInterval of a silent stream; 0 means 20 seconds.
	PingInterval time.Duration
	// NoRedis refuses background turns and replays, as a server does that
	// was started without it.
	NoRedis bool
	// Strange adds fields, message types and stream lines that no client
	// knows to every answer.
	Strange bool
	// Upstream, if not nil, is a real server that answers instead: every
	// request is passed on to it, and ordered faults of requests strike on the
	// way. Key must be "".
	Upstream *url.URL
	// Clock defaults to the real one.
	Clock clock.WithTicker
}

// Server is the stand-in. It is an http.Handler, safe for concurrent use.
type Server struct {
	opts   Options
	clock  clock.WithTicker
	routes []route
	proxy  *httputil.ReverseProxy // nil without Options.Upstream
	stop   context.CancelFunc
	done   <-chan struct{}
	turns  sync.WaitGroup

	mu       sync.Mutex
	state    state
	last     time.Time // the latest time given out
	gate     chan struct{}
	faults   []Fault
	failures []TurnFault
	requests map[string]int
	ran      int
	live     map[string]*running
	saveErr  error
	http     *http.Server
}

// New makes a server, with the state of Options.StateFile if that exists.
func New(o Options) (*Server, error) {
	if o.PingInterval <= 0 {
		o.PingInterval = pingInterval
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	ctx, stop := context.WithCancel(context.Background())
	s := &Server{
		opts:     o,
		clock:    o.Clock,
		stop:     stop,
		done:     ctx.Done(),
		state:    newState(),
		requests: map[string]int{},
		live:     map[string]*running{},
	}
	s.routes = s.table()
	if u := o.Upstream; u != nil {
		s.proxy = &httputil.ReverseProxy{
			Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(u) },
			FlushInterval: -1, // a turn's events are not to be kept back
			ErrorHandler:  func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
		}
	}
	if o.StateFile != "" {
		if err := s.state.load(o.StateFile); err != nil {
			stop()
			return nil, fmt.Errorf("load state: %w", err)
		}
	}
	return s, nil
}

// Start serves on address, "127.0.0.1:0" for a free port, and returns the
// base URL.
func (s *Server) Start(ctx context.Context, address string) (string, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return "", fmt.Errorf("listen: %w", err)
	}
	server := &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second}
	s.mu.Lock()
	s.http = server
	s.mu.Unlock()
	go func() { _ = server.Serve(listener) }() // ends with Close
	return "http://" + listener.Addr().String(), nil
}

// Close stops turns and answers, waits for the turns, and reports a state
// that could not be saved.
func (s *Server) Close() error {
	s.stop()
	s.mu.Lock()
	server := s.http
	s.mu.Unlock()
	var err error
	if server != nil {
		err = server.Close()
	}
	s.turns.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return errors.Join(err, s.saveErr)
}

// Turns is the number of turns that were begun: what the real server would
// pay a model for.
func (s *Server) Turns() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ran
}

// Requests is the number of requests to a route, written with its method and
// placeholders: "POST /v1/conversations/{id}/messages". Requests that were
// refused before (401, 307, 404) do not count.
func (s *Server) Requests(route string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests[route]
}

// Message is one stored message, as tests look at it.
type Message struct {
	// Role is system, user, assistant, tool or summary.
	Role, Text, OTID, RunID string
}

// Conversation is one conversation, as tests look at it.
type Conversation struct {
	ID, AgentID, Summary string
	// Messages in the order in which they were stored.
	Messages []Message
}

// Conversations returns all conversations that are not deleted, in the order
// of creation.
func (s *Server) Conversations() []Conversation {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Conversation
	for _, c := range s.state.conversations() {
		v := Conversation{ID: c.ID, AgentID: c.AgentID, Summary: c.Summary}
		for _, m := range c.Messages {
			v.Messages = append(v.Messages, Message{Role: m.Role, Text: m.Text, OTID: m.OTID, RunID: m.RunID})
		}
		out = append(out, v)
	}
	return out
}

// Heard is every text that a user's message ever had, in conversations that
// are deleted as well.
func (s *Server) Heard() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for _, c := range s.state.Conversations {
		for _, m := range c.Messages {
			if m.Role == "user" {
				out = append(out, m.Text)
			}
		}
	}
	return out
}

// nowLocked gives times that never repeat: the real server's have
// microseconds, and listings are ordered by them.
func (s *Server) nowLocked() time.Time {
	now := s.clock.Now().UTC().Truncate(time.Microsecond)
	if !now.After(s.last) {
		now = s.last.Add(time.Microsecond)
	}
	s.last = now
	return now
}

// saveLocked writes the state after a change. An error is kept for Close and
// for the requests that follow: state that cannot be kept must not look kept.
func (s *Server) saveLocked() {
	if s.opts.StateFile != "" {
		s.saveErr = s.state.save(s.opts.StateFile)
	}
}
