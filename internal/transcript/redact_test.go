package transcript_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/undersong-dev/undersong/internal/redact"
	"github.com/undersong-dev/undersong/internal/transcript"
)

// TestRedactedCorpus reads the corpus as it leaves the workstation: the same
// talk, without its secrets.
func TestRedactedCorpus(t *testing.T) {
	if redact.MaxLine != transcript.MaxLine {
		t.Errorf("lines of %d bytes are read, of %d redacted", transcript.MaxLine, redact.MaxLine)
	}
	r, err := redact.New()
	if err != nil {
		t.Fatal(err)
	}
	secrets := 0
	for _, want := range expectations(t) {
		t.Run(want.File, func(t *testing.T) {
			raw, err := os.ReadFile(filepath.Join(corpus, want.File))
			if err != nil {
				t.Fatal(err)
			}
			plain := read(t, raw, kindOf(want), want.SessionID, nil)
			var lines strings.Builder
			clean := read(t, raw, kindOf(want), want.SessionID, func(line []byte) []byte {
				out, _ := r.Line(line)
				lines.WriteString(out.String() + "\n")
				return []byte(out.String())
			})
			if diff := cmp.Diff(plain.conversation, clean.conversation); diff != "" {
				t.Errorf("-as written, +as it leaves:\n%s", diff)
			}
			if plain.usage.OutputTokens() != clean.usage.OutputTokens() {
				t.Errorf("tokens: %d as written, %d as it leaves", plain.usage.OutputTokens(), clean.usage.OutputTokens())
			}
			if len(want.Redact) == 0 {
				if diff := cmp.Diff(plain.rendered+plain.memory, clean.rendered+clean.memory); diff != "" {
					t.Errorf("words without secrets change: -as written, +as it leaves:\n%s", diff)
				}
			}
			if len(want.Redact) > 0 && !strings.Contains(clean.memory, "[redacted:") {
				t.Error("nothing marks in memory where something was redacted")
			}
			for _, secret := range want.Redact {
				secrets++
				if !strings.Contains(string(raw), secret) {
					t.Fatalf("%q is not in the file: nothing was tested", secret)
				}
				if strings.Contains(lines.String(), secret) || strings.Contains(clean.rendered+clean.memory, secret) {
					t.Errorf("%q leaves", secret)
				}
			}
		})
	}
	if secrets < 3 {
		t.Errorf("%d secrets were looked for, want at least 3", secrets)
	}
}

// TestRedactedWords: the words around a secret stay, and a mark stands there.
func TestRedactedWords(t *testing.T) {
	r, err := redact.New()
	if err != nil {
		t.Fatal(err)
	}
	line, found := r.Line([]byte(`{"type":"user","message":{"content":"My token is ghp_DEMODEMODEMODEMODEMODEMODEMODEMO0000, use it."},"uuid":"u"}`))
	want := []transcript.Entry{{ID: "u", Speaker: transcript.User, Text: "My token is [redacted:github-token], use it."}}
	if diff := cmp.Diff(want, parse(t, line.String()).Entries(transcript.MainStream, "")); diff != "" {
		t.Errorf("-want, +got (found %v):\n%s", found, diff)
	}
}
