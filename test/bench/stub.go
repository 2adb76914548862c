package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"
)

// StubAgentID is the agent every request may name; it has the plugin's
// required "agent-" + UUID form.
const StubAgentID = "agent-11111111-2222-4333-8444-555555555555"

// Stub answers the Letta v1 REST calls that a Claude Code memory client makes.
// It keeps everything in memory and listens on loopback only.
//
// Control, not part of Letta:
//
//	GET  /__stub/stats                       requests so far, by method and route
//	POST /__stub/reset                       forget messages, counters, settings
//	POST /__stub/say   {"conversation","text"}     add an assistant message
//	POST /__stub/block {"label","value"}           change a memory block
//	POST /__stub/set   {"delayMs","postStatus","order","slow":{"GET /models":500}}
type Stub struct {
	mu       sync.Mutex
	base     string
	srv      *http.Server
	counts   map[string]int
	bytesIn  int64
	lastPost []byte
	posts    []int // size of each message POST body
	delay    time.Duration
	status   int    // status for message POSTs (0 = 200)
	order    string // "desc" (default) or "asc"
	slow     map[string]int
	convs    map[string][]obj
	convSeq  int
	agentSeq int
	blocks   []obj
	patches  []json.RawMessage
}

// NewStub returns a stub without messages.
func NewStub() *Stub {
	s := &Stub{}
	s.reset()
	return s
}

func (s *Stub) reset() {
	s.counts = map[string]int{}
	s.bytesIn, s.posts, s.lastPost, s.patches = 0, nil, nil, nil
	s.delay, s.status, s.order, s.slow = 0, 0, "desc", nil
	s.convs = map[string][]obj{}
	g := newText(7)
	s.blocks = nil
	for _, b := range []struct {
		label string
		n     int
	}{
		{"core_directives", 3600},
		{"guidance", 900},
		{"pending_items", 1200},
		{"project_context", 2900},
		{"self_improvement", 2300},
		{"session_patterns", 1500},
		{"tool_guidelines", 1400},
		{"user_preferences", 2200},
	} {
		s.blocks = append(s.blocks, obj{
			"id": "block-" + b.label, "label": b.label, "limit": 5000,
			"description": "Stub block " + b.label + ".", "value": g.prose(b.n), "read_only": false,
		})
	}
}

// Start listens on addr (a loopback address) and serves in the background.
func (s *Stub) Start(ctx context.Context, addr string) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	if a, ok := l.Addr().(*net.TCPAddr); !ok || !a.IP.IsLoopback() {
		_ = l.Close() // never used
		return fmt.Errorf("%s is not a loopback address", addr)
	}
	s.base = "http://" + l.Addr().String()
	s.srv = &http.Server{Handler: s, ReadHeaderTimeout: time.Minute}
	go func() { _ = s.srv.Serve(l) }() // it ends with the process
	return nil
}

func (s *Stub) agent(id string, withBlocks bool) obj {
	a := obj{
		"id": id, "name": "Subconscious", "description": "Stub agent.", "agent_type": "letta_v1_agent",
		"system": newText(9).prose(6000),
		"tags":   []string{"git-memory-enabled", "origin:claude-subconcious"},
		"model":  "letta/auto",
		"llm_config": obj{
			"model": "auto", "handle": "letta/auto", "provider_name": "letta", "model_endpoint_type": "letta",
			"model_endpoint": s.base, "context_window": 128000, "temperature": 0.7,
		},
		"embedding_config": obj{"handle": "openai/text-embedding-3-small", "embedding_dim": 1536},
		"blocks":           []obj{}, "tools": []obj{}, "created_at": "2026-01-05T09:00:00Z",
	}
	if withBlocks {
		a["blocks"] = s.blocks
		a["memory"] = obj{"blocks": s.blocks}
	}
	return a
}

