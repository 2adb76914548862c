package api

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/undersong-dev/undersong/internal/letta"
)

var noon = time.Date(2030, 1, 2, 12, 0, 0, 0, time.UTC)

// server answers the three questions of Lookup.
type server struct {
	stream   canned
	run      canned
	runs     string
	messages string
	asked    []string
}

func (s *server) RoundTrip(r *http.Request) (*http.Response, error) {
	s.asked = append(s.asked, r.Method+" "+r.URL.Path)
	switch r.Method + " " + r.URL.Path {
	case "POST /v1/conversations/conv-1/stream":
		return s.stream.response(), nil
	case "GET /v1/runs/run-1":
		return s.run.response(), nil
	case "GET /v1/runs/":
		return jsonAnswer(200, "["+s.runs+"]").response(), nil
	case "GET /v1/conversations/conv-1/messages":
		page := s.messages
		if r.URL.Query().Get("after") != "" {
			page = ""
		}
		return jsonAnswer(200, "["+page+"]").response(), nil
	}
	return jsonAnswer(404, `{"detail":"Not Found"}`).response(), nil
}

func item(kind, id, otid, run, text string, minute int) string {
	return fmt.Sprintf(`{"message_type":%q,"id":%q,"otid":%q,"run_id":%q,"content":%q,"date":%q}`,
		kind, id, otid, run, text, noon.Add(time.Duration(minute)*time.Minute).Format(time.RFC3339))
}

func list(items ...string) string { return strings.Join(items, ",") }

