package daemon

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

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

// TestAnOptOutThatIsTakenBack: what was said while the repository wished not to be
// heard is not heard, also when the wish is gone before anything is read.
func TestAnOptOutThatIsTakenBack(t *testing.T) {
	type step struct {
		event string // of the hook; "" none
		say   string // what is written then
		file  string // becomes the repository's file; "-" takes it away
		in    string // the folder, tide where it is empty
		agent bool   // of a subagent
		again bool   // the daemon is killed, and another one starts
		bare  bool   // what is written gives no time
		quick bool   // it follows at once
	}
	const off = "capture: off\n"
	for name, tc := range map[string]struct {
		reason string
		steps  []step
		want   []string // heard
	}{
		"between two prompts": {
			reason: "the prompt that ends it is heard, and what was before it began",
			steps:  []step{{event: eventPrompt, say: "A"}, {event: eventStop, file: off}, {event: eventPrompt, say: "B"}, {event: eventStop, say: "C", file: "-"}, {event: eventPrompt, say: "D"}},
			want:   []string{"A", "D"},
		},
		"between two prompts, the daemon killed": {
			reason: "what the notes found is on the disk",
			steps:  []step{{event: eventPrompt, say: "A"}, {event: eventStop, file: off}, {event: eventPrompt, say: "B", again: true}, {event: eventStop, say: "C", file: "-"}, {event: eventPrompt, say: "D", again: true}},
			want:   []string{"A", "D"},
		},
		"within a turn": {
			reason: "nobody knows of what is written between two notes that found different things",
			steps:  []step{{event: eventPrompt, say: "A"}, {event: eventTool, say: "B", file: off}, {event: eventTool, say: "C", file: "-"}, {event: eventTool, say: "D"}, {event: eventStop}, {event: eventPrompt, say: "E"}},
			want:   []string{"A", "B", "E"},
		},
		"from the beginning": {
			reason: "the first note finds it",
			steps:  []step{{file: off}, {event: eventSessionStart}, {event: eventPrompt, say: "A", file: "-"}, {event: eventPrompt, say: "B"}},
			want:   []string{"B"},
		},
		"no hook since": {
			reason: "nobody has seen its end",
			steps:  []step{{event: eventPrompt, say: "A"}, {event: eventStop, file: off}, {event: eventPrompt, say: "B", file: "-"}},
			want:   []string{"A"},
		},
		"without a time": {
			reason: "it is of the time of what stands before it",
			steps:  []step{{event: eventPrompt, say: "A"}, {event: eventStop, file: off}, {event: eventPrompt, say: "B"}, {say: "C", bare: true, file: "-"}, {event: eventPrompt, say: "D"}},
			want:   []string{"A", "D"},
		},
		"two prompts in a second": {
			reason: "the first was seen under it",
			steps:  []step{{event: eventPrompt, say: "A"}, {event: eventStop, file: off}, {event: eventPrompt, say: "B", file: "-"}, {event: eventPrompt, say: "C", quick: true}},
			want:   []string{"A", "C"},
		},
		"it stays": {
			reason: "as ever",
			steps:  []step{{event: eventPrompt, say: "A", file: off}, {event: eventPrompt, say: "B"}},
		},
		"only expressions": {
			reason: "that is no wish not to be heard",
			steps:  []step{{event: eventPrompt, say: "A", file: "redact: [MOON]\n"}, {event: eventPrompt, say: "B", file: "-"}, {event: eventPrompt, say: "C"}},
			want:   []string{"A", "B", "C"},
		},
		"a subagent goes elsewhere": {
			reason: "what its hook finds is not of the session's folder",
			steps:  []step{{event: eventPrompt, say: "A"}, {event: eventTool, in: "moon", agent: true, say: "B"}, {event: eventStop, say: "C"}},
			want:   []string{"A", "B", "C"},
		},
		"the person goes elsewhere": {
			reason: "the other repository wishes not to be heard, and is gone when it is read",
			steps:  []step{{event: eventPrompt, say: "A"}, {event: eventPrompt, in: "moon", say: "B"}, {event: eventPrompt, say: "C"}},
			want:   []string{"A", "C"},
		},
		"the person goes elsewhere and comes back": {
			reason: "what is said in a repository that wishes nothing is heard, whatever a note found elsewhere",
			steps:  []step{{event: eventPrompt, say: "A"}, {event: eventTool, say: "B"}, {event: eventTool, in: "moon", say: "C"}, {say: "D"}, {event: eventPrompt, say: "E"}},
			want:   []string{"A", "B", "D", "E"},
		},
		"the person comes back, and speaks there once more": {
			reason: "a note from here does not say that the other one wishes it no more",
			steps:  []step{{event: eventPrompt, say: "A"}, {event: eventPrompt, in: "moon", say: "B"}, {event: eventPrompt, say: "C"}, {in: "moon", say: "D"}, {event: eventPrompt, say: "E"}},
			want:   []string{"A", "C", "E"},
		},
		"both wish it, one after the other": {
			reason: "the time of the first is kept when the second is followed",
			steps:  []step{{event: eventPrompt, say: "A"}, {event: eventStop, file: off}, {event: eventPrompt, say: "B"}, {event: eventPrompt, in: "moon", say: "C", file: "-"}, {event: eventPrompt, say: "D"}},
			want:   []string{"A", "D"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEvening(t, rand.New(rand.NewPCG(1, 1)))
			id := "00000001-0000-4000-8000-000000000000"
			k := &silentTalk{id: id, streams: []*silentStream{{path: filepath.Join(e.projects, "-tide", id+".jsonl")}}}
			e.talks = append(e.talks, k)
			moon := filepath.Join(e.cwd, "..", "moon")
			e.must(os.MkdirAll(filepath.Join(moon, ".git"), 0o700))
			e.must(os.WriteFile(filepath.Join(moon, ".git", "HEAD"), nil, 0o600))
			e.must(os.WriteFile(filepath.Join(moon, ".git", "config"), []byte("[remote \"origin\"]\n\turl = https://git.example.com/alpha/tide.git\n"), 0o600))
			e.must(os.WriteFile(filepath.Join(moon, ".undersong.yaml"), []byte(off), 0o600))
			for _, s := range tc.steps {
				if !s.quick {
					e.clock.Step(20 * time.Second)
				}
				cwd := e.cwd
				if s.in != "" {
					cwd = filepath.Clean(moon)
				}
				if s.event != "" {
					n := note.Note{Event: s.event, Session: id, Transcript: k.streams[0].path, Cwd: cwd, Entrypoint: "cli", At: e.clock.Now()}
					if s.agent {
						n.AgentID = "a1"
					}
					e.must(note.Write(e.home, n))
					e.loop.takeNotes(t.Context())
				}
				if s.say != "" {
					// A prompt says that it is of a moment before its hook.
					at := fmt.Sprintf("\"timestamp\":%q,", e.clock.Now().Add(-100*time.Millisecond).Format(time.RFC3339Nano))
					if s.bare {
						at = ""
					}
					line := fmt.Sprintf("{\"type\":\"user\",\"uuid\":%q,\"sessionId\":%q,\"cwd\":%q,%s\"message\":{\"content\":\"words of %s\"}}\n", s.say, id, cwd, at, s.say)
					file, err := os.OpenFile(k.streams[0].path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
					e.must(err)
					_, err = file.WriteString(line)
					e.must(errors.Join(err, file.Close()))
				}
				e.clock.Step(200 * time.Millisecond)
				switch s.file {
				case "":
				case "-":
					e.must(os.Remove(filepath.Join(e.cwd, ".undersong.yaml")))
				default:
					e.must(os.WriteFile(filepath.Join(e.cwd, ".undersong.yaml"), []byte(s.file), 0o600))
				}
				if s.again {
					e.restart()
				}
			}
			e.must(os.Remove(filepath.Join(moon, ".undersong.yaml")))
			e.loop.sweep(true)
			text := e.heard()
			var got []string
			for _, words := range []string{"A", "B", "C", "D", "E"} {
				if strings.Contains(text, "words of "+words) {
					got = append(got, words)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s: heard (-want +got):\n%s", tc.reason, diff)
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
