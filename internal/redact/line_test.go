package redact_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/undersong-dev/undersong/internal/redact"
)

func TestLine(t *testing.T) {
	cases := map[string]struct {
		reason string
		in     string
		want   string
		found  redact.Findings
	}{
		"Unchanged": {
			"a clean record keeps every byte, odd ones too",
			`{"type" : "user","n":1.50,"u":"\u00e9\/` + "\u2028\xb2" + `","a":[ ],"type2":{}}`,
			`{"type" : "user","n":1.50,"u":"\u00e9\/` + "\u2028\xb2" + `","a":[ ],"type2":{}}`, nil,
		},
		"Trimmed": {
			"what surrounds the object goes",
			"\x00\xef\xbb\xbf {\"type\":\"tag\"} \r", `{"type":"tag"}`, nil,
		},
		"LineFeed": {
			"a line holds no LF, wherever it came from",
			"{\"type\":\n\"tag\"\n}", `{"type": "tag" }`, nil,
		},
		"CopyFirst": {
			"the comma behind goes along",
			`{"toolUseResult": {"a":[1,{"b":"}"}]} , "type":"user"}`, `{"type":"user"}`, nil,
		},
		"CopyMiddle": {
			"the comma before goes along",
			`{"type":"user" , "rendered":["x\"]"] , "uuid":"u"}`, `{"type":"user" , "uuid":"u"}`, nil,
		},
		"CopyLast": {
			"no comma is left behind",
			`{"type":"user","toolUseResult":"x" }`, `{"type":"user" }`, nil,
		},
		"CopiesOnly": {
			"two in front, and one escaped, twice",
			`{"rendered":1,"toolUse\u0052esult":2,"toolUseResult":3,"type":"user","rendered":4,"rendered":5}`, `{"type":"user"}`, nil,
		},
		"CopyElsewhere": {
			"only the record's own copies are copies",
			`{"type":"user","message":{"rendered":1,"toolUseResult":2}}`, `{"type":"user","message":{"rendered":1,"toolUseResult":2}}`, nil,
		},
		"CopyInAttachment": {
			"attachments carry their own",
			`{"type":"attachment","attachment":{"type":"queued_command","rendered":["x"],"prompt":"p"},"rendered":[]}`,
			`{"type":"attachment","attachment":{"type":"queued_command","prompt":"p"}}`, nil,
		},
		"SecretInCopy": {
			"a secret in a dropped member is dropped, not found",
			`{"type":"user","toolUseResult":"ghp_` + random + `"}`, `{"type":"user"}`, nil,
		},
		"SecretEscaped": {
			"escapes do not hide a secret, and its neighbours keep theirs",
			`{"type":"user","x":"\u00e9\"gh\u0070_` + random[:20] + `\u005a` + random[20:36] + `\"\t"}`,
			`{"type":"user","x":"\u00e9\"[redacted:github-token]\"\t"}`,
			redact.Findings{"github-token": 1},
		},
		"SecretInKey": {
			"names of members are text too",
			`{"type":"user","x":{"ghp_` + random + `":true}}`, `{"type":"user","x":{"[redacted:github-token]":true}}`,
			redact.Findings{"github-token": 1},
		},
		"SecretByName": {
			"a value is secret by its name",
			`{"type":"assistant","input":{"dbPassword":"correct","pass\u0077ord":123456,"token":"abc","apiKey":"q1w2e3r4","tokens":["abcdef1234567"]}}`,
			`{"type":"assistant","input":{"dbPassword":"correct","pass\u0077ord":"[redacted:assignment]","token":"abc","apiKey":"[redacted:assignment]","tokens":["[redacted:assignment]"]}}`,
			redact.Findings{"assignment": 3},
		},
		"HeaderByName": {
			"the scheme stays",
			`{"type":"assistant","input":{"Authorization":"Bearer q1w2e3r4"}}`,
			`{"type":"assistant","input":{"Authorization":"Bearer [redacted:assignment]"}}`,
			redact.Findings{"assignment": 1},
		},
		"Image": {
			"a picture does not leave, however small; its type is told before or behind",
			`{"type":"user","c":[{"type":"image","source":{"data":"iVBORw0KGgo=","type":"base64","media_type":"image/png"}},{"source":{"media_type":"\"x","data":"\u0041"}}]}`,
			`{"type":"user","c":[{"type":"image","source":{"data":"[image/png, 8 bytes, withheld]","type":"base64","media_type":"image/png"}},{"source":{"media_type":"\"x","data":"[base64, 0 bytes, withheld]"}}]}`,
			redact.Findings{"binary": 2},
		},
		"TextDocument": {
			"a document in plain text stays, without its secrets",
			`{"type":"user","source":{"type":"text","media_type":"text/plain","data":"spring tide, password=hunter22"}}`,
			`{"type":"user","source":{"type":"text","media_type":"text/plain","data":"spring tide, password=[redacted:assignment]"}}`,
			redact.Findings{"assignment": 1},
		},
		"PayloadOfATool": {
			"pictures of other tools are pictures",
			`{"type":"user","c":{"type":"image","data":"` + strings.Repeat("iVBORw0K", 10) + `","mimeType":"image/webp"}}`,
			`{"type":"user","c":{"type":"image","data":"[image/webp, 60 bytes, withheld]","mimeType":"image/webp"}}`,
			redact.Findings{"binary": 1},
		},
		"DataIsText": {
			"data may be words",
			`{"type":"user","c":{"data":"spring tide table"}}`, `{"type":"user","c":{"data":"spring tide table"}}`, nil,
		},
		"StubOfAttachment": {
			"a type that is not on the list leaves its ids only",
			`{"parentUuid":"p-1","attachment":{"type":"hook_success","stdout":"secret talk"},"type":"attachment","uuid":"u-1","timestamp":"2026-10-01T09:00:05.005Z","sessionId":"s-1","cwd":"/home/x"}`,
			`{"type":"undersong-stub","of":"attachment/hook_success","uuid":"u-1","parentUuid":"p-1","sessionId":"s-1","timestamp":"2026-10-01T09:00:05.005Z","bytes":186}`, nil,
		},
		"StubOfSystem": {
			"system records go by subtype",
			`{"type":"system","subtype":"local_command","content":"x"}`, `{"type":"undersong-stub","of":"system/local_command","bytes":57}`, nil,
		},
		"KeptSystem": {
			"some stay",
			`{"type":"system","subtype":"compact_boundary","content":"x"}`, `{"type":"system","subtype":"compact_boundary","content":"x"}`, nil,
		},
		"StubOfOddType": {
			"a type is not a way out",
			`{"type":"a<b>\u0000 c/` + strings.Repeat("x", 80) + `"}`, `{"type":"undersong-stub","of":"abc` + strings.Repeat("x", 61) + `","bytes":104}`, nil,
		},
		"StubOfSecretType": {
			"nor for a secret",
			`{"type":"ghp_` + random + `","uuid":"ghp_` + random + `","sessionId":"a b","timestamp":5,"parentUuid":null}`,
			`{"type":"undersong-stub","of":"untyped","bytes":159}`, nil,
		},
		"StubWithoutType": {
			"an object that says nothing", `{}`, `{"type":"undersong-stub","of":"untyped","bytes":2}`, nil,
		},
		"TwoTypes": {
			"what readers could take for two things does not leave",
			`{"type":"user","type":"prompt_snapshot"}`, `{"type":"undersong-stub","of":"prompt_snapshot","bytes":40}`, nil,
		},
		"TwoTypesLastKept": {
			"whichever comes last",
			`{"type":"prompt_snapshot","text":"x","type":"user"}`, `{"type":"undersong-stub","of":"user","bytes":51}`, nil,
		},
		"TwoAttachmentsLastKept": {
			"by its attachment, too",
			`{"type":"attachment","attachment":{"type":"file"},"attachment":{"type":"queued_command"}}`,
			`{"type":"undersong-stub","of":"attachment/queued_command","bytes":89}`, nil,
		},
		"TwoAttachments": {
			"neither by its attachment",
			`{"type":"attachment","attachment":{"type":"queued_command"},"attachment":{"type":"file"}}`,
			`{"type":"undersong-stub","of":"attachment/file","bytes":89}`, nil,
		},
		"Stub": {
			"a stub stays",
			`{"type":"undersong-stub","of":"attachment/hook_success","uuid":"u-1","bytes":123456}`, `{"type":"undersong-stub","of":"attachment/hook_success","uuid":"u-1","bytes":123456}`, nil,
		},
		"ForgedStub": {
			"but only what a stub holds",
			`{"type":"undersong-stub","of":"x y/z","talk":"everything","bytes":-1}`, `{"type":"undersong-stub","of":"xy/z","bytes":69}`, nil,
		},
		"Torn":      {"half a record is no record", `{"type":"user","message":{"content":"x`, `{"type":"undersong-stub","of":"bad-line","bytes":38}`, nil},
		"NoObject":  {"nor is another value", `["type","user"]`, `{"type":"undersong-stub","of":"bad-line","bytes":15}`, nil},
		"Glued":     {"nor are two", `{"type":"user"}{"type":"user"}`, `{"type":"undersong-stub","of":"bad-line","bytes":30}`, nil},
		"Blank":     {"nor is nothing", ``, `{"type":"undersong-stub","of":"bad-line","bytes":0}`, nil},
		"NotKept":   {"copies of prompts do not leave", `{"type":"last-prompt","lastPrompt":"x"}`, `{"type":"undersong-stub","of":"last-prompt","bytes":39}`, nil},
		"KeptTitle": {"state does, scanned", `{"type":"custom-title","customTitle":"use password=hunter22"}`, `{"type":"custom-title","customTitle":"use password=[redacted:assignment]"}`, redact.Findings{"assignment": 1}},
	}
	r := redactor(t)
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, found := r.Line([]byte(tc.in))
			if diff := cmp.Diff(tc.want, got.String()); diff != "" {
				t.Errorf("%s\n-want, +got:\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(tc.found, found); diff != "" {
				t.Errorf("%s\nfindings: -want, +got:\n%s", tc.reason, diff)
			}
			checkLine(t, r, got)
		})
	}
}

