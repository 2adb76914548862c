//go:build envtest && linux

package live

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/undersong-dev/undersong/test/claude"
)

// TestPrivateWordsStayOnTheWorkstation plants a word in every place that is not
// what people and the assistant said, and that Claude Code writes into its
// transcript nevertheless, and looks for them wherever our parts write.
func TestPrivateWordsStayOnTheWorkstation(t *testing.T) {
	w := newWorld(t, nil)
	ctx := t.Context()
	const (
		userFile    = "MARIGOLD-user-instructions"
		projectFile = "MARIGOLD-project-instructions"
		system      = "MARIGOLD-system-prompt"
		hookContext = "MARIGOLD-hook-context"
		hookNotice  = "MARIGOLD-hook-notice"
		hookPlain   = "MARIGOLD-hook-plain"
		hookError   = "MARIGOLD-hook-error"
		refused     = "MARIGOLD-refused-prompt"
		agentTask   = "MARIGOLD-agent-kind"
	)
	w.must(os.WriteFile(filepath.Join(w.desk.ClaudeDir(), "CLAUDE.md"), []byte("Say "+userFile+" to nobody.\n"), 0o600))
	w.must(os.WriteFile(filepath.Join(w.cwd, "CLAUDE.md"), []byte("Say "+projectFile+" to nobody.\n"), 0o600))
	agents := filepath.Join(w.cwd, ".claude", "agents")
	w.must(os.MkdirAll(agents, 0o700))
	w.must(os.WriteFile(filepath.Join(agents, "keeper.md"), []byte("---\nname: keeper\ndescription: keeps "+agentTask+"\n---\nKeep lamps.\n"), 0o600))
	w.Witness.Speaks = map[string]string{
		"SessionStart":     hookPlain,
		"UserPromptSubmit": `{"systemMessage":"` + hookNotice + `","hookSpecificOutput":{"hookEventName":"UserPromptSubmit","additionalContext":"` + hookContext + `"}}`,
	}
	w.Witness.Refuses, w.Witness.Refusal = refused, hookError
	w.must(w.Witness.Tell())
	w.Model.Script(
		&claude.Rule{When: "LOOK", Tool: "Bash", Blocks: []claude.Block{bash("toolu_l1", "echo harbour")}},
		&claude.Rule{When: "toolu_l1", Blocks: []claude.Block{{Text: "There is a harbour."}}},
		&claude.Rule{When: "Respond with TEXT ONLY", Always: true, Blocks: []claude.Block{{Text: "<summary>They spoke about a harbour.</summary>"}}},
	)
	planted := []string{userFile, projectFile, system, hookContext, hookNotice, hookPlain, hookError, refused, agentTask}

	k := w.talk("--append-system-prompt", "Keep "+system+" to yourself.")
	k.asks("LOOK at the harbour")
	w.must(k.Command(ctx, refused+" is what I typed", "UserPromptSubmit"))
	k.asks("and without it")
	w.must(k.Command(ctx, "/compact", "PostCompact"))
	k.asks("after the compaction")
	session := k.Session()
	w.must(k.Hangup(ctx))
	w.arrives(session, []said{
		user("LOOK at the harbour"), assistant("There is a harbour."), user("and without it"), assistant("Noted."),
		user("after the compaction"), assistant("Noted."),
	})

	// The test means something only if Claude Code wrote them down.
	written, err := os.ReadFile(w.Transcripts()[session])
	w.must(err)
	for _, word := range planted {
		if !strings.Contains(string(written), word) {
			t.Errorf("%s is not in the transcript: nothing was planted", word)
		}
	}
	w.nowhere(planted...)
	w.census()
}

// census reads all that Claude Code has written, as a person would have it read,
// and fails if our reader does not know all of it.
func (w *world) census() {
	w.t.Helper()
	out, err := w.desk.Run(w.t.Context(), "transcript", "inspect", "--json", filepath.Join(w.desk.ClaudeDir(), "projects"))
	w.must(err)
	total := map[string]int{}
	files := 0
	for line := range strings.Lines(out) {
		var file struct {
			Unknown   []string          `json:"unknown_types"`
			Bad       []json.RawMessage `json:"bad_lines"`
			Foreign   []json.RawMessage `json:"foreign"`
			Conflicts []json.RawMessage `json:"conflicts"`
			Records   map[string]int    `json:"records"`
		}
		w.must(json.Unmarshal([]byte(line), &file))
		files++
		if len(file.Unknown)+len(file.Bad)+len(file.Foreign)+len(file.Conflicts) > 0 || len(file.Records) == 0 {
			w.t.Errorf("the reader does not know all of a transcript: %+v", file)
		}
		for kind, n := range file.Records {
			total[kind] += n
		}
	}
	w.t.Logf("records of %d transcripts: %v", files, total)
}

// TestAForkDoesNotTellWhatItsTalkWithheld pauses a talk for one prompt, and forks
// it: the copy of that prompt has another offset, in another file.
func TestAForkDoesNotTellWhatItsTalkWithheld(t *testing.T) {
	w := newWorld(t, nil)
	ctx := t.Context()
	w.Model.Script(&claude.Rule{When: "FOXGLOVE", Blocks: []claude.Block{{Text: "FOXGLOVE it is."}}})
	k := w.talk()
	k.asks("this is heard")
	first := k.Session()
	heard := []said{user("this is heard"), assistant("Noted.")}
	w.arrives(first, heard)
	_, err := w.desk.Run(ctx, "pause")
	w.must(err)
	k.asks("FOXGLOVE is between us")
	w.onDisk(first, 2)
	_, err = w.desk.Run(ctx, "resume")
	w.must(err)
	k.asks("this is heard again")
	heard = append(heard, user("this is heard again"), assistant("Noted."))
	w.must(k.Hangup(ctx))
	w.arrives(first, heard)

	k = w.talk("--resume", first, "--fork-session")
	k.asks("in the fork")
	fork := k.Session()
	w.must(k.Hangup(ctx))
	w.arrives(fork, []said{user("in the fork"), assistant("Noted.")})
	w.arrives(first, heard)
	sessions, err := w.team.Sessions(ctx)
	w.must(err)
	for i := range sessions {
		if sessions[i].Spec.SessionID == fork && sessions[i].Spec.ForkedFrom != first {
			t.Errorf("the Session says that it is a fork of %q, want %s", sessions[i].Spec.ForkedFrom, first)
		}
	}
	for _, id := range []string{first, fork} {
		written, err := os.ReadFile(w.Transcripts()[id])
		w.must(err)
		if !strings.Contains(string(written), "FOXGLOVE") {
			t.Errorf("the transcript of %s does not hold the words: this tests nothing", id)
		}
	}
	w.nowhere("FOXGLOVE")
}
