package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/undersong-dev/undersong/agent/daemon"
)

const (
	// followEvery is how often a followed log is looked at.
	followEvery = 500 * time.Millisecond
	// maxLogLine bounds one line of a log.
	maxLogLine = 1 << 20
)

type logsFlags struct {
	follow, asJSON bool
	since          time.Duration
	tail           int
}

func (s *System) logsCommand() *cobra.Command {
	var f logsFlags
	cmd := &cobra.Command{
		Use:   "logs",
		Short: "Show what the daemon did",
		Long: `Show the daemon's log, oldest line first. It says what was read, uploaded and
refused, and never holds the text of a session.`,
		Example: `  undersong logs --since 1h
  undersong logs -f`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return s.logs(c.Context(), f) },
	}
	flags := cmd.Flags()
	flags.BoolVarP(&f.follow, "follow", "f", false, "go on until interrupted")
	flags.DurationVar(&f.since, "since", 0, "only what is not older, such as 10m or 2h")
	flags.IntVarP(&f.tail, "tail", "n", 100, "at most so many lines of the past; 0 means all")
	flags.BoolVar(&f.asJSON, "json", false, "print the lines as they are, for programs")
	return cmd
}

func (s *System) logs(ctx context.Context, f logsFlags) error {
	home, err := s.home()
	if err != nil {
		return err
	}
	path := filepath.Join(home, daemon.LogFile)
	lines, end, err := s.past(path, f)
	if errors.Is(err, fs.ErrNotExist) {
		if !f.follow {
			return errors.New("no daemon has run here yet; the first hook starts one")
		}
		err = nil
	}
	if err != nil {
		return fmt.Errorf("read the log: %w", err)
	}
	for _, line := range lines {
		if err := s.logLine(line, f.asJSON); err != nil {
			return err
		}
	}
	if !f.follow {
		return nil
	}
	return s.followLog(ctx, path, end, f.asJSON)
}

// past reads the older log and this one, and returns the lines that are asked
// for and the size of this one.
func (s *System) past(path string, f logsFlags) ([]string, int64, error) {
	var from time.Time
	if f.since > 0 {
		from = s.Clock.Now().Add(-f.since)
	}
	var lines []string
	var end int64
	for _, name := range []string{path + ".1", path} {
		file, err := os.Open(name) //nolint:gosec // the daemon's log
		if errors.Is(err, fs.ErrNotExist) && name != path {
			continue
		}
		if err != nil {
			return nil, 0, err
		}
		scanner := bufio.NewScanner(file)
		scanner.Buffer(nil, maxLogLine)
		end = 0
		for scanner.Scan() {
			end += int64(len(scanner.Bytes())) + 1
			if !from.IsZero() && logTime(scanner.Bytes()).Before(from) {
				continue
			}
			lines = append(lines, scanner.Text())
			if f.tail > 0 && len(lines) > f.tail {
				lines = lines[1:]
			}
		}
		if err := errors.Join(scanner.Err(), file.Close()); err != nil {
			return nil, 0, err
		}
	}
	return lines, end, nil
}

func logTime(line []byte) time.Time {
	var head struct {
		Time time.Time `json:"time"`
	}
	_ = json.Unmarshal(line, &head) // what is no log line has no time
	return head.Time
}

// followLog prints what is added, also after the log was moved aside.
func (s *System) followLog(ctx context.Context, path string, at int64, asJSON bool) error {
	ticker := s.Clock.NewTicker(followEvery)
	defer ticker.Stop()
	var torn strings.Builder
	for {
		select {
		case <-ctx.Done():
			return nil // interrupted, as it is meant to be
		case <-ticker.C():
		}
		added, next, err := readFrom(path, at)
		if err != nil {
			return err
		}
		at = next
		torn.WriteString(added)
		for {
			line, rest, whole := strings.Cut(torn.String(), "\n")
			if !whole {
				break
			}
			torn.Reset()
			torn.WriteString(rest)
			if err := s.logLine(line, asJSON); err != nil {
				return err
			}
		}
	}
}

// readFrom reads what a file has from an offset on. One that is shorter is a
// new one, and one that is gone comes back.
func readFrom(path string, at int64) (string, int64, error) {
	file, err := os.Open(path) //nolint:gosec // the daemon's log
	if errors.Is(err, fs.ErrNotExist) {
		return "", 0, nil
	}
	if err != nil {
		return "", at, fmt.Errorf("read the log: %w", err)
	}
	defer func() { _ = file.Close() }() // it was only read
	if info, err := file.Stat(); err == nil && info.Size() < at {
		at = 0
	}
	data, err := io.ReadAll(io.NewSectionReader(file, at, maxLogLine))
	if err != nil {
		return "", at, fmt.Errorf("read the log: %w", err)
	}
	return string(data), at + int64(len(data)), nil
}

// logLine prints one line for people, or as it is.
func (s *System) logLine(line string, asJSON bool) error {
	var fields map[string]any
	if asJSON || json.Unmarshal([]byte(line), &fields) != nil {
		return s.print("%s\n", safe(line))
	}
	at := logTime([]byte(line)).Local().Format("2006-01-02 15:04:05")
	var text strings.Builder
	fmt.Fprintf(&text, "%s %-5v %v", at, fields["level"], fields["msg"])
	for _, known := range []string{"time", "level", "msg"} {
		delete(fields, known)
	}
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		fmt.Fprintf(&text, "  %s=%v", key, fields[key])
	}
	return s.print("%s\n", safe(text.String()))
}
