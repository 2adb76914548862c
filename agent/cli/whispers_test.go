package cli

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/undersong-dev/undersong/agent/note"
	"github.com/undersong-dev/undersong/agent/whisper"
)

const (
	whisperID   = "2f1e7d36-52a8-5b0c-8a41-6f0e3f2f9d10"
	whisperTalk = "8d1f0c52-6a1b-4f6e-9d3c-2b7e5a90c4f1"
)

// whispering is a machine that was told some things.
func whispering(t *testing.T) (*machine, string) {
	t.Helper()
	m := newMachine(t)
	m.Clock = clocktesting.NewFakeClock(now)
	home := filepath.Join(m.dir, "state")
	for _, w := range []whisper.Whisper{
		{
			ID: whisperID, Session: whisperTalk, Project: "github.com/acme/api", Memory: "team", Text: "Migrations run twice\x1b[2J in CI.\nThe second must do nothing.",
			At: now.Add(-3 * time.Hour), Expires: now.Add(-time.Hour),
			Source: whisper.Source{
				Session: whisperTalk + "-b5fc85e5", Workstation: "ws-3f9c2a7d51e04b68", FromSegment: 2, ToSegment: 3,
				Agent: "agent-91b7", Conversation: "conv-5e0c", Revision: "r41",
			},
		},
		{
			ID: "block-brief-deadbeef-1", Session: whisperTalk, Project: "github.com/acme/api", Memory: "team", Label: "brief", Trust: whisper.TrustPinned,
			Text: strings.Repeat("word ", 100), At: now.Add(-time.Hour),
		},
		{ID: "recorded", Session: whisperTalk, Notice: "this session is recorded", At: now},
	} {
		if err := whisper.Put(home, w); err != nil {
			t.Fatal(err)
		}
	}
	return m, home
}

func TestWhispers(t *testing.T) {
	m, _ := whispering(t)
	code, out, errs := m.run("whispers")
	if code != 0 || errs != "" {
		t.Errorf("exit %d: %s", code, errs)
	}
	golden(t, "whispers", out)

	_, out, _ = m.run("whispers", "--json", "-n", "1")
	var rows []whisperRow
	if err := json.Unmarshal([]byte(out), &rows); err != nil || len(rows) != 1 || rows[0].Block != "brief" {
		t.Errorf("%v: %s", err, out)
	}
	code, out, _ = newMachine(t).run("whispers")
	if code != 0 || !strings.Contains(out, "nothing in the last week") {
		t.Errorf("none: exit %d: %s", code, out)
	}
}

func TestWhy(t *testing.T) {
	m, _ := whispering(t)
	for name, id := range map[string]string{"why": whisperID[:8], "why-block": "block-brief-deadbeef-1"} {
		code, out, errs := m.run("whispers", "--why", id)
		if code != 0 {
			t.Errorf("exit %d: %s", code, errs)
		}
		golden(t, name, out)
	}
	for id, want := range map[string]string{"nothing": "no such whisper", whisperID[:5]: "no such whisper", "recorded": "no such whisper"} {
		if code, _, errs := m.run("whispers", "--why", id); code == 0 || !strings.Contains(errs, want) {
			t.Errorf("%s: exit %d: %s", id, code, errs)
		}
	}
}

// TestWrongWithoutACluster: it is withdrawn here all the same.
func TestWrongWithoutACluster(t *testing.T) {
	m, home := whispering(t)
	if err := note.SaveConfig(home, note.Config{ConsentedAt: now, Kubeconfig: filepath.Join(m.dir, "nowhere")}); err != nil {
		t.Fatal(err)
	}
	code, _, errs := m.run("whispers", "--wrong", whisperID)
	if code == 0 || errs == "" {
		t.Errorf("exit %d, and nobody says that the cluster was not told", code)
	}
	kept, err := whisper.List(home)
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range kept {
		if k.ID == whisperID && k.State != whisper.Done {
			t.Errorf("it still is %s", k.State)
		}
	}
	if _, _, got, err := whisper.Claim(home, whisperTalk, now.Add(-2*time.Hour), whisper.Limit{Mode: note.RecallWhisper}); err != nil || len(got) != 1 || got[0].ID != "recorded" {
		t.Errorf("a prompt would show %v, %v", got, err)
	}
}

func TestStatusline(t *testing.T) {
	stdin := `{"session_id":"` + whisperTalk + `","cwd":"/src","model":{"id":"x"},"version":"2"}`
	m := newMachine(t)
	home := filepath.Join(m.dir, "state")
	m.Clock = clocktesting.NewFakeClock(now)
	m.In = strings.NewReader(stdin)
	if _, out, _ := m.run("statusline"); out != "" {
		t.Errorf("without a configuration: %q", out)
	}
	if err := note.SaveConfig(home, note.Config{ConsentedAt: now, Namespace: "alpha"}); err != nil {
		t.Fatal(err)
	}
	m.In = strings.NewReader(stdin)
	if code, out, _ := m.run("statusline"); code != 0 || out != "undersong: ready, team alpha\n" {
		t.Errorf("exit %d: %q", code, out)
	}
}
