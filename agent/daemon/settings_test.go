package daemon

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/undersong-dev/undersong/agent/note"
	"github.com/undersong-dev/undersong/agent/read"
)

// TestARunningDaemonSeesTheConfiguration: what its person writes into
// config.json holds for what is read next, and what is said meanwhile is not
// heard later, except where nobody knew what to exclude.
func TestARunningDaemonSeesTheConfiguration(t *testing.T) {
	edit := func(change func(*note.Config)) func(*testing.T, *evening) {
		return func(t *testing.T, e *evening) {
			t.Helper()
			c, err := note.LoadConfig(e.home)
			e.must(err)
			change(&c)
			e.must(note.SaveConfig(e.home, c))
		}
	}
	type got struct {
		Meanwhile, Later, Trouble bool
		End                       error
	}
	cases := map[string]struct {
		change func(*testing.T, *evening)
		want   got
	}{
		"nothing": {edit(func(*note.Config) {}), got{Meanwhile: true, Later: true}},
		"an exclude": {
			edit(func(c *note.Config) { c.Exclude = []string{"git.example.com/alpha/tide"} }), got{},
		},
		"what is shown": {
			edit(func(c *note.Config) { c.Recall = note.RecallOff }), got{Meanwhile: true, Later: true},
		},
		"a file that cannot be read": {
			func(_ *testing.T, e *evening) {
				e.must(os.WriteFile(filepath.Join(e.home, note.ConfigFile), []byte("{"), 0o600))
			}, got{Later: true, Trouble: true},
		},
		"off":          {edit(func(c *note.Config) { c.Off = true }), got{End: errEnd}},
		"no file":      {func(_ *testing.T, e *evening) { e.must(note.RemoveConfig(e.home)) }, got{End: errEnd}},
		"another team": {edit(func(c *note.Config) { c.Namespace = "beta" }), got{End: errAnew}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			e := newEvening(t, rand.New(rand.NewPCG(1, 1)))
			said := &sitting{said: map[string]string{}}
			e.loop.trouble = said
			e.begin()
			if e.line(e.cwd, "first words") == "" {
				t.Fatal("before the change nothing is heard")
			}
			before, err := note.LoadConfig(e.home)
			e.must(err)
			tc.change(t, e)
			var is got
			is.Meanwhile = e.line(e.cwd, "words meanwhile") != ""
			is.Trouble = said.said[partConfig] != ""
			is.End = e.loop.over()
			if is.End == nil && !is.Meanwhile {
				e.must(note.SaveConfig(e.home, before))
				last := e.line(e.cwd, "last words")
				if !strings.Contains(last, "last words") {
					t.Errorf("changed back: %q", last)
				}
				is.Later = strings.Contains(last, "words meanwhile")
				if message := said.said[partConfig]; message != "" {
					t.Errorf("changed back, and still trouble: %s", message)
				}
			} else {
				is.Later = is.Meanwhile
			}
			if diff := cmp.Diff(tc.want, is, cmp.Comparer(func(a, b error) bool { return errors.Is(a, b) })); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestAnExcludeWhileABatchIsRead: a batch that was read under other rules is read
// again.
func TestAnExcludeWhileABatchIsRead(t *testing.T) {
	e := newEvening(t, rand.New(rand.NewPCG(1, 1)))
	e.begin()
	e.append(e.cwd, "words that the person excluded in time")
	e.hook(e.talks[0], eventStop)
	e.loop.takeNotes(t.Context())
	decide := e.loop.reader.Decide
	e.loop.reader.Decide = func(cwd, entrypoint string) (v read.Verdict) {
		v = decide(cwd, entrypoint)
		c, err := note.LoadConfig(e.home)
		e.must(err)
		c.Exclude = []string{"git.example.com/alpha/tide"}
		e.must(note.SaveConfig(e.home, c))
		return v
	}
	if line := e.heard(); line != "" {
		t.Errorf("heard: %s", line)
	}
}
