package main

import (
	"fmt"
	"go/format"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/undersong-dev/undersong/test/tools"
)

// TestGuardsAreInTheCode keeps the table in step with the code: what is replaced
// is there once, and what comes of it is Go.
func TestGuardsAreInTheCode(t *testing.T) {
	names := map[string]bool{}
	for _, g := range guards {
		if names[g.name] || g.name == "" || g.why == "" || g.says == "" {
			t.Errorf("guard %q: a name that is there twice, or something is missing", g.name)
		}
		names[g.name] = true
		if _, err := regexp.Compile(g.says); err != nil {
			t.Errorf("%s: %v", g.name, err)
		}
		files, err := g.mutate(tools.Root())
		if err != nil || len(files) == 0 {
			t.Errorf("%s: %d files, %v", g.name, len(files), err)
		}
		for name, data := range files {
			if strings.HasSuffix(name, "_test.go") {
				t.Errorf("%s: %s is a test", g.name, name)
			}
			if _, err := format.Source(data); err != nil && strings.HasSuffix(name, ".go") {
				t.Errorf("%s: %s: %v", g.name, name, err)
			}
		}
	}
}

// TestEveryTestIsThere: a row names a test that exists, and each of the tests of
// the weaknesses has a row.
func TestEveryTestIsThere(t *testing.T) {
	rows := map[testKey]bool{}
	for _, g := range guards {
		rows[g.key()] = true
	}
	known := map[string]map[string]bool{}
	for key := range rows {
		if known[key.in] == nil {
			known[key.in] = testsIn(t, key.in)
		}
		if !known[key.in][key.test] {
			t.Errorf("there is no %s in %s", key.test, key.in)
		}
	}
	for n := 1; n <= 37; n++ {
		found := 0
		for _, in := range []string{onDesk, onThread} {
			key := testKey{in, fmt.Sprintf("TestW%02d", n)}
			if !known[in][key.test] {
				continue
			}
			found++
			if !rows[key] {
				t.Errorf("%s in %s has no guard in the table", key.test, in)
			}
		}
		if found != 1 {
			t.Errorf("there are %d tests of W%02d", found, n)
		}
	}
}

var testFunc = regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\)`)

// testsIn lists the tests of a folder.
func testsIn(t *testing.T, in string) map[string]bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(tools.Root(), in, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range testFunc.FindAllSubmatch(data, -1) {
			found[string(m[1])] = true
		}
	}
	return found
}

// TestJudge tells a test that missed the guard from all that only looks so.
func TestJudge(t *testing.T) {
	const run = `{"Action":"start","Package":"p"}
{"Action":"run","Package":"p","Test":"TestX"}
`
	for name, tt := range map[string]struct {
		reason, said string
		want         outcome
	}{
		"red":          {reason: "it failed and says why", said: run + `{"Action":"output","Test":"TestX","Output":"x_test.go:1: 3 copies\n"}` + "\n" + `{"Action":"fail","Test":"TestX"}`, want: held},
		"in a subtest": {reason: "a subtest's words are the test's", said: run + `{"Action":"output","Test":"TestX/a","Output":"3 copies\n"}` + "\n" + `{"Action":"fail","Test":"TestX/a"}` + "\n" + `{"Action":"fail","Test":"TestX"}`, want: held},
		"green":        {reason: "it passed", said: run + `{"Action":"output","Test":"TestX","Output":"3 copies\n"}` + "\n" + `{"Action":"pass","Test":"TestX"}`, want: missed},
		"other":        {reason: "it failed of something else", said: run + `{"Action":"output","Test":"TestX","Output":"panic: test timed out\n"}` + "\n" + `{"Action":"fail","Test":"TestX"}`, want: otherwise},
		"another test": {reason: "the words are another's", said: run + `{"Action":"output","Test":"TestY","Output":"3 copies\n"}` + "\n" + `{"Action":"fail","Test":"TestX"}`, want: otherwise},
		"skipped":      {reason: "nothing ran", said: run + `{"Action":"skip","Test":"TestX"}`, want: notRun},
		"no such test": {reason: "the package passes without tests", said: `{"Action":"output","Package":"p","Output":"testing: warning: no tests to run\n"}` + "\n" + `{"Action":"pass","Package":"p"}`, want: notRun},
		"not built":    {reason: "go test says so", said: `{"ImportPath":"p","Action":"build-output","Output":"a/b.go:3:4: undefined: x\n"}` + "\n" + `{"ImportPath":"p","Action":"build-fail"}` + "\n" + `{"Action":"fail","Package":"p","FailedBuild":"p"}`, want: notBuilt},
		"program":      {reason: "what TestMain builds does not compile", said: `{"Action":"output","Package":"p","Output":"build: exit status 1\n"}` + "\n" + `{"Action":"output","Package":"p","Output":"a/b.go:3:4: undefined: x\n"}` + "\n" + `{"Action":"fail","Package":"p"}`, want: notBuilt},
	} {
		t.Run(name, func(t *testing.T) {
			got := judge(guard{test: "TestX", says: `\d copies`}, parse(strings.NewReader(tt.said)))
			if got.outcome != tt.want {
				t.Errorf("%s: %s, want %s: %s", tt.reason, got.outcome, tt.want, got.detail)
			}
		})
	}
}

// TestChoose takes names, and groups of them.
func TestChoose(t *testing.T) {
	all := []guard{{name: "W01"}, {name: "W09/end"}, {name: "W09/start"}}
	for only, want := range map[string]int{"": 3, "W09": 2, "W09/end": 1, "W01, W09": 3} {
		if got, err := choose(all, only); err != nil || len(got) != want {
			t.Errorf("%q: %d guards, %v; want %d", only, len(got), err, want)
		}
	}
	if _, err := choose(all, "W1"); err == nil || !strings.Contains(err.Error(), "W09/end") {
		t.Errorf("a guard that is not there: %v", err)
	}
}
