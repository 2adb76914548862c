package letta

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"regexp"
	"slices"
	"strings"
)

// Block is one labelled text of an agent's memory. The agent reads all of its
// blocks in every turn. Values are written by a model that reads transcripts:
// treat label, description and value as hostile.
type Block struct {
	Label, Description, Value string
	// ReadOnly: the agent cannot change it.
	ReadOnly bool
}

// Memory is all blocks of an agent.
type Memory struct {
	// Revision changes when a label or a value does. It is opaque.
	Revision string
	// Blocks sorted by label.
	Blocks []Block
}

// Block returns the block of that label.
func (m Memory) Block(label string) (Block, bool) {
	for _, b := range m.Blocks {
		if b.Label == label {
			return b, true
		}
	}
	return Block{}, false
}

// Revision is the revision of a memory whose server keeps none: "sha256:" and
// the digest over labels and values in the order of labels, each with its
// length before it so that no text can be moved over a border unnoticed.
// Descriptions are left out; the agent does not change them.
func Revision(blocks []Block) string {
	sorted := slices.Clone(blocks)
	slices.SortStableFunc(sorted, func(a, b Block) int { return strings.Compare(a.Label, b.Label) })
	h := sha256.New()
	part := func(s string) {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(s)))
		h.Write(n[:])
		h.Write([]byte(s))
	}
	for _, b := range sorted {
		part(b.Label)
		part(b.Value)
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil))
}

var label = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)

// ValidLabel reports whether s may be the label of a block that we write.
func ValidLabel(s string) bool { return label.MatchString(s) }

func joinText(messages []Message) string {
	texts := make([]string, 0, len(messages))
	for _, m := range messages {
		if m.Text != "" {
			texts = append(texts, m.Text)
		}
	}
	return strings.Join(texts, "\n\n")
}
