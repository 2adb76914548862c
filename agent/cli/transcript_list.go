package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strconv"
)

// list is a JSON array or object that is written piece by piece. It keeps its
// beginning in memory and the rest in a temporary file, which no other user of
// the machine can read: a transcript may be larger than memory. The zero list
// counts only.
type list struct {
	// open and end are the brackets; keep says that the pieces are wanted.
	open, end byte
	keep      bool

	n    int64
	buf  bytes.Buffer
	file *os.File
}

// listSize is how much of a list stays in memory.
const listSize = 1 << 20

func (l *list) add(value string) error { return l.piece(value) }

// entry adds a member of an object.
func (l *list) entry(name, value string) error { return l.piece(name, value) }

func (l *list) piece(parts ...string) error {
	l.n++
	if !l.keep {
		return nil
	}
	if l.n > 1 {
		l.buf.WriteByte(',')
	}
	for i, part := range parts {
		if i > 0 {
			l.buf.WriteByte(':')
		}
		text, err := json.Marshal(part)
		if err != nil {
			return err
		}
		l.buf.Write(text)
	}
	return l.spill()
}

// number adds a number.
func (l *list) number(n int64) error {
	l.n++
	if !l.keep {
		return nil
	}
	if l.n > 1 {
		l.buf.WriteByte(',')
	}
	l.buf.WriteString(strconv.FormatInt(n, 10))
	return l.spill()
}

// spill moves what is in memory to the file, if it is much.
func (l *list) spill() error {
	if l.buf.Len() < listSize {
		return nil
	}
	if l.file == nil {
		var err error
		if l.file, err = os.CreateTemp("", "undersong-transcript-*"); err != nil {
			return err
		}
	}
	_, err := l.buf.WriteTo(l.file)
	return err
}

// writeTo writes the whole list.
func (l *list) writeTo(w io.Writer) error {
	if _, err := w.Write([]byte{l.open}); err != nil {
		return err
	}
	if l.file != nil {
		if _, err := l.file.Seek(0, io.SeekStart); err != nil {
			return err
		}
		if _, err := io.Copy(w, l.file); err != nil {
			return err
		}
	}
	if _, err := l.buf.WriteTo(w); err != nil {
		return err
	}
	_, err := w.Write([]byte{l.end})
	return err
}

// close drops the list.
func (l *list) close() error {
	if l.file == nil {
		return nil
	}
	return errors.Join(l.file.Close(), os.Remove(l.file.Name()))
}
