package read

import (
	"regexp"
	"slices"
	"time"

	"github.com/undersong-dev/undersong/internal/segment"
	"github.com/undersong-dev/undersong/internal/transcript"
)

// Main is the name of the stream of a session's own transcript. Streams of
// subagents are named like their files, agent-<id>.
const Main = segment.MainStream

var agentStream = regexp.MustCompile(`^` + segment.AgentPrefix + `[A-Za-z0-9][A-Za-z0-9_-]{0,63}$`)

// Cursor says how far one stream was read. It is kept in the spool and only
// ever replaced by the Cursor of a Batch.
type Cursor struct {
	// Path is where the file was last found, Dev and Inode what it was there;
	// both are zero where the system does not say.
	Path  string `json:"path"`
	Dev   uint64 `json:"dev,omitempty"`
	Inode uint64 `json:"inode,omitempty"`

	// Offset is the byte after the last line read, Signature that of the bytes
	// before it. Generation counts the files that took this one's place.
	Offset     int64                `json:"offset"`
	Signature  transcript.Signature `json:"signature,omitzero"`
	Generation int64                `json:"generation,omitempty"`

	// GenerationAt is when this generation was first seen; zero for the first.
	GenerationAt time.Time `json:"generationAt,omitzero"`

	// NextIndex is the number of parsable lines before Offset.
	NextIndex int64 `json:"nextIndex"`

	// LastCwd is the working directory of the newest record that had one,
	// LastEntrypoint its entry point.
	LastCwd        string `json:"lastCwd,omitempty"`
	LastEntrypoint string `json:"lastEntrypoint,omitempty"`

	// LastTime is the time of the newest record that gave one.
	LastTime time.Time `json:"lastTime,omitzero"`

	// Calls are the newest calls of local tools that have no result yet, by id.
	Calls []string `json:"calls,omitempty"`

	// ForkedFrom is the session of which the newest record that says so is a copy.
	ForkedFrom string `json:"forkedFrom,omitempty"`

	// Baseline is the size the file had at init. Lines that begin before it
	// are withheld.
	Baseline int64 `json:"baseline,omitempty"`

	// Pending are ranges withheld since the last body line. They leave with the
	// next one, so that a session in which nothing may be heard says nothing.
	Pending []Withheld `json:"pending,omitempty"`

	// Kept is what was withheld when the stream was read before, as another file
	// or before it was started over. It is never changed in place.
	Kept []Kept `json:"kept,omitempty"`

	// Hushed is the reason of the newest withheld record while no prompt was
	// captured since: records without a working directory that retell prompts
	// are withheld for the same reason.
	Hushed string `json:"hushed,omitempty"`

	// NoSummaries is set once anything was withheld for a person's sake: a
	// later compact summary may retell it and is withheld.
	NoSummaries bool `json:"noSummaries,omitempty"`
}

// Clone returns a copy that shares nothing with c.
func (c Cursor) Clone() Cursor {
	c.Pending = slices.Clone(c.Pending)
	c.Calls = slices.Clone(c.Calls)
	return c
}

// fresh says that nothing was ever read with this cursor.
func (c Cursor) fresh() bool { return c.Offset == 0 && c.Generation == 0 }
