package redact_test

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/undersong-dev/undersong/internal/redact/redacttest"
)

const (
	neighbourBefore = "before the tide"
	neighbourAfter  = "after the tide"
)

// placings are the places that a text may stand in, each as a record.
func placings() map[string]func(text string) any {
	blocks := func(kind string, blocks ...any) any {
		return map[string]any{"type": kind, "message": map[string]any{"content": blocks}}
	}
	block := func(text string) any { return map[string]any{"type": "text", "text": text} }
	return map[string]func(string) any{
		"Prompt":        func(s string) any { return map[string]any{"type": "user", "message": map[string]any{"content": s}} },
		"AssistantText": func(s string) any { return blocks("assistant", block(s)) },
		"Thinking":      func(s string) any { return blocks("assistant", map[string]any{"type": "thinking", "thinking": s}) },
		"ToolInput": func(s string) any {
			return blocks("assistant", map[string]any{"type": "tool_use", "name": "Bash", "input": map[string]any{"command": s}})
		},
		"ToolResult": func(s string) any {
			return blocks("user", map[string]any{"type": "tool_result", "tool_use_id": "t", "content": s})
		},
		"ToolResultBlocks": func(s string) any {
			return blocks("user", map[string]any{"type": "tool_result", "tool_use_id": "t", "content": []any{block("first"), block(s)}})
		},
		"Key": func(s string) any {
			return blocks("assistant", map[string]any{"type": "tool_use", "input": map[string]any{s: true}})
		},
		"Queued": func(s string) any {
			return map[string]any{"type": "attachment", "attachment": map[string]any{"type": "queued_command", "prompt": s}}
		},
		"Title": func(s string) any { return map[string]any{"type": "custom-title", "customTitle": s} },
	}
}

// encodings are the forms that a text with a secret in it may have. each
// returns "" where the form cannot be.
func encodings() map[string]func(k redacttest.Kind) string {
	inside := func(k redacttest.Kind, what string) string {
		at := len(k.Secret) / 2
		return strings.Replace(k.Text, k.Secret, k.Secret[:at]+what+k.Secret[at:], 1)
	}
	asJSON := func(s string) string {
		b, err := json.Marshal(map[string]any{"output": s})
		if err != nil {
			panic(err)
		}
		return string(b)
	}
	b64 := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	return map[string]func(k redacttest.Kind) string{
		"Plain":      func(k redacttest.Kind) string { return k.Text },
		"NestedJSON": func(k redacttest.Kind) string { return asJSON(k.Text) },
		"Twice":      func(k redacttest.Kind) string { return asJSON(asJSON(k.Text)) },
		"ANSI":       func(k redacttest.Kind) string { return "\x1b[32m" + inside(k, "\x1b[1m") + "\x1b[0m" },
		"ZeroWidth":  func(k redacttest.Kind) string { return inside(k, "\u200b") },
		"UTF16": func(k redacttest.Kind) string {
			return "\x00" + strings.Join(strings.Split(k.Text, ""), "\x00") + "\x00"
		},
		"Base64":    func(k redacttest.Kind) string { return b64("x: " + k.Text) },
		"Base64URL": func(k redacttest.Kind) string { return base64.RawURLEncoding.EncodeToString([]byte(k.Text + "\n")) },
		"Base64Twice": func(k redacttest.Kind) string {
			return b64("data: " + b64(k.Text+"\n"))
		},
		"Hex":  func(k redacttest.Kind) string { return hex.EncodeToString([]byte("data: " + k.Text + "\n")) },
		"Gzip": func(k redacttest.Kind) string { return b64(zipped(k.Text + "\n")) },
		"GzipTwice": func(k redacttest.Kind) string { // as Helm keeps a release
			return b64(b64(zipped(k.Text + "\n")))
		},
		"Percent":     func(k redacttest.Kind) string { return escaped(k.Text, "%%%02X") },
		"HTML":        func(k redacttest.Kind) string { return escaped(k.Text, "&#x%x;") },
		"Source":      func(k redacttest.Kind) string { return escaped(k.Text, `\x%02x`) },
		"Base64UTF16": func(k redacttest.Kind) string { return b64(strings.Join(strings.Split(k.Text, ""), "\x00") + "\x00") },
	}
}

