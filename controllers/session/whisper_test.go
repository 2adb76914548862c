package session

import (
	"testing"

	"github.com/undersong-dev/undersong/internal/letta"
)

func TestSpoken(t *testing.T) {
	for name, c := range map[string]struct {
		reason string
		reply  []string
		want   string
	}{
		"plain":             {"what the agent is told to write", []string{"(silence)"}, ""},
		"capitals":          {"models write it so", []string{"(Silence)"}, ""},
		"bare":              {"without its parentheses", []string{"SILENCE"}, ""},
		"stop":              {"a sentence ends", []string{"(silence)."}, ""},
		"quotes":            {"quoted as in the instruction", []string{"\"(silence)\""}, ""},
		"typographic":       {"quoted nicely", []string{"“silence”…"}, ""},
		"markdown":          {"emphasized", []string{"**(silence)**"}, ""},
		"code":              {"as code", []string{"`silence`"}, ""},
		"space":             {"with lines around it", []string{"\n\t (silence) \r\n"}, ""},
		"explained":         {"nobody asked for the explanation", []string{"(silence) Nothing here changes what they do next."}, ""},
		"explained, quoted": {"behind quotes, too", []string{"\"(silence)\" – nothing to add."}, ""},
		"nothing":           {"no message", nil, ""},
		"blank":             {"an empty message is none", []string{"", " \n"}, ""},
		"marks":             {"no word is no word", []string{"…"}, ""},
		"after a note":      {"what was told while memory was written is not for the person", []string{"I keep that in pitfalls.", "(silence)"}, ""},
		"blank at the end":  {"the last message that says something counts", []string{"(silence)", " "}, ""},
		"fact":              {"a fact is said", []string{"Migrations run twice in CI."}, "Migrations run twice in CI."},
		"two":               {"both parts of a fact are said", []string{"Migrations run twice.", "In CI only."}, "Migrations run twice.\n\nIn CI only."},
		"a word like it":    {"silence can be what it is about", []string{"Silence the alarm before the import."}, "Silence the alarm before the import."},
		"mentioned":         {"a fact may mention it", []string{"The linter prints (silence) when all is well."}, "The linter prints (silence) when all is well."},
		"other script":      {"letters are not only Latin", []string{"静かに"}, "静かに"},
	} {
		t.Run(name, func(t *testing.T) {
			var turn letta.Turn
			for _, m := range c.reply {
				turn.Reply = append(turn.Reply, letta.Message{Text: m})
			}
			got, ok := spoken(turn)
			if got != c.want || ok != (c.want != "") {
				t.Errorf("%s: spoken(%q) = %q, %v; want %q", c.reason, c.reply, got, ok, c.want)
			}
		})
	}
}
