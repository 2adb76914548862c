package segment

import (
	"errors"
	"fmt"
	"sync"

	"github.com/klauspost/compress/zstd"
)

const (
	// MaxRaw is the most bytes a segment has uncompressed: one line of 32 MiB,
	// the longest that leaves a workstation, and room for its header. It is
	// what stops an object of a few kilobytes that opens to gigabytes.
	MaxRaw = 34 << 20
	// MaxPacked is the most bytes a packed segment has. What cannot be
	// compressed grows a little, never by the 2 MiB between the two.
	MaxPacked = 36 << 20
	// CloseAt is the number of redacted bytes of lines at which a writer closes
	// a segment and starts the next. A longer line stands alone.
	CloseAt = 4 << 20
)

// Coders are kept between bursts only: what a pool holds, the next collections
// drop, so that an idle daemon does not keep their tables of some megabytes.
var (
	encoders = sync.Pool{New: func() any {
		// Better compression costs half the speed of the default and is still
		// far faster than segments come to be; the archive is kept for months.
		e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedBetterCompression), zstd.WithEncoderConcurrency(1))
		if err != nil {
			panic(err) // only wrong options fail, and these are constants
		}
		return e
	}}
	decoders = sync.Pool{New: func() any {
		// Unpack's own slice is the limit, see there.
		d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecodeAllCapLimit(true))
		if err != nil {
			panic(err) // only wrong options fail, and these are constants
		}
		return d
	}}
)

// Pack compresses an uncompressed segment. The same bytes give the same bytes,
// so a segment that is sent twice is the same object.
func Pack(raw []byte) []byte {
	e := encoders.Get().(*zstd.Encoder)
	defer encoders.Put(e)
	return e.EncodeAll(raw, nil)
}

// Unpack is the inverse of Pack. It gives up with ErrTooLarge as soon as there
// are more than MaxRaw bytes, more than the frame admits, or more than MaxPacked
// in packed, and with ErrCorrupt for what is not whole, intact zstd.
func Unpack(packed []byte) ([]byte, error) {
	if len(packed) > MaxPacked {
		return nil, fmt.Errorf("unpack segment of %d bytes: %w", len(packed), ErrTooLarge)
	}
	// The result is allocated once, as long as the frame says it is, and the
	// decoder stops at its end. Growing with the data would let a megabyte of
	// tiny frames copy gigabytes.
	size := uint64(MaxRaw)
	var frame zstd.Header
	if err := frame.Decode(packed); err != nil {
		return nil, fmt.Errorf("unpack segment: %w", ErrCorrupt)
	}
	if frame.HasFCS {
		size = frame.FrameContentSize
	}
	if size > MaxRaw {
		return nil, fmt.Errorf("unpack segment: %w", ErrTooLarge)
	}
	d := decoders.Get().(*zstd.Decoder)
	defer decoders.Put(d)
	raw, err := d.DecodeAll(packed, make([]byte, 0, size))
	switch {
	case errors.Is(err, zstd.ErrDecoderSizeExceeded), errors.Is(err, zstd.ErrWindowSizeExceeded):
		return nil, fmt.Errorf("unpack segment: %w", ErrTooLarge)
	case err != nil || len(raw) == 0:
		return nil, fmt.Errorf("unpack segment: %w", ErrCorrupt)
	}
	return raw, nil
}
