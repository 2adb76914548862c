//go:build envtest

package memoryblock

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/internal/letta"
	"github.com/undersong-dev/undersong/test/fault"
)

func TestABlockFollowsWhatTheAgentWrote(t *testing.T) {
	w := newWorld(t, nil)
	key := w.learned(remote, "conventions")
	w.write(remote, "conventions", "- tide tables are in GMT\n- one boat")
	b := w.settle(key)
	if b.Status.Value != "- tide tables are in GMT\n- one boat" || b.Status.LastSession != w.sessions[remote] || b.Status.Bytes != 35 || b.Status.Extent != v1alpha1.ExtentWhole {
		t.Errorf("status is %+v", b.Status)
	}
	w.later()
	w.write(remote, "conventions", "- tide tables are in UTC\n- one boat")
	b = w.settle(key)
	if len(b.Status.History) != 2 {
		t.Fatalf("history %+v, want two texts", b.Status.History)
	}
	newest, first := b.Status.History[0], b.Status.History[1]
	if newest.Change != "-- tide tables are in GMT\n+- tide tables are in UTC" || newest.Session != w.sessions[remote] || newest.Revision != b.Status.Revision {
		t.Errorf("the newest revision is %+v", newest)
	}
	if got := w.text(first.Digest); got != "- tide tables are in GMT\n- one boat" {
		t.Errorf("the store has %q for the first text", got)
	}
	if got := w.text(b.Status.Digest); got != b.Status.Value {
		t.Errorf("the store has %q for the present text", got)
	}
}

func TestHistoryIsBounded(t *testing.T) {
	w := newWorld(t, nil)
	key := w.learned(remote, "conventions")
	var second string
	for i := range maxHistory + 3 {
		w.later()
		w.write(remote, "conventions", fmt.Sprintf("- text %d", i))
		b := w.settle(key)
		if i == 1 {
			second = b.Status.Digest
		}
	}
	b := w.get(key)
	if len(b.Status.History) != maxHistory || b.Status.History[0].Digest != b.Status.Digest {
		t.Errorf("%d texts in history, the first %s; want %d, the present one first", len(b.Status.History), b.Status.History[0].Digest, maxHistory)
	}
	if got := w.text(second); got != "- text 1" {
		t.Errorf("the store lost a text that history no longer names: %q", got)
	}
}

func TestABlockIsWrittenAtMostEveryFifteenSeconds(t *testing.T) {
	w := newWorld(t, nil)
	key := w.learned(remote, "conventions")
	w.write(remote, "conventions", "one")
	before := w.settle(key)
	w.clock.SetTime(w.clock.Now().Add(5 * time.Second))
	w.write(remote, "conventions", "two")
	b, res := w.reconcile(key)
	if b.ResourceVersion != before.ResourceVersion || res.RequeueAfter != 10*time.Second {
		t.Errorf("value %q, again in %s; want no write, 10s", b.Status.Value, res.RequeueAfter)
	}
	w.clock.SetTime(w.clock.Now().Add(10 * time.Second))
	if b, _ = w.reconcile(key); b.Status.Value != "two" {
		t.Errorf("value %q after the quiet time, want two", b.Status.Value)
	}
}

func TestABlockIsSafeToShow(t *testing.T) {
	w := newWorld(t, nil)
	key := w.learned(remote, "conventions")
	for name, c := range map[string]struct {
		reason, value, want, not string
		extent                   v1alpha1.Extent
	}{
		"secret":    {"a credential that the agent wrote is removed", "key is ghp_" + strings.Repeat("A1b2", 9), "key is ", "A1b2A1b2", v1alpha1.ExtentWhole},
		"control":   {"control and format characters are removed", "a\x1b[31mred\u202e\u200bb\nc", "a[31mredb\nc", "\x1b", v1alpha1.ExtentWhole},
		"very long": {"a long text is cut, and said to be", strings.Repeat("é", 20000), strings.Repeat("é", 100), strings.Repeat("é", maxValue+1), v1alpha1.ExtentTruncated},
		"shorter":   {"the change of a cut text is made from the whole one", strings.Repeat("é", 19999), "é", strings.Repeat("é", maxValue+1), v1alpha1.ExtentTruncated},
	} {
		t.Run(name, func(t *testing.T) {
			w.t = t
			w.later()
			w.write(remote, "conventions", c.value)
			b := w.settle(key)
			if !strings.Contains(b.Status.Value, c.want) || strings.Contains(b.Status.Value, c.not) || b.Status.Extent != c.extent {
				t.Errorf("%s: %s value %.80q…", c.reason, b.Status.Extent, b.Status.Value)
			}
			if strings.Contains(w.text(b.Status.Digest), c.not) && c.extent == v1alpha1.ExtentWhole {
				t.Errorf("%s: the store has it", c.reason)
			}
		})
	}
}

