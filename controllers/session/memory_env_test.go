//go:build envtest

package session

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/controllers/connect"
	"github.com/undersong-dev/undersong/controllers/memoryblock"
	"github.com/undersong-dev/undersong/internal/letta"
	"github.com/undersong-dev/undersong/internal/letta/lettatest"
	"github.com/undersong-dev/undersong/internal/segment"
)

// beside is another session of the same owner, in the same team.
func (w *world) beside(id, project string) *world {
	w.t.Helper()
	o := *w
	o.writers = map[string]*writer{}
	o.key = types.NamespacedName{Namespace: w.namespace, Name: v1alpha1.SessionName(id, owner)}
	w.must(w.user.Create(w.t.Context(), &v1alpha1.Session{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: o.key.Name},
		Spec: v1alpha1.SessionSpec{
			Owner: owner, SessionID: id, Agent: v1alpha1.AgentClaudeCode, MemoryRef: v1alpha1.LocalRef{Name: "team"},
			Project: v1alpha1.Project{Name: "x", Remote: project},
		},
	}, client.FieldOwner("undersong-create")))
	return &o
}

// say is one line of a person, and what becomes of it.
func (wr *writer) say(id, text string) *v1alpha1.Session {
	wr.w.t.Helper()
	session := strings.TrimSuffix(wr.w.key.Name, v1alpha1.SessionName("", owner))
	wr.segment(strings.ReplaceAll(userLine(id, text), sessionID, session))
	wr.apply()
	return wr.w.settleDown()
}

// blocks lets the other reconciler do its work, and returns the objects.
func (w *world) blocks() []v1alpha1.MemoryBlock {
	w.t.Helper()
	r := &memoryblock.Reconciler{Client: w.r.Client, Connect: w.r.Connect, Agents: w.r.Agents, Redactor: w.r.Redactor, Recorder: w.recorder, Clock: w.r.Clock}
	var list v1alpha1.MemoryBlockList
	w.must(w.admin.List(w.t.Context(), &list, client.InNamespace(w.namespace)))
	for _, b := range list.Items {
		_, err := r.Reconcile(w.t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&b)})
		w.must(err)
	}
	w.must(w.admin.List(w.t.Context(), &list, client.InNamespace(w.namespace)))
	return list.Items
}

// TestTwoProjectsKnowNothingOfEachOther: nothing of one is in the other's agent,
// conversation, blocks, brief or whispers; only what the team pins for all is in
// both.
func TestTwoProjectsKnowNothingOfEachOther(t *testing.T) {
	const remote2 = "git.example.com/lighthouse/harbour"
	w := newWorld(t, nil)
	w.r.Agents.Pinned = memoryblock.Pinned(w.admin, &connect.Redactors{BuiltIn: w.r.Redactor})
	for project, text := range map[string]string{"": "for all", remote: "quokka pinned", remote2: "wombat pinned"} {
		label := "brief"
		if project == "" {
			label = "conventions"
		}
		w.must(w.admin.Create(t.Context(), &v1alpha1.MemoryBlock{
			ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: v1alpha1.MemoryBlockName("team", project, label)},
			Spec:       v1alpha1.MemoryBlockSpec{MemoryRef: v1alpha1.LocalRef{Name: "team"}, Project: project, Label: label, Mode: v1alpha1.BlockPinned, Value: text},
		}))
	}
	type side struct {
		w           *world
		remote      string
		word, other string
	}
	sides := []side{
		{w, remote, "quokka", "wombat"},
		{w.beside("5e550001-0000-4000-8000-000000000002", remote2), remote2, "wombat", "quokka"},
	}
	// Each learns something of its own, from two sessions, and is asked about
	// what the other knows as well.
	for i, s := range sides {
		a := s.w.writer(fmt.Sprintf("ws-%d", i))
		a.say("u1", "Pitfall: migrations of the "+s.word+" database run twice in staging.")
	}
	for i, s := range sides {
		second := w.beside(fmt.Sprintf("5e550001-0000-4000-8000-00000000001%d", i), s.remote)
		sides = append(sides, side{second, s.remote, s.word, s.other})
		a := second.writer(fmt.Sprintf("ws-1%d", i))
		if got := a.say("u2", "Why do migrations of the database run twice in staging?"); len(got.Status.Whispers) != 1 {
			t.Fatalf("%d whispers, want one: the test would prove nothing", len(got.Status.Whispers))
		}
	}
	owner := map[string]side{} // by agent
	for _, s := range sides {
		st := s.w.get().Status
		owner[st.SyncState.AgentID] = s
		for _, whisper := range st.Whispers {
			opened, err := w.identity.OpenWhisper(whisper.Sealed)
			w.must(err)
			if !strings.Contains(opened.Text, s.word) || strings.Contains(opened.Text, s.other) || opened.Project != s.remote {
				t.Errorf("a whisper of %s says %q", s.remote, opened.Text)
			}
		}
		text, err := json.Marshal(s.w.get())
		w.must(err)
		if strings.Contains(string(text), s.other) {
			t.Errorf("a Session of %s has words of the other: %s", s.remote, text)
		}
	}
	if len(owner) != 2 {
		t.Fatalf("%d agents for two projects", len(owner))
	}
	for id, s := range owner {
		memory, err := w.client().Memory(t.Context(), id)
		w.must(err)
		text := fmt.Sprint(memory)
		if !strings.Contains(text, s.word+" database") || !strings.Contains(text, s.word+" pinned") || !strings.Contains(text, "for all") || strings.Contains(text, s.other) {
			t.Errorf("the agent of %s has %s", s.remote, text)
		}
		agent, err := w.client().Agent(t.Context(), id)
		w.must(err)
		if project, _ := connect.ProjectOf(agent); project != s.remote {
			t.Errorf("the agent of %s says it is of %s", s.remote, project)
		}
	}
	for _, c := range w.letta.Conversations() {
		if text := fmt.Sprint(c); strings.Contains(text, owner[c.AgentID].other) {
			t.Errorf("a conversation of %s has %s", owner[c.AgentID].remote, text)
		}
	}
	seen := 0
	for _, b := range w.blocks() {
		text := fmt.Sprint(b.Status)
		for _, s := range sides[:2] {
			if b.Spec.Project == s.remote && strings.Contains(text, s.other) || b.Spec.Project == "" && strings.Contains(text, s.word) {
				t.Errorf("the MemoryBlock %s of %q has %s", b.Spec.Label, b.Spec.Project, text)
			}
			if b.Spec.Project == s.remote && strings.Contains(text, s.word) {
				seen++
			}
		}
	}
	if seen != 4 {
		t.Errorf("%d blocks have words of their own project, want brief and pitfalls of both", seen)
	}
}

