// Package archivedtest starts a real archived Letta server (0.16, the last
// that speaks the REST API) for tests, with a scripted model behind it: no
// network beyond loopback, and no cost.
//
// make e2e-letta installs it. The server needs PostgreSQL and Redis; both come
// with it and are started beside it, each on a port of its own, with their
// state in one folder. On Linux all of them die with the process that started
// them. A start takes half a minute, so that a suite shares one server.
package archivedtest

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/undersong-dev/undersong/internal/letta/modelstub"
)

// Key is the server's password, which is its one key.
const Key = "key-of-the-test-server"

// ModelKey is the key of the model's provider.
const ModelKey = "sk-key-of-the-test-model"

// Model is the handle of the model.
const Model = "openai-proxy/" + modelstub.Model

// ErrNotInstalled says that the server is not there.
var ErrNotInstalled = errors.New("the archived server is not installed; run: make letta-archived")

// lockPrefix begins the server's keys in Redis of conversations with a turn.
const lockPrefix = "conversation:lock:"

const (
	startTimeout = 15 * time.Minute // Python reads half a gigabyte at its first start, perhaps beside compilers
	stopTimeout  = 20 * time.Second
	poll         = 100 * time.Millisecond
)

// launch makes the tables, which the package does not, and runs the server.
//
//go:embed launch.py
var launch string

// Server is a real archived server with its database, Redis and model.
type Server struct {
	// URL is the base URL.
	URL string
	// Model answers for the provider.
	Model *modelstub.Server

	install, dir            string
	model                   string // URL
	postgres, redis, server *process
	ports                   struct{ postgres, redis, server string }
}

// process is one child.
type process struct {
	cancel context.CancelFunc
	done   chan struct{}
	log    string
}

// Installed reports ErrNotInstalled unless the server is there.
func Installed(install string) error {
	if _, err := os.Stat(filepath.Join(install, "stamp")); err != nil {
		return ErrNotInstalled
	}
	return nil
}

// Start starts everything and returns when the server is ready. install is
// the folder that make letta-archived fills. ctx bounds the start, and the
// model's life. Stop must be called, also after an error.
func Start(ctx context.Context, install string) (s *Server, err error) {
	s = &Server{Model: modelstub.New(modelstub.Options{}), install: install}
	if err := Installed(install); err != nil {
		return s, err
	}
	if s.model, err = s.Model.Start(ctx); err != nil {
		return s, err
	}
	// Not below a test's own folder: PostgreSQL refuses to run as root, and
	// another user must reach its files.
	if s.dir, err = os.MkdirTemp("", "undersong-letta-"); err != nil {
		return s, err
	}
	if err := os.Chmod(s.dir, 0o711); err != nil { //nolint:gosec // G302: the user of the database passes through
		return s, err
	}
	for _, port := range []*string{&s.ports.postgres, &s.ports.redis, &s.ports.server} {
		if *port, err = freePort(ctx); err != nil {
			return s, err
		}
	}
	s.URL = "http://127.0.0.1:" + s.ports.server
	if err := s.startPostgres(ctx); err != nil {
		return s, fmt.Errorf("start PostgreSQL: %w", err)
	}
	s.redis, err = s.start(ctx, "redis", []string{
		filepath.Join(install, "venv", "bin", "redis-server"), "--port", s.ports.redis, "--bind", "127.0.0.1",
		"--save", "", "--appendonly", "no", "--dir", s.dir,
	}, nil, false)
	if err != nil {
		return s, err
	}
	return s, s.Run(ctx)
}

func freePort(ctx context.Context) (string, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a port: %w", err)
	}
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, errors.Join(err, l.Close())
}

func (s *Server) startPostgres(ctx context.Context) error {
	found, err := filepath.Glob(filepath.Join(s.install, "venv", "lib", "python3*", "site-packages", "pgserver", "pginstall", "bin"))
	if err != nil || len(found) != 1 {
		return ErrNotInstalled
	}
	data := filepath.Join(s.dir, "postgres")
	if err := os.Mkdir(data, 0o700); err != nil {
		return err
	}
	if err := giveAway(data); err != nil {
		return err
	}
	init, err := s.start(ctx, "initdb", []string{
		filepath.Join(found[0], "initdb"), "-D", data, "-A", "trust", "-U", "letta", "-E", "UTF8", "--locale=C", "--no-sync",
	}, nil, true)
	if err != nil {
		return err
	}
	select {
	case <-init.done:
	case <-ctx.Done():
		return ctx.Err()
	}
	s.postgres, err = s.start(ctx, "postgres", []string{
		filepath.Join(found[0], "postgres"), "-D", data, "-h", "127.0.0.1", "-p", s.ports.postgres, "-k", "",
		"-F", "-c", "full_page_writes=off", "-c", "max_connections=200",
	}, nil, true)
	if err != nil {
		return err
	}
	return s.wait(ctx, s.postgres, func(ctx context.Context) bool {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", "127.0.0.1:"+s.ports.postgres)
		return err == nil && conn.Close() == nil
	})
}

