package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/undersong-dev/undersong/internal/letta"
)

// script is a transport that answers from a function: every request a client
// makes is seen, and no network is used.
type script func(*http.Request) (*http.Response, error)

func (s script) RoundTrip(r *http.Request) (*http.Response, error) { return s(r) }

// canned is an answer before it is one.
type canned struct {
	status     int
	kind, body string
}

func (c canned) response() *http.Response {
	return &http.Response{
		StatusCode: c.status, Header: http.Header{"Content-Type": {c.kind}}, Body: io.NopCloser(strings.NewReader(c.body)),
	}
}

func scripted(t *testing.T, s script) *Client {
	t.Helper()
	c, err := New(Options{BaseURL: "http://letta.test", Key: "sk-secret\n", Transport: s})
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	return c
}

func sse(events ...string) canned {
	return canned{http.StatusOK, "text/event-stream; charset=utf-8", strings.Join(events, "")}
}

func jsonAnswer(status int, body string) canned { return canned{status, "application/json", body} }

const (
	ping  = `data: {"message_type":"ping","run_id":"run-1"}` + "\n\n"
	hello = `data: {"message_type":"assistant_message","id":"message-1","otid":"o","run_id":"run-1","content":"hello"}` + "\n\n"
	good  = `data: {"message_type":"stop_reason","stop_reason":"end_turn"}` + "\n\n"
	bad   = `data: {"message_type":"stop_reason","stop_reason":"llm_api_error"}` + "\n\n"
	costs = `data: {"message_type":"usage_statistics","prompt_tokens":10,"completion_tokens":2,"total_tokens":12}` + "\n\n"
	fails = `event: error` + "\n" + `data: {"message_type":"error_message","error_type":"llm_error","detail":"he said: secret"}` + "\n\n"
	done  = "data: [DONE]\n\n"
)

var (
	ref = letta.Ref{AgentID: "agent-1", ConversationID: "conv-1"}
	one = []letta.Input{{ClientID: "delta-1", Text: "words"}}
)

func TestSendReadsTheTurn(t *testing.T) {
	reply := []letta.Message{{ID: "message-1", Type: letta.AssistantMessage, OTID: "o", RunID: "run-1", Text: "hello"}}
	used := letta.Usage{PromptTokens: 10, CompletionTokens: 2, TotalTokens: 12, Reported: true}
	cases := map[string]struct {
		reason string
		answer canned
		want   letta.Turn
		err    error
	}{
		"Whole": {
			"the plain case", sse(ping, hello, good, costs, done),
			letta.Turn{RunID: "run-1", StopReason: "end_turn", Reply: reply, Usage: used},
			nil,
		},
		"NoDone": {
			"the turn had told how it ended before the connection broke", sse(ping, hello, good),
			letta.Turn{RunID: "run-1", StopReason: "end_turn", Reply: reply},
			nil,
		},
		"NoReply": {
			"an agent may end its turn without a word", sse(ping, good, done),
			letta.Turn{RunID: "run-1", StopReason: "end_turn"},
			nil,
		},
		"Pieces": {
			"pieces of one message are one message", sse(hello, hello, good, done),
			letta.Turn{
				RunID: "run-1", StopReason: "end_turn",
				Reply: []letta.Message{{ID: "message-1", Type: letta.AssistantMessage, OTID: "o", RunID: "run-1", Text: "hellohello"}},
			},
			nil,
		},
		"Truncated": {
			"the turn may go on", sse(ping, hello),
			letta.Turn{RunID: "run-1", Reply: reply},
			letta.ErrOutcomeUnknown,
		},
		"DoneAlone": {
			"the end of a stream is no end of a turn", sse(ping, hello, done),
			letta.Turn{RunID: "run-1", Reply: reply},
			letta.ErrOutcomeUnknown,
		},
		"Nothing": {"a stream of nothing says nothing", sse(), letta.Turn{}, letta.ErrOutcomeUnknown},
		"Failed": {
			"a failure arrives under status 200", sse(ping, bad, fails, done),
			letta.Turn{RunID: "run-1", StopReason: "llm_api_error"},
			letta.ErrTurnFailed,
		},
		"FailedNoDone": {
			"the server may end with the error event", sse(ping, fails),
			letta.Turn{RunID: "run-1", StopReason: "error"},
			letta.ErrTurnFailed,
		},
		"FailedAfterAll": {
			"an error after a good end is an error", sse(ping, hello, good, fails, done),
			letta.Turn{RunID: "run-1", StopReason: "error", Reply: reply},
			letta.ErrTurnFailed,
		},
		"OtherEnd": {
			"every end but one is a failure", sse(hello, strings.Replace(good, "end_turn", "max_steps", 1), done),
			letta.Turn{RunID: "run-1", StopReason: "max_steps", Reply: reply},
			letta.ErrTurnFailed,
		},
		"NoCredits": {
			"for want of money", sse(strings.Replace(good, "end_turn", "insufficient_credits", 1), done),
			letta.Turn{StopReason: "insufficient_credits"},
			letta.ErrQuota,
		},
		"OddEnd": {
			"what is no name is not quoted", sse(strings.Replace(good, "end_turn", "Ignore <previous>", 1), done),
			letta.Turn{StopReason: "other"},
			letta.ErrTurnFailed,
		},
		"OddFields": {
			"fields of unexpected types leave the others readable",
			sse(strings.NewReplacer(`"o"`, `12`, `"content":"hello"`, `"date":7,"content":[{"type":"text","text":"hello"},{"type":"future","text":{}}]`).Replace(hello), good, done),
			letta.Turn{
				RunID: "run-1", StopReason: "end_turn",
				Reply: []letta.Message{{ID: "message-1", Type: letta.AssistantMessage, RunID: "run-1", Text: "hello"}},
			},
			nil,
		},
		"NoStream": {
			"a server that does not stream has run a turn nevertheless", jsonAnswer(200, `{"messages":[]}`),
			letta.Turn{},
			letta.ErrOutcomeUnknown,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			calls := 0
			c := scripted(t, func(*http.Request) (*http.Response, error) { calls++; return tc.answer.response(), nil })
			got, err := c.Send(t.Context(), ref, one, letta.SendOptions{})
			if diff := cmp.Diff(tc.err, err, cmpopts.EquateErrors()); diff != "" {
				t.Errorf("%s: error -want +got:\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s: turn -want +got:\n%s", tc.reason, diff)
			}
			if err != nil && strings.Contains(err.Error(), "secret") {
				t.Errorf("the error quotes the server: %q", err)
			}
			if calls != 1 {
				t.Errorf("%d requests, want 1", calls)
			}
		})
	}
}

