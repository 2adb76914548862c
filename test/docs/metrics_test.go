package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/undersong-dev/undersong/test/tools"
)

// TestMetricsAreDescribed compares the names in the code with the page, both
// ways.
func TestMetricsAreDescribed(t *testing.T) {
	page := filepath.Join("docs", "spec", "metrics.md")
	text := read(t, page)
	said := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(undersong_[a-z_]+)` \\|").FindAllStringSubmatch(text, -1) {
		said[m[1]] = true
	}
	made := map[string]bool{}
	name := regexp.MustCompile(`"(undersong_[a-z_]+)"`)
	root := tools.Root()
	err := filepath.WalkDir(filepath.Join(root, "controllers"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		data, err := os.ReadFile(path)
		for _, m := range name.FindAllStringSubmatch(string(data), -1) {
			made[m[1]] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(made) < 10 {
		t.Fatalf("only %d metrics found in the code", len(made))
	}
	for m := range made {
		if !said[m] {
			t.Errorf("%s does not describe %s", page, m)
		}
	}
	for m := range said {
		if !made[m] {
			t.Errorf("%s describes %s, which nobody makes", page, m)
		}
	}
}
