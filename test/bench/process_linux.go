package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// keep are our children that are services, not orphans.
var keep = map[int]bool{}

// runEvent runs the commands of one event at once, as Claude Code does, waits
// for all of them, then for whatever they left running.
func runEvent(ctx context.Context, cmds []hookCmd, stdin []byte, env []string, cwd, work string) (sm sample) {
	gnuTime := "/usr/bin/time"
	if _, err := os.Stat(gnuTime); err != nil {
		gnuTime = ""
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	tr := newTracker()
	sm.Exit = make([]int, len(cmds))
	busy0, self0 := machineBusyMs(), selfCPUMs()
	begin := now()
	for i, h := range cmds {
		argv := []string{"/bin/sh", "-c", h.Command}
		rssFile := filepath.Join(work, fmt.Sprintf("rss-%d", i))
		if gnuTime != "" {
			// exec keeps the caller's high-water mark in ru_maxrss; a small
			// parent in between keeps ours out of the figure.
			argv = append([]string{gnuTime, "-q", "-f", "%M", "-o", rssFile}, argv...)
		}
		c := exec.CommandContext(ctx, argv[0], argv[1:]...)
		var out bytes.Buffer
		c.Stdin, c.Stdout, c.Env, c.Dir = bytes.NewReader(stdin), &out, env, cwd
		c.WaitDelay = 2 * time.Second
		c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if err := c.Start(); err != nil {
			sm.Exit[i], sm.Note = -1, err.Error()
			continue
		}
		tr.add(c.Process.Pid)
		wg.Go(func() {
			limit := h.Timeout
			if limit == 0 {
				limit = 60
			}
			kill := time.AfterFunc(time.Duration(limit*float64(time.Second)), func() {
				mu.Lock()
				sm.TimedOut = true
				mu.Unlock()
				_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL)
			})
			_ = c.Wait() // the exit code says it
			kill.Stop()
			tr.remove(c.Process.Pid)
			ru, ok := c.ProcessState.SysUsage().(*syscall.Rusage)
			if !ok {
				return
			}
			rss := float64(ru.Maxrss) / 1024
			if b, err := os.ReadFile(rssFile); err == nil && gnuTime != "" {
				if v, err := strconv.ParseFloat(strings.TrimSpace(string(b)), 64); err == nil {
					rss = v / 1024
				}
			}
			mu.Lock()
			defer mu.Unlock()
			sm.Exit[i] = c.ProcessState.ExitCode()
			sm.CPUMs += cpuMs(ru)
			sm.OneRSSMB = max(sm.OneRSSMB, rss)
			sm.Stdout += out.Len()
		})
	}
	wg.Wait()
	sm.WallMs = ms(now().Sub(begin))
	if other := machineBusyMs() - busy0 - sm.CPUMs - (selfCPUMs() - self0); other > 0 {
		sm.OtherCPU = other / (sm.WallMs * float64(runtime.NumCPU()))
	}
	sm.TreeRSSMB = tr.takePeak()

	// Whatever is still ours now was left behind by the hooks.
	bg := now()
	seen := false
	for now().Sub(bg) < 2*time.Minute {
		kids := orphans()
		if len(kids) == 0 {
			break
		}
		tr.set(kids)
		var ru syscall.Rusage
		var ws syscall.WaitStatus
		for _, pid := range kids {
			if p, _ := syscall.Wait4(pid, &ws, syscall.WNOHANG, &ru); p == pid {
				seen = true
				sm.BgCPUMs += cpuMs(&ru)
			}
		}
		pause(2 * time.Millisecond)
	}
	for _, pid := range orphans() { // ours by parentage: nothing else is touched
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
		_, _ = syscall.Wait4(pid, nil, 0, nil) // as it then says
		sm.Note = "left-behind process killed after 2 min"
	}
	if seen {
		sm.BgWallMs, sm.BgRSSMB = ms(now().Sub(bg)), tr.takePeak()
	}
	tr.close()
	return sm
}

// machineBusyMs is the CPU time that all processes have used since boot.
func machineBusyMs() float64 {
	b, _ := os.ReadFile("/proc/stat")
	f := strings.Fields(strings.SplitN(string(b), "\n", 2)[0])
	sum := 0.0
	for i, v := range f[1:] {
		if i == 3 || i == 4 || i > 7 { // idle, iowait; guest time is in user time
			continue
		}
		x, _ := strconv.ParseFloat(v, 64)
		sum += x
	}
	return sum * 10 // USER_HZ is 100
}

func selfCPUMs() float64 {
	var ru syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &ru)
	return cpuMs(&ru)
}

// waitQuiet waits, at most a minute, for others to leave the machine alone.
func waitQuiet(limit float64) {
	for range 240 {
		b, s := machineBusyMs(), selfCPUMs()
		pause(250 * time.Millisecond)
		if other := machineBusyMs() - b - (selfCPUMs() - s); other/(250*float64(runtime.NumCPU())) <= limit {
			return
		}
	}
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func cpuMs(ru *syscall.Rusage) float64 {
	return float64(ru.Utime.Sec+ru.Stime.Sec)*1000 + float64(ru.Utime.Usec+ru.Stime.Usec)/1000
}

func children(pid int) (out []int) {
	dir := fmt.Sprintf("/proc/%d/task", pid)
	tasks, _ := os.ReadDir(dir)
	for _, t := range tasks {
		b, _ := os.ReadFile(dir + "/" + t.Name() + "/children")
		for f := range strings.FieldsSeq(string(b)) {
			if p, err := strconv.Atoi(f); err == nil {
				out = append(out, p)
			}
		}
	}
	return out
}

func orphans() (out []int) {
	for _, p := range children(os.Getpid()) {
		if !keep[p] {
			out = append(out, p)
		}
	}
	return out
}

// tracker samples the summed RSS of process trees every few milliseconds.
type tracker struct {
	mu    sync.Mutex
	roots map[int]bool
	peak  float64
	done  chan struct{}
}

func newTracker() *tracker {
	t := &tracker{roots: map[int]bool{}, done: make(chan struct{})}
	go func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-t.done:
				return
			case <-tick.C:
			}
			t.mu.Lock()
			sum := 0.0
			for p := range t.roots {
				sum += treeRSS(p, 0)
			}
			t.peak = max(t.peak, sum)
			t.mu.Unlock()
		}
	}()
	return t
}

func treeRSS(pid, depth int) float64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil || depth > 16 {
		return 0
	}
	f := strings.Fields(string(b))
	pages, _ := strconv.ParseFloat(f[1], 64)
	sum := pages * float64(os.Getpagesize()) / (1 << 20)
	for _, c := range children(pid) {
		sum += treeRSS(c, depth+1)
	}
	return sum
}

func (t *tracker) add(p int)    { t.mu.Lock(); t.roots[p] = true; t.mu.Unlock() }
func (t *tracker) remove(p int) { t.mu.Lock(); delete(t.roots, p); t.mu.Unlock() }
func (t *tracker) set(ps []int) {
	t.mu.Lock()
	t.roots = map[int]bool{}
	for _, p := range ps {
		t.roots[p] = true
	}
	t.mu.Unlock()
}

func (t *tracker) takePeak() float64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.peak
	t.peak = 0
	return p
}
func (t *tracker) close() { close(t.done) }

// cmdHold holds a lock on a file until it is told to end.
func cmdHold(ctx context.Context, args []string) error {
	if len(args) != 1 {
		return errUsage
	}
	f, err := os.OpenFile(args[0], os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // lets go
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}
