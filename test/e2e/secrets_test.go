//go:build envtest

package e2e

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/undersong-dev/undersong/test/stack"
	"github.com/undersong-dev/undersong/test/tools"
)

// TestTheSecretsOfTheCorpusStayHome plays the corpus's transcript with
// credentials and looks for them wherever they could have come to lie.
func TestTheSecretsOfTheCorpusStayHome(t *testing.T) {
	w := newWorld(t, nil)
	w.startController()
	corpus := filepath.Join(tools.Root(), "internal", "transcript", "testdata", "corpus")
	data, err := os.ReadFile(filepath.Join(corpus, "p40_secrets.jsonl"))
	w.must(err)
	var expect struct {
		SessionID string   `json:"session_id"`
		Redact    []string `json:"redact"`
	}
	text, err := os.ReadFile(filepath.Join(corpus, "expect", "p40_secrets.json"))
	w.must(err)
	w.must(json.Unmarshal(text, &expect))
	if len(expect.Redact) != 3 {
		t.Fatalf("the corpus names %d secrets, want 3", len(expect.Redact))
	}
	s := w.session(w.desk, w.cwd, expect.SessionID)
	cwd, err := json.Marshal(w.cwd)
	w.must(err)
	w.must(os.MkdirAll(filepath.Dir(s.Transcript), 0o700))
	w.must(os.WriteFile(s.Transcript, []byte(strings.ReplaceAll(string(data), `"/srv/demo/lantern"`, string(cwd))), 0o600))
	w.must(s.Stop(t.Context(), ""))
	w.said = []string{"Print the env file.", "It holds a key and a database address.", "I will not repeat it."}
	w.check()

	bucket, err := w.team.Open()
	w.must(err)
	w.must(stack.SearchBucket(t.Context(), bucket, expect.Redact))
	objects, err := parts.Dump(t.Context(), w.team.Namespace)
	w.must(err)
	w.must(stack.Search("the API server", objects, expect.Redact))
	w.must(stack.Search("the conversations", []byte(w.conversations()), expect.Redact))
	if !strings.Contains(w.conversations(), "My token is ") {
		t.Error("the words around the token are lost")
	}
	searchFiles(t, filepath.Join(parts.Dir, "logs"), expect.Redact)
	// The workstation has no key of the store or of Letta either.
	searchFiles(t, w.desk.State, append(parts.Keys(), expect.Redact...))
	searchFiles(t, filepath.Join(w.cwd, ".letta"), append(parts.Keys(), expect.Redact...))
}

func searchFiles(t *testing.T, dir string, secrets []string) {
	t.Helper()
	files := 0
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		files++
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return stack.Search(path, data, secrets)
	})
	if err != nil {
		t.Error(err)
	}
	if files == 0 {
		t.Errorf("%s is empty: nothing was searched", dir)
	}
}

// TestASessionThatIsCompactedAndReplayedIsToldOnce appends earlier rows again,
// as a second compaction was seen to do.
func TestASessionThatIsCompactedAndReplayedIsToldOnce(t *testing.T) {
	w := newWorld(t, nil)
	w.startController()
	s := w.session(w.desk, w.cwd, "5e55ffff-0000-4000-8000-000000000001")
	w.turn(s, "Said before the compaction.", "Answered before the compaction.")
	w.processed()
	data, err := os.ReadFile(s.Transcript)
	w.must(err)
	// Compaction appends earlier rows again, byte for byte.
	f, err := os.OpenFile(s.Transcript, os.O_APPEND|os.O_WRONLY, 0o600)
	w.must(err)
	_, err = f.Write(data)
	w.must(err)
	w.must(f.Close())
	w.turn(s, "Said after the compaction.", "Answered after the compaction.")
	w.check()
}

// TestAReplacedFileIsReadAgainAndToldOnce cuts a record out of the file, as a
// failed stream does: a new generation begins, what is known is not repeated.
func TestAReplacedFileIsReadAgainAndToldOnce(t *testing.T) {
	w := newWorld(t, nil)
	w.startController()
	s := w.session(w.desk, w.cwd, "5e55ffff-0000-4000-8000-000000000002")
	w.turn(s, "Said first.", "Half an answer.")
	before := w.processed()[0].Spec.Lines
	data, err := os.ReadFile(s.Transcript)
	w.must(err)
	lines := strings.SplitAfter(string(data), "\n")
	var kept []string
	for _, line := range lines {
		if !strings.Contains(line, "Half an answer.") {
			kept = append(kept, line)
		}
	}
	w.must(os.WriteFile(s.Transcript, []byte(strings.Join(kept, "")), 0o600))
	w.turn(s, "Said second.", "A whole answer.")
	w.must(stack.Eventually(t.Context(), within, func() error {
		sessions := w.processed()
		// The first generation's lines stay in the archive.
		if got, want := sessions[0].Spec.Lines, before+s.Lines(); got != want {
			t.Logf("%d lines are uploaded, want %d", got, want)
			return errStill
		}
		return nil
	}))
	for _, words := range w.said {
		if n := strings.Count(w.conversations(), words); n != 1 {
			t.Errorf("Letta has %d times: %s", n, words)
		}
	}
}

var errStill = errors.New("the lines of both generations are not uploaded yet")
