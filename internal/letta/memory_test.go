package letta_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/undersong-dev/undersong/internal/letta"
)

func TestRevision(t *testing.T) {
	base := []letta.Block{{Label: "a", Value: "1"}, {Label: "b", Value: "2"}}
	cases := map[string]struct {
		reason string
		blocks []letta.Block
		same   bool
	}{
		"Order":       {"the order in which a server lists blocks means nothing", []letta.Block{base[1], base[0]}, true},
		"Description": {"descriptions are ours, not the agent's", []letta.Block{{Label: "a", Value: "1", Description: "x"}, base[1]}, true},
		"Value":       {"a changed value is a new revision", []letta.Block{{Label: "a", Value: "3"}, base[1]}, false},
		"Moved":       {"text moved over the border of label and value is another memory", []letta.Block{{Label: "a1", Value: ""}, base[1]}, false},
		"Missing":     {"a deleted block is a new revision", base[:1], false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := letta.Revision(tc.blocks) == letta.Revision(base); got != tc.same {
				t.Errorf("%s: same = %v, want %v", tc.reason, got, tc.same)
			}
		})
	}
	const golden = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	if diff := cmp.Diff(golden, letta.Revision(nil)); diff != "" {
		t.Errorf("the revision of no memory is the digest of nothing: -want +got:\n%s", diff)
	}
}

func TestValidLabel(t *testing.T) {
	cases := map[string]bool{
		"conventions": true, "open_items": true, "a": true, "0-x": true,
		"": false, "_x": false, "A": false, "a/b": false, "..": false, "a b": false, "a\n": false,
		"x123456789x123456789x123456789x123456789x123456789x123456789xyz":  true,
		"x123456789x123456789x123456789x123456789x123456789x123456789xyzt": false,
	}
	for label, want := range cases {
		if got := letta.ValidLabel(label); got != want {
			t.Errorf("ValidLabel(%q) = %v, want %v", label, got, want)
		}
	}
}

func TestTurnText(t *testing.T) {
	turn := letta.Turn{Reply: []letta.Message{{ID: "1", Text: "a"}, {ID: "2"}, {ID: "3", Text: "b"}}}
	if diff := cmp.Diff("a\n\nb", turn.Text()); diff != "" {
		t.Errorf("Text: -want +got:\n%s", diff)
	}
	if diff := cmp.Diff("3", turn.LastMessageID()); diff != "" {
		t.Errorf("LastMessageID: -want +got:\n%s", diff)
	}
	if got := (letta.Turn{}).LastMessageID(); got != "" {
		t.Errorf("LastMessageID without a reply = %q", got)
	}
}
