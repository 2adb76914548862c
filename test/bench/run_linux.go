package main

import (
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
	"sort"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// scenario is one row of the table: an event and what it finds.
type scenario struct {
	Event, Case string
	Size        string // Stop only
	Whisper     bool
	WholeFile   bool
}

// transcript is a generated file.
type transcript struct {
	path string
	meta *TranscriptMeta
}

// sample is one run of one event.
type sample struct {
	WallMs, CPUMs, OneRSSMB, TreeRSSMB float64
	BgWallMs, BgCPUMs, BgRSSMB         float64
	HTTP                               int
	Stdout                             int
	Exit                               []int
	TimedOut                           bool
	OtherCPU                           float64 // share of the machine that others used meanwhile
	Note                               string
}

// key names a scenario in an id.
func (s scenario) key() string {
	return strings.NewReplacer(" ", "-", ",", "").Replace(s.Event + "-" + s.Case)
}

// conversation is the one that every session of the bench is mapped to.
const conversation = "conv-11111111-2222-4333-8444-999999999999"

func cmdRun(ctx context.Context, args []string) error {
	fs := flag.NewFlagSet("run", flag.ContinueOnError)
	var files multi
	fs.Var(&files, "subject", "subject JSON file (repeat for a side-by-side run)")
	runs := fs.Int("runs", 10, "measured runs per case")
	warm := fs.Int("warmup", 2, "unmeasured runs per case first")
	sizes := fs.String("sizes", "1MB,10MB,100MB", "transcript sizes for Stop")
	delay := fs.Int("delay", 0, "Letta stub: delay before each answer, ms")
	quiet := fs.Float64("quiet", 0.10, "repeat a run (up to 8 times) when other processes used more than this share of the machine; 0 = never")
	only := fs.String("only", "", "run only cases whose \"event case\" contains this")
	work := fs.String("work", "", "scratch directory (default: a new temporary one)")
	jsonOut := fs.String("json", "", "also write every sample here")
	mdOut := fs.String("md", "", "also write the table here")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if len(files) == 0 {
		return errors.New("at least one -subject")
	}
	if *work == "" {
		d, err := os.MkdirTemp("", "hookbench-")
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(d) }() // scratch
		*work = d
	}
	if err := adopt(); err != nil {
		return err
	}
	stub := NewStub()
	if err := stub.Start(ctx, "127.0.0.1:0"); err != nil {
		return err
	}
	var subs []*Subject
	for _, f := range files {
		s, err := loadSubject(f, *work, stub.base)
		if err != nil {
			return fmt.Errorf("%s: %w", f, err)
		}
		subs = append(subs, s)
		stop, err := s.startServices(ctx)
		if err != nil {
			return err
		}
		defer stop()
	}

	list := []scenario{
		{Event: "SessionStart", Case: "new session"},
		{Event: "UserPromptSubmit", Case: "nothing new"},
		{Event: "UserPromptSubmit", Case: "one whisper", Whisper: true},
		{Event: "PreToolUse", Case: "nothing new"},
		{Event: "PreToolUse", Case: "one whisper", Whisper: true},
	}
	trs := map[string]transcript{}
	for z := range strings.SplitSeq(*sizes, ",") {
		if z = strings.TrimSpace(z); z == "" {
			continue
		}
		n, err := parseSize(z)
		if err != nil {
			return err
		}
		t := transcript{path: filepath.Join(*work, "transcript-"+z+".jsonl")}
		if t.meta, err = GenTranscript(t.path, n, 1, "", "/home/dev/project"); err != nil {
			return err
		}
		trs[z] = t
		list = append(list,
			scenario{Event: "Stop", Case: z + ", last turn new", Size: z},
			scenario{Event: "Stop", Case: z + ", whole file new", Size: z, WholeFile: true})
	}
	small := filepath.Join(*work, "transcript-small.jsonl")
	sm, err := GenTranscript(small, 64<<10, 2, "", "/home/dev/project")
	if err != nil {
		return err
	}
	trs[""] = transcript{small, sm}

	var rows []*row
	floors := []floor{{"sh -c true", "true"}, {"node -e 0", "node -e 0"}}
	if empty, err := emptyProgram(ctx, *work); err != nil {
		fmt.Fprintln(os.Stderr, "no floor of an empty Go program:", err)
	} else {
		floors = append(floors, floor{"empty Go program", "exec " + empty})
	}
	for _, f := range floors {
		if *only != "" {
			break
		}
		r := &row{"floor", f.name, "-", nil}
		for i := -*warm; i < *runs; i++ {
			if *quiet > 0 {
				waitQuiet(*quiet)
			}
			sm := runEvent(ctx, []hookCmd{{Command: f.cmd, Timeout: 10}}, nil, os.Environ(), *work, *work)
			if i >= 0 {
				r.Samples = append(r.Samples, sm)
			}
		}
		rows = append(rows, r)
	}
	for _, sc := range list {
		if !strings.Contains(sc.Event+" "+sc.Case, *only) {
			continue
		}
		cur := map[string]*row{}
		for _, s := range subs {
			cur[s.Name] = &row{sc.Event, sc.Case, s.Name, nil}
			rows = append(rows, cur[s.Name])
		}
		for i := -*warm; i < *runs; i++ {
			for _, s := range subs { // interleaved: drift hits all alike
				var sm sample
				for try := 0; ; try++ {
					if *quiet > 0 && i >= 0 {
						waitQuiet(*quiet)
					}
					var err error
					if sm, err = s.once(ctx, sc, trs[sc.Size], stub, i+*warm, *delay); err != nil {
						return fmt.Errorf("%s %s: %w", s.Name, sc.Event, err)
					}
					if i < 0 || *quiet == 0 || sm.OtherCPU <= *quiet || try == 8 {
						break
					}
				}
				if i >= 0 {
					cur[s.Name].Samples = append(cur[s.Name].Samples, sm)
				}
			}
		}
		fmt.Fprintf(os.Stderr, "done: %s, %s\n", sc.Event, sc.Case)
	}

	table := write(rows, fmt.Sprintf("runs per case %d after %d warm-up; stub delay %d ms; %d CPUs", *runs, *warm, *delay, runtime.NumCPU()), *quiet)
	var out strings.Builder
	out.WriteString(table)
	for z := range strings.SplitSeq(*sizes, ",") {
		if t, ok := trs[strings.TrimSpace(z)]; ok && t.meta != nil && z != "" {
			fmt.Fprintf(&out, "\n%s: %d lines, %d turns, last turn %d lines / %d bytes", z, t.meta.Lines, t.meta.Turns, t.meta.Lines-t.meta.LastTurnIndex, t.meta.LastTurnBytes)
		}
	}
	out.WriteString("\n")
	if _, err := os.Stdout.WriteString(out.String()); err != nil {
		return err
	}
	if *mdOut != "" {
		if err := os.WriteFile(*mdOut, []byte(table), 0o644); err != nil {
			return err
		}
	}
	if *jsonOut != "" {
		j, err := json.MarshalIndent(rows, "", " ")
		if err != nil {
			return err
		}
		return os.WriteFile(*jsonOut, j, 0o644)
	}
	return nil
}

