package claude

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func startModel(t *testing.T, rules ...*Rule) *Model {
	t.Helper()
	m, err := StartModel(t.Context(), rules...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	return m
}

// ask sends a request and returns the answer as it came.
func ask(ctx context.Context, t *testing.T, m *Model, messages string, stream bool) string {
	t.Helper()
	body := fmt.Sprintf(`{"model":"m","stream":%v,"messages":%s,"tools":[{"name":"Bash"}],"metadata":{"user_id":"{\"session_id\":\"s1\"}"}}`, stream, messages)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, m.URL+"/v1/messages", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	data, err := io.ReadAll(res.Body)
	if err != nil && ctx.Err() == nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestModelFollowsItsScript(t *testing.T) {
	m := startModel(t,
		&Rule{When: "RIVER", Tool: "Swim", Blocks: []Block{{Text: "never"}}},
		&Rule{When: "RIVER", Blocks: []Block{{Thinking: "hm"}, {Text: "deep"}, {Tool: "Bash", ID: "toolu_1", Input: map[string]any{"command": "ls"}}}},
		&Rule{When: "toolu_1", Always: true, Blocks: []Block{{Text: "done"}}},
	)
	const river = `[{"role":"user","content":"RIVER?"}]`
	first := ask(t.Context(), t, m, river, true)
	for _, want := range []string{`"thinking":"hm"`, `"text":"deep"`, `"name":"Bash"`, `{\"command\":\"ls\"}`, `"stop_reason":"tool_use"`, "event: message_stop"} {
		if !strings.Contains(first, want) {
			t.Errorf("the stream lacks %s:\n%s", want, first)
		}
	}
	// What was said before the model's last message asks for nothing.
	const result = `[{"role":"user","content":"RIVER?"},{"role":"assistant","content":"deep"},{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_1","content":"x"}]}]`
	for range 2 {
		if got := ask(t.Context(), t, m, result, false); !strings.Contains(got, `"text":"done"`) || !strings.Contains(got, `"stop_reason":"end_turn"`) {
			t.Errorf("after the tool: %s", got)
		}
	}
	if got := ask(t.Context(), t, m, river, false); !strings.Contains(got, "Noted.") {
		t.Errorf("the script is used up: %s", got)
	}
	var rules []string
	for _, r := range m.Requests() {
		rules = append(rules, r.Session+" "+r.Rule)
	}
	if diff := cmp.Diff([]string{"s1 RIVER", "s1 toolu_1", "s1 toolu_1", "s1 "}, rules); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	if n := m.Requests()[1].Count("RIVER"); n != 1 {
		t.Errorf("RIVER is %d times in the second request, want once", n)
	}
}

func TestModelHoldsABlock(t *testing.T) {
	m := startModel(t, &Rule{When: "RIVER", Always: true, Blocks: []Block{{Text: "first"}, {Text: "second", Hold: "gate"}}})
	ctx, hangUp := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, m.URL+"/v1/messages", strings.NewReader(`{"stream":true,"messages":[{"role":"user","content":"RIVER"}]}`))
		if err != nil {
			t.Error(err)
			return
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = res.Body.Close() }()
		buffer := make([]byte, 4096)
		var got string
		for !strings.Contains(got, "first") {
			n, err := res.Body.Read(buffer)
			if err != nil {
				t.Error(err)
				return
			}
			got += string(buffer[:n])
		}
		hangUp()
		rest, _ := io.ReadAll(res.Body) // cut off
		if strings.Contains(got+string(rest), "second") {
			t.Error("the block was not held")
		}
	}()
	<-done
	m.Release("gate")
	if got := ask(t.Context(), t, m, `[{"role":"user","content":"RIVER"}]`, true); !strings.Contains(got, "second") {
		t.Errorf("the block was not released: %s", got)
	}
}
