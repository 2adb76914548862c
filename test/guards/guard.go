package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// guard is one row: what is taken out, and the test that must notice.
type guard struct {
	// name is unique. The part before a slash is the group: W07, or a promise.
	name string
	// test is the name of the test, in its package's folder.
	test, in string
	// why says what does not hold any more.
	why string
	// says is a regular expression that the words of the failing test fit.
	says string
	// cuts are the pieces that are replaced. There are several where one guard
	// stands behind another, and each alone would do.
	cuts []cut
}

// cut is one piece of one file: old stands there exactly once, and new in its
// place when the guard is taken out.
type cut struct{ file, old, new string }

// testKey is a test in its package.
type testKey struct{ in, test string }

func (g guard) key() testKey { return testKey{g.in, g.test} }

func (g guard) group() string {
	group, _, _ := strings.Cut(g.name, "/")
	return group
}

func (g guard) files() []string {
	var files []string
	for _, c := range g.cuts {
		if !slices.Contains(files, c.file) {
			files = append(files, c.file)
		}
	}
	return files
}

// mutate returns the files of the repository at root as they are without the
// guard.
func (g guard) mutate(root string) (map[string][]byte, error) {
	files := map[string][]byte{}
	for _, c := range g.cuts {
		data, known := files[c.file]
		if !known {
			var err error
			if data, err = os.ReadFile(filepath.Join(root, filepath.FromSlash(c.file))); err != nil {
				return nil, err
			}
		}
		if n := bytes.Count(data, []byte(c.old)); n != 1 || c.old == c.new {
			return nil, fmt.Errorf("%s: what is to be replaced is there %d times, not once: %q", c.file, n, c.old)
		}
		files[c.file] = bytes.Replace(data, []byte(c.old), []byte(c.new), 1)
	}
	return files, nil
}

const (
	// testTimeout is what one test gets, with the real parts that it starts.
	testTimeout = "10m"
	// tailBytes is how much of a test's words is shown when a row does not hold.
	tailBytes = 4 << 10
)

// runner runs tests without their guards.
type runner struct {
	root string // of the repository
	dir  string // for copies
}

// try takes one guard out and runs its test.
func (r *runner) try(ctx context.Context, g guard) result {
	start := time.Now() //nolint:forbidigo // how long it took is told to a person
	files, err := g.mutate(r.root)
	if err != nil {
		return result{outcome: stale, detail: err.Error()}
	}
	overlay, err := r.overlay(g, files)
	if err != nil {
		return result{outcome: notRun, detail: err.Error()}
	}
	run := r.run(ctx, g.in, []string{g.test}, overlay)
	res := judge(g, run)
	res.took = time.Since(start) //nolint:forbidigo // as above
	return res
}

// judge says what a run without the guard shows.
func judge(g guard, run testRun) result {
	said := run.said[g.test]
	switch {
	case run.notBuilt:
		return result{outcome: notBuilt, detail: tail(run.all)}
	case run.ended[g.test] == "pass":
		return result{outcome: missed, detail: "the test passes without: " + g.why}
	case run.ended[g.test] != "fail":
		return result{outcome: notRun, detail: tail(run.all)}
	case !regexp.MustCompile(g.says).MatchString(said):
		return result{outcome: otherwise, detail: fmt.Sprintf("want %q in\n%s", g.says, tail(said))}
	}
	return result{outcome: held}
}

// overlay writes the copies, and the file that names them to the go command.
func (r *runner) overlay(g guard, files map[string][]byte) (string, error) {
	dir := filepath.Join(r.dir, strings.NewReplacer("/", "-", " ", "-").Replace(g.name))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	var o struct{ Replace map[string]string }
	o.Replace = map[string]string{}
	for name, data := range files {
		copied := filepath.Join(dir, strings.ReplaceAll(name, "/", "-"))
		if err := os.WriteFile(copied, data, 0o600); err != nil {
			return "", err
		}
		o.Replace[filepath.Join(r.root, filepath.FromSlash(name))] = copied
	}
	data, err := json.Marshal(o)
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, data, 0o600)
}

// baseline runs the tests with every guard in its place, and returns what those
// said that fail all the same.
func (r *runner) baseline(ctx context.Context, out io.Writer, chosen []guard) map[testKey]string {
	byPackage := map[string][]string{}
	for _, key := range tests(chosen) {
		byPackage[key.in] = append(byPackage[key.in], key.test)
	}
	red := map[testKey]string{}
	for _, key := range tests(chosen) {
		names, ok := byPackage[key.in]
		if !ok || ctx.Err() != nil {
			continue
		}
		delete(byPackage, key.in)
		run := r.run(ctx, key.in, names, "")
		fine := 0
		for _, name := range names {
			if run.ended[name] == "pass" {
				fine++
				continue
			}
			words := run.said[name]
			if run.ended[name] == "" {
				words = run.all
			}
			red[testKey{key.in, name}] = tail(words)
		}
		say(out, "  %s: %d of %d pass\n", key.in, fine, len(names))
	}
	return red
}

// testRun is what go test told.
type testRun struct {
	ended    map[string]string // pass, fail, skip, of tests without a slash
	said     map[string]string // their words, and those of their subtests
	all      string
	notBuilt bool
}

// run runs tests of one package. Vet is left out: it would refuse copies that
// compile.
func (r *runner) run(ctx context.Context, in string, names []string, overlay string) testRun {
	cmd := exec.CommandContext(ctx, "go", "test", "-json", "-vet=off", "-count=1", "-tags", "envtest", "-timeout", testTimeout,
		"-run", "^("+strings.Join(names, "|")+")$", in)
	cmd.Dir = r.root
	cmd.Env = os.Environ()
	if overlay != "" {
		cmd.Env = append(cmd.Env, "GOFLAGS="+strings.TrimSpace(os.Getenv("GOFLAGS")+" -overlay="+overlay))
	}
	// A terminal's Ctrl-C reaches the tests, too, and they stop what they started.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 30 * time.Second
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	run := parse(&stdout)
	run.all += stderr.String()
	if err != nil && len(run.ended) == 0 && run.all == "" {
		run.all = err.Error()
	}
	return run
}

// parse reads what go test -json prints.
func parse(in io.Reader) testRun {
	run := testRun{ended: map[string]string{}, said: map[string]string{}}
	said := map[string]*strings.Builder{}
	var all strings.Builder
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var e struct{ Action, Test, Output, FailedBuild string }
			if json.Unmarshal(line, &e) != nil {
				all.Write(line) // the go command itself speaks
			}
			all.WriteString(e.Output)
			test, _, sub := strings.Cut(e.Test, "/")
			switch e.Action {
			case "output":
				if said[test] == nil {
					said[test] = &strings.Builder{}
				}
				said[test].WriteString(e.Output)
			case "pass", "fail", "skip":
				if test != "" && !sub {
					run.ended[test] = e.Action
				}
				run.notBuilt = run.notBuilt || e.FailedBuild != ""
			case "build-fail":
				run.notBuilt = true
			}
		}
		if err != nil {
			break
		}
	}
	for test, b := range said {
		if test != "" {
			run.said[test] = b.String()
		}
	}
	run.all = all.String()
	// A program that a test builds before it starts.
	if len(run.ended) == 0 && builtByTest.MatchString(run.all) {
		run.notBuilt = true
	}
	return run
}

// builtByTest is how the go command complains of code, with file and line.
var builtByTest = regexp.MustCompile(`(?m)^\S+\.go:\d+:\d+: `)

func tail(text string) string {
	if len(text) > tailBytes {
		text = "…" + strings.ToValidUTF8(text[len(text)-tailBytes:], "")
	}
	return text
}
