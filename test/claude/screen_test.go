package claude

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestScreen(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		in     string
		want   string
	}{
		"text":         {reason: "as it comes", in: "one\r\ntwo", want: "one\ntwo"},
		"move":         {reason: "programs draw with the cursor", in: "\x1b[2;3Hx\x1b[Ay\x1b[1Cz", want: "   y z\n  x"},
		"colours":      {reason: "not seen", in: "\x1b[1;31mred\x1b[0m", want: "red"},
		"erase line":   {reason: "to its end", in: "abcdef\x1b[3D\x1b[K", want: "abc"},
		"erase screen": {reason: "to its end", in: "one\r\ntwo\x1b[1;2H\x1b[J", want: "o"},
		"overwrite":    {reason: "a line is drawn again", in: "waiting\rready  ", want: "ready"},
		"title":        {reason: "for the window, not the screen", in: "\x1b]0;name\x07a\x1b]8;;x\x1b\\b", want: "ab"},
		"scroll":       {reason: "older lines go", in: "1\r\n2\r\n3\r\n4", want: "2\n3\n4"},
		"wrap":         {reason: "a line is full", in: "0123456789abcdefghijklm", want: "0123456789abcdefghij\nklm"},
		"wide text":    {reason: "characters of several bytes", in: "❯ tide – ebb", want: "❯ tide – ebb"},
		"modes":        {reason: "change nothing that is read", in: "\x1b[?25l\x1b[?2004h\x1b[>1ua", want: "a"},
	} {
		t.Run(name, func(t *testing.T) {
			for split := range len(tc.in) + 1 { // wherever a read ends
				s := newScreen(3, 20)
				_, _ = s.Write([]byte(tc.in[:split])) // never fails
				_, _ = s.Write([]byte(tc.in[split:]))
				if diff := cmp.Diff(tc.want, s.String()); diff != "" {
					t.Fatalf("%s, split at %d (-want +got):\n%s", tc.reason, split, diff)
				}
			}
		})
	}
}
