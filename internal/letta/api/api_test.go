package api

import (
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/undersong-dev/undersong/internal/letta"
)

func TestNew(t *testing.T) {
	cases := map[string]struct {
		reason string
		opts   Options
		err    error
	}{
		"HTTPS":    {"the usual", Options{BaseURL: "https://api.letta.com"}, nil},
		"HTTP":     {"a server beside us", Options{BaseURL: "http://letta:8283/"}, nil},
		"Path":     {"a server behind a path", Options{BaseURL: "https://proxy/letta"}, nil},
		"Newline":  {"keys come from files", Options{BaseURL: "https://a", Key: "sk-a\n"}, nil},
		"Empty":    {"no URL", Options{}, letta.ErrInvalid},
		"Scheme":   {"no HTTP", Options{BaseURL: "ftp://a"}, letta.ErrInvalid},
		"NoHost":   {"no host", Options{BaseURL: "https:///v1"}, letta.ErrInvalid},
		"User":     {"a password in a URL ends in logs", Options{BaseURL: "https://a:sk-b@c"}, letta.ErrInvalid},
		"Query":    {"a query would be lost", Options{BaseURL: "https://a/?b=sk-c"}, letta.ErrInvalid},
		"Fragment": {"so would a fragment", Options{BaseURL: "https://a/#sk-d"}, letta.ErrInvalid},
		"Control":  {"a header cannot hold it", Options{BaseURL: "https://a", Key: "sk-e\r\nX: y"}, letta.ErrInvalid},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := New(tc.opts)
			if diff := cmp.Diff(tc.err, err, cmpopts.EquateErrors()); diff != "" {
				t.Errorf("%s: -want +got:\n%s", tc.reason, diff)
			}
			if err != nil && strings.Contains(err.Error(), "sk-") {
				t.Errorf("the error tells the value: %q", err)
			}
		})
	}
}

// TestRefusesRedirects: the key goes to the host it was meant for, and to no
// other.
func TestRefusesRedirects(t *testing.T) {
	reached := false
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached = true }))
	defer other.Close()
	first := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, other.URL+r.URL.Path, http.StatusTemporaryRedirect)
	}))
	defer first.Close()
	c, err := New(Options{BaseURL: first.URL, Key: "sk-a"})
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	_, err = c.Agent(t.Context(), "agent-1")
	if !errors.Is(err, letta.ErrInvalid) || !strings.Contains(err.Error(), "redirect") {
		t.Errorf("a redirect: %v, want %v that says so", err, letta.ErrInvalid)
	}
	_, err = c.Send(t.Context(), ref, one, letta.SendOptions{})
	if !errors.Is(err, letta.ErrInvalid) || errors.Is(err, letta.ErrOutcomeUnknown) {
		t.Errorf("a redirected send: %v", err)
	}
	if reached {
		t.Errorf("the redirect was followed")
	}
}

// TestConnectionErrors: a text says what to look at, and is the same each
// time.
func TestConnectionErrors(t *testing.T) {
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := "http://" + listener.Addr().String()
	_ = listener.Close()
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	secure := httptest.NewUnstartedServer(http.NotFoundHandler())
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS()
	defer secure.Close()

	cases := map[string]struct{ reason, url, want string }{
		"Refused": {"nobody listens", closed, "connection refused"},
		"Untrusted": {
			"a certificate of nobody's", strings.Replace(secure.URL, "http://", "https://", 1), "the certificate is not trusted",
		},
		"Plain": {"https to http", strings.Replace(plain.URL, "http://", "https://", 1), "the server does not speak TLS"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c, err := New(Options{BaseURL: tc.url, Key: "sk-a"})
			if err != nil {
				t.Fatalf("New: %v", err)
			}
			_, err = c.Agent(t.Context(), "agent-1")
			if !errors.Is(err, letta.ErrUnavailable) {
				t.Errorf("%s: %v, want %v", tc.reason, err, letta.ErrUnavailable)
			}
			if diff := cmp.Diff("read agent: letta is unavailable: "+tc.want, err.Error()); diff != "" {
				t.Errorf("%s: -want +got:\n%s", tc.reason, diff)
			}
			_, err = c.Send(t.Context(), ref, one, letta.SendOptions{})
			if errors.Is(err, letta.ErrOutcomeUnknown) {
				t.Errorf("%s: nothing was sent, and %v", tc.reason, err)
			}
		})
	}
	t.Run("Name", func(t *testing.T) {
		err := lost(t.Context(), "x", fmt.Errorf("dial: %w", &net.DNSError{Err: "no such host", Name: "secret.internal"}), false)
		if diff := cmp.Diff("x: letta is unavailable: the name does not resolve", err.Error()); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	})
}

