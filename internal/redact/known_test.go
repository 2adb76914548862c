package redact

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/url"
	"strings"
	"testing"
)

// knownText is a text that no rule takes for a secret.
const knownText = "seven grey herons \"at\" low tide"

func knownOf(t *testing.T, text string) Known {
	t.Helper()
	key := bytes.Repeat([]byte{7}, KnownKeySize)
	digest, err := KnownDigest(key, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return Known{Name: "one", Length: len(text), Digest: digest, Key: key}
}

// TestKnownTextIsFoundInEveryForm: by its digest alone, and the text without it
// stays as it is.
func TestKnownTextIsFoundInEveryForm(t *testing.T) {
	if _, found := must(t).Text(knownText); found != nil {
		t.Fatalf("a rule finds it: %v", found)
	}
	full, only := must(t, Options{Known: []Known{knownOf(t, knownText)}}), must(t, Options{Known: []Known{knownOf(t, knownText)}, OnlyKnown: true})
	var zipped bytes.Buffer
	w := gzip.NewWriter(&zipped)
	_, _ = w.Write([]byte("they saw " + knownText + " again")) // into memory
	_ = w.Close()
	quoted, _ := json.Marshal(knownText)
	again, _ := json.Marshal(string(quoted) + `":`)
	utf16 := ""
	for _, c := range knownText {
		utf16 += string(c) + "\x00"
	}
	for name, text := range map[string]string{
		"Plain":     knownText,
		"Within":    "x" + knownText + "y",
		"Twice":     knownText + knownText,
		"Base64":    base64.StdEncoding.EncodeToString([]byte(knownText)),
		"Base64Mid": "v=" + base64.RawURLEncoding.EncodeToString([]byte("they saw "+knownText+" again")),
		"Twofold":   base64.StdEncoding.EncodeToString([]byte(base64.StdEncoding.EncodeToString([]byte(knownText)))),
		"Hex":       hex.EncodeToString([]byte(knownText)),
		"JSON":      `{"a":` + string(quoted) + `}`,
		"JSONTwice": string(again),
		"URL":       "https://e.com/?q=" + url.PathEscape(knownText),
		"HTML":      strings.ReplaceAll(knownText, " ", "&#32;"),
		"Pieces":    strings.Replace(knownText, " herons", " her\" + \"ons", 1),
		"Invisible": strings.Replace(knownText, "herons", "he\u200brons", 1),
		"Gzip":      base64.StdEncoding.EncodeToString(zipped.Bytes()),
		"UTF16":     base64.StdEncoding.EncodeToString([]byte(utf16)),
	} {
		t.Run(name, func(t *testing.T) {
			for what, r := range map[string]*Redactor{"full": full, "only": only} {
				clean, found := r.Text(text)
				if found[KnownRule("one")] == 0 || !strings.Contains(clean.String(), "[redacted:scrub-one]") {
					t.Errorf("%s: not found: %v in %q", what, found, clean)
				}
				line, _ := json.Marshal(map[string]any{"type": "user", "uuid": "u", "message": map[string]any{"content": text}})
				if l, found := r.Line(line); found[KnownRule("one")] == 0 || bytes.Contains([]byte(l.String()), quoted[1:len(quoted)-1]) {
					t.Errorf("%s: not found in a line: %v in %q", what, found, l)
				}
				if again, found := r.Text(clean.String()); found != nil || again != clean {
					t.Errorf("%s: a second time: %v, %q", what, found, again)
				}
			}
		})
	}
	for _, text := range []string{"", knownText[1:], strings.ToUpper(knownText), strings.Repeat("seven grey herons ", 100)} {
		if clean, found := full.Text(text); found != nil || clean.String() != text {
			t.Errorf("%q became %q, %v", text, clean, found)
		}
	}
}

// TestOnlyKnownFindsNothingElse: so that what is counted is what was asked for.
func TestOnlyKnownFindsNothingElse(t *testing.T) {
	token := "ghp_" + strings.Repeat("a1B2", 9)
	only := must(t, Options{Known: []Known{knownOf(t, token)}, OnlyKnown: true})
	if _, found := only.Text("a token " + token + " and AKIA" + "IOSFODNN7EXAMPLQ, password=hunter2hunter2"); len(found) != 1 || found[KnownRule("one")] != 1 {
		t.Errorf("found %v", found)
	}
	// A rule of ours that finds the same must not hide that it is the one.
	if _, found := must(t, Options{Known: []Known{knownOf(t, token)}}).Text("a token " + token); found[KnownRule("one")] != 1 {
		t.Errorf("found %v", found)
	}
}

// TestKnownTextOfAPlaceholder: one that stands in what replaces others comes to
// an end.
func TestKnownTextOfAPlaceholder(t *testing.T) {
	r := must(t, Options{Known: []Known{knownOf(t, "redacted")}})
	if clean, _ := r.Text("[redacted:jwt] was redacted here"); clean.String() != "[redacted:jwt] was [redacted:scrub-one] here" {
		t.Errorf("became %q", clean)
	}
}

// TestKnownDigestTellsNothing: under another key it is another one, and what is
// out of bounds is refused without being quoted.
func TestKnownDigestTellsNothing(t *testing.T) {
	a, err := KnownDigest(bytes.Repeat([]byte{1}, KnownKeySize), []byte(knownText))
	if err != nil {
		t.Fatal(err)
	}
	b, err := KnownDigest(bytes.Repeat([]byte{2}, KnownKeySize), []byte(knownText))
	if err != nil || a[:8] == b[:8] || a[8:] == b[8:] {
		t.Errorf("digests %s and %s, %v", a, b, err)
	}
	for _, text := range []string{"sevenby", strings.Repeat("x", MaxKnown+1)} {
		if _, err := KnownDigest(bytes.Repeat([]byte{1}, KnownKeySize), []byte(text)); err == nil || strings.Contains(err.Error(), text) {
			t.Errorf("%d bytes: %v", len(text), err)
		}
	}
	good := knownOf(t, knownText)
	for name, spoil := range map[string]func(*Known){
		"Name": func(k *Known) { k.Name = "No" }, "Length": func(k *Known) { k.Length = 7 }, "Digest": func(k *Known) { k.Digest = k.Digest[2:] },
		"Key": func(k *Known) { k.Key = k.Key[1:] }, "Upper": func(k *Known) { k.Digest = strings.ToUpper(k.Digest) },
	} {
		bad := good
		if spoil(&bad); bad.Digest == good.Digest && name == "Upper" {
			continue // no letter in it
		}
		if _, err := New(Options{Known: []Known{bad}}); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func BenchmarkKnown(b *testing.B) {
	key := bytes.Repeat([]byte{7}, KnownKeySize)
	digest, _ := KnownDigest(key, []byte(knownText))
	k, err := newKnown(Known{Name: "one", Length: len(knownText), Digest: digest, Key: key})
	if err != nil {
		b.Fatal(err)
	}
	text := bytes.Repeat([]byte("a line of no interest to anybody, "), 1<<15)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		k.find(text, nil)
	}
}

func must(t *testing.T, options ...Options) *Redactor {
	t.Helper()
	r, err := New(options...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
