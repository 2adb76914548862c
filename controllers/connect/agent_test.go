package connect

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/internal/letta"
	"github.com/undersong-dev/undersong/internal/letta/api"
	"github.com/undersong-dev/undersong/internal/letta/lettatest"
)

// TestWhoKeepsAMemory: of two agents of one project the oldest, none of another
// memory, and none that the scope of today would not use.
func TestWhoKeepsAMemory(t *testing.T) {
	server, err := lettatest.New(lettatest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	url, err := server.Start(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	c, err := api.New(api.Options{BaseURL: url})
	if err != nil {
		t.Fatal(err)
	}
	mem, other := memory(url), memory(url)
	other.Name, other.UID = "other", "other"
	ids := map[string]string{}
	for _, a := range []struct {
		name    string
		mem     *v1alpha1.TeamMemory
		project string
	}{{"shop", mem, "h/shop"}, {"shop again", mem, "h/shop"}, {"tide", mem, "h/tide"}, {"team", mem, ""}, {"foreign", other, "h/shop"}} {
		made, err := c.CreateAgent(t.Context(), letta.AgentSpec{Name: a.name, Model: "m", Tags: []string{ownTag, MemoryTag(a.mem), projectTag + a.project}})
		if err != nil {
			t.Fatal(err)
		}
		ids[a.name] = made.ID
	}
	for name, tt := range map[string]struct {
		reason string
		change func(*v1alpha1.TeamMemorySpec)
		want   []Kept
	}{
		"Project": {"one for each project", func(*v1alpha1.TeamMemorySpec) {}, []Kept{{ids["shop"], "h/shop"}, {ids["tide"], "h/tide"}}},
		"Team":    {"one for all", func(s *v1alpha1.TeamMemorySpec) { s.Scope = v1alpha1.ScopeTeam }, []Kept{{ids["team"], ""}}},
		"id":      {"the one that is named", func(s *v1alpha1.TeamMemorySpec) { s.Agent = v1alpha1.AgentSource{ID: "a"} }, []Kept{{"a", ""}}},
	} {
		t.Run(name, func(t *testing.T) {
			m := mem.DeepCopy()
			tt.change(&m.Spec)
			got, err := KeptOf(t.Context(), c, m)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tt.reason, diff)
			}
		})
	}
}

// TestAnAgentIsMadeFromTheTemplate: with memory alone, findable, with what the
// team pins in the place of what it would have had.
func TestAnAgentIsMadeFromTheTemplate(t *testing.T) {
	server, err := lettatest.New(lettatest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	url, err := server.Start(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	c, err := api.New(api.Options{BaseURL: url})
	if err != nil {
		t.Fatal(err)
	}
	agents := &Agents{Pinned: func(context.Context, *v1alpha1.TeamMemory, string) ([]letta.Block, error) {
		return []letta.Block{{Label: "brief", Value: "Ours."}, {Label: "glossary", Value: "Skipper.", Description: "words"}}, nil
	}}
	id, err := agents.Ensure(t.Context(), c, memory(url), "h/shop")
	if err != nil {
		t.Fatal(err)
	}
	agent, err := c.Agent(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"memory"}, agent.Tools); diff != "" {
		t.Errorf("tools (-want +got):\n%s", diff)
	}
	if tag := templateTag + templateVersion; !slices.Contains(agent.Tags, tag) {
		t.Errorf("tags %v, want %s among them", agent.Tags, tag)
	}
	m, err := c.Memory(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]string{}
	for _, b := range m.Blocks {
		values[b.Label] = b.Value
		if b.Description == "" {
			t.Errorf("the block %s has no description", b.Label)
		}
	}
	want := map[string]string{"brief": "Ours.", "conventions": "", "pitfalls": "", "decisions": "", "open_items": "", "glossary": "Skipper."}
	if diff := cmp.Diff(want, values); diff != "" {
		t.Errorf("blocks (-want +got):\n%s", diff)
	}
}

// TestAnAgentOfAnOlderVersionIsBroughtUp: it gets the instruction and the blocks
// of today, and keeps what it has learned. One that a person changed is kept.
func TestAnAgentOfAnOlderVersionIsBroughtUp(t *testing.T) {
	if !ownText(instructions) {
		t.Fatal("the instructions changed: raise templateVersion, and put their sum into ownTexts")
	}
	server, err := lettatest.New(lettatest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	url, err := server.Start(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	c, err := api.New(api.Options{BaseURL: url})
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		reason string
		system string
		tags   []string
		up     bool
		event  string
	}{
		"older":   {"it has an instruction of ours", instructions, []string{templateTag + "1", "somebody's own"}, true, v1alpha1.AgentBroughtUpReason},
		"oldest":  {"there were no versions then", instructions, nil, true, v1alpha1.AgentBroughtUpReason},
		"changed": {"a person wrote it", "Be brief.", []string{templateTag + "1"}, false, v1alpha1.AgentKeptReason},
		"today's": {"there is nothing to do", "Whatever.", []string{templateTag + templateVersion}, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			m := memory(url)
			m.Name = strings.ReplaceAll(name, "'", "")
			made, err := c.CreateAgent(t.Context(), letta.AgentSpec{
				Name: name, Model: "m", System: tt.system, Tags: append([]string{ownTag, MemoryTag(m), projectTag + "h/shop"}, tt.tags...),
				Blocks: []letta.Block{{Label: "brief", Value: "Learned."}},
			})
			if err != nil {
				t.Fatal(err)
			}
			recorder := events.NewFakeRecorder(4)
			agents := &Agents{Recorder: recorder, Clock: clock.RealClock{}}
			for range 2 { // the second time there is nothing left to do
				id, err := agents.Ensure(t.Context(), c, m, "h/shop")
				if err != nil || id != made.ID {
					t.Fatalf("%s: Ensure = %q, %v, want the agent that is there", tt.reason, id, err)
				}
				agents.Forget(m, "h/shop")
			}
			got, err := c.Agent(t.Context(), made.ID)
			if err != nil {
				t.Fatal(err)
			}
			mem, err := c.Memory(t.Context(), made.ID)
			if err != nil {
				t.Fatal(err)
			}
			if brief, _ := mem.Block("brief"); brief.Value != "Learned." {
				t.Errorf("%s: the brief is %q", tt.reason, brief.Value)
			}
			_, pitfalls := mem.Block("pitfalls")
			up := got.System == instructions && slices.Contains(got.Tags, templateTag+templateVersion) && pitfalls
			if up != tt.up {
				t.Errorf("%s: brought up: %v, want %v: %+v", tt.reason, up, tt.up, got)
			}
			if name == "older" && (slices.Contains(got.Tags, templateTag+"1") || !slices.Contains(got.Tags, "somebody's own")) {
				t.Errorf("%s: its tags are %v", tt.reason, got.Tags)
			}
			event := ""
			if len(recorder.Events) > 0 {
				event = <-recorder.Events
			}
			if !strings.Contains(event, tt.event) || (tt.event == "") != (event == "") || len(recorder.Events) > 0 {
				t.Errorf("%s: the event is %q and %d more, want one %q", tt.reason, event, len(recorder.Events), tt.event)
			}
		})
	}
}
