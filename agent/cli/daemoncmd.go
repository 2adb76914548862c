package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/undersong-dev/undersong/agent/daemon"
	"github.com/undersong-dev/undersong/agent/note"
)

// The daemon's memory: garbage is collected early rather than late, and hard
// from softMemory on. A segment and what is made of it need some 40 MB.
const (
	collectAt  = 50 // percent of what lives
	softMemory = 72 << 20
)

// stopWithin is how long a daemon has to finish what it has in hand.
const stopWithin = 15 * time.Second

func (s *System) daemonCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "daemon",
		Short: "The process that reads and uploads; hooks start it",
		Long: `The daemon reads what the hooks speak of, uploads it, and brings back what the
memory says. Every hook starts it if it does not run, and it leaves by itself
when there is nothing to do. Its log is daemon.log in the state directory.`,
	}
	var stay bool
	run := &cobra.Command{
		Use: "run", Short: "Run in the foreground until there is nothing to do", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return s.runDaemon(c.Context(), stay) },
	}
	run.Flags().BoolVar(&stay, "stay", false, "do not leave when there is nothing to do")
	cmd.AddCommand(s.serviceCommands()...)
	cmd.AddCommand(
		run,
		&cobra.Command{
			Use: "stop", Short: "Stop the daemon after the step it has in hand", Args: cobra.NoArgs,
			RunE: func(c *cobra.Command, _ []string) error { return s.stopDaemon(c.Context()) },
		},
		&cobra.Command{
			Use: "status", Short: "Say whether the daemon runs", Args: cobra.NoArgs,
			RunE: func(*cobra.Command, []string) error { return s.daemonStatus() },
		},
	)
	return cmd
}

// runDaemon runs the daemon. One that runs already is as good.
func (s *System) runDaemon(ctx context.Context, stay bool) error {
	home, err := s.home()
	if err != nil {
		return err
	}
	config, err := note.LoadConfig(home)
	if err != nil {
		return err
	}
	if err := recordedEnvironment(config); err != nil {
		return err
	}
	if stay { // a hook's daemon, which would leave, makes room
		if _, err := s.stop(ctx, home); err != nil {
			return err
		}
	}
	debug.SetGCPercent(collectAt)
	debug.SetMemoryLimit(softMemory)
	err = daemon.Run(ctx, daemon.Options{Home: home, Version: s.Version, Clock: s.Clock, Stay: stay})
	if errors.Is(err, daemon.ErrRunning) {
		return nil
	}
	return err
}

// recordedEnvironment replaces the environment by the one that init recorded,
// whoever starts the daemon and from where.
func recordedEnvironment(config note.Config) error {
	env := onlyRecorded(config, os.Environ())
	os.Clearenv()
	for name, value := range env {
		if err := os.Setenv(name, value); err != nil {
			return fmt.Errorf("set the environment that init recorded: %w", err)
		}
	}
	return nil
}

// onlyRecorded returns the recorded environment, and of the present one our own
// variables: where the state directory is.
func onlyRecorded(config note.Config, present []string) map[string]string {
	env := maps.Clone(config.Env)
	if env == nil {
		env = map[string]string{}
	}
	for _, entry := range present {
		if name, value, _ := strings.Cut(entry, "="); strings.HasPrefix(name, "UNDERSONG_") {
			env[name] = value
		}
	}
	return env
}

func (s *System) stopDaemon(ctx context.Context) error {
	home, err := s.home()
	if err != nil {
		return err
	}
	stopped, err := s.stop(ctx, home)
	if err != nil {
		return err
	}
	if !stopped {
		return s.print("no daemon runs\n")
	}
	return s.print("stopped\n")
}

// stop stops the daemon of a state directory and waits until it is gone. It
// says whether one ran.
func (s *System) stop(ctx context.Context, home string) (bool, error) {
	info, running, err := daemon.Running(home)
	if err != nil || !running {
		return false, err
	}
	process, err := os.FindProcess(info.PID)
	if err == nil {
		err = terminate(process)
	}
	if err != nil && !errors.Is(err, os.ErrProcessDone) {
		return false, fmt.Errorf("stop the daemon, process %d: %w", info.PID, err)
	}
	deadline := s.Clock.Now().Add(stopWithin)
	for s.Clock.Now().Before(deadline) {
		if _, running, err = daemon.Running(home); err != nil || !running {
			return true, err
		}
		timer := s.Clock.NewTimer(50 * time.Millisecond)
		select {
		case <-ctx.Done():
			timer.Stop()
			return false, ctx.Err()
		case <-timer.C():
		}
	}
	return false, fmt.Errorf("stop the daemon: process %d is still there after %s; see daemon.log in %s", info.PID, stopWithin, home)
}

// terminate asks a process to end. Windows has no such signal.
func terminate(process *os.Process) error {
	if runtime.GOOS == "windows" {
		return process.Kill() // the spool survives it
	}
	return process.Signal(syscall.SIGTERM)
}

func (s *System) daemonStatus() error {
	home, err := s.home()
	if err != nil {
		return err
	}
	info, running, err := daemon.Running(home)
	switch {
	case err != nil:
		return err
	case !running:
		return s.print("no daemon runs; the next hook starts it\n")
	}
	return s.print("running, process %d, version %s, for %s\n", info.PID, safe(info.Version), ago(s.Clock.Now(), info.StartedAt))
}
