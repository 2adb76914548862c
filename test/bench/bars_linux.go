package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"time"

	"github.com/undersong-dev/undersong/agent/note"
)

// Bars of the hook. The empty program is started in the same way, in turns.
const (
	emptyTimes = 2.0   // × an empty Go program, median and p99
	otherTimes = 100.0 // × faster than claude-subconscious' hook
)

var errMissed = errors.New("a bar is missed")

// barCase is what the hook is called with.
type barCase struct {
	event, name string
	first       bool // the session's first call for this event, of which a session has seven
	whisper     bool
	size        int64 // of the transcript
}

func cmdBars(ctx context.Context, args []string) (err error) {
	fs := flag.NewFlagSet("bars", flag.ContinueOnError)
	hook := fs.String("hook", "bin/undersong-hook", "the `program` under test")
	runs := fs.Int("runs", 300, "measured calls per case; p99 of 300 is the third worst")
	other := fs.String("other", "test/bench/subjects/claude-subconscious.json", "the `subject` to compare with where SUBCONSCIOUS_ROOT is set")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if *hook, err = filepath.Abs(*hook); err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "hookbench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	b := &hookBars{hook: *hook, work: work, home: filepath.Join(work, "state"), runs: *runs}
	if b.empty, err = emptyProgram(ctx, work); err != nil {
		return err
	}
	rows, err := b.measure(ctx)
	if err != nil {
		return err
	}
	row, err := b.compare(ctx, *other)
	if err != nil {
		return err
	}
	return showBars(append(rows, row))
}

// hookBars measures one hook program beside an empty one.
type hookBars struct {
	hook, empty, work, home string
	runs, sessions          int
}

// bar is a row of the table.
type bar struct{ what, bar, value, verdict string }

func showBars(rows []bar) error {
	var err error
	fmt.Println("| what | bar | value | |\n|---|---|---|---|") //nolint:forbidigo // the result
	for _, r := range rows {
		if r.verdict == "MISSED" {
			err = errMissed
		}
		fmt.Printf("| %s | %s | %s | %s |\n", r.what, r.bar, r.value, r.verdict) //nolint:forbidigo // the result
	}
	return err
}

func verdict(ok bool) string {
	if ok {
		return "ok"
	}
	return "MISSED"
}

// judged is the verdict on a median and on a p99. The slowest call of a hundred
// is the machine's where other programs use much of it: then only the median
// is judged.
func judged(median, p99 bool, others float64) string {
	if median && !p99 && others > 0.2 {
		return fmt.Sprintf("ok; p99 not judged, other programs used %.0f %% of the machine", 100*others)
	}
	return verdict(median && p99)
}

// childrenCPUMs is what our children that have ended computed.
func childrenCPUMs() float64 {
	var ru syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_CHILDREN, &ru) // cannot fail
	return cpuMs(&ru)
}