// adopt makes orphans of a hook (detached workers) our children, so that their
// cost can be counted and the next run starts on an idle machine.
func adopt() error {
	if _, _, e := syscall.RawSyscall(syscall.SYS_PRCTL, 36 /* PR_SET_CHILD_SUBREAPER */, 1, 0); e != 0 {
		return e
	}
	return nil
}

// floor is a command that does nothing: no hook can be faster than its like.
type floor struct{ name, cmd string }

// emptyProgram builds a Go program that does nothing.
func emptyProgram(ctx context.Context, work string) (string, error) {
	source, program := filepath.Join(work, "empty.go"), filepath.Join(work, "empty")
	if err := os.WriteFile(source, []byte("package main\n\nfunc main() {}\n"), 0o644); err != nil {
		return "", err
	}
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", program, source).CombinedOutput(); err != nil {
		return "", fmt.Errorf("build: %w: %s", err, out)
	}
	return program, nil
}

// row is one line of the table.
type row struct {
	Event, Case, Subject string
	Samples              []sample
}

// write returns the table.
func write(rows []*row, head string, quiet float64) string {
	var b strings.Builder
	b.WriteString(head + "\n\n")
	b.WriteString("| event | case | subject | wall ms min / median / max | CPU ms | RSS one process MB | RSS tree MB | HTTP | stdout B | exit | left behind: ms / CPU ms / RSS MB |\n")
	b.WriteString("|---|---|---|---|---|---|---|---|---|---|---|\n")
	for _, r := range rows {
		col := func(f func(sample) float64) []float64 {
			var v []float64
			for _, s := range r.Samples {
				v = append(v, f(s))
			}
			sort.Float64s(v)
			return v
		}
		med := func(v []float64) float64 { return (v[(len(v)-1)/2] + v[len(v)/2]) / 2 }
		w := col(func(s sample) float64 { return s.WallMs })
		last := r.Samples[len(r.Samples)-1]
		exit := fmt.Sprint(last.Exit)
		noisy := 0
		for _, s := range r.Samples {
			if quiet > 0 && s.OtherCPU > quiet {
				noisy++
			}
		}
		if noisy > 0 {
			exit += fmt.Sprintf(" (%d noisy)", noisy)
		}
		if slices.ContainsFunc(r.Samples, func(s sample) bool { return s.TimedOut }) {
			exit += " TIMEOUT"
		}
		bg := "-"
		if v := med(col(func(s sample) float64 { return s.BgWallMs })); v > 0 {
			bg = fmt.Sprintf("%.0f / %.0f / %.0f", v, med(col(func(s sample) float64 { return s.BgCPUMs })), med(col(func(s sample) float64 { return s.BgRSSMB })))
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %.0f / %.0f / %.0f | %.0f | %.0f | %.0f | %d | %d | %s | %s |\n", r.Event, r.Case, r.Subject,
			w[0], med(w), w[len(w)-1], med(col(func(s sample) float64 { return s.CPUMs })),
			med(col(func(s sample) float64 { return s.OneRSSMB })), med(col(func(s sample) float64 { return s.TreeRSSMB })),
			last.HTTP, last.Stdout, exit, bg)
	}
	return b.String()
}

