// Package daemon is the process behind the hook: one per user and state
// directory, started by any hook, gone when there is nothing to do.
//
//	notes/ ──▶ loop: read, redact, spool ──▶ upload ──▶ Session
//	                                            ▲          │
//	                              state files, whispers ◀──┘ status
//
// It promises that whatever a hook told of is read to its end, by this process
// or the next: a note is removed only when the spool knows the transcript, and
// at every start and every SessionStart all known transcripts are looked at
// again. It acts only on the configuration that init wrote, never on the
// environment of a hook or on anything in a repository, and it never asks for
// a login. It follows that file while it runs: what its person excludes there
// holds for the next batch, and without it, or with off, the daemon ends. It prints nothing; trouble is in status.json, for undersong status,
// and in daemon.log.
//
// Three goroutines share the work: the loop owns reading, the upload stage owns
// slots and Sessions, the status stage owns what comes back. They meet in the
// spool, whose steps are whole, and wake each other without waiting.
package daemon
