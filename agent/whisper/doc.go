// Package whisper keeps what a team's memory has to say until the coding agent
// has heard it.
//
// The daemon puts whispers into a folder per session, the hook claims and
// prints them. Every step is one rename, so that of any number of hooks that
// run at the same moment exactly one gets a whisper, and a kill between two
// steps leaves it in one place.
//
//	          Claim               Delivered
//	waiting ─────────▶ claimed ─────────────▶ done
//	   ▲                  │  third show, expired │
//	   └──────────────────┘─────────────────────▶┘
//	         Return
//
// Printed is not given: Claude Code throws a hook's output away when the
// prompt is taken back, blocked, or timed out. So a claimed whisper is done
// only when the daemon has read its id in the transcript (Delivered); else it
// waits again (Return), until it was shown three times or has expired. A notice
// without text is for the person only, leaves no id in the transcript, and is
// done when claimed.
//
// What is shown is data, not instruction: it is labelled with where it comes
// from, and escaped so that no text can end its element, start another one,
// hide itself or reorder what is beside it. It is valid UTF-8 and within the
// limit, counted as Claude Code counts: in UTF-16 units.
//
// The package belongs to the hook binary too: it links the standard library
// and durable only.
package whisper
