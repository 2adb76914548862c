package redact

import (
	"bytes"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/undersong-dev/undersong/internal/redact/jsonline"
)

// A rule names a kind of secret. Its words are what must stand in a text for
// the rule to look at all, in lower case; they match without regard to case. All
// words of all rules are looked for in one pass over the text.
//
// match is called where a word stands at text[at:end]. It returns the bytes to
// replace, from < 0 for none, and the position from which the rule wants to be
// called again, at least end. A match that fails after looking far ahead must
// return how far it looked, or be bounded: this is what keeps the time linear.
type rule struct {
	name  string
	words []string
	match func(text []byte, at, end int) (from, to, next int)
}

// span is a part of a text that is to be replaced.
type span struct {
	from, to int
	rule     string
	text     string // the replacement
}

const none = -1

// marker opens every placeholder of a secret.
const marker = "[redacted:"

func placeholder(rule string) string { return marker + rule + "]" }

// matcher finds the words of all rules in one pass: the automaton of Aho and
// Corasick, with bytes that stand in no word folded into one class.
type matcher struct {
	class  [256]uint8
	shift  uint
	next   []uint16 // next[state<<shift|class]
	accept uint16   // states from here on end some word
	ends   [][]end  // by state - accept
}

// end is a word that ends in a state.
type end struct {
	rule, size int
}

func newMatcher(rules []rule) *matcher {
	m := &matcher{}
	classes := 1
	for _, r := range rules {
		for _, w := range r.words {
			for i := range len(w) {
				if c := w[i]; m.class[c] == 0 {
					m.class[c] = uint8(classes)
					classes++
				}
			}
		}
	}
	for c := byte('A'); c <= 'Z'; c++ {
		m.class[c] = m.class[c+'a'-'A']
	}
	for 1<<m.shift < classes {
		m.shift++
	}

	// The tree of all words.
	type node struct {
		child map[uint8]int
		fail  int
		ends  []end
	}
	nodes := []node{{child: map[uint8]int{}}}
	for i, r := range rules {
		for _, w := range r.words {
			at := 0
			for j := range len(w) {
				c := m.class[w[j]]
				to, ok := nodes[at].child[c]
				if !ok {
					to = len(nodes)
					nodes[at].child[c] = to
					nodes = append(nodes, node{child: map[uint8]int{}})
				}
				at = to
			}
			nodes[at].ends = append(nodes[at].ends, end{rule: i, size: len(w)})
		}
	}
	// What a state falls back to, breadth first, and so all its steps.
	step := make([][]int, len(nodes))
	order := []int{0}
	for k := 0; k < len(order); k++ {
		at := order[k]
		step[at] = make([]int, classes)
		for c := range classes {
			to, ok := nodes[at].child[uint8(c)]
			switch {
			case !ok && at == 0:
				step[at][c] = 0
			case !ok:
				step[at][c] = step[nodes[at].fail][c]
			default:
				if at != 0 {
					nodes[to].fail = step[nodes[at].fail][c]
				}
				nodes[to].ends = append(nodes[to].ends, nodes[nodes[to].fail].ends...)
				step[at][c] = to
				order = append(order, to)
			}
		}
	}
	// Number the states so that those that end a word come last.
	slices.SortStableFunc(order, func(a, b int) int { return min(len(nodes[a].ends), 1) - min(len(nodes[b].ends), 1) })
	number := make([]uint16, len(nodes))
	m.accept = math.MaxUint16
	for i, at := range order {
		number[at] = uint16(i)
		if len(nodes[at].ends) > 0 {
			m.accept = min(m.accept, uint16(i))
			m.ends = append(m.ends, nodes[at].ends)
		}
	}
	m.next = make([]uint16, len(nodes)<<m.shift)
	for at, steps := range step {
		for c, to := range steps {
			m.next[int(number[at])<<m.shift|c] = number[to]
		}
	}
	return m
}

// find returns what must be replaced in text, in order and apart from each
// other.
func (r *Redactor) find(text []byte) []span { return r.findAt(text, 0) }

// findAt is find for what was decoded depth times.
func (r *Redactor) findAt(text []byte, depth int) []span {
	spans := r.findIn(text, depth)
	// What a reader does not see must not hide a secret. Both forms count: what
	// is stripped may also be what sets a secret apart from its neighbours.
	if plain, at := strip(text); at != nil {
		for _, s := range r.findIn(plain, depth) {
			if s.to > s.from {
				s.from, s.to = at.from(s.from), at.from(s.to-1)+1
				spans = append(spans, s)
			}
		}
	}
	if depth < maxDepth {
		spans = append(spans, r.findNested(text, depth)...)
	}
	return merge(spans)
}

