package consent_test

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/undersong-dev/undersong/agent/consent"
)

func TestDecide(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		rules  consent.Rules
		want   string
	}{
		"included":      {reason: "a glob matches", rules: consent.Rules{Include: []string{"x", "github.com/acme/*"}}, want: consent.ReasonIncluded},
		"not included":  {reason: "no glob matches", rules: consent.Rules{Include: []string{"github.com/other/*"}}, want: consent.ReasonNotIncluded},
		"no rules":      {reason: "nothing is allowed by default", want: consent.ReasonNotIncluded},
		"exclude wins":  {reason: "over the same glob", rules: consent.Rules{Include: []string{"**"}, Exclude: []string{"**"}}, want: consent.ReasonExcluded},
		"outside rules": {reason: "they are for what is outside", rules: consent.Rules{Outside: true}, want: consent.ReasonNotIncluded},
	} {
		t.Run(name, func(t *testing.T) {
			dir := realTemp(t)
			repository(t, dir, acme)
			write(t, filepath.Join(dir, "src", "main.go"), "package main\n")
			var f consent.Finder
			want := consent.Decision{Allowed: tc.want == consent.ReasonIncluded, Reason: tc.want, Project: api(dir)}
			if diff := cmp.Diff(want, f.Decide(filepath.Join(dir, "src"), tc.rules)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestDecideOutside(t *testing.T) {
	var f consent.Finder
	dir := realTemp(t)
	p, err := f.Project(dir)
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		reason string
		rules  consent.Rules
		want   string
	}{
		"default":  {reason: "off unless allowed", rules: consent.Rules{Include: []string{"local/*", "**"}}, want: consent.ReasonOutside},
		"allowed":  {reason: "without globs", rules: consent.Rules{Outside: true}, want: consent.ReasonIncluded},
		"excluded": {reason: "exclude wins", rules: consent.Rules{Outside: true, Exclude: []string{p.Remote}}, want: consent.ReasonExcluded},
	} {
		t.Run(name, func(t *testing.T) {
			got := f.Decide(dir, tc.rules)
			if got.Reason != tc.want || got.Allowed != (tc.want == consent.ReasonIncluded) {
				t.Errorf("%s: %+v, want %s", tc.reason, got, tc.want)
			}
		})
	}
	if got := f.Decide("relative", consent.Rules{Outside: true, Include: []string{"**"}}); got.Allowed || got.Reason != consent.ReasonNoFolder {
		t.Errorf("without a folder: %+v", got)
	}
}

// TestDecideOfAFolderThatIsGone: what was said in it is nobody's, but for a worktree
// that Claude Code made in the repository.
func TestDecideOfAFolderThatIsGone(t *testing.T) {
	all := consent.Rules{Include: []string{"**"}, Outside: true}
	dir := realTemp(t)
	repository(t, dir, acme)
	var f consent.Finder
	for folder, want := range map[string]string{
		"vendor/clone":             consent.ReasonGone,
		".git/config/x":            consent.ReasonGone,
		".claude/worktrees/w":      consent.ReasonIncluded,
		".claude/worktrees/w/src":  consent.ReasonIncluded,
		"x/.claude/worktrees/w":    consent.ReasonGone,
		".claude/worktrees":        consent.ReasonGone,
		"../.claude/worktrees/w/x": consent.ReasonGone,
	} {
		if got := f.Decide(filepath.Join(dir, filepath.FromSlash(folder)), all); got.Reason != want {
			t.Errorf("%s: %+v, want %s", folder, got, want)
		}
	}
}

func TestOptOut(t *testing.T) {
	all := consent.Rules{Include: []string{"**"}, Outside: true}
	for name, tc := range map[string]struct {
		reason  string
		content string
		want    string
	}{
		"off":            {reason: "the wish", content: "capture: off\n", want: consent.ReasonOptOut},
		"quoted":         {reason: "a string", content: `capture: "Off"`, want: consent.ReasonOptOut},
		"false":          {reason: "YAML's word for it", content: "capture: false", want: consent.ReasonOptOut},
		"JSON":           {reason: "is YAML", content: `{"capture":"off"}`, want: consent.ReasonOptOut},
		"unknown value":  {reason: "whoever wrote it wanted something narrower", content: "capture: sometimes", want: consent.ReasonOptOut},
		"unknown shape":  {reason: "whoever wrote it wanted something narrower", content: "capture: {to: me}", want: consent.ReasonOptOut},
		"on":             {reason: "changes nothing", content: "capture: on", want: consent.ReasonIncluded},
		"other fields":   {reason: "of later versions", content: "recall: off\nredact: [x]\nfuture: {a: 1}", want: consent.ReasonIncluded},
		"empty":          {reason: "says nothing", content: "", want: consent.ReasonIncluded},
		"not YAML":       {reason: "nobody knows what it says", content: "capture: [off", want: consent.ReasonOptOutFile},
		"not an object":  {reason: "nobody knows what it says", content: "- off", want: consent.ReasonOptOutFile},
		"binary":         {reason: "nobody knows what it says", content: "\x00\xff", want: consent.ReasonOptOutFile},
		"past the bound": {reason: "nobody reads it", content: "#" + strings.Repeat("x", 64<<10), want: consent.ReasonOptOutFile},
	} {
		t.Run(name, func(t *testing.T) {
			dir := realTemp(t)
			repository(t, dir, acme)
			write(t, filepath.Join(dir, ".undersong.yaml"), tc.content)
			write(t, filepath.Join(dir, "src", "main.go"), "package main\n")
			var f consent.Finder
			for range 2 { // the second time from memory
				got := f.Decide(filepath.Join(dir, "src"), all)
				if got.Reason != tc.want || got.Allowed != (tc.want == consent.ReasonIncluded) {
					t.Errorf("%s: %+v, want %s", tc.reason, got, tc.want)
				}
			}
			// It can only narrow.
			if got := f.Decide(dir, consent.Rules{}); got.Allowed {
				t.Errorf("%s: allowed by the repository", tc.reason)
			}
		})
	}
}

func TestOptOutIsSeenAtOnce(t *testing.T) {
	dir := realTemp(t)
	repository(t, dir, acme)
	all := consent.Rules{Include: []string{"**"}}
	var f consent.Finder
	file := filepath.Join(dir, ".undersong.yaml")
	for i, step := range []struct {
		do   func()
		want bool
	}{
		{func() {}, true},
		{func() { write(t, file, "capture: off") }, false},
		{func() { write(t, file, "capture: on") }, true},
		{func() { write(t, file, "capture: off") }, false},
		{func() { _ = os.Remove(file) }, true},
	} {
		step.do()
		if got := f.Decide(dir, all); got.Allowed != step.want {
			t.Errorf("step %d: %+v", i, got)
		}
	}
}

func TestOptOutWithoutARemote(t *testing.T) {
	dir := realTemp(t)
	repository(t, dir, "")
	write(t, filepath.Join(dir, ".undersong.yaml"), "capture: off")
	var f consent.Finder
	if got := f.Decide(dir, consent.Rules{Outside: true}); got.Allowed || got.Reason != consent.ReasonOptOut {
		t.Errorf("%+v", got)
	}
}

func TestOptOutLinks(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("symbolic links need a privilege on Windows")
	}
	outside := realTemp(t)
	write(t, filepath.Join(outside, "on.yaml"), "capture: on")
	for name, tc := range map[string]struct {
		reason string
		make   func(dir, file string) error
		want   string
	}{
		"out of the repository": {reason: "not followed", want: consent.ReasonOptOutFile, make: func(_, file string) error {
			return os.Symlink(filepath.Join(outside, "on.yaml"), file)
		}},
		"to nothing": {reason: "not absent", want: consent.ReasonOptOutFile, make: func(_, file string) error {
			return os.Symlink("gone.yaml", file)
		}},
		"inside": {reason: "the repository's own", want: consent.ReasonOptOut, make: func(dir, file string) error {
			if err := os.WriteFile(filepath.Join(dir, "x.yaml"), []byte("capture: off"), 0o600); err != nil {
				return err
			}
			return os.Symlink("x.yaml", file)
		}},
		"a folder": {reason: "not a file", want: consent.ReasonOptOutFile, make: func(_, file string) error {
			return os.Mkdir(file, 0o700)
		}},
		"a pipe": {reason: "would be waited for", want: consent.ReasonOptOutFile, make: func(_, file string) error {
			return mkfifo(file)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := realTemp(t)
			repository(t, dir, acme)
			if err := tc.make(dir, filepath.Join(dir, ".undersong.yaml")); err != nil {
				t.Fatal(err)
			}
			if err := consent.CheckFile(dir); (err != nil) != (tc.want == consent.ReasonOptOutFile) {
				t.Errorf("%s: what is wrong with the file: %v", tc.reason, err)
			}
			var f consent.Finder
			if got := f.Decide(dir, consent.Rules{Include: []string{"**"}}); got.Reason != tc.want || got.Allowed {
				t.Errorf("%s: %+v, want %s", tc.reason, got, tc.want)
			}
		})
	}
}

// TestRedactIsTakenOrNothingIsHeard: what a repository wants to be redacted is
// part of the answer, and an expression that cannot be used is no answer at all.
func TestRedactIsTakenOrNothingIsHeard(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		file   string
		want   string
		redact []string
		wrong  bool
	}{
		"none":          {reason: "nothing to hide", file: "capture: on\n", want: consent.ReasonIncluded},
		"two":           {reason: "in their order", file: "redact:\n- 'PROJ-[0-9]+'\n- 'codename: (\\w+)'\n", want: consent.ReasonIncluded, redact: []string{`PROJ-[0-9]+`, `codename: (\w+)`}},
		"bad":           {reason: "nobody knows what it should hide", file: "redact: ['(']\n", want: consent.ReasonOptOutFile, wrong: true},
		"matches all":   {reason: "the empty text is everywhere", file: "redact: ['x*']\n", want: consent.ReasonOptOutFile, wrong: true},
		"too long":      {reason: "bounded", file: "redact: ['" + strings.Repeat("x", 513) + "']\n", want: consent.ReasonOptOutFile, wrong: true},
		"longest":       {reason: "at the bound", file: "redact: ['" + strings.Repeat("x", 512) + "']\n", want: consent.ReasonIncluded, redact: []string{strings.Repeat("x", 512)}},
		"too many":      {reason: "bounded", file: "redact:\n" + strings.Repeat("- x\n", 33), want: consent.ReasonOptOutFile, wrong: true},
		"no list":       {reason: "nobody knows what is meant", file: "redact: PROJ\n", want: consent.ReasonOptOutFile, wrong: true},
		"off wins":      {reason: "nothing is heard anyway", file: "capture: off\nredact: ['a']\n", want: consent.ReasonOptOut, redact: []string{"a"}},
		"an allow list": {reason: "a repository can only narrow: fields that are not known are left out", file: "allow: ['AKIA.*']\n", want: consent.ReasonIncluded},
	} {
		t.Run(name, func(t *testing.T) {
			dir := realTemp(t)
			repository(t, dir, acme)
			if err := os.WriteFile(filepath.Join(dir, ".undersong.yaml"), []byte(tc.file), 0o600); err != nil {
				t.Fatal(err)
			}
			var f consent.Finder
			for range 2 { // read, and remembered
				d := f.Decide(dir, consent.Rules{Include: []string{"**"}})
				if d.Reason != tc.want || d.Allowed != (tc.want == consent.ReasonIncluded) {
					t.Errorf("%s: %+v, want %s", tc.reason, d, tc.want)
				}
				if diff := cmp.Diff(tc.redact, d.Redact); diff != "" {
					t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
				}
			}
			if err := consent.CheckFile(dir); (err != nil) != tc.wrong {
				t.Errorf("%s: what is wrong with the file: %v", tc.reason, err)
			}
		})
	}
}
