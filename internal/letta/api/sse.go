package api

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

const (
	// maxEvent bounds one event: a message of the agent, or a tool's return
	// that we do not read.
	maxEvent = 8 << 20
	// maxStream bounds a whole turn.
	maxStream = 64 << 20
)

var (
	errEventTooLong  = errors.New("an event is too long")
	errStreamTooLong = errors.New("the stream is too long")
)

// event is one server-sent event. data is valid until the next one is read.
type event struct {
	name string // "" where none was given
	data []byte
}

// events reads server-sent events. It keeps at most one of them in memory.
type events struct {
	r     *bufio.Reader
	line  []byte
	data  []byte
	total int
	first bool
}

func newEvents(r io.Reader) *events {
	return &events{r: bufio.NewReaderSize(r, 32<<10), first: true}
}

// next returns the next event that has data. io.EOF is the end; an event that
// was not ended by an empty line before it does not count, as the standard
// has it, because it may be cut. Comments, ids and retry times are skipped.
func (e *events) next() (event, error) {
	var ev event
	e.data = e.data[:0]
	has := false
	for {
		line, err := e.readLine()
		if err != nil {
			return event{}, err
		}
		if len(line) == 0 {
			if has {
				ev.data = e.data
				return ev, nil
			}
			ev = event{}
			continue
		}
		field, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(field) {
		case "event":
			ev.name = string(value)
		case "data":
			if has {
				e.data = append(e.data, '\n')
			}
			has = true
			if len(e.data)+len(value) > maxEvent {
				return event{}, errEventTooLong
			}
			e.data = append(e.data, value...)
		}
	}
}

// readLine returns a line without its end. Lines end in LF or CR LF; the
// standard's lone CR is not sent by any server we know. A last line without an
// end is io.EOF.
func (e *events) readLine() ([]byte, error) {
	e.line = e.line[:0]
	for {
		part, err := e.r.ReadSlice('\n')
		e.total += len(part)
		if e.total > maxStream {
			return nil, errStreamTooLong
		}
		if len(e.line)+len(part) > maxEvent {
			return nil, errEventTooLong
		}
		e.line = append(e.line, part...)
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if err != nil {
			return nil, err
		}
		break
	}
	line := bytes.TrimSuffix(bytes.TrimSuffix(e.line, []byte("\n")), []byte("\r"))
	if e.first {
		e.first = false
		line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
	}
	return line, nil
}
