// Command delivery measures what undersong promises about delivery, on the
// whole stack on loopback: API server, store, a stand-in for Letta, controller,
// daemon and hooks.
//
//	delivery [-samples 40] [-turn 300ms]
//
// It prints one row for each bar and ends with 1 if one is missed:
//
//   - whisper: from the end of Letta's turn to the file on the workstation;
//   - the daemon when there is nothing to do;
//   - API writes for each delta: of spec, and of status;
//   - fairness: how many turns a newcomer's single delta waits among 200 busy
//     sessions of 20 owners, in virtual time, from the tests of
//     controllers/session.
//
// It is tooling of this repository, no part of the product. Run make build
// first; make bench-delivery does.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/undersong-dev/undersong/agent/whisper"
	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/test/replay"
	"github.com/undersong-dev/undersong/test/stack"
	"github.com/undersong-dev/undersong/test/tools"
)

// patience bounds one step on a busy machine.
const patience = 2 * time.Minute

// remote is the project of all sessions.
const remote = "https://git.example.com/lighthouse/lantern.git"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "delivery:", err)
		os.Exit(1)
	}
}

// now is the stopwatch.
func now() time.Time { return time.Now() } //nolint:forbidigo // time is what is measured

var errMissed = errors.New("a bar is missed")

// row is a bar and what was measured.
type row struct {
	what, bar, value string
	ok               bool
}

func run(ctx context.Context, args []string) error {
	fs := flag.NewFlagSet("delivery", flag.ContinueOnError)
	samples := fs.Int("samples", 40, "`number` of whispers")
	turn := fs.Duration("turn", 300*time.Millisecond, "how long the stand-in thinks")
	if err := fs.Parse(args); err != nil {
		return err
	}
	fair, err := fairness(ctx)
	if err != nil {
		return err
	}
	rows, err := measure(ctx, *samples, *turn)
	if err != nil {
		return err
	}
	return show(append(rows, fair))
}

func show(rows []row) error {
	var err error
	fmt.Println("| what | bar | value | |\n| --- | --- | --- | --- |") //nolint:forbidigo // the result
	for _, r := range rows {
		verdict := "ok"
		if !r.ok {
			verdict, err = "MISSED", errMissed
		}
		fmt.Printf("| %s | %s | %s | %s |\n", r.what, r.bar, r.value, verdict) //nolint:forbidigo // the result
	}
	return err
}

// fairness runs the simulation and reads its worst case.
func fairness(ctx context.Context) (row, error) {
	cmd := exec.CommandContext(ctx, "go", "test", "-count=1", "-v", "-run", "^TestANewcomerWaitsNoLongerThanTheNumber$", "./controllers/session")
	cmd.Dir = tools.Root()
	out, err := cmd.CombinedOutput()
	found := regexp.MustCompile(`200_sessions_of_20_owners[\s\S]*?a single delta waited for ([0-9.]+) turns of ([0-9]+)`).FindSubmatch(out)
	if found == nil {
		return row{}, fmt.Errorf("run the simulation: %w: %s", err, out)
	}
	waited, _ := strconv.ParseFloat(string(found[1]), 64) // the expression lets digits through
	bar, _ := strconv.ParseFloat(string(found[2]), 64)
	return row{"newcomer among 200 sessions of 20 owners, 4 places", fmt.Sprintf("≤ %.0f turns", bar), fmt.Sprintf("%.1f turns", waited), err == nil && waited <= bar}, nil
}

// bench is the stack with one team and one workstation.
type bench struct {
	stack *stack.Stack
	team  *stack.Team
	desk  *stack.Workstation
	cwd   string
}

