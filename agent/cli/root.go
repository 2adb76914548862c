package cli

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"k8s.io/utils/clock"

	"github.com/undersong-dev/undersong/agent/note"
)

// System is what the commands take from outside.
type System struct {
	In       io.Reader
	Out, Err io.Writer
	Version  string
	Clock    clock.WithTicker

	// Getenv, Home and Executable are those of the process: a variable, the
	// user's own folder, the path of this binary. Terminal says that somebody
	// can answer on In.
	Getenv     func(string) string
	UserHome   func() (string, error)
	Executable func() (string, error)
	Terminal   func() bool

	// managed is where an administrator's settings of Claude Code lie.
	managed string
	// probeWithin is how long init waits for the first grant.
	probeWithin time.Duration
	// answers reads In, once somebody was asked.
	answers *bufio.Reader
}

// NewSystem returns the real thing.
func NewSystem(version string) *System {
	return &System{
		In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Version: version, Clock: clock.RealClock{},
		Getenv: os.Getenv, UserHome: os.UserHomeDir, Executable: executable, Terminal: terminal, managed: managedPath(), probeWithin: grantWithin,
	}
}

// executable is the path of this binary, links followed: a link may go, and
// the hook must still find what it starts.
func executable() (string, error) {
	path, err := os.Executable()
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(path)
}

// terminal reports whether somebody can be asked; nobody is at /dev/null, which
// is a character device, too.
func terminal() bool { return term.IsTerminal(int(os.Stdin.Fd())) }

// New returns the command.
func New(s *System) *cobra.Command {
	root := &cobra.Command{
		Use:   "undersong",
		Short: "A team's shared memory for coding agents, on this workstation",
		Long: `undersong lets a team's memory hear the coding sessions you allow, and shows you
what it knows before your next prompt.

  undersong init      connect this workstation to your team, once
  undersong status    what is recorded, what waits, and what is wrong

Nothing is recorded before init, and nothing of repositories that the team does
not name.`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	// Not cobra's own flag: its words for the version are a template's, and where
	// templates are run the linker keeps every method of every type.
	version := root.Flags().BoolP("version", "v", false, "version for undersong")
	root.RunE = func(cmd *cobra.Command, _ []string) error {
		if *version {
			return s.printVersion()
		}
		return cmd.Help()
	}
	root.SetIn(s.In)
	root.SetOut(s.Out)
	root.SetErr(s.Err)
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddCommand(s.initCommand(), s.statusCommand(), s.daemonCommand(), s.hooksCommand(), s.verifyCommand(), s.loginCommand(), s.doctorCommand(), s.resetCommand(), s.uninstallCommand(), s.versionCommand())
	root.AddCommand(s.sessionsCommand(), s.memoryCommand(), s.logsCommand(), s.adminCommand())
	root.AddCommand(s.pauseCommand(), s.resumeCommand(), s.privateCommand(), s.forgetCommand())
	root.AddCommand(s.whispersCommand(), s.statuslineCommand())
	root.AddCommand(s.transcriptCommand(), s.redactCommand(), s.migrateCommand(), s.importCommand())
	return root
}

// Run runs the command with arguments and returns the exit status. An error is
// printed.
func Run(ctx context.Context, s *System, args []string) int {
	root := New(s) //nolint:contextcheck // cobra hands the context over
	root.SetArgs(args)
	if err := root.ExecuteContext(ctx); err != nil {
		_, _ = fmt.Fprintln(s.Err, "undersong: "+safe(err.Error())) // there is nowhere else to say it
		return 1
	}
	return 0
}

func (s *System) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE:  func(*cobra.Command, []string) error { return s.printVersion() },
	}
}

func (s *System) printVersion() error { return s.print("undersong %s\n", s.Version) }

// home returns the state directory.
func (s *System) home() (string, error) { return note.Home() }

// span says how long something is as people write it: without zeros behind.
func span(d time.Duration) string {
	text := d.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, zero) {
			text = text[:len(text)-2]
		}
	}
	return text
}

// print writes to the user.
func (s *System) print(format string, args ...any) error {
	_, err := fmt.Fprintf(s.Out, format, args...)
	return err
}

// safe returns text from elsewhere without what could move a terminal's cursor
// or hide: line ends become blanks, control and format characters go.
func safe(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return ' '
		case unicode.In(r, unicode.Cc, unicode.Cf, unicode.Co, unicode.Zl, unicode.Zp):
			return -1
		}
		return r
	}, text)
}

// ago says how long ago something was, in one unit.
func ago(now, then time.Time) string {
	d := now.Sub(then)
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", max(int(d/time.Second), 0))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d/time.Minute))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d/time.Hour))
	}
	return fmt.Sprintf("%dd", int(d/(24*time.Hour)))
}
