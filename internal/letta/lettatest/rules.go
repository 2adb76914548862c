package lettatest

import (
	"strings"
	"unicode"
)

// The rules that stand in for a model. They look at what users say in a
// delta, sentence by sentence, and at nothing else:
//
//   - a sentence that begins like one of lessons is added to a block;
//   - the answer is the line of a block, taught by another session, that
//     shares the most significant words with what a user says here, at least
//     two; without one it is silence;
//   - a delta that was handled before changes nothing and is silence.
//
// The same input and state give the same memory and the same answer.

// silence is the answer of an agent that has nothing to add.
const silence = "(silence)"

const (
	maxLine   = 300  // runes of a line
	maxLines  = 200  // of a block
	minWord   = 5    // letters of a significant word
	minShared = 2    // significant words that make a line an answer
	maxWords  = 4096 // of one message that are looked at
)

// lesson says which beginning of a sentence teaches, and where to.
type lesson struct {
	prefix, label string
	drop          bool // the prefix is not part of the line
}

var lessons = []lesson{
	{"remember:", "conventions", true},
	{"note for the team:", "conventions", true},
	{"we always ", "conventions", false},
	{"we never ", "conventions", false},
	{"careful:", "pitfalls", true},
	{"pitfall:", "pitfalls", true},
	{"decision:", "decisions", true},
	{"we decided ", "decisions", false},
}

// labels in the order in which an answer is looked for.
var labels = []string{"conventions", "pitfalls", "decisions"}

// hear applies the rules to a turn's text. changed names the blocks that
// were added to.
func (a *agent) hear(c *conversation, text string) (reply string, changed []string) {
	reply = silence
	best := minShared - 1
	for _, d := range parseDeltas(text) {
		if d.id != "" && c.Deltas[d.id] {
			continue
		}
		if d.id != "" {
			c.Deltas[d.id] = true
		}
		session := d.session
		if session == "" {
			session = c.ID
		}
		for _, m := range d.messages {
			if m.role != "user" {
				continue
			}
			for _, sentence := range sentences(m.text) {
				if label := a.learn(session, sentence); label != "" {
					changed = append(changed, label)
				}
			}
			if line, shared := a.recall(session, m.text); shared > best {
				best = shared
				reply = "From an earlier session in this project: " + line
			}
		}
	}
	return reply, changed
}

// learn adds a sentence that teaches to its block and returns the block's
// label, "" if nothing changed.
func (a *agent) learn(session, sentence string) string {
	for _, l := range lessons {
		if len(sentence) < len(l.prefix) || !strings.EqualFold(sentence[:len(l.prefix)], l.prefix) {
			continue
		}
		line := sentence
		if l.drop {
			line = strings.TrimSpace(sentence[len(l.prefix):])
		}
		line = clip(line)
		if line == "" {
			return ""
		}
		b := a.block(l.label)
		if b == nil {
			b = newBlock(block{Label: l.label})
			a.Blocks = append(a.Blocks, b)
		}
		known := lines(b.Value)
		for _, k := range known {
			if strings.EqualFold(k, line) {
				return ""
			}
		}
		if b.ReadOnly || len(known) >= maxLines {
			return ""
		}
		if b.Value != "" && !strings.HasSuffix(b.Value, "\n") {
			b.Value += "\n"
		}
		b.Value += "- " + line + "\n"
		a.Teachers[l.label+"\n"+line] = session
		return l.label
	}
	return ""
}

// recall finds the line of another session that shares the most significant
// words with the text, the first of several.
func (a *agent) recall(session, text string) (line string, shared int) {
	said := significant(text)
	for _, label := range labels {
		b := a.block(label)
		if b == nil {
			continue
		}
		for _, l := range lines(b.Value) {
			if a.Teachers[label+"\n"+l] == session {
				continue
			}
			n := 0
			for w := range significant(l) {
				if said[w] {
					n++
				}
			}
			if n > shared {
				line, shared = l, n
			}
		}
	}
	return line, shared
}

// lines of a block, without their bullets.
func lines(value string) []string {
	var out []string
	for l := range strings.Lines(value) {
		if l = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(l), "- ")); l != "" {
			out = append(out, l)
		}
	}
	return out
}

// sentences end at a full stop, exclamation or question mark before space, and
// at a line's end. A bullet before one is not part of it.
func sentences(text string) []string {
	var out []string
	add := func(s string) {
		if s = strings.TrimSpace(strings.TrimLeft(strings.TrimSpace(s), "-*> ")); s != "" {
			out = append(out, s)
		}
	}
	for line := range strings.Lines(text) {
		start := 0
		for i := 0; i+1 < len(line); i++ {
			if strings.IndexByte(".!?", line[i]) >= 0 && strings.IndexByte(" \t\r\n", line[i+1]) >= 0 {
				add(line[start : i+1])
				start = i + 1
			}
		}
		add(line[start:])
	}
	return out
}

// clip folds space, drops control characters and cuts to maxLine runes.
func clip(s string) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, ""))
	runes := []rune(strings.Join(strings.Fields(s), " "))
	return strings.TrimSpace(string(runes[:min(len(runes), maxLine)]))
}

// common words say nothing about what a sentence is about.
var common = func() map[string]bool {
	words := map[string]bool{}
	for w := range strings.FieldsSeq(`about above after again against along already also always another
		anything around because before being below between could doing during every everything first found
		going having instead little looks maybe might never nothing other others please quite really right
		should since something still their there these thing things think those through under until using
		wants where which while whole whose without would write wrote yourself
		careful decided decision remember pitfall session project thanks`) {
		words[w] = true
	}
	return words
}()

// significant words of a text: of minWord letters at least, in lower case,
// and not common.
func significant(text string) map[string]bool {
	out := map[string]bool{}
	n := 0
	for w := range strings.FieldsFuncSeq(strings.ToLower(text), func(r rune) bool { return !unicode.IsLetter(r) }) {
		if n++; n > maxWords {
			break
		}
		if len([]rune(w)) >= minWord && !common[w] {
			out[w] = true
		}
	}
	return out
}
