package lettatest

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
)

// maxBody bounds a request.
const maxBody = 64 << 20

// route is one path of the API. Its name is method and path with
// placeholders, the trailing slash included.
type route struct {
	name   string
	handle func(w http.ResponseWriter, r *http.Request, p params) error
}

// params are the values of a path's placeholders.
type params map[string]string

// problem is an error answer with Letta's body.
type problem struct {
	status int
	body   map[string]any
}

func (p *problem) Error() string { return http.StatusText(p.status) }

func refuse(status int, detail string) *problem {
	return &problem{status, map[string]any{"detail": detail}}
}

func notFound(what string) *problem { return refuse(http.StatusNotFound, what+" not found") }

func (s *Server) table() []route {
	return []route{
		{"GET /v1/health/", s.health},
		{"POST /v1/agents/", s.createAgent},
		{"GET /v1/agents/", s.listAgents},
		{"GET /v1/agents/{agent}", s.getAgent},
		{"PATCH /v1/agents/{agent}", s.patchAgent},
		{"DELETE /v1/agents/{agent}", s.deleteAgent},
		{"GET /v1/agents/{agent}/core-memory/blocks", s.listBlocks},
		{"GET /v1/agents/{agent}/core-memory/blocks/{label}", s.getBlock},
		{"PATCH /v1/agents/{agent}/core-memory/blocks/{label}", s.patchBlock},
		{"PATCH /v1/agents/{agent}/core-memory/blocks/attach/{block}", s.attachBlock},
		{"PATCH /v1/agents/{agent}/core-memory/blocks/detach/{block}", s.detachBlock},
		{"POST /v1/blocks/", s.createBlock},
		{"DELETE /v1/blocks/{block}", s.deleteBlock},
		{"GET /v1/blocks/{block}/agents", s.blockAgents},
		{"POST /v1/conversations/", s.createConversation},
		{"GET /v1/conversations/", s.listConversations},
		{"GET /v1/conversations/{id}", s.getConversation},
		{"PATCH /v1/conversations/{id}", s.patchConversation},
		{"DELETE /v1/conversations/{id}", s.deleteConversation},
		{"GET /v1/conversations/{id}/messages", s.listMessages},
		{"POST /v1/conversations/{id}/messages", s.send},
		{"POST /v1/conversations/{id}/stream", s.replay},
		{"POST /v1/conversations/{id}/cancel", s.cancel},
		{"POST /v1/conversations/{id}/compact", s.compact},
		{"POST /v1/conversations/{id}/recompile", s.recompile},
		{"GET /v1/runs/", s.listRuns},
		{"GET /v1/runs/{run}", s.getRun},
	}
}

// match fits a path into a route's pattern.
func (r route) match(method, path string) (params, bool) {
	m, pattern, _ := strings.Cut(r.name, " ")
	want, got := strings.Split(pattern, "/"), strings.Split(path, "/")
	if m != method || len(want) != len(got) {
		return nil, false
	}
	p := params{}
	for i, part := range want {
		switch {
		case strings.HasPrefix(part, "{"):
			if got[i] == "" {
				return nil, false
			}
			p[strings.Trim(part, "{}")] = got[i]
		case part != got[i]:
			return nil, false
		}
	}
	return p, true
}

func (s *Server) find(method, path string) (route, params, bool) {
	for _, r := range s.routes {
		if p, ok := r.match(method, path); ok {
			return r, p, true
		}
	}
	return route{}, nil, false
}

