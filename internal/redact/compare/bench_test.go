package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/zricethezav/gitleaks/v8/detect"

	"github.com/undersong-dev/undersong/internal/redact"
)

// transcript returns lines of a generated transcript.
func transcript(b *testing.B) [][]byte {
	b.Helper()
	interpreter, err := exec.LookPath("python3")
	if err != nil {
		b.Skip("NOT MEASURED: python3 is not installed, and the generator of the transcript needs it")
	}
	generator := filepath.Join("..", "..", "transcript", "testdata", "corpus", "gen", "gen_large.py")
	file := filepath.Join(b.TempDir(), "big.jsonl")
	if out, err := exec.CommandContext(b.Context(), interpreter, generator, "--size", "4M", "--out", file, "--manifest", file+".json").CombinedOutput(); err != nil {
		b.Fatalf("gen_large.py: %v\n%s", err, out)
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		b.Fatal(err)
	}
	return bytes.Split(bytes.TrimSuffix(raw, []byte("\n")), []byte("\n"))
}

// BenchmarkGitleaks redacts a transcript and has gitleaks' default detector
// look for secrets in the same lines, in turns, and reports how many times
// longer gitleaks takes. It must be 4 at the least.
func BenchmarkGitleaks(b *testing.B) {
	lines := transcript(b)
	size := 0
	for _, line := range lines {
		size += len(line)
	}
	ours, err := redact.New()
	if err != nil {
		b.Fatal(err)
	}
	theirs, err := detect.NewDetectorDefaultConfig()
	if err != nil {
		b.Fatal(err)
	}
	for name, run := range map[string]func(){
		"Lines": func() { // each line alone
			for _, line := range lines {
				theirs.DetectBytes(line)
			}
		},
		"Whole": func() { // all of them in one piece
			theirs.DetectBytes(bytes.Join(lines, []byte("\n")))
		},
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(size))
			var us, them time.Duration
			for b.Loop() {
				start := time.Now()
				for _, line := range lines {
					ours.Line(line)
				}
				us += time.Since(start)
				b.StopTimer()
				start = time.Now()
				run()
				them += time.Since(start)
				b.StartTimer()
			}
			ratio := float64(them) / float64(us)
			b.ReportMetric(ratio, "x-gitleaks")
			if ratio < 4 {
				b.Errorf("%.1f times as fast as gitleaks, want at least 4", ratio)
			}
		})
	}
}
