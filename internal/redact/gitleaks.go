package redact

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// The rules of gitleaks, compiled into this package's matcher. gitleaks looks
// for the words of a rule anywhere and then runs its expression over the whole
// text; here an expression is tried only where a match can begin, and only if
// enough of the bytes that its secret is made of stand there. Go's expressions
// never backtrack, and each attempt sees a bounded part of the text.

//go:embed gitleaks/rules.json
var gitleaksJSON []byte

// gitleaksRule is a rule as gitleaks/rules.json has it.
type gitleaksRule struct {
	ID      string   `json:"id"`
	Regex   string   `json:"regex"`
	Words   []string `json:"words"`
	Entropy float64  `json:"entropy"`
	Group   int      `json:"group"`
	Allow   []string `json:"allow"`
}

// Parts that many of gitleaks' expressions share.
const (
	// Before the name of a service: more of the name, which decides nothing.
	nameBefore = `[\w.-]{0,50}?`
	// Behind it: more of the name, quotes.
	nameBehind = `(?:[ \t\w.-]{0,20})[\s'"]{0,3}`
	assignSign = `(?:=|>|:{1,3}=|\|\||:|=>|\?=|,)[\x60'"\s=]{0,5}`
	valueEnd   = `(?:[\x60'"\s;]|\\[nr]|$)`
	// In talk, a secret may also end with a comma, a full stop, a bracket.
	looseEnd = `(?:[^0-9A-Za-z_]|$)`
)

const (
	maxWords  = 128  // of one rule
	maxBefore = 64   // how far before its word a secret may begin
	maxMatch  = 1024 // the longest secret of a rule that is tried whole; of a longer one the rest is taken by its bytes
)

// expression is a rule whose secrets an expression describes.
type expression struct {
	id       string
	regex    func() *regexp.Regexp
	group    int
	entropy  float64
	allow    []*regexp.Regexp
	bounded  bool   // no letter may stand before it
	behind   bool   // a sign stands between the word and the secret
	floating bool   // the word stands somewhere in the secret
	chars    *set   // what a match, or its secret behind a sign, is made of
	size     int    // the least length of that
	numbers  bool   // the secret may be a number
	needs    []byte // what stands in every match
	longest  int    // the most bytes that a match has, at most maxMatch
}

// gitleaks returns the rules, compiled once for the process. Expressions are
// compiled when they are first needed.
var gitleaks = sync.OnceValues(func() ([]rule, error) {
	var list []gitleaksRule
	if err := json.Unmarshal(gitleaksJSON, &list); err != nil {
		return nil, fmt.Errorf("read gitleaks' rules: %w", err)
	}
	var rules []rule
	for _, g := range list {
		e, words, err := newExpression(g)
		if err != nil {
			return nil, fmt.Errorf("read gitleaks' rule %s: %w", g.ID, err)
		}
		rules = append(rules, rule{g.ID, words, e.match})
	}
	return rules, nil
})

// newExpression prepares a rule and returns it with the words at which it is
// tried.
func newExpression(g gitleaksRule) (*expression, []string, error) {
	e := &expression{id: g.ID, group: g.Group, entropy: g.Entropy}
	for _, a := range g.Allow {
		re, err := regexp.Compile(a)
		if err != nil {
			return nil, nil, fmt.Errorf("parse an allowed form: %w", err)
		}
		e.allow = append(e.allow, re)
	}
	flags, text := "", g.Regex
	if rest, found := strings.CutPrefix(text, "(?i)"); found {
		flags, text = "(?i)", rest
	}
	// Names: [\w.-]{0,50}?(?:name)…sign…value, in two ways of writing it.
	wrapped := strings.HasPrefix(text, nameBefore+"(?i:"+nameBefore)
	if wrapped {
		text = strings.TrimPrefix(text, nameBefore+"(?i:"+nameBefore)
		text = strings.Replace(text, nameBehind+")"+assignSign, nameBehind+assignSign, 1)
	}
	text = strings.TrimPrefix(text, nameBefore)
	if name, value, found := strings.Cut(text, nameBehind+assignSign); found {
		words, err := wordsOf("(?i)" + name)
		if err != nil {
			return nil, nil, err
		}
		e.behind = true
		value, _, _ = strings.Cut(value, "|\\b") // a second form, which has a rule of ours
		return e, words, e.compile(flags, assignSign, value)
	}
	if rest, found := strings.CutPrefix(text, `\b`); found {
		e.bounded, text = true, rest
	}
	words, err := wordsOf(flags + strings.ReplaceAll(text, valueEnd, ""))
	if err != nil {
		// Its beginning can be anything: try it around its words.
		e.floating, words = true, g.Words
	}
	return e, words, e.compile(flags, "", text)
}