// checkLine checks what holds for every result of Line.
func checkLine(t *testing.T, r *redact.Redactor, line redact.Redacted) {
	t.Helper()
	s := line.String()
	if !json.Valid([]byte(s)) || !strings.HasPrefix(s, "{") || strings.Contains(s, "\n") {
		t.Fatalf("not one line of one JSON object: %q", s)
	}
	again, found := r.Line([]byte(s))
	if again.String() != s || found != nil {
		t.Fatalf("a second pass changes a line: %v, -once, +twice:\n%s", found, cmp.Diff(s, again.String()))
	}
}

func TestLineTooLong(t *testing.T) {
	r := redactor(t)
	record := func(size int) []byte {
		const head, tail = `{"type":"user","message":{"content":"`, `"}}`
		return []byte(head + strings.Repeat("word ", size/5+1)[:size-len(head)-len(tail)] + tail)
	}
	for size, want := range map[int]string{
		redact.MaxLine:     `{"type":"user"`,
		redact.MaxLine + 1: fmt.Sprintf(`{"type":"undersong-stub","of":"too-long","bytes":%d}`, redact.MaxLine+1),
	} {
		got, _ := r.Line(record(size))
		if !strings.HasPrefix(got.String(), want) {
			t.Errorf("a line of %d bytes became %.100q, want %.100q", size, got.String(), want)
		}
	}
}

