package main

import (
	"context"
	_ "embed" // of fakeCLI
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Subject is one set of hooks under test. Root may use environment variables; a
// relative one is relative to the subject's file. The other strings may use
// ${ROOT}, ${WORK} (the subject's scratch directory), ${STUB} (the Letta stub's
// base URL), ${BENCH} (a directory that holds fake-letta-cli.mjs) and ${SELF}
// (this program).
type Subject struct {
	Name  string            `json:"name"`
	Root  string            `json:"root"`  // becomes CLAUDE_PLUGIN_ROOT
	Hooks string            `json:"hooks"` // default ${ROOT}/hooks/hooks.json
	Env   map[string]string `json:"env"`
	// Prepare is a shell command run before every single run, outside the
	// timing, with HOOKBENCH_{EVENT,CASE,SESSION,CONVERSATION,CWD,TRANSCRIPT,INDEX}.
	Prepare  string    `json:"prepare"`
	Services []Service `json:"services"` // started once, ended with the run
	work     string
	events   map[string][]hookCmd
}

// Service is a process that runs beside the hooks.
type Service struct {
	Cmd      string `json:"cmd"`
	ReadyURL string `json:"readyURL"` // polled until it answers; loopback only
}

// hookCmd is a command of hooks.json.
type hookCmd struct {
	Command string  `json:"command"`
	Timeout float64 `json:"timeout"`
	Async   bool    `json:"async"`
	Type    string  `json:"type"`
}

//go:embed fake-letta-cli.mjs
var fakeCLI []byte

func loadSubject(file, work, stubURL string) (*Subject, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	s := &Subject{}
	if err := json.Unmarshal(raw, s); err != nil {
		return nil, err
	}
	if s.Root = os.ExpandEnv(s.Root); s.Root == "" {
		return nil, errors.New("its root is empty (an unset variable?)")
	}
	if !filepath.IsAbs(s.Root) {
		s.Root = filepath.Join(filepath.Dir(file), s.Root)
	}
	if s.Root, err = filepath.Abs(s.Root); err != nil {
		return nil, err
	}
	s.work = filepath.Join(work, "subject-"+s.Name)
	for _, d := range []string{"home", "tmp", "bench"} {
		if err := os.MkdirAll(filepath.Join(s.work, d), 0o755); err != nil {
			return nil, err
		}
	}
	bench := filepath.Join(s.work, "bench")
	if err := os.WriteFile(filepath.Join(bench, "fake-letta-cli.mjs"), fakeCLI, 0o755); err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	exp := strings.NewReplacer("${ROOT}", s.Root, "${WORK}", s.work, "${STUB}", stubURL, "${BENCH}", bench, "${SELF}", self).Replace
	if s.Hooks == "" {
		s.Hooks = "${ROOT}/hooks/hooks.json"
	}
	s.Hooks, s.Prepare = exp(s.Hooks), exp(s.Prepare)
	for k, v := range s.Env {
		s.Env[k] = exp(v)
	}
	for i := range s.Services {
		s.Services[i].Cmd, s.Services[i].ReadyURL = exp(s.Services[i].Cmd), exp(s.Services[i].ReadyURL)
	}
	raw, err = os.ReadFile(s.Hooks)
	if err != nil {
		return nil, err
	}
	var h struct {
		Hooks map[string][]struct {
			Hooks []hookCmd `json:"hooks"`
		} `json:"hooks"`
	}
	if err := json.Unmarshal(raw, &h); err != nil {
		return nil, err
	}
	s.events = map[string][]hookCmd{}
	for ev, groups := range h.Hooks {
		for _, g := range groups {
			s.events[ev] = append(s.events[ev], g.Hooks...)
		}
	}
	return s, nil
}

func (s *Subject) environ(cwd string) []string {
	env := []string{
		"PATH=" + os.Getenv("PATH"), "LANG=C.UTF-8", "HOME=" + filepath.Join(s.work, "home"),
		"TMPDIR=" + filepath.Join(s.work, "tmp"), "CLAUDE_PLUGIN_ROOT=" + s.Root, "CLAUDE_PROJECT_DIR=" + cwd,
	}
	for k, v := range s.Env {
		env = append(env, k+"="+v)
	}
	return env
}

// startServices starts what runs beside the hooks; stop ends it.
func (s *Subject) startServices(ctx context.Context) (stop func(), err error) {
	var started []*exec.Cmd
	stop = func() {
		for _, c := range started {
			_ = syscall.Kill(-c.Process.Pid, syscall.SIGTERM) // it may have ended
			_ = c.Wait()                                      // by our signal
		}
	}
	for _, sv := range s.Services {
		c := exec.CommandContext(ctx, "/bin/sh", "-c", sv.Cmd)
		c.Env, c.Dir = s.environ(s.work), s.work
		c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if err := c.Start(); err != nil {
			stop()
			return nil, err
		}
		started = append(started, c)
		keep[c.Process.Pid] = true
		for i := 0; sv.ReadyURL != ""; i++ {
			if answers(ctx, sv.ReadyURL) {
				break
			}
			if i == 100 {
				stop()
				return nil, fmt.Errorf("%s: no answer from %s", s.Name, sv.ReadyURL)
			}
			pause(100 * time.Millisecond)
		}
	}
	return stop, nil
}

// answers reports whether a service is ready.
func answers(ctx context.Context, url string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return false
	}
	r, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	_ = r.Body.Close() // nothing of it is read
	return true
}
