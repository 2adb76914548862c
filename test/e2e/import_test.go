//go:build envtest

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/internal/crash"
	"github.com/undersong-dev/undersong/internal/redact"
	"github.com/undersong-dev/undersong/internal/segment"
	"github.com/undersong-dev/undersong/test/replay"
	"github.com/undersong-dev/undersong/test/stack"
	"github.com/undersong-dev/undersong/test/tools"
)

// recordings are transcripts of the corpus that were written before anybody
// heard of undersong: talk, parallel tools, a compaction, a subagent, lines that
// are none, odd times, secrets.
var recordings = []string{
	"p01_minimal.jsonl", "p05_parallel_tools.jsonl", "p16_compaction.jsonl", "p27_corrupt_lines.jsonl", "p31_timestamps.jsonl",
	"p21_subagents/5e550015-0000-4000-8000-000000000001.jsonl", "p40_secrets.jsonl",
}

// past is a world of which the desk has a history.
type past struct {
	*world
	recorded []*replay.Recorded
	// words are those that Letta must have when all is imported, each as often as
	// it was said.
	words map[string]int
}

// newPast makes a world whose developer has worked before init.
func newPast(t *testing.T, change func(*v1alpha1.TeamMemory)) *past {
	t.Helper()
	w := &world{t: t}
	name := "t" + strings.ReplaceAll(uuid.NewString(), "-", "")[:12]
	var err error
	w.team, err = parts.Team(t.Context(), stack.TeamOptions{
		Namespace: name, Members: []string{"ada", "bob"}, Leads: []string{"grace"}, Include: []string{"git.example.com/lighthouse/**"}, Change: change,
	})
	w.must(err)
	w.desk, err = parts.Workstation(w.team, "ada", "desk")
	w.must(err)
	t.Cleanup(w.desk.StopDaemon)
	w.cwd = w.project(w.desk)
	t.Cleanup(func() {
		w.stopController()
		if t.Failed() {
			w.explain()
		}
	})
	return &past{world: w, words: map[string]int{}}
}

// lay lets transcripts of the corpus have been written in the past.
func (p *past) lay(files ...string) {
	p.t.Helper()
	redactor, err := redact.New()
	p.must(err)
	for _, file := range files {
		path := filepath.Join(tools.Root(), "internal", "transcript", "testdata", "corpus", file)
		r, err := replay.NewRecorded(p.desk, p.desk.ClaudeDir(), p.cwd, path, sessionOf(p.t, path), "/srv/demo/lantern")
		p.must(err)
		p.must(r.Lay())
		p.recorded = append(p.recorded, r)
		for _, words := range r.Said(redactor) {
			p.words[words]++
		}
	}
}

// sessionOf is the session that a transcript of the corpus is of.
func sessionOf(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		var record struct{ SessionID, UUID string }
		if json.Unmarshal([]byte(line), &record) == nil && record.SessionID != "" && record.UUID != "" {
			return record.SessionID
		}
	}
	t.Fatalf("%s names no session", path)
	return ""
}

// run runs undersong at the desk and prints what it said when the test is read.
func (p *past) run(args ...string) string {
	p.t.Helper()
	out, err := p.desk.Run(p.t.Context(), args...)
	p.t.Logf("$ undersong %s\n%s", strings.Join(args, " "), out)
	p.must(err)
	return out
}

// held are all lines of the archive, by session, each with whether it was
// imported.
func (p *past) held() (lines map[string]int64, imported map[string]bool) {
	p.t.Helper()
	bucket, err := p.team.Open()
	p.must(err)
	lines, imported = map[string]int64{}, map[string]bool{}
	sessions, err := p.team.Sessions(p.t.Context())
	p.must(err)
	for i := range sessions {
		s := &sessions[i]
		for info, err := range bucket.List(p.t.Context(), segment.ArchivePrefix(s.Namespace, s.Spec.Owner, s.Name)) {
			p.must(err)
			if !strings.HasSuffix(info.Key, ".jsonl.zst") {
				continue
			}
			h, body, err := stack.Segment(p.t.Context(), bucket, info.Key)
			p.must(err)
			lines[s.Spec.SessionID] += int64(len(body))
			imported[s.Spec.SessionID] = imported[s.Spec.SessionID] || h.Import
		}
	}
	return lines, imported
}

// imported waits until the memory has read all that was recorded, and compares it
// with what was said: every word as often as it was said, every line once in the
// archive, in segments that say that they are an import's.
func (p *past) imported() {
	p.t.Helper()
	p.must(stack.Eventually(p.t.Context(), 2*within, func() error {
		sessions, err := p.team.Sessions(p.t.Context())
		if err != nil {
			return err
		}
		if len(sessions) < len(p.recorded) {
			return fmt.Errorf("%d of %d sessions are recorded", len(sessions), len(p.recorded))
		}
		for i := range sessions {
			if s := &sessions[i]; !stack.CaughtUp(s) {
				return fmt.Errorf("session %s: %d lines uploaded, %d processed", s.Name, s.Spec.Lines, s.Status.Lines)
			}
		}
		return nil
	}))
	text := p.conversations()
	for words, n := range p.words {
		if got := strings.Count(text, "\n"+words+"\n"); got != n {
			p.t.Errorf("Letta has %d times, want %d: %s", got, n, words)
		}
	}
	lines, imported := p.held()
	for _, r := range p.recorded {
		if want := r.Heard(); lines[r.ID] != want || !imported[r.ID] {
			p.t.Errorf("the archive has %d lines of %s, want %d; an import: %v", lines[r.ID], r.Transcript, want, imported[r.ID])
		}
	}
}

