package transcript

import (
	"strconv"

	"github.com/undersong-dev/undersong/internal/redact/jsonline"
)

// Usage counts what the API messages of a stream used. One message is written
// as several lines, which repeat its usage or let it grow: the last line of a
// message counts, once. The zero value is ready, and keeps every message's id in
// memory.
type Usage struct {
	tokens table
	total  int64
}

// NewUsage returns a count that keeps what is much in the room.
func NewUsage(room Room) *Usage { return &Usage{tokens: table{slots: paged{room: room}}} }

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
	before, _ := u.tokens.get(id)
	u.total += tokens - int64(before) //nolint:gosec // it was put there
	u.tokens.set(id, uint64(tokens))  //nolint:gosec // it comes back as it was
}

// Messages returns the number of messages.
func (u *Usage) Messages() int { return int(u.tokens.n) }

// OutputTokens returns the sum of their output tokens.
func (u *Usage) OutputTokens() int64 { return u.total }

// Err returns the first error of the room; the numbers do not count then.
func (u *Usage) Err() error { return u.tokens.slots.err }

// Close drops what the count has in the room.
func (u *Usage) Close() error { return u.tokens.slots.close() }
