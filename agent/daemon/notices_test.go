package daemon

import (
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/undersong-dev/undersong/agent/note"
	"github.com/undersong-dev/undersong/agent/read"
	"github.com/undersong-dev/undersong/agent/spool"
	"github.com/undersong-dev/undersong/agent/upload"
	"github.com/undersong-dev/undersong/agent/whisper"
)

const noticed = "8c1f0a52-4a1d-4d5e-9d58-2f0c6b7c1c11"

// sitting is a loop with one session that somebody sits at.
type sitting struct {
	*loop
	t       *testing.T
	clock   *clocktesting.FakeClock
	session *spool.Session
	wrong   []Trouble
	said    map[string]string
}

func (s *sitting) Set(part, message string) { s.said[part] = message }

func sit(t *testing.T) *sitting {
	t.Helper()
	home := t.TempDir()
	c := clocktesting.NewFakeClock(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	queue, err := spool.Open(spool.Options{Dir: filepath.Join(home, SessionsDir), Owner: "ada", Workstation: "ws-0123456789abcdef"})
	if err != nil {
		t.Fatal(err)
	}
	s := &sitting{t: t, clock: c, said: map[string]string{}}
	s.loop = &loop{
		home: home, clock: c, timing: DefaultTiming, spool: queue, trouble: s, log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		config: note.Config{Namespace: "alpha", Memory: "main"}, wrong: func() []Trouble { return s.wrong },
	}
	s.begin()
	if s.session, err = queue.Ensure(noticed, c.Now()); err != nil {
		t.Fatal(err)
	}
	s.update(func(state *spool.State) {
		state.Project = &read.Project{Name: "tide", Remote: "git.example.com/alpha/tide"}
	})
	return s
}

func (s *sitting) update(change func(*spool.State)) {
	s.t.Helper()
	if err := s.session.Update(change); err != nil {
		s.t.Fatal(err)
	}
}

// line looks as often as a daemon does in a while, and returns what the next
// prompt would say.
func (s *sitting) line() string {
	s.t.Helper()
	s.active[noticed] = s.clock.Now()
	for range 3 {
		s.tell()
	}
	_, notices, _, err := whisper.Claim(s.home, noticed, s.clock.Now(), whisper.Limit{})
	if err != nil {
		s.t.Fatal(err)
	}
	return notices
}

func (s *sitting) expect(what, want string) {
	s.t.Helper()
	if diff := cmp.Diff(want, s.line()); diff != "" {
		s.t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// TestBehindIsSaidOncePerState: W20 and issue 5.6, "an honest line".
func TestBehindIsSaidOncePerState(t *testing.T) {
	s := sit(t)
	synced := s.clock.Now()
	s.expect("nothing waits", "")
	s.update(func(state *spool.State) {
		state.Processed = spool.Processed{Lines: 100, Lag: 41, At: synced}
	})
	s.expect("a turn takes minutes", "")
	s.clock.Step(3 * time.Hour)
	s.expect("behind", "undersong: the team's memory is behind: last synced 3 h ago, 41 lines waiting (undersong status)")
	s.expect("said", "")
	s.clock.Step(time.Hour)
	s.update(func(state *spool.State) { state.Processed.Lag = 50 })
	s.expect("the same state", "")
	s.update(func(state *spool.State) { state.Processed = spool.Processed{Lines: 150, At: s.clock.Now()} })
	s.expect("caught up", "")
	s.update(func(state *spool.State) { state.Processed.Lag = 2 })
	s.clock.Step(20 * time.Minute)
	s.expect("behind again", "undersong: the team's memory is behind: last synced 20 min ago, 2 lines waiting (undersong status)")
}

func TestBehindBeforeTheFirstAnswer(t *testing.T) {
	s := sit(t)
	s.update(func(state *spool.State) { state.Head.Lines = 7 })
	s.clock.Step(20 * time.Minute)
	s.expect("never synced", "undersong: the team's memory is behind: not synced yet, 7 lines waiting (undersong status)")
}

// TestLoginAndRevokedAreSaid: once, and what is worse first.
func TestLoginAndRevokedAreSaid(t *testing.T) {
	s := sit(t)
	s.wrong = []Trouble{{Part: upload.PartLogin, Message: "x", Since: s.clock.Now()}}
	s.expect("login", "undersong: the login to the cluster has expired, nothing is lost meanwhile; run undersong login")
	s.expect("said", "")
	s.told = map[string]state{} // a new daemon on the same day
	s.expect("said before the restart", "")
	s.wrong = append([]Trouble{{Part: upload.PartWorkstation, Message: "x", Since: s.clock.Now()}}, s.wrong...)
	s.expect("revoked", "undersong: this workstation was revoked, nothing more is uploaded; run undersong init to register it anew")
	s.wrong = nil
	s.expect("well again", "")
}

// TestALineThatIsNoLongerTrueIsTakenBack, before anybody saw it.
func TestALineThatIsNoLongerTrueIsTakenBack(t *testing.T) {
	s := sit(t)
	s.wrong = []Trouble{{Part: upload.PartLogin, Since: s.clock.Now()}}
	s.active[noticed] = s.clock.Now()
	s.tell()
	s.wrong = nil
	s.expect("logged in meanwhile", "")
}

// TestNobodyIsToldOfWhatIsNotRecorded, nor where nobody sits.
func TestNobodyIsToldOfWhatIsNotRecorded(t *testing.T) {
	s := sit(t)
	s.wrong = []Trouble{{Part: upload.PartLogin, Since: s.clock.Now()}}
	s.update(func(state *spool.State) { state.Project = nil })
	s.expect("not recorded", "")
	s.update(func(state *spool.State) { state.Project = &read.Project{Remote: "x"} })
	s.active[noticed] = s.clock.Now().Add(-time.Hour)
	s.tell()
	if _, notices, _, err := whisper.Claim(s.home, noticed, s.clock.Now(), whisper.Limit{}); notices != "" || err != nil {
		t.Errorf("told an hour after the last note: %s, %v", notices, err)
	}
}

// TestUnheardTranscriptsAreNamed: a project's disableAllHooks leaves files that
// grow while no hook is called.
func TestUnheardTranscriptsAreNamed(t *testing.T) {
	s := sit(t)
	projects := filepath.Join(t.TempDir(), "projects")
	write := func(folder, id string, at time.Time) {
		t.Helper()
		path := filepath.Join(projects, folder, id+".jsonl")
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("{}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
	s.update(func(state *spool.State) { state.Transcript = filepath.Join(projects, "-tide", noticed+".jsonl") })
	said := func() string {
		s.clock.Step(silentEvery)
		s.lookForUnheard()
		return s.said[partHooks]
	}
	start := s.clock.Now()
	write("-tide", noticed, start)
	write("-old", "other", start.Add(-time.Minute))
	if got := said(); got != "" {
		t.Errorf("files from before the start, or heard of: %s", got)
	}
	write("-tide", noticed, s.clock.Now())
	s.active[noticed] = s.clock.Now()
	if got := said(); got != "" {
		t.Errorf("a note spoke of it: %s", got)
	}
	write("-silent", "unknown", s.clock.Now())
	if got := said(); !strings.HasPrefix(got, "1 session was written") || !strings.Contains(got, "disableAllHooks") {
		t.Errorf("an unknown file that grows: %q", got)
	}
	write("-tide", noticed, s.clock.Now())
	if got := said(); !strings.HasPrefix(got, "2 sessions were written") {
		t.Errorf("a known session that goes on without hooks: %q", got)
	}
	s.clock.Step(2 * time.Hour)
	if got := said(); got != "" {
		t.Errorf("long ago: %s", got)
	}
}
