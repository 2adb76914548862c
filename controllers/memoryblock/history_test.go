package memoryblock

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestChange(t *testing.T) {
	for name, c := range map[string]struct{ reason, before, after, want string }{
		"first":   {"all of a first text came", "", "a\nb", "+a\n+b"},
		"emptied": {"all of it went", "a\nb", "", "-a\n-b"},
		"same":    {"nothing changed", "a", "a", ""},
		"middle":  {"what stays at both ends is left out", "a\nb\nc", "a\nx\nc", "-b\n+x"},
		"added":   {"a line at the end", "a", "a\nb", "+b"},
		"apart":   {"what stays between two changes is left out", "a\nb\nc\nd\ne", "x\nb\nc\nd\ny", "-a\n+x\n-e\n+y"},
		"moved":   {"a line that moved went and came", "a\nb\nc", "b\nc\na", "-a\n+a"},
		"twice":   {"a line more of the same is one that came", "x" + "\nx", "x" + "\nx" + "\nx", "+x"},
		"blank":   {"a blank line is a line", "a\nb", "a\n\nb", "+"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := change(c.before, c.after); got != c.want {
				t.Errorf("%s: change(%q, %q) = %q, want %q", c.reason, c.before, c.after, got, c.want)
			}
		})
	}
}

func TestChangeIsBounded(t *testing.T) {
	many := strings.Repeat("é line of it\n", 40000)
	other := strings.Repeat("another one é\n", 40000)
	for name, pair := range map[string][2]string{
		"many lines": {many, other}, "from nothing": {"", many}, "one long line": {"", strings.Repeat("é", 5000)},
	} {
		got := change(pair[0], pair[1])
		if len(got) > maxChange || !utf8.ValidString(got) || !strings.HasSuffix(got, "…") {
			t.Errorf("%s: %d bytes, ends in %q", name, len(got), got[max(0, len(got)-8):])
		}
	}
}

func FuzzChangeRebuilds(f *testing.F) {
	f.Add("a\nb\nc", "a\nx\nc")
	f.Fuzz(func(t *testing.T, before, after string) {
		if len(before)+len(after) > 500 {
			return
		}
		// Lines that went are in the text before, in its order, and those that
		// came in the text after.
		went, came := lines(before), lines(after)
		for line := range strings.SplitSeq(change(before, after), "\n") {
			if line == "" {
				continue
			}
			from := &came
			if line[0] == '-' {
				from = &went
			}
			found := false
			for len(*from) > 0 && !found {
				found = (*from)[0] == line[1:]
				*from = (*from)[1:]
			}
			if !found {
				t.Fatalf("change(%q, %q) says %q", before, after, line)
			}
		}
	})
}
