//go:build envtest && linux

package live

import (
	"errors"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/undersong-dev/undersong/agent/note"
	"github.com/undersong-dev/undersong/agent/whisper"
	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/test/claude"
	"github.com/undersong-dev/undersong/test/stack"
)

// TestTheBriefIsGivenToEachFreshContext counts the brief in the requests that the
// model receives: once in each context that begins empty, however many prompts
// follow, and not a second time where a session goes on.
func TestTheBriefIsGivenToEachFreshContext(t *testing.T) {
	w := newWorld(t, nil)
	ctx := t.Context()
	const project = "git.example.com/lighthouse/lantern"
	const brief = "PERIWINKLE: the lamp room is locked at noon."
	w.must(parts.Admin.Create(ctx, &v1alpha1.MemoryBlock{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.team.Namespace, Name: v1alpha1.MemoryBlockName(w.team.Memory, project, note.BriefLabel)},
		Spec: v1alpha1.MemoryBlockSpec{
			MemoryRef: v1alpha1.LocalRef{Name: w.team.Memory}, Project: project, Label: note.BriefLabel, Mode: v1alpha1.BlockPinned, Value: brief,
		},
	}))
	w.Model.Script(&claude.Rule{When: "Respond with TEXT ONLY", Always: true, Blocks: []claude.Block{{Text: "<summary>They spoke about lamps.</summary>"}}})

	// Until a session was heard there, nobody knows whose memory a folder has.
	k := w.talk()
	k.asks("who is there")
	first := k.Session()
	w.must(stack.Eventually(ctx, within, func() error {
		_, known := whisper.FindPlace(w.desk.State, w.cwd)
		m, _ := whisper.LoadMemory(w.desk.State, project, true)
		if !known || len(m.Blocks) != 1 || m.Blocks[0].Value != brief {
			return errors.New("the brief is not at the desk")
		}
		return nil
	}))
	// once asks, and looks how often the brief is in what the model was sent.
	count := func(prompt string, want int) {
		t.Helper()
		k.asks(prompt)
		requests := w.Model.Requests()
		last := requests[len(requests)-1]
		if n := last.Count("PERIWINKLE"); n != want {
			t.Errorf("at %q the brief is %d times in the request, want %d", prompt, n, want)
		}
	}
	w.must(k.Command(ctx, "/clear", "SessionEnd"))
	count("a fresh context", 1)
	second := k.Session()
	count("and on it goes", 1)
	w.must(k.Command(ctx, "/compact", "PostCompact"))
	count("after the compaction", 1)
	count("and once more", 1)
	w.must(k.Hangup(ctx))
	k = w.talk("--resume", second)
	count("it was there before", 1)
	w.must(k.Hangup(ctx))
	k = w.talk("--resume", second, "--fork-session")
	count("in the fork it stands, too", 1)
	fork := k.Session()
	w.must(k.Hangup(ctx))
	k = w.talk()
	count("another day", 1)
	third := k.Session()
	w.must(k.Hangup(ctx))

	answered := func(prompts ...string) []said {
		var all []said
		for _, p := range prompts {
			all = append(all, user(p), assistant("Noted."))
		}
		return all
	}
	w.arrives(first, answered("who is there"))
	w.arrives(second, answered("a fresh context", "and on it goes", "after the compaction", "and once more", "it was there before"))
	w.arrives(fork, answered("in the fork it stands, too"))
	w.arrives(third, answered("another day"))
	for _, c := range parts.Letta.Conversations() {
		for _, m := range c.Messages {
			if m.Role == "user" && strings.Contains(m.Text, "PERIWINKLE") {
				t.Errorf("what memory said came back to it: %s", m.Text)
			}
		}
	}
}

// TestTwoTalksAtOnce lets two terminals of one person take turns in one folder, and
// then in one session.
func TestTwoTalksAtOnce(t *testing.T) {
	w := newWorld(t, nil)
	ctx := t.Context()
	one, other := w.talk(), w.talk()
	a, b := []said{}, []said{}
	for _, word := range []string{"first", "second", "third"} {
		w.must(one.Say(ctx, "port "+word))
		other.asks("starboard " + word)
		w.must(one.Until(ctx, within, "Stop", func(string) bool { return one.Count("Stop") == len(a)/2+1 }))
		a = append(a, user("port "+word), assistant("Noted."))
		b = append(b, user("starboard "+word), assistant("Noted."))
	}
	w.arrives(one.Session(), a)
	w.arrives(other.Session(), b)
	w.must(other.Hangup(ctx))

	// Two processes write into one file: neither knows of the other.
	again := w.talk("--resume", one.Session())
	again.asks("port from elsewhere")
	one.asks("port from here")
	a = append(a, user("port from elsewhere"), assistant("Noted."), user("port from here"), assistant("Noted."))
	w.arrives(one.Session(), a)
	w.must(again.Hangup(ctx))
	w.must(one.Hangup(ctx))
	w.arrives(one.Session(), a)
	w.arrives(other.Session(), b)
}
