package stream

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/undersong-dev/undersong/internal/redact"
	"github.com/undersong-dev/undersong/internal/redact/jsonline"
	"github.com/undersong-dev/undersong/internal/transcript"
)

// Item is one line of a transcript that is not blank.
type Item struct {
	// Number is that of the line in its file, from 1; Line.Raw is its own.
	Number int64
	Line   transcript.Line

	// Record is the line as it was written, Err why it is none.
	Record transcript.Record
	Err    error

	// Redacted is the line as it may leave the machine, Clean that as a record.
	// Stub says of what it is a stub, "" if of nothing.
	Redacted []byte
	Clean    transcript.Record
	Stub     string

	// Findings are what was redacted in it.
	Findings redact.Findings
}

// Bounds of the lines that are redacted together.
const (
	filterLines = 64
	filterBytes = 1 << 20
)

// Lines redacts lines as they come and hands them on in their order, some
// at a time, so that a token is seen of which one record has the beginning and
// the next one the end. It holds no more than its bounds and one line.
type Lines struct {
	Redactor *redact.Redactor
	// Emit gets each line. An error of it ends the filtering.
	Emit func(*Item) error

	items []*Item
	size  int
}

// Add takes a line. What it points to may change afterwards.
func (f *Lines) Add(number int64, line transcript.Line) error {
	in := line.Raw
	if line.TooLong {
		// The stub of a line that cannot be scanned.
		in = fmt.Appendf(nil, `{"type":%q,"of":"too-long","bytes":%d}`, redact.StubType, line.Length)
	}
	in = bytes.Clone(in)
	if !line.TooLong {
		line.Raw = in // nobody writes to it
	}
	f.items = append(f.items, &Item{Number: number, Line: line, Redacted: in})
	f.size += len(in)
	if len(f.items) >= filterLines || f.size >= filterBytes {
		return f.Flush(false)
	}
	return nil
}

// Flush hands on what it holds. Until the end it keeps the newest line that is
// no stub, and what follows it: the next one may go on with its last word. That
// is then redacted once more, which changes nothing but there.
func (f *Lines) Flush(end bool) error {
	lines := make([][]byte, len(f.items))
	for i, it := range f.items {
		lines[i] = it.Redacted
	}
	out, found := f.Redactor.Lines(lines)
	keep := len(out)
	f.size = 0
	for i, it := range f.items {
		if string(it.Redacted) != out[i].String() { // else one copy of a long line is enough
			it.Redacted = []byte(out[i].String())
		}
		it.Stub = stubOf(it.Redacted)
		it.Findings = merge(it.Findings, found[i])
		if it.Stub == "" && !end {
			keep = i
		}
	}
	if keep == 0 {
		keep = len(out) // the rest is stubs, and more than enough of them
	}
	ready := f.items[:keep]
	f.items = slices.Clone(f.items[keep:])
	for _, it := range f.items {
		f.size += len(it.Redacted)
	}
	for _, it := range ready {
		if err := it.parse(); err != nil {
			return err
		}
		if err := f.Emit(it); err != nil {
			return err
		}
	}
	return nil
}

// parse reads the two forms of the line.
func (it *Item) parse() error {
	if it.Line.TooLong {
		it.Err = transcript.ErrNotObject
	} else {
		it.Record, it.Err = transcript.Parse(it.Line.Raw)
	}
	var err error
	if it.Clean, err = transcript.Parse(it.Redacted); err != nil {
		return fmt.Errorf("read what was redacted in line %d: %w", it.Number, err)
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
