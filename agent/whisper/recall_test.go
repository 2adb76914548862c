package whisper_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf16"

	"github.com/google/go-cmp/cmp"

	"github.com/undersong-dev/undersong/agent/note"
	"github.com/undersong-dev/undersong/agent/whisper"
)

// TestPace: of three prompts one shows a message, the newest.
func TestPace(t *testing.T) {
	home := t.TempDir()
	put(t, home, example(1), example(2), example(3))
	var shown []string
	for range 8 {
		if err := whisper.Prompted(home, session); err != nil {
			t.Fatal(err)
		}
		for range 2 { // the prompt, and a tool call after it
			_, _, got := claim(t, home, now, whisper.Limit{})
			shown = append(shown, strings.Join(got, " "))
		}
	}
	want := []string{"w-3", "", "", "", "", "", "w-2", "", "", "", "", "", "w-1", "", "", ""}
	if diff := cmp.Diff(want, shown); diff != "" {
		t.Errorf("shown at prompt, tool, prompt … (-want +got):\n%s", diff)
	}
}

// TestPaceCountsWhatWasHeard: a message that did not arrive holds back nothing.
func TestPaceCountsWhatWasHeard(t *testing.T) {
	home := t.TempDir()
	put(t, home, example(1))
	claim(t, home, now, whisper.Limit{})
	if err := whisper.Return(home, session, "w-1", now); err != nil {
		t.Fatal(err)
	}
	if _, _, got := claim(t, home, now, whisper.Limit{}); len(got) != 1 {
		t.Error("the prompt after one that was taken back shows nothing")
	}
}

// TestPaceOfAnotherMake: sessions whose folder has nothing to rename, as those
// of a version before, keep the pace, too.
func TestPaceOfAnotherMake(t *testing.T) {
	home := t.TempDir()
	put(t, home, example(1), example(2))
	free := filepath.Join(home, "whispers", session, "free")
	if err := os.Remove(free); err != nil {
		t.Fatal(err)
	}
	for i, want := range []int{1, 0, 0, 1} { // at the first prompt, and the three after it
		if err := whisper.Prompted(home, session); err != nil {
			t.Fatal(err)
		}
		if _, _, got := claim(t, home, now, whisper.Limit{}); len(got) != want {
			t.Errorf("prompt %d shows %v, want %d", i, got, want)
		}
	}
	if err := whisper.Return(home, session, "w-1", now); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(free); err != nil {
		t.Errorf("after a message that was not heard: %v", err)
	}
}

// TestAClaimMakesNoFile: making one can take as long as starting the hook.
func TestAClaimMakesNoFile(t *testing.T) {
	home := t.TempDir()
	put(t, home, example(1))
	before := files(t, home)
	if _, _, got := claim(t, home, now, whisper.Limit{}); len(got) != 1 {
		t.Fatal("nothing was claimed")
	}
	if diff := cmp.Diff(before, files(t, home)); diff != "" {
		t.Errorf("a claim changed how many files there are (-before +after):\n%s", diff)
	}
}

// files counts the files below a folder.
func files(t *testing.T, dir string) (n int) {
	t.Helper()
	err := filepath.WalkDir(dir, func(string, fs.DirEntry, error) error { n++; return nil })
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestPaceOfParallelHooks(t *testing.T) {
	home := t.TempDir()
	put(t, home, example(1), example(2), example(3))
	var mu sync.Mutex
	var all []string
	var wg sync.WaitGroup
	start := make(chan struct{})
	for range 8 {
		wg.Go(func() {
			<-start
			_, _, got, err := whisper.Claim(home, session, now, whisper.Limit{})
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, ids(got)...)
		})
	}
	close(start)
	wg.Wait()
	if len(all) != 1 {
		t.Errorf("shown at once: %v", all)
	}
}

