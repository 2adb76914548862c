package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/undersong-dev/undersong/agent/consent"
	"github.com/undersong-dev/undersong/agent/daemon"
	"github.com/undersong-dev/undersong/agent/note"
)

// maxPause bounds pause --for.
const maxPause = 30 * 24 * time.Hour

type pauseFlags struct {
	capture, recall bool
	session         string
	span            time.Duration
}

// both says that neither half was chosen, so both are meant.
func (f *pauseFlags) both() {
	if !f.capture && !f.recall {
		f.capture, f.recall = true, true
	}
}

func (s *System) pauseCommand() *cobra.Command {
	var f pauseFlags
	cmd := &cobra.Command{
		Use:   "pause",
		Short: "Record nothing and show nothing, in every session, until you resume",
		Long: `Record nothing and show nothing, in every session, from now until undersong
resume or for a while. What is said meanwhile is withheld for good: it is not
sent later either. With --capture only the recording pauses, with --recall only
what the memory says.

What was said before the pause is sent as always. To take that back, too, see
undersong forget. For one session only, see undersong private.`,
		Example: `  undersong pause --for 1h
  undersong pause --recall`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return s.pause(c.Context(), f) },
	}
	flags := cmd.Flags()
	flags.BoolVar(&f.capture, "capture", false, "pause only what is recorded")
	flags.BoolVar(&f.recall, "recall", false, "pause only what is shown")
	flags.DurationVar(&f.span, "for", 0, "for so long, such as 30m or 2h, at most 720h; without it until undersong resume")
	return cmd
}

func (s *System) resumeCommand() *cobra.Command {
	var f pauseFlags
	cmd := &cobra.Command{
		Use:   "resume",
		Short: "Record and show again, from now on",
		Long: `End what undersong pause began. What was said meanwhile stays withheld. With
--session, a session that undersong private made private is recorded again from
now on.`,
		Example: `  undersong resume
  undersong resume --session 8c1f0a52-4a1d-4d5e-9d58-2f0c6b7c1c11`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return s.resume(c.Context(), f) },
	}
	flags := cmd.Flags()
	flags.BoolVar(&f.capture, "capture", false, "resume only what is recorded")
	flags.BoolVar(&f.recall, "recall", false, "resume only what is shown")
	flags.StringVar(&f.session, "session", "", "id of a private session that is to be recorded again")
	cmd.MarkFlagsMutuallyExclusive("session", "capture")
	cmd.MarkFlagsMutuallyExclusive("session", "recall")
	return cmd
}

func (s *System) privateCommand() *cobra.Command {
	var session string
	cmd := &cobra.Command{
		Use:   "private",
		Short: "Record nothing more of one session",
		Long: `Record nothing more of one session, nor of its forks, from now on. Which session:
the one that this command is run in, else the newest one of this project, or the
one that --session names.

What was said before is sent as always. To take that back, too, see undersong
forget. A session that /clear begins is a new one and is not private.`,
		Example: `  ! undersong private          (in Claude Code)
  undersong private --session 8c1f0a52-4a1d-4d5e-9d58-2f0c6b7c1c11`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return s.private(c.Context(), session) },
	}
	cmd.Flags().StringVar(&session, "session", "", "id of the session")
	return cmd
}

// quiet changes what is not to be heard. change is given the sizes of all
// transcripts as they are now.
func (s *System) quiet(ctx context.Context, home string, change func(known *consent.Silences, projects string, sizes map[string]int64)) error {
	dir, err := s.claudeDir()
	if err != nil {
		return err
	}
	projects := filepath.Join(dir, "projects")
	measure := func(projects string) (map[string]int64, error) { return daemon.Measure(home, projects) }
	return consent.UpdateSilences(ctx, home, s.Clock.Now(), measure, func(known *consent.Silences) error {
		sizes, err := measure(projects)
		if err != nil {
			return err
		}
		change(known, projects, sizes)
		return nil
	})
}

