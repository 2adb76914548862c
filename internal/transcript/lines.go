package transcript

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

// MaxLine is the length in bytes, without LF, of the longest line that is read.
// A longer one is passed over and reported.
const MaxLine = 32 << 20

const (
	readSize  = 256 << 10 // one read; larger ones were not faster
	keepSize  = 1 << 20   // a buffer that a long line has grown is given back
	emptyRead = 100       // reads without bytes or error before giving up
)

// Line is one complete line of a transcript.
type Line struct {
	// Offset is the position of its first byte in the file.
	Offset int64
	// Raw is the line without its LF, with the CR, byte order mark or NUL bytes
	// it may have. It is valid until the next call of Next. It is empty when
	// TooLong is set.
	Raw []byte
	// Length is the number of bytes in the file, LF included.
	Length int64
	// TooLong says that the line has more than MaxLine bytes.
	TooLong bool
}

// Lines reads complete lines from a file that may still grow. The bytes after
// the last LF are never returned: they may be half a record.
//
// Its memory is bounded by MaxLine, whatever the file holds. A file that was cut
// and written anew behind the reader's back needs a new Lines, for this one
// holds the start of a line that is gone: make one for each pass, from the
// offset that the last pass reached.
type Lines struct {
	r      io.Reader
	err    error
	buf    []byte // bytes read and not returned: buf[pos:end]
	pos    int
	end    int
	seen   int   // bytes of buf[pos:end] known to hold no LF
	offset int64 // position in the file of buf[pos], or of the start of a skipped line
	long   int64 // bytes passed over of a line that is too long, 0 outside one
	line   Line
	start  int // of the line in buf, or of what was left of it

	signer *Signer // has seen the bytes before buf[signed]; nil for none
	signed int     // buf[signed:pos] are lines that signer has not seen yet
	skip   *Signer // from the first dropped byte of a too long line on: with that line
}

// NewLines returns a reader of the lines in r, whose first byte lies at the
// given offset of the file, which must be the start of a line. It signs nothing.
func NewLines(r io.Reader, offset int64) *Lines {
	return &Lines{r: r, offset: offset}
}

// NewSignedLines returns a reader of the lines in r that follow the bytes which
// the signer has seen. The signer is its own from now on.
func NewSignedLines(r io.Reader, signer *Signer) *Lines {
	return &Lines{r: r, offset: signer.offset, signer: signer}
}

// Next moves to the next complete line and reports whether there is one. After
// false with a nil Err it may be called again: the file may have grown.
func (l *Lines) Next() bool {
	l.line = Line{}
	if l.err != nil {
		return false
	}
	if l.skip != nil && l.long == 0 {
		l.signer, l.skip = l.skip, nil // the too long line was returned
	}
	for {
		if n := bytes.IndexByte(l.buf[l.pos+l.seen:l.end], '\n'); n >= 0 {
			l.take(l.seen + n)
			return true
		}
		l.seen = l.end - l.pos
		if l.long > 0 || l.seen > MaxLine {
			l.drop()
		}
		n, err := l.fill()
		if n == 0 {
			if err != nil && !errors.Is(err, io.EOF) {
				l.err = fmt.Errorf("read transcript: %w", err)
			}
			return false
		}
	}
}

// take makes the line whose n bytes stand before an LF in the buffer.
func (l *Lines) take(n int) {
	l.line = Line{Offset: l.offset, Length: l.long + int64(n) + 1}
	if l.long > 0 || n > MaxLine {
		l.line.TooLong = true
	} else {
		l.line.Raw = l.buf[l.pos : l.pos+n : l.pos+n]
	}
	l.offset += l.line.Length
	l.start = l.pos
	l.pos += n + 1
	l.seen, l.long = 0, 0
	if l.skip != nil {
		l.skip.add(l.buf[l.start:l.pos])
		l.signed = l.pos
	}
}

// drop passes over what waits of a line that is too long.
func (l *Lines) drop() {
	l.sign()
	if l.signer != nil {
		if l.skip == nil {
			l.skip = l.signer.clone()
		}
		l.skip.add(l.buf[l.pos:l.end])
	}
	l.long += int64(l.seen)
	l.pos, l.end, l.seen, l.signed = 0, 0, 0, 0
}

// sign shows the signer the lines that were returned.
func (l *Lines) sign() {
	if l.signer != nil {
		l.signer.add(l.buf[l.signed:l.pos])
	}
	l.signed = l.pos
}

// fill reads more bytes behind those that wait.
func (l *Lines) fill() (int, error) {
	l.sign()
	waiting := l.end - l.pos
	size := cap(l.buf)
	switch {
	case size-waiting < readSize:
		// More than MaxLine bytes never wait, so this leaves room for a read.
		size = min(max(2*waiting, readSize)+readSize, MaxLine+readSize)
	case size > keepSize && waiting < keepSize/4:
		size = keepSize
	}
	if size != cap(l.buf) {
		buf := make([]byte, size)
		copy(buf, l.buf[l.pos:l.end])
		l.buf = buf
	} else if l.pos > 0 {
		copy(l.buf[:cap(l.buf)], l.buf[l.pos:l.end])
	}
	l.pos, l.end, l.signed = 0, waiting, 0
	for range emptyRead {
		n, err := l.r.Read(l.buf[l.end:min(cap(l.buf), l.end+readSize)])
		l.end += max(n, 0)
		if n > 0 || err != nil {
			return n, err
		}
	}
	return 0, io.ErrNoProgress
}

// Line returns the line that Next has moved to.
func (l *Lines) Line() Line { return l.line }

// Offset returns the position after the last line that was returned: where the
// next pass starts.
func (l *Lines) Offset() int64 { return l.offset }

// Err returns the error that ended reading; reaching the end of the file is
// none.
func (l *Lines) Err() error { return l.err }

// Signature returns the signature of the bytes up to an offset: Offset, or for a
// caller that does not take the last line, that line's. It is made of the bytes
// that were read, not of what the file holds meanwhile: one that was cut and has
// grown again in between does not match.
func (l *Lines) Signature(offset int64) (Signature, error) {
	if l.signer == nil {
		return Signature{}, errors.New("sign transcript: these lines are not signed")
	}
	long := l.skip != nil && l.long == 0 // the line is
	switch {
	case offset == l.offset && long:
		return l.skip.Signature(), nil
	case offset == l.offset:
		return l.signer.with(l.buf[l.signed:l.pos]), nil
	case l.line.Length == 0 || offset != l.line.Offset:
		return Signature{}, fmt.Errorf("sign transcript: offset %d is no border of the last line", offset)
	case long:
		return l.signer.Signature(), nil
	}
	return l.signer.with(l.buf[l.signed:l.start]), nil
}
