// Package jsonline finds its way in one line of JSON by position.
//
// It answers where the members of an object and the elements of an array
// begin and end and what a string says, without building values, and it
// decides what is JSON exactly as encoding/json does. Readers take words from
// positions; the redactor replaces bytes at positions and leaves all others as
// they were. It does not care what the members mean.
//
// Bytes enter as one slice and are never changed or kept. Its time grows
// linearly with the input; nesting is bounded by MaxDepth.
package jsonline

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"unicode/utf16"
	"unicode/utf8"
)

// MaxDepth is the number of nested arrays and objects at which a line counts
// as invalid. It is the limit of encoding/json.
const MaxDepth = 10000

// Kind says what a value is. The zero Kind is that of no value.
type Kind uint8

// Kinds of values.
const (
	None Kind = iota
	String
	Number
	Object
	Array
	True
	False
	Null
)

// Value is the place of a value in a line: b[Start:End]. A string includes its
// quotes. The zero Value is no value, as that of a member that is missing.
type Value struct {
	Start, End int
	Kind       Kind
	// Plain says that a string has neither escapes nor bytes above 0x7F: what
	// stands between its quotes is what it says. False promises nothing.
	Plain bool
}

var bom = []byte("\xef\xbb\xbf")

// Trim returns the line without what may surround its JSON in a damaged file:
// one CR at its end, byte order marks and NUL bytes at its head, and blanks.
// What a blank line leaves is empty.
func Trim(line []byte) []byte {
	if n := len(line); n > 0 && line[n-1] == '\r' {
		line = line[:n-1]
	}
	for len(line) > 0 {
		switch {
		case line[0] == 0:
			line = line[1:]
		case bytes.HasPrefix(line, bom):
			line = line[len(bom):]
		default:
			i, n := space(line, 0), len(line)
			if i > 0 && i < n && (line[i] == 0 || line[i] == bom[0]) {
				return line // no head of a line; it is not JSON either
			}
			for n > i && isSpace(line[n-1]) {
				n--
			}
			return line[i:n]
		}
	}
	return line
}

// Members reports whether b is one valid JSON object with nothing but blanks
// around it, and calls visit for each of its own members in order, repeated
// keys included. It learns of a fault only when it reaches it: what visit was
// told before Members returns false means nothing.
func Members(b []byte, visit func(key, value Value)) bool {
	i := space(b, 0)
	if i == len(b) || b[i] != '{' {
		return false
	}
	i = object(b, i, 1, visit)
	return i >= 0 && space(b, i) == len(b)
}

// Valid reports whether b is one valid JSON object with nothing but blanks
// around it.
func Valid(b []byte) bool {
	return Members(b, nil)
}

// Each calls visit for each own member of the object v, which must lie in
// valid JSON. It does nothing for a value of another kind.
func Each(b []byte, v Value, visit func(key, value Value)) {
	if v.Kind == Object {
		object(b, v.Start, 1, visit)
	}
}

// Elements calls visit for each element of the array v, which must lie in
// valid JSON. It does nothing for a value of another kind.
func Elements(b []byte, v Value, visit func(element Value)) {
	if v.Kind == Array {
		array(b, v.Start, 1, visit)
	}
}

// Next returns the value that begins at b[i] or after blanks there. Its Kind
// is None where no valid value begins.
func Next(b []byte, i int) Value {
	return value(b, space(b, i), 0)
}

// SkipSpace returns the position of the first byte at or after i that is no
// JSON blank.
func SkipSpace(b []byte, i int) int { return space(b, i) }

// Is reports whether v is a string that says s.
func Is(b []byte, v Value, s string) bool {
	if v.Kind != String {
		return false
	}
	in := b[v.Start+1 : v.End-1]
	if len(in) == len(s) && string(in) == s {
		return true
	}
	if v.Plain || len(in) < len(s) || bytes.IndexByte(in, '\\') < 0 {
		return false
	}
	return Text(b, v) == s
}

