package redact

import (
	"bytes"
	"strconv"
)

// Payloads that are no text: encoded pictures, documents, archives.

const (
	binaryRule = "binary"
	// minRun is the length from which a run of base64 is a payload wherever it
	// stands, minURI from which it is one in a data: URI.
	minRun = 1 << 10
	minURI = 16
	// minWrapped is the least length of the lines of a payload that was wrapped.
	minWrapped = 40
)

// withheld is what stands for a payload of n bytes.
func withheld(media string, n int) string {
	return "[" + media + ", " + strconv.Itoa(n) + " bytes, withheld]"
}

// isWithheld reports whether text is what withheld returns.
func isWithheld(text []byte) bool {
	if len(text) < 2 || len(text) > 128 || text[0] != '[' {
		return false
	}
	media, rest, found := bytes.Cut(text[1:], []byte(", "))
	size, tail, _ := bytes.Cut(rest, []byte(" "))
	return found && len(media) > 0 && count(media, mediaSet) == len(media) &&
		isDigits(string(size)) && string(tail) == "bytes, withheld]"
}

var (
	mediaSet   = newSet("09az", "/+.-")
	payloadSet = newSet("09azAZ", "+/_-")
)

// mediaType returns what a payload says it is, or "base64" if that is no media
// type.
func mediaType(s string) string {
	b := bytes.ToLower([]byte(s))
	if len(b) == 0 || len(b) > 64 || count(b, mediaSet) < len(b) {
		return "base64"
	}
	return string(b)
}

// decodedSize is the number of bytes that a run of base64 encodes.
func decodedSize(text []byte) int {
	return (count(text, alnum) + count(text, signs)) * 3 / 4
}

var signs = newSet("++", "/_-")

// findBinary returns payloads in text.
func findBinary(text []byte) []span {
	var spans []span
	for from := 0; len(text)-from >= minURI; {
		n := bytes.Index(text[from:], []byte("data:"))
		if n < 0 {
			break
		}
		at := from + n
		from = at + len("data:")
		if s, ok := dataURI(text, at, from); ok {
			spans = append(spans, s)
			from = s.to
		}
	}
	if len(text) < minRun {
		return spans
	}
	// A run that long covers every step of half its length.
	for i, done := minRun/2-1, 0; i < len(text); i += minRun / 2 {
		if i < done || !payloadSet[text[i]] {
			continue
		}
		from, to := wrapped(text, done, i)
		done = max(to, i+1)
		if b := text[from:to]; to-from >= minRun && isPayload(b) {
			spans = append(spans, span{from: from, to: to, rule: binaryRule, text: withheld("base64", decodedSize(b))})
		}
	}
	return spans
}

// dataURI returns the URI that begins at text[at] if it carries a payload.
func dataURI(text []byte, at, i int) (span, bool) {
	const sign = ";base64,"
	media := run(text, i, uriMediaSet)
	comma := bytes.IndexByte(text[i:min(len(text), i+128)], ',')
	if comma < len(sign)-1 || !bytes.EqualFold(text[i+comma+1-len(sign):i+comma+1], []byte(sign)) {
		return span{}, false
	}
	from := i + comma + 1
	to := from
	for to < len(text) && (base64Set[text[to]] || text[to] == '%') {
		to++
	}
	if to-from < minURI {
		return span{}, false
	}
	return span{from: at, to: to, rule: binaryRule, text: withheld(mediaType(string(text[i:media])), decodedSize(text[from:to]))}, true
}

var uriMediaSet = newSet("09azAZ", "/+.-")

// wrapped returns the run of base64 around text[i], not before done, over line
// ends as long as its lines are long.
func wrapped(text []byte, done, i int) (from, to int) {
	from = i
	for from > done && payloadSet[text[from-1]] {
		from--
	}
	to = run(text, i, payloadSet)
	for first := from; ; {
		end := first
		for end > done && (text[end-1] == '\n' || text[end-1] == '\r') {
			end--
		}
		begin := end
		for begin > done && payloadSet[text[begin-1]] {
			begin--
		}
		if end == first || end-begin < minWrapped {
			break
		}
		first, from = begin, begin
	}
	for {
		begin := to
		for begin < len(text) && (text[begin] == '\n' || text[begin] == '\r') {
			begin++
		}
		end := run(text, begin, payloadSet)
		if begin == to || end == begin {
			break
		}
		last := end-begin < minWrapped
		if last && end < len(text) && text[end] != '=' && text[end] != '\n' {
			break // a word of what follows
		}
		to = end
		if last {
			break
		}
	}
	for n := 0; n < 2 && to < len(text) && text[to] == '='; n++ {
		to++
	}
	return from, to
}

// isPayload reports whether a run is encoded bytes rather than a ruler, a
// repeated letter or names without blanks: it has digits and letters of both
// cases, or is hexadecimal.
func isPayload(b []byte) bool {
	few := len(b) / 64
	if count(b, digit) <= few {
		return false
	}
	return count(b, lower) > few && count(b, upper) > few || count(b, hexDigit) == len(b) && count(b, digit) < len(b)
}

// looksEncoded reports whether a whole string is base64 of at least size bytes.
func looksEncoded(b []byte, size int) bool {
	b = bytes.TrimRight(b, "=")
	return len(b) >= size && count(b, payloadSet) == len(b)
}
