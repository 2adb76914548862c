package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/undersong-dev/undersong/agent/consent"
	"github.com/undersong-dev/undersong/agent/note"
)

const talked = "8c1f0a52-4a1d-4d5e-9d58-2f0c6b7c1c11"

// agreedMachine is a machine after init, in a checkout that the team hears, with
// one session of it.
func agreedMachine(t *testing.T) (*machine, *clocktesting.FakeClock) {
	t.Helper()
	m := newMachine(t)
	c := clocktesting.NewFakeClock(now)
	m.Clock = c
	home := filepath.Join(m.dir, "state")
	put(t, filepath.Join(m.dir, "tide", ".git", "HEAD"), "ref: refs/heads/main\n")
	put(t, filepath.Join(m.dir, "tide", ".git", "config"), "[remote \"origin\"]\n\turl = https://git.example.com/alpha/tide.git\n")
	put(t, filepath.Join(m.dir, ".claude", "projects", "-tide", talked+".jsonl"), "{}\n")
	state := map[string]any{"sessionID": talked, "cwd": filepath.Join(m.dir, "tide"), "transcript": filepath.Join(m.dir, ".claude", "projects", "-tide", talked+".jsonl")}
	data, err := json.Marshal(state)
	if err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(home, "sessions", talked, "state.json"), string(data))
	put(t, filepath.Join(home, note.PolicyFile), `{"version":1,"include":["git.example.com/alpha/*"],"recall":true,"maxCharacters":4000}`)
	config := note.Config{Namespace: "alpha", Memory: "main", Owner: "ada", Workstation: "wks-a", ConsentedAt: now.Add(-time.Hour)}
	if err := note.SaveConfig(home, config); err != nil {
		t.Fatal(err)
	}
	t.Chdir(filepath.Join(m.dir, "tide"))
	return m, c
}

// hereOf is what status --json says of this folder.
func (m *machine) hereOf(t *testing.T) here {
	t.Helper()
	code, out, errs := m.run("status", "--json")
	if code != 0 {
		t.Fatalf("status: %s", errs)
	}
	var r struct{ Here here }
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatal(err)
	}
	return r.Here
}

