package redact

import "strings"

// Redacted is text that has passed a Redactor. Sinks take this type instead of
// string, so that text which was never scanned does not compile. The zero value
// is the empty text. Only this package makes values that are not empty.
type Redacted struct {
	text string
}

// constant is a string that only a literal in source code converts to outside
// this package.
type constant string

// Literal returns a constant of the program as Redacted. Other packages cannot
// call it with a variable: the type of its parameter is not exported.
func Literal(s constant) Redacted { return Redacted{text: string(s)} }

// String returns the text.
func (r Redacted) String() string { return r.text }

// Len returns the length of the text in bytes.
func (r Redacted) Len() int { return len(r.text) }

// MarshalText returns the text, so that a Redacted is a string in JSON. There
// is no way back: reading JSON does not make text scanned.
func (r Redacted) MarshalText() ([]byte, error) { return []byte(r.text), nil }

// Append returns the text followed by the others.
func (r Redacted) Append(others ...Redacted) Redacted {
	return Redacted{text: r.text + Join(Redacted{}, others...).text}
}

// Join returns the parts with sep between each two of them.
func Join(sep Redacted, parts ...Redacted) Redacted {
	texts := make([]string, len(parts))
	for i, p := range parts {
		texts[i] = p.text
	}
	return Redacted{text: strings.Join(texts, sep.text)}
}
