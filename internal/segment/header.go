package segment

import (
	"fmt"
	"strings"
	"time"
)

// Format is the number of the newest format this package reads, and the one it
// writes.
const Format = 1

const (
	// MaxLines is the most lines a segment has. No redacted line is shorter
	// than 8 bytes with its LF, so CloseAt is always reached first; it bounds
	// what a reader must allocate for lines of one byte.
	MaxLines = CloseAt / 8
	// MaxWithheld is the most withheld ranges a segment names. A writer closes
	// the segment before there are more.
	MaxWithheld = 1 << 16
	// MaxFindings is the most rules that a header counts findings for.
	MaxFindings = 256
)

// MainStream is the stream of a session's main transcript. The stream of a
// subagent is AgentPrefix and the subagent's id.
const (
	MainStream  = "main"
	AgentPrefix = "agent-"
)

// NoIndex is the index of a line that cannot be parsed, and of a segment before
// which, or in which, there is no line that can.
const NoIndex = -1

// Range is a run of lines that stays on the workstation for good.
type Range struct {
	// FromIndex and ToIndex are the indexes of the first and the last parsable
	// line of the range, NoIndex when it has none.
	FromIndex int64 `json:"fromIndex"`
	ToIndex   int64 `json:"toIndex"`
	// FromOffset is the offset of the first byte, ToOffset the one after the
	// last, in the transcript file.
	FromOffset int64 `json:"fromOffset"`
	ToOffset   int64 `json:"toOffset"`
	// Reason says why, in at most 64 letters, digits, spaces, dashes and
	// underscores: it is a name of ours, never text of the transcript.
	Reason string `json:"reason"`
}

// Header describes the lines of a segment. Offsets are bytes of the transcript
// file on the workstation, indexes are positions among its parsable lines, both
// of one stream and generation.
type Header struct {
	// Format is the number of the format. Encode fills it in.
	Format int `json:"format"`
	// Session is the name of the Session, Workstation that of the Workstation.
	Session     string `json:"session"`
	Workstation string `json:"workstation"`
	// Seq numbers the segments of this writer of this session, from 1.
	Seq int64 `json:"seq"`
	// Stream is MainStream, or AgentPrefix and an id.
	Stream string `json:"stream"`
	// Generation counts how often the file was replaced by another one.
	Generation int64 `json:"generation"`
	// FirstIndex is the index of the first parsable line that this segment
	// speaks of, sent or withheld, NoIndex if there is none. LastIndex is the
	// index reached after this segment, withheld lines counted, NoIndex as long
	// as there was none.
	FirstIndex int64 `json:"firstIndex"`
	LastIndex  int64 `json:"lastIndex"`
	// Offset is where this segment begins in the file, EndOffset where the next
	// one will.
	Offset    int64 `json:"offset"`
	EndOffset int64 `json:"endOffset"`
	// PreviousChain is the head of the chain before this segment, in hex. There
	// is no member for the head after it, which is the hash of all this.
	PreviousChain string `json:"previousChain"`
	// Rules is the version of the redaction rules that the lines passed.
	Rules string `json:"rules"`
	// At is when the segment was made, by the workstation's clock.
	At time.Time `json:"at"`
	// Findings counts what the redactor replaced, by rule.
	Findings map[string]int `json:"findings,omitempty"`
	// Withheld are the ranges between Offset and EndOffset that were not sent.
	Withheld []Range `json:"withheld,omitempty"`
	// Offsets and Indexes have one entry for each line of the body: where it
	// begins in the file, and its index, NoIndex for one that cannot be parsed.
	// Offsets ascend; so do indexes other than NoIndex.
	Offsets []int64 `json:"offsets,omitempty"`
	Indexes []int64 `json:"indexes,omitempty"`
	// Import is true in a segment of older lines, which the person brought in
	// afterwards. Live segments go before it, and its share of the budget is
	// small. Omitted means false.
	Import bool `json:"import,omitempty"`
	// Archived is present only in a copy whose lines the controller's second
	// pass had to change. A workstation never writes it. It stays the last
	// member: Rewrite depends on it.
	Archived *Archived `json:"archived,omitempty"`
}

