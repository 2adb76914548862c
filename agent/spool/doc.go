// Package spool keeps, on the workstation, what is read and not yet known to
// be in the archive, and how far every session was read.
//
// A session has one folder with state.json and one file for each segment that
// is not verified. Whatever changes is changed in one step, by replacing
// state.json: a segment's file is written first and means nothing until the
// state names it, so a crash at any point repeats work or goes on, and loses
// nothing.
//
//	read ──▶ 7.seg written ──▶ state.json: segments[7], cursor ──▶ upload
//	            │ crash             │ crash
//	            ▼                   ▼
//	        overwritten         none taken uploaded ──▶ verified ──▶ dropped
//
// The package promises that a segment named by a state is on the disk, that
// the chain over the segments is the one their bytes give, and that a failed
// write leaves the state as it was. It speaks to nobody and decides nothing
// about consent. Names of files are made of session ids that it has checked.
package spool
