package redact

import (
	"bytes"

	"github.com/undersong-dev/undersong/internal/redact/jsonline"
)

// Seams: where the text of one block ends and that of the next begins. A token
// that is cut there is in neither of them.

// seamWidth is how many bytes on each side of a seam are looked at. A piece
// that is longer is mostly found by itself.
const seamWidth = 256

// acrossSeams reports whether the secrets of a rule can be told across a seam.
// Where names and values, or the bounds of a block, make the secret, neighbours
// would become pairs that they are not.
func acrossSeams(rule string) bool {
	switch rule {
	case assignmentRule, privateRule, "private-key", "basic-auth", "cookie", "option-password", "uri-password":
		return false
	}
	return true
}

// edge is what a text has at its ends, as it says it.
type edge struct {
	at         int // where its string begins in the line
	head, tail []byte
}

// seams are what is known of the texts of a line. Only the first and the last
// are kept: a line may have millions.
type seams struct {
	n           int
	first, last edge
	forced      map[int][]span // what must be replaced, by where its string begins
}

// minSeam is the least length of what stands around a seam with a token in it.
const minSeam = 16

// newEdge returns the ends of the string v in a line.
func newEdge(line []byte, v jsonline.Value) edge {
	in := line[v.Start+1 : v.End-1]
	if v.Plain {
		return edge{v.Start, in[:min(len(in), seamWidth)], in[max(0, len(in)-seamWidth):]}
	}
	// Not within an escape: an even number of backslashes stands before the cut.
	const most = 2 * seamWidth
	cut := func(i int) int {
		n := 0
		for i-n > 0 && in[i-n-1] == '\\' {
			n++
		}
		return i + n%2
	}
	head, tail := len(in), 0
	if len(in) > most {
		head, tail = most, cut(len(in)-most)
		for head > most-12 && head > 0 && !whole(in[:head]) {
			head--
		}
	}
	e := edge{at: v.Start}
	if whole(in[:head]) {
		e.head = unescape(nil, in[:head])
	}
	e.tail = unescape(nil, in[tail:])
	e.head = e.head[:min(len(e.head), seamWidth)]
	e.tail = e.tail[max(0, len(e.tail)-seamWidth):]
	return e
}

// whole reports whether the inside of a string, cut somewhere, ends with no
// escape that was cut.
func whole(in []byte) bool {
	for i := max(0, len(in)-6); i < len(in); i++ {
		if in[i] != '\\' {
			continue
		}
		n := i
		for n > 0 && in[n-1] == '\\' {
			n--
		}
		if (i-n)%2 != 0 {
			continue // it is escaped itself
		}
		size := 2
		if i+1 < len(in) && in[i+1] == 'u' {
			size = 6
		}
		if i+size > len(in) {
			return false
		}
	}
	return true
}

// seam returns what must be replaced at the end of one text and at the start of
// the next: positions from the end of the first, below zero, and from the start
// of the second.
func (r *Redactor) seam(a, b edge) (before, after []span) {
	defer func() {
		if recover() != nil { // what cannot be scanned does not leave
			before = []span{{from: -len(a.tail), to: 0, rule: unscannableRule, text: placeholder(unscannableRule)}}
			after = []span{{from: 0, to: len(b.head), rule: unscannableRule, text: placeholder(unscannableRule)}}
		}
	}()
	if len(a.tail) == 0 || len(b.head) == 0 || len(a.tail)+len(b.head) < minSeam {
		return nil, nil
	}
	if passed := r.named(a, b); passed.to > 0 {
		if passed.from < 0 {
			before = []span{{from: passed.from, to: 0, rule: passed.rule, text: passed.text}}
		}
		passed.from = max(0, passed.from)
		return before, []span{passed}
	}
	if !seamSet[a.tail[len(a.tail)-1]] || !seamSet[b.head[0]] {
		return nil, nil
	}
	joined := append(append(make([]byte, 0, len(a.tail)+len(b.head)), a.tail...), b.head...)
	at := len(a.tail)
	for _, s := range merge(r.findWords(joined)) {
		if s.from >= at || s.to <= at || !acrossSeams(s.rule) {
			continue
		}
		if r.endsWith(a.tail, s.rule) && !isPiece(joined[at:s.to]) {
			continue // the first text has all of it
		}
		before = append(before, span{from: s.from - at, to: 0, rule: s.rule, text: s.text})
		after = append(after, span{from: 0, to: s.to - at, rule: s.rule, text: s.text})
	}
	return before, after
}

// named returns the secret whose name, or whose name and beginning, end the first
// text, and whose rest begins the second; from below or at the seam, 0 to 0 for
// none. Here names and values that are neighbours become pairs, so what begins the
// second text must be no word.
func (r *Redactor) named(a, b edge) span {
	begin := 0
	for begin < len(b.head) && (b.head[begin] == ' ' || b.head[begin] == '\n') && begin < 2 {
		begin++
	}
	to := begin + valueRun(b.head[begin:], lineStops)
	rest := bytes.TrimRight(b.head[begin:to], ".,;:!?)")
	if len(rest) < 3 || !isNoWord(rest) || isReference(rest) || isPath(rest) {
		return span{}
	}
	// A value that is cut, or one that is behind its name as behind a blank.
	tail := bytes.TrimRight(a.tail, " \n")
	for _, join := range []struct {
		before string
		name   []byte
	}{{"", a.tail}, {" ", tail}} {
		if join.before == "" && begin > 0 {
			continue
		}
		joined := append(append(append(make([]byte, 0, len(a.tail)+1+to), join.name...), join.before...), b.head[begin:to]...)
		at := len(join.name) + len(join.before)
		for _, s := range merge(r.findWords(joined)) {
			if acrossSeams(s.rule) || s.rule == privateRule || s.from > at || s.to <= at || s.from < at && join.before != "" {
				continue
			}
			if r.endsWith(a.tail, s.rule) && !isPiece(rest) {
				continue // the first text has all of it
			}
			s.from, s.to = s.from-at, s.to-at+begin
			if s.from == 0 {
				s.from = begin
			}
			return s
		}
	}
	return span{}
}

var seamSet = newSet("09azAZ", "+/=_-.~")

// endsWith reports whether a secret of the rule stands at the end of text.
func (r *Redactor) endsWith(text []byte, rule string) bool {
	for _, s := range r.findWords(text) {
		if s.rule == rule && s.to == len(text) {
			return true
		}
	}
	return false
}

// isPiece reports whether what follows a secret is more of it rather than the
// next word.
func isPiece(b []byte) bool {
	changes := 0
	for i := 1; i < len(b); i++ {
		if digit[b[i]] != digit[b[i-1]] || lower[b[i-1]] && upper[b[i]] {
			changes++
		}
	}
	return len(b) >= 4 && mixed(b) && 3*changes >= len(b)
}

// add notes a text of a line and what must be replaced because of the seam
// between it and the one before.
func (s *seams) add(r *Redactor, e edge) {
	if s.n++; s.n == 1 {
		s.first, s.last = e, e
		return
	}
	before, after := r.seam(s.last, e)
	if len(after) > 0 {
		s.forced = addForced(s.forced, s.last.at, before)
		s.forced = addForced(s.forced, e.at, after)
	}
	s.last = e
}

func addForced(forced map[int][]span, at int, spans []span) map[int][]span {
	if forced == nil {
		forced = map[int][]span{}
	}
	forced[at] = append(forced[at], spans...)
	return forced
}
