package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/internal/redact"
	"github.com/undersong-dev/undersong/test/replay"
	"github.com/undersong-dev/undersong/test/stack"
	"github.com/undersong-dev/undersong/test/tools"
)

// The two projects. The team's memory hears everything below lighthouse.
const (
	lantern = "https://git.example.com/lighthouse/lantern.git"
	beacon  = "git@git.example.com:lighthouse/beacon.git"
)

// convention is what the first session teaches.
const convention = "tide tables are stored in GMT, never in local time."

// demo is what the stages share.
type demo struct {
	out io.Writer
	// appServer is the folder of a real App Server; empty means the stand-in.
	appServer string
	stack     *stack.Stack
	team      *stack.Team

	ada, bob *stack.Workstation
	// sessions that were played, in order.
	sessions []*replay.Session
	// said are the words that must be in the conversations, each once.
	said []string
	// token and password are credentials that must be nowhere, as all that are
	// planted.
	token, password string
	planted         []string
	// shown is the whisper as the hook gave it to the model.
	shown string
	asked *replay.Session
}

func (d *demo) line(format string, args ...any) {
	_, _ = fmt.Fprintf(d.out, format+"\n", args...) // output is for people
}

func (d *demo) head(format string, args ...any) { d.line("\n== "+format, args...) }

func (d *demo) makeTeam(ctx context.Context) (err error) {
	d.line("  making the team lighthouse: ada and bob may record, grace leads")
	d.team, err = d.stack.Team(ctx, stack.TeamOptions{
		Namespace: "lighthouse", Members: []string{"ada", "bob"}, Leads: []string{"grace"},
		Include: []string{"git.example.com/lighthouse/**"},
	})
	return err
}

func (d *demo) startController(ctx context.Context) error {
	d.line("  starting the controller with its own ServiceAccount")
	_, err := d.stack.StartController(ctx)
	return err
}

func (d *demo) initWorkstations(ctx context.Context) error {
	for _, w := range []struct {
		user, name string
		at         **stack.Workstation
	}{{"ada", "adas-desk", &d.ada}, {"bob", "bobs-laptop", &d.bob}} {
		d.line("  undersong init on %s", w.name)
		made, err := d.stack.Workstation(d.team, w.user, w.name)
		if err != nil {
			return err
		}
		if err := made.Init(ctx); err != nil {
			return err
		}
		*w.at = made
	}
	return nil
}

// play begins a session of a developer in a project.
func (d *demo) session(ctx context.Context, w *stack.Workstation, project, remote string) (*replay.Session, error) {
	cwd, err := w.Project(project, remote)
	if err != nil {
		return nil, err
	}
	s := replay.New(w, w.ClaudeDir(), cwd, uuid.NewString())
	d.sessions = append(d.sessions, s)
	_, err = s.Start(ctx, "startup")
	return s, err
}

// turn is one prompt and its answer.
func (d *demo) turn(ctx context.Context, s *replay.Session, prompt, answer string) (replay.Output, error) {
	d.line("  > %s", prompt)
	out, err := s.Prompt(ctx, prompt)
	if err != nil {
		return out, err
	}
	d.said = append(d.said, prompt, answer)
	return out, s.Answer(ctx, answer)
}

func (d *demo) firstSession(ctx context.Context) error {
	d.head("ada works on lantern: three turns, one tool call that prints credentials, one subagent")
	// Made here, so that no scanner of this repository takes them for real.
	d.token = "ghp_" + strings.ReplaceAll(uuid.NewString()+uuid.NewString(), "-", "")[:36]
	d.password = "tide-" + uuid.NewString()[:13]
	d.planted = append(d.planted, d.token, d.password)
	s, err := d.session(ctx, d.ada, "lantern", lantern)
	if err != nil {
		return err
	}
	if _, err := d.turn(ctx, s, "Why does the harbour table stop in May?", "The import skipped the file for June; its name had a blank in it."); err != nil {
		return err
	}
	if _, err := s.Prompt(ctx, "Print the environment file, my token is "+d.token+" if you need it."); err != nil {
		return err
	}
	d.line("  > Print the environment file, my token is (a token) if you need it.")
	if _, err := s.Tool(ctx, "Bash", map[string]any{"command": "cat .env"}, "DB=postgres://lantern:"+d.password+"@db.example.com/lantern\nLANTERN_KEY="+d.token+"\n"); err != nil {
		return err
	}
	if err := s.Answer(ctx, "It holds a key and the address of a database."); err != nil {
		return err
	}
	if err := s.Subagent(ctx, "a1b2c3d4e5f600001", "List the callers of parseTide.", "There are two: the importer and the table writer."); err != nil {
		return err
	}
	if _, err := d.turn(ctx, s, "Note for the team: "+convention, "Understood, I will keep to GMT."); err != nil {
		return err
	}
	return errors.Join(s.Title("Harbour table import"), s.End(ctx))
}

func (d *demo) secondSession(ctx context.Context) error {
	d.head("bob works on lantern")
	s, err := d.session(ctx, d.bob, "lantern", lantern)
	if err != nil {
		return err
	}
	d.asked = s
	_, err = d.turn(ctx, s, "Should the tide tables be converted to local time before they are stored?", "I would convert them when they are read.")
	return errors.Join(err, s.Title("Time zone of tide tables"))
}