// Text returns what the string v says, and "" for a value of another kind.
// Invalid UTF-8 and lone surrogates become U+FFFD.
func Text(b []byte, v Value) string {
	if v.Kind != String {
		return ""
	}
	if v.Plain {
		return string(b[v.Start+1 : v.End-1])
	}
	return string(AppendText(nil, b, v))
}

// AppendText appends to dst what Text returns.
func AppendText(dst, b []byte, v Value) []byte {
	if v.Kind != String {
		return dst
	}
	in := b[v.Start+1 : v.End-1]
	if v.Plain {
		return append(dst, in...)
	}
	for len(in) > 0 {
		n := bytes.IndexByte(in, '\\')
		if n < 0 {
			n = len(in)
		}
		dst = appendUTF8(dst, in[:n])
		in = in[n:]
		if len(in) > 0 {
			r, size := Escape(in)
			dst = utf8.AppendRune(dst, r)
			in = in[size:]
		}
	}
	return dst
}

// appendUTF8 appends b with one U+FFFD for each byte that is not UTF-8.
func appendUTF8(dst, b []byte) []byte {
	if utf8.Valid(b) {
		return append(dst, b...)
	}
	for len(b) > 0 {
		r, size := utf8.DecodeRune(b)
		dst = utf8.AppendRune(dst, r)
		b = b[size:]
	}
	return dst
}

// Escape returns the character of the escape sequence at the start of b, which
// must be valid, and the length of the sequence: two bytes, six, or twelve for
// a pair of surrogates. A lone surrogate is U+FFFD.
func Escape(b []byte) (rune, int) {
	switch b[1] {
	case 'b':
		return '\b', 2
	case 'f':
		return '\f', 2
	case 'n':
		return '\n', 2
	case 'r':
		return '\r', 2
	case 't':
		return '\t', 2
	case 'u':
		r := hex4(b[2:])
		if !utf16.IsSurrogate(r) {
			return r, 6
		}
		if len(b) >= 12 && b[6] == '\\' && b[7] == 'u' {
			if p := utf16.DecodeRune(r, hex4(b[8:])); p != utf8.RuneError {
				return p, 12
			}
		}
		return utf8.RuneError, 6
	}
	return rune(b[1]), 2
}

// hex4 returns the number of four hexadecimal digits, -1 if they are none.
func hex4(b []byte) rune {
	if len(b) < 4 {
		return -1
	}
	var r rune
	for _, c := range b[:4] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return -1
		}
		r = r<<4 | rune(c)
	}
	return r
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

func space(b []byte, i int) int {
	for i < len(b) && isSpace(b[i]) {
		i++
	}
	return i
}

// object returns the position after the object that begins at b[i], or -1.
func object(b []byte, i, depth int, visit func(key, value Value)) int {
	if depth > MaxDepth {
		return -1
	}
	i = space(b, i+1)
	if i < len(b) && b[i] == '}' {
		return i + 1
	}
	for i < len(b) && b[i] == '"' {
		key := str(b, i)
		if key.Kind == None {
			return -1
		}
		i = space(b, key.End)
		if i == len(b) || b[i] != ':' {
			return -1
		}
		v := value(b, space(b, i+1), depth)
		if v.Kind == None {
			return -1
		}
		if visit != nil {
			visit(key, v)
		}
		i = space(b, v.End)
		if i == len(b) {
			return -1
		}
		if b[i] == '}' {
			return i + 1
		}
		if b[i] != ',' {
			return -1
		}
		i = space(b, i+1)
	}
	return -1
}

