package cli

import (
	"errors"
	"fmt"
	"io"

	"github.com/undersong-dev/undersong/internal/redact"
	"github.com/undersong-dev/undersong/internal/redact/jsonline"
	"github.com/undersong-dev/undersong/internal/redact/stream"
	"github.com/undersong-dev/undersong/internal/segment"
	"github.com/undersong-dev/undersong/internal/transcript"
)

// pass is one reading of a transcript: from its beginning, or from where a
// cursor stands, to its last complete line.
type pass struct {
	origin

	// cursor is where the reading began and, once it is done, where it ended.
	cursor cursor
	// old says that it began behind what was read before.
	old bool

	// size is that of the file when the reading was done.
	size int64

	// from is where it began.
	from int64

	// tools are the calls right before the cursor.
	tools transcript.Tools
}

// read hands each line that is not blank to the function.
func (p *pass) read(redactor *redact.Redactor, each func(*stream.Item) error) error {
	file, _, err := openTranscript(p.path)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }() // nothing was written
	p.from = p.cursor.Signature.Offset
	signer, fits, err := p.cursor.Signature.Resume(file)
	if err != nil {
		return err
	}
	if !fits {
		return fmt.Errorf("read %s: %w", p.name, errors.New("the file changes while it is read; try again"))
	}
	if err := p.warm(file); err != nil {
		return err
	}
	if _, err := file.Seek(p.cursor.Signature.Offset, io.SeekStart); err != nil {
		return err
	}
	lines := transcript.NewSignedLines(file, signer)
	filter := stream.Lines{Redactor: redactor, Emit: each}
	for lines.Next() {
		p.cursor.Lines++
		line := lines.Line()
		if !line.TooLong && len(jsonline.Trim(line.Raw)) == 0 {
			continue
		}
		if err := filter.Add(p.cursor.Lines, line); err != nil {
			return err
		}
	}
	if err := errors.Join(lines.Err(), filter.Flush(true)); err != nil {
		return err
	}
	if p.cursor.Signature, err = lines.Signature(lines.Offset()); err != nil {
		return err
	}
	info, err := file.Stat()
	if err != nil {
		return err
	}
	p.size = max(info.Size(), lines.Offset())
	return nil
}

// warm reads the calls of tools right before the cursor: results that follow it
// name only their calls.
func (p *pass) warm(file io.ReaderAt) error {
	offset := p.cursor.Signature.Offset
	from := max(0, offset-segment.CloseAt)
	lines := transcript.NewLines(io.NewSectionReader(file, from, offset-from), from)
	if from > 0 {
		lines.Next() // it begins within a line
	}
	for lines.Next() {
		if record, err := transcript.Parse(lines.Line().Raw); err == nil {
			p.tools.Fold(record)
		}
	}
	return lines.Err()
}