// TestALostAnswerMakesNoSecondAgent: nor does a process that died.
func TestALostAnswerMakesNoSecondAgent(t *testing.T) {
	for name, fault := range map[string]lettatest.Fault{
		"answer lost": {Route: "POST /v1/agents/", DropAfter: true},
		"not sent":    {Route: "POST /v1/agents/", DropBefore: true},
		"refused":     {Route: "POST /v1/agents/", Status: http.StatusInternalServerError},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			w.letta.Inject(fault)
			w.story()
			_, _ = w.reconcile() // verified
			for range 4 {
				_, _ = w.reconcile() // the fault strikes
			}
			w.restart()
			w.settleDown()
			mem := &v1alpha1.TeamMemory{}
			w.must(w.admin.Get(t.Context(), types.NamespacedName{Namespace: w.namespace, Name: "team"}, mem))
			agents, err := w.client().AgentsByTag(t.Context(), []string{connect.MemoryTag(mem)})
			w.must(err)
			if len(agents) != 1 || w.letta.Faults() != 0 {
				t.Errorf("%d agents, and %d faults that did not strike", len(agents), w.letta.Faults())
			}
		})
	}
}

// TestAChangeReachesTheOtherConversations: once, before their next turn, and no
// conversation without a turn is touched.
func TestAChangeReachesTheOtherConversations(t *testing.T) {
	const route = "POST /v1/conversations/{id}/recompile"
	w := newWorld(t, nil)
	b := w.beside("5e550001-0000-4000-8000-000000000002", remote)
	a := w.writer("ws-a")
	a.say("u1", "Good morning.")
	other := b.writer("ws-b")
	other.say("u2", "Pitfall: one.")
	other.say("u3", "Pitfall: two.")
	if n := w.letta.Requests(route); n != 0 {
		t.Errorf("%d recompilations before anybody had to see a change", n)
	}
	a.say("u4", "What next?")
	if n := w.letta.Requests(route); n != 1 {
		t.Errorf("%d recompilations after two changes, want one", n)
	}
	a.say("u5", "And then?")
	if n := w.letta.Requests(route); n != 1 {
		t.Errorf("%d recompilations, want none without a change", n-1)
	}
	w.restart() // knows nothing
	a.say("u6", "And now?")
	if n := w.letta.Requests(route); n != 2 {
		t.Errorf("%d recompilations of a new process, want one to be sure", n-1)
	}
}