func TestWithdraw(t *testing.T) {
	for name, claimed := range map[string]bool{"waiting": false, "claimed": true} {
		t.Run(name, func(t *testing.T) {
			home := t.TempDir()
			put(t, home, example(1))
			if claimed {
				claim(t, home, now, whisper.Limit{})
			}
			if err := whisper.Withdraw(home, session, "w-1"); err != nil {
				t.Fatal(err)
			}
			put(t, home, example(1)) // the status still has it
			if err := whisper.Return(home, session, "w-1", now); err != nil {
				t.Fatal(err)
			}
			if _, _, got := claim(t, home, now, whisper.Limit{}); len(got) > 0 {
				t.Errorf("shown after it was withdrawn: %v", got)
			}
		})
	}
	if err := whisper.Withdraw(t.TempDir(), session, "w-1"); err != nil {
		t.Errorf("unknown: %v", err)
	}
}

const project = "github.com/acme/api"

// known makes a state directory that knows the memory of a folder.
func known(t *testing.T, home string, wish note.Recall) {
	t.Helper()
	m := whisper.Memory{Project: project, Name: "team", Blocks: []whisper.Block{
		{Label: "brief", Value: "Run make generate first.", Digest: "d1d1d1d1d1", Trust: whisper.TrustLearned, UpdatedAt: now.Add(-time.Hour)},
		{Label: "pitfalls", Value: "Migrations run twice.", Digest: "d2d2d2d2d2", Trust: whisper.TrustPinned, UpdatedAt: now.Add(-3 * time.Hour)},
		{Label: "decisions", Value: " \n", Digest: "d3d3d3d3d3", Trust: whisper.TrustLearned, UpdatedAt: now},
	}}
	if err := whisper.PutMemory(home, m); err != nil {
		t.Fatal(err)
	}
	if err := whisper.PutPlace(home, whisper.Place{Cwd: "/src/api", Project: project, Recall: wish}); err != nil {
		t.Fatal(err)
	}
}

func begin(t *testing.T, home, cwd string, mode note.Recall) {
	t.Helper()
	if err := whisper.Begin(home, session, cwd, mode); err != nil {
		t.Fatal(err)
	}
}

func started(t *testing.T, home string, at time.Time) {
	t.Helper()
	if err := whisper.Started(home, session, at); err != nil {
		t.Fatal(err)
	}
}

func TestBegin(t *testing.T) {
	brief := "block-brief-d1d1d1d1-" + stamp(now)
	pitfalls := "block-pitfalls-d2d2d2d2-" + stamp(now)
	for name, tc := range map[string]struct {
		reason string
		cwd    string
		mode   note.Recall
		wish   note.Recall
		want   []string
	}{
		"brief":          {"the default", "/src/api", note.RecallBrief, "", []string{brief}},
		"full":           {"every block that says something", "/src/api", note.RecallFull, "", []string{brief, pitfalls}},
		"whisper":        {"messages only", "/src/api", note.RecallWhisper, "", nil},
		"off":            {"nothing", "/src/api", note.RecallOff, "", nil},
		"repository off": {"its own wish narrows", "/src/api", note.RecallFull, note.RecallOff, nil},
		"repository brief": {
			"its own wish narrows", "/src/api", note.RecallFull, note.RecallBrief, []string{brief},
		},
		"repository full": {"nothing widens", "/src/api", note.RecallWhisper, note.RecallFull, nil},
		"elsewhere":       {"not known whose folder it is", "/src", note.RecallFull, "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			home := t.TempDir()
			known(t, home, tc.wish)
			begin(t, home, tc.cwd, tc.mode)
			if _, _, got := claim(t, home, now, whisper.Limit{}); len(got) > 0 {
				t.Errorf("shown in a context that is not fresh: %v", got)
			}
			started(t, home, now)
			begin(t, home, tc.cwd, tc.mode)
			begin(t, home, tc.cwd, tc.mode)
			_, _, got := claim(t, home, now, whisper.Limit{})
			if diff := cmp.Diff(append([]string{}, tc.want...), got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			begin(t, home, tc.cwd, tc.mode)
			if _, _, got := claim(t, home, now, whisper.Limit{}); len(got) > 0 {
				t.Errorf("shown again: %v", got)
			}
		})
	}
}