// Run starts the server again on its state and port after Kill.
func (s *Server) Run(ctx context.Context) error {
	home := filepath.Join(s.dir, "home")
	if err := os.MkdirAll(home, 0o700); err != nil {
		return err
	}
	var err error
	s.server, err = s.start(ctx, "letta", []string{filepath.Join(s.install, "venv", "bin", "python"), "-c", launch}, []string{
		"HOME=" + home, "PORT=" + s.ports.server, "NO_PROXY=127.0.0.1",
		"LETTA_PG_URI=postgresql://letta@127.0.0.1:" + s.ports.postgres + "/postgres?ssl=disable",
		// By default it connects anew for each query, dozens of times a turn, and
		// every some thousandth connection hangs for asyncpg's 60 seconds.
		"LETTA_DISABLE_SQLALCHEMY_POOLING=false",
		"LETTA_REDIS_HOST=127.0.0.1", "LETTA_REDIS_PORT=" + s.ports.redis,
		"LETTA_SERVER_SECURE=true", "LETTA_SERVER_PASSWORD=" + Key,
		"OPENAI_API_KEY=" + ModelKey, "OPENAI_API_BASE=" + s.model, "OPENAI_BASE_URL=" + s.model,
	}, false)
	if err != nil {
		return err
	}
	return s.wait(ctx, s.server, func(ctx context.Context) bool {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+"/v1/health/", http.NoBody)
		if err != nil {
			return false
		}
		res, err := http.DefaultClient.Do(req)
		return err == nil && res.Body.Close() == nil && res.StatusCode == http.StatusOK
	})
}

// start starts a child; lowly means as a user who is not root.
func (s *Server) start(ctx context.Context, name string, argv, env []string, lowly bool) (*process, error) {
	p := &process{done: make(chan struct{}), log: filepath.Join(s.dir, name+".log")}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }() // the child has its own descriptor
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	p.cancel = cancel
	cmd := exec.CommandContext(life, argv[0], argv[1:]...) //nolint:gosec // G204: the test's own installation
	cmd.Dir = s.dir
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C.UTF-8"}, env...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = attributes(lowly)
	started := make(chan error)
	go func() {
		// The kernel kills the child when the thread ends that started it.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(p.done)
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // killed: that is the plan
		}
	}()
	if err := <-started; err != nil {
		cancel()
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return p, nil
}

// wait waits until ready says so.
func (s *Server) wait(ctx context.Context, p *process, ready func(context.Context) bool) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for !ready(ctx) {
		why := "it ended"
		select {
		case <-tick.C:
			continue
		case <-ctx.Done():
			why = "it does not become ready"
		case <-p.done:
		}
		text, _ := os.ReadFile(p.log)
		lines := strings.Split(strings.TrimSpace(string(text)), "\n")
		return fmt.Errorf("%s: %s", why, strings.Join(lines[max(0, len(lines)-12):], "\n"))
	}
	return nil
}

// FlushRedis forgets what Redis holds: which turn an id began, the streams
// of turns, and locks.
func (s *Server) FlushRedis(ctx context.Context) error { return s.tellRedis(ctx, "flushall") }

// ForgetLocks forgets which conversations have a turn, as Redis does five
// minutes after the turn began.
func (s *Server) ForgetLocks(ctx context.Context) error {
	return s.tellRedis(ctx, "eval", "for _, k in ipairs(redis.call('keys', '"+lockPrefix+"*')) do redis.call('del', k) end", "0")
}

func (s *Server) tellRedis(ctx context.Context, words ...string) error {
	cmd := exec.CommandContext(ctx, filepath.Join(s.install, "venv", "bin", "redis-cli"), append([]string{"-p", s.ports.redis}, words...)...) //nolint:gosec // G204: the test's own installation
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("tell Redis: %w: %s", err, out)
	}
	return nil
}

// Log is what the server has written.
func (s *Server) Log() string {
	text, err := os.ReadFile(filepath.Join(s.dir, "letta.log"))
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// Kill kills the server, and leaves its database and Redis alone.
func (s *Server) Kill() { s.server.kill() }

// Stop ends everything and removes its state.
func (s *Server) Stop() {
	for _, p := range slices.Backward([]*process{s.postgres, s.redis, s.server}) {
		p.kill()
	}
	_ = s.Model.Close() // it has no state
	_ = os.RemoveAll(s.dir)
}

func (p *process) kill() {
	if p == nil {
		return
	}
	p.cancel()
	select {
	case <-p.done:
	case <-time.NewTimer(stopTimeout).C:
	}
}
