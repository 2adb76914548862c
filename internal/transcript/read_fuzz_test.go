package transcript_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/undersong-dev/undersong/internal/transcript"
)

// seeds adds all files of the corpus.
func seeds(f *testing.F, add func(i int, raw []byte)) {
	f.Helper()
	n := 0
	err := filepath.Walk(corpus, func(path string, _ os.FileInfo, err error) error {
		if err != nil || filepath.Ext(path) != ".jsonl" {
			return err
		}
		raw, err := os.ReadFile(path)
		n++
		add(n, raw)
		return err
	})
	if err != nil || n < 49 {
		f.Fatalf("%d files of the corpus: %v", n, err)
	}
}

// talk is what a stream of bytes gives, with the place of each record.
type talk struct {
	Offsets []int64
	Words   []transcript.Entry
	Memory  []transcript.Entry
	State   transcript.State
	Tokens  int64
	Left    []string
}

// reader reads a stream in passes.
type reader struct {
	talk  talk
	tools transcript.Tools
	usage transcript.Usage
	tree  transcript.Tree
}

func (r *reader) read(t *testing.T, l *transcript.Lines, kind transcript.StreamKind) {
	t.Helper()
	for l.Next() {
		rec, err := transcript.Parse(l.Line().Raw)
		if err != nil {
			continue
		}
		r.talk.Offsets = append(r.talk.Offsets, l.Line().Offset)
		r.talk.Words = append(r.talk.Words, rec.Entries(kind, "")...)
		r.talk.Memory = append(r.talk.Memory, rec.Memory(kind, "", transcript.Policy{ToolResults: transcript.AllResults, Thinking: true}, &r.tools)...)
		r.talk.State.Fold(rec, "")
		r.usage.Fold(rec, kind, "")
		r.tree.Fold(rec, "")
	}
	if err := l.Err(); err != nil {
		t.Fatal(err)
	}
}

func (r *reader) end() talk {
	r.talk.Tokens, r.talk.Left = r.usage.OutputTokens(), slices.Collect(r.tree.Abandoned())
	return r.talk
}

// FuzzAnySplitGivesTheSameWords: however the bytes come, and wherever a pass ends
// and the next begins, the words are the same, and fit for memory.
func FuzzAnySplitGivesTheSameWords(f *testing.F) {
	seeds(f, func(i int, raw []byte) { f.Add(raw, uint64(i), uint16(i*131), i%2 == 0) })
	f.Fuzz(func(t *testing.T, raw []byte, rnd uint64, cut uint16, agent bool) {
		kind := transcript.MainStream
		if agent {
			kind = transcript.AgentStream
		}
		var whole, parts reader
		whole.read(t, transcript.NewLines(bytes.NewReader(raw), 0), kind)
		at := min(int(cut), len(raw))
		first := transcript.NewLines(&chunks{raw[:at], rnd}, 0)
		parts.read(t, first, kind)
		parts.read(t, transcript.NewLines(&chunks{raw[first.Offset():], rnd}, first.Offset()), kind)
		want := whole.end()
		if diff := cmp.Diff(want, parts.end()); diff != "" {
			t.Errorf("-whole, +parts:\n%s", diff)
		}
		var w strings.Builder
		transcript.Render(&w, append(want.Words, want.Memory...))
		if text := w.String(); !utf8.ValidString(text) || strings.ContainsAny(text, "\x00\x1b\r") ||
			strings.Count(text, "<") != 2*(len(want.Words)+len(want.Memory)) {
			t.Errorf("not fit for memory: %q", text)
		}
		for _, e := range append(want.Words, want.Memory...) {
			if strings.TrimSpace(e.Text) == "" {
				t.Errorf("a blank entry: %+v", e)
			}
		}
	})
}

// FuzzWordsAreThoseOfEncodingJSON: what a message says is what encoding/json finds
// in it, whatever its shape.
func FuzzWordsAreThoseOfEncodingJSON(f *testing.F) {
	seeds(f, func(_ int, raw []byte) {
		for line := range bytes.Lines(raw) {
			var r struct{ Message json.RawMessage }
			if json.Unmarshal(line, &r) == nil && len(r.Message) > 0 {
				f.Add([]byte(r.Message))
			}
		}
	})
	for _, s := range []string{
		`{"content":[{"type":"te\u0078t","text":"\ud83d a\"b\\"}]}`, `{"content":"a\\\"","content":[ { } , [ ] , {"type":"text","text":"x\\"} , 1.5e3 , "b" ] }`,
		`{ "content" : [ ] , "model":"<synthetic>"}`, `{"model":{"a":["]}"]},"content":[{"type":"text","text":null,"text":"b","x":[{"y":"\"]"}]}]}`,
		"{\"cont\\u0065nt\":[{\"typ\\u0065\":\"text\",\"text\":\"\xb2\"}]}", `{"content":{"type":"text"}}`, `{"content":[{"type":"text","text":"a","type":"x"}]}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, message []byte) {
		line := append(append([]byte(`{"type":"assistant","message":`), message...), '}')
		r, err := transcript.Parse(line)
		var envelope map[string]json.RawMessage
		if (json.Unmarshal(line, &envelope) == nil) != (err == nil) {
			t.Fatalf("Parse: %v, encoding/json disagrees", err)
		}
		if err != nil || len(envelope) != 2 {
			return // no message, or one that closes the record and opens more
		}
		var want []string
		var m map[string]json.RawMessage
		_ = json.Unmarshal(envelope["message"], &m) // another shape has no words
		var model, text string
		_ = json.Unmarshal(m["model"], &model)
		if json.Unmarshal(m["content"], &text) == nil {
			want = append(want, text)
		}
		var blocks []json.RawMessage
		_ = json.Unmarshal(m["content"], &blocks)
		for _, raw := range blocks {
			var b map[string]json.RawMessage
			var kind, said string
			if json.Unmarshal(raw, &b) == nil && json.Unmarshal(b["type"], &kind) == nil && kind == "text" && json.Unmarshal(b["text"], &said) == nil {
				want = append(want, said)
			}
		}
		var said []string
		for _, s := range want {
			if strings.TrimSpace(s) != "" {
				said = append(said, s)
			}
		}
		expected := strings.TrimSpace(strings.Join(said, "\n"))
		if model == "<synthetic>" {
			expected = ""
		}
		var got string
		for _, e := range r.Entries(transcript.MainStream, "") {
			got += e.Text
		}
		if got != expected {
			t.Errorf("words %q, want %q", got, expected)
		}
	})
}