func stamp(at time.Time) string {
	const digits = "0123456789abcdefghijklmnopqrstuvwxyz"
	var s string
	for n := at.UnixNano(); n > 0; n /= 36 {
		s = string(digits[n%36]) + s
	}
	return s
}

// TestBeginAfterACompaction: the new context knows nothing of the old one's
// brief.
func TestBeginAfterACompaction(t *testing.T) {
	home := t.TempDir()
	known(t, home, "")
	for i := range 2 {
		started(t, home, now.Add(time.Duration(i)*time.Minute))
		begin(t, home, "/src/api", note.RecallBrief)
		if _, _, got := claim(t, home, now, whisper.Limit{}); len(got) != 1 {
			t.Errorf("start %d: shown %v", i, got)
		}
	}
}

// TestBeginWaitsForTheMemory: the daemon may learn it a moment later.
func TestBeginWaitsForTheMemory(t *testing.T) {
	home := t.TempDir()
	started(t, home, now)
	begin(t, home, "/src/api", note.RecallBrief)
	if _, _, got := claim(t, home, now, whisper.Limit{}); len(got) > 0 {
		t.Fatalf("shown: %v", got)
	}
	known(t, home, "")
	begin(t, home, "/src/api", note.RecallBrief)
	text, notices, got := claim(t, home, now, whisper.Limit{})
	if len(got) != 1 || !strings.Contains(text, `block="brief"`) || !strings.Contains(notices, "brief") {
		t.Errorf("%v: %s\n%s", got, text, notices)
	}
}

// TestParallelBegins: of tool calls at once, one shows the brief.
func TestParallelBegins(t *testing.T) {
	for range 20 {
		home := t.TempDir()
		known(t, home, "")
		started(t, home, now)
		begin(t, home, "/src/api", note.RecallBrief) // the folders are there
		var mu sync.Mutex
		shown := 0
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				if err := whisper.Begin(home, session, "/src/api", note.RecallBrief); err != nil {
					t.Error(err)
				}
				_, _, got, err := whisper.Claim(home, session, now, whisper.Limit{})
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				shown += len(got)
			})
		}
		wg.Wait()
		if shown != 1 {
			t.Fatalf("shown %d times", shown)
		}
	}
}

func TestBriefIsShort(t *testing.T) {
	home := t.TempDir()
	for name, value := range map[string]string{"plain": strings.Repeat("x", 5000), "wide": strings.Repeat("😀", 5000)} {
		m := whisper.Memory{Project: project, Blocks: []whisper.Block{{Label: "brief", Value: value, Digest: name, UpdatedAt: now}}}
		if err := whisper.PutMemory(home, m); err != nil {
			t.Fatal(err)
		}
		if err := whisper.PutPlace(home, whisper.Place{Cwd: "/src/api", Project: project}); err != nil {
			t.Fatal(err)
		}
		started(t, home, now)
		begin(t, home, "/src/api", note.RecallBrief)
		_, _, got, err := whisper.Claim(home, session, now, whisper.Limit{})
		if err != nil || len(got) != 1 {
			t.Fatal(got, err)
		}
		if n := len(utf16.Encode([]rune(got[0].Text))); n > whisper.MaxBrief || n < whisper.MaxBrief-1 {
			t.Errorf("%s: %d characters of the brief", name, n)
		}
		if got[0].Value != value {
			t.Errorf("%s: the state file would not know the whole block", name)
		}
	}
}

