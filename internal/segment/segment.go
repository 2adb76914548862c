package segment

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/undersong-dev/undersong/internal/redact"
)

var (
	// ErrUnsupportedVersion means that the segment is of a newer format. It is to be kept
	// until somebody can read it, not to be asked for again.
	ErrUnsupportedVersion = errors.New("segment has a newer format")
	// ErrCorrupt means that the bytes are no segment, or not the one written.
	ErrCorrupt = errors.New("segment is corrupt")
	// ErrTooLarge means that there is more than a segment can hold.
	ErrTooLarge = errors.New("segment is too large")
)

// Encode returns the uncompressed segment of these lines, given without LF. It
// sets h.Format, and refuses, with what is wrong, a header that Decode would:
// better here than at the other end. A segment of more than MaxRaw bytes is
// ErrTooLarge.
func Encode(h Header, lines []redact.Redacted) ([]byte, error) {
	if h.Archived != nil {
		return nil, errors.New("encode segment: only Rewrite makes an archived copy")
	}
	return encode(h, unwrap(lines))
}

func encode(h Header, lines []string) ([]byte, error) {
	h.Format = Format
	h.At = h.At.UTC().Round(0) // one text for one instant
	if err := h.validate(len(lines)); err != nil {
		return nil, fmt.Errorf("encode segment: %w", err)
	}
	head, err := json.Marshal(h)
	if err != nil {
		return nil, fmt.Errorf("encode segment: %w", err)
	}
	return assemble(head, lines)
}

// assemble puts the lines below a header.
func assemble(head []byte, lines []string) ([]byte, error) {
	size := len(head) + 1
	for _, line := range lines {
		if line == "" || strings.Contains(line, "\n") {
			return nil, errors.New("encode segment: a line is empty or has an LF in it")
		}
		size += len(line) + 1
	}
	if size > MaxRaw {
		return nil, fmt.Errorf("encode segment of %d bytes: %w", size, ErrTooLarge)
	}
	raw := append(append(make([]byte, 0, size), head...), '\n')
	for _, line := range lines {
		raw = append(append(raw, line...), '\n')
	}
	return raw, nil
}

func unwrap(lines []redact.Redacted) []string {
	texts := make([]string, len(lines))
	for i, line := range lines {
		texts[i] = line.String()
	}
	return texts
}

// Decode takes an uncompressed segment apart. The lines are without LF and
// share their memory with raw. A newer format is ErrUnsupportedVersion whatever
// else it says; anything that is not as Encode or Rewrite left it is ErrCorrupt.
//
// Decode knows nothing of the chain. Who reads from an inbox compares
// previous.Next(raw) with the announced head, and refuses a header that has
// Archived: there it can only be forged.
func Decode(raw []byte) (Header, [][]byte, error) {
	head, body, err := split(raw)
	if err != nil {
		return Header{}, nil, err
	}
	h, err := decodeHeader(head, bytes.Count(body, []byte{'\n'}))
	if err != nil {
		return Header{}, nil, err
	}
	lines := make([][]byte, 0, len(h.Offsets))
	for rest := body; len(rest) > 0; {
		line, after, whole := bytes.Cut(rest, []byte{'\n'})
		if !whole || len(line) == 0 {
			return Header{}, nil, corrupt("a line is empty or torn")
		}
		lines, rest = append(lines, line), after
	}
	if a := h.Archived; a != nil && Sum(sha256.Sum256(body)).String() != a.Digest {
		return Header{}, nil, corrupt("the lines are not those that archived names")
	}
	return h, lines, nil
}

// split separates the header line from the rest, and newer formats from
// corruption. It allocates nothing for the body.
func split(raw []byte) (head, body []byte, err error) {
	if len(raw) > MaxRaw {
		return nil, nil, fmt.Errorf("decode segment of %d bytes: %w", len(raw), ErrTooLarge)
	}
	head, body, ok := bytes.Cut(raw, []byte{'\n'})
	if !ok {
		return nil, nil, corrupt("there is no header line")
	}
	var version struct {
		Format int64 `json:"format"`
	}
	if err := json.Unmarshal(head, &version); err != nil {
		return nil, nil, corrupt("the header is no JSON object with a format")
	}
	if version.Format > Format {
		return nil, nil, fmt.Errorf("decode segment of format %d: %w", version.Format, ErrUnsupportedVersion)
	}
	return head, body, nil
}

