package redact

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"encoding/hex"
	"io"
	"sync"
)

// Secrets without a sign of their own: such as are encoded once or more often,
// and random ones that nothing but their form or an upper-case name tells.

const (
	// maxDepth is how many layers of base64 and of JSON in JSON are taken off.
	maxDepth = 3
	// minEncoded is the length from which a run of base64 is looked into: that
	// of a password of eight letters with its name.
	minEncoded = 20
	// lookLength is how much of the middle of a run is decoded to see whether it
	// encodes text at all, a multiple of four.
	lookLength = 12

	awsSecretRule = "aws-secret-key"
	entropyRule   = "entropy"
	// compressedRule is that of what is compressed too much to be scanned.
	compressedRule = "compressed"
)

// findEncoded returns the runs of base64 in text that encode something with a
// secret in it, and keys that stand bare.
func (r *Redactor) findEncoded(text []byte, depth int) []span {
	var spans []span
	// A run that long covers every step of its length.
	for i, done := minEncoded-1, 0; i < len(text); i += minEncoded {
		if i < done || !payloadSet[text[i]] {
			continue
		}
		from := i
		for from > done && payloadSet[text[from-1]] {
			from--
		}
		to := run(text, i, payloadSet)
		if to-from < minEncoded {
			done = to
			continue
		}
		if !r.onlyKnown && isAWSSecret(text, from, to) {
			spans = append(spans, span{from: from, to: to, rule: awsSecretRule, text: placeholder(awsSecretRule)})
			done = to
			continue
		}
		if depth == maxDepth {
			done = to
			continue
		}
		if name := r.encodesHex(text[from:to], depth); name != "" {
			spans = append(spans, span{from: from, to: to, rule: name, text: placeholder(name)})
			done = to
			continue
		}
		if to-from >= minWrapped {
			from, to = wrapped(text, done, i)
		}
		done = max(to, i+1)
		if name := r.encodes(text[from:to], depth); name != "" {
			for n := 0; n < 2 && to < len(text) && text[to] == '='; n++ {
				to++
			}
			spans = append(spans, span{from: from, to: to, rule: name, text: placeholder(name)})
		}
	}
	return spans
}

// encodesHex is encodes for hexadecimal. What is no text, a digest for one, is not
// looked into.
func (r *Redactor) encodesHex(b []byte, depth int) string {
	b, _ = bytes.CutPrefix(b, []byte("0x"))
	b = b[:len(b)&^1]
	const head = 8
	if len(b) < minEncoded-2 || count(b[:head], anyHex) < head {
		return ""
	}
	var start [head / 2]byte
	if _, err := hex.Decode(start[:], b[:head]); err != nil || textIn(start[:]) < len(start) || count(b, anyHex) < len(b) {
		return ""
	}
	plain := make([]byte, len(b)/2)
	if _, err := hex.Decode(plain, b); err != nil || textIn(plain) < len(plain) {
		return ""
	}
	return r.inside(plain, depth)
}

// inside returns the rule that finds something in what was decoded, "" if none
// does.
func (r *Redactor) inside(plain []byte, depth int) string {
	for _, s := range r.findAt(plain, depth+1) {
		if s.rule != binaryRule {
			return s.rule
		}
	}
	return ""
}

// Bounds of what compressed text may become. What becomes more cannot be scanned
// for what it costs, and does not leave.
const (
	maxInflated  = 8 // times
	leastInflate = 512
)

// inflater is a reader of compressed text. Its tables are larger than most texts:
// it is used again.
type inflater interface {
	io.Reader
	Reset(io.Reader) error
}

type zlibReader struct{ io.ReadCloser }

// Reset makes the reader read another text.
func (z *zlibReader) Reset(in io.Reader) (err error) {
	if z.ReadCloser == nil {
		z.ReadCloser, err = zlib.NewReader(in)
		return err
	}
	return z.ReadCloser.(zlib.Resetter).Reset(in, nil) //nolint:forcetypeassert // the package promises it
}

var (
	gzipReaders = sync.Pool{New: func() any { return new(gzip.Reader) }}
	zlibReaders = sync.Pool{New: func() any { return new(zlibReader) }}
)

// inflated returns what a run of base64 holds compressed, by gzip or zlib; nil if
// it holds no such thing. whole says that this is all of it.
func inflated(b []byte) (plain []byte, whole bool) {
	if len(b) < minEncoded {
		return nil, false
	}
	var pool *sync.Pool
	switch {
	case bytes.HasPrefix(b, []byte("H4sI")):
		pool = &gzipReaders
	case bytes.HasPrefix(b, []byte("eJ")), bytes.HasPrefix(b, []byte("eN")), bytes.HasPrefix(b, []byte("eAE")), bytes.HasPrefix(b, []byte("eF4")):
		pool = &zlibReaders
	default:
		return nil, false
	}
	in := pool.Get().(inflater) //nolint:forcetypeassert // the pools hold nothing else
	defer pool.Put(in)
	if in.Reset(bytes.NewReader(decode(make([]byte, 0, len(b)), b))) != nil {
		return nil, false
	}
	limit := int64(max(leastInflate, maxInflated*len(b)))
	// What is cut, or damaged at its end, is read as far as it goes.
	plain, _ = io.ReadAll(io.LimitReader(in, limit+1))
	if len(plain) == 0 {
		return nil, false
	}
	return plain, int64(len(plain)) <= limit
}

