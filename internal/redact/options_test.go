package redact_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/undersong-dev/undersong/internal/redact"
)

func TestOptions(t *testing.T) {
	token := "gh" + "p_" + random[:36]
	cases := map[string]struct {
		reason  string
		options redact.Options
		text    string
		want    string
	}{
		"Team": {
			"a team hides what it wants hidden",
			redact.Options{Team: []redact.Rule{{Name: "ship", Pattern: `HARBOUR-\d+`}}},
			"ship HARBOUR-42 sails", "ship [redacted:team-ship] sails",
		},
		"Project": {
			"so does a project, and a rule without a name has a number",
			redact.Options{Project: []redact.Rule{{Pattern: `x`}, {Pattern: `pier \d`}}},
			"at pier 7", "at [redacted:project-2]",
		},
		"Group": {
			"a group is what is replaced",
			redact.Options{Team: []redact.Rule{{Name: "ship", Pattern: `ship (\w+)`}}},
			"ship Undine sails", "ship [redacted:team-ship] sails",
		},
		"Short": {
			"however short the text",
			redact.Options{Team: []redact.Rule{{Name: "u", Pattern: `U7`}}},
			"U7", "[redacted:team-u]",
		},
		"Invisible": {
			"what is not seen hides nothing from it",
			redact.Options{Team: []redact.Rule{{Name: "ship", Pattern: `HARBOUR-\d+`}}},
			"ship HAR\u200bBOUR-42 sails", "ship [redacted:team-ship] sails",
		},
		"Everything": {
			"a rule may match anything but a placeholder",
			redact.Options{Project: []redact.Rule{{Name: "all", Pattern: `.+`}}},
			"use " + token + " now", "[redacted:project-all]",
		},
		"Allow": {
			"a team knows its example",
			redact.Options{Team: []redact.Rule{{Pattern: `gh` + `p_` + random[:4] + `\w*`, Allow: true}}},
			"use " + token + " now", "use " + token + " now",
		},
		"AllowWhole": {
			"only what it matches all of",
			redact.Options{Team: []redact.Rule{{Pattern: `gh` + `p_`, Allow: true}}},
			"use " + token + " now", "use [redacted:github-token] now",
		},
		"AllowNotPrivate": {
			"what a person marks as private is not the team's to allow",
			redact.Options{Team: []redact.Rule{{Pattern: `(?s).+`, Allow: true}}},
			"a <private>b</private> c", "a [redacted:private] c",
		},
		"AllowNotProject": {
			"nor is what a project hides",
			redact.Options{
				Team:    []redact.Rule{{Pattern: `\w+`, Allow: true}},
				Project: []redact.Rule{{Name: "ship", Pattern: `Undine`}},
			},
			"the Undine sails", "the [redacted:project-ship] sails",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r, err := redact.New(tc.options)
			if err != nil {
				t.Fatal(err)
			}
			got, _ := r.Text(tc.text)
			if diff := cmp.Diff(tc.want, got.String()); diff != "" {
				t.Errorf("%s: -want, +got:\n%s", tc.reason, diff)
			}
			again, found := r.Text(got.String())
			if again != got || found != nil {
				t.Errorf("a second pass: %v, %s", found, again)
			}
			line, _ := r.Line([]byte(`{"type":"user","uuid":"u-1","message":{"content":"x U7 HARBOUR-1 Undine"}}`))
			if !strings.HasPrefix(line.String(), `{"type":"user","uuid":"u-1",`) {
				t.Errorf("what machines read is gone: %s", line)
			}
			checkLine(t, r, line)
		})
	}
}

func TestOptionsRefused(t *testing.T) {
	many := make([]redact.Rule, redact.MaxRules+1)
	for i := range many {
		many[i].Pattern = "x"
	}
	cases := map[string]struct {
		options redact.Options
		want    string
	}{
		"ProjectAllows": {redact.Options{Project: []redact.Rule{{Pattern: "x", Allow: true}}}, "read redaction rule 1 of the project: only a team may allow"},
		"TooMany":       {redact.Options{Team: many}, "read redaction rules of the team: 33 of them, at most 32"},
		"TooLong":       {redact.Options{Team: []redact.Rule{{Pattern: strings.Repeat("x", redact.MaxPattern+1)}}}, "read redaction rule 1 of the team: its pattern has 513 bytes, at most 512"},
		"TooComplex":    {redact.Options{Project: []redact.Rule{{Pattern: `(\w{1,30}x){1,30}`}}}, "read redaction rule 1 of the project: its pattern is too complex: fewer and shorter repetitions"},
		"Empty":         {redact.Options{Project: []redact.Rule{{Pattern: `x*`}}}, "read redaction rule 1 of the project: its pattern matches the empty text"},
		"Name":          {redact.Options{Team: []redact.Rule{{Name: "a]b", Pattern: "x"}}}, "read redaction rule 1 of the team: a name is 1 to 32 of a-z, 0-9 and -"},
		"NotRE2":        {redact.Options{Team: []redact.Rule{{Name: "back", Pattern: `(a)\1`}}}, "read redaction rule back of the team: error parsing regexp: invalid escape sequence: `\\1`"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := redact.New(tc.options)
			if err == nil || err.Error() != tc.want {
				t.Errorf("%v, want %s", err, tc.want)
			}
		})
	}
}

func TestFindings(t *testing.T) {
	r := redactor(t)
	token := "gh" + "p_" + random[:36]
	line := "\ufeff" + `{"type":"user","a":"\u00e9 ` + token + `","password":"hunter22","b":["x https://u:` + random[:12] + `@h/"]}`
	got, found := r.LineFindings([]byte(line))
	at := func(s string) int { return strings.Index(line, s) }
	want := []redact.Finding{
		{Rule: "github-token", Offset: at(token)},
		{Rule: "assignment", Offset: at("hunter22")},
		{Rule: "uri-password", Offset: at(random[:12] + "@")},
	}
	if diff := cmp.Diff(want, found); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
	same, counts := r.Line([]byte(line))
	if diff := cmp.Diff(redact.Findings{"github-token": 1, "assignment": 1, "uri-password": 1}, counts); diff != "" || same != got {
		t.Errorf("%s: -want, +got:\n%s", same, diff)
	}
	_, found = r.TextFindings("the token\n" + token)
	if diff := cmp.Diff([]redact.Finding{{Rule: "github-token", Offset: len("the token\n")}}, found); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
}

// FuzzOptions: whatever rule a project adds, a second pass changes nothing and
// what machines read stays.
func FuzzOptions(f *testing.F) {
	f.Add(`\w+`, "harbour [redacted:x] pier")
	f.Add(`.|\n`, "x")
	f.Add(`[^a]+]`, "password=hunter22]")
	f.Add(`redacted|\[|:`, "token=abc12345")
	f.Fuzz(func(t *testing.T, pattern, text string) {
		r, err := redact.New(redact.Options{Project: []redact.Rule{{Pattern: pattern}}})
		if err != nil || len(text) > 4<<10 {
			return
		}
		line, err := json.Marshal(map[string]any{"type": "user", "message": map[string]any{"content": []any{text, text}}})
		if err != nil {
			t.Fatal(err)
		}
		got, _ := r.Line(line)
		checkLine(t, r, got)
		if !strings.Contains(got.String(), `"type":"user"`) && !strings.Contains(got.String(), `"of":"user"`) {
			t.Errorf("what machines read is gone: %s", got)
		}
		once, _ := r.Text(text)
		if twice, found := r.Text(once.String()); once != twice || found != nil {
			t.Errorf("%v: -once, +twice:\n%s", found, cmp.Diff(once.String(), twice.String()))
		}
	})
}
