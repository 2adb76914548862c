//go:build envtest

package memoryblock

import (
	"net/http"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/internal/letta"
)

// TestBlocksOfOneAgentShareWhatLettaSays counts what looking at all blocks of a
// project asks of Letta, and sees that no block misses what is new.
func TestBlocksOfOneAgentShareWhatLettaSays(t *testing.T) {
	w := newWorld(t, nil)
	w.r.Share = time.Minute
	labels := []string{"brief", "conventions", "decisions", "open_items", "pitfalls"}
	for _, label := range labels {
		w.learned(remote, label)
	}
	asked := func() [2]int {
		return [2]int{w.server.Requests("GET /v1/agents/"), w.server.Requests("GET /v1/agents/{agent}")}
	}
	zero := asked()
	if b, _ := w.reconcile(w.name(remote, labels[0])); condition(b).Reason != v1alpha1.SucceededReason {
		t.Fatalf("%s is %s: %s", labels[0], condition(b).Reason, condition(b).Message)
	}
	one := asked()
	for _, label := range labels[1:] {
		if b, _ := w.reconcile(w.name(remote, label)); condition(b).Reason != v1alpha1.SucceededReason {
			t.Fatalf("%s is %s: %s", label, condition(b).Reason, condition(b).Message)
		}
	}
	if all := asked(); one[0] == zero[0] || one[1] == zero[1] || all != one {
		t.Errorf("listings of agents and readings of one: %v before, %v with one block, %v with five; want no more for five", zero, one, all)
	}

	// A session's turn changes the memory, and says so.
	w.write(remote, "pitfalls", "- new")
	memory, err := w.letta.Memory(t.Context(), w.agents[remote])
	w.must(err)
	w.r.Agents.Saw(w.agents[remote], memory.Revision)
	w.later()
	if b, _ := w.reconcile(w.name(remote, "pitfalls")); b.Status.Value != "- new" {
		t.Errorf("the block is %q after a turn, want what the agent wrote", b.Status.Value)
	}

	// The agent is replaced.
	w.dismiss(w.agents[remote])
	w.agent(remote)
	_, err = w.letta.PutBlock(t.Context(), w.agents[remote], letta.Block{Label: "pitfalls", Value: "- newer"}, "test")
	w.must(err)
	mem := &v1alpha1.TeamMemory{}
	w.must(w.admin.Get(t.Context(), types.NamespacedName{Namespace: w.namespace, Name: "team"}, mem))
	w.r.Agents.Forget(mem, remote) // as the session does whose turn Letta refused
	w.later()
	if b, _ := w.reconcile(w.name(remote, "pitfalls")); b.Status.Value != "- newer" {
		t.Errorf("the block is %q after the agent was replaced (%s), want the new one's", b.Status.Value, condition(b).Message)
	}

	// What a person writes at Letta is seen a little later.
	_, err = w.letta.PutBlock(t.Context(), w.agents[remote], letta.Block{Label: "brief", Value: "- by hand"}, "test")
	w.must(err)
	w.clock.SetTime(w.clock.Now().Add(2 * time.Minute))
	if b, _ := w.reconcile(w.name(remote, "brief")); b.Status.Value != "- by hand" {
		t.Errorf("the block is %q, want what a person wrote", b.Status.Value)
	}
}

// dismiss deletes an agent, as a person does at Letta.
func (w *world) dismiss(agent string) {
	w.t.Helper()
	mem := &v1alpha1.TeamMemory{}
	w.must(w.admin.Get(w.t.Context(), types.NamespacedName{Namespace: w.namespace, Name: "team"}, mem))
	req, err := http.NewRequestWithContext(w.t.Context(), http.MethodDelete, mem.Spec.Letta.BaseURL+"/v1/agents/"+agent, nil)
	w.must(err)
	req.Header.Set("Authorization", "Bearer key")
	res, err := http.DefaultClient.Do(req)
	w.must(err)
	w.must(res.Body.Close())
	if res.StatusCode != http.StatusOK {
		w.t.Fatalf("delete the agent: %s", res.Status)
	}
}