// encodes returns the rule that finds something in what a run encodes, "" if
// none does.
func (r *Redactor) encodes(b []byte, depth int) string {
	if b = bytes.TrimRight(b, "="); bytes.IndexByte(b, '\n') >= 0 {
		b = bytes.Map(func(c rune) rune {
			if c == '\n' || c == '\r' {
				return -1
			}
			return c
		}, b)
	}
	// One layer of it, or each would multiply the text.
	if depth < maxDepth-1 {
		if plain, whole := inflated(b); plain != nil {
			if !whole {
				if r.onlyKnown {
					return ""
				}
				return compressedRule
			}
			return r.inside(plain, maxDepth-2)
		}
	}
	// Where a word stands before the run without a blank, the run does not begin
	// with it: look at the middle, at each of the four places it may begin.
	best, most := -1, lookLength/4*3-1
	var buf [lookLength]byte
	middle := max(0, (len(b)-lookLength)/2) &^ 3
	for at := range 4 {
		if middle+at+lookLength > len(b) {
			break
		}
		if n := textIn(decode(buf[:0], b[middle+at:middle+at+lookLength])); n > most {
			best, most = at, n
		}
	}
	if best < 0 {
		return ""
	}
	return r.inside(decode(make([]byte, 0, len(b)), b[best:]), depth)
}

// textIn counts the bytes that text is made of. The zeros of UTF-16 count.
func textIn(b []byte) int {
	n, zeros := 0, 0
	for _, c := range b {
		switch {
		case c >= ' ' && c < 0x7f, c == '\n', c == '\r', c == '\t':
			n++
		case c == 0:
			zeros++
		case c == 0x1b:
			n++
		}
	}
	if zeros <= len(b)/2+1 {
		n += zeros
	}
	return n
}

// sextets are the values of the letters of base64, of both its alphabets.
var sextets = func() (s [256]uint8) {
	for i, c := range []byte("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/") {
		s[c] = uint8(i)
	}
	s['-'], s['_'] = s['+'], s['/']
	return s
}()

// decode appends what letters of base64 encode. It cannot fail.
func decode(dst, b []byte) []byte {
	var group [4]byte
	for len(b) >= 4 {
		for i := range group {
			group[i] = sextets[b[i]]
		}
		dst = append(dst, group[0]<<2|group[1]>>4, group[1]<<4|group[2]>>2, group[2]<<6|group[3])
		b = b[4:]
	}
	switch len(b) {
	case 3:
		dst = append(dst, sextets[b[0]]<<2|sextets[b[1]]>>4, sextets[b[1]]<<4|sextets[b[2]]>>2)
	case 2:
		dst = append(dst, sextets[b[0]]<<2|sextets[b[1]]>>4)
	}
	return dst
}

// isAWSSecret reports whether a run is a secret key of AWS, which has nothing
// but its length and its disorder.
func isAWSSecret(text []byte, from, to int) bool {
	const size = 40
	v := text[from:to]
	if len(v) != size || bytes.IndexByte(v, '_') >= 0 || bytes.IndexByte(v, '-') >= 0 || to < len(text) && (text[to] == '=' || text[to] == '.') {
		return false
	}
	return isRandom(v)
}

// isRandom reports whether letters of both cases and digits change as often as
// a generator of keys makes them change. Names, paths and hexadecimal digests
// do not.
func isRandom(v []byte) bool {
	kind := func(c byte) int {
		switch {
		case digit[c]:
			return 0
		case upper[c]:
			return 1
		case lower[c]:
			return 2
		}
		return 3
	}
	var seen [4]int
	changes := 0
	for i, c := range v {
		k := kind(c)
		seen[k]++
		if i > 0 && k != kind(v[i-1]) {
			changes++
		}
	}
	few := max(1, len(v)/20)
	return seen[0] >= few && seen[1] >= few && seen[2] >= few && changes >= len(v)*2/5 && entropy(v) >= min(4.2, 0.78*logOf(len(v)))
}

// findEntropy returns the values of upper-case names, as .env files have them,
// that are random whatever the name is.
func findEntropy(text []byte) []span {
	const least = 20
	var spans []span
	for i := 1; len(text)-i > least; i++ {
		n := bytes.IndexByte(text[i:], '=')
		if n < 0 {
			break
		}
		i += n
		if len(text)-i <= least || !nameEnd[text[i-1]] {
			continue
		}
		first := i + 1
		if text[first] == '"' || text[first] == '\'' {
			first++
		}
		last := run(text[:min(len(text), first+maxValue)], first, tokenSet)
		if last-first < least || last-first == maxValue {
			i = max(i, last-1)
			continue
		}
		from := i
		for from > 0 && i-from < maxName && nameEnd[text[from-1]] {
			from--
		}
		name, v := text[from:i], text[first:last]
		i = last - 1
		if count(name, upper) < 2 || (from > 0 && bytes.IndexByte([]byte(" \t\n\"'`"), text[from-1]) < 0 && !bounds(text, from)) {
			continue
		}
		var words nameWords
		words.split(name)
		if words.n == 0 || aboutName[string(words.at(words.n-1))] || openName(&words) || isDigest(v) || isPath(v) || isReference(v) || !isRandom(v) {
			continue
		}
		spans = append(spans, span{from: first, to: last, rule: entropyRule, text: placeholder(entropyRule)})
	}
	return spans
}

var nameEnd = newSet("09AZ", "_")

// openName reports whether a name says that its value may be known.
func openName(words *nameWords) bool {
	for i := range words.n {
		switch string(words.at(i)) {
		case "public", "publishable", "sha", "digest", "integrity", "checksum", "etag":
			return true
		}
	}
	return false
}
