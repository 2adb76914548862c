package contract

import (
	"fmt"
	"slices"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/google/uuid"

	"github.com/undersong-dev/undersong/internal/letta"
)

func (s *suite) capabilities() {
	t := s.t
	got, err := s.Client.Capabilities(t.Context())
	if err != nil {
		t.Fatalf("Capabilities: %v", err)
	}
	if got.Backend == "" || got.Version == "" {
		t.Errorf("Capabilities = %+v, want a back end and a version", got)
	}
}

func (s *suite) agentsByTag() {
	t := s.t
	tags := []string{"a:" + uuid.NewString(), "b:" + uuid.NewString()}
	spec := letta.AgentSpec{Name: "Team Memory", Model: s.Model, Tags: tags}
	var want []string
	for range 2 { // a lost answer can leave two: both are found, the older first
		a, err := s.Client.CreateAgent(t.Context(), spec)
		if err != nil {
			t.Fatalf("CreateAgent: %v", err)
		}
		want = append(want, a.ID)
	}
	half := spec
	half.Tags = tags[:1]
	if _, err := s.Client.CreateAgent(t.Context(), half); err != nil {
		t.Fatalf("CreateAgent: %v", err)
	}

	agents, err := s.Client.AgentsByTag(t.Context(), tags)
	if err != nil {
		t.Fatalf("AgentsByTag: %v", err)
	}
	var got []string
	for _, a := range agents {
		got = append(got, a.ID)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("agents with both tags, oldest first: -want +got:\n%s", diff)
	}

	one, err := s.Client.Agent(t.Context(), want[0])
	if err != nil {
		t.Fatalf("Agent: %v", err)
	}
	if diff := cmp.Diff(tags, one.Tags, cmpopts.SortSlices(func(a, b string) bool { return a < b })); diff != "" {
		t.Errorf("tags: -want +got:\n%s", diff)
	}
	if one.Tools != nil {
		// More tools would be tools in the hand of whoever writes transcripts.
		if diff := cmp.Diff([]string{"memory"}, one.Tools); diff != "" {
			t.Errorf("tools: -want +got:\n%s", diff)
		}
	}

	none, err := s.Client.AgentsByTag(t.Context(), []string{"no such tag " + uuid.NewString()})
	if err != nil || len(none) != 0 {
		t.Errorf("AgentsByTag of an unknown tag = %v, %v, want none", none, err)
	}
}

func (s *suite) agentsManyPages() {
	t := s.t
	tags := []string{"many:" + uuid.NewString()}
	var want []string
	many := 120
	if s.ManyAgents > 0 {
		many = s.ManyAgents
	}
	for i := range many {
		a, err := s.Client.CreateAgent(t.Context(), letta.AgentSpec{Name: fmt.Sprintf("Agent %d", i), Model: s.Model, Tags: tags})
		if err != nil {
			t.Fatalf("CreateAgent: %v", err)
		}
		want = append(want, a.ID)
	}
	agents, err := s.Client.AgentsByTag(t.Context(), tags)
	if err != nil {
		t.Fatalf("AgentsByTag: %v", err)
	}
	var got []string
	for _, a := range agents {
		got = append(got, a.ID)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("all agents, over several pages: -want +got:\n%s", diff)
	}
}

func (s *suite) agentRefusals() {
	t := s.t
	a := s.agent(t)
	missing := a.ID[:len(a.ID)-1] + "0"
	if missing == a.ID {
		missing = a.ID[:len(a.ID)-1] + "1"
	}
	_, err := s.Client.Agent(t.Context(), missing)
	s.is(t, err, letta.ErrNotFound)
	_, err = s.Client.Memory(t.Context(), missing)
	s.is(t, err, letta.ErrNotFound)
	_, err = s.Client.PutBlock(t.Context(), missing, letta.Block{Label: "brief", Value: "x"}, "test")
	s.is(t, err, letta.ErrNotFound)
	_, err = s.Client.AgentsByTag(t.Context(), nil)
	s.is(t, err, letta.ErrInvalid)
	for _, id := range []string{"", ".", "..", "a/b", "a?b", "a%2fb", a.ID + "/core-memory"} {
		_, err := s.Client.Agent(t.Context(), id)
		s.is(t, err, letta.ErrInvalid)
	}
	_, err = s.Client.CreateAgent(t.Context(), letta.AgentSpec{
		Name: "Team Memory", Model: s.Model, Blocks: []letta.Block{{Label: "../x"}},
	})
	s.is(t, err, letta.ErrInvalid)
}

