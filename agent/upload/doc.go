// Package upload is the stage between the spool and the cluster: it puts
// segments into slots of the workstation's inbox, tells the cluster of them in
// this workstation's own entry of the Session, and asks for slots.
//
// A segment goes through these steps, each recorded before the next begins, so
// that whoever is killed in between repeats one at most:
//
//	none ──slot recorded──▶ taken ──PUT 200, 201, 412──▶ uploaded ──▶ in the entry
//	  ▲                       │ 403: the URL is spent
//	  └───────────────────────┘
//
// A segment that the store does not take, or that cannot be read, holds up its own
// session and no other; the store is taken to be down when there is no answer, or
// when it refuses several sessions in a row.
//
// The package promises that no URL is used whose host is not the one pinned at
// init, that no slot is used for two segments, that an entry only ever
// continues the chain that the cluster has, and that a Session which a person
// deleted is never made again. Errors and logs hold no URL and no text of a
// session.
package upload
