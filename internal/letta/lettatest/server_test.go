package lettatest_test

import (
	"encoding/json"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/undersong-dev/undersong/internal/letta"
	"github.com/undersong-dev/undersong/internal/letta/lettatest"
)

// wire speaks to the server as the client never would.
type wire struct {
	t   *testing.T
	url string
}

// reply is an answer as tests look at it.
type reply struct {
	status         int
	location, body string
}

func (w wire) do(method, path, body string) reply {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), method, w.url+path, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	c := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	res, err := c.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return reply{res.StatusCode, res.Header.Get("Location"), string(data)}
}

// talk makes an agent and a conversation, and returns their ids.
func talk(t *testing.T, url string) letta.Ref {
	t.Helper()
	c := client(t, url, "")
	a, err := c.CreateAgent(t.Context(), letta.AgentSpec{Name: "Team Memory", Model: "stub/one", Tags: []string{"team"}})
	if err != nil {
		t.Fatal(err)
	}
	v, err := c.CreateConversation(t.Context(), a.ID, letta.ConversationSpec{Summary: "session"})
	if err != nil {
		t.Fatal(err)
	}
	return letta.Ref{AgentID: a.ID, ConversationID: v.ID}
}

func TestRefusals(t *testing.T) {
	_, url := start(t, lettatest.Options{})
	w := wire{t, url}
	const missing = "00000000-0000-4000-8000-000000000000"
	cases := map[string]struct {
		reason       string
		method, path string
		body         string
		status       int
		location     string
	}{
		"SlashMissing":  {"a collection has its slash", "GET", "/v1/agents?limit=1", "", 307, url + "/v1/agents/?limit=1"},
		"SlashTooMany":  {"an item has none", "GET", "/v1/agents/agent-" + missing + "/", "", 307, url + "/v1/agents/agent-" + missing},
		"SlashOnSend":   {"nor has an action", "POST", "/v1/conversations/conv-" + missing + "/messages/", "{}", 307, url + "/v1/conversations/conv-" + missing + "/messages"},
		"Unknown":       {"no such route", "GET", "/v2/agents/", "", 404, ""},
		"Method":        {"no such method", "PUT", "/v1/agents/", "", 404, ""},
		"Pattern":       {"ids are checked before anything is looked for", "GET", "/v1/agents/local-1", "", 422, ""},
		"PatternKind":   {"an id of another kind too", "GET", "/v1/conversations/agent-" + missing, "", 422, ""},
		"NoAgent":       {"no such agent", "GET", "/v1/agents/agent-" + missing, "", 404, ""},
		"NoModel":       {"an agent without a model", "POST", "/v1/agents/", `{"name":"x"}`, 400, ""},
		"NoJSON":        {"no JSON", "POST", "/v1/agents/", `{`, 422, ""},
		"OrphanTalk":    {"a conversation of nobody", "POST", "/v1/conversations/?agent_id=agent-" + missing, "", 404, ""},
		"UnknownCursor": {"the cursor of conversations must exist", "GET", "/v1/conversations/?after=conv-" + missing, "", 404, ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			res := w.do(tc.method, tc.path, tc.body)
			if res.status != tc.status || res.location != tc.location {
				t.Errorf("%s: status %d to %q, want %d to %q", tc.reason, res.status, res.location, tc.status, tc.location)
			}
		})
	}
}

func TestSendModes(t *testing.T) {
	s, url := start(t, lettatest.Options{})
	w := wire{t, url}
	ref := talk(t, url)
	path := "/v1/conversations/" + ref.ConversationID + "/messages"
	message := `"messages":[{"role":"user","content":[{"type":"text","text":"hi"}],"otid":"o-1"}]`

	if res := w.do("POST", path, `{"messages":[]}`); res.status != http.StatusUnprocessableEntity {
		t.Errorf("no messages: status %d, want 422", res.status)
	}
	if res := w.do("POST", path, `{`+message+`,"streaming":false}`); res.status != http.StatusBadRequest {
		t.Errorf("without streaming: status %d, want 400", res.status)
	}
	for want := 1; want <= 2; want++ {
		if body := w.do("POST", path, `{`+message+`}`).body; !strings.HasSuffix(body, "data: [DONE]\n\n") {
			t.Errorf("the stream ends with %q", body)
		}
		if got := s.Turns(); got != want {
			t.Errorf("in the foreground the same otid runs again: %d turns, want %d", got, want)
		}
	}
	if res := w.do("POST", "/v1/conversations/"+ref.ConversationID+"/stream", `{}`); res.status != http.StatusBadRequest {
		t.Errorf("a replay while nothing runs: status %d, want 400", res.status)
	}
	first := w.do("POST", path, `{`+message+`,"background":true}`).body
	again := w.do("POST", path, `{`+message+`,"background":true}`).body
	if diff := cmp.Diff(first, again); diff != "" {
		t.Errorf("in the background the same stream is replayed: -first +again:\n%s", diff)
	}
	rest := w.do("POST", "/v1/conversations/"+ref.ConversationID+"/stream", `{"otid":"o-1","starting_after":1}`).body
	if want := first[strings.Index(first, "\n\n")+2:]; rest != want {
		t.Errorf("a replay after the first event: -want +got:\n%s", cmp.Diff(want, rest))
	}
	if got := s.Turns(); got != 3 {
		t.Errorf("%d turns, want 3", got)
	}
}

