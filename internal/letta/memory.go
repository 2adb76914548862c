package letta

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"regexp"
	"slices"
	"strings"
	"time"
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
	// Rejected counts what the agent keeps besides, under names that are no
	// labels, or in texts too large to be read. The agent reads it all the
	// same. The names stay here: an agent can be talked into any.
	Rejected int
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

// MaxHistory bounds a block's history: each entry is a call of its own.
const MaxHistory = 50

// BlockRevision is a block as one change left it.
type BlockRevision struct {
	// Revision of the memory with that change.
	Revision string
	// At is when it was made; zero if not told.
	At time.Time
	// Reason is what its writer gave, in one line, cut to MaxReason. An agent
	// writes it as it likes: hostile, as a value is.
	Reason string
	// Block as it was; its Value is empty if Deleted.
	Block Block
	// Deleted: the change took the block away.
	Deleted bool
}

// MaxReason bounds the reason of a change, in bytes.
const MaxReason = 200

// Reason makes a reason one line of at most MaxReason bytes, fallback if
// nothing is left.
func Reason(reason, fallback string) string {
	line := strings.Join(strings.Fields(strings.ToValidUTF8(reason, "")), " ")
	if line == "" {
		line = fallback
	}
	if len(line) > MaxReason {
		line = strings.ToValidUTF8(line[:MaxReason], "")
	}
	return line
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
