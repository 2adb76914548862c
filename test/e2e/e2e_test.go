//go:build envtest

// Package e2e runs undersong's own binaries against real parts, kills them and
// cuts them off, and compares the end with what was said.
package e2e

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/internal/letta/appserver/appservertest"
	"github.com/undersong-dev/undersong/internal/segment"
	"github.com/undersong-dev/undersong/test/replay"
	"github.com/undersong-dev/undersong/test/stack"
	"github.com/undersong-dev/undersong/test/tools"
)

// rounds is how often each crash point is tried: at its first hit, its
// second, …. make e2e asks for more.
var rounds = flag.Int("rounds", 1, "how many hits of each crash point to kill at")

// within bounds every wait. A second or two is usual; a killed leader's lease
// takes a few more.
const within = 60 * time.Second

// remote is the project everybody works on.
const remote = "https://git.example.com/lighthouse/lantern.git"

// parts is the stack that all tests share. Each test has a team of its own.
var parts *stack.Stack

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "undersong-e2e-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer func() { _ = os.RemoveAll(dir) }() // a leftover in the temporary folder harms nobody
		ctx := context.Background()
		bin := filepath.Join(dir, "bin")
		build := exec.CommandContext(ctx, "go", "build", "-tags", "crashpoints", "-o", bin+"/", "./cmd/...")
		build.Dir = tools.Root()
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "build with crash points: %v\n%s", err, out)
			return 1
		}
		if parts, err = stack.Start(ctx, stack.Options{Dir: dir, Bin: bin}); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer parts.Stop()
		return m.Run()
	}())
}

// world is one team with its controller and one developer at one desk.
type world struct {
	t    *testing.T
	team *stack.Team
	desk *stack.Workstation
	cwd  string
	// said are the words that Letta must have, each once.
	said []string
	// sessions that were played.
	sessions []*replay.Session
	ctl      *stack.Process
	// app is the real App Server that keeps the memory; nil means the
	// stand-in.
	app *appservertest.Server
}

// newWorld makes a team and its first workstation. The controller is not
// started.
func newWorld(t *testing.T, change func(*v1alpha1.TeamMemory)) *world {
	t.Helper()
	return newWorldOn(t, nil, change)
}

// newWorldOn is newWorld on a real App Server.
func newWorldOn(t *testing.T, app *appservertest.Server, change func(*v1alpha1.TeamMemory)) *world {
	t.Helper()
	w := &world{t: t, app: app}
	var keeper stack.LettaServer
	if app != nil {
		keeper = stack.AppServer(app)
	}
	name := "t" + strings.ReplaceAll(uuid.NewString(), "-", "")[:12]
	var err error
	w.team, err = parts.Team(t.Context(), stack.TeamOptions{
		Namespace: name, Members: []string{"ada", "bob"}, Leads: []string{"grace"}, Include: []string{"git.example.com/lighthouse/**"},
		Letta: keeper, Change: change,
	})
	w.must(err)
	w.desk = w.workstation("ada", "desk")
	w.cwd = w.project(w.desk)
	t.Cleanup(func() {
		w.stopController()
		if t.Failed() {
			w.explain()
		}
	})
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) workstation(user, name string) *stack.Workstation {
	w.t.Helper()
	ws, err := parts.Workstation(w.team, user, name)
	w.must(err)
	w.must(ws.Init(w.t.Context()))
	w.t.Cleanup(ws.StopDaemon)
	return ws
}

func (w *world) project(ws *stack.Workstation) string {
	w.t.Helper()
	cwd, err := ws.Project("lantern", remote)
	w.must(err)
	return cwd
}

func (w *world) startController(env ...string) {
	w.t.Helper()
	w.stopController()
	p, err := parts.StartController(w.t.Context(), env...)
	w.must(err)
	w.ctl = p
}

func (w *world) stopController() {
	if w.ctl != nil {
		if err := w.ctl.Stop(); err != nil {
			w.t.Log(err)
		}
		w.ctl = nil
	}
}

// session begins a session at a workstation.
func (w *world) session(ws *stack.Workstation, cwd, id string) *replay.Session {
	w.t.Helper()
	s := replay.New(ws, ws.ClaudeDir(), cwd, id)
	w.sessions = append(w.sessions, s)
	if _, err := s.Start(w.t.Context(), "startup"); err != nil && !killed(err) {
		w.t.Fatal(err)
	}
	return s
}

// turn is one prompt and its answer. A hook that is killed is what some tests
// are about; Claude Code goes on, and so does the play.
func (w *world) turn(s *replay.Session, prompt, answer string) replay.Output {
	w.t.Helper()
	out, err := s.Prompt(w.t.Context(), prompt)
	if killed(err) {
		// The hook died; the prompt is written all the same.
		err = s.Typed(prompt)
	}
	w.must(err)
	w.said = append(w.said, prompt, answer)
	if err := s.Answer(w.t.Context(), answer); err != nil && !killed(err) {
		w.t.Fatal(err)
	}
	return out
}

