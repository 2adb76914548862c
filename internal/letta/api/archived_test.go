//go:build archived

package api_test

import (
	"bytes"
	"context"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/undersong-dev/undersong/internal/letta"
	"github.com/undersong-dev/undersong/internal/letta/api"
	"github.com/undersong-dev/undersong/internal/letta/api/archivedtest"
	"github.com/undersong-dev/undersong/internal/letta/contract"
	"github.com/undersong-dev/undersong/internal/letta/lettatest"
	"github.com/undersong-dev/undersong/internal/letta/modelstub"
	"github.com/undersong-dev/undersong/test/tools"
)

// archivedTimeout leaves room for a server that shares two cores with a
// compiler.
const archivedTimeout = time.Minute

const (
	sendRoute   = "POST /v1/conversations/{id}/messages"
	agentsRoute = "GET /v1/agents/"
)

func archived(t *testing.T) *archivedtest.Server {
	t.Helper()
	s, err := archivedtest.Start(t.Context(), filepath.Join(tools.Root(), ".tools", "letta-archived"))
	t.Cleanup(s.Stop)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func archivedClient(t *testing.T, url, key string) *api.Client {
	t.Helper()
	c, err := api.New(api.Options{BaseURL: url, Key: key, CallTimeout: archivedTimeout})
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// archivedHarness is for one case. All cases share the server and its model.
func archivedHarness(s *archivedtest.Server) func(t *testing.T) contract.Harness {
	return func(t *testing.T) contract.Harness {
		t.Helper()
		upstream, err := url.Parse(s.URL)
		if err != nil {
			t.Fatal(err)
		}
		proxy, err := lettatest.New(lettatest.Options{Upstream: upstream})
		if err != nil {
			t.Fatal(err)
		}
		base, err := proxy.Start(t.Context(), "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		s.Model.Drop()
		t.Cleanup(func() {
			if n := proxy.Faults(); n > 0 {
				t.Errorf("%d ordered faults did not strike", n)
			}
			_ = proxy.Close()
		})
		before := s.Model.Turns()
		refuse := func(route string) func(contract.Refusal) {
			return func(r contract.Refusal) {
				proxy.Inject(lettatest.Fault{Route: route, Status: r.Status, Header: r.Header, Body: r.Body})
			}
		}
		return contract.Harness{
			Client:      archivedClient(t, base, archivedtest.Key),
			Model:       archivedtest.Model,
			Secrets:     []string{archivedtest.Key, archivedtest.ModelKey, "wrong-key", upstream.Host, strings.TrimPrefix(base, "http://")},
			CallTimeout: archivedTimeout,
			WrongKey:    archivedClient(t, base, "wrong-key"),
			Turns:       func() int { return s.Model.Turns() - before },
			Hold:        s.Model.Hold,
			FailTurn: func(f contract.Failure) {
				if f.Stored {
					// The first step ends, the second does not.
					s.Model.Order(modelstub.Step{Calls: []modelstub.Call{{Name: "memory", Arguments: map[string]any{
						"command": "create", "path": "/memories/noted", "description": "x", "file_text": "x",
					}}}})
				}
				if !f.RateLimit {
					s.Model.Order(modelstub.Step{Status: http.StatusBadRequest})
					return
				}
				for range 16 { // more than the server's patience
					s.Model.Order(modelstub.Step{Status: http.StatusTooManyRequests})
				}
				t.Cleanup(s.Model.Drop)
			},
			LoseAnswer:  func() { proxy.Inject(lettatest.Fault{Route: sendRoute, DropAfter: true}) },
			CutAnswer:   func() { proxy.Inject(lettatest.Fault{Route: sendRoute, CutAfter: 100}) },
			DropRequest: func() { proxy.Inject(lettatest.Fault{Route: sendRoute, DropBefore: true}) },
			RefuseSend:  refuse(sendRoute),
			RefuseRead:  refuse(agentsRoute),
			HangSend:    func() { proxy.Inject(lettatest.Fault{Route: sendRoute, Hang: true}) },
			HangRead:    func() { proxy.Inject(lettatest.Fault{Route: agentsRoute, Hang: true}) },
			Crash: func(t *testing.T) func() {
				t.Helper()
				s.Kill()
				return func() {
					// The lock of the conversation lasts five minutes.
					if err := s.ForgetLocks(t.Context()); err != nil {
						t.Fatal(err)
					}
					if err := s.Run(t.Context()); err != nil {
						t.Fatalf("start again: %v", err)
					}
				}
			},
			ExpireReplays: func() {
				if err := s.FlushRedis(context.WithoutCancel(t.Context())); err != nil {
					t.Error(err)
				}
			},
			Compact: func(t *testing.T, ref letta.Ref) {
				t.Helper()
				archivedPost(t, s.URL+"/v1/conversations/"+ref.ConversationID+"/compact", "")
			},
			CallTool: func(name string, arguments map[string]any) (func() string, func() []string) {
				if name == "memory" {
					arguments = archivedMemory(arguments)
				}
				s.Model.Order(modelstub.Step{Calls: []modelstub.Call{{Name: name, Arguments: arguments}}})
				return s.Model.LastToolAnswer,
					func() []string {
						requests := s.Model.Requests()
						return requests[len(requests)-1].ToolNames()
					}
			},
			Prompt: func(*testing.T, letta.Ref) string {
				requests := s.Model.Requests()
				return requests[len(requests)-1].Messages[0].Text()
			},
			// A turn takes half a second and more.
			Compacted:  14,
			ManyAgents: 60,
			Cannot: map[string]string{
				"TurnWantsApproval": "the agent's one tool needs no approval",
				"TurnEndsSilently":  "the server always says how a turn ended",
			},
		}
	}
}

// archivedMemory says in the archived server's words what the suite says in the
// App Server's: blocks have paths below /memories there.
func archivedMemory(arguments map[string]any) map[string]any {
	out := map[string]any{}
	for _, key := range []string{"command", "description", "file_text", "old_string", "new_string", "path", "old_path", "new_path"} {
		value, ok := arguments[key].(string)
		if !ok {
			continue
		}
		if strings.HasSuffix(key, "path") {
			value = "/memories/" + strings.TrimSuffix(strings.TrimPrefix(value, "system/"), ".md")
		}
		out[key] = value
	}
	return out
}

func archivedPost(t *testing.T, target, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, target, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+archivedtest.Key)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		var text bytes.Buffer
		_, _ = text.ReadFrom(res.Body)
		t.Fatalf("%s: status %d: %s", target, res.StatusCode, text.String())
	}
}

// TestArchivedContract runs the suite over the real archived server.
func TestArchivedContract(t *testing.T) {
	s := archived(t)
	contract.RunShared(t, archivedHarness(s))
	if t.Failed() {
		log := s.Log()
		t.Logf("the end of the server's log:\n%s", log[max(0, len(log)-8000):])
	}
}
