package kube

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	// pollEvery is short because every test package waits for it once.
	pollEvery = 50 * time.Millisecond
	// stopWithin is how long etcd may take to close its files before it is
	// killed.
	stopWithin = 10 * time.Second
	// tailBytes of a child's output are kept for the error that says why it
	// did not start.
	tailBytes = 4 << 10
)

// process is one child.
type process struct {
	cmd  *exec.Cmd
	tail *tail
	done chan struct{} // closed when the child has ended
}

// run starts a child in its own process group.
func run(path string, args []string, logs io.Writer) (*process, error) {
	p := &process{
		cmd:  exec.Command(path, args...), //nolint:noctx // our own tools; Stop ends them, not a context
		tail: &tail{},
		done: make(chan struct{}),
	}
	out := io.Writer(p.tail)
	if logs != nil {
		out = io.MultiWriter(p.tail, logs)
	}
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.cmd.WaitDelay = time.Second
	p.cmd.SysProcAttr = attributes()

	started := make(chan error)
	go func() {
		// Linux sends the parent-death signal when the thread that forked
		// ends, not the process. The thread is therefore held for the child's
		// whole life; it ends with this goroutine.
		runtime.LockOSThread()
		defer close(p.done)
		err := p.cmd.Start()
		started <- err
		if err == nil {
			_ = p.cmd.Wait() // the exit code is in ProcessState
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", filepath.Base(path), err)
	}
	return p, nil
}

// ready waits until url answers 200. It fails at once when the child ends.
func (p *process) ready(ctx context.Context, url string, trust *tls.Config) error {
	transport := &http.Transport{TLSClientConfig: trust, DisableKeepAlives: true}
	client := &http.Client{Transport: transport, Timeout: 2 * time.Second}
	name := filepath.Base(p.cmd.Path)
	err := wait.PollUntilContextCancel(ctx, pollEvery, true, func(ctx context.Context) (bool, error) {
		select {
		case <-p.done:
			return false, fmt.Errorf("ended: %s", p.cmd.ProcessState)
		default:
		}
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
		if err != nil {
			return false, err
		}
		response, err := client.Do(request)
		if err != nil {
			return false, nil //nolint:nilerr // not listening yet
		}
		_ = response.Body.Close() // nothing was read
		return response.StatusCode == http.StatusOK, nil
	})
	if err != nil {
		return fmt.Errorf("wait for %s: %w; its last output:\n%s", name, err, p.tail)
	}
	return nil
}

// kill ends the child at once and waits for it.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended by itself
	<-p.done
}

// stop asks the child to end, and kills it when it takes too long.
func (p *process) stop() {
	if err := p.cmd.Process.Signal(os.Interrupt); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.kill() // Windows cannot signal
		return
	}
	timer := time.NewTimer(stopWithin)
	defer timer.Stop()
	select {
	case <-p.done:
	case <-timer.C:
		p.kill()
	}
}

// tail keeps the end of what was written to it.
type tail struct {
	mu   sync.Mutex
	data []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.data = append(t.data, p...)
	if over := len(t.data) - tailBytes; over > 0 {
		t.data = append(t.data[:0], t.data[over:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.data)
}

// shared lets two children write to one writer.
type shared struct {
	mu sync.Mutex
	w  io.Writer
}

func (s *shared) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.w.Write(p)
}
