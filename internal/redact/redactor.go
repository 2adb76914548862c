package redact

import (
	"bytes"
	"errors"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/undersong-dev/undersong/internal/redact/jsonline"
)

// RulesVersion names the set of rules. It goes into segment headers: a reader
// that knows newer rules scans again.
const RulesVersion = "3"

// MaxLine is the length in bytes of the longest line that is scanned; of a
// longer one only a stub is left. It is that of transcript.MaxLine.
const MaxLine = 32 << 20

// Findings counts what was replaced, by name of the rule. It never holds a
// value. It is nil when nothing was replaced.
type Findings map[string]int

// Known is how many of them were known texts.
func (f Findings) Known() int {
	n := 0
	for rule, times := range f {
		if isKnown(rule) {
			n += times
		}
	}
	return n
}

// Finding is one replacement: by which rule, and where. It never holds a value.
type Finding struct {
	// Rule is the name of the rule, as it stands in the placeholder.
	Rule string
	// Offset is the position in bytes of what was replaced, in the line or the
	// text as it was given. It is -1 for what could be seen only after
	// something else had been replaced.
	Offset int
}

// report gathers what was replaced.
type report struct {
	counts Findings
	list   []Finding
	base   int // what a position is counted from, < 0 if positions mean nothing
}

func (f *report) add(rule string, at int) {
	if f.counts == nil {
		f.counts = Findings{}
	}
	f.counts[rule]++
	if f.base < 0 || at < 0 {
		at = -1
	} else {
		at += f.base
	}
	f.list = append(f.list, Finding{Rule: rule, Offset: at})
}

// Redactor scans lines and texts. It is safe for concurrent use.
type Redactor struct {
	*builtins
	team, project []extra
	allowed       []*regexp.Regexp
	known         []known
	onlyKnown     bool
	fixed         *Redactor // without the three, for what machines read
	scratch       sync.Pool
}

// builtins are the rules that each Redactor has.
type builtins struct {
	rules   []rule
	matcher *matcher
}

// compiled are the built-in rules and those of gitleaks, compiled once for the
// process.
var compiled = sync.OnceValues(func() (*builtins, error) {
	imported, err := gitleaks()
	if err != nil {
		return nil, err
	}
	rules := slices.Concat(builtin(), places(), imported)
	if len(rules) > maxRules {
		return nil, errors.New("compile redaction rules: too many")
	}
	return &builtins{rules: rules, matcher: newMatcher(rules)}, nil
})

