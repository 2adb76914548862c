//go:build envtest

package cli

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/undersong-dev/undersong/agent/daemon"
	"github.com/undersong-dev/undersong/agent/internal/kube"
	"github.com/undersong-dev/undersong/api/v1alpha1"
)

// TestScrubsAreAddedAndTakenAway: of a TeamMemory only the scrubs change, those
// that somebody else asks for at the same moment stay, and without any the field
// is not there.
func TestScrubsAreAddedAndTakenAway(t *testing.T) {
	newTeam(t, "scrubs", "main")
	must(t, cluster.Team(t.Context(), "scrubs", []string{"ada"}, []string{"lead"}))
	m := newMachine(t)
	config, err := daemon.LoadREST(m.login(t, "lead", "scrubs"), "")
	must(t, err)
	c, err := kube.New(config)
	must(t, err)
	key := kube.Key{Namespace: "scrubs", Name: "main"}
	before := &v1alpha1.TeamMemory{}
	must(t, c.Get(t.Context(), key, before))

	add := func(id string) func(*v1alpha1.TeamMemory) error {
		return func(m *v1alpha1.TeamMemory) error {
			m.Spec.Scrubs = append(m.Spec.Scrubs, v1alpha1.Scrub{
				ID: id, Mode: v1alpha1.ScrubLook, Length: 8, Digest: strings.Repeat("0a", 36), SealedKey: "k",
			})
			return nil
		}
	}
	tries := 0
	must(t, m.changeScrubs(t.Context(), c, key, func(live *v1alpha1.TeamMemory) error {
		if tries++; tries == 1 {
			other := live.DeepCopy()
			must(t, add("theirs")(other))
			must(t, admin(t).Patch(t.Context(), other, client.MergeFrom(live)))
		}
		return add("ours")(live)
	}))
	ids := func() (ids []string) {
		now := &v1alpha1.TeamMemory{}
		must(t, c.Get(t.Context(), key, now))
		if now.Spec.Scrubs != nil {
			ids = []string{}
		}
		for _, e := range now.Spec.Scrubs {
			ids = append(ids, e.ID)
		}
		now.Spec.Scrubs = nil
		if diff := cmp.Diff(before.Spec, now.Spec); diff != "" {
			t.Errorf("something else changed (-want +got):\n%s", diff)
		}
		return ids
	}
	if diff := cmp.Diff([]string{"theirs", "ours"}, ids()); diff != "" || tries != 2 {
		t.Errorf("%d tries; scrubs (-want +got):\n%s", tries, diff)
	}
	for _, id := range []string{"theirs", "ours"} {
		must(t, m.changeScrubs(t.Context(), c, key, func(m *v1alpha1.TeamMemory) error { return dropScrub(m, id) }))
	}
	if left := ids(); left != nil {
		t.Errorf("left: %q", left)
	}
	ada, err := daemon.LoadREST(m.login(t, "ada", "scrubs"), "")
	must(t, err)
	c, err = kube.New(ada)
	must(t, err)
	err = m.changeScrubs(t.Context(), c, key, add("ada"))
	if err == nil || err.Error() != "you may not change TeamMemory main: a team's lead can do this" {
		t.Errorf("ada: %v", err)
	}
}
