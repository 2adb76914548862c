package redact

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"math/bits"
	"strings"
)

// Bounds of a known text.
const (
	// MinKnown is the length in bytes of the shortest text that may be known: a
	// shorter one stands in too many places by chance.
	MinKnown = 8
	// MaxKnown is that of the longest.
	MaxKnown = 8192
	// MaxKnowns is how many a Redactor may know: each is one more pass over every
	// text.
	MaxKnowns = 16
	// KnownKeySize is the length of a key in bytes.
	KnownKeySize = 32
)

// knownPrefix is what the names of known texts begin with, in placeholders and
// findings.
const knownPrefix = "scrub-"

// markSize is the length of the part of a digest that is compared at every
// position of a text.
const markSize = 4

// Known is a text of which nothing is known but its length and a digest under a
// key of its own: enough to find it wherever it stands, and, without the key, not enough to
// try guesses.
type Known struct {
	// Name stands in placeholders and findings behind "scrub-": 1 to 32
	// lower-case letters, digits and dashes.
	Name string
	// Length of the text in bytes, MinKnown to MaxKnown.
	Length int
	// Digest is what KnownDigest returns.
	Digest string
	// Key is what it was made with.
	Key []byte
}

// KnownRule is the name by which findings speak of a known text.
func KnownRule(name string) string { return knownPrefix + name }

// KnownDigest is the digest of a text under a key of KnownKeySize bytes. A key is
// used once: digests of two texts under one key would tell something of both.
func KnownDigest(key, text []byte) (string, error) {
	k, err := newKnownKey(key)
	if err != nil {
		return "", err
	}
	if len(text) < MinKnown || len(text) > MaxKnown {
		return "", errors.New("a text of 8 to 8192 bytes is needed")
	}
	return hex.EncodeToString(append(binary.BigEndian.AppendUint32(nil, mark(k.roll(text))), k.sum(text)...)), nil
}

// knownKey is what is made of a key: the base of a sum that rolls over a text,
// and a key for what proves a match.
type knownKey struct {
	base  uint64
	prove []byte
}

func newKnownKey(key []byte) (knownKey, error) {
	if len(key) != KnownKeySize {
		return knownKey{}, errors.New("the key of a known text has 32 bytes")
	}
	part := func(what string) []byte {
		h := hmac.New(sha256.New, key)
		h.Write([]byte("undersong known text: " + what))
		return h.Sum(nil)
	}
	// Neither 0 nor 1, which would make all texts of some bytes the same.
	base := binary.BigEndian.Uint64(part("base"))%(rollPrime-2) + 2
	return knownKey{base: base, prove: part("sum")}, nil
}

// rollPrime is 2^61 - 1: a remainder by it is a shift and an addition.
const rollPrime = 1<<61 - 1

func rollTimes(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	n := lo&rollPrime + (lo>>61 | hi<<3)
	n = n&rollPrime + n>>61
	if n >= rollPrime {
		n -= rollPrime
	}
	return n
}

func rollPlus(a, b uint64) uint64 {
	if a += b; a >= rollPrime {
		a -= rollPrime
	}
	return a
}

// roll is the sum of a text: its bytes are the digits of a number, to the
// secret base.
func (k *knownKey) roll(text []byte) uint64 {
	sum := uint64(0)
	for _, c := range text {
		sum = rollPlus(rollTimes(sum, k.base), uint64(c)+1)
	}
	return sum
}

// mark is the part of a sum that is compared at every position. It tells
// nothing of the text: for any other one there are bases that give the same.
func mark(sum uint64) uint32 { return uint32(sum >> 29) } //nolint:gosec // the upper 32 of 61 bits

// sum proves that a text is the one that is meant.
func (k *knownKey) sum(text []byte) []byte {
	h := hmac.New(sha256.New, k.prove)
	h.Write(text)
	return h.Sum(nil)
}

// known is a Known, ready to be looked for.
type known struct {
	name   string
	length int
	key    knownKey
	first  uint64 // the base to the power of length - 1
	mark   uint32
	sum    []byte
}

func newKnown(k Known) (known, error) {
	if len(k.Name) == 0 || len(k.Name) > 32 || count([]byte(k.Name), ruleName) < len(k.Name) {
		return known{}, errors.New("a name is 1 to 32 of a-z, 0-9 and -")
	}
	if k.Length < MinKnown || k.Length > MaxKnown {
		return known{}, errors.New("its length is not between 8 and 8192 bytes")
	}
	digest, err := hex.DecodeString(k.Digest)
	if err != nil || len(digest) != markSize+sha256.Size || strings.ToLower(k.Digest) != k.Digest {
		return known{}, errors.New("its digest is not 72 hex digits")
	}
	key, err := newKnownKey(k.Key)
	if err != nil {
		return known{}, err
	}
	first := uint64(1)
	for range k.Length - 1 {
		first = rollTimes(first, key.base)
	}
	return known{name: knownPrefix + k.Name, length: k.Length, key: key, first: first, mark: binary.BigEndian.Uint32(digest), sum: digest[markSize:]}, nil
}

// find appends where the text stands. What was already replaced is no text, as
// for the rules that others add.
func (k *known) find(text []byte, spans []span) []span {
	if len(text) < k.length {
		return spans
	}
	sum := k.key.roll(text[:k.length-1])
	for end := k.length; end <= len(text); end++ {
		at := end - k.length
		sum = rollPlus(rollTimes(sum, k.key.base), uint64(text[end-1])+1)
		if mark(sum) == k.mark && subtle.ConstantTimeCompare(k.key.sum(text[at:end]), k.sum) == 1 && !inPlaceholder(text, at, end) {
			spans = append(spans, span{from: at, to: end, rule: k.name, text: placeholder(k.name)})
		}
		sum = rollPlus(sum, rollPrime-rollTimes(uint64(text[at])+1, k.first))
	}
	return spans
}

// inPlaceholder reports whether text[from:to] lies in a placeholder.
func inPlaceholder(text []byte, from, to int) bool {
	open := bytes.LastIndexByte(text[:from+1], '[')
	return open >= 0 && open >= from-128 && open+replaced(text[open:]) >= to
}

// isKnown reports whether a rule is that of a known text.
func isKnown(rule string) bool { return strings.HasPrefix(rule, knownPrefix) }

// findKnown appends where the known texts stand.
func (r *Redactor) findKnown(text []byte, spans []span) []span {
	for i := range r.known {
		spans = r.known[i].find(text, spans)
	}
	return spans
}

// applyKnown compiles the known texts of o into r.
func (r *Redactor) applyKnown(o Options) error {
	if len(r.known)+len(o.Known) > MaxKnowns {
		return errors.New("read known texts: more than 16")
	}
	for _, k := range o.Known {
		one, err := newKnown(k)
		if err != nil {
			return errors.New("read known text " + k.Name + ": " + err.Error())
		}
		r.known = append(r.known, one)
	}
	r.onlyKnown = r.onlyKnown || o.OnlyKnown
	return nil
}
