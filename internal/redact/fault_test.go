package redact

import (
	"strings"
	"testing"
)

// TestAnOptionThatEndsInThePipe: a line like this, in any repository, once
// stopped every daemon that read it.
func TestAnOptionThatEndsInThePipe(t *testing.T) {
	r, err := New()
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{
		"echo -| docker login --password-stdin", "echo -n| docker login --password-stdin", "printf -|sudo -S",
		"echo | docker login --password-stdin", "echo -n -e | docker login --password-stdin", "echo '| docker login --password-stdin",
	} {
		if got, _ := r.Text(text); strings.Contains(got.String(), unscannableRule) {
			t.Errorf("%q: a rule fails on it: %q", text, got)
		}
	}
}

// TestAFaultOfOurs: a rule that panics costs its own line, and nothing of it
// leaves.
func TestAFaultOfOurs(t *testing.T) {
	const text = "the word that breaks a rule"
	broken, err := New()
	if err != nil {
		t.Fatal(err)
	}
	broken.project = []extra{{name: "broken"}} // without an expression it panics
	got, found := broken.Text(text)
	if strings.Contains(got.String(), "breaks") || found[unscannableRule] == 0 {
		t.Errorf("text: %q, %v; want a marker and a finding", got, found)
	}
	line, _ := broken.Line([]byte(`{"type":"user","uuid":"u","message":{"role":"user","content":"` + text + `"}}`))
	if strings.Contains(line.String(), "breaks") || !strings.Contains(line.String(), "unscannable") {
		t.Errorf("line: %s; want nothing of it but that it cannot be scanned", line)
	}
	if lines, _ := broken.Lines([][]byte{[]byte(`{"type":"user","message":{"role":"user","content":"a"}}`), []byte(`{"type":"user","message":{"role":"user","content":"b"}}`)}); len(lines) != 2 {
		t.Errorf("%d lines, want 2", len(lines))
	}
}