func (d *demo) otherProject(ctx context.Context) error {
	d.head("ada works on beacon, another project: it has a memory of its own")
	s, err := d.session(ctx, d.ada, "beacon", beacon)
	if err != nil {
		return err
	}
	_, err = d.turn(ctx, s, "Are tables stored in local time here?", "Yes, by the lamp's own clock.")
	return errors.Join(err, s.Title("Clock of the lamp"))
}

// recorded are transcripts of the corpus, and what is hard about each.
var recorded = []struct{ file, id, what string }{
	{"p40_secrets.jsonl", "5e550028-0000-4000-8000-000000000001", "credentials in a prompt, in a file that was read, in base64"},
	{"p07_not_human_user_records.jsonl", "5e550007-0000-4000-8000-000000000001", "records that look like a person's and are the harness's"},
	{"p21_subagents/5e550015-0000-4000-8000-000000000001.jsonl", "5e550015-0000-4000-8000-000000000001", "a subagent in a file of its own"},
	{"p16_compaction.jsonl", "5e550010-0000-4000-8000-000000000001", "a talk that was compacted, with its summary"},
}

// recordedSessions plays transcripts of the corpus through the hooks.
func (d *demo) recordedSessions(ctx context.Context) error {
	d.head("recorded sessions, played through the same hooks")
	redactor, err := redact.New()
	if err != nil {
		return err
	}
	cwd, err := d.ada.Project("lantern", lantern)
	if err != nil {
		return err
	}
	corpus := filepath.Join(tools.Root(), "internal", "transcript", "testdata", "corpus")
	for _, one := range recorded {
		r, err := replay.NewRecorded(d.ada, d.ada.ClaudeDir(), cwd, filepath.Join(corpus, one.file), one.id, "/srv/demo/lantern")
		if err != nil {
			return err
		}
		if err := r.Play(ctx); err != nil {
			return err
		}
		said := r.Said(redactor)
		d.line("  %d lines, %d with words: %s", r.Lines(), len(said), one.what)
		d.sessions, d.said = append(d.sessions, r.Session), append(d.said, said...)
	}
	text, err := os.ReadFile(filepath.Join(corpus, "expect", "p40_secrets.json"))
	if err != nil {
		return err
	}
	var expect struct{ Redact []string }
	if err := json.Unmarshal(text, &expect); err != nil {
		return err
	}
	d.planted = append(d.planted, expect.Redact...)
	return nil
}

// processed waits until the controller has caught up with every session.
func (d *demo) processed(ctx context.Context) error {
	return stack.Eventually(ctx, processedWithin, func() error {
		sessions, err := d.team.Sessions(ctx)
		if err != nil {
			return err
		}
		if len(sessions) != len(d.sessions) {
			return fmt.Errorf("%d of %d sessions are recorded; undersong status on the workstation says why", len(sessions), len(d.sessions))
		}
		for i := range sessions {
			if s := &sessions[i]; !stack.CaughtUp(s) || !d.uploaded(s) {
				return fmt.Errorf("session %s: %d of %d lines are processed: %s", s.Name, s.Status.Lines, s.Spec.Lines, ready(s))
			}
		}
		return nil
	})
}

// uploaded reports whether all that was played of a session is in the cluster.
func (d *demo) uploaded(s *v1alpha1.Session) bool {
	for _, p := range d.sessions {
		if p.ID == s.Spec.SessionID {
			return s.Spec.Lines >= p.Lines()
		}
	}
	return false
}

func ready(s *v1alpha1.Session) string {
	for _, c := range s.Status.Conditions {
		if c.Type == v1alpha1.ReadyCondition {
			return fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message)
		}
	}
	return "not looked at yet"
}

// whisper plays bob's next prompts: the first is given what the memory knows,
// once, the second nothing.
func (d *demo) whisper(ctx context.Context) error {
	d.head("bob's next prompt is given what ada's session taught")
	var out replay.Output
	// The whisper travels on its own: status, the daemon's watch, its inbox.
	err := stack.Eventually(ctx, 30*time.Second, func() error {
		text, err := d.bob.Run(ctx, "status", "--json")
		if err != nil {
			return err
		}
		if !strings.Contains(text, `"whispersWaiting": 1`) {
			return errors.New("the whisper has not reached the workstation")
		}
		return nil
	})
	if err != nil {
		return err
	}
	if out, err = d.turn(ctx, d.asked, "Then how do I show them to a skipper?", "Convert them in the view."); err != nil {
		return err
	}
	d.shown = out.Context
	d.line("\n  the hook printed:\n    %s", out.Raw)
	if !strings.Contains(out.Context, convention) {
		return fmt.Errorf("the hook gave the model %q", out.Context)
	}
	if out, err = d.turn(ctx, d.asked, "And where is the view?", "In the folder views."); err != nil {
		return err
	}
	if out.Context != "" {
		return fmt.Errorf("the whisper was shown twice: %q", out.Context)
	}
	d.line("  and at the prompt after that: nothing")
	return nil
}
