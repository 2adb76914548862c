package segment

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
)

// Sum is the head of a hash chain over segments, or a sha256.
type Sum [sha256.Size]byte

// Start returns chain(0), the head before the first segment, for a Session's
// name and a Workstation's name. Neither may contain NUL, which separates them;
// names of Kubernetes objects never do.
func Start(session, workstation string) Sum {
	return sha256.Sum256([]byte(session + "\x00" + workstation))
}

// Next returns the head after one more segment, whose uncompressed bytes are
// raw.
func (s Sum) Next(raw []byte) Sum {
	return s.NextDigest(sha256.Sum256(raw))
}

// NextDigest is Next for who knows only the sha256 of the segment's
// uncompressed bytes: it proves a rewritten copy's place in the chain, by
// [Archived].
func (s Sum) NextDigest(digest Sum) Sum {
	return sha256.Sum256(append(s[:], digest[:]...))
}

// String returns the sum as 64 lower case hex digits.
func (s Sum) String() string {
	return hex.EncodeToString(s[:])
}

// ParseSum is the inverse of String. It accepts 64 lower case hex digits only,
// so that equal sums are equal strings.
func ParseSum(s string) (Sum, error) {
	var sum Sum
	if len(s) != hex.EncodedLen(len(sum)) {
		return Sum{}, errors.New("parse sum: not 64 hex digits")
	}
	if _, err := hex.Decode(sum[:], []byte(s)); err != nil || sum.String() != s {
		return Sum{}, errors.New("parse sum: not 64 lower case hex digits")
	}
	return sum, nil
}
