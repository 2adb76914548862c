package session

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/undersong-dev/undersong/internal/letta"
)

func TestAFloodOfBlocksHidesNothing(t *testing.T) {
	mem := letta.Memory{Rejected: 3}
	for i := range 500 {
		mem.Blocks = append(mem.Blocks, letta.Block{Label: fmt.Sprintf("a%03d", i)})
	}
	for _, label := range []string{"brief", "conventions", "glossary", "open_items"} {
		mem.Blocks = append(mem.Blocks, letta.Block{Label: label})
	}
	shown, rejected, left := choose(mem, func(label string) bool { return label == "glossary" || label == "a499" })
	var labels []string
	for _, b := range shown {
		labels = append(labels, b.Label)
	}
	for _, want := range []string{"brief", "conventions", "glossary", "open_items", "a499", "a000"} {
		if !slices.Contains(labels, want) {
			t.Errorf("%s is left out of %v", want, labels)
		}
	}
	if len(shown) != maxBlocks || rejected != 3 || left != 504-maxBlocks || !slices.IsSorted(labels) {
		t.Errorf("%d shown, %d rejected, %d left; want %d, 3, %d, sorted", len(shown), rejected, left, maxBlocks, 504-maxBlocks)
	}
	few, _, left := choose(letta.Memory{Blocks: mem.Blocks[:2]}, func(string) bool { return false })
	if diff := cmp.Diff(mem.Blocks[:2], few); diff != "" || left != 0 {
		t.Errorf("two blocks (-want +got), %d left:\n%s", left, diff)
	}
}