func measure(ctx context.Context, samples int, turn time.Duration) (_ []row, err error) {
	dir, err := os.MkdirTemp("", "undersong-delivery-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	b := &bench{}
	if b.stack, err = stack.Start(ctx, stack.Options{Dir: dir, TurnDelay: turn, Progress: os.Stderr}); err != nil {
		return nil, err
	}
	defer b.stack.Stop() //nolint:contextcheck // stopping must outlive the context
	if b.team, err = b.stack.Team(ctx, stack.TeamOptions{Namespace: "bench", Members: []string{"ada"}, Include: []string{"git.example.com/**"}}); err != nil {
		return nil, err
	}
	if b.desk, err = b.stack.Workstation(b.team, "ada", "desk"); err != nil {
		return nil, err
	}
	defer b.desk.StopDaemon() //nolint:contextcheck // stopping must outlive the context
	if err := b.desk.Init(ctx); err != nil {
		return nil, err
	}
	if b.cwd, err = b.desk.Project("lantern", remote); err != nil {
		return nil, err
	}
	controller, err := b.stack.StartController(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, controller.Stop()) }()

	// What one session teaches, the others are told.
	if _, err := b.say(ctx, "Note for the team: harbour tables are stored in GMT and never in local time."); err != nil {
		return nil, err
	}
	if err := b.settled(ctx); err != nil {
		return nil, err
	}
	writes, stop, err := b.watch(ctx)
	if err != nil {
		return nil, err
	}
	var took []time.Duration
	for range samples {
		d, err := b.whisper(ctx)
		if err != nil {
			return nil, err
		}
		took = append(took, d)
	}
	if err := b.settled(ctx); err != nil {
		return nil, err
	}
	stop()
	w := <-writes
	idle, err := b.idle(ctx)
	if err != nil {
		return nil, err
	}
	slices.Sort(took)
	p99 := took[min(len(took)-1, len(took)*99/100)]
	perDelta := func(n int) string { return fmt.Sprintf("%.2f (%d deltas)", float64(n)/float64(w.deltas), w.deltas) }
	return append(idle, []row{
		{fmt.Sprintf("whisper, p99 of %d, from the end of the turn to the file", samples), "≤ 1 s", fmt.Sprintf("%d ms (median %d ms)", p99.Milliseconds(), took[len(took)/2].Milliseconds()), p99 <= time.Second},
		{"spec writes for each delta", "≤ 1", perDelta(w.spec), w.spec <= w.deltas},
		{"status writes for each delta", "≤ 3", perDelta(w.status), w.status <= 3*w.deltas},
	}...), nil
}

// idle measures the daemon when there is nothing to do, for half a minute. Its
// clock ticks in hundredths of a second.
func (b *bench) idle(ctx context.Context) ([]row, error) {
	const rest = 30 * time.Second
	pid := b.desk.DaemonPID()
	if pid == 0 {
		return nil, errors.New("no daemon runs")
	}
	usage := func() (cpu time.Duration, rss int64, _ error) {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if errors.Is(err, os.ErrNotExist) && runtime.GOOS != "linux" {
			return 0, 0, errNoProc
		}
		if err != nil {
			return 0, 0, fmt.Errorf("look at the daemon: %w", err)
		}
		_, rest, _ := strings.Cut(string(stat), ") ")
		f := strings.Fields(rest) // from the state on
		if len(f) < 22 {
			return 0, 0, fmt.Errorf("look at the daemon: %q", stat)
		}
		ticks := [2]int64{}
		for i, field := range []string{f[11], f[12]} { // utime, stime
			if ticks[i], err = strconv.ParseInt(field, 10, 64); err != nil {
				return 0, 0, fmt.Errorf("look at the daemon: %w", err)
			}
		}
		pages, err := strconv.ParseInt(f[21], 10, 64)
		return time.Duration(ticks[0]+ticks[1]) * 10 * time.Millisecond, pages * int64(os.Getpagesize()), err
	}
	before, _, err := usage()
	if errors.Is(err, errNoProc) {
		return []row{{"daemon, idle", "≤ 40 MB, no CPU", "not measured: there is no /proc", true}}, nil
	}
	if err != nil {
		return nil, err
	}
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(rest): //nolint:forbidigo // it is measured over this time
	}
	after, rss, err := usage()
	if err != nil {
		return nil, err
	}
	share := 100 * (after - before).Seconds() / rest.Seconds()
	return []row{
		{"daemon, idle: resident memory", "≤ 40 MB", fmt.Sprintf("%d MB", rss>>20), rss <= 40<<20},
		{"daemon, idle: CPU over half a minute", "none (≤ 0.5 % of a core)", fmt.Sprintf("%.2f %%", share), share <= 0.5},
	}, nil
}

