//go:build envtest

package memoryblock

import (
	"context"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/controllers/connect"
	"github.com/undersong-dev/undersong/internal/letta/api"
	"github.com/undersong-dev/undersong/internal/letta/lettatest"
	"github.com/undersong-dev/undersong/test/kube"
)

// TestTheMemoryMovesToAnotherLetta: what was learned is shown until another agent
// is made there; then the blocks are what that one has, the team's own text comes
// along by itself, and what was learned is given back from the store by a lead.
func TestTheMemoryMovesToAnotherLetta(t *testing.T) {
	w := newWorld(t, nil)
	w.write(remote, "pitfalls", "- migrations run twice")
	learned, pinned := w.learned(remote, "pitfalls"), w.pinned("", "conventions", "- tabs, not blanks")
	old := w.settle(learned).Status
	w.settle(pinned)

	server, err := lettatest.New(lettatest.Options{Key: "key"})
	w.must(err)
	url, err := server.Start(context.WithoutCancel(t.Context()), "")
	w.must(err)
	t.Cleanup(func() { _ = server.Close() })
	w.letta, err = api.New(api.Options{BaseURL: url, Key: "key"})
	w.must(err)
	secret := &corev1.Secret{}
	w.must(w.admin.Get(t.Context(), types.NamespacedName{Namespace: w.namespace, Name: kube.LettaSecret}, secret))
	secret.Annotations[connect.HostsAnnotation] = strings.TrimPrefix(url, "http://")
	w.must(w.admin.Update(t.Context(), secret))
	mem := &v1alpha1.TeamMemory{}
	w.must(w.admin.Get(t.Context(), types.NamespacedName{Namespace: w.namespace, Name: "team"}, mem))
	mem.Spec.Letta.BaseURL = url
	w.must(w.admin.Update(t.Context(), mem))
	w.restart()

	if b, _ := w.reconcile(learned); b.Status.Value != old.Value {
		t.Errorf("before an agent is made there the block says %q", b.Status.Value)
	}
	w.agent(remote) // as the next words of a session do
	w.later()
	if b := w.settle(learned); b.Status.Value == old.Value || !slices.ContainsFunc(b.Status.History, func(h v1alpha1.BlockRevision) bool { return h.Revision == old.Revision }) {
		t.Errorf("the new agent has %q, history %+v", b.Status.Value, b.Status.History)
	}
	w.settle(pinned)
	if got := w.has(remote, "conventions").Value; got != "- tabs, not blanks" {
		t.Errorf("the pinned block at the new place is %q", got)
	}
	w.change(learned, func(s *v1alpha1.MemoryBlockSpec) { s.Restore = old.Revision })
	w.later()
	if b := w.settle(learned); b.Status.Value != old.Value || w.has(remote, "pitfalls").Value != old.Value {
		t.Errorf("restored: %q, at Letta %q", b.Status.Value, w.has(remote, "pitfalls").Value)
	}
}
