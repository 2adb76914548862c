package redact

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
)

// Bounds of the rules that others add.
const (
	// MaxRules is the number of rules that a team, and that a project may have.
	MaxRules = 32
	// MaxPattern is the length of a pattern in bytes.
	MaxPattern = 512
	// maxProgram bounds what a pattern compiles to: counted repetitions make long
	// programs of short patterns, and the time that a byte takes grows with it.
	maxProgram = 1000
)

// Rule is one that a team or a project adds.
type Rule struct {
	// Name stands in placeholders and findings behind "team-" or "project-": 1
	// to 32 lower-case letters, digits and dashes. Without one the rule goes by
	// its number.
	Name string
	// Pattern is an expression in the syntax of Go's regexp package, at most
	// MaxPattern bytes long, that does not match the empty text. What its first
	// group matches is replaced, what all of it matches if it has none.
	Pattern string
	// Allow says that what a built-in rule or one of the team finds stays if the
	// pattern matches all of it. A project cannot allow.
	Allow bool
}

// Options are the rules beside the built-in ones.
type Options struct {
	// Team holds what the team adds and allows.
	Team []Rule
	// Project holds what a project adds: a repository may hide more than its
	// team asks for, never less.
	Project []Rule
	// Known are texts that are known by their digests, of all Options together at
	// most MaxKnowns. Nobody allows them.
	Known []Known
	// OnlyKnown has nothing found but what Known says: to count where it stands.
	// What such a Redactor returns is not fit to leave.
	OnlyKnown bool
}

// extra is a compiled rule of a team or a project.
type extra struct {
	name  string
	regex *regexp.Regexp
	needs []byte // what stands in every match
}

// apply compiles the rules of o into r.
func (r *Redactor) apply(o Options) error {
	if err := r.applyKnown(o); err != nil {
		return err
	}
	for _, from := range []struct {
		source string
		rules  []Rule
	}{{"team", o.Team}, {"project", o.Project}} {
		if len(from.rules) > MaxRules {
			return fmt.Errorf("read redaction rules of the %s: %d of them, at most %d", from.source, len(from.rules), MaxRules)
		}
		for i, rule := range from.rules {
			if rule.Name == "" {
				rule.Name = fmt.Sprint(i + 1)
			}
			if len(rule.Name) > 32 || count([]byte(rule.Name), ruleName) < len(rule.Name) {
				return fmt.Errorf("read redaction rule %d of the %s: a name is 1 to 32 of a-z, 0-9 and -", i+1, from.source)
			}
			if rule.Allow && from.source != "team" {
				return fmt.Errorf("read redaction rule %s of the %s: only a team may allow", rule.Name, from.source)
			}
			e, err := newExtra(from.source+"-"+rule.Name, rule)
			switch {
			case err != nil:
				return fmt.Errorf("read redaction rule %s of the %s: %w", rule.Name, from.source, err)
			case rule.Allow:
				r.allowed = append(r.allowed, e.regex)
			case from.source == "team":
				r.team = append(r.team, e)
			default:
				r.project = append(r.project, e)
			}
		}
	}
	return nil
}

var ruleName = newSet("09az", "-")

func newExtra(name string, rule Rule) (extra, error) {
	if len(rule.Pattern) > MaxPattern {
		return extra{}, fmt.Errorf("its pattern has %d bytes, at most %d", len(rule.Pattern), MaxPattern)
	}
	tree, err := syntax.Parse(rule.Pattern, syntax.Perl)
	if err != nil {
		return extra{}, err
	}
	program, err := syntax.Compile(tree.Simplify())
	if err != nil {
		return extra{}, err
	}
	if len(program.Inst) > maxProgram {
		return extra{}, errors.New("its pattern is too complex: fewer and shorter repetitions")
	}
	pattern := rule.Pattern
	if rule.Allow {
		pattern = `^(?:` + pattern + `)$`
	}
	re, err := regexp.Compile(pattern)
	if err != nil {
		return extra{}, err
	}
	if re.MatchString("") {
		return extra{}, errors.New("its pattern matches the empty text")
	}
	return extra{name: name, regex: re, needs: []byte(literalIn(tree))}, nil
}

// literalIn returns the longest text that stands in every match, "" if there
// is none that is worth looking for.
func literalIn(re *syntax.Regexp) string {
	switch re.Op {
	case syntax.OpLiteral:
		if re.Flags&syntax.FoldCase == 0 && len(re.Rune) >= 2 {
			return string(re.Rune)
		}
	case syntax.OpCapture, syntax.OpPlus:
		return literalIn(re.Sub[0])
	case syntax.OpConcat:
		longest := ""
		for _, sub := range re.Sub {
			if s := literalIn(sub); len(s) > len(longest) {
				longest = s
			}
		}
		return longest
	case syntax.OpAlternate:
		first := literalIn(re.Sub[0])
		for _, sub := range re.Sub[1:] {
			if literalIn(sub) != first {
				return ""
			}
		}
		return first
	default:
	}
	return ""
}

// find appends what the rule finds in text. What was already replaced is no
// text: a rule that matches placeholders would never come to an end.
func (e *extra) find(text []byte, spans []span) []span {
	if !bytes.Contains(text, e.needs) {
		return spans
	}
	for from := 0; from < len(text); {
		to, next := len(text), len(text)
		for i := from; i < len(text); i++ {
			n := bytes.IndexByte(text[i:], '[')
			if n < 0 {
				break
			}
			i += n
			if size := replaced(text[i:]); size > 0 {
				to, next = i, i+size
				break
			}
		}
		for _, m := range e.regex.FindAllSubmatchIndex(text[from:to], -1) {
			first, last := m[0], m[1]
			if len(m) > 2 && m[2] >= 0 {
				first, last = m[2], m[3]
			}
			if first < last {
				spans = append(spans, span{from: from + first, to: from + last, rule: e.name, text: placeholder(e.name)})
			}
		}
		from = next
	}
	return spans
}

// replaced returns the length of the placeholder at the start of text, 0 if
// there is none.
func replaced(text []byte) int {
	end := bytes.IndexByte(text[:min(len(text), 128)], ']')
	if end < 0 {
		return 0
	}
	body := text[:end]
	if bytes.HasPrefix(body, []byte(marker)) && count(body[len(marker):], ruleName) == len(body)-len(marker) || isWithheld(text[:end+1]) {
		return end + 1
	}
	return 0
}

// allow drops the spans that the team allows in text.
func (r *Redactor) allow(text []byte, spans []span) []span {
	if len(r.allowed) == 0 {
		return spans
	}
	kept := spans[:0]
	for _, s := range spans {
		if s.rule == privateRule || !r.isAllowed(text[s.from:s.to]) {
			kept = append(kept, s)
		}
	}
	return kept
}

func (r *Redactor) isAllowed(value []byte) bool {
	if len(value) > maxAhead {
		return false
	}
	for _, re := range r.allowed {
		if re.Match(value) {
			return true
		}
	}
	return false
}
