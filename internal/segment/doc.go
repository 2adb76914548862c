// Package segment is the format in which transcript lines travel and rest: from
// a workstation's spool through its inbox into the archive.
//
// A segment is one header line and the redacted transcript lines that it
// describes, each ended by LF. This form is hashed; zstd around it is only a
// wrapping and may change with the library:
//
//	{"format":1,"session":…,"seq":1,…}   the header, a JSON object
//	{"type":"user",…}                    the lines, as the redactor left them
//	{"type":"undersong-stub",…}
//
// The segments of one writer of one session form a chain: chain(0) is [Start]
// of the two names, chain(n) is chain(n-1).Next(segment n, uncompressed). Only
// redacted bytes are hashed, so a digest tells nobody anything about a secret.
//
// What it promises: [Decode] of what [Encode] made gives the same header and
// lines; every input, however hostile, ends in bounded time and memory with
// [ErrCorrupt], [ErrTooLarge] or [ErrUnsupportedVersion]; every key stays under
// its own prefix. The format is forever: a change of meaning needs a new number.
// A new optional member does not, since readers skip members they do not know.
//
// What it does not do: it neither reads nor writes files or objects, compares
// no chain with a status, and redacts nothing, it only insists on the type that
// the redactor makes.
package segment
