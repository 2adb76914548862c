// Package modelstub is a language model for tests: it speaks the part of
// OpenAI's chat protocol that a real Letta server uses, and says what it is
// told to say.
//
// A server that is configured with it runs whole turns, tool calls and
// compactions included, without network, cost or chance. Each call of the
// model takes the next ordered [Step]; without one the answer is
// [Options.Respond]'s or [Options.Answer]. It checks nothing of what it is asked, and keeps the
// requests so that a test can look at what an agent really saw.
package modelstub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

// Model is the name of the one model.
const Model = "stub-1"

// maxRequest bounds a request: whole conversations come with each.
const maxRequest = 64 << 20

// Call is a tool call that the model makes.
type Call struct {
	// Name of the tool.
	Name string
	// Arguments are encoded as JSON.
	Arguments any
}

// Step is one answer of the model. The zero value is an empty text.
type Step struct {
	// Text is said.
	Text string
	// Calls are made after the text.
	Calls []Call
	// Halt says half of the text before it is held by Hold, and breaks off
	// when it is released.
	Halt bool
	// Status other than 0 refuses the request with that HTTP status.
	Status int
}

// Options of a Server.
type Options struct {
	// Answer to every call without an ordered step; "" means "Noted.".
	Answer string
	// Respond, if not nil, makes the answer to a call without an ordered step
	// out of what was asked.
	Respond func(Request) Step
}

// Message is one message of a request.
type Message struct {
	Role string `json:"role"`
	// Content is a text or parts, as it came.
	Content    json.RawMessage `json:"content"`
	ToolCallID string          `json:"tool_call_id"`
}

// Text is the content's text, parts joined.
func (m Message) Text() string {
	var s string
	if json.Unmarshal(m.Content, &s) == nil {
		return s
	}
	var parts []struct {
		Text string `json:"text"`
	}
	_ = json.Unmarshal(m.Content, &parts) // a content that is neither has no text
	for _, p := range parts {
		s += p.Text
	}
	return s
}

// Request is what one call of the model asked.
type Request struct {
	Messages []Message `json:"messages"`
	Tools    []struct {
		Function struct {
			Name string `json:"name"`
		} `json:"function"`
	} `json:"tools"`
	Stream bool `json:"stream"`
}

// ToolNames are the names of the offered tools, sorted.
func (r Request) ToolNames() []string {
	names := make([]string, 0, len(r.Tools))
	for _, t := range r.Tools {
		names = append(names, t.Function.Name)
	}
	slices.Sort(names)
	return names
}

// opensTurn reports whether the request is a turn's first: what was said last
// was not said by a tool.
func (r Request) opensTurn() bool {
	n := len(r.Messages)
	return n > 0 && r.Messages[n-1].Role == "user"
}

// Server is the model. Use New.
type Server struct {
	respond func(Request) Step

	mu       sync.Mutex
	steps    []Step
	requests []Request
	turns    int
	gate     chan struct{} // closed: answers go out
	calls    int
	http     *http.Server
}

// New returns a model that serves nobody yet.
func New(o Options) *Server {
	if o.Answer == "" {
		o.Answer = "Noted."
	}
	gate := make(chan struct{})
	close(gate)
	if o.Respond == nil {
		o.Respond = func(Request) Step { return Step{Text: o.Answer} }
	}
	return &Server{respond: o.Respond, gate: gate}
}

// Start serves on a free port of loopback until ctx ends or Close, and returns
// the base URL, with /v1.
func (s *Server) Start(ctx context.Context) (string, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("listen for the model: %w", err)
	}
	srv := &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second}
	s.mu.Lock()
	s.http = srv
	s.mu.Unlock()
	go func() { _ = srv.Serve(l) }() // ends with Close
	context.AfterFunc(ctx, func() { _ = srv.Close() })
	return "http://" + l.Addr().String() + "/v1", nil
}

// Close stops serving, and breaks off answers under way.
func (s *Server) Close() error {
	s.mu.Lock()
	srv := s.http
	s.mu.Unlock()
	if srv == nil {
		return nil
	}
	return srv.Close()
}

// Order appends answers for the next calls.
func (s *Server) Order(steps ...Step) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.steps = append(s.steps, steps...)
}

// Drop forgets the ordered answers that were not given.
func (s *Server) Drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.steps = nil
}

// Hold keeps every answer from now on until release, which may be called
// more than once.
func (s *Server) Hold() (release func()) {
	gate := make(chan struct{})
	s.mu.Lock()
	s.gate = gate
	s.mu.Unlock()
	return sync.OnceFunc(func() { close(gate) })
}

// Turns counts the calls that began a turn.
func (s *Server) Turns() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.turns
}

