package object

import (
	"slices"
	"strconv"
	"unicode/utf8"
)

// Writer writes an object, field after field. The zero value is an object
// without fields.
type Writer struct{ data []byte }

// Bytes returns the object as it is now.
func (w *Writer) Bytes() []byte {
	if len(w.data) == 0 {
		return []byte("{}")
	}
	return append(slices.Clip(w.data), '}')
}

func (w *Writer) name(name string) {
	sep := byte(',')
	if len(w.data) == 0 {
		w.data, sep = make([]byte, 0, 512), '{'
	}
	w.data = appendString(append(w.data, sep), name)
	w.data = append(w.data, ':')
}

// Int writes a number.
func (w *Writer) Int(name string, v int64) {
	w.name(name)
	w.data = strconv.AppendInt(w.data, v, 10)
}

// String writes a string, also an empty one.
func (w *Writer) String(name, v string) {
	w.name(name)
	w.data = appendString(w.data, v)
}

// Some writes a string unless it is empty.
func (w *Writer) Some(name, v string) {
	if v != "" {
		w.String(name, v)
	}
}

// True writes a truth value unless it is false.
func (w *Writer) True(name string, v bool) {
	if v {
		w.name(name)
		w.data = append(w.data, "true"...)
	}
}

// Object writes an object.
func (w *Writer) Object(name string, v *Writer) {
	w.name(name)
	w.data = append(w.data, v.Bytes()...)
}

const hex = "0123456789abcdef"

// appendString appends a JSON string. What is not valid UTF-8 becomes U+FFFD,
// as encoding/json has it; < > & stay as they are, for people read it.
func appendString(to []byte, s string) []byte {
	to = append(to, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= ' ' && c < utf8.RuneSelf && c != '"' && c != '\\' {
			i++
			continue
		}
		r, size := rune(c), 1
		if c >= utf8.RuneSelf {
			r, size = utf8.DecodeRuneInString(s[i:])
			if bad := r == utf8.RuneError && size == 1; !bad && r != '\u2028' && r != '\u2029' {
				i += size
				continue
			}
		}
		to = append(to, s[start:i]...)
		switch r {
		case '"', '\\':
			to = append(to, '\\', c)
		case '\n':
			to = append(to, '\\', 'n')
		case '\r':
			to = append(to, '\\', 'r')
		case '\t':
			to = append(to, '\\', 't')
		default:
			to = append(to, '\\', 'u', hex[r>>12&15], hex[r>>8&15], hex[r>>4&15], hex[r&15])
		}
		i += size
		start = i
	}
	return append(append(to, s[start:]...), '"')
}
