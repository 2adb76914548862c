package transcript

import (
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
// io.ErrUnexpectedEOF when r is shorter.
func Sign(r io.ReaderAt, offset int64) (Signature, error) {
	if offset < 0 {
		return Signature{}, errors.New("sign transcript: negative offset")
	}
	head, err := sum(r, 0, min(offset, headSize))
	if err != nil {
		return Signature{}, err
	}
	size := min(offset, tailSize)
	tail, err := sum(r, offset-size, size)
	if err != nil {
		return Signature{}, err
	}
	return Signature{Head: head, Tail: tail, Offset: offset}, nil
}

// Matches reports whether r still begins with the signed bytes. A file shorter
// than Offset does not match. The zero Signature matches every file.
func (s Signature) Matches(r io.ReaderAt) (bool, error) {
	if s == (Signature{}) {
		return true, nil
	}
	now, err := Sign(r, s.Offset)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return now == s, nil
}

func sum(r io.ReaderAt, from, size int64) (string, error) {
	h := sha256.New()
	n, err := io.Copy(h, io.NewSectionReader(r, from, size))
	if err != nil {
		return "", fmt.Errorf("sign transcript: %w", err)
	}
	if n < size {
		return "", fmt.Errorf("sign transcript: %w", io.ErrUnexpectedEOF)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