func (s *Stub) models() []obj {
	var out []obj
	for i, p := range []string{"letta", "anthropic", "openai", "google_ai", "zai", "minimax"} {
		for j := range 12 {
			name := fmt.Sprintf("model-%d-%d", i, j)
			if p == "letta" && j == 0 {
				name = "auto"
			}
			out = append(out, obj{
				"model": name, "name": name, "display_name": name, "provider_type": p, "provider_name": p,
				"handle": p + "/" + name, "model_type": "llm", "max_context_window": 128000, "context_window": 128000,
				"model_endpoint_type": p, "model_endpoint": "https://example.invalid/v1", "temperature": 1.0, "tier": "free",
				"put_inner_thoughts_in_kwargs": false, "enable_reasoner": true, "parallel_tool_calls": false,
			})
		}
	}
	return out
}

// Say adds an assistant message, preceded by the reasoning entry that Letta
// also lists, and returns the message id.
func (s *Stub) Say(conv, text string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.say(conv, text)
}

func (s *Stub) say(conv, text string) string {
	n := len(s.convs[conv])
	at := time.Date(2026, 1, 5, 10, 0, n, 0, time.UTC).Format(time.RFC3339)
	id := fmt.Sprintf("message-%s-%04d", conv, n)
	s.convs[conv] = append(s.convs[conv],
		obj{"id": id + "-r", "message_type": "hidden_reasoning_message", "date": at, "state": "omitted"},
		obj{"id": id, "message_type": "assistant_message", "date": at, "content": text})
	return id
}

func writeJSON(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // objects of ours
	}
	_, _ = w.Write(append(b, '\n')) // the client may have gone
}

func (s *Stub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, 64<<20))
	if err != nil {
		return // the client has gone
	}
	p := strings.Trim(strings.TrimPrefix(r.URL.Path, "/v1"), "/")
	seg := strings.Split(p, "/")

	s.mu.Lock()
	if seg[0] == "__stub" {
		defer s.mu.Unlock()
		s.control(w, seg, body)
		return
	}
	route := append([]string(nil), seg...)
	if len(route) > 1 && (route[0] == "agents" || route[0] == "conversations") && route[1] != "import" {
		route[1] = "{id}"
	}
	key := r.Method + " /" + strings.Join(route, "/")
	s.counts[key]++
	s.bytesIn += int64(len(body))
	delay := s.delay + time.Duration(s.slow[key])*time.Millisecond
	s.mu.Unlock()
	pause(delay)
	s.mu.Lock()
	defer s.mu.Unlock()

	switch key {
	case "GET /health":
		writeJSON(w, 200, obj{"version": "0.16.8", "status": "ok"})
	case "GET /agents":
		writeJSON(w, 200, []obj{s.agent(StubAgentID, false)})
	case "GET /agents/{id}":
		writeJSON(w, 200, s.agent(seg[1], strings.Contains(r.URL.Query().Get("include"), "blocks")))
	case "PATCH /agents/{id}":
		s.patches = append(s.patches, json.RawMessage(body))
		writeJSON(w, 200, s.agent(seg[1], false))
	case "POST /agents/import":
		s.agentSeq++
		writeJSON(w, 200, obj{"agent_ids": []string{fmt.Sprintf("agent-11111111-2222-4333-8444-%012d", s.agentSeq)}})
	case "GET /models":
		writeJSON(w, 200, s.models())
	case "POST /conversations":
		s.convSeq++
		id := fmt.Sprintf("conv-11111111-2222-4333-8444-%012d", s.convSeq)
		s.convs[id] = nil
		writeJSON(w, 200, obj{"id": id, "agent_id": r.URL.Query().Get("agent_id"), "created_at": "2026-01-05T09:00:00Z"})
	case "GET /conversations":
		list := []obj{}
		for id := range s.convs {
			list = append(list, obj{"id": id, "agent_id": r.URL.Query().Get("agent_id")})
		}
		writeJSON(w, 200, list)
	case "GET /conversations/{id}":
		writeJSON(w, 200, obj{"id": seg[1], "agent_id": StubAgentID, "in_context_message_ids": []string{}})
	case "GET /conversations/{id}/messages":
		limit := 100
		if n, err := strconv.Atoi(r.URL.Query().Get("limit")); err == nil {
			limit = n
		}
		all := s.convs[seg[1]]
		out := []obj{}
		for i := len(all) - 1; i >= 0 && len(out) < limit; i-- { // newest first
			out = append(out, all[i])
		}
		order := r.URL.Query().Get("order")
		if order == "" {
			order = s.order
		}
		if order == "asc" {
			for i, j := 0, len(out)-1; i < j; i, j = i+1, j-1 {
				out[i], out[j] = out[j], out[i]
			}
		}
		writeJSON(w, 200, out)
	case "POST /conversations/{id}/messages":
		s.posts = append(s.posts, len(body))
		s.lastPost = body
		if s.status != 0 && s.status != 200 {
			writeJSON(w, s.status, obj{"detail": "stub: told to fail"})
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		for _, ev := range []obj{
			{"message_type": "reasoning_message", "id": "message-r", "reasoning": "…"},
			{"message_type": "assistant_message", "id": "message-a", "content": "noted"},
			{"message_type": "stop_reason", "stop_reason": "end_turn"},
		} {
			b, err := json.Marshal(ev)
			if err != nil {
				panic(err) // objects of ours
			}
			_, _ = io.WriteString(w, "data: "+string(b)+"\n\n") // the client may have gone
		}
		_, _ = io.WriteString(w, "data: [DONE]\n\n")
	default:
		writeJSON(w, 404, obj{"detail": "stub: no such route: " + key})
	}
}