// TestImport: a developer's history comes into the memory, once, and is seen
// wherever sessions are; a dry run and a no send nothing.
func TestImport(t *testing.T) {
	p := newPast(t, nil)
	p.lay(recordings...)
	p.must(p.desk.Init(t.Context()))
	p.startController()
	if out := p.run("import", "--dry-run"); !strings.Contains(out, "github-token 1") || !strings.Contains(out, "7 sessions of before init") || !strings.Contains(out, "400,000 a day") {
		t.Error("the dry run does not say what would be done")
	}
	if _, err := p.desk.Run(t.Context(), "import"); err == nil || !strings.Contains(err.Error(), "there is nobody to ask here") {
		t.Errorf("without an answer: %v", err)
	}
	if out := p.run("import", "--status"); !strings.Contains(out, "Nothing is being imported") || p.desk.DaemonPID() != 0 {
		t.Error("a dry run has begun something")
	}
	p.run("import", "--yes", "--wait")
	p.imported()
	if out := p.run("sessions"); strings.Count(out, "git.example.com/lighthouse/lantern") != len(recordings) || !strings.Contains(out, "Tide gauge feeds") {
		t.Error("undersong sessions does not list them")
	}
	for _, r := range p.recorded {
		if out := p.run("verify", r.ID); !strings.Contains(out, "imported") || strings.Contains(out, "GAP") {
			t.Errorf("verify of %s", r.ID)
		}
		if _, err := os.Stat(filepath.Join(p.cwd, ".letta", "claude", "session-"+r.ID+".json")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("a state file of a session that nobody opened: %v", err)
		}
	}
	sessions, err := p.team.Sessions(t.Context())
	p.must(err)
	for i := range sessions {
		if s := &sessions[i]; s.Status.State != v1alpha1.SessionEnded || s.Status.Usage.DayImportTokens == 0 {
			t.Errorf("%s is %s, with %d tokens of imports", s.Name, s.Status.State, s.Status.Usage.DayImportTokens)
		}
	}
	bucket, err := p.team.Open()
	p.must(err)
	p.must(stack.SearchBucket(t.Context(), bucket, plantedIn(t, "p40_secrets")))
	searchFiles(t, p.desk.State, plantedIn(t, "p40_secrets"))
	if out := p.run("import", "--yes", "--wait"); !strings.Contains(out, "7 imported before") {
		t.Error("a second import finds something")
	}
	p.imported()
}

