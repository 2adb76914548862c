package transcript

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
)

const (
	headSize = 1 << 10
	tailSize = 64 << 10
)

// Signature tells whether a file still begins with the bytes that were read. A
// file that was only appended to matches; one in which a record was cut out, or
// that another file has taken the place of, does not. Bytes in the middle that
// changed without moving what follows are not noticed.
type Signature struct {
	// Head is the SHA-256, in hexadecimal, of the first 1 KiB before Offset, Tail
	// that of the last 64 KiB before it; less where Offset is smaller.
	Head string `json:"head"`
	Tail string `json:"tail"`
	// Offset is the number of bytes that were read.
	Offset int64 `json:"offset"`
}

// Sign returns the signature of the first offset bytes of r. It fails with
// io.ErrUnexpectedEOF when r is shorter. A file that is being read is better
// signed by what was read of it: see NewSignedLines.
func Sign(r io.ReaderAt, offset int64) (Signature, error) {
	if offset < 0 {
		return Signature{}, errors.New("sign transcript: negative offset")
	}
	s := &Signer{offset: offset}
	var err error
	if s.head, err = bytesAt(r, 0, min(offset, headSize)); err != nil {
		return Signature{}, err
	}
	size := min(offset, tailSize)
	if s.tail, err = bytesAt(r, offset-size, size); err != nil {
		return Signature{}, err
	}
	return s.Signature(), nil
}

// Matches reports whether r still begins with the signed bytes. A file shorter
// than Offset does not match. The zero Signature matches every file.
func (s Signature) Matches(r io.ReaderAt) (bool, error) {
	_, ok, err := s.Resume(r)
	return ok, err
}

func bytesAt(r io.ReaderAt, from, size int64) ([]byte, error) {
	b := make([]byte, size)
	if n, err := r.ReadAt(b, from); int64(n) < size {
		if err == nil || errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, fmt.Errorf("sign transcript: %w", err)
	}
	return b, nil
}

// Signer makes the signature of a file's first bytes while they are read. It
// keeps no more of them than the signature covers.
type Signer struct {
	offset int64
	head   []byte // the first headSize bytes
	tail   []byte // ends in the last tailSize bytes
}

// Resume returns a Signer for the bytes behind the signed ones, and reports
// whether r still begins with those; the Signer is nil if it does not. The zero
// Signature begins every file.
func (s Signature) Resume(r io.ReaderAt) (*Signer, bool, error) {
	signer := &Signer{offset: s.Offset}
	if s == (Signature{}) {
		return signer, true, nil
	}
	if s.Offset < 0 {
		return nil, false, errors.New("sign transcript: negative offset")
	}
	var err error
	size := min(s.Offset, tailSize)
	if signer.head, err = bytesAt(r, 0, min(s.Offset, headSize)); err == nil {
		signer.tail, err = bytesAt(r, s.Offset-size, size)
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, false, nil
	}
	if err != nil || signer.Signature() != s {
		return nil, false, err
	}
	return signer, true, nil
}

// Signature returns the signature of all bytes that the Signer has seen.
func (s *Signer) Signature() Signature {
	head, tail := sha256.Sum256(s.head), sha256.Sum256(s.last())
	return Signature{Head: hex.EncodeToString(head[:]), Tail: hex.EncodeToString(tail[:]), Offset: s.offset}
}

// with returns the signature that the Signer has after it has seen b, too.
func (s *Signer) with(b []byte) Signature {
	if len(b) == 0 {
		return s.Signature()
	}
	s = s.clone()
	s.add(b)
	return s.Signature()
}

func (s *Signer) add(b []byte) {
	s.offset += int64(len(b))
	if n := min(headSize-len(s.head), len(b)); n > 0 {
		s.head = append(s.head, b[:n]...)
	}
	switch {
	case len(b) >= tailSize:
		s.tail = append(s.tail[:0], b[len(b)-tailSize:]...)
	case len(s.tail)+len(b) > 2*tailSize:
		s.tail = append(append(s.tail[:0], s.last()...), b...)
	default:
		s.tail = append(s.tail, b...)
	}
}

func (s *Signer) last() []byte { return s.tail[max(0, len(s.tail)-tailSize):] }

func (s *Signer) clone() *Signer {
	return &Signer{offset: s.offset, head: bytes.Clone(s.head), tail: bytes.Clone(s.last())}
}
