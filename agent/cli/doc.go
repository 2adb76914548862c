// Package cli is the command undersong: init, status, daemon, hooks, reset,
// transcript, redact and version.
//
// Commands print to the given writers and return errors; nothing here ends the
// process. What they print is escaped where it comes from elsewhere, holds no
// secret, and says what to do next.
package cli