var errNoProc = errors.New("there is no /proc")

// say plays one session with one exchange.
func (b *bench) say(ctx context.Context, prompt string) (*replay.Session, error) {
	s := replay.New(b.desk, b.desk.ClaudeDir(), b.cwd, uuid.NewString())
	if _, err := s.Start(ctx, "startup"); err != nil {
		return nil, err
	}
	if _, err := s.Prompt(ctx, prompt); err != nil {
		return nil, err
	}
	return s, s.Answer(ctx, "Understood.")
}

// settled waits until everything is processed.
func (b *bench) settled(ctx context.Context) error {
	return stack.Eventually(ctx, patience, func() error {
		sessions, err := b.team.Sessions(ctx)
		if err != nil {
			return err
		}
		for i := range sessions {
			if !stack.CaughtUp(&sessions[i]) {
				return fmt.Errorf("session %s is behind", sessions[i].Name)
			}
		}
		if len(sessions) == 0 {
			return errors.New("there is no session")
		}
		return nil
	})
}

// whisper asks what was taught, and measures from the end of the turn that
// answers to the file on the workstation.
func (b *bench) whisper(ctx context.Context) (time.Duration, error) {
	s, err := b.say(ctx, "How do we keep the harbour tables, in GMT or in local time?")
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	var ended time.Time
	for {
		select {
		case <-ctx.Done():
			return 0, fmt.Errorf("wait for a whisper of session %s: %w", s.ID, ctx.Err())
		case <-tick.C:
		}
		if ended.IsZero() {
			if b.answered(s.ID) {
				ended = now()
			}
			continue
		}
		kept, err := whisper.List(b.desk.State)
		if err != nil {
			return 0, err
		}
		if slices.ContainsFunc(kept, func(k whisper.Kept) bool { return k.Session == s.ID }) {
			return now().Sub(ended), nil
		}
	}
}

// answered reports whether Letta has an answer to the session that is no
// silence.
func (b *bench) answered(session string) bool {
	for _, c := range b.stack.Letta.Conversations() {
		if !strings.Contains(c.Summary, session) {
			continue
		}
		for _, m := range c.Messages {
			if m.Role == "assistant" && m.Text != "" && m.Text != "(silence)" {
				return true
			}
		}
	}
	return false
}

// writes are those to Sessions.
type writes struct{ deltas, spec, status int }

// watch counts writes until stop is called.
func (b *bench) watch(ctx context.Context) (<-chan writes, func(), error) {
	known := map[types.UID]*v1alpha1.Session{}
	sessions, err := b.team.Sessions(ctx)
	if err != nil {
		return nil, nil, err
	}
	for i := range sessions {
		known[sessions[i].UID] = &sessions[i]
	}
	events, err := b.stack.Admin.Watch(ctx, &v1alpha1.SessionList{}, client.InNamespace(b.team.Namespace))
	if err != nil {
		return nil, nil, err
	}
	result := make(chan writes, 1)
	go func() {
		var w writes
		for e := range events.ResultChan() {
			is, ok := e.Object.(*v1alpha1.Session)
			if !ok {
				continue
			}
			was := known[is.UID]
			known[is.UID] = is
			switch {
			case was == nil, was.ResourceVersion == is.ResourceVersion, is.Spec.Lines == 0:
				// The create, and the first words about it, are once for a
				// session, not for a delta.
			case was.Generation != is.Generation:
				w.spec++
				if was.Spec.Lines != is.Spec.Lines {
					w.deltas++
				}
			default:
				w.status++
			}
		}
		result <- w
	}()
	return result, events.Stop, nil
}
