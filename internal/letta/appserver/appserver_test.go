package appserver

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/undersong-dev/undersong/internal/letta"
)

func TestOptions(t *testing.T) {
	cases := map[string]struct {
		reason string
		o      Options
		want   string // "" for a refusal
	}{
		"WS":       {"the scheme of the protocol", Options{BaseURL: "ws://letta:4500"}, "ws://letta:4500/ws"},
		"HTTPS":    {"stands for wss, so that a TeamMemory can name it", Options{BaseURL: "https://letta.example.com"}, "wss://letta.example.com/ws"},
		"HTTP":     {"stands for ws", Options{BaseURL: "http://letta:4500/"}, "ws://letta:4500/ws"},
		"Path":     {"a proxy may have one", Options{BaseURL: "wss://example.com/letta/ws/"}, "wss://example.com/letta/ws"},
		"NoHost":   {"nowhere to go", Options{BaseURL: "wss://"}, ""},
		"FTP":      {"not a socket", Options{BaseURL: "ftp://letta"}, ""},
		"User":     {"a user part hides the host", Options{BaseURL: "wss://a@b"}, ""},
		"Query":    {"a query is sent with every request", Options{BaseURL: "wss://a?b=c"}, ""},
		"BadToken": {"a header would be cut in two", Options{BaseURL: "wss://a", Token: "a\nb"}, ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c, err := New(tc.o)
			if tc.want == "" {
				if !errors.Is(err, letta.ErrInvalid) {
					t.Errorf("%s: error %v, want ErrInvalid", tc.reason, err)
				}
				return
			}
			if err != nil || c.url != tc.want {
				t.Errorf("%s: %v, %v, want %s", tc.reason, c, err, tc.want)
			}
		})
	}
}

// TestRefusedDial: what a server or a proxy says instead of opening a socket.
// Nothing was sent, so that no outcome is unknown.
func TestRefusedDial(t *testing.T) {
	cases := map[string]struct {
		reason string
		status int
		after  string
		want   error
		wait   time.Duration
	}{
		"Token":       {"a wrong token", 401, "", letta.ErrUnauthorized, 0},
		"Forbidden":   {"a proxy's word for it", 403, "", letta.ErrUnauthorized, 0},
		"Limited":     {"a proxy limits", 429, "7", letta.ErrUnavailable, 7 * time.Second},
		"Fraction":    {"some send fractions", 429, "1.5", letta.ErrUnavailable, 1500 * time.Millisecond},
		"Forever":     {"nobody parks us", 503, "99999999999", letta.ErrUnavailable, letta.MaxRetryAfter},
		"Garbage":     {"what cannot be read is not said", 503, "soon", letta.ErrUnavailable, 0},
		"Internal":    {"a proxy without a server", 502, "", letta.ErrUnavailable, 0},
		"Redirect":    {"a token is not sent elsewhere", 302, "", letta.ErrInvalid, 0},
		"NotFound":    {"something else lives there", 404, "", letta.ErrInvalid, 0},
		"NoUpgrade":   {"an HTTP server lives there", 200, "", letta.ErrInvalid, 0},
		"UpgradeOnly": {"the server's word for a wrong channel", 426, "", letta.ErrInvalid, 0},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Location", "https://evil.example.com")
				w.Header().Set("Retry-After", tc.after)
				w.WriteHeader(tc.status)
			}))
			defer srv.Close()
			c, err := New(Options{BaseURL: srv.URL, Token: "sekrit", CallTimeout: 5 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			_, err = c.Send(t.Context(), letta.Ref{AgentID: "a", ConversationID: "c"}, []letta.Input{{ClientID: "i", Text: "x"}}, letta.SendOptions{})
			if !errors.Is(err, tc.want) || errors.Is(err, letta.ErrOutcomeUnknown) {
				t.Errorf("%s: error %v, want %v", tc.reason, err, tc.want)
			}
			if retry, ok := errors.AsType[*letta.RetryError](err); ok && (retry.After != tc.wait || retry.Down != (tc.status >= 500)) {
				t.Errorf("%s: wait %v and down %t, want %v", tc.reason, retry.After, retry.Down, tc.wait)
			}
			for _, secret := range []string{"sekrit", "127.0.0.1", "evil"} {
				if err != nil && strings.Contains(err.Error(), secret) {
					t.Errorf("the error tells %q: %v", secret, err)
				}
			}
		})
	}
}