func (b *hookBars) measure(ctx context.Context) ([]bar, error) {
	if err := os.MkdirAll(b.home, 0o700); err != nil {
		return nil, err
	}
	held, err := os.OpenFile(filepath.Join(b.home, "daemon.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = held.Close() }() // lets go
	// To the hook a daemon is running, and none is started.
	if err := syscall.Flock(int(held.Fd()), syscall.LOCK_EX); err != nil {
		return nil, err
	}
	var rows []bar
	medians := map[int64]time.Duration{}
	for _, c := range []barCase{
		{event: "SessionStart", name: "a new session", size: 1 << 20, first: true},
		{event: "UserPromptSubmit", name: "nothing new", size: 1 << 20},
		{event: "UserPromptSubmit", name: "one whisper", size: 1 << 20, whisper: true},
		{event: "PreToolUse", name: "the session's first", size: 1 << 20, first: true},
		{event: "PreToolUse", name: "nothing new", size: 1 << 20},
		{event: "PreToolUse", name: "one whisper", size: 1 << 20, whisper: true},
		{event: "Stop", name: "transcript of 1 MB", size: 1 << 20},
		{event: "Stop", name: "transcript of 1 GB", size: 1 << 30},
	} {
		busy, self, begin := machineBusyMs(), selfCPUMs()+childrenCPUMs(), now()
		ours, floor, err := b.pairs(ctx, c)
		if err != nil {
			return nil, fmt.Errorf("%s, %s: %w", c.event, c.name, err)
		}
		others := (machineBusyMs() - busy - (selfCPUMs() + childrenCPUMs() - self)) / (ms(now().Sub(begin)) * float64(runtime.NumCPU()))
		median, p99 := at(ours, 50)/at(floor, 50), at(ours, 99)/at(floor, 99)
		rows = append(rows, bar{
			fmt.Sprintf("hook, %s, %s: median and p99 of %d", c.event, c.name, b.runs), fmt.Sprintf("≤ %.0f × an empty program", emptyTimes),
			fmt.Sprintf("%.2f × (%.1f ms), %.2f × (%.1f ms)", median, at(ours, 50), p99, at(ours, 99)), judged(median <= emptyTimes, p99 <= emptyTimes, others),
		})
		if c.event == "Stop" {
			medians[c.size] = time.Duration(median * float64(time.Second))
		}
	}
	ratio := float64(medians[1<<30]) / float64(medians[1<<20])
	rows = append(rows, bar{"hook, Stop, 1 GB against 1 MB", "the same (≤ 1.2 ×)", fmt.Sprintf("%.2f ×", ratio), verdict(ratio <= 1.2)})
	return rows, nil
}

// pairs calls the hook and the empty program in turns. A hook that fails, or
// says other than it should, is no measurement.
func (b *hookBars) pairs(ctx context.Context, c barCase) (ours, floor []float64, err error) {
	cwd := filepath.Join(b.work, "lantern")
	if err := os.MkdirAll(cwd, 0o755); err != nil {
		return nil, nil, err
	}
	path := filepath.Join(b.work, "transcript.jsonl")
	if _, err := GenTranscript(path, 1<<20, 1, "", cwd); err != nil {
		return nil, nil, err
	}
	if err := os.Truncate(path, max(c.size, 1<<20)); err != nil { // a hole is as long as lines, should anybody read it
		return nil, nil, err
	}
	const warm = 5
	for i := range b.runs + warm {
		b.sessions++
		r := barRun{
			barCase: c, path: path, cwd: cwd, key: scenario{Event: c.event, Case: c.name}.key(), run: i,
			session: fmt.Sprintf("00000000-0000-4000-8000-%012d", b.sessions),
		}
		if !c.first {
			if _, _, err := b.call(ctx, b.hook, r, "before"); err != nil {
				return nil, nil, err
			}
		}
		if err := b.seed(ctx, r); err != nil {
			return nil, nil, err
		}
		var took [2]float64
		for turn := range 2 { // who goes first changes
			which := (turn + i) % 2
			var out []byte
			if took[which], out, err = b.call(ctx, []string{b.hook, b.empty}[which], r, "now"); err != nil {
				return nil, nil, err
			}
			if which == 0 && c.whisper != bytes.Contains(out, []byte("additionalContext")) {
				return nil, nil, fmt.Errorf("call %d said %q", i, out)
			}
		}
		if i >= warm {
			ours, floor = append(ours, took[0]), append(floor, took[1])
		}
	}
	return ours, floor, nil
}

// barRun is one run of a case, in a session of its own.
type barRun struct {
	barCase
	path, cwd, key, session string
	run                     int
}

func (b *hookBars) env(r barRun) []string {
	return []string{
		"HOME=" + b.work, "PATH=" + os.Getenv("PATH"), "UNDERSONG_HOME=" + b.home, "CLAUDE_PROJECT_DIR=" + r.cwd,
		"HOOKBENCH_EVENT=" + r.key, "HOOKBENCH_CASE=" + r.name, "HOOKBENCH_SESSION=" + r.session, "HOOKBENCH_RUN=" + fmt.Sprint(r.run),
	}
}

// seed leaves in the state directory what a daemon does.
func (b *hookBars) seed(ctx context.Context, r barRun) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, self, "seed")
	cmd.Env = b.env(r)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("seed: %w: %s", err, out)
	}
	return nil
}

