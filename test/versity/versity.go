// Package versity starts versitygw, a real S3 server, for tests and the demo:
// real signatures, presigned URLs and conditional writes on plain files.
//
// Everything is in one folder: data/ has the objects, meta/ what S3 knows of
// them, credentials.json the root credentials, versitygw.log what the server
// says. A server started again on the same folder has the same objects and
// credentials. It listens on loopback only and, on Linux, dies with the process
// that started it, even when that is killed.
package versity

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/undersong-dev/undersong/test/tools"
)

// Region is the region that the server says it is in.
const Region = "us-east-1"

const (
	startTimeout = 30 * time.Second
	stopTimeout  = 5 * time.Second
	pollInterval = 10 * time.Millisecond
	// attempts is how often another free port is tried: between finding one
	// and listening on it another process may take it.
	attempts = 5
)

// Options say where the server runs.
type Options struct {
	// Dir is the folder for everything. It is made if it is not there.
	Dir string
	// Address is host and port to listen on. Empty means a free port of
	// 127.0.0.1.
	Address string
}

// Server is a running versitygw.
type Server struct {
	// Endpoint is the URL of the server, http://host:port.
	Endpoint string
	// AccessKeyID and SecretAccessKey are the root credentials.
	AccessKeyID, SecretAccessKey string

	tool, data string
	cancel     context.CancelFunc
	done       chan struct{} // closed when the process has ended
}

// Start starts the server and returns when it answers. ctx bounds the start
// only: the server runs until Stop.
func Start(ctx context.Context, o Options) (*Server, error) {
	tool, err := tools.Path("versitygw")
	if err != nil {
		return nil, err
	}
	if o.Dir == "" {
		return nil, errors.New("start versitygw: no folder given")
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("start versitygw: %w", err)
	}
	for _, name := range []string{"data", "meta"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o700); err != nil {
			return nil, fmt.Errorf("start versitygw: %w", err)
		}
	}
	id, secret, err := credentials(filepath.Join(dir, "credentials.json"))
	if err != nil {
		return nil, fmt.Errorf("start versitygw: %w", err)
	}

	var errs []error
	for range attempts {
		s := &Server{AccessKeyID: id, SecretAccessKey: secret, tool: tool, data: filepath.Join(dir, "data"), done: make(chan struct{})}
		err := s.start(ctx, dir, o.Address)
		if err == nil {
			return s, nil
		}
		errs = append(errs, err)
		if o.Address != "" || ctx.Err() != nil {
			break
		}
	}
	return nil, errors.Join(errs...)
}

// start is one attempt. When it fails nothing is left running.
func (s *Server) start(ctx context.Context, dir, address string) error {
	if address == "" {
		var err error
		if address, err = freeAddress(ctx); err != nil {
			return fmt.Errorf("start versitygw: %w", err)
		}
	}
	log, err := os.OpenFile(filepath.Join(dir, "versitygw.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("start versitygw: %w", err)
	}
	defer func() { _ = log.Close() }() // the process has its own descriptor
	begin, err := log.Seek(0, io.SeekEnd)
	if err != nil {
		return fmt.Errorf("start versitygw: %w", err)
	}

	// A health path nobody can guess proves that it is this process that
	// answers, not another one that holds the port.
	health := "/ready-" + rand.Text()
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s.cancel = cancel
	// No --keep-alive: where the server refuses a request before its body, it
	// would read the body as the next request.
	cmd := exec.CommandContext(life, s.tool,
		"--port", address, "--region", Region, "--health", health, "--quiet",
		"posix", "--sidecar", filepath.Join(dir, "meta"), s.data)
	// In the environment, not among the arguments, which every user can list.
	cmd.Env = append(os.Environ(), "ROOT_ACCESS_KEY_ID="+s.AccessKeyID, "ROOT_SECRET_ACCESS_KEY="+s.SecretAccessKey)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, log, log
	cmd.SysProcAttr = dieWithParent()
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = stopTimeout

	started := make(chan error, 1)
	go func() {
		defer close(s.done)
		// The kernel kills the child when the thread that forked it ends, so
		// this one lives as long as the child.
		runtime.LockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // ends by our signal or by its own fault; the log has why
		}
	}()
	if err := <-started; err != nil {
		cancel()
		return fmt.Errorf("start versitygw: %w", err)
	}
	s.Endpoint = "http://" + address
	if err := s.waitReady(ctx, s.Endpoint+health); err != nil {
		s.Stop()
		return fmt.Errorf("start versitygw on %s: %w%s", address, err, tail(log.Name(), begin))
	}
	return nil
}

// waitReady polls until the server answers, has ended, or it takes too long.
func (s *Server) waitReady(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		if res, err := client.Do(req); err == nil {
			_ = res.Body.Close() // nothing in it is of interest
			if res.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-s.done:
			return errors.New("it ended at once")
		case <-ctx.Done():
			return fmt.Errorf("it does not answer: %w", context.Cause(ctx))
		case <-tick.C:
		}
	}
}

// MakeBucket makes a bucket. One that is there already is success.
func (s *Server) MakeBucket(ctx context.Context, name string) error {
	if _, err := os.Stat(filepath.Join(s.data, name)); err == nil {
		return nil // this backend's buckets are folders
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.tool,
		"admin", "--endpoint-url", s.Endpoint, "--region", Region, "create-bucket", "--bucket", name, "--owner", s.AccessKeyID)
	cmd.Env = append(os.Environ(), "ADMIN_ACCESS_KEY_ID="+s.AccessKeyID, "ADMIN_SECRET_ACCESS_KEY="+s.SecretAccessKey)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("make bucket %s: %w: %s", name, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// Stop ends the server and waits until it has ended. It may be called more than
// once.
func (s *Server) Stop() {
	s.cancel()
	<-s.done
}

// credentials reads the root credentials, or makes and keeps them.
func credentials(path string) (id, secret string, err error) {
	var kept struct {
		AccessKeyID     string `json:"accessKeyID"`
		SecretAccessKey string `json:"secretAccessKey"`
	}
	text, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		kept.AccessKeyID, kept.SecretAccessKey = rand.Text(), rand.Text()+rand.Text()
		if text, err = json.Marshal(kept); err != nil {
			return "", "", err
		}
		if err := os.WriteFile(path, text, 0o600); err != nil {
			return "", "", err
		}
	case err != nil:
		return "", "", err
	default:
		if err := json.Unmarshal(text, &kept); err != nil || kept.AccessKeyID == "" || kept.SecretAccessKey == "" {
			return "", "", fmt.Errorf("read %s: not the credentials of a server", path)
		}
	}
	return kept.AccessKeyID, kept.SecretAccessKey, nil
}

// freeAddress returns an address of 127.0.0.1 that is free now.
func freeAddress(ctx context.Context) (string, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a free port: %w", err)
	}
	return l.Addr().String(), l.Close()
}

// tail returns what was added to the log since, for an error.
func tail(path string, begin int64) string {
	const most = 1 << 10
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }() // only read
	text, err := io.ReadAll(io.NewSectionReader(f, begin, most))
	if err != nil || len(text) == 0 {
		return ""
	}
	return ": " + strings.TrimSpace(string(text))
}
