package redact

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestGitleaksRules: every rule is understood, compiles, and is tried at words
// that are not everywhere.
func TestGitleaksRules(t *testing.T) {
	rules, err := gitleaks()
	if err != nil {
		t.Fatal(err)
	}
	if len(rules) < 200 {
		t.Errorf("%d rules, want at least 200", len(rules))
	}
	words, floating := 0, 0
	for _, r := range rules {
		if len(r.words) == 0 {
			t.Errorf("%s: no words", r.name)
		}
		for _, w := range r.words {
			words++
			if len(w) < 2 || w != strings.ToLower(w) {
				t.Errorf("%s: word %q", r.name, w)
			}
		}
		r.match([]byte(r.words[0]), 0, len(r.words[0]))
	}
	for _, g := range parsed(t) {
		e, w, err := newExpression(g)
		if err != nil {
			t.Fatal(err)
		}
		e.regex()
		if e.floating {
			floating++
			t.Logf("%s: floating at %q, at least %d", e.id, w, e.size)
		}
		if e.size < 8 {
			t.Logf("%s: at least %d", e.id, e.size)
		}
	}
	t.Logf("%d rules, %d words, %d floating", len(rules), words, floating)
}

func parsed(tb testing.TB) []gitleaksRule {
	tb.Helper()
	var list []gitleaksRule
	if err := json.Unmarshal(gitleaksJSON, &list); err != nil {
		tb.Fatal(err)
	}
	return list
}