func killed(err error) bool { return err != nil && strings.Contains(err.Error(), "signal: killed") }

// processed waits until the controller has caught up with all that was played.
func (w *world) processed() []v1alpha1.Session {
	w.t.Helper()
	var sessions []v1alpha1.Session
	err := stack.Eventually(w.t.Context(), within, func() error {
		var err error
		if sessions, err = w.team.Sessions(w.t.Context()); err != nil {
			return err
		}
		if len(sessions) != len(w.ids()) {
			return fmt.Errorf("%d of %d sessions are recorded", len(sessions), len(w.ids()))
		}
		for i := range sessions {
			s := &sessions[i]
			if !stack.CaughtUp(s) || s.Spec.Lines < w.lines(s.Spec.SessionID) {
				return fmt.Errorf("session %s: %d of %d lines are uploaded, %d processed", s.Name, s.Spec.Lines, w.lines(s.Spec.SessionID), s.Status.Lines)
			}
		}
		return nil
	})
	w.must(err)
	return sessions
}

func (w *world) ids() map[string]bool {
	ids := map[string]bool{}
	for _, s := range w.sessions {
		ids[s.ID] = true
	}
	return ids
}

// lines is the number of lines of a session's transcripts, of all
// workstations.
func (w *world) lines(id string) int64 {
	var n int64
	for _, s := range w.sessions {
		if s.ID == id {
			n += s.Lines()
		}
	}
	return n
}

// check compares the end with what was said: every word once in the
// conversations, every line once in the archive, nothing in the inbox, the
// state files as the cluster says.
func (w *world) check() {
	w.t.Helper()
	ctx := w.t.Context()
	sessions := w.processed()
	bucket, err := w.team.Open()
	w.must(err)
	written := map[string]int64{}
	for i := range sessions {
		s := &sessions[i]
		written[segment.ArchivePrefix(s.Namespace, s.Spec.Owner, s.Name)] = w.lines(s.Spec.SessionID)
	}
	if err := stack.CheckOnce(ctx, bucket, w.conversations(), w.said, written); err != nil {
		w.t.Error(err)
	}
	w.must(stack.Eventually(ctx, within, func() error { return stack.CheckInbox(ctx, bucket) }))
	for _, p := range w.sessions {
		w.must(stack.Eventually(ctx, within, func() error {
			return w.stateFiles(p)
		}))
	}
}

func (w *world) stateFiles(p *replay.Session) error {
	sessions, err := w.team.Sessions(w.t.Context())
	if err != nil {
		return err
	}
	for i := range sessions {
		if sessions[i].Spec.SessionID == p.ID {
			return stack.CheckStateFiles(p.Cwd, p.ID, &sessions[i])
		}
	}
	return fmt.Errorf("no Session for %s", p.ID)
}

// conversations is everything that this team's conversations were told,
// unescaped.
func (w *world) conversations() string {
	w.t.Helper()
	conversations := parts.Letta.Conversations()
	if w.app != nil {
		var err error
		conversations, err = stack.AppServerConversations(w.t.Context(), w.app)
		w.must(err)
	}
	return stack.Told(conversations, w.team.Namespace)
}

// explain prints what a person would look at after a failure.
func (w *world) explain() {
	ctx := context.Background()
	if out, err := w.desk.Run(ctx, "status"); err == nil {
		w.t.Logf("undersong status:\n%s", out)
	}
	sessions, err := w.team.Sessions(ctx)
	if err == nil {
		for _, s := range sessions {
			w.t.Logf("session %s: spec %+v\nstatus %+v", s.Name, s.Spec, s.Status)
		}
	}
	for _, pattern := range []string{"logs/controller.log", "workstations/" + w.team.Namespace + "/*/state/daemon.log"} {
		files, _ := filepath.Glob(filepath.Join(parts.Dir, pattern)) // the pattern is well formed
		for _, f := range files {
			data, err := os.ReadFile(f)
			if err != nil {
				continue
			}
			lines := strings.Split(strings.TrimSpace(string(data)), "\n")
			w.t.Logf("the end of %s:\n%s", filepath.Base(f), strings.Join(lines[max(0, len(lines)-25):], "\n"))
		}
	}
}

var whisperTag = regexp.MustCompile(`<team_memory [^>]*id="([^"]+)"`)

// kubectl is the real one.
func kubectl(t *testing.T) string {
	t.Helper()
	path, err := tools.Path("kubectl")
	if err != nil {
		t.Fatal(err)
	}
	return path
}