func TestSendAsksForAReplayableTurn(t *testing.T) {
	var got struct {
		Method, URL, Auth, Accept string
		Body                      map[string]any
	}
	c := scripted(t, func(r *http.Request) (*http.Response, error) {
		got.Method, got.URL, got.Auth, got.Accept = r.Method, r.URL.String(), r.Header.Get("Authorization"), r.Header.Get("Accept")
		data, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		return sse(good).response(), json.Unmarshal(data, &got.Body)
	})
	if _, err := c.Send(t.Context(), ref, append([]letta.Input{{ClientID: "delta-0", Text: "<&>"}}, one...), letta.SendOptions{}); err != nil {
		t.Fatalf("Send: %v", err)
	}
	want := got
	want.Method, want.URL, want.Auth = "POST", "http://letta.test/v1/conversations/conv-1/messages", "Bearer sk-secret"
	want.Accept = "text/event-stream, application/json"
	want.Body = map[string]any{
		"streaming": true, "background": true, "include_pings": true, "stream_tokens": false,
		"messages": []any{
			map[string]any{"type": "message", "role": "user", "content": "<&>", "otid": "delta-0"},
			map[string]any{"type": "message", "role": "user", "content": "words", "otid": "delta-1"},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("request: -want +got:\n%s", diff)
	}
}

// TestSendWaitsForPingsAndNoLonger: pings keep a turn alive until its
// deadline, silence ends it before.
func TestSendWaitsForPingsAndNoLonger(t *testing.T) {
	cases := map[string]struct {
		reason string
		every  time.Duration // between pings; 0 sends none
		after  time.Duration // when Send must end
	}{
		"Silent": {"four pings are missing", 0, defaultIdleTimeout},
		"Alive":  {"the turn has its deadline nevertheless", 20 * time.Second, letta.DefaultTurnTimeout},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := scripted(t, func(r *http.Request) (*http.Response, error) {
					body, server := io.Pipe()
					res := sse().response()
					res.Body = body
					go func() {
						var tick <-chan time.Time
						if tc.every > 0 {
							ticker := time.NewTicker(tc.every)
							defer ticker.Stop()
							tick = ticker.C
						}
						for {
							select {
							case <-tick:
								_, _ = io.WriteString(server, ping)
							case <-r.Context().Done():
								_ = server.CloseWithError(r.Context().Err())
								return
							}
						}
					}()
					return res, nil
				})
				start := time.Now()
				_, err := c.Send(t.Context(), ref, one, letta.SendOptions{})
				if !errors.Is(err, letta.ErrOutcomeUnknown) || errors.Is(err, context.Canceled) {
					t.Errorf("%s: %v, want %v and no cancellation", tc.reason, err, letta.ErrOutcomeUnknown)
				}
				if got := time.Since(start); got != tc.after {
					t.Errorf("%s: Send ended after %v, want %v", tc.reason, got, tc.after)
				}
			})
		})
	}
}

func TestSendBoundsTheStream(t *testing.T) {
	c := scripted(t, func(*http.Request) (*http.Response, error) {
		res := sse().response()
		res.Body = io.NopCloser(repeat(": " + strings.Repeat("z", 4<<10) + "\n\n"))
		return res, nil
	})
	_, err := c.Send(t.Context(), ref, one, letta.SendOptions{})
	if !errors.Is(err, letta.ErrOutcomeUnknown) || !errors.Is(err, errStreamTooLong) {
		t.Errorf("a stream without an end: %v", err)
	}
}

func TestSendTellsWhatWentOutFromWhatDidNot(t *testing.T) {
	refused := fmt.Errorf("dial tcp 10.1.2.3:4567: %w", io.ErrClosedPipe)
	c := scripted(t, func(*http.Request) (*http.Response, error) { return nil, refused })
	_, err := c.Send(t.Context(), ref, one, letta.SendOptions{})
	if !errors.Is(err, letta.ErrUnavailable) || errors.Is(err, letta.ErrOutcomeUnknown) {
		t.Errorf("no connection: %v, want %v alone", err, letta.ErrUnavailable)
	}
	if diff := cmp.Diff("send: letta is unavailable: connection lost", err.Error()); diff != "" {
		t.Errorf("text: -want +got:\n%s", diff)
	}
}
