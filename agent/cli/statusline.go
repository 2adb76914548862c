package cli

import (
	"github.com/spf13/cobra"

	"github.com/undersong-dev/undersong/agent/hook"
)

func (s *System) statuslineCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "statusline",
		Short: "Print one line for Claude Code's status line",
		Long: `Print whether a session is recorded, for which team, and how many of its lines
wait. It reads on stdin the JSON that Claude Code gives to a status line, reads
two or three small files and asks nobody.

Claude Code runs a status line several times a minute. The hook's binary prints
the same line and starts in a quarter of the time: configure that one, in
~/.claude/settings.json, with the command that undersong hooks prints:

  "statusLine": {
    "type": "command",
    "command": "/usr/local/bin/undersong-hook --home /home/ada/.local/state/undersong statusline"
  }

It prints one of: off · recorded for TEAM, N lines waiting · not recorded here ·
not recorded, paused for 20 min · login needed · revoked · ready, team TEAM.
Where undersong init has not run it prints nothing.`,
		Example: `  echo '{"session_id":"8d1f0c52-6a1b-4f6e-9d3c-2b7e5a90c4f1","cwd":"/home/ada/shop"}' | undersong statusline`,
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			home, err := s.home()
			if err != nil {
				return err
			}
			hook.StatusLine(s.In, s.Out, hook.Env{Now: s.Clock.Now, Home: home})
			return nil
		},
	}
}
