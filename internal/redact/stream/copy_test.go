package stream

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/undersong-dev/undersong/internal/redact"
)

// A token of no account, in two halves so that no scanner of repositories finds
// it here.
const token = "ghp_" + "x7Kq2mZ9tLw4Rb8YvN3cHs6JdFa1PeGu5TiX"

const armoured = "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgq7Zb1x0F9sKd2mWc\n" +
	"Hk3Vt8Yp5LnQe6RjUa4oTg2BiXyhRANCAATz9wJr7Cf1Nv0Ms8Dq3Kb5Gx6Ph2Zt\n"

// redactAll copies all of in.
func redactAll(t *testing.T, in io.Reader) (string, string) {
	t.Helper()
	redactor, err := redact.New()
	if err != nil {
		t.Fatal(err)
	}
	var out, errs strings.Builder
	if err := Copy(redactor, in, &out, &errs); err != nil {
		t.Fatal(err)
	}
	return out.String(), errs.String()
}

func TestRedact(t *testing.T) {
	record := func(text string) string {
		return `{"type":"user","uuid":"u1","message":{"role":"user","content":"` + text + `"}}`
	}
	type test struct {
		reason, in, out, errs string
	}
	for name, tt := range map[string]test{
		"Nothing":    {"nothing comes of nothing", "", "", ""},
		"Harmless":   {"text without secrets is copied byte for byte", "one\r\n\n  two\n", "one\r\n\n  two\n", ""},
		"NoLineEnd":  {"the last line needs no line end, and gets none", "one\ntwo", "one\ntwo", ""},
		"Text":       {"a finding is told by its line", "one\ntwo " + token + " three\n", "one\ntwo [redacted:github-token] three\n", "line 2: github-token 1\n"},
		"TwoInALine": {"findings of one line are one line", token + " " + token, "[redacted:github-token] [redacted:github-token]", "line 1: github-token 2\n"},
		"Record":     {"a record stays JSON", record("my " + token), record("my [redacted:github-token]"), "line 1: github-token 1\n"},
		"Records": {
			"lines of both kinds keep their order", "a\n" + record(token) + "\nb " + token + "\n" + record("c") + "\n",
			"a\n" + record("[redacted:github-token]") + "\nb [redacted:github-token]\n" + record("c") + "\n", "line 2: github-token 1\nline 3: github-token 1\n",
		},
		"Stub": {
			"a record that does not leave is a stub", `{"type":"progress","data":"` + token + `"}` + "\n",
			`{"type":"undersong-stub","of":"progress","bytes":69}` + "\n", "",
		},
		"OtherJSON": {"an object without a type is text", `{"note":"` + token + `"}` + "\n", `{"note":"[redacted:github-token]"}` + "\n", "line 1: github-token 1\n"},
		"Key": {
			"a key over several lines is one finding", "a\n-----BEGIN PRIVATE" + " KEY-----\n" + armoured + "-----END PRIVATE KEY-----\nb " + token + "\n",
			"a\n[redacted:private-key]\nb [redacted:github-token]\n", "line 2: private-key 1\nline 6: github-token 1\n",
		},
		"Private": {"what is not closed is private to the end", "a <private>b\n" + record("c") + "\nd", "a [redacted:private][redacted:private]", "line 1: private 1\nline 2: private 1\n"},
	} {
		t.Run(name, func(t *testing.T) {
			out, errs := redactAll(t, strings.NewReader(tt.in))
			if diff := cmp.Diff([]string{tt.out, tt.errs}, []string{out, errs}); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tt.reason, diff)
			}
			again, errs := redactAll(t, strings.NewReader(out))
			if again != out || errs != "" {
				t.Errorf("a second time: printed %q, %q", again, errs)
			}
		})
	}
}

