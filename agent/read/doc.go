// Package read is the stage between a transcript and the spool: it reads one
// stream of one session from its cursor, asks for consent record by record,
// redacts, and returns a Batch, the body of one segment together with the
// cursor after it.
//
// A stream is the session's main file, or the file of one of its subagents.
// The package promises that every complete line that is not blank is either a
// body line of exactly one Batch or lies inside exactly one withheld range,
// that a torn tail waits, and that nothing which was not allowed is in a
// Batch. It writes nothing: whoever makes a Batch durable keeps its Cursor in
// the same step, and whoever loses it reads the same lines again.
//
//	          size ≥ offset and signature fits
//	path ────────────────────────────────────────▶ read on from the offset
//	  │ gone, shorter, or other bytes before the offset
//	  ▼
//	sibling folders hold a file of that name that fits ─▶ read on there
//	  │ none
//	  ├─ a file is at the path ─▶ next generation, offset 0
//	  └─ none ──────────────────▶ ErrMissing: nothing is lost, look again later
package read