// TestAmIRecorded: the answer is true in each state, and says by whom and since
// when.
func TestAmIRecorded(t *testing.T) {
	yes := here{Recorded: true, Project: "git.example.com/alpha/tide", Team: "alpha", Memory: "main", Since: now.Add(-time.Hour), Session: talked}
	no := func(reason string, since, until time.Time) here {
		h := yes
		h.Recorded, h.Reason, h.Since, h.Until = false, reason, since, until
		return h
	}
	var never time.Time
	for name, test := range map[string]struct {
		reason string
		do     func(t *testing.T, m *machine, c *clocktesting.FakeClock)
		want   here
		says   string // of status for people
	}{
		"agreed": {"since init", func(*testing.T, *machine, *clocktesting.FakeClock) {}, yes, "recorded for team alpha, memory main, as git.example.com/alpha/tide, since "},
		"paused": {"until resume", func(t *testing.T, m *machine, _ *clocktesting.FakeClock) {
			t.Helper()
			m.ok(t, "pause", "--capture")
		}, no("paused", now, never), "not recorded: paused, since "},
		"paused for a while": {"until then", func(t *testing.T, m *machine, _ *clocktesting.FakeClock) {
			t.Helper()
			m.ok(t, "pause", "--capture", "--for", "1h")
		}, no("paused", now, now.Add(time.Hour)), ", until "},
		"a while has passed": {"recorded since its end", func(t *testing.T, m *machine, c *clocktesting.FakeClock) {
			t.Helper()
			m.ok(t, "pause", "--capture", "--for", "1h")
			c.Step(2 * time.Hour)
		}, func() here { h := yes; h.Since = now.Add(time.Hour); return h }(), "recorded for team alpha"},
		"resumed": {"recorded since then", func(t *testing.T, m *machine, c *clocktesting.FakeClock) {
			t.Helper()
			m.ok(t, "pause")
			c.Step(time.Minute)
			m.ok(t, "resume")
		}, func() here { h := yes; h.Since = now.Add(time.Minute); return h }(), "recorded for team alpha"},
		"private": {"this session only", func(t *testing.T, m *machine, _ *clocktesting.FakeClock) {
			t.Helper()
			m.ok(t, "private")
		}, no("this session is private", now, never), "not recorded: this session is private"},
		"another is private": {"that is another", func(t *testing.T, m *machine, _ *clocktesting.FakeClock) {
			t.Helper()
			m.ok(t, "private", "--session", "other")
		}, yes, "recorded for team alpha"},
		"the session that it runs in": {"not the newest one", func(t *testing.T, m *machine, _ *clocktesting.FakeClock) {
			t.Helper()
			m.env["CLAUDE_CODE_SESSION_ID"], m.env["UNDERSONG_SESSION"] = "other", "an-outer-one"
			m.ok(t, "private")
		}, func() here { h := no("this session is private", now, never); h.Session = "other"; return h }(), "private"},
		"no longer private": {"by its id", func(t *testing.T, m *machine, c *clocktesting.FakeClock) {
			t.Helper()
			m.ok(t, "private")
			c.Step(time.Minute)
			m.ok(t, "resume", "--session", talked)
		}, func() here { h := yes; h.Since = now.Add(time.Minute); return h }(), "recorded for team alpha"},
		"LETTA_MODE": {"the plugin's switch", func(_ *testing.T, m *machine, _ *clocktesting.FakeClock) {
			m.env["LETTA_MODE"] = "off"
		}, no("switched off by LETTA_MODE", never, never), "not recorded: switched off by LETTA_MODE"},
		"another repository": {"the team does not hear it", func(t *testing.T, m *machine, _ *clocktesting.FakeClock) {
			t.Helper()
			t.Chdir(m.dir)
		}, here{Reason: consent.ReasonOutside, Team: "alpha", Memory: "main"}, "not recorded: outside a shared repository"},
		"opted out": {"the repository's own wish", func(t *testing.T, m *machine, _ *clocktesting.FakeClock) {
			t.Helper()
			put(t, filepath.Join(m.dir, "tide", ".undersong.yaml"), "capture: off\n")
		}, no(consent.ReasonOptOut, never, never), "not recorded: opted out by the repository"},
		"nothing known of the team": {"nothing is read", func(t *testing.T, m *machine, _ *clocktesting.FakeClock) {
			t.Helper()
			if err := os.Remove(filepath.Join(m.dir, "state", note.PolicyFile)); err != nil {
				t.Fatal(err)
			}
		}, no("what the team allows is not known yet", never, never), "not known yet"},
		"a damaged record of pauses": {"nothing is read", func(t *testing.T, m *machine, _ *clocktesting.FakeClock) {
			t.Helper()
			put(t, filepath.Join(m.dir, "state", "silence.json"), "{")
		}, no(consent.ErrSilences.Error(), never, never), "silence.json"},
		"recall paused": {"recorded, and nothing shown", func(t *testing.T, m *machine, _ *clocktesting.FakeClock) {
			t.Helper()
			m.ok(t, "pause", "--recall", "--for", "10m")
		}, func() here {
			h := yes
			h.RecallPaused, h.RecallUntil = true, now.Add(10*time.Minute)
			return h
		}(), "; the memory shows nothing until "},
	} {
		t.Run(name, func(t *testing.T) {
			m, c := agreedMachine(t)
			test.do(t, m, c)
			got := m.hereOf(t)
			ignore := cmpopts.IgnoreFields(here{}, "Folder")
			if test.want.Project == "" {
				ignore = cmpopts.IgnoreFields(here{}, "Folder", "Project", "Session", "Since")
			}
			if diff := cmp.Diff(test.want, got, ignore); diff != "" {
				t.Errorf("%s (-want +got):\n%s", test.reason, diff)
			}
			if _, out, _ := m.run("status"); !strings.Contains(out, test.says) {
				t.Errorf("%s: status does not say %q:\n%s", test.reason, test.says, out)
			}
		})
	}
}

// ok runs a command that must work.
func (m *machine) ok(t *testing.T, args ...string) string {
	t.Helper()
	code, out, errs := m.run(args...)
	if code != 0 {
		t.Fatalf("undersong %s: %s", strings.Join(args, " "), errs)
	}
	return out
}

// TestWithoutRoomPauseSaysSo: who asks not to be recorded must not believe it when it
// is not so, and status does not call a state directory well that takes no file.
func TestWithoutRoomPauseSaysSo(t *testing.T) {
	m, _ := agreedMachine(t)
	home := filepath.Join(m.dir, "state")
	for _, name := range []string{"silence.json", "doctor.probe"} { // folders in the way of files
		put(t, filepath.Join(home, name, "x"), "")
	}
	for _, command := range []string{"pause", "private"} {
		if code, out, errs := m.run(command); code != 1 || out != "" || !strings.Contains(errs, "recorded") && !strings.Contains(errs, "NOT paused") {
			t.Errorf("%s: exit %d, %q, %q", command, code, out, errs)
		}
	}
	if _, err := os.Stat(filepath.Join(home, "recall-pause.json")); err == nil {
		t.Error("half of it was done")
	}
	if _, out, _ := m.run("status"); !strings.Contains(out, "takes no file, so nothing is read now") {
		t.Errorf("status says\n%s", out)
	}
}