// corpusLines returns all lines of the transcript corpus, the seeds of the fuzz
// tests.
func corpusLines(tb testing.TB) [][]byte {
	tb.Helper()
	var lines [][]byte
	root := filepath.Join("..", "transcript", "testdata", "corpus")
	err := filepath.WalkDir(root, func(path string, _ os.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".jsonl" {
			return err
		}
		raw, err := os.ReadFile(path)
		lines = append(lines, bytes.Split(raw, []byte("\n"))...)
		return err
	})
	if err != nil {
		tb.Fatal(err)
	}
	if len(lines) < 300 {
		tb.Fatalf("%d lines of the corpus, want at least 300", len(lines))
	}
	return lines
}

func TestLineOnCorpus(t *testing.T) {
	r := redactor(t)
	for _, raw := range corpusLines(t) {
		got, found := r.Line(raw)
		checkLine(t, r, got)
		if len(found) > 0 && !bytes.Contains(raw, []byte("5e550028")) && found["binary"] == 0 {
			t.Errorf("%v found in a line without secrets:\n%s", found, got)
		}
	}
}

// FuzzLine: any bytes become one line of one JSON object, and a second pass
// changes nothing.
func FuzzLine(f *testing.F) {
	for _, line := range corpusLines(f) {
		f.Add(line)
	}
	for _, s := range []string{
		`{"type":"user","x":"password=[redacted:x] token: abc12345 <private>","rendered":1}`,
		`{"type":"user","token":"[redacted:x]","[redacted:secret]":"abc123def","source":{"data":"x"}}`,
		"{\"type\":\"user\",\"x\":\"\\ud83d\\u0000\x80\\u001b[1mpassword\\u200b=hunter22\"}",
		`{"type":"user","x":"-----BEGIN PRIVATE` + ` KEY-----\n-----END PRIVATE KEY-----"}`,
		`{"type":"user","x":"https://a:b@c@d:e/f@g?token=data:x;base64,AAAAAAAAAAAAAAAAAAAAAAAA"}`,
		`{"type":"user","authorization":"basic bearer basic abc123","pass":"is was is","a":"the password is was hunter22"}`,
		`{"type":"user","x":{"kind":"Secret","data":{"a":"bGFudGVybg==","data":{"kind":"Secret"}},"passwords":["hunter22",{"value":"abc12345"}]}}`,
		`{"type":"user","content":["use gh` + `p_Zk3vQ9xLm2Rt7Y","bN4cWd8HsJ6fGp1KaE5uTo0iVe now","\\u0067\\n\"a\":"]}`,
		"{\"type\":\"user\",\"x\":\"apiVersion: v1\\ndata:\\n  a: bGFudGVybg==\\nkind: Secret\\npassword: |\\n  hunter22\\n\"}",
	} {
		f.Add([]byte(s))
	}
	r := redactor(f)
	f.Fuzz(func(t *testing.T, raw []byte) {
		line, _ := r.Line(raw)
		checkLine(t, r, line)
	})
}

