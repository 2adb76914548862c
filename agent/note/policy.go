package note

import (
	"path/filepath"
	"strings"

	"github.com/undersong-dev/undersong/agent/internal/durable"
	"github.com/undersong-dev/undersong/agent/internal/object"
)

// PolicyFile is the file of the state directory in which the daemon keeps what
// it last saw of the team's memory. It holds more than a Policy.
const PolicyFile = "memory.json"

// maxPolicy bounds the file, in bytes.
const maxPolicy = 1 << 20

// Recall says what of the team's memory is shown. Empty, and what is no value
// of it, restricts nothing.
type Recall string

// Values of Recall, from the narrowest to the widest.
const (
	RecallOff     Recall = "off"
	RecallWhisper Recall = "whisper"
	RecallBrief   Recall = "brief"
	RecallFull    Recall = "full"
)

// BriefLabel is the block that RecallBrief shows.
const BriefLabel = "brief"

func (r Recall) rank() int {
	switch r {
	case RecallOff:
		return 0
	case RecallWhisper:
		return 1
	case RecallBrief:
		return 2
	case RecallFull:
	}
	return 3 // what is no value of ours narrows nothing
}

// Narrow returns the narrowest of several. LETTA_MODE can be one of them: its
// values off, whisper and full are ours.
func Narrow(values ...Recall) Recall {
	narrowest := RecallFull
	for _, value := range values {
		if value = Recall(strings.ToLower(strings.TrimSpace(string(value)))); value.rank() < narrowest.rank() {
			narrowest = value
		}
	}
	return narrowest
}

// Shows says whether a block of this label may be shown.
func (r Recall) Shows(label string) bool {
	return r.rank() >= RecallFull.rank() || r.rank() == RecallBrief.rank() && label == BriefLabel
}

// Policy is the part of the team's memory that the hook acts on.
type Policy struct {
	// Version of the file, 1.
	Version int `json:"version"`
	// Recall is false while nothing of the memory may be shown.
	Recall bool `json:"recall"`
	// Mode says what may be shown while Recall is true. Empty means brief.
	Mode Recall `json:"mode"`
	// MaxCharacters bounds what one prompt is given, in UTF-16 units.
	MaxCharacters int `json:"maxCharacters"`
}

// LoadPolicy reads what the daemon last saw. Where it has seen nothing, or the
// file cannot be read, it permits what waits: the daemon put it there under the
// policy it knew.
func LoadPolicy(home string) Policy {
	p := Policy{Recall: true, Mode: RecallBrief}
	data, err := durable.ReadFile(filepath.Join(home, PolicyFile), maxPolicy)
	if err != nil {
		return p
	}
	o, err := object.Parse(data)
	if err != nil {
		return p
	}
	read := Policy{
		Version: int(o.Int("version")), Recall: o.Bool("recall"), Mode: Recall(o.String("mode")), MaxCharacters: int(o.Int("maxCharacters")),
	}
	if o.Err() != nil || read.Version != 1 {
		return p
	}
	if read.Mode == "" {
		read.Mode = RecallBrief
	}
	if !read.Recall {
		read.Mode = RecallOff
	}
	return read
}
