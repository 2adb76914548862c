package text

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/undersong-dev/undersong/internal/redact"
)

// scanned makes a text scanned.
func scanned(t *testing.T, s string) redact.Redacted {
	t.Helper()
	r, err := redact.New()
	if err != nil {
		t.Fatal(err)
	}
	clean, _ := r.Text(s)
	return clean
}

func TestLabel(t *testing.T) {
	for name, c := range map[string]struct {
		reason, in string
		n          int
		want       string
	}{
		"plain":     {"what fits stays", "Harbour table", 60, "Harbour table"},
		"blanks":    {"lines and tabs become one blank", " a\n\tb  c ", 60, "a b c"},
		"direction": {"nothing turns the rest of the line around", "a\u202eb\u200bc", 60, "a b c"},
		"escape":    {"a terminal is not steered", "a\x1b[2Jb", 60, "a [2Jb"},
		"cut":       {"the cut is told, by characters", "ääääää", 4, "äää…"},
		"empty":     {"nothing is nothing", "\u200b\n", 60, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Label(scanned(t, c.in), c.n); got != c.want {
				t.Errorf("%s: Label(%q) = %q, want %q", c.reason, c.in, got, c.want)
			}
		})
	}
}

func TestPlain(t *testing.T) {
	for name, c := range map[string]struct {
		reason, in string
		limit      int
		want       string
	}{
		"lines stay": {"a text keeps its lines", "a\nb\tc\r\n", 100, "a\nb c"},
		"escape":     {"control characters go", "a\x1b[31mb\x00", 100, "a[31mb"},
		"direction":  {"format characters go", "a\u2066b", 100, "ab"},
		"cut":        {"the cut is at a character, the mark inside the limit", strings.Repeat("ä", 10), 9, "äää…"},
		"at limit":   {"what fits exactly is not cut", "12345", 5, "12345"},
	} {
		t.Run(name, func(t *testing.T) {
			got := Plain(scanned(t, c.in), c.limit)
			if got != c.want || len(got) > c.limit {
				t.Errorf("%s: Plain(%q) = %q (%d bytes), want %q", c.reason, c.in, got, len(got), c.want)
			}
		})
	}
}

func FuzzPlainIsBoundedAndValid(f *testing.F) {
	f.Add("a\x1bb\u202e", 10)
	r, err := redact.New()
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, s string, limit int) {
		limit = max(4, limit%4096)
		clean, _ := r.Text(s)
		got := Plain(clean, limit)
		if len(got) > limit || !utf8.ValidString(got) || strings.ContainsAny(got, "\x1b\x00\r\u202e") {
			t.Errorf("Plain(%q, %d) = %q", s, limit, got)
		}
		if l := Label(clean, limit); utf8.RuneCountInString(l) > limit || strings.ContainsAny(l, "\n\t\x1b") {
			t.Errorf("Label(%q, %d) = %q", s, limit, l)
		}
	})
}
