package claude

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// maxRequest bounds what Claude Code sends: a model's whole window.
const maxRequest = 64 << 20

// Model answers Messages API requests by a script and remembers them.
type Model struct {
	// URL is where it answers.
	URL string

	server *http.Server

	mu       sync.Mutex
	rules    []*Rule
	requests []Request
	held     map[string]chan struct{} // by Block.Hold
}

// Rule is one answer of the script. The first one that matches a request and
// is not used up answers it; without one the answer is "Noted.".
type Rule struct {
	// When is a text in the newest turn: in all messages after the model's
	// last one, as JSON. Use odd words, the harness's own text is in there.
	When string
	// Tool must be offered. Empty means any request.
	Tool string
	// Always answers as often as it is asked. Otherwise once.
	Always bool
	// Tokens is the reported size of the input.
	Tokens int
	// Blocks are the answer.
	Blocks []Block

	used bool
}

// Block is a part of an answer.
type Block struct {
	// Text is said, or Thinking thought, or Tool called with an ID and Input.
	Text, Thinking, Tool, ID string
	Input                    map[string]any
	// Hold keeps the block back until Release of that name, or until Claude
	// Code hangs up.
	Hold string
}

// Request is one request for an answer.
type Request struct {
	// Session is the session that Claude Code names.
	Session string
	// System is the system prompt, Turn the newest turn, both as JSON.
	System, Turn string
	// Messages are all of them.
	Messages []Message
	// Tools are the names of the tools on offer.
	Tools []string
	// Rule is the When of the rule that answered, "" if none did.
	Rule string
}

