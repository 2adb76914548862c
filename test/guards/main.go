// Command guards takes guards out of the code, one at a time, and requires of a
// test that it notices.
//
// A guard is a piece of code without which one of our promises does not hold. Its
// row in the table names the piece, what stands there when it is taken out, and
// the test that must fail then. For each row the file is copied with the piece
// replaced, and go test runs that one test with the copy in the file's place
// (-overlay): nothing in the tree is touched. The flag stands in GOFLAGS, so that
// the programs that a test builds and starts are made of the copy, too.
//
// A row holds when the test fails and says why. It does not hold when the test
// passes: then it asserts nothing that matters, and the test is to be mended. A
// copy that does not compile, a test that is skipped, that fails for another
// reason or that fails with the guard in its place shows nothing; nor does a
// row whose piece is not there exactly once: then the code has moved on, and the
// row is to follow.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/undersong-dev/undersong/test/tools"
)

func main() {
	only := flag.String("only", "", "the guards to take out, by commas: their names, or a name's part before the slash; all when empty")
	atOnce := flag.Int("at-once", 2, "how many tests run at the same time")
	list := flag.Bool("list", false, "say what there is, and run nothing")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Stdout, *only, *atOnce, *list)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "guards:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, only string, atOnce int, list bool) error {
	chosen, err := choose(guards, only)
	if err != nil {
		return err
	}
	if list {
		return show(out, chosen, nil)
	}
	dir, err := os.MkdirTemp("", "undersong-guards-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // a leftover in the temporary folder harms nobody
	r := &runner{root: tools.Root(), dir: dir}

	say(out, "guards: first, %d tests with every guard in its place\n", len(tests(chosen)))
	before := r.baseline(ctx, out, chosen)
	say(out, "guards: now %d guards are taken out, one after the other\n", len(chosen))
	results := make([]result, len(chosen))
	var group sync.WaitGroup
	var mu sync.Mutex
	done := 0
	turns := make(chan struct{}, max(atOnce, 1))
	for i := range chosen {
		group.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			if ctx.Err() != nil {
				results[i] = result{outcome: notRun, detail: "stopped"}
				return
			}
			g := chosen[i]
			if words, red := before[g.key()]; red {
				results[i] = result{outcome: redBefore, detail: words}
			} else {
				results[i] = r.try(ctx, g)
			}
			mu.Lock()
			defer mu.Unlock()
			done++
			say(out, "[%*d/%d] %-24s %-12s %5.0fs  %s\n", len(fmt.Sprint(len(chosen))), done, len(chosen), g.name, results[i].outcome, results[i].took.Seconds(), g.test)
			if results[i].outcome != held {
				say(out, "%s", indent(results[i].detail))
			}
		})
	}
	group.Wait()

	say(out, "\n")
	if err := show(out, chosen, results); err != nil {
		return err
	}
	var bad []string
	for i, g := range chosen {
		if results[i].outcome != held {
			bad = append(bad, g.name)
		}
	}
	if len(bad) > 0 {
		return fmt.Errorf("%d of %d guards can go and no test says so: %s", len(bad), len(chosen), strings.Join(bad, ", "))
	}
	say(out, "guards: ok: each of %d guards was missed by its test\n", len(chosen))
	return nil
}

// say tells how far it is. What cannot be told ends nothing.
func say(out io.Writer, format string, args ...any) {
	_, _ = fmt.Fprintf(out, format, args...) // as it says
}

// choose returns the guards that are asked for.
func choose(all []guard, only string) ([]guard, error) {
	if strings.TrimSpace(only) == "" {
		return all, nil
	}
	var chosen []guard
	for name := range strings.SplitSeq(only, ",") {
		name = strings.TrimSpace(name)
		found := false
		for _, g := range all {
			if g.name == name || g.group() == name {
				chosen, found = append(chosen, g), true
			}
		}
		if !found {
			var names []string
			for _, g := range all {
				names = append(names, g.name)
			}
			return nil, fmt.Errorf("there is no guard %q; there are %s", name, strings.Join(names, ", "))
		}
	}
	return chosen, nil
}

// show prints the table; without results, what there is.
func show(out io.Writer, chosen []guard, results []result) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for i, g := range chosen {
		if results != nil {
			say(w, "%s\t%.0fs\t", results[i].outcome, results[i].took.Seconds())
		}
		say(w, "%s\t%s\t%s\t%s\n", g.name, g.test, strings.Join(g.files(), ", "), g.why)
	}
	return w.Flush()
}

// tests lists the tests of the guards, each once.
func tests(chosen []guard) []testKey {
	var keys []testKey
	for _, g := range chosen {
		if !slices.Contains(keys, g.key()) {
			keys = append(keys, g.key())
		}
	}
	return keys
}

func indent(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString("    " + line)
	}
	if b.Len() > 0 && !strings.HasSuffix(b.String(), "\n") {
		b.WriteByte('\n')
	}
	return b.String()
}

// result is what became of one guard's test.
type result struct {
	outcome outcome
	took    time.Duration
	detail  string // the end of what was said
}

// outcome is one of a few words.
type outcome string

const (
	// held: the test failed and said why.
	held outcome = "red"
	// missed: the test passed without the guard.
	missed outcome = "GREEN"
	// otherwise: the test failed, and did not say why.
	otherwise outcome = "OTHER REASON"
	// notBuilt: the copy does not compile.
	notBuilt outcome = "NOT BUILT"
	// notRun: the test was skipped, or there is none.
	notRun outcome = "NOT RUN"
	// redBefore: the test fails with the guard in its place.
	redBefore outcome = "RED BEFORE"
	// stale: what is to be replaced is not there exactly once.
	stale outcome = "STALE"
)