// Requests are all calls so far.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// LastToolAnswer is what the newest request says that a tool answered, ""
// without one.
func (s *Server) LastToolAnswer() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.requests) == 0 {
		return ""
	}
	for _, m := range slices.Backward(s.requests[len(s.requests)-1].Messages) {
		if m.Role == "tool" {
			return m.Text()
		}
	}
	return ""
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.Method + " " + r.URL.Path {
	case "GET /v1/models":
		reply(w, map[string]any{"object": "list", "data": []any{
			map[string]any{"id": Model, "object": "model", "owned_by": "tests", "context_length": 128000},
		}})
	case "POST /v1/chat/completions":
		s.complete(w, r)
	default:
		http.NotFound(w, r)
	}
}

// complete answers one call of the model.
func (s *Server) complete(w http.ResponseWriter, r *http.Request) {
	var req Request
	data, err := io.ReadAll(io.LimitReader(r.Body, maxRequest))
	if err == nil {
		err = json.Unmarshal(data, &req)
	}
	if err != nil {
		http.Error(w, "the request cannot be read", http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	s.requests = append(s.requests, req)
	if req.opensTurn() {
		s.turns++
	}
	var step Step
	if len(s.steps) > 0 {
		step, s.steps = s.steps[0], s.steps[1:]
	} else {
		step = s.respond(req)
	}
	s.calls++
	number, gate := s.calls, s.gate
	s.mu.Unlock()

	held := func() (gone bool) {
		select {
		case <-gate:
			return false
		case <-r.Context().Done():
			return true
		}
	}
	if !step.Halt && held() {
		return
	}
	if step.Status != 0 {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(step.Status)
		// The text is constant, but for two values that need no escaping.
		_, _ = fmt.Fprintf(w, `{"error":{"message":"%s","type":"stub","code":%d}}`, http.StatusText(step.Status), step.Status)
		return
	}
	if !req.Stream {
		reply(w, answer(number, step))
		return
	}
	stream(w, number, step, held)
}

// usage is what every call costs.
var usage = map[string]any{"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}

func toolCalls(number int, step Step) []any {
	out := make([]any, 0, len(step.Calls))
	for i, c := range step.Calls {
		args, err := json.Marshal(c.Arguments)
		if err != nil {
			args = []byte("{}")
		}
		out = append(out, map[string]any{
			"index": i, "id": fmt.Sprintf("call_%d_%d", number, i), "type": "function",
			"function": map[string]any{"name": c.Name, "arguments": string(args)},
		})
	}
	return out
}

func finish(step Step) string {
	if len(step.Calls) > 0 {
		return "tool_calls"
	}
	return "stop"
}

// answer is a whole answer in one object.
func answer(number int, step Step) map[string]any {
	message := map[string]any{"role": "assistant", "content": step.Text}
	if len(step.Calls) > 0 {
		message["tool_calls"] = toolCalls(number, step)
	}
	return map[string]any{
		"id": fmt.Sprintf("chatcmpl-%d", number), "object": "chat.completion", "created": 1, "model": Model, "usage": usage,
		"choices": []any{map[string]any{"index": 0, "message": message, "finish_reason": finish(step)}},
	}
}

// stream gives the answer in server-sent events: the role, the text in two
// pieces, the calls, the end, the usage.
func stream(w http.ResponseWriter, number int, step Step, held func() bool) {
	w.Header().Set("Content-Type", "text/event-stream")
	send := func(choices []any, extra map[string]any) {
		chunk := map[string]any{
			"id": fmt.Sprintf("chatcmpl-%d", number), "object": "chat.completion.chunk", "created": 1, "model": Model, "choices": choices,
		}
		maps.Copy(chunk, extra)
		data, err := json.Marshal(chunk)
		if err != nil {
			return
		}
		_, _ = fmt.Fprintf(w, "data: %s\n\n", data) // a reader that went away is his own matter
		_ = http.NewResponseController(w).Flush()
	}
	delta := func(d map[string]any) { send([]any{map[string]any{"index": 0, "delta": d, "finish_reason": nil}}, nil) }
	delta(map[string]any{"role": "assistant", "content": ""})
	if half := len(step.Text) / 2; step.Text != "" {
		for _, piece := range halves(step.Text, half) {
			delta(map[string]any{"content": piece})
			if step.Halt {
				held()
				return
			}
		}
	}
	if len(step.Calls) > 0 {
		delta(map[string]any{"tool_calls": toolCalls(number, step)})
	}
	send([]any{map[string]any{"index": 0, "delta": map[string]any{}, "finish_reason": finish(step)}}, nil)
	send([]any{}, map[string]any{"usage": usage})
	_, _ = io.WriteString(w, "data: [DONE]\n\n")
}

// halves cuts a text near n, between two characters.
func halves(text string, n int) []string {
	for n > 0 && text[n]&0xC0 == 0x80 {
		n--
	}
	if n == 0 {
		return []string{text}
	}
	return []string{text[:n], text[n:]}
}

func reply(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(v); err != nil && !errors.Is(err, http.ErrHandlerTimeout) {
		return
	}
}