// eventually waits for something that another goroutine does.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	deadline := time.NewTimer(20 * time.Second)
	defer deadline.Stop()
	for !done() {
		select {
		case <-ticker.C:
		case <-deadline.C:
			t.Fatalf("never: %s", what)
		}
	}
}

// TestTimeLimits: the lock of a conversation and the window of replays end by
// the clock.
func TestTimeLimits(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC))
	s, url := start(t, lettatest.Options{Clock: clock})
	c := client(t, url, "")
	ref := talk(t, url)
	release := s.HoldTurns()
	defer release()
	begin := func(id string) (chan error, func() bool) {
		done := make(chan error, 1)
		before := s.Turns()
		go func() {
			_, err := c.Send(t.Context(), ref, []letta.Input{{ClientID: id, Text: "hi"}}, letta.SendOptions{})
			done <- err
		}()
		return done, func() bool { return s.Turns() > before }
	}
	first, began := begin("one")
	eventually(t, "the first turn begins", began)
	second, _ := begin("two")
	if err := <-second; err == nil {
		t.Errorf("two turns at once in one conversation")
	}
	clock.Step(6 * time.Minute)
	third, began := begin("three") // the lock is not extended
	eventually(t, "a turn begins beside one whose lock has ended", began)
	release()
	for _, done := range []chan error{first, third} {
		if err := <-done; err != nil {
			t.Errorf("Send: %v", err)
		}
	}
	send := func() {
		t.Helper()
		if _, err := c.Send(t.Context(), ref, []letta.Input{{ClientID: "one", Text: "hi"}}, letta.SendOptions{}); err != nil {
			t.Fatalf("Send: %v", err)
		}
	}
	send()
	if got := s.Turns(); got != 2 {
		t.Errorf("within the window: %d turns, want 2", got)
	}
	clock.Step(3 * time.Hour)
	w := wire{t, url}
	if res := w.do("POST", "/v1/conversations/"+ref.ConversationID+"/stream", `{"otid":"one"}`); res.status != http.StatusGone {
		t.Errorf("a replay after the window: status %d, want 410", res.status)
	}
	send()
	if got := s.Turns(); got != 3 {
		t.Errorf("after the window: %d turns, want 3", got)
	}
}

