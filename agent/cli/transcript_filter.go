package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/undersong-dev/undersong/internal/redact"
	"github.com/undersong-dev/undersong/internal/redact/jsonline"
	"github.com/undersong-dev/undersong/internal/segment"
	"github.com/undersong-dev/undersong/internal/transcript"
)

// item is one line of a transcript that is not blank.
type item struct {
	// number is that of the line in its file, from 1; line.Raw is its own.
	number int64
	line   transcript.Line

	// record is the line as it was written, err why it is none.
	record transcript.Record
	err    error

	// clean is the line as it may leave the machine, stub says of what it then
	// is a stub, "" if of nothing.
	clean transcript.Record
	stub  string

	// findings are what was redacted in it.
	findings redact.Findings

	redacted []byte
}

// Bounds of the lines that are redacted together.
const (
	filterLines = 64
	filterBytes = 1 << 20
)

// lineFilter redacts lines as they come and hands them on in their order, some
// at a time, so that a token is seen of which one record has the beginning and
// the next one the end. It holds no more than its bounds and one line.
type lineFilter struct {
	redactor *redact.Redactor
	emit     func(*item) error

	items []*item
	size  int
}

// add takes a line. What it points to may change afterwards.
func (f *lineFilter) add(number int64, line transcript.Line) error {
	in := line.Raw
	if line.TooLong {
		// The stub of a line that cannot be scanned.
		in = fmt.Appendf(nil, `{"type":%q,"of":"too-long","bytes":%d}`, redact.StubType, line.Length)
	}
	in = bytes.Clone(in)
	if !line.TooLong {
		line.Raw = in // nobody writes to it
	}
	f.items = append(f.items, &item{number: number, line: line, redacted: in})
	f.size += len(in)
	if len(f.items) >= filterLines || f.size >= filterBytes {
		return f.flush(false)
	}
	return nil
}

// flush hands on what it holds. Until the end it keeps the newest line that is
// no stub, and what follows it: the next one may go on with its last word. That
// is then redacted once more, which changes nothing but there.
func (f *lineFilter) flush(end bool) error {
	lines := make([][]byte, len(f.items))
	for i, it := range f.items {
		lines[i] = it.redacted
	}
	out, found := f.redactor.Lines(lines)
	keep := len(out)
	f.size = 0
	for i, it := range f.items {
		if string(it.redacted) != out[i].String() { // else one copy of a long line is enough
			it.redacted = []byte(out[i].String())
		}
		it.stub = stubOf(it.redacted)
		it.findings = merge(it.findings, found[i])
		if it.stub == "" && !end {
			keep = i
		}
	}
	if keep == 0 {
		keep = len(out) // the rest is stubs, and more than enough of them
	}
	ready := f.items[:keep]
	f.items = slices.Clone(f.items[keep:])
	for _, it := range f.items {
		f.size += len(it.redacted)
	}
	for _, it := range ready {
		if err := it.parse(); err != nil {
			return err
		}
		if err := f.emit(it); err != nil {
			return err
		}
	}
	return nil
}

// parse reads the two forms of the line.
func (it *item) parse() error {
	if it.line.TooLong {
		it.err = transcript.ErrNotObject
	} else {
		it.record, it.err = transcript.Parse(it.line.Raw)
	}
	var err error
	if it.clean, err = transcript.Parse(it.redacted); err != nil {
		return fmt.Errorf("read what was redacted in line %d: %w", it.number, err)
	}
	return nil
}

func merge(a, b redact.Findings) redact.Findings {
	if a == nil {
		return b
	}
	for rule, n := range b {
		a[rule] += n
	}
	return a
}

// stubOf says what a redacted line is a stub of, "" if it is none.
func stubOf(line []byte) string {
	if !bytes.HasPrefix(line, []byte(`{"type":"`+redact.StubType+`"`)) {
		return ""
	}
	of := ""
	jsonline.Members(line, func(key, v jsonline.Value) {
		if jsonline.Is(line, key, "of") {
			of = jsonline.Text(line, v)
		}
	})
	return of
}

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
func (p *pass) read(redactor *redact.Redactor, each func(*item) error) error {
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
	filter := lineFilter{redactor: redactor, emit: each}
	for lines.Next() {
		p.cursor.Lines++
		line := lines.Line()
		if !line.TooLong && len(jsonline.Trim(line.Raw)) == 0 {
			continue
		}
		if err := filter.add(p.cursor.Lines, line); err != nil {
			return err
		}
	}
	if err := errors.Join(lines.Err(), filter.flush(true)); err != nil {
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