func (s *Stub) control(w http.ResponseWriter, seg []string, body []byte) {
	var in struct {
		Conversation, Text, Label, Value, Order string
		DelayMs, PostStatus                     *int
		Slow                                    map[string]int
	}
	if err := json.Unmarshal(body, &in); err != nil && len(body) > 0 {
		writeJSON(w, http.StatusBadRequest, obj{"detail": err.Error()})
		return
	}
	switch strings.Join(seg[1:], "/") {
	case "stats":
		writeJSON(w, 200, obj{"counts": s.counts, "bytesIn": s.bytesIn, "posts": s.posts, "patches": s.patches, "lastPost": string(s.lastPost)})
	case "reset":
		s.reset()
		writeJSON(w, 200, obj{})
	case "say":
		writeJSON(w, 200, obj{"id": s.say(in.Conversation, in.Text)})
	case "block":
		for _, b := range s.blocks {
			if b["label"] == in.Label {
				b["value"] = in.Value
			}
		}
		writeJSON(w, 200, obj{})
	case "set":
		if in.DelayMs != nil {
			s.delay = time.Duration(*in.DelayMs) * time.Millisecond
		}
		if in.PostStatus != nil {
			s.status = *in.PostStatus
		}
		if in.Order != "" {
			s.order = in.Order
		}
		if in.Slow != nil {
			s.slow = in.Slow
		}
		writeJSON(w, 200, obj{})
	default:
		writeJSON(w, 404, obj{"detail": "no such control"})
	}
}

// takeCounts returns the requests since the last call, and their number.
func (s *Stub) takeCounts() (map[string]int, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, n := s.counts, 0
	for _, v := range c {
		n += v
	}
	s.counts = map[string]int{}
	return c, n
}

func cmdStub(ctx context.Context, args []string) error {
	fs := flag.NewFlagSet("stub", flag.ContinueOnError)
	addr := fs.String("addr", "127.0.0.1:8283", "loopback address to listen on")
	delay := fs.Int("delay", 0, "delay before each answer, ms")
	if err := fs.Parse(args); err != nil {
		return err
	}
	s := NewStub()
	s.delay = time.Duration(*delay) * time.Millisecond
	if err := s.Start(ctx, *addr); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(os.Stdout, "LETTA_BASE_URL=%s LETTA_AGENT_ID=%s\n", s.base, StubAgentID); err != nil {
		return err
	}
	<-ctx.Done()
	c, _ := s.takeCounts()
	keys := make([]string, 0, len(c))
	for k := range c {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	for _, k := range keys {
		if _, err := fmt.Fprintf(os.Stdout, "%5d %s\n", c[k], k); err != nil {
			return err
		}
	}
	return nil
}