// decodeHeader decodes the header of a segment of so many lines. The lists are
// looked at before they are decoded, so that what is allocated is a small
// multiple of the header's own size.
func decodeHeader(head []byte, lines int) (Header, error) {
	var wire struct {
		Header
		Findings json.RawMessage `json:"findings"`
		Withheld json.RawMessage `json:"withheld"`
		Offsets  json.RawMessage `json:"offsets"`
		Indexes  json.RawMessage `json:"indexes"`
	}
	if err := json.Unmarshal(head, &wire); err != nil {
		return Header{}, corrupt("the header's members are of other types")
	}
	h := wire.Header
	if longer(wire.Findings, MaxFindings, 1) || longer(wire.Withheld, MaxWithheld, 5) {
		return Header{}, corrupt("the header's lists are too long")
	}
	var ok [4]bool
	h.Offsets, ok[0] = decodeNumbers(wire.Offsets, lines)
	h.Indexes, ok[1] = decodeNumbers(wire.Indexes, lines)
	ok[2] = wire.Findings == nil || json.Unmarshal(wire.Findings, &h.Findings) == nil
	ok[3] = wire.Withheld == nil || json.Unmarshal(wire.Withheld, &h.Withheld) == nil
	if ok != [4]bool{true, true, true, true} {
		return Header{}, corrupt("the header's lists do not match its lines")
	}
	if err := h.validate(lines); err != nil {
		return Header{}, corrupt(err.Error())
	}
	h.At = h.At.UTC()
	return h, nil
}

// decodeNumbers decodes an array of exactly n whole numbers.
func decodeNumbers(text json.RawMessage, n int) ([]int64, bool) {
	if len(text) == 0 {
		return nil, n == 0
	}
	if n == 0 || bytes.Count(text, []byte{','}) != n-1 {
		return nil, false
	}
	numbers := make([]int64, 0, n)
	if err := json.Unmarshal(text, &numbers); err != nil || len(numbers) != n {
		return nil, false
	}
	return numbers, true
}

// longer reports, without decoding it, that a list has more than n entries of so
// many members each. A few bytes of JSON become a hundred of memory.
func longer(text json.RawMessage, n, members int) bool {
	return bytes.Count(text, []byte{','}) >= n*members
}

func corrupt(why string) error {
	return fmt.Errorf("decode segment: %s: %w", why, ErrCorrupt)
}

// Head returns the head of the chain after a segment that was decoded from raw,
// going by its own header. For an archived copy that is the head after the
// segment as it came. It is the head in the object's name, or the object is not
// what its name says.
func (h Header) Head(raw []byte) (Sum, error) {
	previous, err := ParseSum(h.PreviousChain)
	if err != nil {
		return Sum{}, fmt.Errorf("previousChain: %w", err)
	}
	if h.Archived == nil {
		return previous.Next(raw), nil
	}
	original, err := ParseSum(h.Archived.Original)
	if err != nil {
		return Sum{}, fmt.Errorf("archived: %w", err)
	}
	return previous.NextDigest(original), nil
}

// Rewrite returns a copy of an uncompressed segment with other lines, one for
// each that it has: what the archive keeps when the second pass found something
// that the first had missed. The header stays as it came, byte by byte, and
// gains Archived; a copy that is rewritten again keeps the digest of the first.
func Rewrite(raw []byte, lines []redact.Redacted) ([]byte, error) {
	return rewrite(raw, unwrap(lines))
}

func rewrite(raw []byte, lines []string) ([]byte, error) {
	h, old, err := Decode(raw)
	if err != nil {
		return nil, fmt.Errorf("rewrite: %w", err)
	}
	if len(lines) != len(old) {
		return nil, fmt.Errorf("rewrite segment: %d lines in place of %d", len(lines), len(old))
	}
	head, _, _ := bytes.Cut(raw, []byte{'\n'})
	head = bytes.TrimRight(head, " \t\r")
	archived := Archived{Original: Sum(sha256.Sum256(raw)).String()}
	tail := "}"
	if h.Archived != nil {
		archived.Original = h.Archived.Original
		if tail, err = archivedTail(*h.Archived); err != nil {
			return nil, err
		}
	}
	kept, ok := bytes.CutSuffix(head, []byte(tail))
	if !ok {
		return nil, fmt.Errorf("rewrite: %w", corrupt("archived is not the last member"))
	}
	digest := sha256.New()
	for _, line := range lines {
		digest.Write([]byte(line + "\n"))
	}
	archived.Digest = Sum(digest.Sum(nil)).String()
	archived.Lines = int64(len(lines))
	if tail, err = archivedTail(archived); err != nil {
		return nil, err
	}
	return assemble(append(bytes.Clone(kept), tail...), lines)
}

// archivedTail is how the header of an archived copy ends.
func archivedTail(a Archived) (string, error) {
	text, err := json.Marshal(a)
	if err != nil {
		return "", fmt.Errorf("rewrite segment: %w", err)
	}
	return `,"archived":` + string(text) + "}", nil
}