// zipped compresses a text.
func zipped(s string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := w.Write([]byte(s))
	if err := errors.Join(err, w.Close()); err != nil {
		panic(err)
	}
	return b.String()
}

// escaped writes each byte of a text in a form.
func escaped(s, form string) string {
	var b strings.Builder
	for i := range len(s) {
		fmt.Fprintf(&b, form, s[i])
	}
	return b.String()
}

// TestPlanted: every kind of secret, in every form, in every place, is gone; the
// words around it stay, and a marker stands there.
func TestPlanted(t *testing.T) {
	r := redactor(t)
	tried := 0
	for kindName, k := range redacttest.Kinds() {
		for formName, form := range encodings() {
			for placeName, place := range placings() {
				text := neighbourBefore + " " + form(k) + " " + neighbourAfter
				record, err := json.Marshal(place(text))
				if err != nil {
					t.Fatal(err)
				}
				tried++
				got, found := r.Line(record)
				if fault := faultOf(k, got.String()); fault != "" {
					t.Errorf("%s, %s, %s: %s (found %v)\n%q\n%s", kindName, formName, placeName, fault, found, text, got)
					break
				}
				checkLine(t, r, got)
			}
		}
	}
	if tried < 7000 {
		t.Errorf("%d cases, want at least 7000", tried)
	}
}

// faultOf says what is wrong with a result, "" if nothing is.
func faultOf(k redacttest.Kind, line string) string {
	said := visible(words(line))
	for _, part := range []string{k.Secret, k.Secret[:len(k.Secret)/2], k.Secret[len(k.Secret)/2:]} {
		if len(part) >= 8 && strings.Contains(said, part) {
			return fmt.Sprintf("%q is still there", part)
		}
	}
	if !strings.Contains(said, neighbourBefore) || !strings.Contains(said, neighbourAfter) {
		return "the words around it are gone"
	}
	if !strings.Contains(said, "[redacted:") {
		return "no marker"
	}
	return ""
}

// words returns what the strings and names of a line say.
func words(line string) string {
	var v any
	if err := json.Unmarshal([]byte(line), &v); err != nil {
		return "no JSON: " + err.Error()
	}
	var b strings.Builder
	var walk func(any)
	walk = func(v any) {
		switch v := v.(type) {
		case string:
			b.WriteString(v + "\n")
		case []any:
			for _, e := range v {
				walk(e)
			}
		case map[string]any:
			for k, e := range v {
				b.WriteString(k + "\n")
				walk(e)
			}
		}
	}
	walk(v)
	return b.String()
}

// TestPlantedAcrossSeams: a token of which one block has the beginning and the
// next one the end, or one record and the next, is gone.
func TestPlantedAcrossSeams(t *testing.T) {
	r := redactor(t)
	tried := 0
	for name, k := range redacttest.Kinds() {
		if !k.Whole || strings.HasPrefix(name, "AWSSecret") {
			continue
		}
		tried++
		for _, at := range []int{len(k.Text) / 2, len(k.Text) * 3 / 4} {
			a, b := neighbourBefore+" "+k.Text[:at], k.Text[at:]+" "+neighbourAfter
			block := func(s string) any { return map[string]any{"type": "text", "text": s} }
			record := func(blocks ...any) []byte {
				line, err := json.Marshal(map[string]any{"type": "assistant", "message": map[string]any{"content": blocks}})
				if err != nil {
					t.Fatal(err)
				}
				return line
			}
			// The end of a token alone may be short, and no half of it is told.
			rest := redacttest.Kind{Secret: k.Text[at:]}
			got, found := r.Line(record(block(a), block(b)))
			if fault := faultOf(k, got.String()); fault != "" || strings.Contains(words(got.String()), rest.Secret+" "+neighbourAfter) {
				t.Errorf("%s in two blocks, cut at %d: %s (found %v)\n%s", name, at, fault, found, got)
			}
			checkLine(t, r, got)
			lines, _ := r.Lines([][]byte{record(block(a)), []byte(`{"type":"mode"}`), record(block(b)), record(block("x"))})
			if len(lines) != 4 {
				t.Fatalf("%d lines became %d", 4, len(lines))
			}
			both := `{"a":` + lines[0].String() + `,"b":` + lines[2].String() + `}`
			if fault := faultOf(k, both); fault != "" || strings.Contains(words(both), rest.Secret+" "+neighbourAfter) {
				t.Errorf("%s in two records, cut at %d: %s\n%s", name, at, fault, both)
			}
			for _, line := range lines {
				checkLine(t, r, line)
			}
		}
	}
	if tried < 25 {
		t.Errorf("%d kinds, want at least 25", tried)
	}
}

