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
	"github.com/undersong-dev/undersong/agent/note"
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
  --home DIR  the state directory, as undersong init writes it into the settings.
              Without it, undersong's folder in your own, as the system's records
              have it: the environment, which a repository can set, does not count
  --help      print this text
  --version   print the version
`

func main() {
	// A reader that has gone must not end us with a signal.
	signal.Ignore(syscall.SIGPIPE)

	// What else stands in a settings file is ignored: the event comes on stdin.
	home, args, _ := note.HookHome(os.Args[1:]) // without one nothing is done
	env := hook.Env{Now: time.Now, Home: home}  //nolint:forbidigo // where the hook gets its clock
	if len(args) == 1 {
		switch args[0] {
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
