package transcript_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/undersong-dev/undersong/internal/redact"
	"github.com/undersong-dev/undersong/internal/transcript"
)

// large returns a generated transcript of some megabytes.
func large(b *testing.B) []byte {
	b.Helper()
	interpreter, err := exec.LookPath("python3")
	if err != nil {
		b.Skip("NOT MEASURED: python3 is not installed, and the generator of the transcript needs it")
	}
	file := filepath.Join(b.TempDir(), "big.jsonl")
	if out, err := exec.CommandContext(b.Context(), interpreter, filepath.Join(corpus, "gen", "gen_large.py"), "--size", "16M", "--out", file, "--manifest", file+".json").CombinedOutput(); err != nil {
		b.Fatalf("gen_large.py: %v\n%s", err, out)
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		b.Fatal(err)
	}
	return raw
}

func BenchmarkLines(b *testing.B) {
	raw := large(b)
	b.SetBytes(int64(len(raw)))
	for b.Loop() {
		l := transcript.NewLines(bytes.NewReader(raw), 0)
		for l.Next() {
		}
	}
}

// BenchmarkEntries reads all words, and the same with encoding/json, in turns.
func BenchmarkEntries(b *testing.B) {
	raw := large(b)
	b.SetBytes(int64(len(raw)))
	b.ReportAllocs()
	var ours, theirs time.Duration
	for b.Loop() {
		start := time.Now()
		words(b, raw)
		ours += time.Since(start)
		b.StopTimer()
		start = time.Now()
		wordsByEncodingJSON(b, raw)
		theirs += time.Since(start)
		b.StartTimer()
	}
	b.ReportMetric(float64(theirs)/float64(ours), "x-encoding/json")
}

func words(b *testing.B, raw []byte) {
	b.Helper()
	n := 0
	l := transcript.NewLines(bytes.NewReader(raw), 0)
	for l.Next() {
		r, err := transcript.Parse(l.Line().Raw)
		if err != nil {
			continue
		}
		n += len(r.Entries(transcript.MainStream, ""))
	}
	if n == 0 {
		b.Fatal("no words")
	}
}

// wordsByEncodingJSON is the least that a reader built on encoding/json does.
func wordsByEncodingJSON(b *testing.B, raw []byte) {
	b.Helper()
	n := 0
	for line := range bytes.Lines(raw) {
		var r struct {
			Type, UUID, SessionID, Timestamp, Cwd, GitBranch string
			IsSidechain, IsMeta, IsCompactSummary            bool
			Message                                          struct{ Content json.RawMessage }
		}
		if json.Unmarshal(line, &r) != nil || len(r.Message.Content) == 0 {
			continue
		}
		var blocks []struct{ Type, Text string }
		if r.Message.Content[0] == '[' && json.Unmarshal(r.Message.Content, &blocks) == nil {
			for _, block := range blocks {
				n += len(block.Text)
			}
			continue
		}
		var text string
		if json.Unmarshal(r.Message.Content, &text) == nil {
			n += len(text)
		}
	}
	if n == 0 {
		b.Fatal("no words")
	}
}

// BenchmarkRedactLine redacts all lines, and reports how much longer that takes
// than checking with encoding/json that they are JSON.
func BenchmarkRedactLine(b *testing.B) {
	raw := large(b)
	r, err := redact.New()
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(raw)))
	b.ReportAllocs()
	var ours, theirs time.Duration
	for b.Loop() {
		start := time.Now()
		for line := range bytes.Lines(raw) {
			r.Line(bytes.TrimSuffix(line, []byte("\n")))
		}
		ours += time.Since(start)
		b.StopTimer()
		start = time.Now()
		for line := range bytes.Lines(raw) {
			json.Valid(line)
		}
		theirs += time.Since(start)
		b.StartTimer()
	}
	b.ReportMetric(float64(ours)/float64(theirs), "x-json.Valid")
}
