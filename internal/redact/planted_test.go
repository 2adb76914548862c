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
)

// Invented secrets are put together when the test runs: what stands in this
// repository must be no finding of anybody's scanner.
const (
	hex64     = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
	lettered  = "q7w3e9r5t1y8u2i6o4p0a3s7d5f9g1h8j2k6l4z0x3c7v5b9n1m8q2w6e4r0t3y7u5i9o1p8"
	mixedCase = random + "w9XzB3nQ7rLkT5yVhM1cJ6sFdG8pA2eUoIiE4tRqWyKx0ZvNbPl"
)

// kind is a kind of secret as people write it down.
type kind struct {
	text   string // how it is written
	secret string // the part that must be gone
	whole  bool   // it needs no name beside it: it is found if it is cut in two
}

func kinds() map[string]kind {
	own := func(parts ...string) kind {
		s := strings.Join(parts, "")
		return kind{text: s, secret: s, whole: true}
	}
	with := func(before, secret, after string) kind {
		return kind{text: before + secret + after, secret: secret}
	}
	b64 := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	b64u := func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }
	pem := strings.Repeat(random[:32]+random[8:40]+"\n", 3)
	return map[string]kind{
		"GitHub":        own("gh", "p_", random[:36]),
		"GitHubServer":  own("gh", "s_", random[:36]),
		"GitHubFine":    own("github", "_pat_", "11ABCDEFG0", random, "_", random[:32]),
		"GitLab":        own("gl", "pat-", random[:20]),
		"AWSKeyID":      own("AK", "IA", "Q3EGRIIZ7XMPL2EY"),
		"AWSSecret":     own(random[:17], "/", random[18:30], "+", random[31:40]),
		"AWSSecretName": with("aws_secret_access_key = ", random[:17]+"/"+random[18:40], ""),
		"Anthropic":     own("sk-", "ant-", "api03-", mixedCase, "AA"),
		"OpenAI":        own("sk-", "proj-", mixedCase),
		"Slack":         own("xo", "xb-", "123456789012-1234567890123-", random[:24]),
		"Google":        own("AI", "za", "SyD3m0", random[:29]),
		"NPM":           own("np", "m_", random[:36]),
		"PyPI":          own("pypi-", "AgEIcHlwaS5vcmc", mixedCase),
		"Stripe":        own("sk_", "live_", random[:24]),
		"Age":           own("AGE-", "SECRET-KEY-1", strings.ToUpper(lettered[:58])),
		"HuggingFace":   own("hf", "_", "AbCdEfGhIjKlMnOpQrStUvWxYzAbCdEfGh"),
		"Vault":         own("hv", "s.", mixedCase, mixedCase[:8]),
		"DigitalOcean":  own("dop", "_v1_", hex64),
		"Databricks":    own("da", "pi", hex64[:32]),
		"Linear":        own("lin", "_api_", lettered[:40]),
		"Postman":       own("PM", "AK-", hex64[:24], "-", hex64[10:44]),
		"Shopify":       own("shp", "at_", hex64[:32]),
		"SendGrid":      own("S", "G.", mixedCase[:22], ".", mixedCase[:43]),
		"Doppler":       own("dp", ".pt.", lettered[:43]),
		"Grafana":       own("gl", "sa_", random[:32], "_", hex64[:8]),
		"Pulumi":        own("pu", "l-", hex64[:40]),
		"Notion":        own("nt", "n_", "12345678901", random[:35]),
		"Atlassian":     own("ATA", "TT3", mixedCase),
		"Artifactory":   own("AK", "Cp", mixedCase[:69]),
		"Twitter":       with("twitter_secret = ", lettered[:50], ""),
		"Telegram":      with("telegram bot: ", "123456789:A"+random[:34], ""),
		"Heroku":        with("HEROKU_API_KEY=", "12345678-9abc-4def-8123-456789abcdef", ""),
		"Datadog":       with("datadog_key: ", lettered[:40], ""),
		"JWT":           own(b64u(`{"alg":"HS256"}`), ".", b64u(`{"sub":"1234567890","n":1}`), ".", random),
		"PEM":           {text: "-----BEGIN " + "RSA PRIVATE KEY-----\n" + pem + "-----END " + "RSA PRIVATE KEY-----", secret: random[:32] + random[8:40]},
		"PEMTail":       {text: "\n" + pem + "-----END " + "PRIVATE KEY-----", secret: random[:32] + random[8:40]},
		"URI":           with("postgres://lantern:", "tide-"+random[:10], "@db.example.test/x"),
		"Basic":         with("Authorization: Basic ", b64("lantern:"+random[:12]), ""),
		"Bearer":        with("Authorization: Bearer ", random, ""),
		"Cookie":        with("\nCookie: theme=dark; session=", random[:24], ""),
		"SetCookie":     with("\nSet-Cookie: sid=", random[:24], "; Path=/; HttpOnly"),
		"Env":           with("\nDB_PASSWORD=", "hunter"+random[:8], ""),
		"EnvRandom":     with("\nLANTERN_SEED=", random[:32], ""),
		"YAML":          with("\n  password: ", "hunter"+random[:8], ""),
		"YAMLBlock":     with("\n  password: |\n    ", "hunter"+random[:8], "\n"),
		"INIWord":       with("\npassword = ", "correcthorsebattery", "\n"),
		"LowerKey":      with("\nlantern_key: ", random[:32], ""),
		"FlagWord":      with("mysql --password ", "correcthorsebattery", " -h db"),
		"Phrase":        with("the password is ", "hunter"+random[:8], ""),
		"JSONMember":    with(`{"api_key": "`, random[:20], `"}`),
		"JSONList":      with(`{"passwords": ["`, "hunter"+random[:8], `"]}`),
		"SSHPass":       with("sshpass -p ", "hunter"+random[:6], " ssh x"),
		"MySQL":         with("mysql -u root -p", "hunter"+random[:6], " lantern"),
		"Curl":          with("curl -u lantern:", "hunter"+random[:6], " https://example.test"),
		"Manifest":      with("\napiVersion: v1\ndata:\n  note: ", b64("lantern"), "\nkind: Secret\nmetadata:\n  name: x\n---\n"),
		"Concatenated":  {text: `"gh` + `p_` + random[:16] + `" + "` + random[16:36] + `"`, secret: random[16:36]},
		"Private":       with("<private>", "Ann of the harbour", "</private>"),
	}
}

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
func encodings() map[string]func(k kind) string {
	inside := func(k kind, what string) string {
		at := len(k.secret) / 2
		return strings.Replace(k.text, k.secret, k.secret[:at]+what+k.secret[at:], 1)
	}
	asJSON := func(s string) string {
		b, err := json.Marshal(map[string]any{"output": s})
		if err != nil {
			panic(err)
		}
		return string(b)
	}
	b64 := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	return map[string]func(k kind) string{
		"Plain":      func(k kind) string { return k.text },
		"NestedJSON": func(k kind) string { return asJSON(k.text) },
		"Twice":      func(k kind) string { return asJSON(asJSON(k.text)) },
		"ANSI":       func(k kind) string { return "\x1b[32m" + inside(k, "\x1b[1m") + "\x1b[0m" },
		"ZeroWidth":  func(k kind) string { return inside(k, "\u200b") },
		"UTF16":      func(k kind) string { return "\x00" + strings.Join(strings.Split(k.text, ""), "\x00") + "\x00" },
		"Base64":     func(k kind) string { return b64("x: " + k.text) },
		"Base64URL":  func(k kind) string { return base64.RawURLEncoding.EncodeToString([]byte(k.text + "\n")) },
		"Base64Twice": func(k kind) string {
			return b64("data: " + b64(k.text+"\n"))
		},
		"Hex":  func(k kind) string { return hex.EncodeToString([]byte("data: " + k.text + "\n")) },
		"Gzip": func(k kind) string { return b64(zipped(k.text + "\n")) },
		"GzipTwice": func(k kind) string { // as Helm keeps a release
			return b64(b64(zipped(k.text + "\n")))
		},
		"Percent":     func(k kind) string { return escaped(k.text, "%%%02X") },
		"HTML":        func(k kind) string { return escaped(k.text, "&#x%x;") },
		"Source":      func(k kind) string { return escaped(k.text, `\x%02x`) },
		"Base64UTF16": func(k kind) string { return b64(strings.Join(strings.Split(k.text, ""), "\x00") + "\x00") },
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
	for kindName, k := range kinds() {
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
func faultOf(k kind, line string) string {
	said := visible(words(line))
	for _, part := range []string{k.secret, k.secret[:len(k.secret)/2], k.secret[len(k.secret)/2:]} {
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
	for name, k := range kinds() {
		if !k.whole || strings.HasPrefix(name, "AWSSecret") {
			continue
		}
		tried++
		for _, at := range []int{len(k.text) / 2, len(k.text) * 3 / 4} {
			a, b := neighbourBefore+" "+k.text[:at], k.text[at:]+" "+neighbourAfter
			block := func(s string) any { return map[string]any{"type": "text", "text": s} }
			record := func(blocks ...any) []byte {
				line, err := json.Marshal(map[string]any{"type": "assistant", "message": map[string]any{"content": blocks}})
				if err != nil {
					t.Fatal(err)
				}
				return line
			}
			// The end of a token alone may be short, and no half of it is told.
			rest := kind{secret: k.text[at:]}
			got, found := r.Line(record(block(a), block(b)))
			if fault := faultOf(k, got.String()); fault != "" || strings.Contains(words(got.String()), rest.secret+" "+neighbourAfter) {
				t.Errorf("%s in two blocks, cut at %d: %s (found %v)\n%s", name, at, fault, found, got)
			}
			checkLine(t, r, got)
			lines, _ := r.Lines([][]byte{record(block(a)), []byte(`{"type":"mode"}`), record(block(b)), record(block("x"))})
			if len(lines) != 4 {
				t.Fatalf("%d lines became %d", 4, len(lines))
			}
			both := `{"a":` + lines[0].String() + `,"b":` + lines[2].String() + `}`
			if fault := faultOf(k, both); fault != "" || strings.Contains(words(both), rest.secret+" "+neighbourAfter) {
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
