package hook

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

func TestReadInput(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		stdin  string
		want   input
		err    error
	}{
		"all fields": {
			reason: "what Claude Code sends",
			stdin: `{"session_id":"s","transcript_path":"/t","cwd":"/c","hook_event_name":"PreToolUse","source":"resume","reason":"clear",
				"prompt_id":"p","tool_use_id":"u","agent_id":"a","agent_transcript_path":"/a","prompt":"hello"}`,
			want: input{
				event: "PreToolUse", session: "s", transcript: "/t", cwd: "/c", source: "resume", reason: "clear",
				promptID: "p", toolUseID: "u", agentID: "a", agentTranscript: "/a",
			},
		},
		"inner fields": {
			reason: "a tool's input may have fields of these names",
			stdin:  `{"tool_input":{"session_id":"x","a":[{"cwd":"}]"}]},"session_id":"s","cwd":"/c\\\"}"}`,
			want:   input{session: "s", cwd: `/c\"}`},
		},
		"other types":   {reason: "no string is absent", stdin: `{"agent_id":null,"session_id":7,"cwd":{"a":1},"source":["x"],"reason":true}`},
		"last wins":     {reason: "as in encoding/json", stdin: `{"cwd":"/a","cwd":"/b"}`, want: input{cwd: "/b"}},
		"escaped":       {reason: "names and values may be escaped", stdin: `{"session\u005fid":"\u0073\ud83d\ude00"}`, want: input{session: "s😀"}},
		"empty object":  {reason: "nothing in it", stdin: " \n{ } \n"},
		"long value":    {reason: "no path is that long", stdin: `{"cwd":"` + strings.Repeat("a", maxValue+1) + `","source":"x"}`, want: input{source: "x"}},
		"longest value": {reason: "the bound itself", stdin: `{"cwd":"` + strings.Repeat("a", maxValue) + `"}`, want: input{cwd: strings.Repeat("a", maxValue)}},
		"quote at the cut": {
			reason: "a kept part must not pass for the whole",
			stdin:  `{"cwd":"` + strings.Repeat("a", maxValue-1) + `\"","source":"x"}`, want: input{source: "x"},
		},
		"notification":         {reason: "not a person's prompt", stdin: `{"prompt":"<task-notification>\n<task-id>1"}`, want: input{notification: true}},
		"escaped notification": {reason: "the same text", stdin: `{"prompt":" \n\u003ctask-notification>"}`, want: input{notification: true}},
		"mentioned":            {reason: "a person may speak of it", stdin: `{"prompt":"what is <task-notification>?"}`},
		"long notification":    {reason: "only its start is kept", stdin: `{"prompt":"<task-notification>` + strings.Repeat(`\ud83d\ude00`, 9000) + `"}`, want: input{notification: true}},
		"empty":                {reason: "nothing came", stdin: "", err: errNotObject},
		"array":                {reason: "no object", stdin: `["session_id","s"]`, err: errNotObject},
		"text":                 {reason: "no JSON", stdin: "hello", err: errNotObject},
		"torn in a value":      {reason: "the rest is missing", stdin: `{"session_id":"s`, err: errNotObject},
		"torn in an object":    {reason: "the rest is missing", stdin: `{"session_id":"s","tool_input":{"a":[`, err: errNotObject},
		"torn after a value":   {reason: "the rest is missing", stdin: `{"session_id":"s"`, err: errNotObject},
		"no colon":             {reason: "not JSON", stdin: `{"session_id" "s"}`, err: errNotObject},
		"no value":             {reason: "not JSON", stdin: `{"session_id":}`, err: errNotObject},
	} {
		t.Run(name, func(t *testing.T) {
			for _, r := range []io.Reader{strings.NewReader(tc.stdin), iotest.OneByteReader(strings.NewReader(tc.stdin))} {
				got, err := readInput(r)
				if !errors.Is(err, tc.err) {
					t.Errorf("%s: error = %v, want %v", tc.reason, err, tc.err)
				}
				if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(input{})); err == nil && diff != "" {
					t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
				}
			}
		})
	}
}

// TestReadInputReadsToTheEnd: Claude Code must be able to write all of it, also
// what nobody looks at.
func TestReadInputReadsToTheEnd(t *testing.T) {
	for _, stdin := range []string{`{"cwd":"/c"}`, "no JSON", `{"cwd"`, ""} {
		r := strings.NewReader(stdin + strings.Repeat(" ", 1<<20))
		_, _ = readInput(r)
		if r.Len() > 0 {
			t.Errorf("%q: %d bytes not read", stdin, r.Len())
		}
	}
}

func TestReadInputSurvivesABrokenPipe(t *testing.T) {
	broken := errors.New("broken")
	_, err := readInput(io.MultiReader(strings.NewReader(`{"cwd":`), iotest.ErrReader(broken)))
	if err == nil {
		t.Error("a part was taken for the whole")
	}
}

// TestReadInputMemory: a prompt of 32 MB costs no memory.
func TestReadInputMemory(t *testing.T) {
	prompt := bytes.Repeat([]byte(`line \"quoted\" \\ 😀 \n`), 32<<20/26)
	head, tail := []byte(`{"session_id":"s","prompt":"`), []byte(`","cwd":"/c"}`)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	in, err := readInput(io.MultiReader(bytes.NewReader(head), bytes.NewReader(prompt), bytes.NewReader(tail)))
	runtime.ReadMemStats(&after)
	if err != nil || in.session != "s" || in.cwd != "/c" {
		t.Fatal(in, err)
	}
	if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 256<<10 {
		t.Errorf("%d bytes allocated", allocated)
	}
}

// FuzzReadInputIsEncodingJSON: what encoding/json takes for an object is read
// as it reads it, however the bytes arrive.
func FuzzReadInputIsEncodingJSON(f *testing.F) {
	f.Add([]byte(`{"session_id":"s","prompt":"<task-notification>","tool_input":{"a":[1,2,{"b":"\\\""}]},"cwd":"\u00e9"}`))
	f.Add([]byte(`{"cwd":"\\\\\\\"","agent_id":null , "x" : -1.5e3}`))
	f.Add([]byte(`{"cwd":"\ud800","source":"` + "\xff" + `"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := readInput(iotest.HalfReader(bytes.NewReader(data)))
		var fields map[string]any
		if json.Unmarshal(data, &fields) != nil || fields == nil {
			return
		}
		if err != nil {
			t.Fatalf("%q: %v", data, err)
		}
		var want input
		for name, value := range fields {
			text, _ := value.(string)
			if target := want.field(name); target != nil && len(text) <= maxValue/6 {
				*target = text
			}
			if name == "prompt" {
				want.notification = strings.HasPrefix(strings.TrimLeft(text, " \t\r\n"), "<task-notification>")
			}
		}
		if len(data) > maxHead { // blanks before it may be beyond what is looked at
			want.notification = got.notification
		}
		if len(data) > maxValue/6 {
			return
		}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(input{})); diff != "" {
			t.Errorf("%q (-encoding/json +ours):\n%s", data, diff)
		}
	})
}