// TestWhatIsNoLabelIsSaidOnce: hostile names and a flood of blocks end in one
// event each, and in no object's name.
func TestWhatIsNoLabelIsSaidOnce(t *testing.T) {
	w := newWorld(t, nil)
	a := w.writer("ws-a")
	agent := a.say("u1", "Good morning.").Status.SyncState.AgentID
	const hostile = "a<b>&\"\u202e../../x"
	w.attach(agent, hostile)
	for i := range 100 {
		_, err := w.client().PutBlock(t.Context(), agent, letta.Block{Label: fmt.Sprintf("a%03d", i), Value: fmt.Sprintf("x%d", i)}, "")
		w.must(err)
	}
	for i := range 3 {
		a.say(fmt.Sprintf("u2%d", i), fmt.Sprintf("Pitfall: number %d.", i))
	}
	told := map[string]int{}
	for len(w.recorder.Events) > 0 {
		e := <-w.recorder.Events
		for _, reason := range []string{v1alpha1.LabelRejectedReason, v1alpha1.BlockLimitReason} {
			if strings.Contains(e, reason) {
				told[reason]++
			}
		}
		if strings.Contains(e, "a<b>") || strings.Contains(e, "\u202e") {
			t.Errorf("the name stands in an event: %q", e)
		}
	}
	if told[v1alpha1.LabelRejectedReason] != 1 || told[v1alpha1.BlockLimitReason] != 1 {
		t.Errorf("events %v, want one of each", told)
	}
	s := w.get()
	if n := len(s.Status.SyncState.Blocks); n != maxBlocks {
		t.Errorf("%d blocks in status, want %d", n, maxBlocks)
	}
	blocks := w.blocks()
	if len(blocks) > maxBlockObjects {
		t.Errorf("%d MemoryBlocks, want at most %d", len(blocks), maxBlockObjects)
	}
	for _, b := range blocks {
		if strings.ContainsAny(b.Name+b.Spec.Label, "<&\"\u202e/") {
			t.Errorf("a MemoryBlock is called %q", b.Name)
		}
		if b.Spec.Label == "pitfalls" && !strings.Contains(b.Status.Value, "number 2") {
			t.Errorf("the flood hides pitfalls: %q", b.Status.Value)
		}
	}
}

// TestObjectsAreBounded: an agent that takes new names again and again fills no
// etcd.
func TestObjectsAreBounded(t *testing.T) {
	w := newWorld(t, nil)
	a := w.writer("ws-a")
	for i := range 4 {
		agent := a.say(fmt.Sprintf("u%d", i), fmt.Sprintf("Pitfall: number %d.", i)).Status.SyncState.AgentID
		for j := range 20 {
			_, err := w.client().PutBlock(t.Context(), agent, letta.Block{Label: fmt.Sprintf("b%d-%d", i, j), Value: "x"}, "")
			w.must(err)
			if i > 0 {
				_, err = w.client().DeleteBlock(t.Context(), agent, fmt.Sprintf("b%d-%d", i-1, j), "")
				w.must(err)
			}
		}
	}
	a.say("u9", "Pitfall: the last.")
	if n := len(w.blocks()); n != maxBlockObjects {
		t.Errorf("%d MemoryBlocks, want %d", n, maxBlockObjects)
	}
}

// attach gives an agent a block under any name, as the agent itself can.
func (w *world) attach(agent, label string) {
	w.t.Helper()
	call := func(method, path string, body any) map[string]any {
		data, err := json.Marshal(body)
		w.must(err)
		req, err := http.NewRequestWithContext(context.WithoutCancel(w.t.Context()), method, w.lettaURL+path, strings.NewReader(string(data)))
		w.must(err)
		req.Header.Set("Authorization", "Bearer key")
		req.Header.Set("Content-Type", "application/json")
		res, err := http.DefaultClient.Do(req)
		w.must(err)
		defer func() { _ = res.Body.Close() }()
		var out map[string]any
		w.must(json.NewDecoder(res.Body).Decode(&out))
		return out
	}
	made := call(http.MethodPost, "/v1/blocks/", map[string]any{"label": label, "value": "text"})
	call(http.MethodPatch, fmt.Sprintf("/v1/agents/%s/core-memory/blocks/attach/%s", agent, made["id"]), map[string]any{})
}

// TestATextIsInTheStoreByItsDigest: each that a Session publishes.
func TestATextIsInTheStoreByItsDigest(t *testing.T) {
	w := newWorld(t, nil)
	w.story()
	for _, b := range w.settleDown().Status.SyncState.Blocks {
		if b.Bytes == 0 {
			continue
		}
		text, err := w.bucket.Get(t.Context(), segment.BlockKey(w.namespace, b.Digest), maxBlockBytes)
		if err != nil || int64(len(text)) != b.Bytes {
			t.Errorf("%s: %d bytes, %v; want %d", b.Label, len(text), err, b.Bytes)
		}
	}
}
