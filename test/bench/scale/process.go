package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/undersong-dev/undersong/test/stack"
)

// running is a controller at work.
type running struct {
	*stack.Process
	metrics, profiles string
}

// start starts the controller. The moment is that of the process's start.
func (c *company) start(ctx context.Context, more ...string) (*running, time.Time, error) {
	metrics, err := free(ctx)
	if err != nil {
		return nil, time.Time{}, err
	}
	profiles, err := free(ctx)
	if err != nil {
		return nil, time.Time{}, err
	}
	c.stack.ControllerFlags = append([]string{
		"--metrics-bind-address=" + metrics, "--pprof-bind-address=" + profiles,
		// One request for each Session, spread over an hour, would make a count
		// of what a start costs depend on how long one waits.
		"--compare-within=1000h",
		// A machine that is this busy does not renew a short lease in time. The
		// one before gave it back.
		"--leader-elect-lease-duration=120s", "--leader-elect-renew-deadline=90s", "--leader-elect-retry-period=500ms",
	}, more...)
	begun := now()
	p, err := c.stack.StartController(ctx)
	if err != nil {
		return nil, time.Time{}, err
	}
	return &running{p, metrics, profiles}, begun, nil
}

// free is an address on loopback that is free now.
func free(ctx context.Context) (string, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// count sums the samples of a metric whose labels have all of these.
func (p *running) count(ctx context.Context, name string, labels ...string) (float64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.metrics+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer func() { _ = res.Body.Close() }() // it was read to its end
	total := 0.0
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(nil, 1<<20)
next:
	for lines.Scan() {
		line := lines.Text()
		if !strings.HasPrefix(line, name+"{") && !strings.HasPrefix(line, name+" ") {
			continue
		}
		for _, l := range labels {
			if !strings.Contains(line, l) {
				continue next
			}
		}
		v, err := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64)
		if err != nil {
			return 0, fmt.Errorf("read %s: %w", name, err)
		}
		total += v
	}
	return total, lines.Err()
}

// profile keeps a Go profile in a file.
func (p *running) profile(ctx context.Context, dir, name, query string) error {
	if dir == "" {
		return nil
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.profiles+"/debug/pprof/"+query, nil)
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }() // it was read to its end
	data, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, name), data, 0o600)
}

// quiet waits until the controller's queues have been empty for a while.
func (p *running) quiet(ctx context.Context) error {
	last, since := -1.0, now()
	return p.await(ctx, func() error {
		depth, err := p.count(ctx, "workqueue_depth")
		if err != nil {
			return err
		}
		done, err := p.count(ctx, "controller_runtime_reconcile_total")
		if err != nil {
			return err
		}
		if depth > 0 || done != last {
			last, since = done, now()
		}
		if now().Sub(since) < 3*time.Second {
			return fmt.Errorf("%.0f objects wait, %.0f were looked at", depth, done)
		}
		return nil
	})
}

// await waits until something holds, or the controller is no more.
func (p *running) await(ctx context.Context, holds func() error) error {
	ended := false
	err := stack.Eventually(ctx, patience, func() error {
		select {
		case <-p.Exited():
			ended = true
			return nil
		default:
			return holds()
		}
	})
	if ended {
		return errors.New("the controller ended")
	}
	return err
}

// rss is the resident memory of a process, in MB.
func rss(pid int) float64 { return memory(pid, "VmRSS:") }

// peak is the most it had.
func peak(pid int) float64 { return memory(pid, "VmHWM:") }

func memory(pid int, field string) float64 {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, field); ok {
			kb, _ := strconv.ParseFloat(strings.Fields(rest)[0], 64) // the kernel's form
			return kb / 1024
		}
	}
	return 0
}

// clockTicks is the kernel's unit of the CPU times in /proc, in each second.
const clockTicks = 100

// cpu is what this process and those that it started have computed, in seconds,
// by name.
func cpu() map[string]float64 {
	self := os.Getpid()
	used := map[string]float64{}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is well-formed
	for _, path := range stats {
		data, err := os.ReadFile(path)
		if err != nil {
			continue // it ended
		}
		pid, rest, _ := strings.Cut(string(data), " (")
		name, rest, _ := strings.Cut(rest, ") ")
		f := strings.Fields(rest)
		if len(f) < 13 || (f[1] != strconv.Itoa(self) && pid != strconv.Itoa(self)) {
			continue
		}
		user, _ := strconv.ParseFloat(f[11], 64) // the kernel's form
		system, _ := strconv.ParseFloat(f[12], 64)
		if pid == strconv.Itoa(self) {
			name = "bench"
		}
		used[name] += (user + system) / clockTicks
	}
	return used
}

// spent says what each process computed since before, for each of n.
func spent(before map[string]float64, n int) string {
	var parts []string
	for name, s := range cpu() {
		if ms := 1000 * (s - before[name]) / float64(max(n, 1)); ms >= 0.05 {
			parts = append(parts, fmt.Sprintf("%s %.1f ms", name, ms))
		}
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}
