package transcript_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/undersong-dev/undersong/internal/transcript"
)

// span is what a Line says, with its bytes kept.
type span struct {
	Offset, Length int64
	Raw            string
	TooLong        bool
}

func collect(t *testing.T, l *transcript.Lines) (got []span) {
	t.Helper()
	for l.Next() {
		line := l.Line()
		got = append(got, span{line.Offset, line.Length, string(line.Raw), line.TooLong})
	}
	if err := l.Err(); err != nil {
		t.Fatal(err)
	}
	return got
}

func TestLines(t *testing.T) {
	cases := map[string]struct {
		reason string
		in     string
		want   []span
		offset int64
	}{
		"Empty":    {"nothing is no line", "", nil, 100},
		"Torn":     {"a line without its LF is not there", "abc", nil, 100},
		"Lines":    {"offsets go on from where reading began", "a\n\nbc\n", []span{{100, 2, "a", false}, {102, 1, "", false}, {103, 3, "bc", false}}, 106},
		"Tail":     {"the tail waits", "a\nbc", []span{{100, 2, "a", false}}, 102},
		"CR":       {"only LF ends a line, and offsets count every byte", "\xef\xbb\xbfa\r\nb\rc\n", []span{{100, 6, "\xef\xbb\xbfa\r", false}, {106, 4, "b\rc", false}}, 110},
		"Unicode":  {"other line ends of Unicode do not", "a\u2028b\u0085c\n", []span{{100, 9, "a\u2028b\u0085c", false}}, 109},
		"NULBytes": {"nor does NUL", "\x00\x00a\n", []span{{100, 4, "\x00\x00a", false}}, 104},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			l := transcript.NewLines(strings.NewReader(tc.in), 100)
			if diff := cmp.Diff(tc.want, collect(t, l)); diff != "" {
				t.Errorf("%s\n-want, +got:\n%s", tc.reason, diff)
			}
			if l.Offset() != tc.offset {
				t.Errorf("%s: offset %d, want %d", tc.reason, l.Offset(), tc.offset)
			}
		})
	}
}

// TestLinesGrow reads on after the end, as the file grows.
func TestLinesGrow(t *testing.T) {
	var file bytes.Buffer
	l := transcript.NewLines(&file, 0)
	for _, step := range []struct {
		write  string
		want   []span
		offset int64
	}{
		{"", nil, 0},
		{"a", nil, 0},
		{"b\nc", []span{{0, 3, "ab", false}}, 3},
		{"", nil, 3},
		{"\n", []span{{3, 2, "c", false}}, 5},
	} {
		file.WriteString(step.write)
		if diff := cmp.Diff(step.want, collect(t, l)); diff != "" {
			t.Errorf("after %q: -want, +got:\n%s", step.write, diff)
		}
		if l.Offset() != step.offset {
			t.Errorf("after %q: offset %d, want %d", step.write, l.Offset(), step.offset)
		}
	}
}

// xs is what a repeat repeats.
var xs = bytes.Repeat([]byte("x"), 64<<10)

// repeat is a file of that many x, without their memory.
type repeat struct{ size int64 }

func (r *repeat) Read(p []byte) (int, error) {
	n := int(min(int64(len(p)), r.size))
	if n == 0 {
		return 0, io.EOF
	}
	for i := 0; i < n; {
		i += copy(p[i:n], xs)
	}
	r.size -= int64(n)
	return n, nil
}

