// Package session turns a Session's uploaded segments into a Letta
// conversation and writes what came of it into status.
//
// The lifecycle is a list of phases, each a file and a condition:
//
//	verify  (Verified)   inbox → checked, scanned again → archive
//	deliver (Delivered)  archive → words → one Letta turn, ledger first
//	publish (Published)  reply and memory → status, MemoryBlocks
//
// A phase looks at the world again each time it runs and may be cut off
// anywhere. What must not be lost is in status or in the store before the next
// step is taken; status is written once, at the end.
package session