// call runs a program with the event of a run on its stdin, and returns how many
// milliseconds that took and what it printed. The id is that of the prompt and
// of the tool call: the hook drops one that it has seen.
func (b *hookBars) call(ctx context.Context, program string, r barRun, id string) (float64, []byte, error) {
	in, err := json.Marshal(obj{
		"session_id": r.session, "transcript_path": r.path, "cwd": r.cwd, "permission_mode": "acceptEdits", "hook_event_name": r.event,
		"source": "startup", "prompt": "What next?", "prompt_id": fmt.Sprintf("prompt_%s_%d_%s", r.key, r.run, id),
		"tool_name": "Bash", "tool_use_id": fmt.Sprintf("toolu_%s_%d_%s", r.key, r.run, id), "tool_input": obj{"command": "go test ./..."},
		"stop_hook_active": false,
	})
	if err != nil {
		return 0, nil, err
	}
	cmd := exec.CommandContext(ctx, program, note.HomeFlag, b.home) // as init writes it
	var out bytes.Buffer
	cmd.Env, cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = b.env(r), r.cwd, bytes.NewReader(in), &out, &out
	begin := now()
	if err := cmd.Run(); err != nil {
		return 0, nil, fmt.Errorf("%s: %w: %s", program, err, out.Bytes())
	}
	return ms(now().Sub(begin)), out.Bytes(), nil
}

// at is the percentile of some figures.
func at(v []float64, percent int) float64 {
	v = slices.Clone(v)
	slices.Sort(v)
	return v[min(len(v)-1, len(v)*percent/100)]
}

// compare runs the other product's hook, and ours, as Claude Code runs them,
// and takes the shell's own start off both.
func (b *hookBars) compare(ctx context.Context, subject string) (bar, error) {
	row := bar{what: "hook, PreToolUse, against claude-subconscious", bar: fmt.Sprintf("≥ %.0f × faster", otherTimes), value: "not compared: SUBCONSCIOUS_ROOT is not set", verdict: "–"}
	if os.Getenv("SUBCONSCIOUS_ROOT") == "" {
		return row, nil
	}
	if err := adopt(); err != nil {
		return bar{}, err
	}
	stub := NewStub()
	if err := stub.Start(ctx, "127.0.0.1:0"); err != nil {
		return bar{}, err
	}
	var subjects []*Subject
	for _, file := range []string{filepath.Join(filepath.Dir(subject), "undersong.json"), subject} {
		s, err := loadSubject(file, b.work, stub.base)
		if err != nil {
			return bar{}, fmt.Errorf("%s: %w", file, err)
		}
		stop, err := s.startServices(ctx)
		if err != nil {
			return bar{}, err
		}
		defer stop()
		subjects = append(subjects, s)
	}
	path := filepath.Join(b.work, "small.jsonl")
	meta, err := GenTranscript(path, 64<<10, 2, "", "/home/dev/project")
	if err != nil {
		return bar{}, err
	}
	const runs, warm = 10, 2
	walls := make([][]float64, 3)
	for i := range runs + warm {
		shell := runEvent(ctx, []hookCmd{{Command: "true", Timeout: 10}}, nil, os.Environ(), b.work, b.work)
		took := []float64{shell.WallMs}
		for j, s := range subjects {
			sm, err := s.once(ctx, scenario{Event: "PreToolUse", Case: "nothing new"}, transcript{path, meta}, stub, i, 0)
			if err != nil {
				return bar{}, err
			}
			if slices.ContainsFunc(sm.Exit, func(code int) bool { return code != 0 }) {
				return bar{}, fmt.Errorf("a hook of %s exits with %v", s.Name, sm.Exit)
			}
			// It ends early, and with 0, where it finds no key or no state.
			if theirs := j == len(subjects)-1; theirs && sm.HTTP == 0 {
				return bar{}, fmt.Errorf("the hook of %s asked Letta for nothing", s.Name)
			}
			took = append(took, sm.WallMs)
		}
		for j := range walls {
			if i >= warm {
				walls[j] = append(walls[j], took[j])
			}
		}
	}
	shell, ours, theirs := at(walls[0], 50), at(walls[1], 50), at(walls[2], 50)
	net := cmp.Or(max(ours-shell, 0), 0.1) // what cannot be told from nothing
	ratio := (theirs - shell) / net
	row.value, row.verdict = fmt.Sprintf("%.0f × (%.1f ms against %.1f ms, the shell's %.1f ms taken off)", ratio, net, theirs-shell, shell), verdict(ratio >= otherTimes)
	return row, nil
}
