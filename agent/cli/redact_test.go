package cli

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// redactAll runs undersong redact.
func (m *machine) redactAll(t *testing.T, in string) string {
	t.Helper()
	m.In = strings.NewReader(in)
	code, out, errs := m.run("redact")
	if code != 0 {
		t.Fatalf("exit %d: %s", code, errs)
	}
	return out
}

// TestRedactCommand: what is filtered goes to stdout, what was found to stderr.
func TestRedactCommand(t *testing.T) {
	m := newMachine(t)
	m.In = strings.NewReader("one\ntwo ghp_" + "x7Kq2mZ9tLw4Rb8YvN3cHs6JdFa1PeGu5TiX\n")
	code, out, errs := m.run("redact")
	if code != 0 || out != "one\ntwo [redacted:github-token]\n" || errs != "line 2: github-token 1\n" {
		t.Errorf("exit %d, printed %q, %q", code, out, errs)
	}
}

// TestRedactAsTheCorpusExpects filters each transcript of the corpus, and
// compares the words of what comes out with those of the file.
func TestRedactAsTheCorpusExpects(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(corpus(t), "p*.jsonl"))
	if err != nil || len(files) < 30 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		m := newMachine(t)
		want := m.inspectJSON(t, file)
		out := m.redactAll(t, get(t, file))
		filtered := filepath.Join(m.dir, filepath.Base(file))
		put(t, filtered, out)
		got := m.inspectJSON(t, filtered)
		for _, key := range []string{"conversation", "texts"} {
			if diff := cmp.Diff(want[key], got[key], cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("%s: %s (-want +got):\n%s", filepath.Base(file), key, diff)
			}
		}
	}
}