// findNested returns what is found in text that was encoded as JSON before it
// came here: with the escapes read, lines begin where they began, and signs are
// what they were. The same goes for the escapes of addresses, of HTML and of
// source code, if there are some.
func (r *Redactor) findNested(text []byte, depth int) []span {
	var spans []span
	if bytes.IndexByte(text, '\\') >= 0 && (bytes.Contains(text, []byte(`":`)) || bytes.Contains(text, []byte(`\u00`))) {
		spans = r.findPlain(text, depth, unnest)
	}
	if bytes.IndexByte(text, '%') >= 0 || bytes.Contains(text, []byte("&#")) || bytes.Contains(text, []byte(`\x`)) {
		spans = append(spans, r.findPlain(text, depth, unescapeSigns)...)
	}
	return spans
}

// findPlain returns what is found in a text as it reads when its escapes are
// read.
func (r *Redactor) findPlain(text []byte, depth int, read func([]byte) ([]byte, offsets)) []span {
	plain, at := read(text)
	if len(at) == 1 {
		return nil
	}
	spans := r.findAt(plain, depth+1)
	for i := range spans {
		s := &spans[i]
		s.from = at.from(s.from)
		if s.to == len(plain) {
			s.to = len(text)
		} else {
			s.to = at.from(s.to)
		}
	}
	return spans
}

// unnest returns text with the escapes of JSON read, as far as they are such.
func unnest(text []byte) ([]byte, offsets) {
	plain := make([]byte, 0, len(text))
	at := offsets{{0, 0}}
	from := 0
	for from < len(text) {
		n := bytes.IndexByte(text[from:], '\\')
		if n < 0 || from+n+1 == len(text) {
			break
		}
		i := from + n
		plain = append(plain, text[from:i]...)
		size := 2
		switch c := text[i+1]; c {
		case 'n':
			plain = append(plain, '\n')
		case 't':
			plain = append(plain, '\t')
		case 'r':
			plain = append(plain, '\r')
		case '"', '\\', '/':
			plain = append(plain, c)
		case 'u':
			if i+6 <= len(text) && count(text[i+2:i+6], anyHex) == 4 {
				size = 6
				c, _ := jsonline.Escape(text[i : i+6])
				plain = utf8.AppendRune(plain, c)
				break
			}
			fallthrough
		default:
			plain = append(plain, '\\', c)
		}
		from = i + size
		at = append(at, struct{ plain, text int }{len(plain), from})
	}
	return append(plain, text[from:]...), at
}

// leastSigns is how many escapes of signs a text must have to be read without
// them: a few blanks in an address hide nothing.
const leastSigns = 4

