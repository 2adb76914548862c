package contract

import (
	"errors"
	"fmt"
	"strings"
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
	if one.ContextWindow <= 0 {
		t.Errorf("the context window is %d, want it told: batches are cut by it", one.ContextWindow)
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

// agentUpdate: an agent that was made gets another instruction and other tags,
// and keeps everything else. A conversation reads the instruction after it was
// recompiled.
func (s *suite) agentUpdate() {
	t := s.t
	a := s.agent(t)
	if a.System != "Listen." {
		t.Errorf("a new agent's instruction is %q", a.System)
	}
	c, err := s.Client.CreateConversation(t.Context(), a.ID, letta.ConversationSpec{Summary: "session " + uuid.NewString()})
	if err != nil {
		t.Fatalf("CreateConversation: %v", err)
	}
	ref := letta.Ref{AgentID: a.ID, ConversationID: c.ID}
	s.mustSend(t, ref, input())
	before, err := s.Client.Memory(t.Context(), a.ID)
	if err != nil {
		t.Fatalf("Memory: %v", err)
	}
	tags := []string{"tag:" + uuid.NewString(), "version:2"}
	for range 2 {
		got, err := s.Client.UpdateAgent(t.Context(), a.ID, letta.AgentPatch{System: "Listen well, and keep quiet.", Tags: tags})
		if err != nil {
			t.Fatalf("UpdateAgent: %v", err)
		}
		want := a
		want.System, want.Tags = "Listen well, and keep quiet.", tags
		if want.Tools == nil {
			want.Tools = got.Tools // a creation's answer need not hold them
		}
		if diff := cmp.Diff(want, got, cmpopts.SortSlices(func(a, b string) bool { return a < b })); diff != "" {
			t.Errorf("the agent: -want +got:\n%s", diff)
		}
	}
	if found, err := s.Client.AgentsByTag(t.Context(), tags); err != nil || len(found) != 1 || found[0].ID != a.ID {
		t.Errorf("AgentsByTag with the new tags = %v, %v", found, err)
	}
	if found, err := s.Client.AgentsByTag(t.Context(), a.Tags); err != nil || len(found) != 0 {
		t.Errorf("AgentsByTag with the old tags = %v, %v", found, err)
	}
	after, err := s.Client.Memory(t.Context(), a.ID)
	if err != nil {
		t.Fatalf("Memory: %v", err)
	}
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("the memory: -before +after:\n%s", diff)
	}
	if err := s.Client.Recompile(t.Context(), ref); err != nil {
		t.Fatalf("Recompile: %v", err)
	}
	s.mustSend(t, ref, input())
	if s.Prompt != nil {
		if prompt := s.Prompt(t, ref); !strings.Contains(prompt, "keep quiet") {
			t.Errorf("the conversation's prompt is %q", prompt)
		}
	}
	_, err = s.Client.UpdateAgent(t.Context(), missingID(a.ID), letta.AgentPatch{System: "x", Tags: tags})
	s.is(t, err, letta.ErrNotFound)
}

// missingID is an id like this one that no agent has.
func missingID(id string) string {
	if missing := id[:len(id)-1] + "0"; missing != id {
		return missing
	}
	return id[:len(id)-1] + "1"
}

func (s *suite) agentRefusals() {
	t := s.t
	a := s.agent(t)
	missing := missingID(a.ID)
	_, err := s.Client.Agent(t.Context(), missing)
	s.is(t, err, letta.ErrNotFound)
	_, err = s.Client.Memory(t.Context(), missing)
	s.is(t, err, letta.ErrNotFound)
	_, err = s.Client.PutBlock(t.Context(), missing, letta.Block{Label: "brief", Value: "x"}, "test")
	s.is(t, err, letta.ErrNotFound)
	_, err = s.Client.DeleteBlock(t.Context(), missing, "brief", "test")
	s.is(t, err, letta.ErrNotFound)
	_, err = s.Client.BlockHistory(t.Context(), missing, "brief", 1)
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

func (s *suite) conversationDeleted() {
	t := s.t
	ref := s.conversation(t)
	err := s.Client.DeleteConversation(t.Context(), ref)
	if errors.Is(err, letta.ErrUnsupported) {
		if _, err := s.Client.Conversation(t.Context(), ref); err != nil {
			t.Errorf("a conversation that could not be deleted: %v", err)
		}
		return
	}
	if err != nil {
		t.Fatalf("DeleteConversation: %v", err)
	}
	_, err = s.Client.Conversation(t.Context(), ref)
	s.is(t, err, letta.ErrNotFound)
	s.is(t, s.Client.DeleteConversation(t.Context(), ref), letta.ErrNotFound)
	s.is(t, s.Client.DeleteConversation(t.Context(), letta.Ref{AgentID: "..", ConversationID: ref.ConversationID}), letta.ErrInvalid)
}