func TestLookup(t *testing.T) {
	const user, assistant, summary = letta.UserMessage, letta.AssistantMessage, letta.SummaryMessage
	unknown := func() canned { return jsonAnswer(404, `{"detail":"No run found"}`) }
	noRedis := func() canned { return jsonAnswer(503, `{"detail":"Redis"}`) }
	run := func(status, stop string, age time.Duration) string {
		return fmt.Sprintf(`{"id":"run-1","status":%q,"stop_reason":%q,"created_at":%q}`, status, stop, noon.Add(-age).Format(time.RFC3339))
	}
	asRun := func(text string) canned { return jsonAnswer(200, text) }
	cases := map[string]struct {
		reason string
		server server
		want   letta.Delivery
		text   string // of the reply
		run    string
		asked  int
	}{
		"Replay": {
			"the replay knows everything, and nothing else is asked",
			server{stream: sse(ping, hello, good, done)},
			letta.DeliveryReplied, "hello", "run-1", 1,
		},
		"ReplayRuns": {
			"a replay without an end, and its run goes on",
			server{stream: sse(ping, hello), run: asRun(run("running", "", time.Minute))},
			letta.DeliveryRunning, "hello", "run-1", 2,
		},
		"ReplayForgotten": {
			"the events are gone, and the run has ended: the listing has the reply",
			server{
				stream: sse(ping), run: asRun(run("completed", "end_turn", time.Minute)),
				messages: list(item(user, "m1", "delta-1", "run-1", "q", 0), item(assistant, "m2", "x", "run-1", "from the listing", 1)),
			},
			letta.DeliveryReplied, "from the listing", "run-1", 4,
		},
		"ReplayForgottenUnlisted": {
			"a run that ended well is not sent again, whatever the listing lost",
			server{stream: sse(ping), run: asRun(run("completed", "", time.Minute))},
			letta.DeliveryReplied, "", "run-1", 3,
		},
		"RunOfADeadServer": {
			"a run that has called itself running for a day is not believed",
			server{stream: sse(ping), run: asRun(run("running", "", 24*time.Hour))},
			letta.DeliveryAbsent, "", "run-1", 3,
		},
		"FailedUnstored": {
			"a failed first step stores nothing",
			server{stream: sse(ping, bad, fails, done)},
			letta.DeliveryAbsent, "", "run-1", 2,
		},
		"FailedStored": {
			"words of a step before the failure are no reply",
			server{
				stream:   sse(ping, hello, bad, fails, done),
				messages: list(item(user, "m1", "delta-1", "run-1", "q", 0), item(assistant, "m2", "x", "run-1", "let me see", 1)),
			},
			letta.DeliveryNoReply, "", "run-1", 3,
		},
		"Listed": {
			"after the window the listing tells, and its run how it ended",
			server{
				stream: unknown(), run: asRun(run("completed", "end_turn", 24*time.Hour)),
				messages: list(item(user, "m1", "delta-1", "run-1", "q", 0), item(assistant, "m2", "x", "run-1", "a", 1)),
			},
			letta.DeliveryReplied, "a", "run-1", 4,
		},
		"ListedFailed": {
			"the run's word counts for more than words of its first step",
			server{
				stream: unknown(), run: asRun(run("failed", "", 24*time.Hour)),
				messages: list(item(user, "m1", "delta-1", "run-1", "q", 0), item(assistant, "m2", "x", "run-1", "let me see", 1)),
			},
			letta.DeliveryNoReply, "", "run-1", 4,
		},
		"ListedNoRuns": {
			"a server that tells no runs: what follows before the next user message",
			server{
				stream: unknown(),
				messages: list(
					item(user, "m0", "delta-0", "", "q", 0), item(assistant, "m1", "x", "", "other", 1),
					item(user, "m2", "delta-1", "", "q", 2), item("tool_call_message", "m3", "x", "", "", 3),
					item(assistant, "m4", "x", "", "first", 4), item(assistant, "m5", "x", "", "second", 5),
					item(user, "m6", "delta-2", "", "q", 6), item(assistant, "m7", "x", "", "other", 7)),
			},
			letta.DeliveryReplied, "first\n\nsecond", "", 3,
		},
		"ListedNoReply": {
			"the next message's answer is not this one's",
			server{
				stream: unknown(),
				messages: list(item(user, "m2", "delta-1", "", "q", 2), item(user, "m6", "delta-2", "", "q", 6),
					item(assistant, "m7", "x", "", "other", 7)),
			},
			letta.DeliveryNoReply, "", "", 3,
		},
		"ListedTwice": {
			"sent twice, answered once",
			server{
				stream: unknown(),
				messages: list(item(user, "m1", "delta-1", "", "q", 1), item(user, "m2", "delta-1", "", "q", 2),
					item(assistant, "m3", "x", "", "a", 3)),
			},
			letta.DeliveryReplied, "a", "", 3,
		},
		"ListedOutOfOrder": {
			"after a compaction positions mix, and time tells",
			server{
				stream: unknown(),
				messages: list(item(summary, "m9", "", "", "", 9),
					item(user, "m1", "delta-1", "", "q", 1), item(user, "m5", "delta-3", "", "q", 5),
					item(assistant, "m2", "x", "", "mine", 2), item(assistant, "m6", "x", "", "other", 6)),
			},
			letta.DeliveryReplied, "mine", "", 3,
		},
		"Absent": {
			"not listed, and nothing was compacted",
			server{stream: unknown(), messages: list(item(user, "m1", "delta-0", "", "q", 1))},
			letta.DeliveryAbsent, "", "", 3,
		},
		"Unknown": {
			"not listed, and something was compacted",
			server{stream: unknown(), messages: list(item(summary, "m9", "", "", "", 9))},
			letta.DeliveryUnknown, "", "", 3,
		},
		"OtherType": {
			"an answer that carries our id is not our message",
			server{stream: unknown(), messages: list(item(assistant, "m1", "delta-1", "", "a", 1))},
			letta.DeliveryAbsent, "", "", 3,
		},
		"NoRedisRuns": {
			"the server cannot tell whose run it is: it may be ours",
			server{stream: noRedis(), runs: run("running", "", time.Minute)},
			letta.DeliveryRunning, "", "", 3,
		},
		"NoRedisRan": {
			"nothing runs, nothing is listed",
			server{stream: noRedis(), runs: run("running", "", 24*time.Hour)},
			letta.DeliveryAbsent, "", "", 3,
		},
		"TooOld": {
			"410 says no more than that the replay is gone",
			server{stream: jsonAnswer(410, `{"detail":"expired"}`), messages: list(item(user, "m1", "delta-1", "", "q", 0), item(assistant, "m2", "x", "", "a", 1))},
			letta.DeliveryReplied, "a", "", 3,
		},
		"OddRun": {
			"a run id that is no path segment is not asked for",
			server{stream: sse(strings.Replace(ping, "run-1", "../agents", 1))},
			letta.DeliveryAbsent, "", "../agents", 2,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c, err := New(Options{BaseURL: "http://letta.test", Transport: &tc.server, Clock: clocktesting.NewFakePassiveClock(noon)})
			if err != nil {
				t.Fatalf("New: %v", err)
			}
			got, turn, err := c.Lookup(t.Context(), ref, "delta-1")
			if err != nil {
				t.Fatalf("%s: %v", tc.reason, err)
			}
			if got != tc.want {
				t.Errorf("%s: %v, want %v", tc.reason, got, tc.want)
			}
			if diff := cmp.Diff(tc.text, turn.Text()); diff != "" {
				t.Errorf("%s: reply -want +got:\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(tc.run, turn.RunID); diff != "" {
				t.Errorf("%s: run -want +got:\n%s", tc.reason, diff)
			}
			if len(tc.server.asked) != tc.asked {
				t.Errorf("%s: asked %d times, want %d: %v", tc.reason, len(tc.server.asked), tc.asked, tc.server.asked)
			}
		})
	}
}
