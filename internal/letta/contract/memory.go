package contract

import (
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/undersong-dev/undersong/internal/letta"
)

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

func (s *suite) memoryDelete() {
	t := s.t
	a := s.agent(t)
	put, err := s.Client.PutBlock(t.Context(), a.ID, letta.Block{Label: "gone", Value: secretText, Description: "x"}, "test")
	if err != nil {
		t.Fatalf("PutBlock: %v", err)
	}
	deleted, err := s.Client.DeleteBlock(t.Context(), a.ID, "gone", "test")
	if err != nil {
		t.Fatalf("DeleteBlock: %v", err)
	}
	m, err := s.Client.Memory(t.Context(), a.ID)
	if err != nil {
		t.Fatalf("Memory: %v", err)
	}
	if _, ok := m.Block("gone"); ok || m.Revision != deleted || deleted == put {
		t.Errorf("the block is there: %v; revisions %s (put), %s (deleted), %s (read)", ok, put, deleted, m.Revision)
	}
	if _, ok := m.Block("brief"); !ok {
		t.Errorf("another block went with it")
	}
	again, err := s.Client.DeleteBlock(t.Context(), a.ID, "gone", "test")
	if err != nil || again != deleted {
		t.Errorf("DeleteBlock of what is not there = %s, %v, want %s", again, err, deleted)
	}
	_, err = s.Client.DeleteBlock(t.Context(), a.ID, "../brief", "test")
	s.is(t, err, letta.ErrInvalid)
	// A label that is free again can be used again.
	if _, err := s.Client.PutBlock(t.Context(), a.ID, letta.Block{Label: "gone", Value: "back"}, "test"); err != nil {
		t.Errorf("PutBlock of a deleted label: %v", err)
	}
}

func (s *suite) memoryHistory() {
	t := s.t
	caps, err := s.Client.Capabilities(t.Context())
	if err != nil {
		t.Fatalf("Capabilities: %v", err)
	}
	a := s.agent(t)
	var want []letta.BlockRevision // oldest first
	put := func(value, description, reason string) {
		t.Helper()
		revision, err := s.Client.PutBlock(t.Context(), a.ID, letta.Block{Label: "rules", Value: value, Description: description}, reason)
		if err != nil {
			t.Fatalf("PutBlock: %v", err)
		}
		want = append(want, letta.BlockRevision{
			Revision: revision, Reason: strings.ReplaceAll(reason, "|", "/"),
			Block: letta.Block{Label: "rules", Value: value, Description: description},
		})
	}
	put("one\n", "what to obey", "first")
	put("two <b>&\n", "what to obey", "a bar | in a reason")
	put("---\nthree\n---\n", "what else: to obey", "third")
	if _, err := s.Client.PutBlock(t.Context(), a.ID, letta.Block{Label: "other", Value: "x"}, "not in it"); err != nil {
		t.Fatalf("PutBlock: %v", err)
	}
	revision, err := s.Client.DeleteBlock(t.Context(), a.ID, "rules", "")
	if err != nil {
		t.Fatalf("DeleteBlock: %v", err)
	}
	want = append(want, letta.BlockRevision{Revision: revision, Block: letta.Block{Label: "rules"}, Deleted: true})
	slices.Reverse(want)

	_, err = s.Client.BlockHistory(t.Context(), a.ID, "../rules", 1)
	s.is(t, err, letta.ErrInvalid)
	_, err = s.Client.BlockHistory(t.Context(), a.ID, "rules", 0)
	s.is(t, err, letta.ErrInvalid)
	none, err := s.Client.BlockHistory(t.Context(), a.ID, "never", 10)
	if err != nil || len(none) != 0 {
		t.Errorf("the history of nothing = %v, %v", none, err)
	}
	all, err := s.Client.BlockHistory(t.Context(), a.ID, "rules", 10)
	if err != nil {
		t.Fatalf("BlockHistory: %v", err)
	}
	if !caps.BlockHistory {
		if all != nil {
			t.Errorf("a server without history tells %v", all)
		}
		return
	}
	for i := range all {
		if all[i].At.IsZero() {
			t.Errorf("revision %d has no time", i)
		}
		all[i].At = time.Time{}
		if all[i].Deleted {
			all[i].Reason = "" // the server's own
		}
	}
	if diff := cmp.Diff(want, all); diff != "" {
		t.Errorf("the history, newest first: -want +got:\n%s", diff)
	}
	two, err := s.Client.BlockHistory(t.Context(), a.ID, "rules", 2)
	if err != nil || len(two) != 2 || two[0].Revision != want[0].Revision {
		t.Errorf("the last two = %v, %v", two, err)
	}
}

// memoryReachesTurns: after Recompile a conversation that runs sees what the
// memory holds, and nothing of what it held.
func (s *suite) memoryReachesTurns() {
	t := s.t
	need(t, "tell what the model was told", s.Prompt != nil)
	ref := s.conversation(t)
	s.mustSend(t, ref, input())
	if p := s.Prompt(t, ref); !strings.Contains(p, "Nothing yet.") {
		t.Fatalf("the first turn does not know the memory: %q", p)
	}
	const first, second = "wombats count in dozens", "wombats count in scores"
	steps := []struct {
		reason    string
		change    func() error
		want, not string
	}{
		{"a block that is new", func() error {
			_, err := s.Client.PutBlock(t.Context(), ref.AgentID, letta.Block{Label: "rules", Value: first}, "")
			return err
		}, first, second},
		{"a block that is another", func() error {
			_, err := s.Client.PutBlock(t.Context(), ref.AgentID, letta.Block{Label: "rules", Value: second}, "")
			return err
		}, second, first},
		{"a block that is gone", func() error {
			_, err := s.Client.DeleteBlock(t.Context(), ref.AgentID, "rules", "")
			return err
		}, "Nothing yet.", "wombats"},
	}
	for _, step := range steps {
		if err := step.change(); err != nil {
			t.Fatalf("%s: %v", step.reason, err)
		}
		if err := s.Client.Recompile(t.Context(), ref); err != nil {
			t.Fatalf("Recompile: %v", err)
		}
		in := input()
		s.mustSend(t, ref, in)
		p := s.Prompt(t, ref)
		if !strings.Contains(p, step.want) || strings.Contains(p, step.not) {
			t.Errorf("%s: the model is told %q, want %q in it and not %q", step.reason, p, step.want, step.not)
		}
		s.delivered(t, ref, in.ClientID, letta.DeliveryReplied)
	}
	err := s.Client.Recompile(t.Context(), letta.Ref{AgentID: ref.AgentID, ConversationID: "conv-00000000-0000-4000-8000-000000000000"})
	s.is(t, err, letta.ErrNotFound)
	err = s.Client.Recompile(t.Context(), letta.Ref{AgentID: ref.AgentID, ConversationID: "../x"})
	s.is(t, err, letta.ErrInvalid)
}