// multi is a flag that may be given several times.
type multi []string

func (m *multi) String() string     { return strings.Join(*m, ",") }
func (m *multi) Set(s string) error { *m = append(*m, s); return nil }

// once lays out the local state files as claude-subconscious writes them, then
// runs the event's commands.
func (s *Subject) once(ctx context.Context, sc scenario, t transcript, stub *Stub, n, delay int) (sample, error) {
	cwd := filepath.Join(s.work, "ws")
	if err := os.RemoveAll(cwd); err != nil {
		return sample{}, err
	}
	state := filepath.Join(cwd, ".letta", "claude")
	conf := filepath.Join(s.work, "home", ".letta", "claude-subconscious")
	for _, d := range []string{state, conf} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return sample{}, err
		}
	}
	sid := t.meta.SessionID
	index := t.meta.LastTurnIndex - 1
	if sc.WholeFile {
		index = -1
	}
	stub.mu.Lock()
	stub.reset()
	for i := range 30 {
		stub.say(conversation, newText(int64(i)).prose(400))
	}
	seen := stub.convs[conversation][59]["id"]
	if sc.Whisper {
		stub.say(conversation, newText(99).prose(600))
	}
	blocks := map[string]any{}
	for _, b := range stub.blocks {
		blocks[fmt.Sprint(b["label"])] = b["value"]
	}
	stub.delay = time.Duration(delay) * time.Millisecond
	stub.mu.Unlock()

	write := func(p string, v any) error {
		b, err := json.MarshalIndent(v, "", "  ")
		if err != nil {
			return err
		}
		return os.WriteFile(p, b, 0o644)
	}
	if err := write(filepath.Join(conf, "config.json"), obj{"agentId": StubAgentID, "importedAt": "2026-01-05T09:00:00.000Z"}); err != nil {
		return sample{}, err
	}
	if sc.Event == "SessionStart" {
		sid = fmt.Sprintf("00000000-0000-4000-8000-%012d", n)
	} else {
		if err := write(filepath.Join(state, "conversations.json"), obj{sid: obj{"conversationId": conversation, "agentId": StubAgentID}}); err != nil {
			return sample{}, err
		}
		if err := write(filepath.Join(state, "session-"+sid+".json"), obj{
			"sessionId": sid, "conversationId": conversation,
			"lastProcessedIndex": index, "startedAt": "2026-01-05T09:00:00.000Z", "lastBlockValues": blocks, "lastSeenMessageId": seen,
		}); err != nil {
			return sample{}, err
		}
	}
	in := obj{"session_id": sid, "transcript_path": t.path, "cwd": cwd, "permission_mode": "acceptEdits", "hook_event_name": sc.Event}
	switch sc.Event {
	case "SessionStart":
		in["source"], in["model"] = "startup", "claude-opus-4-6"
	case "UserPromptSubmit":
		in["prompt"] = newText(3).prose(400)
	case "PreToolUse":
		// A hook may drop a call that it has seen: each one is new.
		in["tool_name"], in["tool_use_id"] = "Bash", fmt.Sprintf("toolu_%s_%d", sc.key(), n)
		in["tool_input"] = obj{"command": "go test ./...", "description": "run the tests"}
	case "Stop":
		in["stop_hook_active"], in["last_assistant_message"] = false, newText(4).prose(600)
	}
	in["prompt_id"] = fmt.Sprintf("prompt_%s_%d", sc.key(), n)
	stdin, err := json.Marshal(in)
	if err != nil {
		return sample{}, err
	}
	env := s.environ(cwd)
	if s.Prepare != "" {
		c := exec.CommandContext(ctx, "/bin/sh", "-c", s.Prepare)
		c.Dir = cwd
		c.Env = append(env, "HOOKBENCH_EVENT="+sc.Event, "HOOKBENCH_CASE="+sc.Case, "HOOKBENCH_SESSION="+sid, "HOOKBENCH_CONVERSATION="+conversation,
			"HOOKBENCH_CWD="+cwd, "HOOKBENCH_TRANSCRIPT="+t.path, "HOOKBENCH_INDEX="+strconv.Itoa(index), "HOOKBENCH_RUN="+strconv.Itoa(n))
		if out, err := c.CombinedOutput(); err != nil {
			return sample{}, fmt.Errorf("prepare: %w: %s", err, out)
		}
	}
	stub.takeCounts()
	sm := runEvent(ctx, s.events[sc.Event], stdin, env, cwd, s.work)
	_, sm.HTTP = stub.takeCounts()
	return sm, nil
}
