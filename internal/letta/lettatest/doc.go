// Package lettatest is a Letta REST server in one process, for tests and for
// the demo. It is a stand-in: no model runs in it.
//
// The server imitates the API v1 as the archived server 0.16 speaks it, above
// all where it is unpleasant: 409 with a run id while a turn runs in the
// conversation; failures inside a stream of status 200; the same run replayed
// for the same otids within a window, and a second run after it; 307 for a
// wrong trailing slash; ids checked by pattern; cursors that mean positions,
// positions given anew by a compaction, unknown cursors ignored; a limit that
// counts stored messages, of which one becomes several items; messages stored
// at the end of a step, so that a failed first step leaves none; turns that
// go on when nobody listens.
//
// What it leaves out: tokens streamed one by one, tools of clients,
// approvals other than as a fault, files, archives, groups, identities,
// templates and every model setting.
//
// Instead of a model there is a handful of rules (rules.go). They learn lines
// from what users say and repeat a line to another session that uses the same
// words. They exist to make memory change and a whisper come back, the same
// way every time; they say nothing about how well a real model does either.
//
// Faults are ordered beforehand: [Server.Inject] for requests,
// [Server.FailTurn] and [Server.HoldTurns] for turns. With [Options.Upstream]
// the same faults strike on the way to a real server, so that one suite runs
// over both.
package lettatest
