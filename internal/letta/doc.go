// Package letta is the operator's narrow view of Letta, the memory server: an
// agent that keeps a team's memory blocks, one conversation of it for each
// coding session, and turns in those conversations.
//
// It holds the [Client] interface, its types and its errors, and no network
// code. Two back ends are meant to satisfy it: internal/letta/api speaks the
// REST API v1, and the App Server's socket protocol has room beside it. What
// both must do is written down twice, here in words and in
// internal/letta/contract as a suite that runs against each of them.
//
// # What a back end promises, and what it cannot
//
// No back end sends exactly once. Letta keeps our [Input.ClientID] beside the
// user message, but the same id runs a second turn as soon as a window has
// passed (three hours at best, milliseconds at worst). So the caller keeps a
// ledger: write down what is about to be sent, [Client.Send], write down what
// came of it; after ErrOutcomeUnknown or a crash ask [Client.Lookup] first.
//
//	Send ── nil ──────────────▶ done
//	   │
//	   ├─ ErrOutcomeUnknown ──▶ Lookup ── Replied ─▶ done
//	   │                           │── Running ─▶ look again later
//	   │                           │── NoReply ─▶ a short nudge that names the delta
//	   │                           │── Absent  ─▶ Send
//	   │                           └── Unknown ─▶ Send, counted: it may be a repeat
//	   ├─ *BusyError ─────────▶ look again later: another turn runs here
//	   ├─ ErrTurnFailed ──────▶ Lookup, then as above, with a fresh ClientID
//	   └─ anything else ──────▶ nothing was sent
//
// # Errors
//
// Errors end up in conditions of Kubernetes objects, where a text that differs
// on every retry is a write on every retry, and where a whole team reads them.
// Therefore the text of every error of a back end depends only on what went
// wrong: no port, URL, request id, time or count, and nothing of what the
// server or the caller wrote. Callers decide with errors.Is and errors.As.
package letta