// FuzzText: a second pass over a text changes nothing.
func FuzzText(f *testing.F) {
	f.Add("the password is hunter22 and token=abc12345; https://u:p@h")
	f.Add("echo -| docker login --password-stdin")
	f.Add("a\x1b]8;;https://u:secret@h\a\u200bpassword\x00 : \u2028hunter22")
	r := redactor(f)
	f.Fuzz(func(t *testing.T, s string) {
		once, _ := r.Text(s)
		twice, found := r.Text(once.String())
		if once != twice || found != nil {
			t.Errorf("%v: -once, +twice:\n%s", found, cmp.Diff(once.String(), twice.String()))
		}
	})
}

// planted are secrets that no neighbour may hide.
var planted = []string{
	"ghp_" + random[:36],
	"github_pat_11ABCDEFG0" + random,
	"glpat-" + random[:20],
	"AGE-SECRET-KEY-1QQPZRY9X8GF2TVDW0S3JN54KHCE6MUA7LQQPZRY9X8GF2TVDW0S3JN54",
	"-----BEGIN PRIVATE" + " KEY-----\nMIIEow" + random + "\n-----END PRIVATE KEY-----",
	"<private>" + random + "</private>",
	"\npassword: hunter" + random[:10] + "\n",
	" AKIA" + "Q3EGRIIZ7XMPLKEY ",
	" https://user:" + random[:12] + "@host/ ",
}

// core is the part of a planted secret that must be gone.
func core(secret string) string {
	for _, part := range []string{random, random[:36], random[:20], random[:12], random[:10]} {
		if strings.Contains(secret, part) {
			return part
		}
	}
	return strings.TrimSpace(secret)
}

