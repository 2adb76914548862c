//go:build envtest

package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/undersong-dev/undersong/internal/redact/redacttest"
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

// TestNoPlantedSecretLeaves plants a secret of every kind, each between words, in
// prompts, in tool results, in a title and in the name of a branch, and looks for
// it where the team's data comes to lie: in the words that memory is told, in
// segments, in the objects of the cluster, in logs. The secret is nowhere; the
// words around it and a marker are.
func TestNoPlantedSecretLeaves(t *testing.T) {
	w := newWorld(t, nil)
	w.startController()
	s := w.session(w.desk, w.cwd, "5e55ffff-0000-4000-8000-00000000000a")
	var (
		transcript bytes.Buffer
		secrets    []string
		names      []string
		n          int
	)
	record := func(kind string, members map[string]any) {
		n++
		id := fmt.Sprintf("c000ffff-0000-4000-8000-%012x", n)
		line := map[string]any{"type": kind, "uuid": id, "sessionId": s.ID, "cwd": w.cwd, "entrypoint": "cli", "gitBranch": "main", "timestamp": time.Now().UTC().Format("2006-01-02T15:04:05.000Z")}
		maps.Copy(line, members)
		text, err := json.Marshal(line)
		w.must(err)
		transcript.Write(append(text, '\n'))
	}
	around := func(name, text string) string { return "before " + name + " " + text + " after " + name }
	kinds := redacttest.Kinds()
	for _, name := range slices.Sorted(maps.Keys(kinds)) {
		k := kinds[name]
		names = append(names, name)
		// Halves, too: a secret that is cut is no less one.
		secrets = append(secrets, k.Secret, k.Secret[:len(k.Secret)/2], k.Secret[len(k.Secret)/2:])
		record("user", map[string]any{"origin": map[string]any{"kind": "human"}, "message": map[string]any{"role": "user", "content": around("prompt "+name, k.Text)}})
		call := "toolu_" + name
		record("assistant", map[string]any{"message": map[string]any{"role": "assistant", "content": []any{map[string]any{"type": "tool_use", "id": call, "name": "Bash", "input": map[string]any{"command": "env"}}}}})
		record("user", map[string]any{
			"message":       map[string]any{"role": "user", "content": []any{map[string]any{"type": "tool_result", "tool_use_id": call, "content": around("result "+name, k.Text)}}},
			"toolUseResult": map[string]any{"stdout": k.Text},
		})
	}
	secrets = slices.DeleteFunc(secrets, func(s string) bool { return len(s) < 8 })
	token := kinds["GitHub"].Text
	record("custom-title", map[string]any{"gitBranch": "before-branch/" + token, "customTitle": around("title", token)})
	w.must(os.MkdirAll(filepath.Dir(s.Transcript), 0o700))
	w.must(os.WriteFile(s.Transcript, transcript.Bytes(), 0o600))
	w.must(s.Stop(t.Context(), ""))
	sessions := w.processed()

	talk := w.conversations()
	bucket, err := w.team.Open()
	w.must(err)
	var archive strings.Builder
	for info, err := range bucket.List(t.Context(), "archive/") {
		w.must(err)
		if strings.HasSuffix(info.Key, ".jsonl.zst") {
			header, lines, err := stack.Segment(t.Context(), bucket, info.Key)
			w.must(err)
			if header.Archived != nil {
				t.Errorf("%s: the cluster found what the workstation should have taken out", info.Key)
			}
			for _, line := range lines {
				archive.WriteString(string(line) + "\n")
			}
		}
	}
	objects, err := parts.Dump(t.Context(), w.team.Namespace)
	w.must(err)
	w.must(stack.Search("the conversations", []byte(talk), secrets))
	w.must(stack.Search("the archive", []byte(archive.String()), secrets))
	w.must(stack.SearchBucket(t.Context(), bucket, secrets))
	w.must(stack.Search("the API server", objects, secrets))
	searchFiles(t, filepath.Join(parts.Dir, "logs"), secrets)
	searchFiles(t, w.desk.State, secrets)
	searchFiles(t, filepath.Join(w.cwd, ".letta"), secrets)

	marked := func(where, text, name string) {
		_, rest, found := strings.Cut(text, "before "+name+" ")
		between, _, closed := strings.Cut(rest, " after "+name)
		if !found || !closed || !strings.Contains(between, "[redacted:") {
			t.Errorf("%s: the words around %s, or the marker between them, are lost: %.200q", where, name, between)
		}
	}
	for _, name := range names {
		marked("the conversations", talk, "prompt "+name)
		marked("the archive", archive.String(), "prompt "+name)
		marked("the archive", archive.String(), "result "+name)
	}
	marked("the archive", archive.String(), "title")
	title, branch := sessions[0].Status.Title, sessions[0].Spec.Writers[0].Branch
	if title != "before title [redacted:github-token] after title" || branch != "before-branch/[redacted:github-token]" {
		t.Errorf("title %q, branch %q", title, branch)
	}
	if !strings.Contains(logged(t, w.desk.State), s.ID) {
		t.Error("the daemon's log does not speak of the session: nothing was searched")
	}
}

// logged is all that a workstation has logged.
func logged(t *testing.T, state string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(state, "daemon.log"))
	if err != nil {
		t.Error(err)
	}
	return string(data)
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
	if err := stack.CheckTold(w.conversations(), w.said); err != nil {
		t.Error(err)
	}
}

var errStill = errors.New("the lines of both generations are not uploaded yet")
