package consent_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/undersong-dev/undersong/agent/consent"
)

func TestRecall(t *testing.T) {
	for name, tc := range map[string]struct{ content, want string }{
		"no file":     {"", ""},
		"silent":      {"capture: off\n", ""},
		"off":         {"recall: off\n", "off"},
		"quoted":      {"recall: \"Off\"\n", "off"},
		"on":          {"recall: on\n", ""},
		"whisper":     {"recall: whisper\n", "whisper"},
		"full":        {"recall: FULL\n", "full"},
		"other words": {"recall: sometimes\n", "off"},
		"other type":  {"recall: [brief]\n", "off"},
		"no YAML":     {"recall: [\n", "off"},
		"too large":   {"recall: on\n#" + strings.Repeat("x", 64<<10), "off"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			file := filepath.Join(dir, ".undersong.yaml")
			if tc.content != "" {
				if err := os.WriteFile(file, []byte(tc.content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			var f consent.Finder
			for range 2 { // the second time it is remembered
				if got := f.Recall(dir); got != tc.want {
					t.Errorf("wish is %q, want %q", got, tc.want)
				}
			}
			if err := os.WriteFile(file, []byte("recall: brief # later\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			if got := f.Recall(dir); got != "brief" {
				t.Errorf("after a change: %q", got)
			}
		})
	}
}

// TestRecallLink: a link out of the repository says nothing, and counts as a
// wish to be left alone.
func TestRecallLink(t *testing.T) {
	outside, dir := filepath.Join(t.TempDir(), "wish.yaml"), t.TempDir()
	if err := os.WriteFile(outside, []byte("recall: full\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(dir, ".undersong.yaml")); err != nil {
		t.Skip(err)
	}
	if got := (&consent.Finder{}).Recall(dir); got != "off" {
		t.Errorf("wish is %q", got)
	}
}