func TestABlockWithAnotherNameIsLeftAlone(t *testing.T) {
	w := newWorld(t, nil)
	key := types.NamespacedName{Namespace: w.namespace, Name: "team-conventions-copy"}
	for _, mode := range []v1alpha1.MemoryBlockSpec{
		{MemoryRef: v1alpha1.LocalRef{Name: "team"}, Project: remote, Label: "conventions", Mode: v1alpha1.BlockLearned},
		{MemoryRef: v1alpha1.LocalRef{Name: "team"}, Project: remote, Label: "conventions", Mode: v1alpha1.BlockPinned, Value: "x"},
	} {
		b := &v1alpha1.MemoryBlock{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}, Spec: mode}
		w.must(w.lead.Create(t.Context(), b))
		got, _ := w.reconcile(key)
		if got.Status.Value != "" || got.Status.Conditions[0].Reason != v1alpha1.InvalidSpecReason || w.has(remote, "conventions").Value != "" {
			t.Errorf("a second %s object for the same block has status %+v", mode.Mode, got.Status)
		}
		w.must(w.lead.Delete(t.Context(), got))
	}
}

func TestABlockOfTheWholeTeamShowsNoProjectsMemory(t *testing.T) {
	w := newWorld(t, nil)
	w.write(remote, "conventions", "- only for lantern")
	if b, _ := w.reconcile(w.learned("", "conventions")); b.Status.Value != "" {
		t.Errorf("under scope Project it shows %q", b.Status.Value)
	}
	if b := w.settle(w.learned(other, "conventions")); b.Status.Value != "" {
		t.Errorf("another project's block shows %q", b.Status.Value)
	}
}

func TestRestore(t *testing.T) {
	w := newWorld(t, nil)
	key := w.learned(remote, "pitfalls")
	w.write(remote, "pitfalls", "- good")
	good := w.settle(key).Status.Revision
	w.later()
	w.write(remote, "pitfalls", "- poisoned")
	w.settle(key)
	w.later()
	w.write(remote, "pitfalls", "- poisoned more") // nobody has seen it yet
	w.change(key, func(s *v1alpha1.MemoryBlockSpec) { s.Restore = good })
	b := w.settle(key)
	if got := w.has(remote, "pitfalls").Value; got != "- good" || b.Status.Value != "- good" || b.Status.Restored != good {
		t.Errorf("the agent has %q, status %q and restored %q", got, b.Status.Value, b.Status.Restored)
	}
	var texts []string
	for _, h := range b.Status.History {
		texts = append(texts, w.text(h.Digest))
	}
	if diff := cmp.Diff([]string{"- good", "- poisoned more", "- poisoned", "- good"}, texts); diff != "" {
		t.Errorf("history (-want +got):\n%s", diff)
	}
	if got := w.said(); len(got) != 1 || !strings.HasPrefix(got[0], "Normal Restored ") {
		t.Errorf("events %q, want one of Restored", got)
	}

	// Once: what the agent learns afterwards stays.
	w.later()
	w.write(remote, "pitfalls", "- good\n- better")
	if b = w.settle(key); b.Status.Value != "- good\n- better" {
		t.Errorf("the restored text was written again: %q", b.Status.Value)
	}
	// Taken away and given again it is done again.
	w.change(key, func(s *v1alpha1.MemoryBlockSpec) { s.Restore = "" })
	w.settle(key)
	w.later()
	w.change(key, func(s *v1alpha1.MemoryBlockSpec) { s.Restore = good })
	if b = w.settle(key); b.Status.Value != "- good" {
		t.Errorf("asked for again, it is not restored: %q", b.Status.Value)
	}
	w.change(key, func(s *v1alpha1.MemoryBlockSpec) { s.Restore = "no such revision" })
	b, _ = w.reconcile(key)
	if c := condition(b); c.Reason != v1alpha1.InvalidSpecReason || b.Status.Value != "- good" {
		t.Errorf("an unknown revision: %s %s, value %q", c.Reason, c.Message, b.Status.Value)
	}
}