// TestPasswordsAcrossSeams: so is a password whose name is in one block and whose
// rest is in the next, in one record and in two.
func TestPasswordsAcrossSeams(t *testing.T) {
	r := redactor(t)
	for name, tc := range map[string]struct{ a, b, want string }{
		"Cut":        {"use password=hun", "ter22x and go", "use password=[redacted:assignment]\n[redacted:assignment] and go\n"},
		"CutPhrase":  {"the password is Tr0ub", "4dor&3, ok?", "the password is [redacted:assignment]\n[redacted:assignment], ok?\n"},
		"Behind":     {"the password is", "tr0ub4dor now", "the password is\n[redacted:assignment] now\n"},
		"BehindSign": {"password: ", "tr0ub4dor now", "password: \n[redacted:assignment] now\n"},
		"NextLine":   {"DB_PASSWORD=", "\ntr0ub4dor", "DB_PASSWORD=\n\n[redacted:assignment]\n"},
		"CutURI":     {"postgres://ada:tide", "gate9@db.example.test/x", "postgres://ada:[redacted:uri-password]\n[redacted:uri-password]@db.example.test/x\n"},
	} {
		t.Run(name, func(t *testing.T) {
			block := func(s string) any { return map[string]any{"type": "text", "text": s} }
			record := func(blocks ...any) []byte {
				line, err := json.Marshal(map[string]any{"type": "user", "message": map[string]any{"content": blocks}})
				if err != nil {
					t.Fatal(err)
				}
				return line
			}
			content := func(line string) string {
				var v struct {
					Message struct{ Content []struct{ Text string } }
				}
				if err := json.Unmarshal([]byte(line), &v); err != nil {
					t.Fatal(err)
				}
				var all strings.Builder
				for _, c := range v.Message.Content {
					all.WriteString(c.Text + "\n")
				}
				return all.String()
			}
			got, _ := r.Line(record(block(tc.a), block(tc.b)))
			if diff := cmp.Diff(tc.want, content(got.String())); diff != "" {
				t.Errorf("in two blocks: -want, +got:\n%s", diff)
			}
			checkLine(t, r, got)
			lines, _ := r.Lines([][]byte{record(block(tc.a)), record(block(tc.b))})
			if diff := cmp.Diff(tc.want, content(lines[0].String())+content(lines[1].String())); diff != "" {
				t.Errorf("in two records: -want, +got:\n%s", diff)
			}
		})
	}
}

// TestSeamsOfOrdinaryText: blocks that follow each other stay as they are.
func TestSeamsOfOrdinaryText(t *testing.T) {
	r := redactor(t)
	token := "gh" + "p_" + random[:36]
	for name, tc := range map[string]struct{ a, b, want string }{
		"Words":      {"the token", "is valid", "the token\nis valid\n"},
		"AfterToken": {"use " + token, "Please go on", "use [redacted:github-token]\nPlease go on\n"},
		"Question":   {"What is the password?", "2 of them", "What is the password?\n2 of them\n"},
		"Asked":      {"password:", "Please type it", "password:\nPlease type it\n"},
		"Named":      {"look at the token", "src/auth2.go", "look at the token\nsrc/auth2.go\n"},
		"Complete":   {"password=hunter22", "2026-10-01 restarted", "password=[redacted:assignment]\n2026-10-01 restarted\n"},
		"Assigned":   {"password=hunter22", "Then restart", "password=[redacted:assignment]\nThen restart\n"},
	} {
		t.Run(name, func(t *testing.T) {
			line, err := json.Marshal(map[string]any{"type": "user", "content": []any{tc.a, tc.b}})
			if err != nil {
				t.Fatal(err)
			}
			got, _ := r.Line(line)
			if !strings.Contains(words(got.String()), tc.want) {
				t.Errorf("%s, want %q", got, tc.want)
			}
		})
	}
}
