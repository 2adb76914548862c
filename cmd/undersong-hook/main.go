// Undersong-hook is what a coding agent starts at every hook event. It reads the
// event on stdin, leaves a note for the daemon in the state directory and prints
// what a team's memory has to say: one JSON object or nothing. Its exit code is
// 0 whatever happens, and its stderr is empty. See package hook.
package main

import (
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/undersong-dev/undersong/agent/hook"
)

// version is set by the linker.
var version = "dev"

const help = `undersong-hook is started by Claude Code, not by hand.

It reads one hook event as JSON on stdin, leaves a note for the undersong
daemon, and prints what your team's memory has to say: one JSON object, or
nothing. It always exits with 0, and it does nothing until you run

    undersong init

To see what it recorded, and what went wrong:

    undersong status

As a status line of Claude Code it says whether a session is recorded:

    undersong-hook statusline

Flags:
  --help     print this text
  --version  print the version
`

func main() {
	// A reader that has gone must not end us with a signal.
	signal.Ignore(syscall.SIGPIPE)

	env := hook.Env{Now: time.Now} //nolint:forbidigo // where the hook gets its clock
	// Other arguments are ignored: whatever a settings file says, the event
	// comes on stdin.
	if len(os.Args) == 2 {
		switch os.Args[1] {
		case "--version":
			_, _ = io.WriteString(os.Stdout, "undersong-hook "+version+"\n")
			return
		case "--help", "-h":
			_, _ = io.WriteString(os.Stdout, help)
			return
		case "statusline":
			hook.StatusLine(os.Stdin, os.Stdout, env)
			return
		}
	}
	hook.Run(os.Stdin, os.Stdout, env)
}
