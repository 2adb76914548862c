// Command scale measures what undersong promises about one controller and many
// Sessions, on a real API server and a real S3 server, with a stand-in for
// Letta:
//
//	scale [-sessions 10000] [-active 500] [-rounds 3] [-profiles folder]
//
// It makes a company of eight teams. The active sessions are heard by the
// controller itself; the others are written as it leaves them after weeks of
// use, modelled on those. Then it prints one row for each bar, with what the
// same API server gives to a program that does nothing else beside it:
//
//   - memory: the most that the controller's process ever had;
//   - restart: from the start of the process to the first word about a delta
//     that came while it was away, against filling a bare cache;
//   - writes: status writes per second while every active session has a delta,
//     against a loop that only writes statuses;
//   - an unchanged Session: requests to the API server and to Letta.
//
// It ends with 1 where a bar is missed. A bar that is a time is held against
// the bare program's and not against a clock: the machine may be shared.
//
// It is tooling of this repository, no part of the product. Run make build
// first; make bench-scale does.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/undersong-dev/undersong/test/stack"
)

// patience bounds one step on a busy machine.
const patience = 10 * time.Minute

// controllerWorkers is the number of the controller's workers for Sessions.
const controllerWorkers = 8

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "scale:", err)
		os.Exit(1)
	}
}

// now is the stopwatch.
func now() time.Time { return time.Now() } //nolint:forbidigo // time is what is measured

var errMissed = errors.New("a bar is missed")

// settings are what the command line says.
type settings struct {
	sessions, active, rounds int
	profiles, bin            string
}

func run(ctx context.Context, args []string) (err error) {
	fs := flag.NewFlagSet("scale", flag.ContinueOnError)
	var o settings
	fs.IntVar(&o.sessions, "sessions", 10_000, "`number` of Sessions")
	fs.IntVar(&o.active, "active", 500, "`number` of them that are active; never more than a twentieth")
	fs.IntVar(&o.rounds, "rounds", 3, "`number` of restarts; the median counts")
	fs.StringVar(&o.profiles, "profiles", "", "`folder` to keep Go profiles of the controller in; empty keeps none")
	fs.StringVar(&o.bin, "bin", "", "`folder` of our binaries; empty means bin in the repository")
	kubeconfig := fs.String("bare", "", "fill a bare cache from this API server, say so, and end: what the controller is held against")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if *kubeconfig != "" {
		return bareSync(ctx, *kubeconfig)
	}
	if o.sessions < 200 || o.active < 1 || o.rounds < 1 {
		return errors.New("-sessions must be 200 or more, -active and -rounds 1 or more")
	}
	o.active = min(o.active, o.sessions/20)
	dir, err := os.MkdirTemp("", "undersong-scale-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	s, err := stack.Start(ctx, stack.Options{Dir: dir, Bin: o.bin, Progress: os.Stderr})
	if err != nil {
		return err
	}
	defer s.Stop() //nolint:contextcheck // stopping must outlive the context
	b := &bench{settings: o, begun: now(), kubeconfig: filepath.Join(dir, "controller.kubeconfig")}
	if err := b.measure(ctx, s); err != nil {
		return fmt.Errorf("%w; the controller's log ended with:\n%s", err, tail(filepath.Join(dir, "logs", "controller.log")))
	}
	return b.show()
}

// tail is the end of a file.
func tail(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(data[max(0, len(data)-2000):])
}

// row is a bar and what was measured.
type row struct {
	what, bar, value, bare string
	ok                     bool
}

type bench struct {
	settings
	begun      time.Time
	kubeconfig string
	company    *company
	rows       []row
	notes      []string
	// loop is the writes per second of the bare loop, loopCost what one cost.
	loop     float64
	loopCost string
	// peak is the most memory of any of the controller's processes.
	peak float64
}

func (b *bench) say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%5.0fs  %s\n", now().Sub(b.begun).Seconds(), fmt.Sprintf(format, args...))
}

func (b *bench) show() error {
	var err error
	fmt.Println("| what | bar | value | bare | |\n| --- | --- | --- | --- | --- |") //nolint:forbidigo // the result
	for _, r := range b.rows {
		verdict := "ok"
		if !r.ok {
			verdict, err = "MISSED", errMissed
		}
		fmt.Printf("| %s | %s | %s | %s | %s |\n", r.what, r.bar, r.value, r.bare, verdict) //nolint:forbidigo // the result
	}
	for _, n := range b.notes {
		fmt.Println("\n" + n) //nolint:forbidigo // the result
	}
	return err
}

// measure runs everything, in an order in which one thing needs the one before.
func (b *bench) measure(ctx context.Context, s *stack.Stack) error {
	var err error
	b.say("making the teams")
	if b.company, err = found(ctx, s); err != nil {
		return err
	}
	if err := b.fill(ctx); err != nil {
		return err
	}
	b.say("writing statuses in a bare loop")
	if b.loop, b.loopCost, err = bareLoop(ctx, b.company); err != nil {
		return err
	}
	b.say("%.0f writes per second; for one: %s", b.loop, b.loopCost)
	if err := b.restarts(ctx); err != nil {
		return err
	}
	if err := b.load(ctx); err != nil {
		return err
	}
	b.rows = append([]row{{
		what: fmt.Sprintf("memory of the controller with %d Sessions, %d of them active, the most it ever had", b.sessions, b.active), bar: "≤ 300 MB",
		value: fmt.Sprintf("%.0f MB", b.peak), bare: "–", ok: b.peak <= 300,
	}}, b.rows...)
	return nil
}

// fill makes the Sessions.
func (b *bench) fill(ctx context.Context) error {
	c := b.company
	b.say("making %d active sessions", b.active)
	if err := c.grow(ctx, b.active); err != nil {
		return err
	}
	w, err := c.watch(ctx)
	if err != nil {
		return err
	}
	p, _, err := c.start(ctx)
	if err != nil {
		return err
	}
	if err := c.caughtUp(ctx, p, w); err != nil {
		return err
	}
	w.stop()
	if err := p.quiet(ctx); err != nil {
		return err
	}
	b.seen(p)
	if err := p.Stop(); err != nil {
		return err
	}
	b.say("making %d sessions of the past", b.sessions-b.active)
	if err := c.rest(ctx, b.sessions-b.active); err != nil {
		return err
	}
	n, mean, managed, err := c.size(ctx)
	if err != nil {
		return err
	}
	b.notes = append(b.notes, fmt.Sprintf("%d Sessions in %d namespaces, of %d owners with %d workstations, %d bytes each on average, of which %d are managedFields.",
		n, namespaces, namespaces*ownersPerTeam, 2*namespaces*ownersPerTeam, mean, managed))
	b.say("%d sessions, %d bytes each, %d of them managedFields", n, mean, managed)
	return nil
}

func (b *bench) seen(p *running) { b.peak = max(b.peak, peak(p.PID())) }

// caughtUp waits until no active session is behind.
func (c *company) caughtUp(ctx context.Context, p *running, w *watching) error {
	return p.await(ctx, func() error {
		if n := w.left(); n > 0 {
			return fmt.Errorf("%d sessions are behind", n)
		}
		return nil
	})
}

func median[T int | float64 | time.Duration](all []T) T {
	all = slices.Sorted(slices.Values(all))
	return all[len(all)/2]
}
