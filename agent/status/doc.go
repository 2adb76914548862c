// Package status is the stage between the cluster and the workstation's files:
// it follows the owner's Sessions, the own Workstation and the team's memory,
// and turns what they say into what is dropped from the spool, sent again,
// whispered, and written to the local state files.
//
//	Session ──▶ verified: drop segments · wanted: send again · whispers: inbox
//	            of the hook · syncState: local state files
//	Workstation ──▶ grant of slots
//	TeamMemory ──▶ what may be heard, what may be shown
//
// Everything is decided from the newest object alone and is safe to repeat, so
// a missed event costs nothing: after every error the whole list is read again.
// A Session that is not known on this workstation is left alone. The package
// writes nothing to the cluster.
package status
