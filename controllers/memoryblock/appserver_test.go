//go:build envtest

package memoryblock

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/internal/letta"
	"github.com/undersong-dev/undersong/internal/letta/appserver"
	"github.com/undersong-dev/undersong/internal/letta/appserver/appservertest"
	"github.com/undersong-dev/undersong/internal/letta/modelstub"
	"github.com/undersong-dev/undersong/test/tools"
)

// TestOnTheRealAppServer: an agent's own tool writes a block, which is followed,
// restored, and where it is pinned put back; what has no label is shown nowhere.
func TestOnTheRealAppServer(t *testing.T) {
	install := filepath.Join(tools.Root(), ".tools", "letta")
	if err := appservertest.Installed(install); err != nil {
		t.Skipf("SKIPPED, nothing was tested: %v", err)
	}
	server, err := appservertest.Start(t.Context(), appservertest.Options{Install: install, Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	c, err := appserver.New(appserver.Options{BaseURL: server.URL, Token: appservertest.Token})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	w := newWorldAt(t, nil, c, v1alpha1.BackendAppServer, server.URL, appservertest.Model, map[string]string{"token": appservertest.Token})
	conversation, err := c.CreateConversation(t.Context(), w.agents[remote], letta.ConversationSpec{Summary: "s"})
	w.must(err)

	// writes has the agent write a file by its own tool, in a turn.
	writes := func(path, text string) {
		t.Helper()
		server.Model.Order(modelstub.Step{Calls: []modelstub.Call{{Name: "memory", Arguments: map[string]any{
			"command": "create", "reason": "learned", "file_path": path, "path": path, "description": "d", "file_text": text,
		}}}})
		_, err := c.Send(t.Context(), letta.Ref{AgentID: w.agents[remote], ConversationID: conversation.ID}, []letta.Input{{ClientID: uuid.NewString(), Text: "go on"}}, letta.SendOptions{})
		w.must(err)
		m, err := c.Memory(t.Context(), w.agents[remote])
		w.must(err)
		w.publish(remote, w.agents[remote], m.Revision)
	}

	writes("system/glossary.md", "- skipper: who decides")
	learned := w.learned(remote, "glossary")
	b := w.settle(learned)
	if b.Status.Value != "- skipper: who decides" || b.Status.LastSession != w.sessions[remote] || len(b.Status.Revision) != 40 {
		t.Errorf("the agent wrote a block, status is %+v", b.Status)
	}
	good := b.Status.Revision

	// Restored, the agent has it again.
	w.later()
	_, err = c.PutBlock(t.Context(), w.agents[remote], letta.Block{Label: "glossary", Value: "- poisoned"}, "test")
	w.must(err)
	w.settle(learned)
	w.later()
	w.change(learned, func(s *v1alpha1.MemoryBlockSpec) { s.Restore = good })
	if b = w.settle(learned); w.has(remote, "glossary").Value != "- skipper: who decides" || b.Status.Restored != good || len(b.Status.History) != 3 {
		t.Errorf("the agent has %q, status %+v", w.has(remote, "glossary").Value, b.Status)
	}

	// Pinned for all, both agents have it; the description is as it was given, so
	// that nothing is written again.
	pinned := w.create(v1alpha1.MemoryBlockSpec{Label: "conventions", Mode: v1alpha1.BlockPinned, Value: "- tabs: \"not\" blanks\n\n---\n# why", Description: "how: we \"write\" # here"})
	w.settle(pinned)
	for _, project := range []string{remote, other} {
		if got := w.has(project, "conventions"); got.Value != "- tabs: \"not\" blanks\n\n---\n# why" || got.Description != "how: we \"write\" # here" {
			t.Errorf("the agent of %s has %+v", project, got)
		}
	}
	revision := func() string {
		m, err := c.Memory(t.Context(), w.agents[remote])
		w.must(err)
		return m.Revision
	}
	before := revision()
	w.later()
	w.settle(pinned)
	if after := revision(); after != before {
		t.Error("an unchanged block was written again")
	}
	w.said()
	w.later()
	_, err = c.PutBlock(t.Context(), w.agents[remote], letta.Block{Label: "conventions", Value: "- blanks"}, "test")
	w.must(err)
	w.settle(pinned)
	if got := w.said(); w.has(remote, "conventions").Value != "- tabs: \"not\" blanks\n\n---\n# why" || len(got) != 1 || !strings.Contains(got[0], v1alpha1.PutBackReason) {
		t.Errorf("the agent has %q, events %q", w.has(remote, "conventions").Value, got)
	}

	// What has no label is counted and not shown.
	writes("system/a<b>&\"\u202e.md", "hostile")
	m, err := c.Memory(t.Context(), w.agents[remote])
	w.must(err)
	for _, b := range m.Blocks {
		if !letta.ValidLabel(b.Label) {
			t.Errorf("the label %q is shown", b.Label)
		}
	}
	if m.Rejected != 1 {
		t.Errorf("%d names are no labels, want 1", m.Rejected)
	}
}
