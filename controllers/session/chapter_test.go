//go:build envtest

package session

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/internal/segment"
)

// again deletes the Session as a person does, and makes it anew as a
// workstation does: first without an entry.
func (w *world) again(restart bool) {
	w.t.Helper()
	old := w.get()
	w.must(w.user.Delete(w.t.Context(), old.DeepCopy()))
	if restart {
		w.restart()
	} else {
		_, _ = w.reconcile() // notices
	}
	spec := old.Spec
	spec.Writers, spec.Lines, spec.Requests = nil, 0, nil
	w.must(w.user.Create(w.t.Context(), &v1alpha1.Session{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: w.key.Name}, Spec: spec,
	}, client.FieldOwner("undersong-create")))
	_, _ = w.reconcile() // sees it without an entry
}

// anew is the workstation after a reset: it reads from the beginning, and its
// chain begins again.
func (wr *writer) anew() *writer {
	return &writer{
		w: wr.w, name: wr.name, uid: wr.uid, slot: wr.slot, chain: segment.Start(wr.w.key.Name, wr.name), raws: map[int64][]byte{}, redactor: wr.redactor,
	}
}

// theStory is what was said before, read anew in so many segments.
func (wr *writer) theStory(segments int) {
	lines := []string{
		userLine("u1", "Note for the team: tide tables are stored in GMT."), assistantLine("a1", "Understood."), titleLine("Tide tables"),
		userLine("u2", "What next?"), assistantLine("a2", "The harbour."),
	}
	for chunk := range slices.Chunk(lines, (len(lines)+segments-1)/segments) {
		wr.segment(chunk...)
	}
}

// settleOn lets it go on, and checks that all was told once.
func (w *world) settleOn(a *writer, chapter int32) {
	w.t.Helper()
	a.segment(userLine("u8", "Afterwards."))
	a.apply()
	s := w.settleDown()
	sync := syncOf(s, a.name)
	if sync.Chapter != chapter || sync.Origin != "" || sync.Verified.Segments != a.seq || sync.Delivered.Segments != a.seq {
		w.t.Errorf("the writer is %+v, want chapter %d and %d segments", sync, chapter, a.seq)
	}
	if s.Status.Lines != s.Spec.Lines || s.Status.Lag != 0 || s.Status.LostLines != 0 {
		w.t.Errorf("%d of %d lines, %d lost", s.Status.Lines, s.Spec.Lines, s.Status.LostLines)
	}
	w.toldOnce("Afterwards.")
}

func TestASessionBegunAnew(t *testing.T) {
	for name, c := range map[string]struct {
		reason string
		// steps are the reconciles before the Session is deleted; 0: all.
		steps   int
		restart bool
		// segments in which the same is read again.
		segments int
		// lost says that the workstation has nothing of before any more.
		lost bool
		// wrong says that its owner calls a whisper wrong at the same time.
		wrong bool
	}{
		"fewer segments":       {reason: "spec is behind the archive, on another chain", segments: 1},
		"as many":              {reason: "spec is where the archive is, on another chain", segments: 2},
		"more segments":        {reason: "only the first segment tells", segments: 5},
		"a new process":        {reason: "it knows no Session of that name", segments: 5, restart: true},
		"nothing delivered":    {reason: "what the archive has is told first", segments: 5, steps: 1},
		"in mid-turn":          {reason: "the open delivery is looked up", segments: 1, steps: 3},
		"killed in mid-turn":   {reason: "by another process, too", segments: 5, steps: 3, restart: true},
		"transcript gone":      {reason: "only the archive has what was not delivered", steps: 1, lost: true},
		"transcript gone, too": {reason: "in a new process", steps: 2, lost: true, restart: true},
		"a wrong whisper":      {reason: "only a wish to forget does not wait for the memory", steps: 1, lost: true, wrong: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, nil)
			w.story()
			if c.steps == 0 {
				w.settleDown()
			}
			for range c.steps {
				_, _ = w.reconcile() // some way
			}
			w.again(c.restart)
			a := w.writers["ws-a"].anew()
			if !c.lost {
				a.theStory(c.segments)
			}
			if c.wrong {
				w.request(v1alpha1.Request{ID: "w", Kind: v1alpha1.RequestWrongWhisper, Whisper: "0"})
			}
			w.settleOn(a, 1)
			before := strings.Count(w.kept(), "The harbour.")
			if want := map[bool]int{false: 2, true: 1}[c.lost]; before != want {
				t.Errorf("%s: the archive has it %d times, want %d", c.reason, before, want)
			}
			// And once more.
			w.again(c.restart)
			a = a.anew()
			a.theStory(3)
			w.settleOn(a, 2)
		})
	}
}

// TestAnExpiredSessionGoesOn makes a Session again whose workstation knows what
// was verified. The controller sees it first without an entry.
func TestAnExpiredSessionGoesOn(t *testing.T) {
	w := newWorld(t, nil)
	w.story()
	w.settleDown()
	w.again(false)
	a := w.writers["ws-a"]
	a.slots = nil
	w.settleOn(a, 0)
}

// TestForgettingReachesEarlierChapters has a session erased that was begun anew.
func TestForgettingReachesEarlierChapters(t *testing.T) {
	from, to := int64(1), int64(2)
	for name, c := range map[string]struct {
		reason string
		// early says that the request comes before the new chapter's first
		// segment is looked at.
		early bool
		from  *int64
		to    *int64
		want  []string
	}{
		"whole":        {reason: "nothing of any chapter is left"},
		"whole, early": {reason: "it waits for what is on its way", early: true},
		"lines":        {reason: "copies of the same records go, too", from: &from, to: &to, want: []string{"What next?", "The harbour.", "Afterwards."}},
		"lines, early": {reason: "the lines are those of now", early: true, from: &from, to: &to, want: []string{"What next?", "The harbour.", "Afterwards."}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, nil)
			w.story()
			w.settleDown()
			w.again(false)
			a := w.writers["ws-a"].anew()
			a.theStory(5)
			a.segment(userLine("u8", "Afterwards."))
			a.apply()
			if !c.early {
				w.settleDown()
			}
			w.request(v1alpha1.Request{ID: "f", Kind: v1alpha1.RequestForget, FromLine: c.from, ToLine: c.to})
			w.settleDown()
			if w.answer("f") == nil {
				t.Fatal("no answer")
			}
			w.only("the archive", w.kept(), c.want...)
		})
	}
}