// New returns a Redactor with the built-in rules, those of gitleaks, and those
// of the options. It fails for a rule that is not what Rule says.
func New(options ...Options) (*Redactor, error) {
	rules, err := compiled()
	if err != nil {
		return nil, err
	}
	r := &Redactor{builtins: rules, fixed: &Redactor{builtins: rules}, scratch: sync.Pool{New: func() any { return new([]byte) }}}
	for _, o := range options {
		if err := r.apply(o); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// Rules are the names of the rules that every Redactor has, sorted.
func (r *Redactor) Rules() []string {
	var names []string
	for _, rule := range r.rules {
		names = append(names, rule.name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Text returns free text, such as a title, a branch or a whisper, without the
// secrets, private spans and payloads in it. Bytes that are no UTF-8 become
// U+FFFD.
func (r *Redactor) Text(s string) (Redacted, Findings) {
	var found report
	text := r.text([]byte(strings.ToValidUTF8(s, "\ufffd")), context{}, &found)
	return Redacted{text: string(text)}, found.counts
}

// TextFindings is Text with each replacement instead of their numbers.
func (r *Redactor) TextFindings(s string) (Redacted, []Finding) {
	var found report
	text := r.text([]byte(strings.ToValidUTF8(s, "\ufffd")), context{}, &found)
	return Redacted{text: string(text)}, found.list
}

// Line returns one transcript line, given without its LF, as it may leave the
// workstation: one line of valid JSON.
//
// A record of a type on the allow-list keeps all its bytes but these: the
// members that repeat its content in another form (rendered, toolUseResult),
// binary payloads, private spans and secrets in its strings and in the names of
// its members, and blanks around it. Any other line becomes a stub. Line of a
// result is that result, without findings; a stub stays the stub it is.
func (r *Redactor) Line(raw []byte) (Redacted, Findings) {
	l := r.line(raw, nil)
	return l.out, l.found.counts
}

// LineFindings is Line with each replacement instead of their numbers.
func (r *Redactor) LineFindings(raw []byte) (Redacted, []Finding) {
	l := r.line(raw, nil)
	return l.out, l.found.list
}

// Lines does what Line does to each of several lines that follow each other, and
// also replaces a token of which one record has the beginning and the next one
// the end. Between them may stand lines that become stubs.
func (r *Redactor) Lines(raw [][]byte) ([]Redacted, []Findings) {
	out, found := make([]Redacted, len(raw)), make([]Findings, len(raw))
	last := -1 // the line with the text before
	var before line
	for i := range raw {
		l := r.line(raw[i], nil)
		if l.texts.n > 0 {
			if last >= 0 {
				a, b := before.texts.last, l.texts.first
				if tail, head := r.seam(a, b); len(head) > 0 {
					before.forced = addForced(before.forced, a.at, tail)
					before = r.line(raw[last], before.forced) //nolint:gosec // last is an index of raw once it is not below zero
					out[last], found[last] = before.out, before.found.counts
					l = r.line(raw[i], addForced(nil, b.at, head))
				}
			}
			before, last = l, i
		}
		out[i], found[i] = l.out, l.found.counts
	}
	return out, found
}

// line is a line that was redacted.
type line struct {
	out    Redacted
	found  report
	texts  seams          // as the line was given; none of a stub
	forced map[int][]span // what was replaced because of its neighbours
}

// maxPasses bounds how often a line is read again after a replacement, for what
// two texts say now together.
const maxPasses = 4

// line redacts a line, and what is forced in its strings, by their positions.
//
// A fault of ours in one text must not stop all others: the line that shows it
// becomes a stub, here and on every later try.
func (r *Redactor) line(raw []byte, forced map[int][]span) (redacted line) {
	defer func() {
		if recover() != nil {
			redacted = line{out: r.badStub("unscannable", len(raw))}
		}
	}()
	if len(raw) > MaxLine {
		return line{out: r.badStub("too-long", len(raw))}
	}
	in := jsonline.Trim(raw)
	head, ok := readHead(in)
	if !ok {
		return line{out: r.badStub("bad-line", len(raw))}
	}
	if !head.kept(in) {
		return line{out: r.stub(in, head, len(raw))}
	}
	l := line{forced: forced, found: report{base: max(0, bytes.Index(raw, in))}}
	scratch := r.scratch.Get().(*[]byte) //nolint:forcetypeassert // the pool holds nothing else
	out, passes := in, 0
	for ; passes < maxPasses; passes++ {
		before := len(l.found.list)
		w := rewriter{r: r, in: out, found: &l.found, scratch: *scratch, forced: forced}
		w.value(jsonline.SkipSpace(out, 0), context{}, ofLine)
		if seams := w.texts.forced; seams != nil {
			for at, spans := range forced {
				seams = addForced(seams, at, spans)
			}
			l.found.undo(before)
			w = rewriter{r: r, in: out, found: &l.found, scratch: w.scratch, forced: seams}
			w.value(jsonline.SkipSpace(out, 0), context{}, ofLine)
		}
		if cap(w.scratch) <= 1<<20 {
			*scratch = w.scratch
		}
		if passes == 0 {
			l.texts = w.texts
			l.texts.forced = nil
		}
		out = w.result()
		if len(l.found.list) == before {
			break
		}
		forced, l.found.base = nil, -1
	}
	r.scratch.Put(scratch)
	if bytes.IndexByte(out, '\n') >= 0 {
		// In valid JSON it stands between values only.
		out = bytes.ReplaceAll(out, []byte("\n"), []byte(" "))
	}
	if len(out) > MaxLine || passes == maxPasses {
		return line{out: r.stub(in, head, len(raw))} // it would not pass again
	}
	l.out = Redacted{text: string(out)}
	return l
}

// undo forgets all replacements but the first n.
func (f *report) undo(n int) {
	for _, one := range f.list[n:] {
		if f.counts[one.Rule]--; f.counts[one.Rule] == 0 {
			delete(f.counts, one.Rule)
		}
	}
	f.list = f.list[:n]
}