// scripted serves a socket that answers each text with what reply says.
func scripted(t *testing.T, reply func(ctx context.Context, ws *websocket.Conn, text string)) *Client {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ws, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		defer func() { _ = ws.CloseNow() }()
		for {
			_, data, err := ws.Read(r.Context())
			if err != nil {
				return
			}
			reply(r.Context(), ws, string(data))
		}
	}))
	t.Cleanup(srv.Close)
	c, err := New(Options{BaseURL: srv.URL, CallTimeout: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func say(ctx context.Context, ws *websocket.Conn, texts ...string) {
	for _, text := range texts {
		_ = ws.Write(ctx, websocket.MessageText, []byte(text)) // a client that left is the test's business
	}
}

func TestOnlyTheKnownProtocol(t *testing.T) {
	c := scripted(t, func(ctx context.Context, ws *websocket.Conn, _ string) {
		say(ctx, ws, `{"type":"app_server_info_response","request_id":"undersong-1","success":true,"letta_code_version":"1","protocol_version":2}`)
	})
	if _, err := c.Capabilities(t.Context()); !errors.Is(err, letta.ErrInvalid) {
		t.Errorf("protocol 2: %v, want ErrInvalid", err)
	}
}

// TestStrangeTexts: what is not ours to understand is passed over, and a
// question for permission is answered with no.
func TestStrangeTexts(t *testing.T) {
	denied := make(chan string, 1)
	c := scripted(t, func(ctx context.Context, ws *websocket.Conn, text string) {
		if strings.Contains(text, "approval_response") {
			denied <- text
			return
		}
		say(ctx, ws,
			`no JSON`, `[]`, `{}`, `{"type":7,"request_id":{}}`,
			`{"type":"turn_finished","runtime":{"agent_id":"x","conversation_id":"y"}}`,
			`{"type":"control_request","request_id":"q-1","runtime":{"agent_id":"x","conversation_id":"y"}}`,
			`{"type":"app_server_info_response","request_id":"undersong-1","success":true,"letta_code_version":"9","protocol_version":1,"new":[1]}`)
	})
	got, err := c.Capabilities(t.Context())
	if diff := cmp.Diff(letta.Capabilities{Backend: "appserver", Version: "9", BlockHistory: true}, got); err != nil || diff != "" {
		t.Errorf("Capabilities: %v, -want +got:\n%s", err, diff)
	}
	select {
	case text := <-denied:
		if !strings.Contains(text, `"behavior":"deny"`) || !strings.Contains(text, `"request_id":"q-1"`) {
			t.Errorf("the answer to a question for permission is %s", text)
		}
	case <-time.NewTimer(10 * time.Second).C:
		t.Errorf("a question for permission was not answered")
	}
}

// TestSilence: the server ignores what it does not understand.
func TestSilence(t *testing.T) {
	c := scripted(t, func(context.Context, *websocket.Conn, string) {})
	if _, err := c.AgentsByTag(t.Context(), []string{"a"}); !errors.Is(err, letta.ErrUnavailable) {
		t.Errorf("no answer: %v, want ErrUnavailable", err)
	}
}

// TestAnIDRests: the server takes an id that it just had for a repeat, says
// that it began and runs nothing.
func TestAnIDRests(t *testing.T) {
	now := clocktesting.NewFakeClock(time.Now())
	c, err := New(Options{BaseURL: "ws://letta", Clock: now})
	if err != nil {
		t.Fatal(err)
	}
	in := []letta.Input{{ClientID: "again", Text: "x"}}
	if err := c.settled(t.Context(), "send", in); err != nil {
		t.Errorf("an id that was never used: %v", err)
	}
	c.remember(newTurn(in, chatView{}), letta.Turn{})
	done := make(chan error, 1)
	go func() { done <- c.settled(t.Context(), "send", in) }()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !now.HasWaiters() {
		select {
		case <-tick.C:
		case err := <-done:
			t.Fatalf("an id was used again at once: %v", err)
		}
	}
	now.Step(settle)
	if err := <-done; err != nil {
		t.Errorf("after its rest: %v", err)
	}
}

// TestTheEndsAreBounded: what is remembered of turns has a bound, and the
// oldest goes first.
func TestTheEndsAreBounded(t *testing.T) {
	now := clocktesting.NewFakeClock(time.Now())
	c, err := New(Options{BaseURL: "ws://letta", Clock: now})
	if err != nil {
		t.Fatal(err)
	}
	for i := range maxRemembered + 1 {
		c.remember(newTurn([]letta.Input{{ClientID: strconv.Itoa(i)}}, chatView{}), letta.Turn{})
		now.Step(time.Second)
	}
	_, first := c.ended["0"]
	_, last := c.ended[strconv.Itoa(maxRemembered)]
	if len(c.ended) != maxRemembered || first || !last {
		t.Errorf("%d ends are remembered, the first %v, the last %v", len(c.ended), first, last)
	}
}

func TestFiles(t *testing.T) {
	cases := map[string]struct {
		reason  string
		content string
		want    string
	}{
		"Plain":    {"the usual form", "---\ndescription: d\n---\ntext\n", "text\n"},
		"Space":    {"space is part of the value", "---\ndescription: d\n---\n\n text \n\n", "\n text \n\n"},
		"Empty":    {"an empty block", "---\ndescription: d\n---\n", ""},
		"NoFields": {"front matter without fields", "---\n---\nv", "v"},
		"None":     {"a file without front matter is all value", "text", "text"},
		"Rule":     {"a rule in the value is no border", "---\ndescription: d\n---\na\n---\nb", "a\n---\nb"},
		"Open":     {"front matter that does not end is none", "---\ndescription: d", "---\ndescription: d"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := value(tc.content); got != tc.want {
				t.Errorf("%s: value = %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}

func FuzzFile(f *testing.F) {
	f.Add("text", "what\n---\nx")
	f.Add("---\nv", "")
	f.Fuzz(func(t *testing.T, v, description string) {
		if got := value(file(letta.Block{Label: "brief", Description: description, Value: v})); got != v {
			t.Errorf("value %q comes back as %q", v, got)
		}
	})
}

func TestLabels(t *testing.T) {
	for path, want := range map[string]string{
		"system/brief.md": "brief", "system/open_items.md": "open_items",
		"brief.md": "", "system/a/b.md": "", "system/../x.md": "", "system/A.md": "", "system/a<b>&\"\u202e.md": "",
		"system/.md": "", "system/brief": "", "notes/brief.md": "",
	} {
		got, ok := labelOf(path)
		if ok != (want != "") || (ok && got != want) {
			t.Errorf("labelOf(%q) = %q, %v, want %q", path, got, ok, want)
		}
	}
}