// FuzzPlanted: a secret in any neighbourhood, written with any escapes, in a
// value or in a name, with invisible characters in it, does not survive.
func FuzzPlanted(f *testing.F) {
	f.Add("before ", " after", uint8(0), uint64(0))
	f.Add("\\", "\"", uint8(1), uint64(0xffff))
	f.Add("key=", "=x", uint8(3), uint64(0x5555555555555555))
	f.Add("-----BEGIN PRIVATE KEY-----", "<private>", uint8(4), uint64(1)<<63)
	f.Add("\x1b[", "m", uint8(0), uint64(3))
	r := redactor(f)
	f.Fuzz(func(t *testing.T, before, after string, which uint8, bits uint64) {
		if len(before) > 4<<10 || len(after) > 4<<10 {
			return
		}
		secret := planted[int(which)%len(planted)]
		core := core(secret)
		inKey, hidden := bits&1 != 0, bits&2 != 0
		if hidden && strings.Contains(before, "\x1b") {
			return // the sequence eats the secret's first letters: no reader sees them either
		}
		if hidden && which%9 < 4 {
			at := len(secret) / 2
			secret = secret[:at] + []string{"\u200b", "\x1b[0m", "\u00ad", "\x00"}[bits>>2&3] + secret[at:]
		}
		var s strings.Builder
		quoteJSON(&s, before, 0)
		quoteJSON(&s, secret, bits>>4)
		quoteJSON(&s, after, 0)
		line := `{"type":"user","message":{"content":"` + s.String() + `"}}`
		if inKey {
			line = `{"type":"user","message":{"` + s.String() + `":1}}`
		}
		got, found := r.Line([]byte(line))
		checkLine(t, r, got)
		var said struct{ Message map[string]any }
		if err := json.Unmarshal([]byte(got.String()), &said); err != nil {
			t.Fatal(err)
		}
		for k, v := range said.Message {
			text := visible(k + fmt.Sprint(v))
			if strings.Contains(text, core) && !strings.Contains(visible(before+after), core) {
				t.Fatalf("%q survives in %q (found %v)", core, text, found)
			}
		}
	})
}

// quoteJSON writes s as the inside of a JSON string, with the character at each
// set bit as an escape.
func quoteJSON(w *strings.Builder, s string, bits uint64) {
	i := 0
	for _, c := range s {
		switch {
		case c >= 0x10000 || c < 0x20 || c == '"' || c == '\\' || c == 0xfffd:
			b, err := json.Marshal(string(c))
			if err != nil {
				panic(err)
			}
			w.Write(b[1 : len(b)-1])
		case bits>>(i%64)&1 != 0:
			fmt.Fprintf(w, `\u%04x`, c)
		default:
			w.WriteRune(c)
		}
		i++
	}
}

// visible drops the characters that the fuzz test hides secrets with.
func visible(s string) string {
	return strings.NewReplacer("\u200b", "", "\x1b[0m", "", "\u00ad", "", "\x00", "").Replace(s)
}

// TestLineStructure: what a member's name says of a list or an object, it says
// of what is in it.
func TestLineStructure(t *testing.T) {
	cases := map[string]struct{ in, want string }{
		"List":        {`"passwords":["hunter22","correcthorse"]`, `"passwords":["[redacted:assignment]","[redacted:assignment]"]`},
		"ListOfNames": {`"tokens":["if","else","token","name"]`, `"tokens":["if","else","token","name"]`},
		"Count":       {`"passwords":1234567,"secrets":"none of them"`, `"passwords":1234567,"secrets":"none of them"`},
		"Nested":      {`"password":{"value":"hunter22","hint":"the usual"}`, `"password":{"value":"[redacted:assignment]","hint":"the usual"}`},
		"Cookie":      {`"cookie":"theme=dark; session=` + random[:20] + `"`, `"cookie":"[redacted:assignment]"`},
		"SetCookie":   {`"Set-Cookie":"sid=` + random[:20] + `; Path=/"`, `"Set-Cookie":"sid=[redacted:assignment]; Path=/"`},
		"Secret":      {`"data":{"note":"bGFudGVybg==","no":"x"},"kind":"Secret"`, `"data":{"note":"[redacted:kubernetes-secret]","no":"x"},"kind":"Secret"`},
		"ConfigMap":   {`"data":{"note":"bGFudGVybg=="},"kind":"ConfigMap"`, `"data":{"note":"bGFudGVybg=="},"kind":"ConfigMap"`},
		"Escaped":     {`"command":"echo \\u0067hp_` + random[:36] + ` now"`, `"command":"echo [redacted:github-token] now"`},
		"LowerKey":    {`"lantern_key":"` + random[:32] + `","cache_key":"` + random[:32] + `"`, `"lantern_key":"[redacted:assignment]","cache_key":"` + random[:32] + `"`},
	}
	r := redactor(t)
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, _ := r.Line([]byte(`{"type":"assistant","input":{` + tc.in + `}}`))
			if diff := cmp.Diff(`{"type":"assistant","input":{`+tc.want+`}}`, got.String()); diff != "" {
				t.Errorf("-want, +got:\n%s", diff)
			}
			checkLine(t, r, got)
		})
	}
}
