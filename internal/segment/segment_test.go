package segment

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/klauspost/compress/zstd"

	"github.com/undersong-dev/undersong/internal/redact"
)

var update = flag.Bool("update", false, "write the golden files anew")

// example is a header that uses every member, and its lines.
func example() (Header, []string) {
	session, workstation := "5e550015-0000-4000-8000-000000000001-2bd806c9", "wks-7f3a"
	h := Header{
		Format: Format, Session: session, Workstation: workstation, Seq: 2, Stream: "agent-a1b2c3d4e5f600001",
		Generation: 1, FirstIndex: 3, LastIndex: 7, Offset: 1024, EndOffset: 4096,
		PreviousChain: Start(session, workstation).String(), Rules: "1",
		At:       time.Date(2026, 11, 30, 9, 41, 7, 250_000_000, time.UTC),
		Findings: map[string]int{"aws-access-key": 2, "private": 1},
		Withheld: []Range{
			{FromIndex: 4, ToIndex: 5, FromOffset: 1300, ToOffset: 2000, Reason: "paused"},
			{FromIndex: NoIndex, ToIndex: NoIndex, FromOffset: 3900, ToOffset: 4096, Reason: "other project"},
		},
		Offsets: []int64{1024, 2000, 2010, 3000},
		Indexes: []int64{3, NoIndex, 6, 7},
	}
	lines := []string{
		`{"type":"user","uuid":"u-1","message":{"role":"user","content":"hello"}}`,
		`{"type":"undersong-stub","of":"bad-line","bytes":10}`,
		`{"type":"assistant","uuid":"u-2","message":{"content":[{"type":"text","text":"Grüße 👋"}]}}`,
		`{"type":"user","uuid":"u-3"}` + "\r",
	}
	return h, lines
}

func encodeExample(t *testing.T) ([]byte, Header, []string) {
	t.Helper()
	h, lines := example()
	raw, err := encode(h, lines)
	if err != nil {
		t.Fatal(err)
	}
	return raw, h, lines
}

func texts(lines [][]byte) []string {
	out := make([]string, len(lines))
	for i, line := range lines {
		out[i] = string(line)
	}
	return out
}