func TestLinesTooLong(t *testing.T) {
	long := func(n int64) io.Reader { return &repeat{n} }
	text := strings.NewReader
	cases := map[string]struct {
		reason string
		in     io.Reader
		want   []span // Raw as its length only
	}{
		"Limit": {"the longest line is read", io.MultiReader(long(transcript.MaxLine), text("\nb\n")), []span{
			{0, transcript.MaxLine + 1, "33554432", false}, {transcript.MaxLine + 1, 2, "1", false},
		}},
		"OnePast": {"a longer one is passed over, the next is read", io.MultiReader(text("a\n"), long(transcript.MaxLine+1), text("\nb\n")), []span{
			{0, 2, "1", false}, {2, transcript.MaxLine + 2, "0", true}, {transcript.MaxLine + 4, 2, "1", false},
		}},
		"Huge": {"however long", io.MultiReader(long(3*transcript.MaxLine), text("\nb\n")), []span{
			{0, 3*transcript.MaxLine + 1, "0", true}, {3*transcript.MaxLine + 1, 2, "1", false},
		}},
		"Torn": {"and is not there before its LF is", long(transcript.MaxLine + 5), nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			l := transcript.NewLines(tc.in, 0)
			var got []span
			for l.Next() {
				line := l.Line()
				got = append(got, span{line.Offset, line.Length, strconv.Itoa(len(line.Raw)), line.TooLong})
			}
			if err := l.Err(); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\n-want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// TestLinesMemory reads a line much longer than what may be kept.
func TestLinesMemory(t *testing.T) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	l := transcript.NewLines(io.MultiReader(&repeat{8 * transcript.MaxLine}, strings.NewReader("\n")), 0)
	if !l.Next() || !l.Line().TooLong {
		t.Fatal("the line was not passed over")
	}
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; got > 4*transcript.MaxLine {
		t.Errorf("passing over a line of 256 MiB allocated %d bytes, want at most %d", got, 4*transcript.MaxLine)
	}
}

func TestLinesReadError(t *testing.T) {
	broken := errors.New("broken")
	l := transcript.NewLines(io.MultiReader(strings.NewReader("a\nb"), failing{broken}), 0)
	if !l.Next() || string(l.Line().Raw) != "a" {
		t.Fatal("the line before the fault was not read")
	}
	if l.Next() || !errors.Is(l.Err(), broken) || l.Offset() != 2 {
		t.Errorf("after the fault: error %v, offset %d, want %v, 2", l.Err(), l.Offset(), broken)
	}
	if l.Next() {
		t.Error("a reader that failed goes on")
	}
	idle := transcript.NewLines(failing{nil}, 0)
	if idle.Next() || !errors.Is(idle.Err(), io.ErrNoProgress) {
		t.Errorf("a reader that never gives anything: error %v, want %v", idle.Err(), io.ErrNoProgress)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// chunks gives a file in pieces whose sizes follow from a number.
type chunks struct {
	data []byte
	rnd  uint64
}

func (c *chunks) Read(p []byte) (int, error) {
	if len(c.data) == 0 {
		return 0, io.EOF
	}
	c.rnd = c.rnd*6364136223846793005 + 1442695040888963407
	n := min(int(c.rnd>>60), len(c.data), len(p)) // 0 to 15
	copy(p, c.data[:n])
	c.data = c.data[n:]
	return n, nil
}

// FuzzAnySplitGivesTheSameLines: however the bytes come, and wherever a pass
// ends and the next begins, lines and offsets are the same.
func FuzzAnySplitGivesTheSameLines(f *testing.F) {
	files, err := filepath.Glob(filepath.Join(corpus, "*.jsonl"))
	if err != nil || len(files) < 40 {
		f.Fatalf("%d files of the corpus: %v", len(files), err)
	}
	for i, name := range files {
		raw, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw, uint64(i), uint16(i*97))
	}
	f.Add([]byte("a\r\n\xef\xbb\xbf\n\x00\n\n"), uint64(1), uint16(3))
	f.Fuzz(func(t *testing.T, raw []byte, rnd uint64, cut uint16) {
		var want []span
		offset := int64(0)
		for _, line := range bytes.SplitAfter(raw, []byte("\n")) {
			if bytes.HasSuffix(line, []byte("\n")) {
				want = append(want, span{offset, int64(len(line)), string(line[:len(line)-1]), false})
				offset += int64(len(line))
			}
		}
		whole := transcript.NewLines(&chunks{raw, rnd}, 0)
		if diff := cmp.Diff(want, collect(t, whole)); diff != "" {
			t.Errorf("in pieces: -want, +got:\n%s", diff)
		}
		if whole.Offset() != offset {
			t.Errorf("in pieces: offset %d, want %d", whole.Offset(), offset)
		}
		at := min(int(cut), len(raw))
		first := transcript.NewSignedLines(&chunks{raw[:at], rnd}, new(transcript.Signer))
		got := signed(t, first, raw)
		sig, err := first.Signature(first.Offset())
		if err != nil {
			t.Fatal(err)
		}
		signer, same, err := sig.Resume(bytes.NewReader(raw))
		if err != nil || !same {
			t.Fatalf("the file is not the one that was read: %v", err)
		}
		second := transcript.NewSignedLines(&chunks{raw[first.Offset():], rnd}, signer)
		got = append(got, signed(t, second, raw)...)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("in two passes: -want, +got:\n%s", diff)
		}
	})
}

// signed collects lines. Before and after each the signature is that of the file
// up to there.
func signed(t *testing.T, l *transcript.Lines, raw []byte) (got []span) {
	t.Helper()
	check := func(offset int64) {
		want, err := transcript.Sign(bytes.NewReader(raw), offset)
		if err != nil {
			t.Fatal(err)
		}
		sig, err := l.Signature(offset)
		if err != nil || sig != want {
			t.Fatalf("signature at %d: %v, error %v, want %v", offset, sig, err, want)
		}
	}
	check(l.Offset())
	for l.Next() {
		line := l.Line()
		got = append(got, span{line.Offset, line.Length, string(line.Raw), line.TooLong})
		if len(got) < 20 {
			check(line.Offset)
			check(line.Offset + line.Length)
		}
	}
	if err := l.Err(); err != nil {
		t.Fatal(err)
	}
	check(l.Offset())
	return got
}
