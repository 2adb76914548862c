package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/undersong-dev/undersong/internal/segment"
	"github.com/undersong-dev/undersong/internal/transcript"
)

func (s *System) transcriptCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "transcript",
		Short: "Look at transcripts as a team's memory does",
		Long: `Look at transcripts of coding sessions as a team's memory does, on this machine
alone: these commands ask no server, need no configuration, and change no
transcript.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(s.inspectCommand(), s.renderCommand())
	return cmd
}

// origin says whose talk a file holds.
type origin struct {
	// path opens the file; name is how the user knows it.
	path, name string

	// session is "" where no record names one.
	session string
	stream  string
	kind    transcript.StreamKind
}

var agentFile = regexp.MustCompile(`^` + segment.AgentPrefix + `([A-Za-z0-9][A-Za-z0-9_-]{0,63})\.jsonl$`)

// Bounds of the look for a session's id at the head of a file.
const (
	headLines = 1000
	headBytes = 64 << 20
)

// identify looks whose talk a file holds: an agent's if it is named like one,
// the session's own otherwise. The session is that of the file's name, as Claude
// Code names its files, or of the first record of a talk, or of the first that
// names one.
func identify(path, name string) (origin, error) {
	o := origin{path: path, name: filepath.ToSlash(name), stream: segment.MainStream}
	base := filepath.Base(path)
	if agentFile.MatchString(base) {
		o.kind, o.stream = transcript.AgentStream, strings.TrimSuffix(base, ".jsonl")
	} else if id, err := uuid.Parse(strings.TrimSuffix(base, ".jsonl")); err == nil {
		o.session = id.String()
		return o, nil
	}
	file, _, err := openTranscript(path)
	if err != nil {
		return o, err
	}
	defer func() { _ = file.Close() }() // nothing was written
	lines := transcript.NewLines(file, 0)
	for n := 0; n < headLines && lines.Offset() < headBytes && lines.Next(); n++ {
		record, err := transcript.Parse(lines.Line().Raw)
		if err != nil || record.SessionID == "" {
			continue
		}
		if record.UUID != "" {
			o.session = record.SessionID
			break
		}
		if o.session == "" {
			o.session = record.SessionID
		}
	}
	return o, lines.Err()
}

// openTranscript opens a regular file: anything else may never end.
func openTranscript(path string) (*os.File, fs.FileInfo, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, nil, fmt.Errorf("open %s: %w", path, errors.New("not a regular file"))
	}
	file, err := os.Open(path) //nolint:gosec // the user named it
	if err != nil {
		return nil, nil, err
	}
	return file, info, nil
}

// found are the transcripts at a path.
type found struct {
	origins []origin
	// others counts files that lie beside those of subagents, end in .jsonl, and
	// are no transcripts.
	others int
	// problems are why some of a folder's files could not be looked at.
	problems []error
}

// transcripts lists the transcripts at a path: the file itself, or all that lie
// in a folder and below, in the order of their names.
func transcripts(path string) (found, error) {
	var all found
	info, err := os.Stat(path)
	if err != nil {
		return all, err
	}
	if !info.IsDir() {
		o, err := identify(path, path)
		all.origins = []origin{o}
		return all, err
	}
	err = filepath.WalkDir(path, func(at string, entry fs.DirEntry, err error) error {
		if err != nil {
			all.problems = append(all.problems, err) // the rest can still be read
			return nil
		}
		if !entry.Type().IsRegular() || filepath.Ext(at) != ".jsonl" {
			return nil
		}
		name, err := filepath.Rel(path, at)
		if err != nil {
			return err
		}
		below := "/" + filepath.ToSlash(filepath.Dir(name)) + "/"
		if strings.Contains(below, "/subagents/") && !agentFile.MatchString(entry.Name()) {
			all.others++
			return nil
		}
		o, err := identify(at, name)
		if err != nil {
			all.problems = append(all.problems, err)
			return nil
		}
		all.origins = append(all.origins, o)
		return nil
	})
	return all, err
}
