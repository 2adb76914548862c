package redact_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestHarmlessFiles: what people and tools read and print every day stays as it
// is, alone and inside of a record. The files are their own golden files: all of
// them are invented.
func TestHarmlessFiles(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("testdata", "harmless", "*"))
	if err != nil || len(files) < 20 {
		t.Fatalf("%d files, %v, want at least 20", len(files), err)
	}
	r := redactor(t)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got, found := r.TextFindings(string(raw))
			if diff := cmp.Diff(string(raw), got.String()); diff != "" {
				t.Errorf("%v: -want, +got:\n%s", found, diff)
			}
			line, err := json.Marshal(map[string]any{"type": "user", "message": map[string]any{"content": []any{
				map[string]any{"type": "tool_result", "content": string(raw)},
				map[string]any{"type": "text", "text": string(raw)},
			}}})
			if err != nil {
				t.Fatal(err)
			}
			kept, counts := r.Line(line)
			if diff := cmp.Diff(string(line), kept.String()); diff != "" {
				t.Errorf("in a record, %v: -want, +got:\n%s", counts, diff)
			}
		})
	}
}
