// Package transcript reads the session transcripts of Claude Code: bytes to
// lines, lines to records, records to words.
//
//	bytes ──Lines──▶ Line ──Parse──▶ Record ──Entries──▶ []Entry ──Render──▶ text for memory
//	  │                                 ├──Memory───▶ the same, with calls and results of tools ──Render──▶
//	  │                                 ├──State.Fold, Usage.Fold──▶ title, tag, branch …, tokens
//	  │                                 └──Known, Tree──▶ hints: inherited, abandoned
//	  └──Signer──▶ Signature: is this still the file whose bytes were read?
//
// The file is written by another program while it is read, in a format that is
// internal to that program. So the package trusts little: a line without its
// LF is not there yet, a type it does not know carries no words, order is file
// order and nothing else, and a record that is not what it should be costs that
// record only. Words are what a person typed and what the assistant said, told
// by flags and by whole-record shapes, never by a phrase in somebody's prose.
//
// The package is pure: it opens no file, knows no clock and keeps no state
// between calls but what its values hold. It does not decide what may leave a
// workstation (package redact) and does not drop repeats of a uuid (the
// controller's seen-set). Tool calls and results are no words; what of
// them becomes memory, Memory says.
package transcript