// TestABlockOutlivesTheSessions: a project whose Sessions have expired is
// followed, and an earlier text of it restored.
func TestABlockOutlivesTheSessions(t *testing.T) {
	w := newWorld(t, nil)
	key := w.learned(remote, "pitfalls")
	w.write(remote, "pitfalls", "- good")
	good := w.settle(key).Status.Revision
	w.must(w.admin.DeleteAllOf(t.Context(), &v1alpha1.Session{}, client.InNamespace(w.namespace)))
	w.later()
	_, err := w.letta.PutBlock(t.Context(), w.agents[remote], letta.Block{Label: "pitfalls", Value: "- poisoned"}, "test")
	w.must(err)
	if b := w.settle(key); b.Status.Value != "- poisoned" {
		t.Errorf("without a Session the block shows %q", b.Status.Value)
	}
	w.later()
	w.change(key, func(s *v1alpha1.MemoryBlockSpec) { s.Restore = good })
	if b := w.settle(key); b.Status.Restored != good || w.has(remote, "pitfalls").Value != "- good" {
		t.Errorf("without a Session nothing is restored: %+v", b.Status.Conditions)
	}
}

// TestTheOldestTextCanBeRestored: what comes in meanwhile does not push it out.
func TestTheOldestTextCanBeRestored(t *testing.T) {
	w := newWorld(t, nil)
	key := w.learned(remote, "pitfalls")
	for i := range maxHistory {
		w.later()
		w.write(remote, "pitfalls", fmt.Sprintf("- text %d", i))
		w.settle(key)
	}
	oldest := w.get(key).Status.History[maxHistory-1].Revision
	w.later()
	w.write(remote, "pitfalls", "- one more")
	w.change(key, func(s *v1alpha1.MemoryBlockSpec) { s.Restore = oldest })
	if b := w.settle(key); b.Status.Value != "- text 0" || len(b.Status.History) > maxHistory {
		t.Errorf("value %q, %d texts", b.Status.Value, len(b.Status.History))
	}
}

func TestAPinnedBlockIsWrittenAndPutBack(t *testing.T) {
	w := newWorld(t, nil)
	w.write(remote, "conventions", "- learned before")
	key := w.create(v1alpha1.MemoryBlockSpec{Project: remote, Label: "conventions", Mode: v1alpha1.BlockPinned, Value: "- tabs\u202e, not blanks\n", Description: "how\nwe write"})
	b := w.settle(key)
	if got := w.has(remote, "conventions"); got.Value != "- tabs, not blanks" || got.Description != "how we write" {
		t.Errorf("the agent has %+v", got)
	}
	if b.Status.Value != "- tabs, not blanks" || b.Status.Revision != "generation-1" || w.text(b.Status.Digest) != b.Status.Value {
		t.Errorf("status is %+v", b.Status)
	}
	if got := w.said(); len(got) != 0 {
		t.Errorf("events %q for a first write", got)
	}
	if got := w.has(other, "conventions").Value; got != "" {
		t.Errorf("the other project's agent has %q", got)
	}

	w.later()
	w.write(remote, "conventions", "- blanks")
	b = w.settle(key)
	if got := w.has(remote, "conventions").Value; got != "- tabs, not blanks" || b.Status.PutBackAt == nil {
		t.Errorf("the agent has %q, put back at %v", got, b.Status.PutBackAt)
	}
	if got := w.said(); len(got) != 1 || !strings.HasPrefix(got[0], "Warning PutBack ") || !strings.Contains(got[0], remote) {
		t.Errorf("events %q, want one of PutBack", got)
	}
	// An agent that insists is not answered more often than every 15 seconds.
	w.write(remote, "conventions", "- blanks")
	before := w.get(key).ResourceVersion
	if b, res := w.reconcile(key); b.ResourceVersion != before || res.RequeueAfter != quiet || w.has(remote, "conventions").Value != "- blanks" {
		t.Errorf("put back again at once; again in %s", res.RequeueAfter)
	}
	w.later()
	w.settle(key)

	w.later()
	w.said()
	w.change(key, func(s *v1alpha1.MemoryBlockSpec) { s.Value = "- four blanks" })
	if b = w.settle(key); w.has(remote, "conventions").Value != "- four blanks" || b.Status.Revision != "generation-2" || len(b.Status.History) != 2 {
		t.Errorf("after a change of spec the agent has %q, status %+v", w.has(remote, "conventions").Value, b.Status)
	}
	if got := w.said(); len(got) != 0 {
		t.Errorf("events %q for a change by the team", got)
	}

	// Given back, it is the agent's.
	w.change(key, func(s *v1alpha1.MemoryBlockSpec) { s.Mode, s.Value, s.Description = v1alpha1.BlockLearned, "", "" })
	w.later()
	w.write(remote, "conventions", "- as you like")
	if b = w.settle(key); b.Status.Value != "- as you like" {
		t.Errorf("given back to the agent, it shows %q", b.Status.Value)
	}
}

