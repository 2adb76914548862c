package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strconv"

	"github.com/undersong-dev/undersong/internal/transcript"
)

// spill is text that is written piece by piece. It keeps its beginning in memory
// and the rest in a temporary file: a transcript may be larger than memory.
type spill struct {
	buf  bytes.Buffer
	file transcript.Scratch
	size int64 // of the file
}

// spillSize is how much of a text stays in memory.
const spillSize = 256 << 10

// scratch makes a temporary file that no other user of the machine can read.
func scratch() (transcript.Scratch, error) {
	file, err := os.CreateTemp("", "undersong-transcript-*")
	return scratchFile{file}, err
}

type scratchFile struct{ *os.File }

// Close drops the file.
func (f scratchFile) Close() error { return errors.Join(f.File.Close(), os.Remove(f.Name())) }

// flush moves what is in memory to the file, if it is much.
func (s *spill) flush() error {
	if s.buf.Len() < spillSize {
		return nil
	}
	if s.file == nil {
		var err error
		if s.file, err = scratch(); err != nil {
			return err
		}
	}
	n, err := s.file.WriteAt(s.buf.Bytes(), s.size)
	s.size += int64(n)
	if s.buf.Reset(); s.buf.Cap() > 4*spillSize {
		s.buf = bytes.Buffer{} // a long piece has grown it
	}
	return err
}

// reader reads the whole text.
func (s *spill) reader() io.Reader {
	rest := bytes.NewReader(s.buf.Bytes())
	if s.file == nil {
		return rest
	}
	return io.MultiReader(io.NewSectionReader(s.file, 0, s.size), rest)
}

// len is the size of the text.
func (s *spill) len() int64 { return s.size + int64(s.buf.Len()) }

// close drops the text.
func (s *spill) close() error {
	if s.file == nil {
		return nil
	}
	file := s.file
	s.file = nil
	return file.Close()
}

// list is a JSON array or object that is written piece by piece. The zero list
// counts only.
type list struct {
	// open and end are the brackets; keep says that the pieces are wanted.
	open, end byte
	keep      bool

	n int64
	spill
}

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
	return l.flush()
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
	return l.flush()
}

// writeTo writes the whole list.
func (l *list) writeTo(w io.Writer) error {
	if _, err := w.Write([]byte{l.open}); err != nil {
		return err
	}
	if _, err := io.Copy(w, l.reader()); err != nil {
		return err
	}
	_, err := w.Write([]byte{l.end})
	return err
}
