package cli

import (
	"bufio"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/undersong-dev/undersong/internal/redact"
	"github.com/undersong-dev/undersong/internal/redact/stream"
	"github.com/undersong-dev/undersong/internal/transcript"
)

func (s *System) renderCommand() *cobra.Command {
	var state string
	cmd := &cobra.Command{
		Use:   "render [flags] FILE",
		Short: "Print what of a transcript a team's memory is told",
		Long: `Print what of a transcript a team's memory is told: what people typed, what the
assistant said, and calls and results of tools in short. Where something was
redacted stands [redacted:<rule>]. Of a subagent's transcript, which is archived
and not told, it prints what would be.

With --state FILE it reads on from where the last call with the same FILE ended.`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return s.renderTranscript(args[0], state) },
	}
	cmd.Flags().StringVar(&state, "state", "", "read on from the cursor in this `file`, and keep it there")
	return cmd
}

func (s *System) renderTranscript(path, statePath string) (err error) {
	redactor, err := redact.New()
	if err != nil {
		return err
	}
	state, err := loadState(statePath)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, state.close()) }()
	o, err := identify(path, path)
	if err != nil {
		return err
	}
	p, leftover, err := state.pass(o)
	if err != nil {
		return err
	}
	before, seen := transcript.NewMarks(scratch), transcript.NewKnown(scratch)
	defer func() { err = errors.Join(err, before.Close(), seen.Close()) }()
	if known := state.find(o); known != nil && !leftover {
		// What was told is not told again, in whatever file it comes.
		p.cursor.kept = known.kept
		err := state.each(known, func(_, id string) error {
			before.Set(id, 0)
			return nil
		})
		if err != nil {
			return err
		}
	}
	out := bufio.NewWriter(s.Out)
	err = p.read(redactor, func(it *stream.Item) error {
		if it.Err != nil {
			return nil //nolint:nilerr // it says nothing
		}
		p.cursor.State.Fold(it.Record, p.session)
		if _, told := before.Get(it.Record.UUID); told || seen.Add(it.Record) != transcript.New {
			p.tools.Fold(it.Clean)
			return nil
		}
		entries := it.Clean.Memory(p.kind, p.session, transcript.Policy{}, &p.tools)
		if state != nil && it.Record.UUID != "" {
			if err := p.cursor.note(role(it.Clean.Entries(p.kind, p.session)), it.Record.UUID); err != nil {
				return err
			}
		}
		var text strings.Builder
		transcript.Render(&text, entries)
		_, err := out.WriteString(text.String())
		return err
	})
	if err := errors.Join(err, before.Err(), seen.Err(), out.Flush()); err != nil {
		return err
	}
	if leftover {
		return nil
	}
	state.keep(p.cursor)
	return state.save()
}

// role is who says the words of a record, "" if it has none.
func role(entries []transcript.Entry) string {
	if len(entries) == 0 {
		return ""
	}
	return string(entries[0].Speaker)
}