func TestABlockPinnedForAllProjectsReachesEveryAgent(t *testing.T) {
	w := newWorld(t, nil)
	w.write(remote, "conventions", "- learned")
	key := w.pinned("", "conventions", "- for all")
	own := w.pinned(other, "conventions", "- for harbour")
	w.settle(key)
	w.settle(own)
	w.later()
	w.settle(key)
	if a, b := w.has(remote, "conventions").Value, w.has(other, "conventions").Value; a != "- for all" || b != "- for harbour" {
		t.Errorf("the agents have %q and %q: a project's own block comes first", a, b)
	}

	// An agent that is made later has it before its first turn.
	w.agent("git.example.com/lighthouse/third")
	if got := w.has("git.example.com/lighthouse/third", "conventions"); got.Value != "- for all" || got.Description == "" {
		t.Errorf("a new agent has %+v", got)
	}

	// A Learned block of the same label shows what the agent has, and cannot be
	// restored.
	learned := w.learned(remote, "conventions")
	if b := w.settle(learned); b.Status.Value != "- for all" {
		t.Errorf("the Learned block shows %q", b.Status.Value)
	}
	w.change(learned, func(s *v1alpha1.MemoryBlockSpec) { s.Restore = "r" })
	b, _ := w.reconcile(learned)
	if c := condition(b); c.Reason != v1alpha1.InvalidSpecReason || !strings.Contains(c.Message, key.Name) {
		t.Errorf("restoring what is pinned: %s: %s", c.Reason, c.Message)
	}

	// When the project's own one goes, that of all comes.
	object := w.get(own)
	w.must(w.lead.Delete(t.Context(), object))
	if got := behind(t.Context(), object); len(got) != 1 || got[0].NamespacedName != key {
		t.Errorf("its end wakes %v", got)
	}
	w.later()
	w.settle(key)
	if got := w.has(other, "conventions").Value; got != "- for all" {
		t.Errorf("the agent has %q", got)
	}

	// Two agents that change it are both named, in one event.
	w.later()
	w.said()
	w.write(remote, "conventions", "- a")
	w.write(other, "conventions", "- b")
	w.settle(key)
	if got := w.said(); len(got) != 1 || !strings.Contains(got[0], remote) || !strings.Contains(got[0], other) {
		t.Errorf("events %q", got)
	}
}

func TestWhatCannotBePinned(t *testing.T) {
	w := newWorld(t, nil)
	key := w.pinned(remote, "a", "\u202e\u200b")
	b, _ := w.reconcile(key)
	if c := condition(b); c.Reason != v1alpha1.InvalidSpecReason || w.has(remote, "a").Value != "" {
		t.Errorf("a text without a character: %s: %s", c.Reason, c.Message)
	}
	key = w.pinned(remote, "secret", "key is ghp_"+strings.Repeat("A1b2", 9))
	if b := w.settle(key); strings.Contains(w.has(remote, "secret").Value+b.Status.Value, "A1b2A1b2") {
		t.Errorf("a credential was given to the agent: %q", w.has(remote, "secret").Value)
	}
	key = w.pinned("git.example.com/lighthouse/nobody", "a", "- early")
	b, _ = w.reconcile(key)
	if c := condition(b); c.Status != metav1.ConditionUnknown || b.Status.Value != "- early" {
		t.Errorf("without an agent: %s %s, value %q; want it shown to people all the same", c.Status, c.Reason, b.Status.Value)
	}
	mem := &v1alpha1.TeamMemory{}
	w.must(w.admin.Get(t.Context(), types.NamespacedName{Namespace: w.namespace, Name: "team"}, mem))
	mem.Spec.Scope = v1alpha1.ScopeTeam
	w.must(w.admin.Update(t.Context(), mem))
	b, _ = w.reconcile(key)
	if c := condition(b); c.Reason != v1alpha1.InvalidSpecReason {
		t.Errorf("a project's block under scope Team: %s: %s", c.Reason, c.Message)
	}
}

