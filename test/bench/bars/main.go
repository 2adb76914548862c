// Command bars measures what undersong promises about transcripts, and says for
// each promise whether it is kept:
//
//	bars [-bytes 1G] [-undersong bin/undersong] [-gitleaks "go -C … run ."]
//
// It generates a transcript of that size, and compares on it, in one run and in
// turns: an absolute time says more about a machine and its other work than
// about a program. Speeds are of the time that the process has computed, not of
// the day. It ends with 1 if a bar is missed.
//
// It is tooling of this repository, no part of the product.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bars:", err)
		os.Exit(1)
	}
}

// now is the stopwatch.
func now() time.Time { return time.Now() } //nolint:forbidigo // time is what is measured

var errMissed = errors.New("a bar is missed")

func run(ctx context.Context, args []string) (err error) {
	if len(args) == 3 && args[0] == "pass" {
		return pass(ctx, args[1], args[2])
	}
	fs := flag.NewFlagSet("bars", flag.ContinueOnError)
	size := fs.String("bytes", "1G", "size of the transcript: a number, with K, M or G of 1024")
	seed := fs.Uint64("seed", 1, "seed of the transcript; the same gives the same")
	cli := fs.String("undersong", "", "the `program` undersong, to look at its memory")
	gitleaks := fs.String("gitleaks", "", "the `command` that compares a file with gitleaks")
	dir := fs.String("dir", "", "`folder` for the transcripts, which are removed at the end (default: a temporary one)")
	if err := fs.Parse(args); err != nil {
		return err
	}
	n, err := parseSize(*size)
	if err != nil {
		return err
	}
	if *dir, err = os.MkdirTemp(*dir, "undersong-bars-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(*dir)) }()
	b := bench{
		size: n, seed: *seed, undersong: *cli, gitleaks: strings.Fields(*gitleaks),
		large: filepath.Join(*dir, "large.jsonl"), small: filepath.Join(*dir, "small.jsonl"), brief: filepath.Join(*dir, "brief.jsonl"),
	}
	if b.self, err = os.Executable(); err != nil {
		return err
	}
	return b.run(ctx)
}

func parseSize(text string) (int64, error) {
	number := strings.TrimRight(strings.ToUpper(text), "B")
	unit := int64(1)
	for name, size := range map[string]int64{"K": 1 << 10, "M": 1 << 20, "G": 1 << 30} {
		if rest, ok := strings.CutSuffix(number, name); ok {
			number, unit = rest, size
		}
	}
	n, err := strconv.ParseFloat(number, 64)
	if err != nil || n*float64(unit) < 1<<20 {
		return 0, fmt.Errorf("read -bytes %q: want a number of at least 1M", text)
	}
	return int64(n * float64(unit)), nil
}

// bench is one run.
type bench struct {
	size                int64
	seed                uint64
	self, undersong     string
	gitleaks            []string
	large, small, brief string // transcripts: of the size, of a sixteenth, of short prompts
	rows                []row
}

// row is a bar and what was measured.
type row struct{ what, bar, value, verdict string }

const (
	kept        = "ok"
	missed      = "MISSED"
	notCompared = "not compared"
)

// add notes a value; ok says whether it keeps the bar.
func (b *bench) add(what, bar, value string, ok bool) {
	verdict := kept
	if !ok {
		verdict = missed
	}
	b.rows = append(b.rows, row{what, bar, value, verdict})
}

// skip notes a bar that was not measured, and why.
func (b *bench) skip(what, bar, why string) {
	b.rows = append(b.rows, row{what, bar, why, notCompared})
}

func (b *bench) run(ctx context.Context) error {
	say := func(format string, args ...any) { fmt.Fprintf(os.Stderr, "bench: "+format+"\n", args...) }
	began := now()
	say("writing a transcript of %s, seed %d", megabytes(b.size), b.seed)
	for _, f := range []struct {
		path  string
		size  int64
		brief bool
	}{{b.large, b.size, false}, {b.small, b.size / 16, false}, {b.brief, b.size / 16, true}} {
		if err := writeTalk(f.path, f.size, b.seed, f.brief); err != nil {
			return err
		}
	}
	for _, step := range []struct {
		name string
		run  func(context.Context) error
	}{
		// First what is measured of other processes: to the kernel, the largest
		// resident set of a program counts that of the one that started it.
		{"reading, in a process of its own", b.readingMemory},
		{"inspecting, in a process of its own", b.inspecting},
		{"redacting and packing, in a process of its own", b.packing},
		{"reading", b.reading},
		{"going on at the end", b.resuming},
		{"redacting, against gitleaks", b.redacting},
	} {
		say("%s", step.name)
		if err := step.run(ctx); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return b.print(now().Sub(began))
}

// print prints the table.
func (b *bench) print(took time.Duration) error {
	var out strings.Builder
	fmt.Fprintf(&out, "\nTranscripts: %s, seed %d, %s %s/%s, %d cores, %.0f s\n\n",
		megabytes(b.size), b.seed, runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), took.Seconds())
	rows := append([]row{{"what", "bar", "value", ""}, {"---", "---", "---", "---"}}, b.rows...)
	wide := func(of func(row) string) (n int) {
		for _, r := range rows {
			n = max(n, len([]rune(of(r))))
		}
		return n
	}
	what, bar, value := wide(func(r row) string { return r.what }), wide(func(r row) string { return r.bar }), wide(func(r row) string { return r.value })
	var err error
	for _, r := range rows {
		fmt.Fprintf(&out, "| %-*s | %-*s | %-*s | %-12s |\n", what, r.what, bar, r.bar, value, r.value, r.verdict)
		if r.verdict == missed {
			err = errMissed
		}
	}
	_, werr := os.Stdout.WriteString(out.String())
	return errors.Join(werr, err)
}

func megabytes(n int64) string {
	if n < 10<<20 {
		return fmt.Sprintf("%.1f MB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%d MB", n>>20)
}