func TestEncodedSegmentIsDecodedUnchanged(t *testing.T) {
	raw, h, lines := encodeExample(t)
	got, gotLines, err := Decode(raw)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(h, got); diff != "" {
		t.Errorf("header (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(lines, texts(gotLines)); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}

func TestSegmentOfWithheldLinesOnly(t *testing.T) {
	h, _ := example()
	h.Offsets, h.Indexes, h.Findings = nil, nil, nil
	raw, err := Encode(h, nil)
	if err != nil {
		t.Fatal(err)
	}
	got, lines, err := Decode(raw)
	if err != nil || len(lines) != 0 {
		t.Fatalf("Decode: %d lines, error %v", len(lines), err)
	}
	if diff := cmp.Diff(h, got); diff != "" {
		t.Errorf("header (-want +got):\n%s", diff)
	}
}

func TestEncodeTakesWhatTheRedactorMade(t *testing.T) {
	h, _ := example()
	h.Offsets, h.Indexes = h.Offsets[:1], h.Indexes[:1]
	raw, err := Encode(h, []redact.Redacted{redact.Literal(`{"type":"tag"}`)})
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.HasSuffix(raw, []byte("}\n{\"type\":\"tag\"}\n")) {
		t.Errorf("segment ends otherwise: %q", raw)
	}
}

// TestGolden holds the format still: what was written once must be read for
// ever, and the bytes that are hashed must never change.
func TestGolden(t *testing.T) {
	raw, h, lines := encodeExample(t)
	changed := append([]string{`{"type":"user","uuid":"u-1","message":"[removed]"}`}, lines[1:]...)
	archived, err := rewrite(raw, changed)
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{
		"segment.golden": raw, "archived.golden": archived, "segment.jsonl.zst.golden": Pack(raw),
	} {
		path := filepath.Join("testdata", name)
		if *update {
			if err := os.WriteFile(path, content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(name, ".zst.golden") {
			// How well it is packed may change, that it opens may not.
			if want, err = Unpack(want); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			content = raw
		}
		if diff := cmp.Diff(string(want), string(content)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}

	// Values, not only bytes: these go into statuses and object names.
	if got, want := Start(h.Session, h.Workstation).String(), "ee6dcfa2ba0f9853e9a631eb3200be02b90ac39e9c779c1e223a8e5f850ec3bd"; got != want {
		t.Errorf("Start = %s, want %s", got, want)
	}
	if got, want := Start(h.Session, h.Workstation).Next(raw).String(), "ee0accf58de970cf788ab3035a348bf8cbdabc85e9e2288e02e8cd38a8d8ad7a"; got != want {
		t.Errorf("Next = %s, want %s", got, want)
	}
}

func TestEncodeRefusesWhatDecodeWould(t *testing.T) {
	long := strings.Repeat("a", 64)
	cases := map[string]struct {
		reason string
		change func(h *Header, lines *[]string)
	}{
		"Session":       {"not an object's name", func(h *Header, _ *[]string) { h.Session = "../x" }},
		"LongSession":   {"64 characters", func(h *Header, _ *[]string) { h.Session = long }},
		"Workstation":   {"empty", func(h *Header, _ *[]string) { h.Workstation = "" }},
		"Seq":           {"numbers start at 1", func(h *Header, _ *[]string) { h.Seq = 0 }},
		"Stream":        {"neither main nor agent-", func(h *Header, _ *[]string) { h.Stream = "side" }},
		"StreamID":      {"an id is fit for a file name", func(h *Header, _ *[]string) { h.Stream = "agent-a/b" }},
		"NoStreamID":    {"an id is not empty", func(h *Header, _ *[]string) { h.Stream = "agent-" }},
		"Generation":    {"negative", func(h *Header, _ *[]string) { h.Generation = -1 }},
		"FirstIndex":    {"below NoIndex", func(h *Header, _ *[]string) { h.FirstIndex = -2 }},
		"LastIndex":     {"below NoIndex", func(h *Header, _ *[]string) { h.LastIndex = -2 }},
		"EndOffset":     {"before offset", func(h *Header, _ *[]string) { h.EndOffset = h.Offset - 1 }},
		"PreviousChain": {"upper case", func(h *Header, _ *[]string) { h.PreviousChain = strings.ToUpper(h.PreviousChain) }},
		"Rules":         {"a version is a name", func(h *Header, _ *[]string) { h.Rules = "" }},
		"FewOffsets":    {"one for each line", func(h *Header, _ *[]string) { h.Offsets = h.Offsets[1:] }},
		"FewIndexes":    {"one for each line", func(h *Header, _ *[]string) { h.Indexes = h.Indexes[1:] }},
		"FewLines":      {"one for each offset", func(_ *Header, l *[]string) { *l = (*l)[1:] }},
		"OffsetOrder":   {"offsets ascend", func(h *Header, _ *[]string) { h.Offsets[1] = h.Offsets[0] }},
		"OffsetRange":   {"offsets are below endOffset", func(h *Header, _ *[]string) { h.EndOffset = h.Offsets[3] }},
		"IndexOrder":    {"indexes ascend", func(h *Header, _ *[]string) { h.Indexes[3] = h.Indexes[2] }},
		"IndexRange":    {"below NoIndex", func(h *Header, _ *[]string) { h.Indexes[1] = -2 }},
		"Range":         {"a range ends after its start", func(h *Header, _ *[]string) { h.Withheld[0].ToOffset = 0 }},
		"Reason":        {"a reason is a name of ours", func(h *Header, _ *[]string) { h.Withheld[0].Reason = "token: x" }},
		"Withheld":      {"too many", func(h *Header, _ *[]string) { h.Withheld = make([]Range, MaxWithheld+1) }},
		"Finding":       {"a rule is a name", func(h *Header, _ *[]string) { h.Findings["a b"] = 1 }},
		"Count":         {"counts are not negative", func(h *Header, _ *[]string) { h.Findings["private"] = -1 }},
		"Year":          {"no text for this time", func(h *Header, _ *[]string) { h.At = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC) }},
		"Archived":      {"digest is no sum", func(h *Header, _ *[]string) { h.Archived = &Archived{Lines: 4} }},
		"EmptyLine":     {"a line is not empty", func(_ *Header, l *[]string) { (*l)[2] = "" }},
		"TornLine":      {"a line is one line", func(_ *Header, l *[]string) { (*l)[2] = "a\nb" }},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			h, lines := example()
			tc.change(&h, &lines)
			if raw, err := encode(h, lines); err == nil {
				t.Errorf("%s: Encode accepted it: %.200s", tc.reason, raw)
			}
		})
	}
}

func TestOnlyRewriteMakesAnArchivedCopy(t *testing.T) {
	h, _ := example()
	h.Offsets, h.Indexes = nil, nil
	h.Archived = &Archived{Original: h.PreviousChain, Digest: h.PreviousChain}
	if _, err := Encode(h, nil); err == nil {
		t.Error("Encode accepted a header with archived")
	}
}

func TestDecodeErrors(t *testing.T) {
	raw, _, lines := encodeExample(t)
	head, body, _ := bytes.Cut(raw, []byte{'\n'})
	with := func(change func(m map[string]any)) []byte {
		var members map[string]any
		if err := json.Unmarshal(head, &members); err != nil {
			t.Fatal(err)
		}
		change(members)
		text, err := json.Marshal(members)
		if err != nil {
			t.Fatal(err)
		}
		return append(append(text, '\n'), body...)
	}
	cases := map[string]struct {
		reason string
		raw    []byte
		want   error
	}{
		"Empty":         {"nothing at all", nil, ErrCorrupt},
		"NoLF":          {"header without end", head, ErrCorrupt},
		"NotJSON":       {"header is no JSON", append([]byte("x\n"), body...), ErrCorrupt},
		"NotObject":     {"header is an array", []byte("[]\n"), ErrCorrupt},
		"NoFormat":      {"format is missing", with(func(m map[string]any) { delete(m, "format") }), ErrCorrupt},
		"FormatZero":    {"formats start at 1", with(func(m map[string]any) { m["format"] = 0 }), ErrCorrupt},
		"FormatText":    {"format is a number", with(func(m map[string]any) { m["format"] = "2" }), ErrCorrupt},
		"NewerFormat":   {"newer, and otherwise the same", with(func(m map[string]any) { m["format"] = Format + 1 }), ErrUnsupportedVersion},
		"NewerHeader":   {"newer, with members of other types", []byte(`{"format":7,"seq":"b","offsets":{}}` + "\nbinary"), ErrUnsupportedVersion},
		"UnknownMember": {"an addition within the format", with(func(m map[string]any) { m["later"] = []int{1} }), nil},
		"WrongType":     {"seq is a number", with(func(m map[string]any) { m["seq"] = "2" }), ErrCorrupt},
		"LineMissing":   {"fewer lines than offsets", raw[:bytes.LastIndexByte(raw[:len(raw)-1], '\n')+1], ErrCorrupt},
		"LineAdded":     {"more lines than offsets", append(bytes.Clone(raw), "{}\n"...), ErrCorrupt},
		"Torn":          {"last line without LF", raw[:len(raw)-1], ErrCorrupt},
		"TornLonger":    {"as many LFs as offsets, and a tail", append(bytes.Clone(raw), "{}"...), ErrCorrupt},
		"EmptyLine":     {"as many LFs as offsets, one line empty", bytes.Replace(raw, []byte(lines[1]+"\n"), []byte("\n"), 1), ErrCorrupt},
		"ManyOffsets":   {"more offsets than lines", with(func(m map[string]any) { m["offsets"] = make([]int, 9) }), ErrCorrupt},
		"Fraction":      {"offsets are whole", with(func(m map[string]any) { m["offsets"] = []float64{1024, 2000.5, 2010, 3000} }), ErrCorrupt},
		"NullOffsets":   {"offsets are a list", with(func(m map[string]any) { m["offsets"] = nil }), ErrCorrupt},
		"NoOffsets":     {"offsets are there", with(func(m map[string]any) { delete(m, "offsets") }), ErrCorrupt},
		"Findings":      {"findings are numbers", with(func(m map[string]any) { m["findings"] = map[string]string{"a": "b"} }), ErrCorrupt},
		"Archived": {"archived of other lines", with(func(m map[string]any) {
			m["archived"] = Archived{Original: strings.Repeat("0", 64), Digest: strings.Repeat("0", 64), Lines: 4}
		}), ErrCorrupt},
		"TooLarge": {"one byte over the limit", make([]byte, MaxRaw+1), ErrTooLarge},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, _, err := Decode(tc.raw)
			if diff := cmp.Diff(tc.want, err, cmpopts.EquateErrors()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// TestOneLineOfTheLongest: a line of 32 MiB, the longest that is sent, fits
// with its header, and one byte over MaxRaw does not.
func TestOneLineOfTheLongest(t *testing.T) {
	h, _ := example()
	h.Offsets, h.Indexes, h.EndOffset = []int64{1024}, []int64{3}, math.MaxInt64
	line := strings.Repeat("x", 32<<20)
	raw, err := encode(h, []string{line})
	if err != nil {
		t.Fatal(err)
	}
	line += strings.Repeat("x", MaxRaw-len(raw))
	if raw, err = encode(h, []string{line}); err != nil || len(raw) != MaxRaw {
		t.Fatalf("at the limit: %d bytes, error %v", len(raw), err)
	}
	packed := Pack(raw)
	unpacked, err := Unpack(packed)
	if err != nil {
		t.Fatalf("unpack at the limit: %v", err)
	}
	if _, _, err := Decode(unpacked); err != nil {
		t.Errorf("decode at the limit: %v", err)
	}
	if _, err := encode(h, []string{line + "x"}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("encode one past the limit: %v, want ErrTooLarge", err)
	}
	if _, err := Unpack(Pack(append(raw, 'x'))); !errors.Is(err, ErrTooLarge) {
		t.Errorf("unpack one past the limit: %v, want ErrTooLarge", err)
	}
}

// TestMostLines: as many lines as a segment may have, and one more.
func TestMostLines(t *testing.T) {
	h, _ := example()
	h.Offset, h.Offsets, h.Indexes, h.EndOffset = 0, nil, nil, MaxLines+1
	lines := make([]string, MaxLines+1)
	for i := range lines {
		lines[i] = "x"
		h.Offsets, h.Indexes = append(h.Offsets, int64(i)), append(h.Indexes, NoIndex)
	}
	if _, err := encode(h, lines); err == nil {
		t.Error("Encode accepted one line too many")
	}
	h.Offsets, h.Indexes = h.Offsets[1:], h.Indexes[1:]
	raw, err := encode(h, lines[1:])
	if err != nil {
		t.Fatal(err)
	}
	if _, got, err := Decode(raw); err != nil || len(got) != MaxLines {
		t.Errorf("at the limit: %d lines, %v", len(got), err)
	}
	more := bytes.Replace(raw, []byte(`"offsets":[`), []byte(`"offsets":[0,`), 1)
	more = append(bytes.Replace(more, []byte(`"indexes":[`), []byte(`"indexes":[-1,`), 1), "x\n"...)
	if _, _, err := Decode(more); !errors.Is(err, ErrCorrupt) {
		t.Errorf("one line too many: %v, want ErrCorrupt", err)
	}
}

func TestRewriteKeepsHeaderAndChain(t *testing.T) {
	raw, h, lines := encodeExample(t)
	head := Start(h.Session, h.Workstation).Next(raw)

	// A member that a later version may add stays too.
	later := bytes.Replace(raw, []byte(`"rules"`), []byte(`"later":{"a":[1]},"rules"`), 1)
	laterHead := Start(h.Session, h.Workstation).Next(later)

	for name, tc := range map[string]struct {
		raw  []byte
		head Sum
	}{"AsItCame": {raw, head}, "WithALaterMember": {later, laterHead}} {
		t.Run(name, func(t *testing.T) {
			copied := tc.raw
			for _, first := range []string{`{"type":"user"}`, `{"type":"tag"}`} { // rewritten, then rewritten again
				changed := append([]string{first}, lines[1:]...)
				var err error
				if copied, err = rewrite(copied, changed); err != nil {
					t.Fatal(err)
				}
				got, gotLines, err := Decode(copied)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(changed, texts(gotLines)); diff != "" {
					t.Errorf("lines (-want +got):\n%s", diff)
				}
				body := strings.Join(changed, "\n") + "\n"
				want := h
				want.Archived = &Archived{Original: hexSum(tc.raw), Digest: hexSum([]byte(body)), Lines: 4}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("header (-want +got):\n%s", diff)
				}
				if sum, err := got.Head(copied); err != nil || sum != tc.head {
					t.Errorf("Head = %s, %v, want the head of the segment as it came, %s", sum, err, tc.head)
				}
				members, _, _ := bytes.Cut(tc.raw, []byte("}\n"))
				if !bytes.HasPrefix(copied, members) {
					t.Error("the header's own bytes changed")
				}
			}
		})
	}
	if sum, err := h.Head(raw); err != nil || sum != head {
		t.Errorf("Head of the segment as it came = %s, %v, want %s", sum, err, head)
	}
}

func TestRewriteErrors(t *testing.T) {
	raw, _, lines := encodeExample(t)
	archived, err := rewrite(raw, lines)
	if err != nil {
		t.Fatal(err)
	}
	reordered := bytes.Replace(archived, []byte(`}`+"\n"), []byte(`,"later":1}`+"\n"), 1)
	cases := map[string]struct {
		reason string
		raw    []byte
		lines  []string
	}{
		"Corrupt":     {"no segment", []byte("x"), lines},
		"FewerLines":  {"a line for each line", raw, lines[1:]},
		"TornLine":    {"lines are lines", raw, append([]string{"a\nb"}, lines[1:]...)},
		"NotTheLast":  {"archived is not where Rewrite puts it", reordered, lines},
		"WrongDigest": {"the copy is corrupt", bytes.Replace(archived, []byte("hello"), []byte("hallo"), 1), lines},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if _, err := rewrite(tc.raw, tc.lines); err == nil {
				t.Errorf("%s: Rewrite accepted it", tc.reason)
			}
		})
	}
}

func hexSum(b []byte) string { return Sum(sha256.Sum256(b)).String() }

func TestParseSum(t *testing.T) {
	sum := Start("a", "b")
	if got, err := ParseSum(sum.String()); err != nil || got != sum {
		t.Errorf("ParseSum(String()) = %s, %v", got, err)
	}
	for _, s := range []string{"", "00", strings.Repeat("g", 64), strings.ToUpper(sum.String()), sum.String() + "0"} {
		if _, err := ParseSum(s); err == nil {
			t.Errorf("ParseSum(%q) succeeded", s)
		}
	}
}

func TestChainTellsNamesApart(t *testing.T) {
	if Start("ab", "c") == Start("a", "bc") {
		t.Error("two pairs of names start the same chain")
	}
}

// TestPackIsDeterministic also after the encoder has seen other data.
func TestPackIsDeterministic(t *testing.T) {
	raw, _, _ := encodeExample(t)
	want := Pack(raw)
	for i := range 20 {
		Pack(bytes.Repeat([]byte(fmt.Sprint(i, " other data ")), 1000*i))
		if !bytes.Equal(want, Pack(raw)) {
			t.Fatalf("packed otherwise after %d other segments", i+1)
		}
	}
}

func TestUnpackErrors(t *testing.T) {
	raw, _, _ := encodeExample(t)
	packed := Pack(raw)
	flipped := bytes.Clone(packed)
	flipped[len(flipped)/2] ^= 1
	cases := map[string]struct {
		reason string
		packed []byte
		want   error
	}{
		"Empty":     {"nothing", nil, ErrCorrupt},
		"Frameless": {"a skippable frame with nothing after it", []byte{0x50, 0x2a, 0x4d, 0x18, 0, 0, 0, 0}, ErrCorrupt},
		"NotZstd":   {"other bytes", raw, ErrCorrupt},
		"Truncated": {"the end is missing", packed[:len(packed)-5], ErrCorrupt},
		"Flipped":   {"one bit is wrong", flipped, ErrCorrupt},
		"TooLarge":  {"more than any segment packs to", make([]byte, MaxPacked+1), ErrTooLarge},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := Unpack(tc.packed)
			if diff := cmp.Diff(tc.want, err, cmpopts.EquateErrors()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// TestBombIsNotOpened: a few kilobytes that open to a gigabyte cost neither the
// time nor the memory of a gigabyte, whether the frame admits its size or not.
func TestBombIsNotOpened(t *testing.T) {
	zeros := make([]byte, 1<<20)
	var silent bytes.Buffer
	w, err := zstd.NewWriter(&silent, zstd.WithEncoderLevel(zstd.SpeedFastest))
	if err != nil {
		t.Fatal(err)
	}
	for range 1 << 10 {
		if _, err := w.Write(zeros); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	honest := Pack(make([]byte, 2*MaxRaw))
	for name, bomb := range map[string][]byte{
		"Silent":     silent.Bytes(),
		"Honest":     honest,
		"ManyFrames": bytes.Repeat(Pack(make([]byte, 1<<20)), 1<<10),
		"TinyFrames": bytes.Repeat(Pack(make([]byte, 1<<10)), 40<<10),
		"SkipThenTiny": append([]byte{0x50, 0x2a, 0x4d, 0x18, 0, 0, 0, 0},
			bytes.Repeat(Pack(make([]byte, 1<<10)), 40<<10)...),
	} {
		t.Run(name, func(t *testing.T) {
			if len(bomb) > 1<<20 {
				t.Fatalf("the bomb itself has %d bytes", len(bomb))
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := Unpack(bomb)
			runtime.ReadMemStats(&after)
			if !errors.Is(err, ErrTooLarge) {
				t.Errorf("error %v, want ErrTooLarge", err)
			}
			// The result, the block that no longer fits, the decoder's tables.
			if got := after.TotalAlloc - before.TotalAlloc; got > 3*MaxRaw {
				t.Errorf("allocated %d MiB", got>>20)
			}
		})
	}
}

// TestHostileHeaderStaysSmall: lists that are short in JSON and large in memory
// are refused before they are decoded.
func TestHostileHeaderStaysSmall(t *testing.T) {
	raw, _, _ := encodeExample(t)
	_, body, _ := bytes.Cut(raw, []byte{'\n'})
	list := func(name, unit, open, end string) []byte {
		head := `{"format":1,"` + name + `":` + open + strings.Repeat(unit+",", (2<<20)/(len(unit)+1)) + unit + end + "}\n"
		return append([]byte(head), body...)
	}
	for name, raw := range map[string][]byte{
		"Offsets":  list("offsets", "0", "[", "]"),
		"Withheld": list("withheld", "{}", "[", "]"),
		"Findings": list("findings", `"a":0`, "{", "}"),
		"Lines":    append([]byte(`{"format":1}`+"\n"), bytes.Repeat([]byte("x\n"), 1<<20)...),
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, _, err := Decode(raw)
			runtime.ReadMemStats(&after)
			if !errors.Is(err, ErrCorrupt) {
				t.Errorf("error %v, want ErrCorrupt", err)
			}
			if got := after.TotalAlloc - before.TotalAlloc; got > 3*uint64(len(raw)) {
				t.Errorf("allocated %d MiB for %d MiB", got>>20, len(raw)>>20)
			}
		})
	}
}

// FuzzEncodeDecode: parse(format(x)) = x.
func FuzzEncodeDecode(f *testing.F) {
	f.Add("session-1", "wks-1", "agent-a1", "line one\nline two", int64(1), int64(0), int64(100), "private", int64(0))
	f.Add("s", "w", "main", "", int64(7), int64(3), int64(-1), "paused", int64(1e18))
	f.Fuzz(func(t *testing.T, session, workstation, stream, body string, seq, generation, offset int64, reason string, at int64) {
		var lines []string
		h := Header{
			Session: session, Workstation: workstation, Stream: stream, Seq: seq, Generation: generation,
			FirstIndex: NoIndex, LastIndex: NoIndex, Offset: offset, EndOffset: offset,
			PreviousChain: Start(session, workstation).String(), Rules: "1", At: time.Unix(0, at).UTC(),
		}
		for line := range strings.Lines(body) {
			line = strings.TrimSuffix(line, "\n")
			h.Offsets, h.Indexes = append(h.Offsets, h.EndOffset), append(h.Indexes, int64(len(lines)))
			h.EndOffset += int64(len(line)) + 1
			lines = append(lines, line)
		}
		if reason != "" {
			h.Findings = map[string]int{reason: 1}
			h.Withheld = []Range{{FromOffset: offset, ToOffset: h.EndOffset, Reason: reason}}
		}
		raw, err := encode(h, lines)
		if err != nil {
			return // Encode may refuse; what it accepts must come back.
		}
		unpacked, err := Unpack(Pack(raw))
		if err != nil || !bytes.Equal(raw, unpacked) {
			t.Fatalf("packed and unpacked to something else, error %v", err)
		}
		got, gotLines, err := Decode(unpacked)
		if err != nil {
			t.Fatalf("Decode: %v of %q", err, raw)
		}
		h.Format = Format
		if diff := cmp.Diff(h, got); diff != "" {
			t.Errorf("header (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(lines, texts(gotLines), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("lines (-want +got):\n%s", diff)
		}
		again, err := encode(got, texts(gotLines))
		if err != nil || !bytes.Equal(raw, again) {
			t.Errorf("encoded again to something else, error %v", err)
		}
	})
}

// FuzzDecodeNeverPanics: any bytes end in a segment or in one of three errors,
// and what is accepted can be rewritten.
func FuzzDecodeNeverPanics(f *testing.F) {
	h, lines := example()
	raw, err := encode(h, lines)
	if err != nil {
		f.Fatal(err)
	}
	archived, err := rewrite(raw, lines)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	f.Add(archived)
	f.Add(Pack(raw))
	f.Add([]byte(`{"format":2}` + "\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		known := func(err error) {
			if err != nil && !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrTooLarge) && !errors.Is(err, ErrUnsupportedVersion) {
				t.Errorf("an error of no kind: %v", err)
			}
		}
		unpacked, err := Unpack(data)
		known(err)
		if len(unpacked) > MaxRaw {
			t.Errorf("unpacked to %d bytes", len(unpacked))
		}
		for _, raw := range [][]byte{data, unpacked} {
			h, lines, err := Decode(raw)
			known(err)
			if err != nil {
				continue
			}
			if len(lines) != len(h.Offsets) || len(lines) != len(h.Indexes) {
				t.Errorf("%d lines, %d offsets, %d indexes", len(lines), len(h.Offsets), len(h.Indexes))
			}
			head, err := h.Head(raw)
			if err != nil {
				t.Errorf("Head of what Decode accepted: %v", err)
			}
			copied, err := rewrite(raw, texts(lines))
			if err != nil {
				continue // an archived member that is not where Rewrite puts it
			}
			ch, _, err := Decode(copied)
			if err != nil {
				t.Fatalf("Decode of a rewritten copy: %v", err)
			}
			if got, err := ch.Head(copied); err != nil || got != head {
				t.Errorf("a rewritten copy is elsewhere in the chain: %s, %v, want %s", got, err, head)
			}
		}
	})
}