// TestPauseSaysWhatItDid: both halves, one of them, twice, and what is wrong.
func TestPauseSaysWhatItDid(t *testing.T) {
	for name, test := range map[string]struct {
		reason  string
		args    [][]string
		want    string
		code    int
		paused  bool
		recall  bool
		unready bool
	}{
		"both":            {"the default", [][]string{{"pause"}}, "Paused: nothing is recorded and nothing shown, in any session, until you run undersong resume.\n", 0, true, true, false},
		"capture":         {"one half", [][]string{{"pause", "--capture"}}, "Paused: nothing is recorded, in any session, until you run undersong resume.\n", 0, true, false, false},
		"recall":          {"the other half", [][]string{{"pause", "--recall"}}, "Paused: nothing of the memory is shown, in any session, until you run undersong resume. Sessions are recorded as before.\n", 0, false, true, false},
		"resume half":     {"the rest stays paused", [][]string{{"pause"}, {"resume", "--recall"}}, "What the memory says is shown again.\n", 0, true, false, false},
		"resume":          {"both", [][]string{{"pause"}, {"resume"}}, "Recorded and shown again from now on. What was said meanwhile stays withheld.\n", 0, false, false, false},
		"resume twice":    {"nothing to do", [][]string{{"pause"}, {"resume"}, {"resume"}}, "Nothing was paused.\n", 0, false, false, false},
		"backwards":       {"no such span", [][]string{{"pause", "--for", "-1h"}}, "undersong: --for must be between 1s and 720h0m0s\n", 1, false, false, false},
		"not private":     {"another session", [][]string{{"resume", "--session", "x"}}, "undersong: session x is not private\n", 1, false, false, false},
		"not a session":   {"would name a file", [][]string{{"private", "--session", "../x"}}, "undersong: --session is not a session id\n", 1, false, false, false},
		"private":         {"the newest one", [][]string{{"private"}}, "Nothing more is recorded of session " + talked + " (the newest one of this project).\nWhat was said before is not touched; to take it back: undersong forget " + talked + "\n", 0, false, false, false},
		"private twice":   {"nothing to do", [][]string{{"private"}, {"private", "--session", strings.ToUpper(talked)}}, "Session " + talked + " is private already.\n", 0, false, false, false},
		"before init":     {"nothing is recorded anyway", [][]string{{"pause"}}, "undersong: not configured, run undersong init\n", 1, false, false, true},
		"a second pause":  {"the end is set anew", [][]string{{"pause", "--for", "1h"}, {"pause"}}, "Paused: nothing is recorded and nothing shown, in any session, until you run undersong resume.\n", 0, true, true, false},
		"resume one half": {"nothing is shown still", [][]string{{"pause"}, {"resume", "--capture"}}, "Recorded again from now on. What was said meanwhile stays withheld.\n", 0, false, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			m, _ := agreedMachine(t)
			home := filepath.Join(m.dir, "state")
			if test.unready {
				if err := os.Remove(filepath.Join(home, "config.json")); err != nil {
					t.Fatal(err)
				}
			}
			var code int
			var out, errs string
			for _, args := range test.args {
				code, out, errs = m.run(args...)
			}
			if diff := cmp.Diff(test.want, out+errs); diff != "" || code != test.code {
				t.Errorf("%s: exit %d, want %d (-want +got):\n%s", test.reason, code, test.code, diff)
			}
			known, err := consent.LoadSilences(home)
			if err != nil {
				t.Fatal(err)
			}
			if got := known.Current(consent.ReasonPaused, "", now) != nil; got != test.paused {
				t.Errorf("%s: capture is paused: %v, want %v", test.reason, got, test.paused)
			}
			if n := len(known.List); n > 1 {
				t.Errorf("%s: %d silences, want one", test.reason, n)
			}
			if _, got := note.RecallPaused(home, now); got != test.recall {
				t.Errorf("%s: recall is paused: %v, want %v", test.reason, got, test.recall)
			}
		})
	}
}
