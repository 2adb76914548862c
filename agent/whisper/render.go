package whisper

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

const (
	// TrustLearned is what the agent is told about what the memory wrote and
	// nobody has checked.
	TrustLearned = "learned"
	// TrustPinned is what it is told about what people of the team wrote.
	TrustPinned = "pinned"

	// maxAttribute bounds one attribute, in UTF-16 units: a remote has 253.
	maxAttribute = 253

	// moreReserve is kept free for the line that counts what did not fit.
	moreReserve = 100

	// cut ends a text of which a part is shown.
	cut = " … (cut)"
)

// page is the text for the agent while it grows.
type page struct {
	parts []string
	left  int // UTF-16 units, a line end after each part included
}

func newPage(limit int) *page { return &page{left: limit + 1} }

// element renders a whisper, and reports whether it fits. Only the first text
// of a page is cut to fit.
func (p *page) element(w Whisper, now time.Time) (string, bool) {
	if w.Text == "" {
		return "", true
	}
	label, trust := "", TrustLearned
	if w.Label != "" {
		label = ` block="` + attribute(w.Label) + `"`
	}
	if w.Trust == TrustPinned {
		trust = TrustPinned
	}
	open := fmt.Sprintf(`<team_memory project="%s" memory="%s"%s age="%s" id="%s" trust="%s">`,
		attribute(w.Project), attribute(w.Memory), label, age(now.Sub(w.At)), attribute(w.ID), trust)
	const end = `</team_memory>`
	room := p.left - units(open) - units(end) - 1
	text := strings.TrimSpace(w.Text)
	body, whole := escape(text, room, false)
	if whole {
		return open + body + end, true
	}
	if len(p.parts) > 0 || room <= units(cut) {
		return "", false
	}
	body, _ = escape(text, room-units(cut), false)
	return open + body + cut + end, true
}

func (p *page) add(element string) {
	if element != "" {
		p.parts = append(p.parts, element)
		p.left -= units(element) + 1
	}
}

// more adds the line that counts what still waits.
func (p *page) more(n int) {
	p.add(fmt.Sprintf(`<team_memory more="%d">%d more to follow.</team_memory>`, n, n))
}

func (p *page) String() string { return strings.Join(p.parts, "\n") }

func attribute(s string) string {
	s, _ = escape(s, maxAttribute, true)
	return s
}

// escape renders text so that it is seen as it is and ends nothing: markup
// becomes entities, and characters that are not seen, or that change how others
// are seen, become numbers. It stops before the limit of UTF-16 units, never
// within a character, and reports whether all of the text is there.
func escape(s string, limit int, quoted bool) (string, bool) {
	var b strings.Builder
	for _, r := range s { // invalid bytes come as U+FFFD
		var piece string
		switch {
		case r == '&':
			piece = "&amp;"
		case r == '<':
			piece = "&lt;"
		case r == '>':
			piece = "&gt;"
		case r == '"' && quoted:
			piece = "&quot;"
		case r == '\'' && quoted:
			piece = "&#x27;"
		case (r == '\n' || r == '\t') && !quoted:
			piece = string(r)
		case hidden(r):
			piece = "&#x" + strconv.FormatInt(int64(r), 16) + ";"
		default:
			piece = string(r)
		}
		if limit -= units(piece); limit < 0 {
			return b.String(), false
		}
		b.WriteString(piece)
	}
	return b.String(), true
}

// plainLine renders a line for a person's terminal, cut at the limit: nothing
// in it moves the cursor or hides.
func plainLine(s string, limit int) string {
	var b strings.Builder
	for _, r := range strings.TrimSpace(s) {
		switch {
		case r == '\n' || r == '\t':
			r = ' '
		case hidden(r):
			r = utf8.RuneError
		}
		if limit -= units(string(r)); limit < 0 {
			break
		}
		b.WriteRune(r)
	}
	return b.String()
}

// PlainLine renders one line for a person's terminal: nothing in it moves the
// cursor or hides.
func PlainLine(s string) string { return plainLine(s, maxNotices) }

// hidden reports whether a character is invisible or changes the look of
// others: control characters, bidirectional marks, zero-width characters, tags,
// variation selectors, and letters without a glyph. Text can be smuggled in any
// of these.
func hidden(r rune) bool {
	if r < utf8.RuneSelf {
		return r < ' ' || r == 0x7f
	}
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Co, unicode.Cs, unicode.Zl, unicode.Zp,
		unicode.Variation_Selector, unicode.Other_Default_Ignorable_Code_Point) || r == '\u2800' // an empty Braille cell
}

// units counts as Claude Code does: characters beyond the first plane are two.
func units(s string) int {
	n := 0
	for _, r := range s {
		n++
		if r > 0xFFFF {
			n++
		}
	}
	return n
}

// age says how old a whisper is, in one unit. A clock that runs behind gives 0m.
func age(d time.Duration) string {
	switch {
	case d >= 48*time.Hour:
		return strconv.Itoa(int(d/(24*time.Hour))) + "d"
	case d >= 2*time.Hour:
		return strconv.Itoa(int(d/time.Hour)) + "h"
	default:
		return strconv.Itoa(int(max(d, 0)/time.Minute)) + "m"
	}
}
