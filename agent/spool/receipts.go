package spool

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/undersong-dev/undersong/agent/internal/durable"
	"github.com/undersong-dev/undersong/agent/read"
)

// receiptsFile has one JSON object a line. It outlives the segments.
const receiptsFile = "receipts.jsonl"

// maxReceipts bounds what is read of it: some bytes for each line of a session.
const maxReceipts = 256 << 20

// Receipt says what one segment held, for as long as the session is known here.
type Receipt struct {
	Seq        int64  `json:"seq"`
	Stream     string `json:"stream"`
	Generation int64  `json:"generation,omitempty"`

	// Offset and EndOffset are the bytes of the transcript it speaks of.
	Offset    int64 `json:"offset"`
	EndOffset int64 `json:"endOffset"`

	// First is the number of its first line among all lines of this writer, from
	// 1, Lines how many it has.
	First int64 `json:"first"`
	Lines int64 `json:"lines"`

	// Digest is the sha256 of the segment's uncompressed bytes, Chain the head
	// after it, both in hex: each head follows from the one before and the digest.
	Digest   string          `json:"digest,omitempty"`
	Chain    string          `json:"chain"`
	At       time.Time       `json:"at"`
	Withheld []read.Withheld `json:"withheld,omitempty"`

	// Import says that its lines are of before init, and were brought in.
	Import bool `json:"import,omitempty"`

	// Millis are the times of the lines: the first as Unix milliseconds, each
	// other as the difference to the one before. 0 at first: it is not known.
	Millis []int64 `json:"millis,omitempty"`
}

// Times returns the times of the lines.
func (r *Receipt) Times() []time.Time {
	times := make([]time.Time, 0, len(r.Millis))
	at := int64(0)
	for _, step := range r.Millis {
		if at += step; at == 0 {
			times = append(times, time.Time{})
			continue
		}
		times = append(times, time.UnixMilli(at).UTC())
	}
	return times
}

// receive writes the receipt of the newest segment of next. It comes before the
// state: one that a crash leaves without a state is replaced by the next of its
// number.
func (s *Session) receive(next *State, batch read.Batch) error {
	h, g := batch.Header, next.Segments[len(next.Segments)-1]
	r := Receipt{
		Seq: g.Seq, Stream: h.Stream, Generation: h.Generation, Offset: h.Offset, EndOffset: h.EndOffset,
		First: next.Head.Lines - g.Lines + 1, Lines: g.Lines, Digest: g.Digest, Chain: g.Chain, At: h.At, Withheld: batch.Withheld, Import: h.Import,
	}
	before := int64(0)
	for _, at := range batch.Times {
		millis := int64(0)
		if !at.IsZero() {
			millis = at.UnixMilli()
		}
		r.Millis = append(r.Millis, millis-before)
		before = millis
	}
	return s.appendReceipt(r)
}

func (s *Session) appendReceipt(r Receipt) error {
	line, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("write receipt: %w", err)
	}
	file, err := os.OpenFile(filepath.Join(s.dir, receiptsFile), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("write receipt: %w", withoutPath(err))
	}
	// A line that a crash tore is ended here, and is no receipt.
	_, err = file.Write(append(append([]byte("\n"), line...), '\n'))
	if err == nil {
		err = file.Sync()
	}
	if cerr := file.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("write receipt: %w", withoutPath(err))
	}
	return nil
}

func withoutPath(err error) error {
	if perr, ok := errors.AsType[*fs.PathError](err); ok {
		return perr.Err
	}
	return err
}

// Receipts returns the receipts of a session of a spool folder, by number, the
// newest of each. What is no receipt is left out.
func Receipts(dir, id string) ([]Receipt, error) {
	folder, err := durable.SafeName(strings.ToLower(id))
	if err != nil {
		return nil, ErrSessionID
	}
	data, err := durable.ReadFile(filepath.Join(dir, folder, receiptsFile), maxReceipts)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read receipts: %w", withoutPath(err))
	}
	bySeq := map[int64]Receipt{}
	for line := range bytes.Lines(data) {
		var r Receipt
		if json.Unmarshal(line, &r) == nil && r.Seq > 0 {
			bySeq[r.Seq] = r
		}
	}
	list := make([]Receipt, 0, len(bySeq))
	for _, r := range bySeq {
		list = append(list, r)
	}
	slices.SortFunc(list, func(a, b Receipt) int { return int(a.Seq - b.Seq) })
	return list, nil
}
