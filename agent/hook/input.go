package hook

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"unicode/utf8"
)

const (
	// maxValue bounds a field, in bytes as it stands in the JSON. A longer one
	// is taken for absent: no path or id is that long.
	maxValue = 8 << 10

	// maxHead is how much of the prompt is looked at.
	maxHead = 256

	// maxKey bounds the name of a field; a longer one is none of ours.
	maxKey = 64
)

// errNotObject is returned for input that is no JSON object.
var errNotObject = errors.New("stdin is not a JSON object")

// input is what the hook reads of an event. A field that is absent, or is no
// string, is empty.
type input struct {
	event, session, transcript, cwd string
	source, reason                  string
	promptID, toolUseID             string
	agentID, agentTranscript        string
	permissionMode                  string
	notification                    bool // the prompt is one of the agent to itself
}

// readInput reads an event, to the end of r. Memory does not grow with it: a
// prompt may have 32 MB, a tool's input too, and of both nothing is needed.
// What is a JSON object is read as encoding/json reads it; what is not may pass
// for one where the difference lies in values that are not needed.
func readInput(r io.Reader) (input, error) {
	s := scanner{bufio.NewReaderSize(r, 64<<10)}
	in, err := s.object()
	// Also after an error: the agent must not find its pipe closed.
	if _, derr := io.Copy(io.Discard, s.r); err == nil && derr != nil {
		err = derr
	}
	return in, err
}

// field returns where the value of a field goes, or nil.
func (in *input) field(name string) *string {
	switch name {
	case "hook_event_name":
		return &in.event
	case "session_id":
		return &in.session
	case "transcript_path":
		return &in.transcript
	case "cwd":
		return &in.cwd
	case "source":
		return &in.source
	case "reason":
		return &in.reason
	case "prompt_id":
		return &in.promptID
	case "tool_use_id":
		return &in.toolUseID
	case "permission_mode":
		return &in.permissionMode
	case "agent_id":
		return &in.agentID
	case "agent_transcript_path":
		return &in.agentTranscript
	}
	return nil
}

// scanner reads JSON without building it.
type scanner struct{ r *bufio.Reader }

// object reads the top-level object.
func (s scanner) object() (input, error) {
	var in input
	if c, err := s.next(); err != nil || c != '{' {
		return in, errNotObject
	}
	c, err := s.next()
	for ; err == nil && c == '"'; c, err = s.next() {
		var key string
		if key, err = s.str(maxKey); err != nil {
			return in, err
		}
		if c, err = s.next(); err != nil || c != ':' {
			return in, errNotObject
		}
		if c, err = s.value(&in, key); err != nil {
			return in, err
		}
		if c == '}' {
			return in, nil
		}
		if c != ',' {
			return in, errNotObject
		}
	}
	if err != nil || c != '}' {
		return in, errNotObject
	}
	return in, nil
}

// value reads one value and returns the character after it.
func (s scanner) value(in *input, key string) (byte, error) {
	c, err := s.next()
	if err != nil {
		return 0, errNotObject
	}
	target := in.field(key)
	if target != nil {
		*target = ""
	}
	switch c {
	case '"':
		switch {
		case key == "prompt":
			in.notification, err = s.notification()
		case target != nil:
			*target, err = s.str(maxValue)
		default:
			err = s.skipString()
		}
	case '{', '[':
		err = s.skipNested()
	case ',', ':', '}', ']':
		err = errNotObject
	default:
		return s.skipScalar()
	}
	if err != nil {
		return 0, err
	}
	return s.next()
}

// notification reads the prompt and reports whether Claude Code wrote it, to
// say that a background task has ended.
func (s scanner) notification() (bool, error) {
	raw, err := s.raw(maxHead)
	head := raw[:min(len(raw), maxHead)]
	// The cut may have split an escape sequence; the longest has 12 bytes.
	for range 12 {
		if text, ok := unquote(head); ok {
			return strings.HasPrefix(strings.TrimLeft(text, " \t\r\n"), "<task-notification>"), err
		}
		head = head[:max(len(head)-1, 0)]
	}
	return false, err
}

// str reads a string after its opening quote. A longer one than the limit, and
// one that is not valid, is empty.
func (s scanner) str(limit int) (string, error) {
	raw, err := s.raw(limit)
	if err != nil || len(raw) > limit {
		return "", err
	}
	text, _ := unquote(raw)
	return text, nil
}

func (s scanner) skipString() error {
	_, err := s.raw(0)
	return err
}

// raw reads a string after its opening quote, to its closing one, and returns
// it as it stands there; of one over the limit, a part that is longer than the
// limit.
func (s scanner) raw(limit int) ([]byte, error) {
	var kept []byte
	escaped := false // an odd number of backslashes came last
	for {
		chunk, err := s.r.ReadSlice('"')
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return kept, errNotObject
		}
		body := bytes.TrimSuffix(chunk, []byte{'"'})
		slashes := len(body) - len(bytes.TrimRight(body, `\`))
		if slashes < len(body) {
			escaped = false // something else stands between
		}
		escaped = escaped != (slashes%2 == 1)
		if len(kept) <= limit {
			kept = append(kept, body[:min(len(body), limit+1)]...)
		}
		switch {
		case err != nil: // the buffer is full, the string goes on
		case escaped:
			escaped = false
			if len(kept) <= limit {
				kept = append(kept, '"')
			}
		default:
			return kept, nil
		}
	}
}

// skipNested skips an object or array after its opening bracket.
func (s scanner) skipNested() error {
	for depth := 1; depth > 0; {
		c, err := s.r.ReadByte()
		if err != nil {
			return errNotObject
		}
		switch c {
		case '"':
			if err := s.skipString(); err != nil {
				return err
			}
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		}
	}
	return nil
}

// skipScalar skips a number or a word and returns the character after it.
func (s scanner) skipScalar() (byte, error) {
	for {
		c, err := s.r.ReadByte()
		if err != nil {
			return 0, errNotObject
		}
		switch c {
		case ',', '}':
			return c, nil
		case ' ', '\t', '\r', '\n':
			return s.next()
		}
	}
}

// next returns the next character that is not white space.
func (s scanner) next() (byte, error) {
	for {
		c, err := s.r.ReadByte()
		if err != nil {
			return 0, errNotObject
		}
		switch c {
		case ' ', '\t', '\r', '\n':
		default:
			return c, nil
		}
	}
}

// unquote decodes the inside of a JSON string.
func unquote(raw []byte) (string, bool) {
	if !bytes.ContainsFunc(raw, func(r rune) bool { return r < ' ' || r >= utf8.RuneSelf || r == '\\' || r == '"' }) {
		return string(raw), true // as nearly always
	}
	var text string
	quoted := append(append([]byte{'"'}, raw...), '"')
	if err := json.Unmarshal(quoted, &text); err != nil {
		return "", false
	}
	return text, true
}
