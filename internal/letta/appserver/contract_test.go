package appserver_test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/undersong-dev/undersong/internal/letta"
	"github.com/undersong-dev/undersong/internal/letta/appserver"
	"github.com/undersong-dev/undersong/internal/letta/appserver/appservertest"
	"github.com/undersong-dev/undersong/internal/letta/contract"
	"github.com/undersong-dev/undersong/internal/letta/modelstub"
	"github.com/undersong-dev/undersong/test/tools"
)

// callTimeout leaves room for a server that shares two cores with a compiler.
const callTimeout = 20 * time.Second

// installed is where make letta-appserver puts the server.
func installed() string { return filepath.Join(tools.Root(), ".tools", "letta") }

// realServer starts a real server that ends with the test.
func realServer(t *testing.T) *appservertest.Server {
	t.Helper()
	if err := appservertest.Installed(installed()); err != nil {
		t.Skipf("SKIPPED, nothing was tested: %v", err)
	}
	s, err := appservertest.Start(t.Context(), appservertest.Options{Install: installed(), Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	return s
}

func client(t *testing.T, url, token string) *appserver.Client {
	t.Helper()
	c, err := appserver.New(appserver.Options{BaseURL: url, Token: token, CallTimeout: callTimeout})
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func harness(t *testing.T) contract.Harness {
	t.Helper()
	s := realServer(t)
	p, url := startProxy(t, s.URL)
	return contract.Harness{
		Client:      client(t, url, appservertest.Token),
		Model:       appservertest.Model,
		Secrets:     []string{appservertest.Token, appservertest.ModelKey, "wrong-key", strings.TrimPrefix(url, "ws://"), strings.TrimPrefix(s.URL, "ws://")},
		CallTimeout: callTimeout,
		WrongKey:    client(t, url, "wrong-key"),
		Turns:       s.Model.Turns,
		Hold:        s.Model.Hold,
		FailTurn: func(f contract.Failure) {
			if !f.RateLimit {
				s.Model.Order(modelstub.Step{Status: 400})
				return
			}
			// Four attempts in each of four rounds: the server's patience.
			for range 16 {
				s.Model.Order(modelstub.Step{Status: 429})
			}
		},
		LoseAnswer:  p.order("input", "lose"),
		CutAnswer:   p.order("input", "cut"),
		DropRequest: p.order("input", "drop"),
		HangSend:    p.order("input", "hang"),
		HangRead:    p.order("agent_list", "hang"),
		Crash: func(t *testing.T) func() {
			t.Helper()
			s.Kill()
			return func() {
				if err := s.Run(t.Context()); err != nil {
					t.Fatalf("start again: %v", err)
				}
			}
		},
		// A start is when the server forgets which client ids it had.
		ExpireReplays: func() {
			s.Kill()
			if err := s.Run(t.Context()); err != nil {
				t.Errorf("start again: %v", err)
			}
		},
		Compact: func(t *testing.T, ref letta.Ref) {
			t.Helper()
			compact(t, s.URL, ref)
		},
		CallTool: func(name string, arguments map[string]any) (func() string, func() []string) {
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
		SecretFiles: s.SecretFiles,
		SecretTexts: []string{appservertest.Token, appservertest.ModelKey},
		StoresFirst: true,
		HugeBytes:   128 << 10,
		ManyAgents:  25, // a page has 20 unless told otherwise, and each agent takes a second
		Cannot: map[string]string{
			"TurnWantsApproval": "the client denies every request for permission at once, so that no turn waits for one",
			"TurnEndsSilently":  "events have no end of their own: a turn that is not said to be over is running, see TurnNeverEnds",
			"SendAgain":         "the server knows a client id only while its turn runs",
			"RateLimit":         "answers of the socket have no status; what a proxy says before it is tested by TestRefusedDial",
			"Quota":             "answers of the socket have no status",
			"ServerErrors":      "answers of the socket have no status; see TestRefusedDial",
		},
	}
}

// TestContract runs the suite over the real server.
func TestContract(t *testing.T) {
	if err := appservertest.Installed(installed()); err != nil {
		t.Skipf("SKIPPED, nothing was tested: %v", err)
	}
	contract.Run(t, harness)
}