// unescapeSigns returns text with %70, &#112;, &#x70; and \x70 read.
func unescapeSigns(text []byte) ([]byte, offsets) {
	plain := make([]byte, 0, len(text))
	at := offsets{{0, 0}}
	from := 0
	for i := 0; i < len(text); {
		n := bytes.IndexAny(text[i:], `%&\`)
		if n < 0 {
			break
		}
		i += n
		c, size := signEscape(text[i:])
		if size == 0 {
			i++
			continue
		}
		plain = append(append(plain, text[from:i]...), c)
		i += size
		from = i
		at = append(at, struct{ plain, text int }{len(plain), from})
	}
	if len(at) <= leastSigns {
		return text, offsets{{0, 0}}
	}
	return append(plain, text[from:]...), at
}

// signEscape reads the escape of a byte at the start of text, of size 0 if there
// is none.
func signEscape(text []byte) (c byte, size int) {
	value := func(digits []byte, base int) (n int) {
		for _, d := range digits {
			switch {
			case digit[d]:
				n = n*base + int(d-'0')
			default:
				n = n*base + int(d|0x20-'a') + 10
			}
		}
		return n
	}
	hexAt := func(i int) (byte, int) {
		if len(text) < i+2 || count(text[i:i+2], anyHex) < 2 {
			return 0, 0
		}
		return byte(value(text[i:i+2], 16)), i + 2 //nolint:gosec // two digits
	}
	switch {
	case text[0] == '%':
		return hexAt(1)
	case bytes.HasPrefix(text, []byte(`\x`)):
		return hexAt(2)
	case bytes.HasPrefix(text, []byte("&#x")), bytes.HasPrefix(text, []byte("&#X")):
		to := run(text[:min(len(text), 8)], 3, anyHex)
		if n := value(text[3:to], 16); to > 3 && to < len(text) && text[to] == ';' && n < 0x80 {
			return byte(n), to + 1 //nolint:gosec // below 0x80
		}
	case bytes.HasPrefix(text, []byte("&#")):
		to := run(text[:min(len(text), 8)], 2, digit)
		if n := value(text[2:to], 10); to > 2 && to < len(text) && text[to] == ';' && n < 0x80 {
			return byte(n), to + 1 //nolint:gosec // below 0x80
		}
	}
	return 0, 0
}

var anyHex = newSet("09afAF", "")

func (r *Redactor) findIn(text []byte, depth int) []span {
	if r.onlyKnown {
		return r.findKnown(text, append(r.findAcross(text), r.findEncoded(text, depth)...))
	}
	spans := findBinary(text)
	if len(text) < minText {
		return r.findExtra(text, spans)
	}
	spans = append(spans, r.findWords(text)...)
	spans = append(spans, r.findAcross(text)...)
	if len(text) >= minEncoded {
		spans = append(spans, r.findEncoded(text, depth)...)
		spans = append(spans, findEntropy(text)...)
		spans = append(spans, findManifests(text)...)
	}
	return r.findExtra(text, spans)
}

// findExtra adds what the rules of the team and the project find, and drops
// what the team allows, but nothing of what the project adds.
func (r *Redactor) findExtra(text []byte, spans []span) []span {
	for i := range r.team {
		spans = r.team[i].find(text, spans)
	}
	spans = r.allow(text, spans)
	for i := range r.project {
		spans = r.project[i].find(text, spans)
	}
	return r.findKnown(text, spans)
}

// findWords calls the rules where their words stand.
func (r *Redactor) findWords(text []byte) []span {
	var spans []span
	var resume [maxRules]int
	m := r.matcher
	state := uint16(0)
	for i, c := range text {
		state = m.next[int(state)<<m.shift|int(m.class[c])]
		if state < m.accept {
			continue
		}
		for _, e := range m.ends[state-m.accept] {
			at := i + 1 - e.size
			if at < resume[e.rule] {
				continue
			}
			rule := &r.rules[e.rule]
			from, to, next := rule.match(text, at, i+1)
			resume[e.rule] = next
			if from >= 0 && from < to {
				spans = append(spans, span{from: from, to: to, rule: rule.name, text: placeholder(rule.name)})
			}
		}
	}
	return spans
}

// joints are what stands between the parts of a text that is written in pieces:
// in source code and at the ends of lines that go on.
var joints = [][]byte{
	[]byte(`" + "`), []byte(`' + '`), []byte(`"+"`), []byte(`'+'`), []byte(`" . "`), []byte(`' . '`), []byte("\\\n"),
	[]byte("\" +\n"), []byte("' +\n"), []byte("\"\n"), []byte("'\n"),
}

// joined are the bytes behind the first one of a joint.
var joined = newSet("", " +\n")

// findAcross returns secrets that are written in pieces.
func (r *Redactor) findAcross(text []byte) []span {
	if len(text) < minText || bytes.IndexByte(text, '"') < 0 && bytes.IndexByte(text, '\'') < 0 && bytes.IndexByte(text, '\\') < 0 {
		return nil
	}
	plain := make([]byte, 0, 64)
	at := offsets{{0, 0}}
	from := 0
	for i := 0; i < len(text); i++ {
		if c := text[i]; c != '"' && c != '\'' && c != '\\' || i+1 == len(text) || !joined[text[i+1]] {
			continue
		}
		size := joint(text[i:])
		if size == 0 {
			continue
		}
		plain = append(plain, text[from:i]...)
		from = i + size
		if last := &at[len(at)-1]; last.plain == len(plain) {
			last.text = from
		} else {
			at = append(at, struct{ plain, text int }{len(plain), from})
		}
		i = from - 1
	}
	if len(at) == 1 {
		return nil
	}
	plain = append(plain, text[from:]...)
	var spans []span
	var found []span
	if !r.onlyKnown {
		found = r.allow(plain, r.findWords(plain))
	}
	for _, s := range r.findKnown(plain, found) {
		if s.rule == assignmentRule || s.rule == privateRule || !at.within(s.from, s.to) {
			continue // names and values of neighbours make no pair
		}
		s.from, s.to = at.from(s.from), at.from(s.to-1)+1
		spans = append(spans, s)
	}
	return spans
}

// joint returns the length of the joint at the start of text, with the
// indentation and the quote that begin the next line, 0 if there is none.
func joint(text []byte) int {
	for _, j := range joints {
		if !bytes.HasPrefix(text, j) {
			continue
		}
		n := len(j)
		if j[n-1] != '\n' {
			return n
		}
		n = blanks(text, n)
		if j[0] == '\\' {
			return n
		}
		if n < len(text) && text[n] == j[0] {
			return n + 1
		}
	}
	return 0
}

// merge sorts spans and joins those that overlap, under the name of the first
// that knows the secret by more than the name it is assigned to.
func merge(spans []span) []span {
	if len(spans) < 2 {
		return spans
	}
	slices.SortStableFunc(spans, func(a, b span) int {
		if a.from != b.from {
			return a.from - b.from
		}
		return b.to - a.to
	})
	merged := spans[:1]
	for _, s := range spans[1:] {
		last := &merged[len(merged)-1]
		if s.from >= last.to {
			merged = append(merged, s)
			continue
		}
		last.to = max(last.to, s.to)
		if isWeak(last.rule) && !isWeak(s.rule) || isKnown(s.rule) {
			last.rule, last.text = s.rule, s.text
		}
	}
	return merged
}

// isWeak reports whether a rule knows a secret only by what stands beside it.
func isWeak(rule string) bool { return rule == assignmentRule || rule == placeRule }

// offsets maps positions in a stripped text to the text it came from.
type offsets []struct{ plain, text int }

func (o offsets) from(plain int) int {
	i, found := slices.BinarySearchFunc(o, plain, func(e struct{ plain, text int }, p int) int { return e.plain - p })
	if !found {
		i--
	}
	return o[i].text + plain - o[i].plain
}

// within reports whether something was taken out between two positions in the
// stripped text.
func (o offsets) within(from, to int) bool {
	i, _ := slices.BinarySearchFunc(o, from+1, func(e struct{ plain, text int }, p int) int { return e.plain - p })
	return i < len(o) && o[i].plain < to
}

// strip returns text without what a reader does not see: terminal sequences,
// control characters but blanks, characters of no width. Without any the
// offsets are nil.
func strip(text []byte) ([]byte, offsets) {
	i := nextInvisible(text, 0)
	if i == len(text) {
		return text, nil
	}
	plain := make([]byte, 0, len(text))
	at := offsets{{0, 0}}
	from := 0
	for i < len(text) {
		plain = append(plain, text[from:i]...)
		from = i + invisible(text[i:])
		if last := &at[len(at)-1]; last.plain == len(plain) {
			last.text = from // several in a row: the last one counts
		} else {
			at = append(at, struct{ plain, text int }{len(plain), from})
		}
		i = nextInvisible(text, from)
	}
	return append(plain, text[from:]...), at
}

func nextInvisible(text []byte, i int) int {
	for ; i < len(text); i++ {
		if c := text[i]; (c < 0x20 || c >= 0x7f) && invisible(text[i:]) > 0 {
			return i
		}
	}
	return len(text)
}

// invisible returns the length of what stands at the start of text and is not
// seen, 0 if it is seen.
func invisible(text []byte) int {
	c := text[0]
	switch {
	case c == '\t' || c == '\n' || c == '\r' || 0x20 <= c && c < 0x7f:
		return 0
	case c == 0x1b:
		return terminalSequence(text)
	case c < 0x20 || c == 0x7f:
		return 1
	case c < 0xc2 || len(text) < 2:
		return 0
	}
	d := text[1]
	switch {
	case c == 0xc2 && (d == 0xad || 0x80 <= d && d <= 0x9f && d != 0x85), // soft hyphen, C1
		c == 0xcd && d == 0x8f, // combining grapheme joiner
		c == 0xd8 && d == 0x9c: // Arabic letter mark
		return 2
	case len(text) < 3:
		return 0
	}
	e := text[2]
	switch {
	case c == 0xe2 && d == 0x80 && (0x8b <= e && e <= 0x8f || 0xaa <= e && e <= 0xae), // widthless, direction
		c == 0xe2 && d == 0x81 && 0xa0 <= e && e <= 0xaf, // joiners, isolates
		c == 0xe1 && d == 0xa0 && 0x8b <= e && e <= 0x8e, // Mongolian
		c == 0xef && d == 0xb8 && 0x80 <= e && e <= 0x8f, // variation selectors
		c == 0xef && d == 0xbb && e == 0xbf:              // byte order mark
		return 3
	case c == 0xf3 && d == 0xa0 && len(text) >= 4: // tags
		return 4
	}
	return 0
}

// terminalSequence returns the length of the sequence that the escape character
// at the start of text begins, 1 if it begins none.
func terminalSequence(text []byte) int {
	const limit = 128 // longer ones than a title or a link has are none
	if len(text) < 2 {
		return 1
	}
	switch c := text[1]; {
	case c == '[':
		for i := 2; i < len(text) && i < limit; i++ {
			if 0x40 <= text[i] && text[i] <= 0x7e {
				return i + 1
			}
			if text[i] < 0x20 || text[i] > 0x3f {
				return 1
			}
		}
		return 1
	case c == ']': // a title or a link, up to BEL or ESC \
		rest := text[:min(len(text), limit)]
		if i := bytes.IndexAny(rest[2:], "\a\x1b"); i >= 0 {
			if rest[2+i] == 0x1b && 3+i < len(rest) && rest[3+i] == '\\' {
				return i + 4
			}
			return i + 3
		}
		return 1
	case strings.IndexByte("()*+", c) >= 0 && len(text) > 2: // character sets
		return 3
	}
	return 1
}
