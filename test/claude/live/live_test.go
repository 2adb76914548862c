//go:build envtest && linux

// Package live lets the real Claude Code work with the whole of undersong: its
// hooks as init wrote them, its daemon, the controller, a real API server and
// a real object store. Only the two models are stand-ins: a script answers
// Claude Code, rules answer for Letta.
package live

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/internal/segment"
	"github.com/undersong-dev/undersong/test/claude"
	"github.com/undersong-dev/undersong/test/replay"
	"github.com/undersong-dev/undersong/test/stack"
	"github.com/undersong-dev/undersong/test/tools"
)

// within bounds every wait for undersong.
const within = 60 * time.Second

// remote is the project everybody works on.
const remote = "https://git.example.com/lighthouse/lantern.git"

var (
	parts   *stack.Stack
	program string
)

func TestMain(m *testing.M) {
	if code, is := claude.BeWitness(); is {
		os.Exit(code)
	}
	os.Exit(func() int {
		var err error
		if program, err = claude.Find(); err != nil {
			fmt.Fprintln(os.Stderr, "NOT TESTED:", err)
			return 0
		}
		dir, err := os.MkdirTemp("", "undersong-claude-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer func() { _ = os.RemoveAll(dir) }() // a leftover in the temporary folder harms nobody
		ctx := context.Background()
		bin := filepath.Join(dir, "bin")
		build := exec.CommandContext(ctx, "go", "build", "-o", bin+"/", "./cmd/...")
		build.Dir = tools.Root()
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "build: %v\n%s", err, out)
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

// world is a team, its controller, and ada with a real Claude Code at her desk.
type world struct {
	*claude.Home
	t    *testing.T
	team *stack.Team
	desk *stack.Workstation
	cwd  string
}

// newWorld makes one. The hooks are in ada's settings as undersong init
// --install-hooks wrote them.
func newWorld(t *testing.T, change func(*v1alpha1.TeamMemory)) *world {
	t.Helper()
	w := &world{t: t}
	var err error
	w.team, err = parts.Team(t.Context(), stack.TeamOptions{
		Namespace: "t" + strings.ReplaceAll(uuid.NewString(), "-", "")[:12], Members: []string{"ada", "bob"}, Leads: []string{"grace"},
		Include: []string{"git.example.com/lighthouse/**"}, Change: change,
	})
	w.must(err)
	controller, err := parts.StartController(t.Context())
	w.must(err)
	t.Cleanup(func() {
		if err := controller.Stop(); err != nil {
			t.Log(err)
		}
		if t.Failed() {
			w.explain()
		}
	})
	w.desk = w.workstation("ada", "desk", "--install-hooks")
	w.cwd, err = w.desk.Project("lantern", remote)
	w.must(err)

	model, err := claude.StartModel(t.Context())
	w.must(err)
	t.Cleanup(func() { _ = model.Close() }) // whoever waits for an answer has ended
	w.Home = &claude.Home{
		Dir: w.desk.Home, Program: program, Model: model, Witness: claude.NewWitness(t.TempDir()),
		Env: map[string]string{"UNDERSONG_HOME": w.desk.State},
	}
	w.must(w.Prepare(w.cwd))
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) workstation(user, name string, flags ...string) *stack.Workstation {
	w.t.Helper()
	ws, err := parts.Workstation(w.team, user, name)
	w.must(err)
	w.must(ws.Init(w.t.Context(), flags...))
	w.t.Cleanup(ws.StopDaemon)
	return ws
}

// talk opens a terminal with Claude Code in the project.
func (w *world) talk(args ...string) *talk {
	w.t.Helper()
	t, err := w.Talk(w.t.Context(), w.cwd, args...)
	w.must(err)
	w.t.Cleanup(t.Close)
	return &talk{t, w}
}

type talk struct {
	*claude.Talk
	w *world
}

// asks says a prompt and waits for the end of the turn.
func (t *talk) asks(prompt string) {
	t.w.t.Helper()
	t.w.must(t.Ask(t.w.t.Context(), prompt))
}

// said are words of a person or of the assistant.
type said struct{ Role, Text string }

func user(text string) said      { return said{"user", text} }
func assistant(text string) said { return said{"assistant", text} }

var messageElement = regexp.MustCompile(`(?s)<message role="([a-z]+)">\n(.*?)\n</message>`)

// told is what Letta has of a session, in order: the words of people and of the
// assistant. It is an error while anything is on its way.
func (w *world) told(session string) ([]said, error) {
	all, err := w.heard(session)
	return slices.DeleteFunc(all, func(s said) bool { return s.Role != "user" && s.Role != "assistant" }), err
}

// heard is all that Letta has of a session.
func (w *world) heard(session string) ([]said, error) {
	sessions, err := w.team.Sessions(w.t.Context())
	if err != nil {
		return nil, err
	}
	for i := range sessions {
		s := &sessions[i]
		if s.Spec.SessionID != session {
			continue
		}
		if err := w.readToEnd(session); err != nil {
			return nil, err
		}
		if !stack.CaughtUp(s) || s.Status.SyncState == nil {
			return nil, fmt.Errorf("session %s: %d lines are uploaded, %d processed", session, s.Spec.Lines, s.Status.Lines)
		}
		return conversation(s.Status.SyncState.ConversationID), nil
	}
	return nil, fmt.Errorf("there is no Session for %s", session)
}

func conversation(id string) []said {
	var all []said
	for _, c := range parts.Letta.Conversations() {
		if c.ID != id {
			continue
		}
		for _, m := range c.Messages {
			if m.Role != "user" {
				continue
			}
			for _, found := range messageElement.FindAllStringSubmatch(m.Text, -1) {
				all = append(all, said{found[1], html.UnescapeString(found[2])})
			}
		}
	}
	return all
}

// readToEnd fails unless the daemon has read all of the session's own file.
func (w *world) readToEnd(session string) error {
	data, err := os.ReadFile(filepath.Join(w.desk.State, "sessions", session, "state.json"))
	if err != nil {
		return err
	}
	var state struct {
		Cursors map[string]struct {
			Path   string `json:"path"`
			Offset int64  `json:"offset"`
		} `json:"cursors"`
		Segments []json.RawMessage `json:"segments"`
	}
	if err := json.Unmarshal(data, &state); err != nil {
		return err
	}
	cursor := state.Cursors[segment.MainStream]
	info, err := os.Stat(cursor.Path)
	if err != nil {
		return err
	}
	if cursor.Offset != info.Size() || len(state.Segments) > 0 {
		return fmt.Errorf("%d of %d bytes of session %s are read, %d segments wait", cursor.Offset, info.Size(), session, len(state.Segments))
	}
	return nil
}

// onDisk waits until the transcript has a number of answers: Stop may be called
// before the last one is written.
func (w *world) onDisk(session string, answers int) {
	w.t.Helper()
	w.must(stack.Eventually(w.t.Context(), within, func() error {
		written, err := os.ReadFile(w.Transcripts()[session])
		if n := strings.Count(string(written), `"type":"assistant"`); n < answers {
			return fmt.Errorf("%d answers are in the transcript, want %d", n, answers)
		}
		return err
	}))
}

// arrives waits until Letta has these words of a session, each once and in this
// order, and no others.
func (w *world) arrives(session string, want []said) {
	w.t.Helper()
	w.must(stack.Eventually(w.t.Context(), within, func() error {
		got, err := w.told(session)
		if err != nil {
			return err
		}
		if diff := cmp.Diff(want, got); diff != "" {
			return fmt.Errorf("what Letta was told of %s (-want +got):\n%s", session, diff)
		}
		return nil
	}))
}

// nowhere fails if one of the words is in a place that our parts wrote: the
// store, the API server, Letta, undersong's state folder, and the logs.
func (w *world) nowhere(words ...string) {
	w.t.Helper()
	ctx := w.t.Context()
	bucket, err := w.team.Open()
	w.must(err)
	check := func(where string, data []byte) {
		for _, word := range words {
			if strings.Contains(string(data), word) {
				w.t.Errorf("%s holds %s", where, word)
			}
		}
	}
	for info, err := range bucket.List(ctx, "") {
		w.must(err)
		data, err := bucket.Get(ctx, info.Key, segment.MaxPacked)
		w.must(err)
		if raw, err := segment.Unpack(data); err == nil {
			data = raw
		}
		check("the object "+info.Key, data)
	}
	dump, err := parts.Dump(ctx, w.team.Namespace)
	w.must(err)
	check("an object of the cluster", dump)
	for _, c := range parts.Letta.Conversations() {
		for _, m := range c.Messages {
			check("Letta, as "+m.Role+",", []byte(m.Text))
		}
	}
	for _, root := range []string{w.desk.State, filepath.Join(parts.Dir, "logs"), filepath.Join(w.cwd, ".letta")} {
		w.must(filepath.WalkDir(root, func(path string, entry os.DirEntry, err error) error {
			if err != nil || !entry.Type().IsRegular() {
				if errors.Is(err, os.ErrNotExist) {
					return nil // moved since
				}
				return err
			}
			data, err := os.ReadFile(path)
			if err != nil {
				return nil //nolint:nilerr // moved since
			}
			if raw, err := segment.Unpack(data); err == nil {
				data = raw
			}
			check(filepath.Base(path), data)
			return nil
		}))
	}
}

// teach lets bob teach the team's memory a line, by a session that is played.
func (w *world) teach(line string) {
	w.t.Helper()
	ctx := w.t.Context()
	bob := w.workstation("bob", "laptop")
	cwd, err := bob.Project("lantern", remote)
	w.must(err)
	s := replay.New(bob, bob.ClaudeDir(), cwd, uuid.NewString())
	_, err = s.Start(ctx, "startup")
	w.must(err)
	_, err = s.Prompt(ctx, "Note for the team: "+line)
	w.must(err)
	w.must(s.Answer(ctx, "Understood."))
	w.must(stack.Eventually(ctx, within, func() error {
		sessions, err := w.team.Sessions(ctx)
		if err != nil {
			return err
		}
		for i := range sessions {
			if sessions[i].Spec.SessionID == s.ID && stack.CaughtUp(&sessions[i]) {
				return nil
			}
		}
		return errors.New("bob's session is not learned from")
	}))
}

// waiting returns the whispers that wait for a session, or that were printed and
// not yet seen to arrive.
func (w *world) whispers(session, state string) []string {
	w.t.Helper()
	names, err := filepath.Glob(filepath.Join(w.desk.State, "whispers", session, state, "*.json"))
	w.must(err)
	var ids []string
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			continue // moved since
		}
		var whisper struct{ ID, Text string }
		w.must(json.Unmarshal(data, &whisper))
		if whisper.Text != "" {
			ids = append(ids, whisper.ID)
		}
	}
	return ids
}

// whisperWaits waits until there is one for a session, and returns its id.
func (w *world) whisperWaits(session string) string {
	w.t.Helper()
	var id string
	w.must(stack.Eventually(w.t.Context(), within, func() error {
		ids := w.whispers(session, "waiting")
		if len(ids) != 1 {
			return fmt.Errorf("%d whispers wait, want one", len(ids))
		}
		id = ids[0]
		return nil
	}))
	return id
}

// explain prints what a person would look at after a failure.
func (w *world) explain() {
	ctx := context.Background()
	if out, err := w.desk.Run(ctx, "status"); err == nil {
		w.t.Logf("undersong status:\n%s", out)
	}
	for _, pattern := range []string{"logs/controller.log", "workstations/" + w.team.Namespace + "/desk/state/*.log"} {
		files, _ := filepath.Glob(filepath.Join(parts.Dir, pattern)) // the pattern is well formed
		for _, f := range files {
			data, err := os.ReadFile(f)
			if err != nil {
				continue
			}
			lines := strings.Split(strings.TrimSpace(string(data)), "\n")
			w.t.Logf("the end of %s:\n%s", filepath.Base(f), strings.Join(lines[max(0, len(lines)-15):], "\n"))
		}
	}
}
