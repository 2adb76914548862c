package stream

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/undersong-dev/undersong/internal/redact"
	"github.com/undersong-dev/undersong/internal/redact/jsonline"
	"github.com/undersong-dev/undersong/internal/transcript"
)

// filter redacts a stream of lines, records and text as they come.
type filter struct {
	redactor  *redact.Redactor
	out, errs io.Writer

	records Lines
	number  int64 // of the line that was read last
	open    bool  // the last line has no line end

	// text are the lines of text that wait; they begin at line from, within the
	// element or armour that begins with within.
	text   []byte
	from   int64
	within string
}

// textSize is how much text is scanned at once.
const textSize = 4 << 20

// Copy copies in to out without secrets, private spans and payloads. A line that
// is a record comes out as Redactor.Line gives it, all others are text. For each
// line with findings it writes one to errs, which names rules and never what was
// found.
func Copy(redactor *redact.Redactor, in io.Reader, out, errs io.Writer) error {
	return newFilter(redactor, out, errs).copy(in)
}

func newFilter(redactor *redact.Redactor, out, errs io.Writer) *filter {
	f := &filter{redactor: redactor, out: out, errs: errs}
	f.records = Lines{Redactor: redactor, Emit: func(it *Item) error {
		return errors.Join(f.write(it.Redacted, f.open && it.Number == f.number), f.report(it.Number, it.Findings))
	}}
	return f
}

// copy filters all of in.
func (f *filter) copy(in io.Reader) error {
	closed := &closedReader{in: in}
	lines := transcript.NewLines(closed, 0)
	for lines.Next() {
		f.number++
		line := lines.Line()
		f.open = closed.added && lines.Offset() == closed.n
		if err := f.line(line); err != nil {
			return err
		}
	}
	return errors.Join(lines.Err(), f.records.Flush(true), f.flushText(true))
}

// line takes a line. Within a private span everything is text.
func (f *filter) line(line transcript.Line) error {
	record := line.TooLong || isRecord(line.Raw)
	if record {
		if err := f.flushText(true); err != nil {
			return err
		}
	}
	if !line.TooLong && (!record || f.within != "") {
		return errors.Join(f.records.Flush(true), f.addText(line.Raw))
	}
	if line.TooLong {
		if err := f.say(f.number, "too long to be scanned, withheld"); err != nil {
			return err
		}
	}
	return f.records.Add(f.number, line)
}

// isRecord reports whether a line is a record of a transcript: an object with a
// type.
func isRecord(line []byte) bool {
	line = jsonline.Trim(line)
	record := false
	return len(line) > 0 && line[0] == '{' && jsonline.Members(line, func(key, v jsonline.Value) {
		record = record || jsonline.Is(line, key, "type") && v.Kind == jsonline.String
	}) && record
}

func (f *filter) addText(line []byte) error {
	if len(f.text) == 0 {
		f.from = f.number
	}
	f.text = append(f.text, line...)
	if !f.open {
		f.text = append(f.text, '\n')
	}
	if len(f.text) < textSize {
		return nil
	}
	return f.flushText(false)
}

// flushText redacts the text that waits: all of it at its end, else up to a
// blank line if there is one, since hardly a secret goes on behind that.
func (f *filter) flushText(end bool) error {
	if len(f.text) == 0 {
		return nil
	}
	cut := len(f.text)
	if !end {
		if blank := bytes.LastIndex(f.text, []byte("\n\n")); blank > 0 {
			cut = blank + len("\n\n")
		}
	}
	part := strings.ToValidUTF8(string(f.text[:cut]), "\ufffd")
	redacted, findings := f.redactor.TextFindings(f.within + part)
	text := redacted.String()
	if f.within != "" {
		text = strings.TrimPrefix(text, f.within)
	}
	if _, err := io.WriteString(f.out, text); err != nil {
		return err
	}
	if err := f.reportText(part, findings); err != nil {
		return err
	}
	f.within = opened(f.within+part, findings)
	f.from += int64(bytes.Count(f.text[:cut], []byte("\n")))
	f.text = append(f.text[:0], f.text[cut:]...)
	return nil
}

// What may go on over any number of lines.
const (
	privateOpen = "<private>\n"
	keyOpen     = "-----BEGIN PRIVATE KEY-----\n"
)

// opened returns the beginning of the private span or key within which a text
// ends, "" if there is none: one was found, and nothing closes it.
func opened(text string, findings []redact.Finding) string {
	lower := strings.ToLower(text)
	for _, one := range []struct{ rule, closing, opening string }{
		{"private", "</private", privateOpen},
		{"private-key", "-----end ", keyOpen},
	} {
		closed := strings.LastIndex(lower, one.closing)
		if slices.ContainsFunc(findings, func(f redact.Finding) bool { return f.Rule == one.rule && f.Offset > closed }) {
			return one.opening
		}
	}
	return ""
}

// reportText reports findings in a text by their lines. What could be seen only
// after something else was replaced, or began before, counts for its first line.
func (f *filter) reportText(part string, findings []redact.Finding) error {
	lines := map[int64]redact.Findings{}
	slices.SortFunc(findings, func(a, b redact.Finding) int { return a.Offset - b.Offset })
	at, number := 0, f.from
	for _, one := range findings {
		if offset := min(one.Offset-len(f.within), len(part)); offset > at {
			number += int64(strings.Count(part[at:offset], "\n"))
			at = offset
		}
		if lines[number] == nil {
			lines[number] = redact.Findings{}
		}
		lines[number][one.Rule]++
	}
	for _, number := range slices.Sorted(maps.Keys(lines)) {
		if err := f.report(number, lines[number]); err != nil {
			return err
		}
	}
	return nil
}

// write writes a line, the last one without a line end if it had none.
func (f *filter) write(line []byte, open bool) error {
	if _, err := f.out.Write(line); err != nil || open {
		return err
	}
	_, err := f.out.Write([]byte("\n"))
	return err
}

// report says what was found in a line.
func (f *filter) report(number int64, findings redact.Findings) error {
	if len(findings) == 0 {
		return nil
	}
	var parts []string
	for _, rule := range slices.Sorted(maps.Keys(findings)) {
		parts = append(parts, fmt.Sprintf("%s %d", rule, findings[rule]))
	}
	return f.say(number, strings.Join(parts, ", "))
}

func (f *filter) say(number int64, what string) error {
	_, err := fmt.Fprintf(f.errs, "line %d: %s\n", number, what)
	return err
}

// closedReader reads with a line end at the very end: added says that there was
// none, n is the number of bytes so far.
type closedReader struct {
	in    io.Reader
	n     int64
	last  byte
	added bool
	err   error
}

func (c *closedReader) Read(p []byte) (int, error) {
	if c.err != nil || len(p) == 0 {
		return 0, c.err
	}
	n, err := c.in.Read(p)
	if n > 0 {
		c.n += int64(n)
		c.last = p[n-1]
	}
	c.err = err
	if errors.Is(err, io.EOF) && n == 0 && c.n > 0 && c.last != '\n' {
		p[0], c.added = '\n', true
		c.n++
		return 1, io.EOF
	}
	if errors.Is(err, io.EOF) && n > 0 {
		c.err = nil // asked again, it says so again
	}
	return n, c.err
}