// TestAnswersOfOthers: what is not Letta is told from what is.
func TestAnswersOfOthers(t *testing.T) {
	cases := map[string]struct {
		reason string
		answer canned
		err    error
	}{
		"HTML":    {"a login page of a proxy", canned{200, "text/html", "<html>secret</html>"}, letta.ErrInvalid},
		"Other":   {"another agent than asked for", jsonAnswer(200, `{"id":"agent-2"}`), letta.ErrInvalid},
		"Shape":   {"a list for an object", jsonAnswer(200, `[]`), letta.ErrInvalid},
		"Empty":   {"nothing", jsonAnswer(200, ``), letta.ErrInvalid},
		"Forbid":  {"a key without rights", jsonAnswer(403, `{"detail":"secret"}`), letta.ErrUnauthorized},
		"Gone":    {"gone", canned{410, "", ""}, letta.ErrNotFound},
		"Teapot":  {"other refusals are for good", canned{418, "", "secret"}, letta.ErrInvalid},
		"Timeout": {"408 is to be tried again", canned{408, "", ""}, letta.ErrUnavailable},
		"Clash":   {"two writers in the server's database", jsonAnswer(409, `{"detail":"deadlock"}`), letta.ErrUnavailable},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := scripted(t, func(*http.Request) (*http.Response, error) { return tc.answer.response(), nil })
			_, err := c.Agent(t.Context(), "agent-1")
			if diff := cmp.Diff(tc.err, err, cmpopts.EquateErrors()); diff != "" {
				t.Errorf("%s: -want +got:\n%s", tc.reason, diff)
			}
			if err != nil && strings.Contains(err.Error(), "secret") {
				t.Errorf("%s: the error quotes the answer: %q", tc.reason, err)
			}
		})
	}
}

// TestListingsEnd: a server that pages for ever, or always gives the same
// page, does not keep us.
func TestListingsEnd(t *testing.T) {
	calls := 0
	c := scripted(t, func(r *http.Request) (*http.Response, error) {
		calls++
		if strings.HasSuffix(r.URL.Path, "/messages") {
			return jsonAnswer(200, `[{"message_type":"user_message","id":"m1"},{"message_type":"user_message"}]`).response(), nil
		}
		return jsonAnswer(200, `[{"id":"agent-1","tags":["a"]},{"id":""}]`).response(), nil
	})
	agents, err := c.AgentsByTag(t.Context(), []string{"a"})
	if err != nil || len(agents) != 1 {
		t.Errorf("AgentsByTag = %v, %v, want one", agents, err)
	}
	n := 0
	for _, err := range c.Messages(t.Context(), ref, "") {
		if err != nil {
			t.Errorf("Messages: %v", err)
		}
		n++
	}
	if n != 2 {
		t.Errorf("Messages gave %d, want 2", n)
	}
	if calls > 6 {
		t.Errorf("%d requests for listings of one page", calls)
	}
}

// TestCreateAgentAsksForOneTool: whoever writes into a transcript speaks to
// this agent; it must hold nothing but its memory.
func TestCreateAgentAsksForOneTool(t *testing.T) {
	var body string
	c := scripted(t, func(r *http.Request) (*http.Response, error) {
		var b strings.Builder
		_ = r.Write(&b)
		body = b.String()
		return jsonAnswer(200, `{"id":"agent-1","tools":[]}`).response(), nil
	})
	a, err := c.CreateAgent(t.Context(), letta.AgentSpec{Name: "n", Model: "m", Tags: []string{"t"}})
	if err != nil {
		t.Fatalf("CreateAgent: %v", err)
	}
	if a.Tools != nil {
		t.Errorf("tools of an answer without relations = %v, want not reported", a.Tools)
	}
	for _, want := range []string{
		"POST /v1/agents/ ", `"tools":["memory"]`, `"include_base_tools":false`, `"include_multi_agent_tools":false`,
		`"include_base_tool_rules":false`, `"include_default_source":false`, `"memory_blocks":[]`, `"initial_message_sequence":[]`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("the request lacks %s:\n%s", want, body)
		}
	}
}
