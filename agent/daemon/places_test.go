package daemon

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/undersong-dev/undersong/agent/note"
	"github.com/undersong-dev/undersong/agent/spool"
)

// TestAFolderThatIsGone: what was said in it is judged by what the folder was when
// a hook spoke of it, and never by what lies around it.
func TestAFolderThatIsGone(t *testing.T) {
	worktree := func(e *evening, dir string) {
		t.Helper()
		git := filepath.Join(e.cwd, ".git", "worktrees", "w")
		e.must(os.MkdirAll(dir, 0o700))
		e.must(os.MkdirAll(git, 0o700))
		e.must(os.WriteFile(filepath.Join(dir, ".git"), []byte("gitdir: "+git+"\n"), 0o600))
		e.must(os.WriteFile(filepath.Join(git, "HEAD"), []byte("ref: refs/heads/w\n"), 0o600))
		e.must(os.WriteFile(filepath.Join(git, "commondir"), []byte("../..\n"), 0o600))
	}
	clone := func(e *evening, dir string) {
		t.Helper()
		e.must(os.MkdirAll(filepath.Join(dir, ".git"), 0o700))
		e.must(os.WriteFile(filepath.Join(dir, ".git", "HEAD"), []byte("ref: refs/heads/main\n"), 0o600))
		e.must(os.WriteFile(filepath.Join(dir, ".git", "config"), []byte("[remote \"origin\"]\n\turl = https://git.example.com/client/secret.git\n"), 0o600))
	}
	cases := map[string]struct {
		folder string // below the folder of the evening, where the repository is tide
		make   func(e *evening, dir string)
		late   bool // the note is taken when the folder is gone
		want   string
	}{
		"a clone within the repository":                  {"tide/vendor/secret", clone, false, ""},
		"a clone, while no daemon ran":                   {"tide/vendor/secret", clone, true, ""},
		"a worktree beside it":                           {"tide-hotfix", worktree, false, "words of MOON"},
		"a worktree beside it, while no daemon ran":      {"tide-hotfix", worktree, true, ""},
		"a worktree of the agent's":                      {"tide/.claude/worktrees/w", worktree, false, "words of MOON"},
		"a worktree of the agent's, while no daemon ran": {"tide/.claude/worktrees/w", worktree, true, "words of MOON"},
		"a folder of the repository": {"tide/build", func(e *evening, dir string) {
			e.must(os.MkdirAll(dir, 0o700))
		}, false, "words of MOON"},
		"a worktree that opts out": {"tide-hotfix", func(e *evening, dir string) {
			worktree(e, dir)
			e.must(os.WriteFile(filepath.Join(dir, ".undersong.yaml"), []byte("capture: off\n"), 0o600))
		}, false, ""},
		"a worktree of the agent's that opts out": {"tide/.claude/worktrees/w", func(e *evening, dir string) {
			worktree(e, dir)
			e.must(os.WriteFile(filepath.Join(dir, ".undersong.yaml"), []byte("capture: off\n"), 0o600))
		}, false, ""},
		"a clone in a worktree of the agent's": {"tide/.claude/worktrees/w/vendor/secret", clone, false, ""},
		"a worktree that hides more": {"tide-hotfix", func(e *evening, dir string) {
			worktree(e, dir)
			e.must(os.WriteFile(filepath.Join(dir, ".undersong.yaml"), []byte("redact: [MOON]\n"), 0o600))
		}, false, "words of [redacted:project-1]"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			e := newEvening(t, rand.New(rand.NewPCG(1, 1)))
			e.begin()
			dir := filepath.Join(filepath.Dir(e.cwd), filepath.FromSlash(tc.folder))
			tc.make(e, dir)
			e.append(dir, "words of MOON")
			k := e.talks[0]
			e.must(note.Write(e.home, note.Note{Event: eventStop, Session: k.id, Transcript: k.streams[0].path, Cwd: dir, Entrypoint: "cli", At: e.clock.Now()}))
			if !tc.late {
				e.loop.takeNotes(t.Context())
				e.restart() // what was noted is on the disk
				e.loop.sweep(true)
			}
			e.must(os.RemoveAll(dir))
			// The session ends there, and says nothing new of what it was.
			e.must(note.Write(e.home, note.Note{Event: eventStop, Session: k.id, Transcript: k.streams[0].path, Cwd: dir, Entrypoint: "cli", At: e.clock.Now()}))
			e.loop.takeNotes(t.Context())
			got := e.heard()
			if tc.want == "" && got != "" || !strings.Contains(got, tc.want) {
				t.Errorf("heard %q, want %q", got, tc.want)
			}
		})
	}
}

// TestPlacesAreBounded: a session that was in very many folders forgets the oldest.
func TestPlacesAreBounded(t *testing.T) {
	state := &spool.State{}
	look := func(cwd string) (spool.Folder, bool) {
		return spool.Folder{Remote: "git.example.com/a/b"}, !strings.HasSuffix(cwd, "gone")
	}
	at := time.Date(2026, 5, 4, 18, 0, 0, 0, time.UTC)
	folder := func(n int) string { return filepath.Join(t.TempDir(), "..", fmt.Sprint(n)) }
	var first, last string
	for n := range maxPlaces + 10 {
		last = folder(n)
		if n == 0 {
			first = last
		}
		visit(state, note.Note{Cwd: last, At: at.Add(time.Duration(n) * time.Second)}, look)
	}
	visit(state, note.Note{Cwd: last + "gone", At: at}, look)
	_, hasFirst := state.Folders[filepath.Clean(first)]
	_, hasLast := state.Folders[filepath.Clean(last)]
	if len(state.Folders) != maxPlaces || hasFirst || !hasLast {
		t.Errorf("%d places, the first %v, the last %v", len(state.Folders), hasFirst, hasLast)
	}
}
