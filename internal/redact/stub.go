package redact

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/undersong-dev/undersong/internal/redact/jsonline"
)

// StubType is the type of the record that stands for one that does not leave.
const StubType = "undersong-stub"

// keptTypes are the records that leave, by type and for some types subtype.
// Everything else may hold anything: whole API requests, the user's own
// instructions, the output of hooks.
var keptTypes = map[string]map[string]bool{
	"user":         nil,
	"assistant":    nil,
	"custom-title": nil,
	"ai-title":     nil,
	"tag":          nil,
	"pr-link":      nil,
	"attachment":   {"queued_command": true},
	"system":       {"compact_boundary": true, "turn_duration": true},
}

// head is what of a line decides about it, and what of it a stub may say.
type head struct {
	kind, subtype, attachment    jsonline.Value
	uuid, parent, session, stamp jsonline.Value
	of, bytes                    jsonline.Value // of a stub
	repeated                     bool           // a member that decides stands there twice
}

// readHead reads a trimmed line. It reports whether the line is a JSON object.
func readHead(line []byte) (head, bool) {
	var h head
	once := func(to *jsonline.Value, v jsonline.Value) {
		h.repeated = h.repeated || to.Kind != jsonline.None
		*to = v
	}
	ok := jsonline.Members(line, func(key, v jsonline.Value) {
		name := line[key.Start+1 : key.End-1]
		if !key.Plain {
			name = jsonline.AppendText(nil, line, key)
		}
		switch string(name) {
		case "type":
			once(&h.kind, v)
		case "subtype":
			once(&h.subtype, v)
		case "attachment":
			once(&h.attachment, v)
		case "uuid":
			h.uuid = v
		case "parentUuid":
			h.parent = v
		case "sessionId":
			h.session = v
		case "timestamp":
			h.stamp = v
		case "of":
			h.of = v
		case "bytes":
			h.bytes = v
		}
	})
	if !ok {
		return head{}, false
	}
	if h.attachment.Kind == jsonline.Object {
		h.subtype = jsonline.Value{}
		jsonline.Each(line, h.attachment, func(key, v jsonline.Value) {
			if jsonline.Is(line, key, "type") {
				once(&h.subtype, v)
			}
		})
	}
	return h, true
}

// kept reports whether the record is on the allow-list. One that can be read
// as two types is not.
func (h head) kept(line []byte) bool {
	if h.repeated {
		return false
	}
	subtypes, ok := keptTypes[jsonline.Text(line, h.kind)]
	return ok && (subtypes == nil || subtypes[jsonline.Text(line, h.subtype)])
}

// stubRecord is the stub as it is written.
type stubRecord struct {
	Type       string      `json:"type"`
	Of         string      `json:"of"`
	UUID       string      `json:"uuid,omitempty"`
	ParentUUID string      `json:"parentUuid,omitempty"`
	SessionID  string      `json:"sessionId,omitempty"`
	Timestamp  string      `json:"timestamp,omitempty"`
	Bytes      json.Number `json:"bytes"`
}

// stub returns what stands for a record: type, ids, time and length. The stub
// of a stub is that stub.
func (r *Redactor) stub(line []byte, h head, size int) Redacted {
	s := stubRecord{
		Type:       StubType,
		Of:         r.name(jsonline.Text(line, h.kind)),
		UUID:       r.id(jsonline.Text(line, h.uuid)),
		ParentUUID: r.id(jsonline.Text(line, h.parent)),
		SessionID:  r.id(jsonline.Text(line, h.session)),
		Timestamp:  r.id(jsonline.Text(line, h.stamp)),
		Bytes:      json.Number(strconv.Itoa(size)),
	}
	if s.Of == StubType {
		s.Of = r.kind(jsonline.Text(line, h.of))
		if n := string(line[h.bytes.Start:h.bytes.End]); h.bytes.Kind == jsonline.Number && len(n) <= 19 && isDigits(n) {
			s.Bytes = json.Number(n)
		}
	} else if sub := r.name(jsonline.Text(line, h.subtype)); sub != untyped {
		s.Of += "/" + sub
	}
	return encodeStub(s)
}

// badStub returns what stands for a line that is no record.
func (r *Redactor) badStub(of string, size int) Redacted {
	return encodeStub(stubRecord{Type: StubType, Of: of, Bytes: json.Number(strconv.Itoa(size))})
}

// forgotten is what a stub stands for whose record its owner had erased.
const forgotten = "forgotten"

// Forgotten returns what stands for a line that its owner had erased: nothing
// of it but its type and its uuid, by which a copy that comes again is
// recognised. Forgotten of a result is that result.
func (r *Redactor) Forgotten(line []byte) Redacted {
	line = jsonline.Trim(line)
	h, _ := readHead(line) // what is no record has neither
	kind := jsonline.Text(line, h.kind)
	if kind == StubType {
		kind = strings.TrimPrefix(jsonline.Text(line, h.of), forgotten+"/")
	}
	kind, _, _ = strings.Cut(kind, "/")
	return encodeStub(stubRecord{Type: StubType, Of: forgotten + "/" + r.name(kind), UUID: r.id(jsonline.Text(line, h.uuid)), Bytes: "0"})
}

// ForgottenType returns the type of the record that Forgotten made a stub of,
// "" for any other line.
func ForgottenType(line []byte) string {
	h, _ := readHead(line)
	if jsonline.Text(line, h.kind) != StubType {
		return ""
	}
	kind, ok := strings.CutPrefix(jsonline.Text(line, h.of), forgotten+"/")
	if !ok {
		return ""
	}
	return kind
}

func encodeStub(s stubRecord) Redacted {
	b, err := json.Marshal(s)
	if err != nil {
		// Strings and digits always marshal.
		return Redacted{text: `{"type":"` + StubType + `","of":"bad-line","bytes":0}`}
	}
	return Redacted{text: string(b)}
}

const untyped = "untyped"

// name returns the part of a type that says no more than a type does.
func (r *Redactor) name(s string) string {
	b := make([]byte, 0, 64)
	for i := 0; i < len(s) && len(b) < cap(b); i++ {
		if word[s[i]] {
			b = append(b, s[i])
		}
	}
	if len(b) == 0 || len(r.fixed.find(b)) > 0 {
		return untyped
	}
	return string(b)
}

// kind returns the type, and behind a slash the subtype, of what a stub stands
// for.
func (r *Redactor) kind(s string) string {
	for i := range len(s) {
		if s[i] == '/' {
			return r.name(s[:i]) + "/" + r.name(s[i+1:])
		}
	}
	return r.name(s)
}

var idSet = newSet("09azAZ", ":._+-")

// id returns an id or a time, "" if it is none.
func (r *Redactor) id(s string) string {
	if len(s) > 64 || count([]byte(s), idSet) < len(s) || len(r.fixed.find([]byte(s))) > 0 {
		return ""
	}
	return s
}