// compile prepares the expression of what stands behind a word, or from it on.
func (e *expression) compile(flags, before, text string) error {
	tree, err := syntax.Parse(flags+strings.ReplaceAll(text, valueEnd, ""), syntax.Perl)
	if err != nil {
		return errors.New("parse its expression")
	}
	e.chars = &set{}
	e.size = measure(tree, e.chars)
	e.needs = []byte(literalIn(tree))
	e.longest = min(maxMatch, longest(tree))
	e.numbers = count([]byte("abcdefxyzABCDEFXYZ"), e.chars) == 0
	source := flags + before + strings.ReplaceAll(text, valueEnd, looseEnd)
	if !e.floating {
		source = "^(?:" + source + ")"
	}
	e.regex = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(source) })
	return nil
}

var errNoWord = errors.New("no word begins every match")

// wordsOf returns words of which each match begins with one, in lower case.
func wordsOf(expression string) ([]string, error) {
	tree, err := syntax.Parse(expression, syntax.Perl)
	if err != nil {
		return nil, errors.New("parse its expression")
	}
	words, _ := beginnings(tree)
	if len(words) == 0 || len(words) > maxWords {
		return nil, errNoWord
	}
	for i, w := range words {
		if words[i] = strings.ToLower(w); len(w) < 2 {
			return nil, errNoWord
		}
	}
	slices.Sort(words)
	return slices.Compact(words), nil
}

// beginnings returns what the matches of an expression begin with, and whether
// that is all they are. It returns nothing if it cannot tell.
func beginnings(re *syntax.Regexp) (words []string, whole bool) {
	const few = 4 // letters of a class that are spelt out
	switch re.Op {
	case syntax.OpEmptyMatch, syntax.OpWordBoundary, syntax.OpBeginText:
		return []string{""}, true
	case syntax.OpLiteral:
		return []string{string(re.Rune)}, true
	case syntax.OpCharClass:
		for i := 0; i+1 < len(re.Rune); i += 2 {
			for c := re.Rune[i]; c <= re.Rune[i+1]; c++ {
				if words = append(words, string(c)); len(words) > few {
					return []string{""}, false
				}
			}
		}
		return words, true
	case syntax.OpCapture:
		return beginnings(re.Sub[0])
	case syntax.OpQuest:
		words, whole = beginnings(re.Sub[0])
		return append(words, ""), whole
	case syntax.OpAlternate:
		whole = true
		for _, sub := range re.Sub {
			w, all := beginnings(sub)
			words, whole = append(words, w...), whole && all
		}
		return words, whole
	case syntax.OpConcat:
		words, whole = []string{""}, true
		for _, sub := range re.Sub {
			next, all := beginnings(sub)
			if len(words)*len(next) > maxWords {
				return words, false
			}
			var longer []string
			for _, w := range words {
				for _, n := range next {
					longer = append(longer, w+n)
				}
			}
			if words, whole = longer, all; !whole {
				break
			}
		}
		return words, whole
	case syntax.OpNoMatch, syntax.OpAnyCharNotNL, syntax.OpAnyChar, syntax.OpBeginLine, syntax.OpEndLine, syntax.OpEndText,
		syntax.OpNoWordBoundary, syntax.OpStar, syntax.OpPlus, syntax.OpRepeat:
	}
	return []string{""}, false
}

// measure adds to chars the bytes that matches of an expression are made of,
// and returns the least number of them.
func measure(re *syntax.Regexp, chars *set) int {
	add := func(lo, hi rune) {
		for c := lo; c <= min(hi, utf8.RuneSelf-1); c++ {
			chars[c] = true
		}
		if hi >= utf8.RuneSelf {
			for c := utf8.RuneSelf; c < len(chars); c++ {
				chars[c] = true
			}
		}
	}
	switch re.Op {
	case syntax.OpLiteral:
		for _, c := range re.Rune {
			add(c, c)
			if re.Flags&syntax.FoldCase != 0 {
				add(unicode.ToLower(c), unicode.ToLower(c))
				add(unicode.ToUpper(c), unicode.ToUpper(c))
			}
		}
		return len(re.Rune)
	case syntax.OpCharClass:
		for i := 0; i+1 < len(re.Rune); i += 2 {
			add(re.Rune[i], re.Rune[i+1])
		}
		return 1
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		add(0, utf8.MaxRune)
		return 1
	case syntax.OpCapture, syntax.OpPlus:
		return measure(re.Sub[0], chars)
	case syntax.OpStar, syntax.OpQuest:
		measure(re.Sub[0], chars)
		return 0
	case syntax.OpRepeat:
		return re.Min * measure(re.Sub[0], chars)
	case syntax.OpConcat:
		n := 0
		for _, sub := range re.Sub {
			n += measure(sub, chars)
		}
		return n
	case syntax.OpAlternate:
		n := math.MaxInt
		for _, sub := range re.Sub {
			n = min(n, measure(sub, chars))
		}
		return n
	case syntax.OpNoMatch, syntax.OpEmptyMatch, syntax.OpBeginLine, syntax.OpEndLine, syntax.OpBeginText, syntax.OpEndText,
		syntax.OpWordBoundary, syntax.OpNoWordBoundary:
	}
	return 0
}

