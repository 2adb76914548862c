package connect

import (
	"context"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

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
