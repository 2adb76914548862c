package jsonline_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/undersong-dev/undersong/internal/redact/jsonline"
)

func TestTrim(t *testing.T) {
	cases := map[string]struct {
		reason   string
		in, want string
	}{
		"Plain":      {"a clean line stays as it is", `{}`, `{}`},
		"CR":         {"a CR before the LF is a line end of Windows", "{}\r", `{}`},
		"BOM":        {"a byte order mark stands at the head", "\xef\xbb\xbf{}", `{}`},
		"NUL":        {"a hole that a crash left is a run of NUL", "\x00\x00\x00{}", `{}`},
		"NULAndBOM":  {"both may come together", "\x00\xef\xbb\xbf{}", `{}`},
		"Blanks":     {"blanks are no content", " \t{} ", `{}`},
		"Blank":      {"a blank line is empty", "  \t \r", ``},
		"OnlyNUL":    {"a line of NUL is empty", "\x00\x00", ``},
		"NULInside":  {"a NUL elsewhere is damage and stays", "{}\x00", "{}\x00"},
		"BOMInside":  {"a mark after a blank is damage and stays", " \xef\xbb\xbf{}", " \xef\xbb\xbf{}"},
		"HalfOfABOM": {"two bytes of a mark are damage", "\xef\xbb{}", "\xef\xbb{}"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := string(jsonline.Trim([]byte(tc.in)))
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\nTrim(%q): -want, +got:\n%s", tc.reason, tc.in, diff)
			}
		})
	}
}

func TestMembers(t *testing.T) {
	in := []byte(` { "a" : "x\u00e9\n" , "b":[1,{"c":2}], "a":-1.5e+3,"d":{"e":null} } `)
	type member struct{ Key, Value string }
	var got []member
	if !jsonline.Members(in, func(key, value jsonline.Value) {
		got = append(got, member{jsonline.Text(in, key), string(in[value.Start:value.End])})
	}) {
		t.Fatal("Members: want valid")
	}
	want := []member{{"a", `"x\u00e9\n"`}, {"b", `[1,{"c":2}]`}, {"a", `-1.5e+3`}, {"d", `{"e":null}`}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("own members in order, repeated keys too: -want, +got:\n%s", diff)
	}
}

func TestDepth(t *testing.T) {
	for _, n := range []int{jsonline.MaxDepth - 1, jsonline.MaxDepth, jsonline.MaxDepth + 1, 3_000_000} {
		in := []byte(`{"a":` + strings.Repeat("[", n-1) + strings.Repeat("]", n-1) + `}`)
		want := n <= jsonline.MaxDepth
		if got := jsonline.Valid(in); got != want {
			t.Errorf("depth %d: got valid %v, want %v", n, got, want)
		}
		if n <= jsonline.MaxDepth+1 && json.Valid(in) != want {
			t.Errorf("depth %d: encoding/json disagrees", n)
		}
	}
}

var seeds = []string{
	`{}`, `{"a":1}`, `{"a":"b"}{"c":1}`, `{"a":"` + "\u2028" + `"}`, `{"a":"\ud83d\ude00\ud83d x \udc00"}`, `{"a":"\ud83dA"}`,
	"{\"a\":\"\xb2\xe6\x9c\"}", `{"a":"\u12"}`, `{"a":01}`, `{"a":-}`, `{"a":1.}`, `{"a":1e}`, `{"a":tru}`, `{"a":[1,]}`, `{"a":1,}`, `{,}`,
	`{"a"}`, `{"a":}`, `[1]`, `null`, `"x"`, "{\"a\":\"tab\tinside\"}", `{"a":"\x"}`, `{"abcdefgh":"01234567\"01234567\\"}`, "{\"a\":\"\x7f\"}", `{"":{"":[[],{}]}}`,
}

// FuzzAgreesWithEncodingJSON: what is an object and what a string says is what
// encoding/json says.
func FuzzAgreesWithEncodingJSON(f *testing.F) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		got := map[string]string{}
		valid := jsonline.Members(in, func(key, value jsonline.Value) {
			k := jsonline.Text(in, key)
			if !jsonline.Is(in, key, k) && json.Valid(in) && !strings.Contains(k, "\ufffd") {
				t.Errorf("Is(%q) is false for the key that says it", k)
			}
			got[k] = string(in[value.Start:value.End])
			if value.Kind == jsonline.String {
				got[k] = jsonline.Text(in, value)
				if value.Plain && got[k] != string(in[value.Start+1:value.End-1]) {
					t.Errorf("%q is not plain", got[k])
				}
			}
		})
		want := json.Valid(in) && bytes.HasPrefix(bytes.TrimLeft(in, " \t\r\n"), []byte("{"))
		if valid != want {
			t.Fatalf("valid %v, encoding/json says %v", valid, want)
		}
		if !valid {
			return
		}
		var raw map[string]json.RawMessage
		if err := json.Unmarshal(in, &raw); err != nil {
			t.Fatal(err)
		}
		said := map[string]string{}
		for k, v := range raw {
			said[k] = string(v)
			if v[0] == '"' {
				var s string
				if err := json.Unmarshal(v, &s); err != nil {
					t.Fatal(err)
				}
				said[k] = s
			}
		}
		if diff := cmp.Diff(said, got); diff != "" {
			t.Errorf("-encoding/json, +jsonline:\n%s", diff)
		}
	})
}