// ServeHTTP answers one request: the key, the route, its slash, its ids, an
// ordered fault, and then the route's own work.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	if s.opts.Key != "" && r.URL.Path != "/v1/health/" && r.Header.Get("Authorization") != "Bearer "+s.opts.Key {
		s.fail(w, refuse(http.StatusUnauthorized, "Unauthorized"))
		return
	}
	found, p, ok := s.find(r.Method, r.URL.Path)
	if s.proxy != nil {
		s.pass(found.name, w, r)
		return
	}
	if !ok {
		other, has := strings.CutSuffix(r.URL.Path, "/")
		if !has {
			other += "/"
		}
		if _, _, ok := s.find(r.Method, other); ok {
			// The scheme is what the server itself was reached by, which is
			// http behind every proxy.
			u := *r.URL
			u.Scheme, u.Host, u.Path = "http", r.Host, other
			w.Header().Set("Location", u.String())
			w.WriteHeader(http.StatusTemporaryRedirect)
			return
		}
		s.fail(w, refuse(http.StatusNotFound, "Not Found"))
		return
	}
	if err := checkIDs(p); err != nil {
		s.fail(w, err)
		return
	}
	s.mu.Lock()
	s.requests[found.name]++
	fault := s.takeFaultLocked(found.name)
	saveErr := s.saveErr
	s.mu.Unlock()
	if saveErr != nil {
		s.fail(w, refuse(http.StatusInternalServerError, "the state file cannot be written"))
		return
	}
	handle := func(w http.ResponseWriter, r *http.Request) {
		if err := found.handle(w, r, p); err != nil {
			s.fail(w, err)
		}
	}
	if fault == nil {
		handle(w, r)
		return
	}
	s.disturb(*fault, w, r, handle)
}

// pass lets the real server answer.
func (s *Server) pass(route string, w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.requests[route]++
	fault := s.takeFaultLocked(route)
	s.mu.Unlock()
	if fault == nil {
		s.proxy.ServeHTTP(w, r)
		return
	}
	s.disturb(*fault, w, r, s.proxy.ServeHTTP)
}

var idPattern = regexp.MustCompile(`^[a-z]+-[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)

// checkIDs is the server's own check of a path's ids, before it looks for
// anything.
func checkIDs(p params) error {
	kinds := map[string]string{"agent": "agent-", "id": "conv-", "run": "run-", "block": "block-"}
	for name, value := range p {
		kind, ok := kinds[name]
		if ok && (!strings.HasPrefix(value, kind) || !idPattern.MatchString(value)) {
			return &problem{http.StatusUnprocessableEntity, map[string]any{
				"detail":   "[{'type': 'string_pattern_mismatch', 'loc': ('path', '" + name + "')}]",
				"trace_id": "",
			}}
		}
	}
	return nil
}

// decode reads a request's JSON. An empty body is left at its defaults, as
// most bodies are optional.
func decode(r *http.Request, out any) error {
	data, err := io.ReadAll(r.Body)
	if err != nil {
		return refuse(http.StatusRequestEntityTooLarge, "body too large")
	}
	if len(data) == 0 {
		return nil
	}
	if err := json.Unmarshal(data, out); err != nil {
		return refuse(http.StatusUnprocessableEntity, "[{'type': 'json_invalid', 'loc': ('body',)}]")
	}
	return nil
}

// limit reads the query's limit.
func limit(r *http.Request, standard int) int {
	n, err := strconv.Atoi(r.URL.Query().Get("limit"))
	if err != nil || n < 0 {
		return standard
	}
	return n
}

func (s *Server) answer(w http.ResponseWriter, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if s.opts.Strange {
		data = strange(data)
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(data) // a client that has gone needs no answer
	return nil
}

func (s *Server) fail(w http.ResponseWriter, err error) {
	var p *problem
	if !errors.As(err, &p) {
		p = refuse(http.StatusInternalServerError, "internal error")
	}
	data, err := json.Marshal(p.body)
	if err != nil {
		data = []byte(`{"detail":"internal error"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(p.status)
	_, _ = w.Write(data)
}

// strange adds members that no client knows to every object of an answer.
func strange(data []byte) []byte {
	var v any
	if json.Unmarshal(data, &v) != nil {
		return data
	}
	var add func(any)
	add = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			for _, inner := range v {
				add(inner)
			}
			v["x_future"] = map[string]any{"nested": []int{1, 2}}
			v["x_null"] = nil
		case []any:
			for _, inner := range v {
				add(inner)
			}
		}
	}
	add(v)
	out, err := json.Marshal(v)
	if err != nil {
		return data
	}
	return out
}

func (s *Server) health(w http.ResponseWriter, _ *http.Request, _ params) error {
	return s.answer(w, map[string]any{"version": version, "status": "ok"})
}
