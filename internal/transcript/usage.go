package transcript

import (
	"strconv"

	"github.com/undersong-dev/undersong/internal/redact/jsonline"
)

// Usage counts what the API messages of a stream used. One message is written
// as several lines, which repeat its usage or let it grow: the last line of a
// message counts, once. It remembers every message id; the zero Usage is ready.
type Usage struct {
	tokens map[string]int64
	total  int64
}

// Fold takes a record into account, unless it belongs to another session or
// stream, or the program wrote it itself. Messages without an id are not
// counted.
func (u *Usage) Fold(r Record, kind StreamKind, sessionID string) {
	if r.Type != "assistant" || !r.belongs(kind, sessionID) {
		return
	}
	m := r.read(nil)
	id := jsonline.Text(r.raw, m.id)
	if id == "" || r.synthetic(m) {
		return
	}
	var tokens int64
	output := member(r.raw, m.usage, "output_tokens")
	if output.Kind == jsonline.Number {
		// What is no whole number is not counted.
		tokens, _ = strconv.ParseInt(string(r.raw[output.Start:output.End]), 10, 64)
	}
	if u.tokens == nil {
		u.tokens = map[string]int64{}
	}
	u.total += tokens - u.tokens[id]
	u.tokens[id] = tokens
}

// Messages returns the number of messages.
func (u *Usage) Messages() int { return len(u.tokens) }

// OutputTokens returns the sum of their output tokens.
func (u *Usage) OutputTokens() int64 { return u.total }