// TestMessageCursors: before and after are positions in both orders, what is
// unknown is ignored, and the limit counts stored messages.
func TestMessageCursors(t *testing.T) {
	_, url := start(t, lettatest.Options{})
	c := client(t, url, "")
	ref := talk(t, url)
	for _, id := range []string{"a", "b", "c"} {
		if _, err := c.Send(t.Context(), ref, []letta.Input{{ClientID: id, Text: "say " + id}}, letta.SendOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	w := wire{t, url}
	get := func(query string) (kinds, ids []string) {
		t.Helper()
		body := w.do("GET", "/v1/conversations/"+ref.ConversationID+"/messages?"+query, "").body
		var items []struct {
			Type string `json:"message_type"`
			ID   string `json:"id"`
		}
		if err := json.Unmarshal([]byte(body), &items); err != nil {
			t.Fatal(err)
		}
		for _, v := range items {
			kinds, ids = append(kinds, strings.TrimSuffix(v.Type, "_message")), append(ids, v.ID)
		}
		return kinds, ids
	}
	all := []string{"system", "user", "reasoning", "assistant", "user", "reasoning", "assistant", "user", "reasoning", "assistant"}
	kinds, ids := get("order=asc")
	if diff := cmp.Diff(all, kinds); diff != "" {
		t.Fatalf("all: -want +got:\n%s", diff)
	}
	cases := map[string]struct {
		reason, query string
		want          []string
	}{
		"Limit":     {"two stored messages are three items", "order=asc&limit=3&after=" + ids[0], all[1:5]},
		"Descends":  {"newest first, the items of a message in their order", "limit=2", []string{"reasoning", "assistant", "user"}},
		"After":     {"after is later in both orders", "limit=1&after=" + ids[4], []string{"reasoning", "assistant"}},
		"Before":    {"and before is earlier", "order=desc&before=" + ids[1], []string{"system"}},
		"Unknown":   {"an unknown cursor is ignored", "order=asc&limit=1&after=message-x", []string{"system"}},
		"Filtered":  {"the filter comes after the limit", "order=asc&limit=2&include_return_message_types=assistant_message", nil},
		"EmptyPage": {"nothing is after the last", "after=" + ids[9], nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, _ := get(tc.query)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s: -want +got:\n%s", tc.reason, diff)
			}
		})
	}

	w.do("POST", "/v1/conversations/"+ref.ConversationID+"/compact", "")
	kinds, _ = get("order=asc")
	if kinds[0] != "system" || !slices.Equal(kinds[1:3], []string{"user", "user"}) || len(kinds) != len(all)+1 {
		t.Errorf("after a compaction the summary, listed like a user's message, stands near the front and the old messages are listed: %v", kinds)
	}
	// The second user message was left out of context at position 3, the
	// answer to it is now at position 2.
	if _, got := get("order=asc&after=" + ids[6]); !slices.Contains(got, ids[4]) {
		t.Errorf("after a compaction an old message stands behind a newer cursor: %v", got)
	}

	if res := w.do("DELETE", "/v1/conversations/"+ref.ConversationID, ""); res.status != http.StatusOK {
		t.Errorf("delete: status %d", res.status)
	}
	if res := w.do("GET", "/v1/conversations/"+ref.ConversationID, ""); res.status != http.StatusNotFound {
		t.Errorf("a deleted conversation: status %d, want 404", res.status)
	}
}

// TestMemoryMovesBetweenSessions is the way of the demo: one session teaches,
// the agent's memory changes at once, another session is told.
func TestMemoryMovesBetweenSessions(t *testing.T) {
	s, url := start(t, lettatest.Options{})
	c := client(t, url, "")
	first := talk(t, url)
	v, err := c.CreateConversation(t.Context(), first.AgentID, letta.ConversationSpec{Summary: "second"})
	if err != nil {
		t.Fatal(err)
	}
	second := letta.Ref{AgentID: first.AgentID, ConversationID: v.ID}
	say := func(ref letta.Ref, id, session, text string) letta.Turn {
		t.Helper()
		turn, err := c.Send(t.Context(), ref, []letta.Input{{ClientID: id, Text: `<transcript_delta id="` + id + `" session="` + session +
			`" project="p"><message role="user">` + text + `</message></transcript_delta>`}}, letta.SendOptions{})
		if err != nil {
			t.Fatalf("Send: %v", err)
		}
		return turn
	}
	before, err := c.Memory(t.Context(), first.AgentID)
	if err != nil {
		t.Fatal(err)
	}
	if got := say(first, "d1", "s1", "Careful: the payments service retries webhooks twice.").Text(); got != "(silence)" {
		t.Errorf("the teacher is told %q", got)
	}
	after, err := c.Memory(t.Context(), first.AgentID)
	if err != nil {
		t.Fatal(err)
	}
	if b, _ := after.Block("pitfalls"); b.Value != "- the payments service retries webhooks twice.\n" || after.Revision == before.Revision {
		t.Errorf("memory = %+v", after)
	}
	turn := say(second, "d2", "s2", "Why do webhooks of the payments API come twice?")
	if diff := cmp.Diff("From an earlier session in this project: the payments service retries webhooks twice.", turn.Text()); diff != "" {
		t.Errorf("the second session is told: -want +got:\n%s", diff)
	}
	talks := s.Conversations()
	if len(talks) != 2 || len(talks[0].Messages) != 5 {
		t.Errorf("the first conversation has a system message, ours, a tool's call and return, and an answer: %+v", talks)
	}
}

