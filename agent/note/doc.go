// Package note carries what the hook saw to the daemon, and what init decided
// to both.
//
// A note says that a coding agent called the hook: which session, where its
// transcript lies, where it works. It is a wake-up call, not a record: the
// transcript is the truth, and a lost note is made good by the next one or by
// the daemon's sweep. So notes are written without sync, in a few system
// calls, and nothing of the prompt is in them.
//
// The state directory (Home) is the meeting place. The hook writes one file
// per call into notes/, the daemon lists them oldest first and removes what it
// has taken in hand. A file that cannot be read is moved to notes/bad/ and
// stops nobody. Names are made here, from time, process id and a random
// number, never from input.
//
// The package belongs to the hook binary too: it links the standard library
// and durable only.
package note