// longest returns the most bytes that a match has, or maxMatch and more.
func longest(re *syntax.Regexp) int {
	n := 0
	switch re.Op {
	case syntax.OpLiteral:
		return utf8.UTFMax * len(re.Rune)
	case syntax.OpCharClass, syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		n = 1
		if len(re.Rune) == 0 || re.Rune[len(re.Rune)-1] >= utf8.RuneSelf {
			n = utf8.UTFMax
		}
	case syntax.OpCapture, syntax.OpQuest:
		return longest(re.Sub[0])
	case syntax.OpStar, syntax.OpPlus:
		return maxMatch
	case syntax.OpRepeat:
		if re.Max < 0 {
			return maxMatch
		}
		return re.Max * longest(re.Sub[0])
	case syntax.OpConcat:
		for _, sub := range re.Sub {
			n += longest(sub)
		}
	case syntax.OpAlternate:
		for _, sub := range re.Sub {
			n = max(n, longest(sub))
		}
	case syntax.OpNoMatch, syntax.OpEmptyMatch, syntax.OpBeginLine, syntax.OpEndLine, syntax.OpBeginText, syntax.OpEndText,
		syntax.OpWordBoundary, syntax.OpNoWordBoundary:
	}
	return n
}

// match is the match of the rule.
func (e *expression) match(text []byte, at, end int) (int, int, int) {
	from, value := at, at
	switch {
	case e.floating:
		for from = at; from > 0 && at-from < maxBefore && e.chars[text[from-1]]; {
			from--
		}
		value = run(text[:min(len(text), end+maxMatch)], from, e.chars)
		if value-from < e.size {
			return none, 0, end
		}
	case e.behind:
		if from, value = signBehind(text, end); from < 0 {
			return none, 0, end
		}
	case e.bounded && !bounds(text, at):
		return none, 0, end
	}
	limit := min(len(text), value+e.longest+utf8.UTFMax) // and what ends it
	if e.floating {
		limit = min(len(text), value+1) // and what ends it
	}
	if !e.floating && run(text[:min(limit, value+e.size)], value, e.chars)-value < e.size {
		return none, 0, end
	}
	if !bytes.Contains(text[from:limit], e.needs) {
		return none, 0, e.resume(text, end, limit)
	}
	m := e.regex().FindSubmatchIndex(text[from:limit])
	if m == nil {
		return none, 0, e.resume(text, end, limit)
	}
	first, last := m[0], m[1]
	for g := 1; 2*g < len(m); g++ {
		if m[2*g] >= 0 && (e.group == 0 || e.group == g) && m[2*g] < m[2*g+1] {
			first, last = m[2*g], m[2*g+1]
			break
		}
	}
	first, last = from+first, from+last
	if e.longest == maxMatch && last >= limit-utf8.UTFMax {
		last = run(text, last, e.chars)
	}
	if !e.isSecret(text[first:last]) {
		return none, 0, max(end, last)
	}
	return first, last, max(end, last)
}

// resume returns where a failed match may be tried again. A floating one has
// looked at all its bytes.
func (e *expression) resume(text []byte, end, limit int) int {
	if e.floating {
		return run(text[:limit], end, e.chars)
	}
	return end
}

func (e *expression) isSecret(secret []byte) bool {
	if e.entropy > 0 && entropy(secret) <= e.entropy || isReference(secret) {
		return false
	}
	if e.behind && !e.numbers && !mixed(secret) {
		return false // a long word behind the name of a service
	}
	for _, a := range e.allow {
		if a.Match(secret) {
			return false
		}
	}
	return bytes.Count(secret, secret[:1]) < len(secret)
}

var (
	nameChars   = newSet("09azAZ", "_ \t.-")
	nameQuotes  = newSet("", " \t\n\r\f\v'\"")
	valueQuotes = newSet("", " \t\n\r\f\v'\"`=>")
)

// signBehind returns where the sign begins that assigns something to the name
// that ends at text[end], and where the value may begin.
func signBehind(text []byte, end int) (sign, value int) {
	i := run(text[:min(len(text), end+20)], end, nameChars)
	i = run(text[:min(len(text), i+3)], i, nameQuotes)
	if i == len(text) || bytes.IndexByte([]byte("=>:|?,"), text[i]) < 0 {
		return none, 0
	}
	value = i + 1
	for value < len(text) && value-i < 4 && bytes.IndexByte([]byte("=>:|"), text[value]) >= 0 {
		value++
	}
	return i, run(text[:min(len(text), value+5)], value, valueQuotes)
}