// Archived is what Rewrite adds to the header of a changed copy. The rest of
// the header, and the object's name, stay as they came, so the chain remains
// provable without the bytes that had to go.
type Archived struct {
	// Original is the sha256, in hex, of the uncompressed segment as it came:
	// PreviousChain and Original give the head that is in the object's name.
	Original string `json:"original"`
	// Digest is the sha256, in hex, of the changed lines with their LFs. Decode
	// checks it.
	Digest string `json:"digest"`
	// Lines is the number of these lines.
	Lines int64 `json:"lines"`
}

// validate says what is wrong with a header of a segment of so many lines. Its
// error names members, never their values.
func (h *Header) validate(lines int) error {
	switch {
	case h.Format != Format:
		return fmt.Errorf("format is not %d", Format)
	case !nameLike(h.Session, 63) || !nameLike(h.Workstation, 63):
		return fmt.Errorf("session or workstation is not the name of an object")
	case h.Seq < 1 || h.Generation < 0:
		return fmt.Errorf("seq or generation is out of range")
	case h.Stream != MainStream && !agentStream(h.Stream):
		return fmt.Errorf("stream is unknown")
	case h.FirstIndex < NoIndex || h.LastIndex < NoIndex:
		return fmt.Errorf("firstIndex or lastIndex is out of range")
	case h.Offset < 0 || h.EndOffset < h.Offset:
		return fmt.Errorf("offset or endOffset is out of range")
	case !nameLike(h.Rules, 32):
		return fmt.Errorf("rules is not a version")
	}
	if _, err := ParseSum(h.PreviousChain); err != nil {
		return fmt.Errorf("previousChain: %w", err)
	}
	if err := h.validateLines(lines); err != nil {
		return err
	}
	return h.validateReport(lines)
}

// validateLines is the part of validate about the lines of the body.
func (h *Header) validateLines(lines int) error {
	if lines > MaxLines || len(h.Offsets) != lines || len(h.Indexes) != lines {
		return fmt.Errorf("offsets or indexes do not match %d lines", lines)
	}
	lastIndex := int64(NoIndex)
	for i, offset := range h.Offsets {
		if offset < h.Offset || offset >= h.EndOffset || (i > 0 && offset <= h.Offsets[i-1]) {
			return fmt.Errorf("offsets do not ascend between offset and endOffset")
		}
		index := h.Indexes[i]
		if index == NoIndex {
			continue
		}
		if index <= lastIndex {
			return fmt.Errorf("indexes do not ascend")
		}
		lastIndex = index
	}
	return nil
}

// validateReport is the part of validate about what is not in the body.
func (h *Header) validateReport(lines int) error {
	if len(h.Withheld) > MaxWithheld {
		return fmt.Errorf("more than %d withheld ranges", MaxWithheld)
	}
	for _, r := range h.Withheld {
		if r.FromIndex < NoIndex || r.ToIndex < NoIndex || r.FromOffset < 0 || r.ToOffset < r.FromOffset || !reasonLike(r.Reason) {
			return fmt.Errorf("a withheld range is out of range")
		}
	}
	if len(h.Findings) > MaxFindings {
		return fmt.Errorf("findings of more than %d rules", MaxFindings)
	}
	for rule, n := range h.Findings {
		if !nameLike(rule, 64) || n < 0 {
			return fmt.Errorf("a finding is out of range")
		}
	}
	if a := h.Archived; a != nil {
		_, err := ParseSum(a.Original)
		if _, derr := ParseSum(a.Digest); err != nil || derr != nil || a.Lines != int64(lines) {
			return fmt.Errorf("archived does not match the lines")
		}
	}
	return nil
}

// nameLike accepts what stands for itself in a key and in JSON: letters,
// digits, dot, dash and underscore, the first a letter or digit, no two dots in
// a row.
func nameLike(s string, most int) bool {
	if s == "" || len(s) > most || !alphanumeric(s[0]) || strings.Contains(s, "..") {
		return false
	}
	for i := range len(s) {
		if c := s[i]; !alphanumeric(c) && c != '.' && c != '-' && c != '_' {
			return false
		}
	}
	return true
}

// agentStream accepts AgentPrefix with an id that is fit for a file name.
func agentStream(s string) bool {
	id, ok := strings.CutPrefix(s, AgentPrefix)
	return ok && nameLike(id, 128)
}

func reasonLike(s string) bool {
	if s == "" || len(s) > 64 {
		return false
	}
	for i := range len(s) {
		if c := s[i]; !alphanumeric(c) && c != ' ' && c != '-' && c != '_' {
			return false
		}
	}
	return true
}

func alphanumeric(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}
