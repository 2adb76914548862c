package transcript

import (
	"errors"
	"strconv"
	"time"

	"github.com/undersong-dev/undersong/internal/redact/jsonline"
)

var (
	// ErrBlank says that a line holds nothing: it is no record and no fault.
	ErrBlank = errors.New("blank line")
	// ErrNotObject says that a line is no JSON object. It counts as a line, and
	// has no index.
	ErrNotObject = errors.New("line is no JSON object")
)

// Record is one line that is a JSON object. Fields that the line does not have,
// or has in another shape, are zero: no field is ever a reason to drop a record.
type Record struct {
	// Type is the type of the record, such as "user"; "" if it is no string.
	Type string
	// Subtype is that of a system record or of what an attachment record holds.
	Subtype string
	// UUID names the record; state records have none.
	UUID, ParentUUID string
	// SessionID is the session that the record says it belongs to, in the file
	// of an agent that of its parent.
	SessionID string
	// AgentID is set in records of agents.
	AgentID string
	// Cwd and Branch are the working directory and the git branch at the time.
	Cwd, Branch string
	// Entrypoint says how Claude Code was started: "cli", "sdk-cli" and others.
	Entrypoint string
	// Version is that of the program that wrote the record.
	Version string
	// ForkedFrom is the session from which the record was copied, as far as the
	// record says so. Of a fork's copies, some do.
	ForkedFrom string
	// Origin is the kind of whoever caused a user record; "" if it is not said.
	Origin string
	// Timestamp is the time the record gives; zero if it gives none that can be
	// read. It never decides about order.
	Timestamp time.Time
	// Sidechain marks an agent's record. In a main file it is not the session's.
	Sidechain bool
	// Meta, CompactSummary and TranscriptOnly mark user records that nobody
	// typed. APIError marks an assistant record that the program wrote itself.
	Meta, CompactSummary, TranscriptOnly, APIError bool

	promptSource, rowSource string
	rooted                  bool // the record says that it has no parent

	raw                 []byte         // the line, trimmed
	message, attachment jsonline.Value // in raw
}

// field is an envelope member whose text Parse keeps.
type field struct {
	to    *string
	value jsonline.Value
}

// Parse reads one line. It fails with ErrBlank or ErrNotObject. The Record
// keeps raw: a Record of a Line is valid until the next call of Next, its
// exported fields for ever. Where a member is repeated the last one counts.
func Parse(raw []byte) (Record, error) {
	b := jsonline.Trim(raw)
	if len(b) == 0 {
		return Record{}, ErrBlank
	}
	r := Record{raw: b}
	var (
		fields    [16]field
		n         int
		stamp     string
		requester string
		origin    jsonline.Value
		forked    jsonline.Value
		subtype   jsonline.Value
		hasOrigin bool
	)
	keep := func(to *string, v jsonline.Value) {
		for i := range fields[:n] {
			if fields[i].to == to {
				fields[i].value = v
				return
			}
		}
		if v.Kind != jsonline.String {
			return
		}
		fields[n] = field{to, v}
		n++
	}
	valid := jsonline.Members(b, func(key, v jsonline.Value) {
		name := b[key.Start+1 : key.End-1]
		if !key.Plain {
			name = jsonline.AppendText(nil, b, key)
		}
		switch string(name) {
		case "type":
			keep(&r.Type, v)
		case "subtype":
			subtype = v
		case "uuid":
			keep(&r.UUID, v)
		case "parentUuid":
			keep(&r.ParentUUID, v)
			r.rooted = v.Kind == jsonline.Null
		case "sessionId":
			keep(&r.SessionID, v)
		case "agentId":
			keep(&r.AgentID, v)
		case "cwd":
			keep(&r.Cwd, v)
		case "gitBranch":
			keep(&r.Branch, v)
		case "entrypoint":
			keep(&r.Entrypoint, v)
		case "version":
			keep(&r.Version, v)
		case "promptSource":
			keep(&r.promptSource, v)
		case "rowSource":
			keep(&r.rowSource, v)
		case "timestamp":
			keep(&stamp, v)
		case "isSidechain":
			r.Sidechain = v.Kind == jsonline.True
		case "isMeta":
			r.Meta = v.Kind == jsonline.True
		case "isCompactSummary":
			r.CompactSummary = v.Kind == jsonline.True
		case "isVisibleInTranscriptOnly":
			r.TranscriptOnly = v.Kind == jsonline.True
		case "isApiErrorMessage":
			r.APIError = v.Kind == jsonline.True
		case "origin":
			origin, hasOrigin = v, v.Kind != jsonline.Null
		case "forkedFrom":
			forked = v
		case "requestSessionId":
			keep(&requester, v)
		case "message":
			r.message = v
		case "attachment":
			r.attachment = v
		}
	})
	if !valid {
		return Record{}, ErrNotObject
	}
	if forked.Kind == jsonline.Object {
		keep(&r.ForkedFrom, member(b, forked, "sessionId"))
	}
	if hasOrigin {
		keep(&r.Origin, member(b, origin, "kind"))
	}
	if r.attachment.Kind == jsonline.Object {
		subtype = member(b, r.attachment, "type")
	}
	keep(&r.Subtype, subtype)
	texts(b, fields[:n])
	if hasOrigin && r.Origin == "" {
		r.Origin = "unknown" // said, in a shape of a later release
	}
	if r.ForkedFrom == "" && r.SessionID != "" && requester != r.SessionID {
		r.ForkedFrom = requester // a copy keeps the session that asked the model
	}
	if stamp != "" {
		// A stamp that is not one is as good as none.
		r.Timestamp, _ = time.Parse(time.RFC3339Nano, stamp)
	}
	return r, nil
}

// texts fills the fields with substrings of one string: a record has a dozen of
// them, and reading is bound by allocations otherwise.
func texts(b []byte, fields []field) {
	var short [512]byte
	all := short[:0]
	var ends [16]int
	for i, f := range fields {
		all = jsonline.AppendText(all, b, f.value)
		ends[i] = len(all)
	}
	text, from := string(all), 0
	for i, f := range fields {
		*f.to = text[from:ends[i]]
		from = ends[i]
	}
}

// field returns what the record's own member of that name says, "" if it is no
// string. Parse does not look for what few records have.
func (r Record) field(name string) string {
	return jsonline.Text(r.raw, member(r.raw, jsonline.Next(r.raw, 0), name))
}

// member returns the last member of that name in the object v.
func member(b []byte, v jsonline.Value, name string) (found jsonline.Value) {
	jsonline.Each(b, v, func(key, value jsonline.Value) {
		if jsonline.Is(b, key, name) {
			found = value
		}
	})
	return found
}

// ID returns the identity of a record: its uuid, or where it has none the place
// it was read from. Equal IDs are one record; equal words are not.
func ID(r Record, generation int64, stream string, offset int64) string {
	if r.UUID != "" {
		return r.UUID
	}
	return strconv.FormatInt(generation, 10) + "/" + stream + "/" + strconv.FormatInt(offset, 10)
}
