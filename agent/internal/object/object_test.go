package object_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/undersong-dev/undersong/agent/internal/object"
)

// every has a field of each kind that Object reads.
type every struct {
	S string            `json:"s"`
	B bool              `json:"b"`
	I int64             `json:"i"`
	T time.Time         `json:"t,omitzero"`
	L []string          `json:"l"`
	M map[string]string `json:"m"`
	O struct {
		S string `json:"s"`
	} `json:"o"`
}

func read(data []byte) (e every, err error) {
	o, err := object.Parse(data)
	if err != nil {
		return every{}, err
	}
	e = every{S: o.String("s"), B: o.Bool("b"), I: o.Int("i"), T: o.Time("t"), L: o.Strings("l"), M: o.StringMap("m")}
	e.O.S = o.Object("o").String("s")
	return e, o.Err()
}

var texts = []string{
	`{}`,
	`{"s":"a \u00e9\n","b":true,"i":-12,"t":"2026-11-30T10:00:00.5Z","l":["a",null],"m":{"a":"b","c":null},"o":{"s":"x"}}`,
	`{"s":null,"b":null,"i":null,"t":null,"l":null,"m":null,"o":null,"other":[{}]}`,
	`{"i":9007199254740992}`, `{"i":1.0}`, `{"i":1.5}`, `{"i":1e300}`, `{"i":"1"}`, `{"b":"true"}`, `{"s":1}`, `{"l":[1]}`, `{"l":{}}`,
	`{"m":{"a":1}}`, `{"m":[]}`, `{"o":1}`, `{"o":{"s":2}}`, `{"t":""}`, `{"t":"yesterday"}`, `{"t":1}`, `[]`, `"s"`, `null`, ``, `{`, `{"s":"a"}x`,
	`{"s":"a","s":"b"}`,
}

// agree checks that a text is read as encoding/json reads it.
func agree(t *testing.T, text []byte) {
	t.Helper()
	got, err := read(text)
	var want every
	jerr := json.Unmarshal(text, &want)
	switch {
	case err == nil && jerr == nil:
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-encoding/json +ours):\n%s", text, diff)
		}
	case err == nil:
		// Both spell a whole number, and encoding/json wants it without a point.
		if !strings.ContainsAny(string(text), ".eE") {
			t.Errorf("%s: no error, encoding/json: %v", text, jerr)
		}
	case jerr == nil && string(bytes.TrimSpace(text)) != "null":
		if !strings.ContainsAny(string(text), "0123456789") { // a number over 2^53
			t.Errorf("%s: %v, encoding/json: no error", text, err)
		}
	}
}

func TestReadsAsEncodingJSONDoes(t *testing.T) {
	for _, text := range texts {
		agree(t, []byte(text))
	}
}

func TestErrNamesTheField(t *testing.T) {
	for _, name := range []string{"s", "b", "i", "t", "l", "m", "o"} {
		_, err := read([]byte(`{"` + name + `":[[]]}`))
		if err == nil || !strings.Contains(err.Error(), `"`+name+`"`) {
			t.Errorf("%s of another type: %v", name, err)
		}
	}
}

func FuzzWriter(f *testing.F) {
	for _, s := range []string{"", "plain", "a\"b\\c/d", "\n\r\t\x00\x1f\x7f", "é ✓ 𝄞 \u2028\u2029 <a>&", "\xff\xc3(", "\xed\xa0\x80"} {
		f.Add(s, int64(len(s)))
	}
	f.Fuzz(func(t *testing.T, s string, n int64) {
		var w, inner object.Writer
		inner.String(s, s)
		w.Int("n", n)
		w.String("s", s)
		w.Some("some", s)
		w.True("t", n > 0)
		w.Object("o", &inner)
		want := map[string]any{"n": n, "s": s, "o": map[string]string{s: s}}
		if s != "" {
			want["some"] = s
		}
		if n > 0 {
			want["t"] = true
		}
		theirs, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(decode(t, theirs), decode(t, w.Bytes())); diff != "" {
			t.Errorf("%q (-encoding/json +ours):\n%s", s, diff)
		}
		if bytes.ContainsAny(w.Bytes(), "\n\u2028\u2029") {
			t.Errorf("%q: not one line: %s", s, w.Bytes())
		}
	})
}

func decode(t *testing.T, data []byte) (v any) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%s: %v", data, err)
	}
	return v
}
