package note

import (
	"encoding/json"
	"path/filepath"

	"github.com/undersong-dev/undersong/agent/internal/durable"
)

// PolicyFile is the file of the state directory in which the daemon keeps what
// it last saw of the team's memory. It holds more than a Policy.
const PolicyFile = "memory.json"

// maxPolicy bounds the file, in bytes.
const maxPolicy = 1 << 20

// Policy is the part of the team's memory that the hook acts on.
type Policy struct {
	// Version of the file, 1.
	Version int `json:"version"`
	// Recall is false while nothing of the memory may be shown.
	Recall bool `json:"recall"`
	// MaxCharacters bounds what one prompt is given, in UTF-16 units.
	MaxCharacters int `json:"maxCharacters"`
}

// LoadPolicy reads what the daemon last saw. Where it has seen nothing, or the
// file cannot be read, it permits what waits: the daemon put it there under the
// policy it knew.
func LoadPolicy(home string) Policy {
	p := Policy{Recall: true}
	data, err := durable.ReadFile(filepath.Join(home, PolicyFile), maxPolicy)
	if err != nil {
		return p
	}
	var read Policy
	if json.Unmarshal(data, &read) != nil || read.Version != 1 {
		return p
	}
	return read
}
