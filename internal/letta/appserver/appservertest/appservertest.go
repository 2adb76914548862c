// Package appservertest starts a real App Server for tests, with a scripted
// model behind it: no network, no cost, and a second and a half.
//
// make letta-appserver installs the server. Its state is in one folder, and
// so is its home: it sees nothing of the person's own Letta. It listens on
// loopback only and, on Linux, dies with the process that started it. It can
// be killed at any moment and started again on the same state and port.
package appservertest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/undersong-dev/undersong/internal/letta/modelstub"
)

// Token is the server's capability token.
const Token = "token-of-the-test-server" //nolint:gosec // G101: it opens a server that lives for one test

// ModelKey is the key of the model's provider, as the server keeps it in a
// file that no agent may read.
const ModelKey = "sk-key-of-the-test-model"

// Model is the handle of the model.
const Model = "openai-compatible/" + modelstub.Model

// ErrNotInstalled says that the server is not there.
var ErrNotInstalled = errors.New("the App Server is not installed; run: make letta-appserver")

const (
	startTimeout = 3 * time.Minute // two seconds, where nobody else works
	stopTimeout  = 10 * time.Second
	poll         = 20 * time.Millisecond
)

// Options say where the server is and where it keeps its state.
type Options struct {
	// Install is the folder that make letta-appserver fills: .tools/letta.
	Install string
	// Dir keeps state and home. What is there of an earlier server is kept.
	Dir string
	// Address to listen on, host and port; "" means a free port of loopback.
	Address string
	// Model's own options.
	Model modelstub.Options
}

// Server is a real App Server and its model.
type Server struct {
	// URL of the socket, without a path.
	URL string
	// Model answers for the provider.
	Model *modelstub.Server
	// SecretFiles are files beside the server that no agent may read.
	SecretFiles []string

	o       Options
	address string
	cancel  context.CancelFunc
	done    chan struct{}
}

// Installed reports ErrNotInstalled unless the server is there.
func Installed(install string) error {
	for _, name := range []string{"stamp", "package/letta.js", "node_modules/.bin/node"} {
		if _, err := os.Stat(filepath.Join(install, name)); err != nil {
			return ErrNotInstalled
		}
	}
	if _, err := exec.LookPath("git"); err != nil {
		return fmt.Errorf("the App Server needs git: %w", err)
	}
	return nil
}

// Start starts the model and the server, and returns when it is ready. ctx
// bounds the start, and the model's life.
func Start(ctx context.Context, o Options) (*Server, error) {
	if err := Installed(o.Install); err != nil {
		return nil, err
	}
	s := &Server{Model: modelstub.New(o.Model), o: o}
	model, err := s.Model.Start(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.prepare(model); err != nil {
		return nil, fmt.Errorf("prepare the App Server: %w", err)
	}
	if s.address = o.Address; s.address == "" {
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("find a port for the App Server: %w", err)
		}
		s.address = l.Addr().String()
		_ = l.Close() // the server takes it
	}
	s.URL = "ws://" + s.address
	return s, s.Run(ctx)
}

// prepare writes the token, and the provider as connecting it would.
func (s *Server) prepare(model string) error {
	providers := filepath.Join(s.o.Dir, "state", "providers")
	for _, dir := range []string{providers, filepath.Join(s.o.Dir, "home")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	auth, err := json.Marshal(map[string]any{"version": 1, "providers": map[string]any{"openai-compatible": map[string]any{
		"id": "local-provider-openai-compatible", "name": "openai-compatible",
		"provider_type": "openai-compatible", "provider_category": "byok",
		"auth": map[string]string{"type": "api", "key": ModelKey}, "base_url": model,
		"created_at": "2026-01-01T00:00:00.000Z", "updated_at": "2026-01-01T00:00:00.000Z",
	}}})
	if err != nil {
		return err
	}
	s.SecretFiles = []string{filepath.Join(providers, "auth.json"), filepath.Join(s.o.Dir, "token")}
	if err := os.WriteFile(s.SecretFiles[0], auth, 0o600); err != nil {
		return err
	}
	return os.WriteFile(s.SecretFiles[1], []byte(Token), 0o600)
}

// Run starts the server again on its state and port after Kill or Stop.
func (s *Server) Run(ctx context.Context) error {
	log, err := os.OpenFile(filepath.Join(s.o.Dir, "server.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("start the App Server: %w", err)
	}
	defer func() { _ = log.Close() }() // the process has its own descriptor
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	bin := filepath.Join(s.o.Install, "node_modules", ".bin")
	cmd := exec.CommandContext(life, filepath.Join(bin, "node"), filepath.Join(s.o.Install, "package", "letta.js"), //nolint:gosec // the test's own installation
		"server", "--backend", "local", "--listen", s.URL,
		"--ws-auth", "capability-token", "--ws-token-file", filepath.Join(s.o.Dir, "token"))
	cmd.Dir = s.o.Dir
	cmd.Env = []string{
		"PATH=" + bin + string(os.PathListSeparator) + os.Getenv("PATH"),
		"HOME=" + filepath.Join(s.o.Dir, "home"), "LETTA_LOCAL_BACKEND_DIR=" + filepath.Join(s.o.Dir, "state"),
		"DO_NOT_TRACK=1", "LETTA_CODE_TELEM=0", "DISABLE_AUTOUPDATER=1", "NO_PROXY=127.0.0.1",
	}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = dieWithParent()
	started, done := make(chan error), make(chan struct{})
	go func() {
		// The kernel kills the server when the thread ends that started it, so
		// that this thread must not end before.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(done)
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // killed: that is the plan
		}
	}()
	if err := <-started; err != nil {
		cancel()
		return fmt.Errorf("start the App Server: %w", err)
	}
	s.cancel, s.done = cancel, done
	if err := s.ready(ctx, done); err != nil {
		s.Kill()
		text, _ := os.ReadFile(filepath.Join(s.o.Dir, "server.log"))
		return fmt.Errorf("start the App Server: %w: %s", err, strings.TrimSpace(string(text)))
	}
	return nil
}

// ready waits until the server answers.
func (s *Server) ready(ctx context.Context, done <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.address+"/readyz", http.NoBody)
		if err != nil {
			return err
		}
		if res, err := http.DefaultClient.Do(req); err == nil {
			_ = res.Body.Close()
			if res.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return errors.New("it does not become ready")
		case <-done:
			return errors.New("it ended")
		case <-tick.C:
		}
	}
}

// Kill kills the server as a machine that loses its power does.
func (s *Server) Kill() {
	if s.cancel == nil {
		return
	}
	s.cancel()
	select {
	case <-s.done:
	case <-time.NewTimer(stopTimeout).C:
	}
	s.cancel = nil
}

// Stop ends the server and its model.
func (s *Server) Stop() {
	s.Kill()
	_ = s.Model.Close() // it has no state
}