// plantedIn are the secrets of a transcript of the corpus.
func plantedIn(t *testing.T, name string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(tools.Root(), "internal", "transcript", "testdata", "corpus", "expect", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	var expect struct{ Redact []string }
	if err := json.Unmarshal(text, &expect); err != nil || len(expect.Redact) == 0 {
		t.Fatalf("%s has no secrets: %v", name, err)
	}
	return expect.Redact
}

// TestAnImportIsKilled kills the daemon in the middle of an import, at each point
// that it passes there; the person imports again, and it is as if nothing had been.
func TestAnImportIsKilled(t *testing.T) {
	for _, point := range []string{
		crash.AgentLinesRead, crash.AgentSegmentWritten, crash.AgentCursorWritten, crash.AgentSlotTaken,
		crash.AgentUploaded, crash.AgentSessionCreated, crash.AgentSpecApplied, crash.AgentVerifiedSeen,
	} {
		for n := 2; n <= 2**rounds; n += 2 { // a few are done already
			t.Run(fmt.Sprintf("%s/%d", point, n), func(t *testing.T) {
				p := newPast(t, nil)
				p.lay(recordings...)
				p.must(p.desk.Init(t.Context()))
				p.startController()
				mark := filepath.Join(t.TempDir(), "mark")
				d, err := p.desk.StartDaemon(fmt.Sprintf("UNDERSONG_CRASH=%s:%d", point, n), "UNDERSONG_CRASH_MARK="+mark)
				p.must(err)
				t.Cleanup(d.Kill)
				if _, err := p.desk.Run(t.Context(), "import", "--yes"); err != nil {
					t.Fatal(err)
				}
				<-d.Exited()
				if _, err := os.Stat(mark); err != nil {
					t.Fatalf("the point %s was not reached %d times", point, n)
				}
				if out := p.run("import", "--status"); !strings.Contains(out, "of 7 sessions read") {
					t.Error("it does not say where it stands")
				}
				p.run("import", "--yes", "--wait")
				p.imported()
				if out := p.run("import", "--status"); !strings.Contains(out, "7 of 7 sessions read, 7 archived") {
					t.Error("it is not done")
				}
			})
		}
	}
}

// TestAnImportYields: a session that is held meanwhile is recorded, answered and
// delivered while the imports wait for their part of the budget.
func TestAnImportYields(t *testing.T) {
	p := newPast(t, func(m *v1alpha1.TeamMemory) {
		little := int64(100_000)
		m.Spec.Budget.DailyTokens = &little
	})
	p.lay(recordings...)
	for i := range 40 {
		s := replay.New(p.desk, p.desk.ClaudeDir(), p.cwd, uuid.NewString())
		p.must(s.Old(time.Now().AddDate(0, -1, 0), fmt.Sprintf("Question %d of long ago.", i), strings.Repeat(fmt.Sprintf("Answer %d of long ago. ", i), 50)))
	}
	p.must(p.desk.Init(t.Context()))
	p.startController()
	p.run("import", "--yes")
	live := p.session(p.desk, p.cwd, uuid.NewString())
	for i := range 3 {
		p.turn(live, fmt.Sprintf("Said while it goes on, %d.", i), fmt.Sprintf("Answered while it goes on, %d.", i))
	}
	p.must(stack.Eventually(t.Context(), within, func() error {
		text := p.conversations()
		for _, words := range p.said {
			if strings.Count(text, words) != 1 {
				return fmt.Errorf("Letta does not have: %s", words)
			}
		}
		return nil
	}))
	p.must(stack.Eventually(t.Context(), 2*within, func() error {
		sessions, err := p.team.Sessions(t.Context())
		if err != nil {
			return err
		}
		waiting := 0
		for i := range sessions {
			for _, c := range sessions[i].Status.Conditions {
				if strings.Contains(c.Message, "imports have spent a fifth") {
					waiting++
				}
			}
		}
		if len(sessions) != len(recordings)+41 || waiting < 20 {
			return fmt.Errorf("%d sessions, of which %d wait for the budget of imports", len(sessions), waiting)
		}
		return nil
	}))
	p.must(stack.Eventually(t.Context(), within, func() error {
		out, err := p.desk.Run(t.Context(), "import", "--status")
		if err == nil && (!strings.Contains(out, "47 archived") || !strings.Contains(out, "lines of these sessions to read yet")) {
			err = errors.New("it does not say that the memory is behind: " + out)
		}
		return err
	}))
}

// TestASessionThatWentOnIsWhole: the first part of a transcript is of before init,
// the rest was captured. The first part is imported afterwards.
func TestASessionThatWentOnIsWhole(t *testing.T) {
	p := newPast(t, nil)
	s := replay.New(p.desk, p.desk.ClaudeDir(), p.cwd, uuid.NewString())
	p.must(s.Old(time.Now().Add(-time.Hour), "Where does the tide gauge report to?", "To the harbour office."))
	p.must(s.Title("Of before"))
	p.must(p.desk.Init(t.Context()))
	p.startController()
	if _, err := s.Start(t.Context(), "resume"); err != nil {
		t.Fatal(err)
	}
	p.sessions = append(p.sessions, s)
	p.turn(s, "And who reads it there?", "Whoever has the watch.")
	p.must(s.Title("Of now"))
	p.must(s.Stop(t.Context(), ""))
	p.must(s.End(t.Context()))
	captured := func() *v1alpha1.Session {
		sessions, err := p.team.Sessions(t.Context())
		p.must(err)
		if len(sessions) != 1 {
			return nil
		}
		return &sessions[0]
	}
	processed := func(lines int64) {
		t.Helper()
		p.must(stack.Eventually(t.Context(), within, func() error {
			one := captured()
			if one == nil || !stack.CaughtUp(one) || one.Spec.Lines < lines {
				return fmt.Errorf("not %d lines are processed: %+v", lines, one)
			}
			return nil
		}))
	}
	processed(5)
	before := captured()
	if out := p.run("verify", s.ID); !strings.Contains(out, "before init") {
		t.Error("what is of before init is not named")
	}
	if out := p.run("import", "--dry-run"); !strings.Contains(out, s.ID) {
		t.Error("the first part is not offered")
	}
	p.run("import", "--yes", "--wait")
	p.said = append(p.said, "Where does the tide gauge report to?", "To the harbour office.")
	processed(s.Lines())
	after := captured()
	if after.Status.SyncState.LastProcessedIndex != before.Status.SyncState.LastProcessedIndex || after.Status.Title != "Of now" {
		t.Errorf("index %d and title %q became %d and %q by the import", before.Status.SyncState.LastProcessedIndex, before.Status.Title,
			after.Status.SyncState.LastProcessedIndex, after.Status.Title)
	}
	p.check() // each word once, each line once, the state files
	if out := p.run("verify", s.ID); strings.Contains(out, "before init") || strings.Contains(out, "GAP") {
		t.Error("verify does not see the import")
	}
}
