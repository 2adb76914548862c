// Package seal hides what the controller tells one workstation in a place that
// the whole team can read: grants and whispers in the status of objects.
//
// A sealed text is base64(age(zstd(plain))), sealed to the X25519 keys that
// workstations publish. It promises that only the holders of these keys read it
// and that opening is bounded. It does not say who sealed it: that is known from
// who may write the status. The secret key never leaves the workstation, and no
// error of this package holds a key or a piece of the plain text.
package seal

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"

	"filippo.io/age"
	"github.com/klauspost/compress/zstd"
)

const (
	// MaxPlain is the most bytes that are sealed or opened.
	MaxPlain = 1 << 20
	// MaxRecipients is the most keys something is sealed to.
	MaxRecipients = 16
	// maxSealed bounds what is decoded at all: MaxPlain that cannot be
	// compressed, age's header and tags, a third for base64.
	maxSealed = (MaxPlain + 64<<10) / 3 * 4
)

var (
	// ErrNotForUs means that the text is sealed to other keys.
	ErrNotForUs = errors.New("sealed to other keys")
	// ErrCorrupt means that the text is not what Seal made.
	ErrCorrupt = errors.New("sealed text is corrupt")
	// ErrTooLarge means that a limit of this package is passed.
	ErrTooLarge = errors.New("sealed text is too large")
)

// Identity is a workstation's key pair. The zero value opens nothing. Printed
// or logged by any means but String it shows the public key only.
type Identity struct {
	key *age.X25519Identity
}

// NewIdentity makes a new key pair.
func NewIdentity() (Identity, error) {
	key, err := age.GenerateX25519Identity()
	if err != nil {
		return Identity{}, fmt.Errorf("generate identity: %w", err)
	}
	return Identity{key: key}, nil
}

// ParseIdentity is the inverse of String. White space around is ignored, so
// that the content of a file will do.
func ParseIdentity(s string) (Identity, error) {
	key, err := age.ParseX25519Identity(string(bytes.TrimSpace([]byte(s))))
	if err != nil {
		return Identity{}, errors.New("parse identity: not an age secret key") // age's error quotes it
	}
	return Identity{key: key}, nil
}

// String returns the secret key, for the file that keeps it and nothing else.
func (i Identity) String() string {
	if i.key == nil {
		return ""
	}
	return i.key.String()
}

// Recipient returns the public key, age1….
func (i Identity) Recipient() string {
	if i.key == nil {
		return ""
	}
	return i.key.Recipient().String()
}

// Format prints the public key, whatever the verb: fmt would find String.
func (i Identity) Format(f fmt.State, _ rune) {
	_, _ = io.WriteString(f, "identity of "+i.Recipient()) // fmt has no place for an error
}

// LogValue logs the public key: slog would find String.
func (i Identity) LogValue() slog.Value {
	return slog.StringValue(i.Recipient())
}

// MarshalText refuses, so that an identity is no member of anything encoded.
func (Identity) MarshalText() ([]byte, error) {
	return nil, errors.New("marshal identity: the secret key is not for encoding")
}

// Coders are kept between bursts only, as in package segment.
var (
	encoders = sync.Pool{New: func() any {
		e, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(MaxPlain))
		if err != nil {
			panic(err) // only wrong options fail, and these are constants
		}
		return e
	}}
	decoders = sync.Pool{New: func() any {
		// The slice given to DecodeAll is the limit.
		d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecodeAllCapLimit(true))
		if err != nil {
			panic(err) // only wrong options fail, and these are constants
		}
		return d
	}}
)

// Seal seals plain, of at most MaxPlain bytes, to 1 to MaxRecipients public
// keys. The same text never gives the same result twice.
func Seal(plain []byte, recipients ...string) (string, error) {
	if len(plain) > MaxPlain {
		return "", fmt.Errorf("seal %d bytes: %w", len(plain), ErrTooLarge)
	}
	if len(recipients) == 0 || len(recipients) > MaxRecipients {
		return "", fmt.Errorf("seal to %d keys: between 1 and %d are possible", len(recipients), MaxRecipients)
	}
	keys := make([]age.Recipient, len(recipients))
	for i, recipient := range recipients {
		key, err := age.ParseX25519Recipient(recipient)
		if err != nil {
			return "", fmt.Errorf("seal: key %d of %d is not an age public key", i+1, len(recipients))
		}
		keys[i] = key
	}
	e := encoders.Get().(*zstd.Encoder)
	defer encoders.Put(e)

	var sealed bytes.Buffer
	w, err := age.Encrypt(&sealed, keys...)
	if err != nil {
		return "", fmt.Errorf("seal: %w", err)
	}
	if _, err := w.Write(e.EncodeAll(plain, nil)); err != nil {
		return "", fmt.Errorf("seal: %w", err)
	}
	if err := w.Close(); err != nil {
		return "", fmt.Errorf("seal: %w", err)
	}
	return base64.StdEncoding.EncodeToString(sealed.Bytes()), nil
}

// Open opens what was sealed to this identity. It returns at most MaxPlain
// bytes; more is ErrTooLarge.
func (i Identity) Open(sealed string) ([]byte, error) {
	if len(sealed) > maxSealed {
		return nil, fmt.Errorf("open %d characters: %w", len(sealed), ErrTooLarge)
	}
	if i.key == nil {
		return nil, fmt.Errorf("open without a key: %w", ErrNotForUs)
	}
	secret, err := base64.StdEncoding.DecodeString(sealed)
	if err != nil {
		return nil, fmt.Errorf("open: no base64: %w", ErrCorrupt)
	}
	r, err := age.Decrypt(bytes.NewReader(secret), i.key)
	if none := (*age.NoIdentityMatchError)(nil); errors.As(err, &none) {
		return nil, fmt.Errorf("open: %w", ErrNotForUs)
	}
	if err != nil {
		return nil, fmt.Errorf("open: no age file: %w", ErrCorrupt)
	}
	packed, err := io.ReadAll(r) // no longer than secret
	if err != nil {
		return nil, fmt.Errorf("open: changed or cut: %w", ErrCorrupt)
	}
	d := decoders.Get().(*zstd.Decoder)
	defer decoders.Put(d)
	plain, err := d.DecodeAll(packed, make([]byte, 0, MaxPlain))
	switch {
	case errors.Is(err, zstd.ErrDecoderSizeExceeded), errors.Is(err, zstd.ErrWindowSizeExceeded):
		return nil, fmt.Errorf("open: %w", ErrTooLarge)
	case err != nil:
		return nil, fmt.Errorf("open: no zstd: %w", ErrCorrupt)
	}
	return bytes.Clone(plain), nil // most are small; the limit need not stay allocated
}