func (s *System) pause(ctx context.Context, f pauseFlags) error {
	home, err := s.agreed()
	if err != nil {
		return err
	}
	if f.span < 0 || f.span > maxPause {
		return fmt.Errorf("--for must be between 1s and %s", maxPause)
	}
	f.both()
	now := s.Clock.Now().UTC()
	var until time.Time
	end := "until you run undersong resume"
	if f.span > 0 {
		until = now.Add(f.span)
		end = fmt.Sprintf("for %s, until %s", span(f.span), clockTime(until))
	}
	if f.capture { // first: it is what cannot be taken back
		err := s.quiet(ctx, home, func(known *consent.Silences, projects string, sizes map[string]int64) {
			known.Begin(consent.ReasonPaused, "", projects, now, until, sizes)
		})
		if err != nil {
			return fmt.Errorf("recording is NOT paused: %w", err)
		}
	}
	if f.recall {
		if err := note.PauseRecall(home, now, until); err != nil {
			return fmt.Errorf("what the memory says is still shown: %w", err)
		}
	}
	switch {
	case !f.recall:
		return s.print("Paused: nothing is recorded, in any session, %s.\n", end)
	case !f.capture:
		return s.print("Paused: nothing of the memory is shown, in any session, %s. Sessions are recorded as before.\n", end)
	}
	return s.print("Paused: nothing is recorded and nothing shown, in any session, %s.\n", end)
}

func (s *System) resume(ctx context.Context, f pauseFlags) error {
	home, err := s.agreed()
	if err != nil {
		return err
	}
	f.both()
	now := s.Clock.Now()
	reason, session := consent.ReasonPaused, ""
	if f.session != "" {
		reason, session, f.recall = consent.ReasonPrivate, strings.ToLower(f.session), false
	}
	ended, shown := 0, false
	if f.capture {
		err := s.quiet(ctx, home, func(known *consent.Silences, _ string, sizes map[string]int64) {
			ended = known.End(reason, session, now, sizes)
		})
		if err != nil {
			return err
		}
	}
	if f.recall {
		if shown, err = note.ResumeRecall(home); err != nil {
			return err
		}
	}
	switch {
	case ended == 0 && session != "":
		return fmt.Errorf("session %s is not private", safe(session))
	case session != "":
		return s.print("Session %s is recorded again from now on. What was said meanwhile stays withheld.\n", safe(session))
	case ended == 0 && !shown:
		return s.print("Nothing was paused.\n")
	case ended == 0:
		return s.print("What the memory says is shown again.\n")
	case !shown:
		return s.print("Recorded again from now on. What was said meanwhile stays withheld.\n")
	}
	return s.print("Recorded and shown again from now on. What was said meanwhile stays withheld.\n")
}

func (s *System) private(ctx context.Context, session string) error {
	home, err := s.agreed()
	if err != nil {
		return err
	}
	how := ""
	if session == "" {
		if session, how = s.thisSession(home); session == "" {
			return errors.New("no session of this project is known here: run this in the session, or name it with --session")
		}
		how = " (" + how + ")"
	}
	session = strings.ToLower(session)
	if !note.ValidSession(session) {
		return errors.New("--session is not a session id")
	}
	now := s.Clock.Now()
	already := false
	err = s.quiet(ctx, home, func(known *consent.Silences, projects string, sizes map[string]int64) {
		already = known.Current(consent.ReasonPrivate, session, now) != nil
		known.Begin(consent.ReasonPrivate, session, projects, now, time.Time{}, sizes)
	})
	if err != nil {
		return fmt.Errorf("the session is still recorded: %w", err)
	}
	if already {
		return s.print("Session %s%s is private already.\n", safe(session), how)
	}
	return s.print("Nothing more is recorded of session %s%s.\nWhat was said before is not touched; to take it back: undersong forget %s\n", safe(session), how, safe(session))
}

// agreed returns the state directory of a user who has run init.
func (s *System) agreed() (string, error) {
	home, err := s.home()
	if err != nil {
		return "", err
	}
	_, err = note.LoadConfig(home)
	return home, err
}

// clockTime is a time for people, in their own zone.
func clockTime(t time.Time) string { return t.Local().Format("2006-01-02 15:04 MST") }