func (s *suite) conversations() {
	t := s.t
	a, other := s.agent(t), s.agent(t)
	name := "session " + uuid.NewString()
	made, err := s.Client.CreateConversation(t.Context(), a.ID, letta.ConversationSpec{Summary: name})
	if err != nil {
		t.Fatalf("CreateConversation: %v", err)
	}
	for i := range 60 {
		if _, err := s.Client.CreateConversation(t.Context(), a.ID, letta.ConversationSpec{Summary: fmt.Sprint("other ", i)}); err != nil {
			t.Fatalf("CreateConversation: %v", err)
		}
	}
	if _, err := s.Client.CreateConversation(t.Context(), other.ID, letta.ConversationSpec{Summary: name}); err != nil {
		t.Fatalf("CreateConversation: %v", err)
	}

	found, err := s.Client.Conversations(t.Context(), a.ID, name)
	if err != nil {
		t.Fatalf("Conversations: %v", err)
	}
	if diff := cmp.Diff([]letta.Conversation{made}, found, cmpopts.EquateApproxTime(time.Millisecond)); diff != "" {
		t.Errorf("the conversation by its summary: -want +got:\n%s", diff)
	}
	all, err := s.Client.Conversations(t.Context(), a.ID, "")
	if err != nil || len(all) != 61 || all[0].ID != made.ID {
		t.Errorf("Conversations without a search: %d (%v), want 61, the first made first", len(all), err)
	}

	ref := letta.Ref{AgentID: a.ID, ConversationID: made.ID}
	got, err := s.Client.Conversation(t.Context(), ref)
	if err != nil {
		t.Fatalf("Conversation: %v", err)
	}
	if diff := cmp.Diff(made, got, cmpopts.EquateApproxTime(time.Millisecond)); diff != "" {
		t.Errorf("Conversation: -made +got:\n%s", diff)
	}
	_, err = s.Client.Conversation(t.Context(), letta.Ref{AgentID: other.ID, ConversationID: made.ID})
	s.is(t, err, letta.ErrNotFound)
}

func (s *suite) memory() {
	t := s.t
	a := s.agent(t)
	before, err := s.Client.Memory(t.Context(), a.ID)
	if err != nil {
		t.Fatalf("Memory: %v", err)
	}
	b, ok := before.Block("brief")
	if !ok || b.Value != "Nothing yet." || b.Description != "what to know first" {
		t.Errorf("the first block = %+v, %v", b, ok)
	}

	put := func(b letta.Block) string {
		t.Helper()
		revision, err := s.Client.PutBlock(t.Context(), a.ID, b, "a test")
		if err != nil {
			t.Fatalf("PutBlock: %v", err)
		}
		m, err := s.Client.Memory(t.Context(), a.ID)
		if err != nil {
			t.Fatalf("Memory: %v", err)
		}
		if m.Revision != revision {
			t.Errorf("PutBlock gives revision %s, Memory %s", revision, m.Revision)
		}
		got, _ := m.Block(b.Label)
		if got.Value != b.Value {
			t.Errorf("the block holds %q, want %q", got.Value, b.Value)
		}
		if !slices.IsSortedFunc(m.Blocks, func(a, b letta.Block) int { return cmpLabels(a.Label, b.Label) }) {
			t.Errorf("the blocks are not sorted by label")
		}
		return revision
	}
	changed := put(letta.Block{Label: "brief", Value: "Use <tabs> & \"quotes\".\nÜber alles ☃.\n"})
	if changed == before.Revision {
		t.Errorf("a new value leaves the revision as it was")
	}
	if again := put(letta.Block{Label: "brief", Value: "Use <tabs> & \"quotes\".\nÜber alles ☃.\n"}); again != changed {
		t.Errorf("the same value gives another revision")
	}
	if added := put(letta.Block{Label: "a_first-one", Value: "new"}); added == changed {
		t.Errorf("a new block leaves the revision as it was")
	}
	if back := put(letta.Block{Label: "brief", Value: ""}); back == changed {
		t.Errorf("an emptied block leaves the revision as it was")
	}
	for _, label := range []string{"", "../x", "a/b", "A", "system/x.md"} {
		_, err := s.Client.PutBlock(t.Context(), a.ID, letta.Block{Label: label}, "")
		s.is(t, err, letta.ErrInvalid)
	}
}

func cmpLabels(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}
