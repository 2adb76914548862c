package cli

import (
	"bufio"
	"errors"

	"github.com/spf13/cobra"

	"github.com/undersong-dev/undersong/internal/redact"
	"github.com/undersong-dev/undersong/internal/redact/stream"
)

func (s *System) redactCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "redact",
		Short: "Filter stdin as transcripts are before they leave",
		Long: `Copy stdin to stdout without secrets, <private> spans and binary payloads. Where
something was taken out stands [redacted:<rule>]. On stderr it says, for each
line with a finding, which rules found how much there, and never what.

Lines that are records of a transcript come out as they would leave this machine:
those whose type is not on the list become a stub. All other lines are text. A
line of more than 32 MiB cannot be scanned, and becomes a stub, too.

It asks no server and needs no configuration.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return s.redact() },
	}
}

func (s *System) redact() error {
	redactor, err := redact.New()
	if err != nil {
		return err
	}
	out, errs := bufio.NewWriter(s.Out), bufio.NewWriter(s.Err)
	return errors.Join(stream.Copy(redactor, s.In, out, errs), out.Flush(), errs.Flush())
}
