package transcript

import (
	"strings"
	"unicode/utf8"
)

// RenderVersion names the form that Memory and Render give. The same records
// rendered by the same version are the same bytes, on any machine. Version 1 had
// words only, and no tools; version 2 left our own elements where they were
// encoded as JSON or HTML.
const RenderVersion = 3

// Render writes entries as memory gets them, each as
//
//	<message role="user">
//	text
//	</message>
//
// The text cannot close the element: &, < and > are escaped. It has LF as its
// only line end and no other control characters but tabs, no terminal
// sequences, no characters that turn the direction of writing, and is valid
// UTF-8.
func Render(w *strings.Builder, entries []Entry) {
	for _, e := range entries {
		w.WriteString(`<message role="`)
		w.WriteString(string(e.Speaker))
		w.WriteString("\">\n")
		renderText(w, e.Text)
		w.WriteString("\n</message>\n")
	}
}

func renderText(w *strings.Builder, text string) {
	for i := 0; i < len(text); {
		n := i
		for n < len(text) && plain[text[n]] {
			n++
		}
		if n > i {
			w.WriteString(text[i:n])
			i = n
			continue
		}
		r, size := utf8.DecodeRuneInString(text[i:])
		switch {
		case r == '&':
			w.WriteString("&amp;")
		case r == '<':
			w.WriteString("&lt;")
		case r == '>':
			w.WriteString("&gt;")
		case r == '\r':
			if i+1 == len(text) || text[i+1] != '\n' {
				w.WriteByte('\n')
			}
		case r == 0x1b:
			size = terminalSequence(text[i:])
		case r == '\n' || r == '\t':
			w.WriteByte(text[i])
		case r < 0x20 || 0x7f <= r && r <= 0x9f || isBidi(r):
		default:
			w.WriteRune(r) // U+FFFD for what is no UTF-8
		}
		i += size
	}
}

// plain are the bytes that renderText writes as they are.
var plain = func() (plain [256]bool) {
	for c := range plain {
		plain[c] = c >= 0x20 && c < 0x7f && c != '&' && c != '<' && c != '>' || c == '\n' || c == '\t'
	}
	return plain
}()

// isBidi reports whether r overrides or isolates the direction of text: it can
// make text look like other text.
func isBidi(r rune) bool {
	return 0x202a <= r && r <= 0x202e || 0x2066 <= r && r <= 0x2069 || r == 0x200e || r == 0x200f || r == 0x061c
}

// terminalSequence returns the length of the control sequence that the escape
// character at the start of text begins; 1 if it begins none.
func terminalSequence(text string) int {
	if len(text) < 2 || text[1] != '[' {
		return 1
	}
	for i := 2; i < len(text) && i < 64; i++ {
		switch c := text[i]; {
		case 0x40 <= c && c <= 0x7e:
			return i + 1
		case c < 0x20 || c > 0x3f:
			return 1
		}
	}
	return 1
}
