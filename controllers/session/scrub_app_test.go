//go:build envtest

package session

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/internal/letta"
	"github.com/undersong-dev/undersong/test/tools"
)

// holding are the files of the server, below its folder, in which a text stands.
// Of a repository these are the commits' objects, as one.
func (k *appKeeper) holding(t *testing.T, text string) []string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(k.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var data []byte
		switch {
		case d.IsDir() && d.Name() == ".git":
			data, err = exec.CommandContext(t.Context(), "git", "-C", filepath.Dir(path), "cat-file", "--batch-all-objects", "--batch").Output()
		case d.IsDir():
			return nil
		default:
			data, err = os.ReadFile(path)
		}
		if bytes.Contains(data, []byte(text)) {
			name, _ := filepath.Rel(k.dir, path) // it is below
			all = append(all, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(all)
	return all
}

// byHand are the commands that the runbook has for an App Server.
func byHand(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(tools.Root(), "docs", "runbooks.md"))
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile("(?s)\n## What an App Server keeps\n.*?```sh\n(.*?)```").FindSubmatch(page)
	if found == nil {
		t.Fatal("the runbook has no commands for an App Server")
	}
	return string(found[1])
}

// TestScrubOnTheAppServer: what of a real App Server a scrub reaches, that it
// names all else in which the text stands, also to who looks once more, and that
// the runbook's commands take it out of that.
func TestScrubOnTheAppServer(t *testing.T) {
	k := startAppKeeper(t)
	w := appWorld(t, k)
	wr := w.writer("desk")
	wr.segment(userLine("u1", "Note for the team: "+leaked+"."), assistantLine("a1", "Noted."))
	wr.apply()
	ses := w.settleDown()
	agent, said := ses.Status.SyncState.AgentID, ses.Status.SyncState.ConversationID
	beside := w.beside("5e550001-0000-4000-8000-000000000002", remote)
	spared := beside.writer("desk-b").say("b1", "What next?").Status.SyncState.ConversationID

	memory := filepath.Join("state", "memfs", agent, "memory")
	folder := func(conversation, name string) string {
		dir, _ := filepath.Rel(k.dir, k.folder(conversation)) // it is below
		return filepath.Join(dir, name)
	}
	stays := []string{
		filepath.Join("home", ".letta", "transcripts", agent, said, "transcript.jsonl"),
		folder(said, "messages.jsonl"),
		filepath.Join(memory, ".git"),
	}
	everywhere := slices.Concat(stays, []string{folder(said, "system-prompt.json"), folder(spared, "system-prompt.json"), filepath.Join(memory, "system", "conventions.md")})
	slices.Sort(stays)
	slices.Sort(everywhere)
	if diff := cmp.Diff(everywhere, k.holding(t, leaked)); diff != "" {
		t.Errorf("where it stands before: -want +got:\n%s", diff)
	}

	compacted := "what a conversation was compacted of: this Letta lists what was said since only"
	history := fmt.Sprintf("revisions of the block conventions of the agent %s, which Letta keeps in the history of its memory", agent)
	scrub := func(id string, mode v1alpha1.ScrubMode, want string, left ...string) {
		t.Helper()
		entry := w.scrubEntry(id, leaked, mode)
		w.change(func(m *v1alpha1.TeamMemory) { m.Spec.Scrubs = append(m.Spec.Scrubs, entry) })
		s := w.scrub(id)
		if s.Phase != v1alpha1.ScrubDone || counted(s) != want {
			t.Errorf("%s: %s: %s, want %s", id, s.Phase, counted(s), want)
		}
		if diff := cmp.Diff(left, s.NotReached); diff != "" {
			t.Errorf("%s: what is not reached: -want +got:\n%s", id, diff)
		}
	}
	scrub("look", v1alpha1.ScrubLook, "Blocks 1/0, Archive 1/0, Conversations 1/0, BlockTexts 1/0", history, compacted)
	if diff := cmp.Diff(everywhere, k.holding(t, leaked)); diff != "" {
		t.Errorf("looking for it changed something: -want +got:\n%s", diff)
	}
	scrub("remove", v1alpha1.ScrubRemove, "Blocks 1/1, Archive 1/1, Conversations 1/0, BlockTexts 1/1", history, leftConversation(said), compacted)
	if diff := cmp.Diff(stays, k.holding(t, leaked)); diff != "" {
		t.Errorf("where it stands afterwards: -want +got:\n%s", diff)
	}
	if strings.Contains(w.kept(), leaked) {
		t.Error("the archive has it still")
	}
	scrub("again", v1alpha1.ScrubLook, "Conversations 1/0", history, compacted)

	wr.segment(userLine("u2", "Anything new?"), assistantLine("a2", "No."))
	wr.apply()
	if y := w.settleDown().Status.SyncState; y.ConversationID == said || !slices.Contains(y.Abandoned, said) {
		t.Errorf("it goes on in %s, abandoned %v", y.ConversationID, y.Abandoned)
	}
	if y := beside.get().Status.SyncState; y.ConversationID != spared {
		t.Error("another session's conversation went")
	}

	k.Kill()
	commands := strings.NewReplacer("<conversation>", said, "<agent>", agent).Replace(byHand(t))
	cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", commands)
	cmd.Env = append(os.Environ(), "HOME="+filepath.Join(k.dir, "home"), "LETTA_LOCAL_BACKEND_DIR="+filepath.Join(k.dir, "state"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", commands, err, out)
	}
	if left := k.holding(t, leaked); len(left) > 0 {
		t.Errorf("after the runbook's commands it stands in %v", left)
	}
	w.must(k.Run(t.Context()))
	scrub("over", v1alpha1.ScrubLook, "", compacted)
	wr.segment(userLine("u3", "Note for the team: the gate is shut at ten."), assistantLine("a3", "I see."))
	wr.apply()
	w.settleDown()
	if m, err := k.client(w).Memory(t.Context(), agent); err != nil || !strings.Contains(fmt.Sprint(m.Blocks), "the gate is shut at ten") || !strings.Contains(fmt.Sprint(m.Blocks), "[redacted:scrub-remove]") {
		t.Errorf("the memory does not go on: %+v, %v", m, err)
	}
}

// TestForgetWhereNothingCanBeDeleted: the App Server keeps a conversation, so the
// session does not go on in it, and the next words begin another one.
func TestForgetWhereNothingCanBeDeleted(t *testing.T) {
	w := appWorld(t, startAppKeeper(t))
	w.story()
	said := w.settleDown().Status.SyncState.ConversationID
	if said == "" {
		t.Fatal("there is no conversation")
	}
	w.request(v1alpha1.Request{ID: "f1", Kind: v1alpha1.RequestForget})
	y := w.settleDown().Status.SyncState
	if y.ConversationID != "" || !slices.Equal(y.Abandoned, []string{said}) {
		t.Errorf("after a whole Forget the conversation is %q, abandoned %q; want none, and %q", y.ConversationID, y.Abandoned, said)
	}
	if a := w.answer("f1"); a == nil || a.Result != v1alpha1.AnswerPartial || !strings.Contains(a.Message, "cannot delete; the session does not go on in it") {
		t.Errorf("the answer is %+v", a)
	}
	a := w.writer("ws-a")
	a.segment(userLine("u8", "Afterwards."))
	a.apply()
	y = w.settleDown().Status.SyncState
	if y.ConversationID == "" || y.ConversationID == said {
		t.Fatalf("the next words went to the conversation %q, want another one than %q", y.ConversationID, said)
	}
	told := ""
	for m, err := range w.app.client(w).Messages(t.Context(), letta.Ref{AgentID: y.AgentID, ConversationID: y.ConversationID}, "") {
		w.must(err)
		told += m.Text
	}
	w.only("the new conversation", told, "Afterwards.")
	w.restart() // another process knows it, too
	a.segment(userLine("u9", "Once more."))
	a.apply()
	if next := w.settleDown().Status.SyncState; next.ConversationID != y.ConversationID {
		t.Errorf("and then to %q, want %q", next.ConversationID, y.ConversationID)
	}
}

// TestScrubLooksAtWhatBlocksWere: at a block that is gone, and it says how far.
func TestScrubLooksAtWhatBlocksWere(t *testing.T) {
	k := startAppKeeper(t)
	w := appWorld(t, k)
	agent := w.writer("desk").say("u1", "hello").Status.SyncState.AgentID
	c := k.client(w)
	put := func(label, value string) {
		t.Helper()
		_, err := c.PutBlock(t.Context(), agent, letta.Block{Label: label, Value: value}, "")
		w.must(err)
	}
	put("pitfalls", leaked)
	_, err := c.DeleteBlock(t.Context(), agent, "pitfalls", "")
	w.must(err)
	put("decisions", leaked)
	for n := range letta.MaxHistory {
		put("decisions", fmt.Sprint("decision ", n))
	}
	entry := w.scrubEntry("old", leaked, v1alpha1.ScrubLook)
	w.change(func(m *v1alpha1.TeamMemory) { m.Spec.Scrubs = []v1alpha1.Scrub{entry} })
	s := w.scrub("old")
	want := []string{
		fmt.Sprintf("revisions of the block decisions of the agent %s before its last %d: nobody has looked at them", agent, letta.MaxHistory),
		fmt.Sprintf("revisions of the block pitfalls of the agent %s, which Letta keeps in the history of its memory", agent),
		"what a conversation was compacted of: this Letta lists what was said since only",
	}
	if diff := cmp.Diff(want, s.NotReached); diff != "" || counted(s) != "" {
		t.Errorf("found %q; what is not reached: -want +got:\n%s", counted(s), diff)
	}
}
