//go:build envtest

package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/internal/segment"
	"github.com/undersong-dev/undersong/internal/transcript"
	"github.com/undersong-dev/undersong/test/stack"
	"github.com/undersong-dev/undersong/test/tools"
)

// TestNothingOfAPauseArrives lets the corpus's generator write a session while
// its person pauses and resumes at random moments, and makes the session private
// before its end. What was written meanwhile is nowhere in the store and not at
// Letta; everything else is, once. Then the person has all of it forgotten.
func TestNothingOfAPauseArrives(t *testing.T) {
	eachSeed(t, 1, playPaused)
}

// quiet is a time in which nothing may be heard: the size of each transcript
// when it began and when it ended.
type quiet struct{ from, to map[string]int64 }

// sizes are those of all transcripts.
func sizes(t *testing.T, projects string) map[string]int64 {
	t.Helper()
	all := map[string]int64{}
	err := filepath.WalkDir(projects, func(path string, entry os.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".jsonl") {
			info, err := entry.Info()
			if err != nil {
				return err
			}
			all[path] = info.Size()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// covers says whether a line of a transcript is of the time.
func (q quiet) covers(path string, from, to int64) bool {
	end, ended := q.to[path]
	return to > q.from[path] && (q.to == nil || ended && from < end)
}

func playPaused(t *testing.T, python string, seed int) {
	t.Helper()
	w := newWorld(t, nil)
	w.startController()
	projects := filepath.Join(w.desk.ClaudeDir(), "projects")
	w.must(os.MkdirAll(projects, 0o700))
	manifest := filepath.Join(t.TempDir(), "manifest.json")
	gen := exec.CommandContext(t.Context(), python,
		filepath.Join(tools.Root(), "internal", "transcript", "testdata", "corpus", "gen", "gen_live.py"),
		"--projects", projects, "--manifest", manifest, "--cwd", w.cwd, "--hook", filepath.Join(parts.Dir, "bin", "undersong-hook")+" --home "+w.desk.State,
		"--seed", strconv.Itoa(seed), "--turns", "24", "--torn", "0.5", "--pause", "0.1", "--subagents", "2")
	gen.Dir = w.cwd
	gen.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + w.desk.Home, "TMPDIR=" + os.TempDir(), "UNDERSONG_HOME=" + w.desk.State,
		"CLAUDE_CONFIG_DIR=" + w.desk.ClaudeDir(), "CLAUDECODE=1", "CLAUDE_CODE_ENTRYPOINT=cli",
	}
	var out bytes.Buffer
	gen.Stdout, gen.Stderr = &out, &out
	w.must(gen.Start())
	ended := make(chan error, 1)
	go func() { ended <- gen.Wait() }()

	random := rand.New(rand.NewPCG(uint64(seed), 3))
	// say runs a command while the generator holds still, and measures.
	say := func(args ...string) map[string]int64 {
		w.must(gen.Process.Signal(syscall.SIGSTOP))
		_, err := w.desk.Run(t.Context(), args...)
		w.must(err)
		all := sizes(t, projects)
		w.must(gen.Process.Signal(syscall.SIGCONT))
		return all
	}
	var quiets []quiet
	over := false
	grow := func(bytes int64) {
		path, before := newest(sizes(t, projects))
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for !over {
			select {
			case err := <-ended:
				ended <- err
				over = true
			case <-tick.C:
				if _, now := newest(sizes(t, projects)); path == "" && now > 0 || now-before >= bytes {
					return
				}
			}
		}
	}
	for range 3 {
		grow(2000 + random.Int64N(8000))
		if over {
			break
		}
		q := quiet{from: say("pause", "--capture")}
		grow(1000 + random.Int64N(6000))
		if over {
			quiets = append(quiets, q)
			break
		}
		q.to = say("resume")
		quiets = append(quiets, q)
	}
	grow(4000)
	path, _ := newest(sizes(t, projects))
	id := strings.TrimSuffix(filepath.Base(path), ".jsonl")
	if !over {
		quiets = append(quiets, quiet{from: say("private", "--session", id)})
	}
	if err := <-ended; err != nil {
		t.Fatalf("gen_live.py: %v\n%s", err, out.String())
	}
	if len(quiets) < 2 {
		t.Fatalf("only %d quiet times: that is no test", len(quiets))
	}
	heard, unheard := split(t, path, id, quiets)
	if len(heard) == 0 || len(unheard) == 0 {
		t.Fatalf("%d words were heard and %d not: that is no test", len(heard), len(unheard))
	}

	var got arrived
	w.must(stack.Eventually(t.Context(), 2*within, func() error {
		var err error
		if got, err = w.arrived(id); err != nil {
			return err
		}
		return missing(heard, got.told)
	}))
	for _, s := range heard {
		role, _, _ := strings.Cut(s.key, ":")
		if n := got.told[spoken(role, s.text)]; n != 1 {
			t.Errorf("Letta has %s %d times", s.key, n)
		}
	}
	kept := map[string]bool{}
	for _, a := range got.archive[segment.MainStream] {
		for _, line := range a.lines {
			if record, err := transcript.Parse(line); err == nil {
				kept[record.UUID] = true
			}
		}
	}
	for _, s := range unheard {
		role, uuid, _ := strings.Cut(s.key, ":")
		if kept[uuid] || got.told[spoken(role, s.text)] > 0 {
			t.Errorf("%s was said in a quiet time and arrived: archive %v, Letta %d times", s.key, kept[uuid], got.told[spoken(role, s.text)])
		}
	}
	w.forgotten(id, got.session, heard)
}

// newest returns the session's own transcript, and its size.
func newest(all map[string]int64) (path string, size int64) {
	for p, n := range all {
		if !strings.Contains(p, "subagents") && n >= size {
			path, size = p, n
		}
	}
	return path, size
}

// split returns the words of a transcript that were said in no quiet time, and
// those that were.
func split(t *testing.T, path, id string, quiets []quiet) (heard, unheard []said) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	from := int64(0)
	for line := range bytes.Lines(data) {
		to := from + int64(len(line))
		record, err := transcript.Parse(bytes.TrimSuffix(line, []byte("\n")))
		if err == nil && bytes.HasSuffix(line, []byte("\n")) {
			in := slices.ContainsFunc(quiets, func(q quiet) bool { return q.covers(path, from, to) })
			for _, e := range record.Entries(transcript.MainStream, id) {
				s := said{string(e.Speaker) + ":" + e.ID, e.Text}
				if in {
					unheard = append(unheard, s)
				} else {
					heard = append(heard, s)
				}
			}
		}
		from = to
	}
	return heard, unheard
}

// forgotten has the session forgotten, and looks everywhere for its words.
func (w *world) forgotten(id string, session v1alpha1.Session, words []said) {
	w.t.Helper()
	out, err := w.desk.Run(w.t.Context(), "forget", id, "--wait", "5m")
	w.must(err)
	if !strings.Contains(out, "The Session is deleted.") {
		w.t.Errorf("forget says %q", out)
	}
	left, err := w.team.Sessions(w.t.Context())
	w.must(err)
	if len(left) > 0 {
		w.t.Errorf("%d Sessions are left", len(left))
	}
	bucket, err := w.team.Open()
	w.must(err)
	a := arrived{session: session, archive: map[string][]archivedSegment{}}
	w.must(a.load(w, bucket))
	text, err := json.Marshal(a.archive)
	w.must(err)
	all := string(text)
	for stream, segments := range a.archive {
		for _, s := range segments {
			for _, line := range s.lines {
				all += fmt.Sprintf("%s %s\n", stream, line)
			}
		}
	}
	for _, c := range parts.Letta.Conversations() {
		if strings.Contains(c.Summary, w.team.Namespace+"/") && !strings.Contains(out, "conversation") {
			w.t.Errorf("the conversation is still at Letta, and nobody says so")
		}
	}
	for _, s := range words {
		if len(s.text) > 20 && strings.Contains(all, s.text) {
			w.t.Errorf("%s is still in the archive", s.key)
		}
	}
}
