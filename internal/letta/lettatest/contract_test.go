package lettatest_test

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/undersong-dev/undersong/internal/letta"
	"github.com/undersong-dev/undersong/internal/letta/api"
	"github.com/undersong-dev/undersong/internal/letta/contract"
	"github.com/undersong-dev/undersong/internal/letta/lettatest"
)

const (
	key         = "sk-let-me-in"
	callTimeout = 2 * time.Second
	sendRoute   = "POST /v1/conversations/{id}/messages"
	agentsRoute = "GET /v1/agents/"
)

// start serves a stand-in that ends with the test, and fails the test if an
// ordered fault never struck.
func start(t *testing.T, o lettatest.Options) (*lettatest.Server, string) {
	t.Helper()
	s, err := lettatest.New(o)
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	url, err := s.Start(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatalf("Start: %v", err)
	}
	t.Cleanup(func() {
		if n := s.Faults(); n > 0 {
			t.Errorf("%d ordered faults did not strike", n)
		}
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s, url
}

func client(t *testing.T, url, key string) *api.Client {
	t.Helper()
	c, err := api.New(api.Options{BaseURL: url, Key: key, CallTimeout: callTimeout})
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func harness(o lettatest.Options) func(t *testing.T) contract.Harness {
	return func(t *testing.T) contract.Harness {
		t.Helper()
		o := o // each case has its own
		o.StateFile = filepath.Join(t.TempDir(), "state.json")
		s, url := start(t, o)
		refuse := func(route string) func(contract.Refusal) {
			return func(r contract.Refusal) {
				s.Inject(lettatest.Fault{Route: route, Status: r.Status, Header: r.Header, Body: r.Body})
			}
		}
		h := contract.Harness{
			Client:      client(t, url, key),
			Model:       "stub/one",
			Secrets:     []string{key, "wrong-key", strings.TrimPrefix(url, "http://")},
			CallTimeout: callTimeout,
			WrongKey:    client(t, url, "wrong-key"),
			Turns:       s.Turns,
			Hold:        s.HoldTurns,
			FailTurn: func(f contract.Failure) {
				fault := lettatest.TurnFault{ErrorType: "llm_error", Stored: f.Stored}
				switch {
				case f.RateLimit:
					fault.ErrorType = "llm_rate_limit"
				case f.Approval:
					fault = lettatest.TurnFault{StopReason: "requires_approval", Stored: true}
				case f.Silent:
					fault = lettatest.TurnFault{NoStop: true}
				}
				s.FailTurn(fault)
			},
			LoseAnswer:  func() { s.Inject(lettatest.Fault{Route: sendRoute, DropAfter: true}) },
			CutAnswer:   func() { s.Inject(lettatest.Fault{Route: sendRoute, CutAfter: 300}) },
			DropRequest: func() { s.Inject(lettatest.Fault{Route: sendRoute, DropBefore: true}) },
			RefuseSend:  refuse(sendRoute),
			RefuseRead:  refuse(agentsRoute),
			HangSend:    func() { s.Inject(lettatest.Fault{Route: sendRoute, Hang: true}) },
			HangRead:    func() { s.Inject(lettatest.Fault{Route: agentsRoute, Hang: true}) },
			Crash: func(t *testing.T) func() {
				t.Helper()
				if err := s.Close(); err != nil {
					t.Fatalf("Close: %v", err)
				}
				return func() {
					again, err := lettatest.New(o)
					if err != nil {
						t.Fatalf("New: %v", err)
					}
					if _, err := again.Start(t.Context(), strings.TrimPrefix(url, "http://")); err != nil {
						t.Fatalf("Start: %v", err)
					}
					t.Cleanup(func() { _ = again.Close() })
				}
			},
			ExpireReplays: s.ExpireReplays,
			Prompt: func(_ *testing.T, ref letta.Ref) string {
				for _, c := range s.Conversations() {
					if c.ID == ref.ConversationID {
						return c.Messages[0].Text
					}
				}
				return ""
			},
			Compact: func(t *testing.T, ref letta.Ref) {
				t.Helper()
				post(t, url+"/v1/conversations/"+ref.ConversationID+"/compact")
			},
		}
		return h
	}
}

// post sends what the client has no call for.
func post(t *testing.T, url string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if res.StatusCode != http.StatusOK {
		t.Fatalf("%s: status %d", url, res.StatusCode)
	}
}

// TestContract runs the suite over the REST client and this server: with the
// plain server, and with one whose answers are full of what no client knows.
func TestContract(t *testing.T) {
	t.Run("Plain", func(t *testing.T) { contract.Run(t, harness(lettatest.Options{Key: key})) })
	t.Run("Strange", func(t *testing.T) { contract.Run(t, harness(lettatest.Options{Key: key, Strange: true})) })
}
