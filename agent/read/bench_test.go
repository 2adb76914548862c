package read

import (
	"fmt"
	"path/filepath"
	"testing"
)

// BenchmarkReadAgentsBeside lists the agents of a session among 500 files of
// other sessions' agents, as releases 2.0.x left them: each pass looks into them.
func BenchmarkReadAgentsBeside(b *testing.B) {
	dir := b.TempDir()
	main := filepath.Join(dir, session+".jsonl")
	for i := range 500 {
		write(b, filepath.Join(dir, fmt.Sprintf("agent-%07x.jsonl", i)), user(i, "/tide")+"\n")
	}
	for b.Loop() {
		if got := Agents(main, "another"); len(got) != 0 {
			b.Fatal(got)
		}
	}
}
