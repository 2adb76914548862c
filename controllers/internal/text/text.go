// Package text makes scanned texts fit to be shown: in a column, on a
// terminal, in a prompt.
package text

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/undersong-dev/undersong/internal/redact"
)

// mark ends a text that was cut.
const mark = "…"

// Label makes one line of at most n characters: blanks folded, nothing that
// cannot be seen, nothing that changes the direction of what follows.
func Label(s redact.Redacted, n int) string {
	var out []rune
	for _, field := range strings.FieldsFunc(s.String(), func(c rune) bool { return !visible(c) }) {
		if len(out) > 0 {
			out = append(out, ' ')
		}
		out = append(out, []rune(field)...)
	}
	if len(out) > n {
		return strings.TrimRight(string(out[:n-1]), " ") + mark
	}
	return string(out)
}

// Plain keeps lines and blanks and drops control and format characters. It
// cuts at a character border to at most limit bytes.
func Plain(s redact.Redacted, limit int) string {
	clean := strings.TrimSpace(strings.Map(func(c rune) rune {
		switch {
		case c == '\n' || c == ' ' || visible(c):
			return c
		case unicode.IsSpace(c):
			return ' '
		default:
			return -1
		}
	}, s.String()))
	if len(clean) <= limit {
		return clean
	}
	end := limit - len(mark)
	for end > 0 && !utf8.RuneStart(clean[end]) {
		end--
	}
	return strings.TrimSpace(clean[:end]) + mark
}

// visible reports whether a character is printable and no blank.
func visible(c rune) bool {
	return unicode.IsGraphic(c) && !unicode.IsSpace(c) && !unicode.Is(unicode.Cf, c) && c != utf8.RuneError
}