// TestRedactATokenAcrossRecords plants a token of which one record has the
// beginning and the next one the end, wherever the filter's batches end.
func TestRedactATokenAcrossRecords(t *testing.T) {
	record := func(text string) string {
		return `{"type":"user","uuid":"u1","message":{"role":"user","content":"` + text + `"}}` + "\n"
	}
	for _, before := range []int{0, filterLines - 3, filterLines - 2, filterLines - 1, filterLines, 2 * filterLines} {
		in := strings.Repeat(record("words"), before) + record("it is "+token[:20]) + `{"type":"progress"}` + "\n" + record(token[20:]+" indeed")
		out, _ := redactAll(t, strings.NewReader(in))
		if strings.Contains(out, token[:20]) || strings.Contains(out, token[20:]) {
			t.Errorf("behind %d records: a half of the token is in %q", before, out[max(0, len(out)-300):])
		}
		if n := strings.Count(out, "\n"); n != before+3 {
			t.Errorf("behind %d records: %d lines, want %d", before, n, before+3)
		}
	}
}

// TestRedactAcrossBlocks plants what goes on over the end of a block of text.
func TestRedactAcrossBlocks(t *testing.T) {
	filler := strings.Repeat("nothing to see here, move along\n", textSize/32-2)
	body := strings.Repeat(armoured, 40)
	for name, tt := range map[string]struct{ in, gone, stays string }{
		"Key":     {filler + "-----BEGIN PRIVATE" + " KEY-----\n" + body + "-----END PRIVATE KEY-----\nthe end\n", "MIGHAgEA", "the end"},
		"Private": {filler + "<private>\n" + strings.Repeat("hidden\n", 100) + "</private>\nthe end\n", "hidden", "the end"},
		"Spoken":  {filler + "the tag `<private>` hides\n" + strings.Repeat("words\n", 100) + "the end\n", "\x00", "words\nthe end"},
	} {
		t.Run(name, func(t *testing.T) {
			out, errs := redactAll(t, strings.NewReader(tt.in))
			if strings.Contains(out, tt.gone) {
				t.Errorf("%q is still there", tt.gone)
			}
			if !strings.Contains(out, tt.stays) || !strings.HasPrefix(out, filler[:len(filler)-64]) {
				t.Errorf("what stands around is gone: %q; %s", out[len(out)-200:], errs)
			}
		})
	}
}

// TestRedactALineThatIsTooLong passes more through than memory could hold of it
// many times over.
func TestRedactALineThatIsTooLong(t *testing.T) {
	long := int64(40 << 20)
	in := io.MultiReader(strings.NewReader("before\n"), io.LimitReader(zeros{}, long), strings.NewReader("\nafter\n"))
	out, errs := redactAll(t, in)
	want := fmt.Sprintf("before\n{\"type\":\"undersong-stub\",\"of\":\"too-long\",\"bytes\":%d}\nafter\n", long+1)
	if diff := cmp.Diff([]string{want, "line 2: too long to be scanned, withheld\n"}, []string{out, errs}); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	return copy(p, bytes.Repeat([]byte("z"), len(p))), nil
}

// FuzzRedactTwiceIsRedactOnce: whatever is piped through, ends, and comes out of
// a second pass as it went in.
func FuzzRedactTwiceIsRedactOnce(f *testing.F) {
	f.Add("one\ntwo " + token + "\n")
	f.Add(`{"type":"user","message":{"content":"` + token + `"}}` + "\nx <private>y")
	f.Add("-----BEGIN PRIVATE" + " KEY-----\n" + armoured + "{\"type\":\"a\"}\n-----END PRIVATE KEY-----")
	f.Add("{\"type\":\"a\"}\r\n\x00\xff\n\n{\"type\":1}")
	redactor, err := redact.New()
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, in string) {
		pass := func(in string) string {
			var out bytes.Buffer
			if err := newFilter(redactor, &out, io.Discard).copy(strings.NewReader(in)); err != nil {
				t.Fatal(err)
			}
			return out.String()
		}
		once := pass(in)
		if twice := pass(once); twice != once {
			t.Errorf("%q\nbecomes  %q\nand then %q", in, once, twice)
		}
	})
}
