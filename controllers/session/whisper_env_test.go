//go:build envtest

package session

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/internal/letta"
	"github.com/undersong-dev/undersong/internal/letta/api"
)

// client is another client of the world's Letta.
func (w *world) client() letta.Client {
	w.t.Helper()
	c, err := api.New(api.Options{BaseURL: w.lettaURL, Key: "key"})
	w.must(err)
	return c
}

// teach has the session's agent know something that its next answers tell.
func (w *world) teach(line string) {
	w.t.Helper()
	_, err := w.client().PutBlock(w.t.Context(), w.get().Status.SyncState.AgentID, letta.Block{Label: "pitfalls", Value: "- " + line}, "test")
	w.must(err)
}

// memory changes the TeamMemory.
func (w *world) memory(change func(*v1alpha1.TeamMemorySpec)) {
	w.t.Helper()
	mem := &v1alpha1.TeamMemory{}
	w.must(w.admin.Get(w.t.Context(), types.NamespacedName{Namespace: w.namespace, Name: "team"}, mem))
	change(&mem.Spec)
	w.must(w.admin.Update(w.t.Context(), mem))
}

// TestWhispersAreSealedAndFew: an answer is for the owner's eyes, a flood of
// answers is cut off, and what is old goes with the next write.
func TestWhispersAreSealedAndFew(t *testing.T) {
	w := newWorld(t, nil)
	clock := clocktesting.NewFakePassiveClock(time.Now())
	w.r.Clock = clock
	a := w.writer("ws-a")
	n := 0
	ask := func() []v1alpha1.Whisper {
		t.Helper()
		n++
		a.segment(userLine(fmt.Sprintf("u%d", n), fmt.Sprintf("Why do migrations run twice in staging? Question %d.", n)))
		a.apply()
		return w.settleDown().Status.Whispers
	}
	if got := ask(); len(got) != 0 {
		t.Fatalf("whispers %+v though nothing is known", got)
	}
	w.teach("Migrations run twice in staging.")
	for want := 1; want <= maxWhispers; want++ {
		clock.SetTime(clock.Now().Add(time.Minute))
		if got := ask(); len(got) != want {
			t.Fatalf("%d whispers, want %d", len(got), want)
		}
	}
	first := w.get().Status.Whispers
	for _, s := range first {
		opened, err := w.identity.OpenWhisper(s.Sealed)
		if err != nil || opened.ID != s.ID || opened.Project != remote || s.Text != "" {
			t.Errorf("whisper %+v opens as %+v, %v; want it sealed, and its text nowhere else", s, opened, err)
		}
	}
	if got := ask(); len(got) != maxWhispers || got[0].ID != first[0].ID {
		t.Errorf("the fifth within ten minutes took a place: %+v", got)
	}

	w.memory(func(m *v1alpha1.TeamMemorySpec) { m.Whispers = v1alpha1.WhispersTeam })
	clock.SetTime(clock.Now().Add(whisperWindow))
	got := ask()
	if last := got[len(got)-1]; len(got) != maxWhispers || got[0].ID == first[0].ID || last.Text == "" || int(last.Bytes) != len(last.Text) {
		t.Errorf("after ten minutes, for the whole team: %+v; want a fifth with its text", got)
	}

	clock.SetTime(clock.Now().Add(whisperLife + time.Second))
	before := w.get().ResourceVersion
	_, _ = w.reconcile()
	if s := w.get(); s.ResourceVersion != before && len(s.Status.Whispers) > 0 {
		t.Errorf("status was written and kept %d whispers that have expired", len(s.Status.Whispers))
	}
	a.segment(titleLine("Staging")) // no words, no turn
	a.apply()
	if s := w.settleDown(); len(s.Status.Whispers) != 0 {
		t.Errorf("%d whispers outlive their two hours and a write", len(s.Status.Whispers))
	}
}
