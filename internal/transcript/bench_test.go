package transcript_test

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
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

func BenchmarkReadLines(b *testing.B) {
	raw := large(b)
	b.SetBytes(int64(len(raw)))
	for b.Loop() {
		l := transcript.NewSignedLines(bytes.NewReader(raw), new(transcript.Signer))
		for l.Next() {
		}
	}
}

// inTurns runs ours and theirs in turns, and reports how many times longer theirs
// take and our speed, both of the fastest turns: on a machine that does other
// work, too, that is what one core gives.
func inTurns(b *testing.B, size int, unit string, ours, theirs func()) {
	b.Helper()
	b.SetBytes(int64(size))
	b.ReportAllocs()
	took := func(f func()) time.Duration {
		start := time.Now()
		f()
		return time.Since(start)
	}
	fast, slow := time.Duration(1<<62), time.Duration(1<<62)
	for b.Loop() {
		fast = min(fast, took(ours))
		b.StopTimer()
		slow = min(slow, took(theirs))
		b.StartTimer()
	}
	b.ReportMetric(float64(slow)/float64(fast), unit)
	b.ReportMetric(float64(size)/1e6/fast.Seconds(), "best-MB/s")
}

// BenchmarkReadWords reads all words, and the same with encoding/json.
func BenchmarkReadWords(b *testing.B) {
	raw := large(b)
	inTurns(b, len(raw), "x-encoding/json", func() { words(b, bytes.NewReader(raw)) }, func() { wordsByEncodingJSON(b, raw) })
}

// BenchmarkReadMemory reads and renders all that memory gets.
func BenchmarkReadMemory(b *testing.B) {
	raw := large(b)
	inTurns(b, len(raw), "x-encoding/json", func() {
		var (
			tools transcript.Tools
			w     strings.Builder
		)
		l := transcript.NewLines(bytes.NewReader(raw), 0)
		for l.Next() {
			if r, err := transcript.Parse(l.Line().Raw); err == nil {
				w.Reset()
				transcript.Render(&w, r.Memory(transcript.MainStream, "", transcript.Policy{}, &tools))
			}
		}
	}, func() { wordsByEncodingJSON(b, raw) })
}

// again reads a text over and over, up to a size.
type again struct {
	text []byte
	at   int
	left int64
}

func (a *again) Read(p []byte) (int, error) {
	if a.left == 0 {
		return 0, io.EOF
	}
	n := copy(p[:min(int64(len(p)), a.left)], a.text[a.at:])
	a.at = (a.at + n) % len(a.text)
	a.left -= int64(n)
	return n, nil
}

// BenchmarkReadGigabyte reads the words of 1 GB, and reports how much more memory
// the process has from the system behind it than behind the first 16 MB.
func BenchmarkReadGigabyte(b *testing.B) {
	raw := large(b)
	raw = raw[:bytes.LastIndexByte(raw, '\n')+1]
	b.SetBytes(1 << 30)
	var grown uint64
	for b.Loop() {
		words(b, bytes.NewReader(raw))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		words(b, &again{text: raw, left: 1 << 30})
		runtime.ReadMemStats(&after)
		grown = max(grown, after.HeapSys-before.HeapSys)
	}
	b.ReportMetric(float64(grown)/1e6, "MB-grown")
}

// BenchmarkReadResume goes on reading at the end of a file of 1 MB and of one of
// 1 GB, in turns, and reports by how much the second takes longer: the signature
// covers the same number of bytes in both.
func BenchmarkReadResume(b *testing.B) {
	line := append(bytes.Repeat([]byte("x"), 999), '\n')
	open := func(size int64) (*os.File, transcript.Signature) {
		file, err := os.Create(filepath.Join(b.TempDir(), "file"))
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = file.Close() }) // nobody reads it again
		// Its middle is a hole: it takes no place on the disk, and nobody looks there.
		for from, text := range map[int64][]byte{0: line, size - 200_000: bytes.Repeat(line, 200)} {
			if _, err := file.WriteAt(text, from); err != nil {
				b.Fatal(err)
			}
		}
		sig, err := transcript.Sign(file, size-1000)
		if err != nil {
			b.Fatal(err)
		}
		return file, sig
	}
	resume := func(file *os.File, sig transcript.Signature) time.Duration {
		start := time.Now()
		signer, same, err := sig.Resume(file)
		if err != nil || !same {
			b.Fatal("the file is another", err)
		}
		if _, err := file.Seek(sig.Offset, io.SeekStart); err != nil {
			b.Fatal(err)
		}
		l := transcript.NewSignedLines(file, signer)
		n := 0
		for l.Next() {
			n++
		}
		if _, err := l.Signature(l.Offset()); err != nil || n != 1 {
			b.Fatal(n, err)
		}
		return time.Since(start)
	}
	small, smallSig := open(1e6)
	large, largeSig := open(1e9)
	var more []float64
	for b.Loop() {
		base := resume(small, smallSig)
		more = append(more, float64(resume(large, largeSig)-base)/1e6)
	}
	slices.Sort(more)
	b.ReportMetric(more[len(more)/2], "ms-more-at-1GB")
}

func words(b *testing.B, file io.Reader) {
	b.Helper()
	n := 0
	l := transcript.NewLines(file, 0)
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