// TestAnUnchangedAndAFailingBlockAreLeftAlone: ten reconciles of each are one
// write and one event.
func TestAnUnchangedAndAFailingBlockAreLeftAlone(t *testing.T) {
	w := newWorld(t, nil)
	w.write(remote, "conventions", "- learned")
	keys := []types.NamespacedName{w.learned(remote, "conventions"), w.pinned("", "pitfalls", "- pinned")}
	for _, key := range keys {
		before := w.settle(key)
		for range 10 {
			w.later()
			if b, _ := w.reconcile(key); b.ResourceVersion != before.ResourceVersion {
				t.Errorf("an unchanged block was written: %s", cmp.Diff(before.Status, b.Status))
			}
		}
		if got := w.said(); len(got) != 0 {
			t.Errorf("events %q", got)
		}
	}
	w.must(w.server.Close())
	for _, key := range keys {
		first, _ := w.reconcile(key)
		for range 10 {
			w.later()
			if b, _ := w.reconcile(key); b.ResourceVersion != first.ResourceVersion {
				t.Errorf("a failing block was written again: %s", cmp.Diff(first.Status, b.Status))
			}
		}
		if got := w.said(); len(got) != 1 || condition(first).Reason != v1alpha1.LettaUnavailableReason {
			t.Errorf("events %q, Ready %s; want one", got, condition(first).Reason)
		}
	}
}

// end is what is compared after a fault.
type end struct {
	Status []v1alpha1.MemoryBlockStatus
	Memory []letta.Block
	Events []string
}

// story learns, pins, restores and puts back, and says how it ended.
func (w *world) story() end {
	w.t.Helper()
	var e end
	learned := w.learned(remote, "pitfalls")
	w.write(remote, "pitfalls", "- good")
	good := w.settle(learned).Status.History[0].Revision
	w.later()
	w.write(remote, "pitfalls", "- bad")
	w.settle(learned)
	w.later()
	w.change(learned, func(s *v1alpha1.MemoryBlockSpec) { s.Restore = good })
	w.settle(learned)
	pinned := w.pinned("", "conventions", "- pinned")
	w.settle(pinned)
	w.later()
	w.write(other, "conventions", "- edited")
	w.settle(pinned)
	for _, key := range []types.NamespacedName{learned, pinned} {
		st := w.get(key).Status
		st.Conditions = nil // their times
		e.Status = append(e.Status, st)
	}
	for _, project := range []string{remote, other} {
		m, err := w.letta.Memory(w.t.Context(), w.agents[project])
		w.must(err)
		e.Memory = append(e.Memory, m.Blocks...)
	}
	for _, said := range w.said() {
		if strings.Contains(said, v1alpha1.RestoredReason) || strings.Contains(said, v1alpha1.PutBackReason) { // others are the fault's own
			e.Events = append(e.Events, said)
		}
	}
	return e
}

func TestBlocksSurviveEveryFault(t *testing.T) {
	undisturbed := newWorld(t, nil)
	want := undisturbed.story()
	calls := undisturbed.counter.Calls()
	if calls < 20 || len(want.Events) != 2 {
		t.Fatalf("only %d outside calls were counted, and events %q", calls, want.Events)
	}
	ignore := cmp.Options{
		cmpopts.EquateEmpty(),
		// A session's name and a memory's revision are the same in every world;
		// when something was done is not.
		cmpopts.IgnoreFields(v1alpha1.MemoryBlockStatus{}, "UpdatedAt", "PutBackAt"),
		cmpopts.IgnoreFields(v1alpha1.BlockRevision{}, "At"),
	}
	for mode, name := range map[fault.Mode]string{fault.Before: "not sent", fault.After: "answer lost"} {
		for at := int64(1); at <= calls; at++ {
			t.Run(fmt.Sprintf("%s/%d", name, at), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, &fault.Counter{At: at, Mode: mode})
				got := w.story()
				if diff := cmp.Diff(want, got, ignore); diff != "" {
					t.Errorf("after %s failed the end differs (-undisturbed +got):\n%s", w.counter.Failed(), diff)
				}
				if got.Status[1].PutBackAt == nil {
					t.Errorf("after %s failed nothing says that the text was put back", w.counter.Failed())
				}
			})
		}
	}
}