// Message is one message of a request.
type Message struct {
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`
}

// Count is how often a text stands in the messages.
func (r *Request) Count(text string) int {
	n := 0
	for _, m := range r.Messages {
		n += strings.Count(m.Text(), text)
	}
	return n
}

// Text is everything that the message says: strings decoded, one below the
// other.
func (m Message) Text() string {
	var all []string
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case string:
			all = append(all, v)
		case []any:
			for _, e := range v {
				walk(e)
			}
		case map[string]any:
			for _, e := range v {
				walk(e)
			}
		}
	}
	var content any
	if json.Unmarshal(m.Content, &content) == nil {
		walk(content)
	}
	return strings.Join(all, "\n")
}

// StartModel starts a model on loopback.
func StartModel(ctx context.Context, rules ...*Rule) (*Model, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	m := &Model{URL: "http://" + listener.Addr().String(), rules: rules, held: map[string]chan struct{}{}}
	m.server = &http.Server{Handler: m, ReadHeaderTimeout: time.Minute}
	go func() { _ = m.server.Serve(listener) }() // ends with Close
	return m, nil
}

// Close ends it, with whatever is on the way.
func (m *Model) Close() error { return m.server.Close() }

// Script adds rules; newer ones go first.
func (m *Model) Script(rules ...*Rule) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rules = append(rules, m.rules...)
}

// Requests returns all requests for answers so far.
func (m *Model) Requests() []Request {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.requests)
}

// Release lets a held block go.
func (m *Model) Release(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	close(m.gateLocked(name))
}

func (m *Model) gateLocked(name string) chan struct{} {
	if m.held[name] == nil {
		m.held[name] = make(chan struct{})
	}
	return m.held[name]
}

// ServeHTTP answers one request.
func (m *Model) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest))
	if err != nil {
		http.Error(w, "too long", http.StatusRequestEntityTooLarge)
		return
	}
	if r.Method != http.MethodPost || r.URL.Path != "/v1/messages" {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"input_tokens":10}`) // whoever counts tokens; others ignore it
		return
	}
	var ask struct {
		Model    string                  `json:"model"`
		Stream   bool                    `json:"stream"`
		System   json.RawMessage         `json:"system"`
		Messages []Message               `json:"messages"`
		Tools    []struct{ Name string } `json:"tools"`
		Metadata struct {
			UserID string `json:"user_id"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(body, &ask); err != nil {
		http.Error(w, "not a request", http.StatusBadRequest)
		return
	}
	q := Request{Session: sessionIn(ask.Metadata.UserID), System: string(ask.System), Turn: newestTurn(ask.Messages), Messages: ask.Messages}
	for _, t := range ask.Tools {
		q.Tools = append(q.Tools, t.Name)
	}
	n, rule := m.take(q)
	a := answer{writer: w, stream: ask.Stream, model: ask.Model, id: fmt.Sprintf("msg_scripted_%04d", n), tokens: max(rule.Tokens, 10)}
	for i, b := range rule.Blocks {
		if b.Hold != "" {
			m.mu.Lock()
			gate := m.gateLocked(b.Hold)
			m.mu.Unlock()
			a.begin() // what was said before is on the screen
			select {
			case <-gate:
			case <-r.Context().Done():
				return
			}
		}
		a.add(i, b)
	}
	a.end()
}

// take finds the rule for a request, and remembers both.
func (m *Model) take(q Request) (int, *Rule) {
	m.mu.Lock()
	defer m.mu.Unlock()
	found := &Rule{Blocks: []Block{{Text: "Noted."}}}
	for _, r := range m.rules {
		if !r.used && strings.Contains(q.Turn, r.When) && (r.Tool == "" || slices.Contains(q.Tools, r.Tool)) {
			r.used = !r.Always
			found = r
			break
		}
	}
	q.Rule = found.When
	m.requests = append(m.requests, q)
	return len(m.requests), found
}

// newestTurn is everything after the model's last message.
func newestTurn(messages []Message) string {
	var turn []string
	for _, m := range slices.Backward(messages) {
		if m.Role == "assistant" {
			break
		}
		turn = append(turn, string(m.Content))
	}
	return strings.Join(turn, "\n")
}

// sessionIn finds the session's id in what Claude Code says of the user: JSON
// or words with underscores, by release.
func sessionIn(user string) string {
	var named struct {
		Session string `json:"session_id"`
	}
	if json.Unmarshal([]byte(user), &named) == nil {
		return named.Session
	}
	_, id, _ := strings.Cut(user, "session_")
	return id
}

// answer is a message on its way, streamed or whole.
type answer struct {
	writer    http.ResponseWriter
	stream    bool
	model, id string
	tokens    int
	begun     bool
	stop      string
	blocks    []map[string]any
}

func (a *answer) message(content any, stop any) map[string]any {
	return map[string]any{
		"id": a.id, "type": "message", "role": "assistant", "model": a.model, "content": content, "stop_reason": stop, "stop_sequence": nil,
		"usage": map[string]any{"input_tokens": a.tokens, "output_tokens": 20, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0},
	}
}

// begin sends the head of a stream, once.
func (a *answer) begin() {
	if a.begun || !a.stream {
		return
	}
	a.begun = true
	a.writer.Header().Set("Content-Type", "text/event-stream")
	a.event("message_start", map[string]any{"message": a.message([]any{}, nil)})
}

func (a *answer) add(i int, b Block) {
	a.begin()
	switch {
	case b.Tool != "":
		a.stop = "tool_use"
		input := b.Input
		if input == nil {
			input = map[string]any{}
		}
		arguments, err := json.Marshal(input)
		if err != nil {
			panic(err) // a script that is no JSON
		}
		a.block(i, map[string]any{"type": "tool_use", "id": b.ID, "name": b.Tool, "input": input},
			map[string]any{"type": "tool_use", "id": b.ID, "name": b.Tool, "input": map[string]any{}},
			map[string]any{"type": "input_json_delta", "partial_json": string(arguments)})
	case b.Thinking != "":
		const signature = "c2lnbmF0dXJl"
		a.block(i, map[string]any{"type": "thinking", "thinking": b.Thinking, "signature": signature},
			map[string]any{"type": "thinking", "thinking": "", "signature": ""},
			map[string]any{"type": "thinking_delta", "thinking": b.Thinking},
			map[string]any{"type": "signature_delta", "signature": signature})
	default:
		a.block(i, map[string]any{"type": "text", "text": b.Text},
			map[string]any{"type": "text", "text": ""},
			map[string]any{"type": "text_delta", "text": b.Text})
	}
}

// block sends one block in its parts, or keeps it whole.
func (a *answer) block(i int, whole, start map[string]any, deltas ...map[string]any) {
	if !a.stream {
		a.blocks = append(a.blocks, whole)
		return
	}
	a.event("content_block_start", map[string]any{"index": i, "content_block": start})
	for _, d := range deltas {
		a.event("content_block_delta", map[string]any{"index": i, "delta": d})
	}
	a.event("content_block_stop", map[string]any{"index": i})
}

func (a *answer) end() {
	if a.stop == "" {
		a.stop = "end_turn"
	}
	if a.stream {
		a.begin()
		a.event("message_delta", map[string]any{"delta": map[string]any{"stop_reason": a.stop, "stop_sequence": nil}, "usage": map[string]any{"input_tokens": a.tokens, "output_tokens": 20}})
		a.event("message_stop", map[string]any{})
		return
	}
	text, err := json.Marshal(a.message(a.blocks, a.stop))
	if err != nil {
		panic(err) // maps of strings and numbers
	}
	a.writer.Header().Set("Content-Type", "application/json")
	_, _ = a.writer.Write(text) // nobody listens any more
}

func (a *answer) event(name string, data map[string]any) {
	data["type"] = name
	text, err := json.Marshal(data)
	if err != nil {
		panic(err) // maps of strings and numbers
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "event: %s\ndata: %s\n\n", name, text)
	_, err = a.writer.Write(b.Bytes())
	if f, ok := a.writer.(http.Flusher); ok && err == nil {
		f.Flush()
	}
}
