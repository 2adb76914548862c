package redact

import (
	"bytes"
	"errors"
	"strings"
	"sync"

	"github.com/undersong-dev/undersong/internal/redact/jsonline"
)

// RulesVersion names the set of rules. It goes into segment headers: a reader
// that knows newer rules scans again.
const RulesVersion = "2"

// MaxLine is the length in bytes of the longest line that is scanned; of a
// longer one only a stub is left. It is that of transcript.MaxLine.
const MaxLine = 32 << 20

// Findings counts what was replaced, by name of the rule. It never holds a
// value. It is nil when nothing was replaced.
type Findings map[string]int

// Redactor scans lines and texts. It is safe for concurrent use.
type Redactor struct {
	rules   []rule
	matcher *matcher
	scratch sync.Pool
}

// New returns a Redactor with the built-in rules and those of gitleaks, compiled
// once.
func New() (*Redactor, error) {
	imported, err := gitleaks()
	if err != nil {
		return nil, err
	}
	rules := append(builtin(), imported...)
	if len(rules) > maxRules {
		return nil, errors.New("compile redaction rules: too many")
	}
	return &Redactor{rules: rules, matcher: newMatcher(rules), scratch: sync.Pool{New: func() any { return new([]byte) }}}, nil
}

// Text returns free text, such as a title, a branch or a whisper, without the
// secrets, private spans and payloads in it. Bytes that are no UTF-8 become
// U+FFFD.
func (r *Redactor) Text(s string) (Redacted, Findings) {
	found := Findings{}
	text := r.text([]byte(strings.ToValidUTF8(s, "\ufffd")), context{}, found)
	return Redacted{text: string(text)}, found.orNil()
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
	if len(raw) > MaxLine {
		return r.badStub("too-long", len(raw)), nil
	}
	line := jsonline.Trim(raw)
	head, ok := readHead(line)
	if !ok {
		return r.badStub("bad-line", len(raw)), nil
	}
	if !head.kept(line) {
		return r.stub(line, head, len(raw)), nil
	}
	scratch := r.scratch.Get().(*[]byte) //nolint:forcetypeassert // the pool holds nothing else
	w := rewriter{r: r, in: line, found: Findings{}, scratch: *scratch}
	w.value(jsonline.SkipSpace(line, 0), context{}, ofLine)
	if cap(w.scratch) <= 1<<20 {
		*scratch = w.scratch
		r.scratch.Put(scratch)
	}
	out := w.result()
	if bytes.IndexByte(out, '\n') >= 0 {
		// In valid JSON it stands between values only.
		out = bytes.ReplaceAll(out, []byte("\n"), []byte(" "))
	}
	if len(out) > MaxLine {
		return r.stub(line, head, len(raw)), nil // it would not pass again
	}
	return Redacted{text: string(out)}, w.found.orNil()
}

func (f Findings) orNil() Findings {
	if len(f) == 0 {
		return nil
	}
	return f
}