// TestANewProcessAtEveryStepDoesNothingTwice: whoever takes over looks first.
func TestANewProcessAtEveryStepDoesNothingTwice(t *testing.T) {
	w := newWorld(t, nil)
	key := w.learned(remote, "pitfalls")
	w.write(remote, "pitfalls", "- good")
	good := w.settle(key).Status.Revision
	w.later()
	w.write(remote, "pitfalls", "- bad")
	w.settle(key)
	w.later()
	w.change(key, func(s *v1alpha1.MemoryBlockSpec) { s.Restore = good })
	// The process before wrote to Letta and died before it could say so.
	_, err := w.letta.PutBlock(t.Context(), w.agents[remote], letta.Block{Label: "pitfalls", Value: "- good"}, "")
	w.must(err)
	w.restart()
	const patch = "PATCH /v1/agents/{agent}/core-memory/blocks/{label}"
	before := w.server.Requests(patch)
	b := w.settle(key)
	if b.Status.Value != "- good" || b.Status.Restored != good || len(b.Status.History) != 3 {
		t.Errorf("status is %+v", b.Status)
	}
	if n := w.server.Requests(patch) - before; n != 0 {
		t.Errorf("the block was written again %d times", n)
	}
}

// TestWhoIsWoken: a Session wakes the blocks that it changed and no others, so
// that an answer costs as many readings of the memory as it has changes.
func TestWhoIsWoken(t *testing.T) {
	w := newWorld(t, nil)
	w.write(remote, "pitfalls", "- learned")
	changed, same, elsewhere := w.learned(remote, "pitfalls"), w.learned(remote, "brief"), w.learned(other, "pitfalls")
	pinned, broken := w.pinned("", "conventions", "- pinned"), w.pinned(remote, "decisions", "\u202e")
	for _, key := range []types.NamespacedName{changed, same, elsewhere, pinned} {
		w.settle(key)
	}
	w.reconcile(broken)
	session := func(blocks ...v1alpha1.SyncedBlock) *v1alpha1.Session {
		s := &v1alpha1.Session{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace}}
		s.Spec.MemoryRef.Name, s.Spec.Project.Remote = "team", remote
		s.Status.SyncState = &v1alpha1.SyncState{MemoryRevision: "r", Blocks: blocks}
		return s
	}
	synced := func(label, text string) v1alpha1.SyncedBlock {
		return v1alpha1.SyncedBlock{Label: label, Digest: digest(text)}
	}
	for name, c := range map[string]struct {
		reason string
		ses    *v1alpha1.Session
		want   []types.NamespacedName
	}{
		"nothing": {"one that is not well is looked at again, too", session(synced("pitfalls", "- learned"), synced("brief", ""), synced("conventions", "- pinned")), []types.NamespacedName{broken}},
		"learned": {"its text is another one", session(synced("pitfalls", "- more"), synced("brief", ""), synced("conventions", "- pinned")), []types.NamespacedName{broken, changed}},
		"edited":  {"an agent changed what is pinned", session(synced("pitfalls", "- learned"), synced("brief", ""), synced("conventions", "- mine")), []types.NamespacedName{broken, pinned}},
		"gone":    {"an agent took blocks away", session(), []types.NamespacedName{broken, changed, same, pinned}},
	} {
		t.Run(name, func(t *testing.T) {
			got := map[types.NamespacedName]bool{}
			for _, r := range w.r.blocksOf(t.Context(), c.ses) {
				got[r.NamespacedName] = true
			}
			want := map[types.NamespacedName]bool{}
			for _, key := range c.want {
				want[key] = true
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.reason, diff)
			}
		})
	}
	if got := behind(t.Context(), w.get(changed)); len(got) != 0 {
		t.Errorf("a Learned block wakes %v", got)
	}
	if got := w.r.blocksOfMemory(t.Context(), &v1alpha1.TeamMemory{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "team"}}); len(got) != 5 {
		t.Errorf("the TeamMemory wakes %d blocks, want all five", len(got))
	}
}