// array returns the position after the array that begins at b[i], or -1.
func array(b []byte, i, depth int, visit func(element Value)) int {
	if depth > MaxDepth {
		return -1
	}
	i = space(b, i+1)
	if i < len(b) && b[i] == ']' {
		return i + 1
	}
	for {
		v := value(b, i, depth)
		if v.Kind == None {
			return -1
		}
		if visit != nil {
			visit(v)
		}
		i = space(b, v.End)
		if i == len(b) {
			return -1
		}
		if b[i] == ']' {
			return i + 1
		}
		if b[i] != ',' {
			return -1
		}
		i = space(b, i+1)
	}
}

// value returns the value that begins at b[i], of no Kind if there is none.
func value(b []byte, i, depth int) Value {
	if i >= len(b) {
		return Value{}
	}
	v := Value{Start: i, End: -1}
	switch c := b[i]; {
	case c == '"':
		return str(b, i)
	case c == '{':
		v.Kind, v.End = Object, object(b, i, depth+1, nil)
	case c == '[':
		v.Kind, v.End = Array, array(b, i, depth+1, nil)
	case c == '-' || '0' <= c && c <= '9':
		v.Kind, v.End = Number, number(b, i)
	case c == 't':
		v.Kind, v.End = True, literal(b, i, "true")
	case c == 'f':
		v.Kind, v.End = False, literal(b, i, "false")
	case c == 'n':
		v.Kind, v.End = Null, literal(b, i, "null")
	}
	if v.End < 0 {
		return Value{}
	}
	return v
}

func literal(b []byte, i int, word string) int {
	if len(b)-i < len(word) || string(b[i:i+len(word)]) != word {
		return -1
	}
	return i + len(word)
}

func number(b []byte, i int) int {
	if b[i] == '-' {
		i++
	}
	switch {
	case i == len(b):
		return -1
	case b[i] == '0':
		i++
	case '1' <= b[i] && b[i] <= '9':
		i = digits(b, i)
	default:
		return -1
	}
	if i < len(b) && b[i] == '.' {
		n := digits(b, i+1)
		if n == i+1 {
			return -1
		}
		i = n
	}
	if i < len(b) && (b[i] == 'e' || b[i] == 'E') {
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		n := digits(b, i)
		if n == i {
			return -1
		}
		i = n
	}
	return i
}

func digits(b []byte, i int) int {
	for i < len(b) && '0' <= b[i] && b[i] <= '9' {
		i++
	}
	return i
}

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// str returns the string whose opening quote is b[i], of no Kind if it is not
// closed or not valid. It looks at eight bytes at a time: nearly all bytes of
// a transcript lie in strings.
func str(b []byte, i int) Value {
	v := Value{Start: i, Kind: String, Plain: true}
	i++
	var high uint64
	for {
		for len(b)-i >= 8 {
			x := binary.LittleEndian.Uint64(b[i:])
			quote, slash := x^(ones*'"'), x^(ones*'\\')
			// A byte's high bit is set where it is a quote, a backslash or
			// a control character. Bytes after the first hit may be wrong.
			hit := ((quote - ones) &^ quote) | ((slash - ones) &^ slash) | ((x - ones*0x20) &^ x)
			if hit &= highs; hit != 0 {
				n := bits.TrailingZeros64(hit)
				high |= x & (1<<n - 1)
				i += n / 8
				break
			}
			high |= x
			i += 8
		}
		if i >= len(b) {
			return Value{}
		}
		switch c := b[i]; {
		case c == '"':
			v.End = i + 1
			v.Plain = v.Plain && high&highs == 0
			return v
		case c == '\\':
			v.Plain = false
			n := escape(b[i:])
			if n == 0 {
				return Value{}
			}
			i += n
		case c < 0x20:
			return Value{}
		default: // in the last bytes of b
			high |= uint64(c)
			i++
		}
	}
}

// escape returns the length of the escape sequence at the start of b, 0 if it
// is not valid.
func escape(b []byte) int {
	if len(b) < 2 {
		return 0
	}
	switch b[1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2
	case 'u':
		if hex4(b[2:]) >= 0 {
			return 6
		}
	}
	return 0
}