// TestStateSurvivesARestart: everything a caller could ask is the same after
// it, the replay of an old turn included.
func TestStateSurvivesARestart(t *testing.T) {
	file := filepath.Join(t.TempDir(), "letta.json")
	first, url := start(t, lettatest.Options{StateFile: file})
	ref := talk(t, url)
	in := []letta.Input{{ClientID: "d1", Text: `<transcript_delta id="d1" session="s1"><message role="user">Remember: webhooks come twice.</message></transcript_delta>`}}
	c := client(t, url, "")
	turn, err := c.Send(t.Context(), ref, in, letta.SendOptions{})
	if err != nil {
		t.Fatal(err)
	}
	// A turn under way when the process ends.
	first.HoldTurns()
	_, err = c.Send(t.Context(), ref, []letta.Input{{ClientID: "d2", Text: "hi"}}, letta.SendOptions{Timeout: 200 * time.Millisecond})
	if err == nil {
		t.Fatal("a held turn ended")
	}
	memory, err := c.Memory(t.Context(), ref.AgentID)
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}

	second, url := start(t, lettatest.Options{StateFile: file})
	c = client(t, url, "")
	got, err := c.Memory(t.Context(), ref.AgentID)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(memory, got); diff != "" {
		t.Errorf("memory: -before +after:\n%s", diff)
	}
	if diff := cmp.Diff(first.Conversations(), second.Conversations()); diff != "" {
		t.Errorf("conversations: -before +after:\n%s", diff)
	}
	again, err := c.Send(t.Context(), ref, in, letta.SendOptions{})
	if err != nil || second.Turns() != 0 {
		t.Errorf("the replay after a restart: %v, %d turns", err, second.Turns())
	}
	if diff := cmp.Diff(turn, again); diff != "" {
		t.Errorf("the replay: -before +after:\n%s", diff)
	}
	if d, _, err := c.Lookup(t.Context(), ref, "d2"); err != nil || d != letta.DeliveryRunning {
		t.Errorf("a turn that died with the process: %v, %v, want Running: nobody has noticed", d, err)
	}
	if err := c.Cancel(t.Context(), ref); err != nil {
		t.Errorf("Cancel: %v", err)
	}
	if d, _, err := c.Lookup(t.Context(), ref, "d2"); err != nil || d != letta.DeliveryAbsent {
		t.Errorf("a cancelled turn that died with the process: %v, %v, want Absent", d, err)
	}
	// What is learnt is remembered with who taught it.
	next, err := c.Send(t.Context(), ref, []letta.Input{{ClientID: "d3", Text: `<transcript_delta id="d3" session="s1"><message role="user">webhooks twice</message></transcript_delta>`}}, letta.SendOptions{})
	if err != nil || next.Text() != "(silence)" {
		t.Errorf("the teacher after a restart is told %q, %v", next.Text(), err)
	}
}

// TestFaultsStrikeWhereTheyAreOrdered: at the n-th request of their route, once.
func TestFaultsStrikeWhereTheyAreOrdered(t *testing.T) {
	s, url := start(t, lettatest.Options{})
	w := wire{t, url}
	s.Inject(lettatest.Fault{Route: agentsRoute, Nth: 2, Status: http.StatusTeapot, Body: "x"})
	s.Inject(lettatest.Fault{Nth: 4, Status: http.StatusBadGateway})
	var got []int
	for _, path := range []string{"/v1/health/", "/v1/agents/", "/v1/agents/", "/v1/health/", "/v1/agents/"} {
		got = append(got, w.do("GET", path, "").status)
	}
	if diff := cmp.Diff([]int{200, 200, 418, 502, 200}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if n := s.Requests(agentsRoute); n != 3 {
		t.Errorf("%d requests to %s, want 3", n, agentsRoute)
	}
}

// TestDelay: a turn takes its time, and nothing of it is seen before.
func TestDelay(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC))
	s, url := start(t, lettatest.Options{Clock: clock, Delay: time.Minute})
	c := client(t, url, "")
	ref := talk(t, url)
	done := make(chan error, 1)
	go func() {
		_, err := c.Send(t.Context(), ref, []letta.Input{{ClientID: "d1", Text: "hi"}}, letta.SendOptions{})
		done <- err
	}()
	// The turn's timer and the stream's ticker.
	eventually(t, "the turn waits", func() bool { return s.Turns() == 1 && clock.Waiters() == 2 })
	clock.Step(59 * time.Second)
	if n := len(s.Conversations()[0].Messages); n != 1 {
		t.Errorf("%d messages before the turn is over, want the system's alone", n)
	}
	clock.Step(time.Second)
	if err := <-done; err != nil {
		t.Errorf("Send: %v", err)
	}
}

func TestStateThatCannotBeKept(t *testing.T) {
	s, err := lettatest.New(lettatest.Options{StateFile: filepath.Join(t.TempDir(), "missing", "letta.json")})
	if err != nil {
		t.Fatal(err)
	}
	url, err := s.Start(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := wire{t, url}
	w.do("POST", "/v1/agents/", `{"model":"m"}`)
	if res := w.do("GET", "/v1/agents/", ""); res.status != http.StatusInternalServerError {
		t.Errorf("after a state that could not be saved: status %d, want 500", res.status)
	}
	if err := s.Close(); err == nil {
		t.Errorf("Close says nothing of a state that could not be saved")
	}
}
