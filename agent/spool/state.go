package spool

import (
	"maps"
	"slices"
	"time"

	"github.com/undersong-dev/undersong/agent/read"
	"github.com/undersong-dev/undersong/api/v1alpha1"
)

// stateVersion is the version of state.json.
const stateVersion = 1

// MaxSegments is the most segments of one session that may wait for
// verification. Beyond it reading stops; the transcript keeps the rest. It is
// the bound of Writer.slots.
const MaxSegments = 64

// SlotState says how far the upload of a segment is.
type SlotState string

const (
	// SlotNone: no slot is chosen.
	SlotNone SlotState = "none"
	// SlotTaken: a slot is chosen; the object may or may not be there.
	SlotTaken SlotState = "taken"
	// SlotUploaded: the object is in the slot.
	SlotUploaded SlotState = "uploaded"
	// SlotGone: the segment's file is lost; the segment cannot be uploaded.
	SlotGone SlotState = "gone"
)

// Segment is one segment that is not verified.
type Segment struct {
	Seq       int64     `json:"seq"`
	Stream    string    `json:"stream"`
	Lines     int64     `json:"lines"`
	Bytes     int64     `json:"bytes"`            // uncompressed
	Digest    string    `json:"digest,omitempty"` // sha256 of the uncompressed bytes, in hex
	Chain     string    `json:"chain"`
	CreatedAt time.Time `json:"createdAt"`
	Slot      int64     `json:"slot,omitempty"`
	SlotState SlotState `json:"slotState"`

	// ResentAt is when the cluster last asked for the segment again; nil when
	// it never did, or no longer does.
	ResentAt *time.Time `json:"resentAt,omitempty"`

	// Import says that it holds lines of before init. Others go before it.
	Import bool `json:"import,omitempty"`
}

// Import is how far the lines of before init of one stream were brought in.
type Import struct {
	Cursor read.Cursor `json:"cursor"`

	// Left says of which import it was given up: the time at which that was
	// agreed to. The file was gone, or another one. Zero: of none.
	Left time.Time `json:"left,omitzero"`
}

// Reached says whether nothing is left to be brought in up to a byte, for an
// import of that time.
func (i Import) Reached(until int64, at time.Time) bool {
	return i.Cursor.Offset >= until || i.Abandoned(at)
}

// Abandoned says whether an import of that time was given up.
func (i Import) Abandoned(at time.Time) bool { return !i.Left.IsZero() && i.Left.Equal(at) }

// Mark is a position in the chain of segments: totals up to it and the head.
type Mark struct {
	Segments int64  `json:"segments"`
	Lines    int64  `json:"lines"`
	Bytes    int64  `json:"bytes"`
	Chain    string `json:"chain"`
}

// State is what state.json holds of one session.
type State struct {
	Version   int    `json:"version"`
	SessionID string `json:"sessionID"`
	Name      string `json:"name"` // of the Session

	// UID of the Session once it was seen. Expired is set when its time was
	// over, until this workstation has an entry in the next of its name.
	// Withdrawn is set when a person deleted it: it is never made again.
	UID       string `json:"uid,omitempty"`
	Expired   bool   `json:"expired,omitempty"`
	Withdrawn bool   `json:"withdrawn,omitempty"`

	// Active is when the cluster last got anything new of the session, as the
	// Session last said.
	Active time.Time `json:"active,omitzero"`

	// Project of the first captured record; nil before it.
	Project    *read.Project `json:"project,omitempty"`
	ForkedFrom string        `json:"forkedFrom,omitempty"`
	Branch     string        `json:"branch,omitempty"`  // redacted
	Noticed    bool          `json:"noticed,omitempty"` // the person was told

	// Ending is set by the note of the session's end, until the file was read
	// to its end once more; then Ended is set, until the session is resumed.
	Ending bool `json:"ending,omitempty"`
	Ended  bool `json:"ended,omitempty"`

	// Transcript, Cwd, ProjectDir and LettaHome are those of the newest note; AgentFiles
	// are subagent files that notes named, stream to path.
	Transcript string            `json:"transcript"`
	Cwd        string            `json:"cwd,omitempty"`
	ProjectDir string            `json:"projectDir,omitempty"`
	LettaHome  string            `json:"lettaHome,omitempty"`
	AgentFiles map[string]string `json:"agentFiles,omitempty"`
	FirstNote  time.Time         `json:"firstNote"`

	// Folders are those that notes named, as they were when the newest of
	// them came: what is asked of one that is gone.
	Folders map[string]Folder `json:"folders,omitempty"`

	// Noted is when the newest note of the session itself, not of a subagent, was
	// written. OptOut is the time that goes on in which the folder that such a note
	// names wishes not to be heard; nil while it does not.
	Noted  time.Time `json:"noted,omitzero"`
	OptOut *OptOut   `json:"optOut,omitempty"`

	// ForkedAt is when a note told that the session begins as a copy.
	ForkedAt time.Time `json:"forkedAt,omitzero"`

	// Entrypoint is that of the newest note with one. Nested is set, and stays
	// set, once a note said that another session started this one.
	Entrypoint string `json:"entrypoint,omitempty"`
	Nested     bool   `json:"nested,omitempty"`

	// Cursors by stream. Head is the newest segment made, Verified the newest
	// that the archive has; Segments are those between.
	Cursors  map[string]read.Cursor `json:"cursors,omitempty"`
	Head     Mark                   `json:"head"`
	Verified Mark                   `json:"verified"`
	Segments []Segment              `json:"segments,omitempty"`

	// Earlier are the places at which this workstation's chain begins, where an
	// earlier registration of it has sent what is before.
	Earlier []Place `json:"earlier,omitempty"`

	// Imports are, by stream, the lines of before init that the person brought
	// in. They have cursors of their own: what is said now does not wait for them.
	Imports map[string]Import `json:"imports,omitempty"`

	// Processed is how far the memory is with the session.
	Processed Processed `json:"processed,omitzero"`

	// WroteIndex is the index that was written into the state file last; nil
	// before the first.
	WroteIndex *int64 `json:"wroteIndex,omitempty"`

	// WritingIndex is an index that may be in the state file already, while it is
	// written; nil when it is not. Else one of ours could be taken for the plugin's.
	WritingIndex *int64 `json:"writingIndex,omitempty"`

	// PluginIndex is the index that the state file had before that: the
	// plugin's. Nil: it had none.
	PluginIndex *int64 `json:"pluginIndex,omitempty"`

	// Erasing are lines, by segment and place in it, that a person wants to be
	// forgotten, while they are taken out of the files.
	Erasing map[int64][]int `json:"erasing,omitempty"`

	// Gone are segments that the cluster asks for and the spool has no more.
	Gone []int64 `json:"gone,omitempty"`

	// Sent is set before the first segment goes to the store, whatever became of it.
	Sent bool `json:"sent,omitempty"`

	// Told is the newest segment that the cluster may have been told of: it is set
	// before it is told, and an answer can be lost.
	Told int64 `json:"told,omitempty"`

	// Applied is this workstation's entry as the cluster was last seen to have
	// it; nil before the first.
	Applied *v1alpha1.Writer `json:"applied,omitempty"`
}