// TestModes: what waits is shown by the mode of the moment, and stays else.
func TestModes(t *testing.T) {
	brief, pitfalls, notice := block(1), block(2), example(4)
	brief.Label = "brief"
	notice.Text, notice.Notice = "", "a line"
	for mode, want := range map[note.Recall][]string{
		note.RecallFull:    {"w-4", "w-2", "w-1", "w-3"},
		note.RecallBrief:   {"w-4", "w-1", "w-3"},
		note.RecallWhisper: {"w-4", "w-3"},
		note.RecallOff:     {"w-4"},
		"nonsense":         {"w-4", "w-2", "w-1", "w-3"},
	} {
		t.Run(string(mode), func(t *testing.T) {
			home := t.TempDir()
			put(t, home, brief, pitfalls, example(3), notice)
			_, _, got := claim(t, home, now, whisper.Limit{Mode: mode})
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			_, _, rest := claim(t, home, now, whisper.Limit{})
			if len(got)+len(rest) != 4 {
				t.Errorf("lost: shown %v, then %v", got, rest)
			}
		})
	}
}

func TestChange(t *testing.T) {
	for name, tc := range map[string]struct{ before, after, want string }{
		"modified":  {"a\nb\n c", "a\nc\nd", "- b\n+ d\n"},
		"new":       {"", "a\nb", "+ a\n+ b\n"},
		"reordered": {"a\nb", "b\na", "b\na"},
		"emptied":   {" \n", "\n", "(now empty)"},
		"twice":     {"a", "a\nx\nx", "+ x\n"},
	} {
		t.Run(name, func(t *testing.T) {
			b := whisper.Block{Label: "pitfalls", Value: tc.after, Digest: "0123456789", UpdatedAt: now}
			w := b.Change(session, whisper.Memory{Project: project, Name: "team"}, tc.before)
			if w.Text != tc.want || w.Value != tc.after || w.Label != "pitfalls" || w.ID != "block-pitfalls-01234567-c" {
				t.Errorf("%+v, want text %q", w, tc.want)
			}
		})
	}
}

// TestRecallNamesStayInside: folders and remotes are anybody's strings.
func TestRecallNamesStayInside(t *testing.T) {
	home := filepath.Join(t.TempDir(), "state")
	for _, name := range []string{"../../x", "/", "", strings.Repeat("long/", 1000), "con", "a\x00b"} {
		if err := whisper.PutPlace(home, whisper.Place{Cwd: name, Project: name}); err != nil {
			t.Errorf("%q: %v", name, err)
		}
		if err := whisper.PutMemory(home, whisper.Memory{Project: name}); err != nil {
			t.Errorf("%q: %v", name, err)
		}
		if p, ok := whisper.FindPlace(home, name); !ok || p.Project != name {
			t.Errorf("%q: %v, %v", name, p, ok)
		}
		if _, ok := whisper.LoadMemory(home, name, false); !ok {
			t.Errorf("%q is not found again", name)
		}
	}
	if entries, err := os.ReadDir(filepath.Dir(home)); err != nil || len(entries) != 1 {
		t.Errorf("beside the state directory: %v, %v", entries, err)
	}
	if err := whisper.ForgetMemories(home); err != nil {
		t.Fatal(err)
	}
	if _, ok := whisper.FindPlace(home, "/"); ok {
		t.Error("not forgotten")
	}
}

func TestSweepStarts(t *testing.T) {
	home := t.TempDir()
	for n := range 3 {
		if err := whisper.Started(home, fmt.Sprintf("s-%d", n), now); err != nil {
			t.Fatal(err)
		}
	}
	if err := whisper.Sweep(home, time.Now()); err != nil {
		t.Fatal(err)
	}
	if entries, _ := os.ReadDir(filepath.Join(home, "starts")); len(entries) != 3 {
		t.Errorf("swept too early: %v", entries)
	}
	if err := whisper.Sweep(home, time.Now().Add(8*24*time.Hour)); err != nil {
		t.Fatal(err)
	}
	if entries, _ := os.ReadDir(filepath.Join(home, "starts")); len(entries) > 0 {
		t.Errorf("left: %v", entries)
	}
}
