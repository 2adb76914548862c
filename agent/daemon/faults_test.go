//go:build envtest

package daemon

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/undersong-dev/undersong/agent/statefile"
	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/internal/segment"
)

// end is what must be the same however the way there was disturbed.
type end struct {
	Main, Agent []string
	Lines       int64
	Segments    int64
	State       v1alpha1.WriterState
	Waiting     int
	SegFiles    int
	Noticed     bool
	StateFiles  int
	Whispers    int
}

// story is one session from its first note to its end, on a machine of its
// own, and returns what it came to. Words that differ from run to run are
// replaced.
func story(t *testing.T, s *standin, api, put *faulty) end {
	t.Helper()
	m := newMachine(t, s, "ada")
	m.options.WrapAPI, m.options.Transport = api.wrap, put.wrap(http.DefaultTransport)
	k := m.talk()
	k.turn("why is the tide late?", "the moon is")
	sub := filepath.Join(filepath.Dir(k.path), k.id, "subagents", "agent-a1.jsonl")
	must(t, os.MkdirAll(filepath.Dir(sub), 0o700))
	must(t, os.WriteFile(sub, []byte(k.record("assistant", "I looked at the moon")+"\n"), 0o600))
	stop := m.start()
	k.settled(3)
	k.turn("and tomorrow?", "later still")
	k.settled(5)
	k.hook("SessionEnd")
	var live *v1alpha1.Session
	eventually(t, "the session ends", func() error {
		if live = k.live(); live.Spec.Writers[0].State != v1alpha1.WriterEnded {
			return fmt.Errorf("the entry is %s; trouble: %v", live.Spec.Writers[0].State, m.trouble())
		}
		return nil
	})
	whispers := filepath.Join(m.home, "whispers", k.id, "waiting", "*.json")
	eventually(t, "a notice and three whispers wait", func() error {
		if n := count(whispers); n < 4 {
			return fmt.Errorf("there are %d", n)
		}
		return nil
	})
	eventually(t, "the state files say that all is processed", func() error {
		got, err := statefile.Read(m.cwd, k.id)
		if err == nil && got.LastProcessedIndex != 3 {
			err = fmt.Errorf("they say %d", got.LastProcessedIndex)
		}
		return err
	})
	stop()
	state := k.local()
	e := end{
		Lines: live.Spec.Lines, Segments: live.Spec.Writers[0].Segments, State: live.Spec.Writers[0].State,
		Waiting: len(state.Segments), Noticed: state.Noticed,
		Main:  k.plain(s.lines(k.name(), segment.MainStream)),
		Agent: k.plain(s.lines(k.name(), "agent-a1")),
	}
	e.SegFiles = count(filepath.Join(m.home, SessionsDir, k.id, "*.seg"))
	e.StateFiles = count(filepath.Join(m.cwd, ".letta", "claude", "*.json"))
	e.Whispers = count(whispers)
	return e
}

func count(pattern string) int {
	files, _ := filepath.Glob(pattern)
	return len(files)
}

// plain replaces what differs between two runs of a story.
func (k *talk) plain(lines []string) []string {
	replacer := strings.NewReplacer(k.id, "SESSION", k.m.cwd, "CWD")
	var plain []string
	for _, line := range lines {
		plain = append(plain, replacer.Replace(line))
	}
	return plain
}

// TestTheWalkSurvivesEveryFault lets each call to the API server and to the
// store fail once, before it is made and after: whatever is lost, the request
// or the answer, the end is the same.
func TestTheWalkSurvivesEveryFault(t *testing.T) {
	s := newTeam(t)
	s.set(func() { s.say = "the moon decides" })
	api, put := &faulty{}, &faulty{}
	want := story(t, s, api, put)
	calls, puts := api.calls.Load(), put.calls.Load()
	t.Logf("undisturbed: %d calls of the API, %d of the store: %+v", calls, puts, want)
	if calls < 12 || puts < 3 || len(want.Main) != 4 || len(want.Agent) != 1 {
		t.Fatalf("the story is not what it should be: %d calls, %d puts, %+v", calls, puts, want)
	}
	for _, after := range []bool{false, true} {
		for n := int64(1); n <= calls; n++ {
			api := &faulty{at: n, after: after}
			t.Run(fmt.Sprintf("api %d after %v", n, after), func(t *testing.T) {
				t.Parallel()
				if diff := cmp.Diff(want, story(t, s, api, &faulty{})); diff != "" {
					t.Errorf("%v failed (-want +got):\n%s", api.last.Load(), diff)
				}
			})
		}
		for n := int64(1); n <= puts; n++ {
			put := &faulty{at: n, after: after}
			t.Run(fmt.Sprintf("store %d after %v", n, after), func(t *testing.T) {
				t.Parallel()
				if diff := cmp.Diff(want, story(t, s, &faulty{}, put)); diff != "" {
					t.Errorf("%v failed (-want +got):\n%s", put.last.Load(), diff)
				}
			})
		}
	}
}
