package redact

import (
	"unicode/utf8"

	"github.com/undersong-dev/undersong/internal/redact/jsonline"
)

// maxRounds bounds how often a text is scanned again after a replacement, for
// what stands now beside what did not before. A text that still gives findings
// then is hostile.
const maxRounds = 8

const unstableRule = "unstable"

// unscannableRule stands for text on which a rule of ours failed.
const unscannableRule = "unscannable"

// context is what the place of a string in its line says about it.
type context struct {
	class class
	name  []byte // of its member, for values whose class says secret
	// plural says that the name speaks of several: only of a list it says
	// anything.
	plural bool
	// fixed says that machines read the string: rules that others add do not
	// touch it.
	fixed bool
}

// findValue returns what must be replaced in a text that stands at a place.
func (r *Redactor) findValue(text []byte, ctx context) []span {
	if ctx.fixed {
		if r.onlyKnown {
			return nil
		}
		return r.fixed.find(text)
	}
	spans := r.find(text)
	if ctx.class == plainName || r.onlyKnown {
		return spans
	}
	from, to, rule := 0, len(text), assignmentRule
	if ctx.class == dataOfSecret {
		if rule = manifestRule; len(text) < minData || isReference(text) {
			return spans
		}
	} else if ctx.class == headerName {
		if from, to = credentials(text, 0); from < 0 {
			return spans
		}
	} else if ctx.class == cookieHeader {
		var secret bool
		if from, to, secret = cookies(text, 0, len(ctx.name) > len("cookie")); !secret {
			return spans
		}
	} else if !isSecret(text, ctx.class, quoted, ctx.name) {
		return spans
	}
	if r.isAllowed(text[from:to]) {
		return spans
	}
	return merge(append(spans, span{from: from, to: to, rule: rule, text: placeholder(rule)}))
}

// text returns text without what must be replaced, the same text if nothing
// must.
func (r *Redactor) text(text []byte, ctx context, found *report) (clean []byte) {
	defer func() {
		if recover() != nil { // what cannot be scanned does not leave
			found.add(unscannableRule, -1)
			clean = []byte(placeholder(unscannableRule))
		}
	}()
	for range maxRounds {
		spans := r.findValue(text, ctx)
		if len(spans) == 0 {
			return text
		}
		out := make([]byte, 0, len(text))
		from := 0
		for _, s := range spans {
			found.add(s.rule, s.from)
			out = append(append(out, text[from:s.from]...), s.text...)
			from = s.to
		}
		text = append(out, text[from:]...)
		found.base = -1
	}
	found.add(unstableRule, -1)
	return []byte(placeholder(unstableRule))
}

// literal does to the inside of a JSON string what text does to what it says.
// Only what is replaced is written anew. plain says that the string has no
// escapes. forced is what must be replaced in any case, counted from the start of
// what the string says, or from its end if below zero. scratch is memory to decode into; it is returned, maybe grown.
func (r *Redactor) literal(in []byte, plain bool, ctx context, forced []span, found *report, scratch []byte) (out, grown []byte, changed bool) {
	for range maxRounds {
		said := in
		if !plain {
			scratch = unescape(scratch[:0], in)
			said = scratch
		}
		spans := r.findValue(said, ctx)
		for _, s := range forced {
			if s.from < 0 {
				s.from, s.to = max(0, len(said)+s.from), len(said)
			}
			spans = append(spans, s)
		}
		if len(forced) > 0 {
			spans = merge(spans)
		}
		if len(spans) == 0 {
			return in, scratch, changed
		}
		if !plain {
			escapedPositions(in, spans)
		}
		for _, s := range spans {
			found.add(s.rule, s.from)
		}
		changed, forced, found.base = true, nil, -1
		next := make([]byte, 0, len(in))
		from := 0
		for _, s := range spans {
			next = append(append(next, in[from:s.from]...), s.text...)
			from = s.to
		}
		in = append(next, in[from:]...)
	}
	found.add(unstableRule, -1)
	return []byte(placeholder(unstableRule)), scratch, true
}

// unescape appends what the inside of a JSON string says. Bytes that are no
// UTF-8 stay as they are: they must be found again.
func unescape(dst, in []byte) []byte {
	for i := 0; i < len(in); {
		if in[i] != '\\' {
			n := i
			for n < len(in) && in[n] != '\\' {
				n++
			}
			dst = append(dst, in[i:n]...)
			i = n
			continue
		}
		c, size := jsonline.Escape(in[i:])
		dst = utf8.AppendRune(dst, c)
		i += size
	}
	return dst
}

// escapedPositions turns positions in what a JSON string says into positions in
// its inside. Where one lies within an escape, the whole escape is taken.
func escapedPositions(in []byte, spans []span) {
	at, said := 0, 0 // what comes from in[at:at+size] stands at said, width bytes long
	size, width := 0, 0
	seek := func(target int) {
		for said+width <= target {
			at, said = at+size, said+width
			size, width = 1, 1
			if in[at] == '\\' {
				var c rune
				c, size = jsonline.Escape(in[at:])
				width = utf8.RuneLen(c)
			}
		}
	}
	done := 0
	for i := range spans {
		s := &spans[i]
		seek(s.from)
		from := max(at, done)
		seek(s.to - 1)
		done = at + size
		s.from, s.to = from, done
	}
}