// Folder is what a folder said of itself: its project, whether it wanted to be
// heard ("" if it did), and the expressions that it wanted redacted.
type Folder struct {
	Name    string    `json:"name"`
	Remote  string    `json:"remote"`
	Root    string    `json:"root,omitempty"` // the working tree
	Outside bool      `json:"outside,omitempty"`
	Wish    string    `json:"wish,omitempty"`
	Redact  []string  `json:"redact,omitempty"`
	At      time.Time `json:"at"` // when it became so
}

// OptOut is a time in which the folder that a person works in wishes not to be
// heard, as notes found it. It is never changed in place.
type OptOut struct {
	Reason string `json:"reason"`

	// Root is the working tree that wishes it.
	Root string `json:"root,omitempty"`

	// Since is when the last note found no wish, Seen when the newest found one.
	Since time.Time `json:"since"`
	Seen  time.Time `json:"seen"`
}

// Processed says how many lines of a session, of all workstations, the cluster
// has processed, how many it has and did not yet, and when the first number
// last grew, or the second was 0, as far as this workstation knows.
type Processed struct {
	Lines int64     `json:"lines"`
	Lag   int64     `json:"lag,omitempty"`
	At    time.Time `json:"at"`
}

// Wrote says whether an index that the state file has is ours.
func (s *State) Wrote(index int64) bool {
	return s.WroteIndex != nil && *s.WroteIndex == index || s.WritingIndex != nil && *s.WritingIndex == index
}

// clone returns a copy that shares nothing that is changed in place.
func (s State) clone() State {
	s.AgentFiles = maps.Clone(s.AgentFiles)
	s.Folders = maps.Clone(s.Folders)
	s.Cursors = maps.Clone(s.Cursors)
	for stream, cursor := range s.Cursors {
		s.Cursors[stream] = cursor.Clone()
	}
	s.Imports = maps.Clone(s.Imports)
	for stream, one := range s.Imports {
		one.Cursor = one.Cursor.Clone()
		s.Imports[stream] = one
	}
	s.Segments = slices.Clone(s.Segments)
	s.Gone = slices.Clone(s.Gone)
	s.Erasing = maps.Clone(s.Erasing)
	s.Applied = s.Applied.DeepCopy()
	return s
}

// Segment returns the segment with that number, or nil if it is verified or
// was never made.
func (s *State) Segment(seq int64) *Segment {
	i := slices.IndexFunc(s.Segments, func(g Segment) bool { return g.Seq == seq })
	if i < 0 {
		return nil
	}
	return &s.Segments[i]
}

// At returns the mark after the segment with that number. It is known from the
// verified one to the head.
func (s *State) At(seq int64) (Mark, bool) {
	mark := s.Verified
	if seq == mark.Segments {
		return mark, true
	}
	for _, g := range s.Segments {
		mark = Mark{Segments: g.Seq, Lines: mark.Lines + g.Lines, Bytes: mark.Bytes + g.Bytes, Chain: g.Chain}
		if g.Seq == seq {
			return mark, true
		}
	}
	return Mark{}, false
}

// Ready returns the mark up to which every segment is in the store, or lost
// for good.
func (s *State) Ready() Mark {
	mark := s.Verified
	for _, g := range s.Segments {
		if g.SlotState != SlotUploaded && g.SlotState != SlotGone {
			break
		}
		mark, _ = s.At(g.Seq)
	}
	return mark
}

// LastActive returns when anything new of the session last reached the cluster,
// as far as this workstation knows; the zero time when it knows nothing.
func (s *State) LastActive() time.Time {
	last := s.Active
	if last.IsZero() {
		last = s.Processed.At // of a version that did not note it
	}
	for _, g := range s.Segments {
		if s.Applied != nil && g.Seq <= s.Applied.Segments && g.CreatedAt.After(last) {
			last = g.CreatedAt
		}
	}
	return last
}

// Oldest returns when the oldest segment that is not verified was made; the
// zero time when all are.
func (s *State) Oldest() time.Time {
	if len(s.Segments) == 0 {
		return time.Time{}
	}
	return s.Segments[0].CreatedAt
}
