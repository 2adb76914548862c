//go:build envtest

package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"html"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/internal/segment"
	"github.com/undersong-dev/undersong/internal/store"
	"github.com/undersong-dev/undersong/internal/transcript"
	"github.com/undersong-dev/undersong/test/replay"
	"github.com/undersong-dev/undersong/test/stack"
	"github.com/undersong-dev/undersong/test/tools"
)

// Seeds of the live sessions that are played: a few with every test, more when
// make e2e asks for rounds.
const (
	fewSeeds  = 3
	manySeeds = 20
)

// seeds names other ones.
var seeds = flag.String("seeds", "", "the seeds of the live and the paused sessions to play, as 21-60; default: the first few, or the first 20 with -rounds")

// eachSeed plays sessions of several seeds, few of them where nobody asks for
// more.
func eachSeed(t *testing.T, few int, play func(t *testing.T, python string, seed int)) {
	t.Helper()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("NOT TESTED: python3 is not installed, and the generator of live sessions needs it")
	}
	first, last := 1, few
	if *rounds > 1 {
		last = manySeeds
	}
	if *seeds != "" {
		if n, err := fmt.Sscanf(*seeds, "%d-%d", &first, &last); n != 2 || first < 1 || last < first {
			t.Fatalf("-seeds is %q, want two numbers as 21-60: %v", *seeds, err)
		}
	}
	for seed := first; seed <= last; seed++ {
		t.Run(strconv.Itoa(seed), func(t *testing.T) { play(t, python, seed) })
	}
}

// liveTurns is how many prompts a live session has. The generator moves, cuts
// and truncates the file on the way, at a third, half and two thirds.
const liveTurns = 18

// TestALiveSessionArrivesAsItsManifestSays lets the corpus's generator write a
// session as a busy Claude Code does, while it calls the real hook: records in
// torn writes, a rename into a worktree's folder, half an answer that is cut out
// again, a cleanup that truncates the file, subagents, another session's records
// in the file, and for some seeds an end in the middle of a line, or a daemon
// that is killed on the way. What the generator says that a correct reader holds
// must be in the archive, and its words in Letta once each.
func TestALiveSessionArrivesAsItsManifestSays(t *testing.T) {
	eachSeed(t, fewSeeds, playLive)
}

// haltAtHalfAnAnswer stops the generator while half an answer is in the file,
// until that is uploaded, and returns the half: what is cut out then was read
// before. It returns nil if the generator was faster. Its end, should it come
// meanwhile, is put back.
func (w *world) haltAtHalfAnAnswer(gen *os.Process, projects string, ended chan error) []byte {
	w.t.Helper()
	look := func() (path string, half []byte) {
		files, err := filepath.Glob(filepath.Join(projects, "*", "*.jsonl"))
		w.must(err)
		for _, path := range files {
			data, err := os.ReadFile(path)
			if err != nil {
				continue // it was just moved
			}
			last := data[bytes.LastIndexByte(bytes.TrimSuffix(data, []byte("\n")), '\n')+1:]
			if bytes.HasSuffix(last, []byte("\n")) && bytes.Contains(last, []byte(`"half an answ"`)) {
				return path, bytes.TrimSuffix(last, []byte("\n"))
			}
		}
		return "", nil
	}
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case err := <-ended:
			ended <- err
			return nil
		case <-tick.C:
		}
		if _, half := look(); half == nil {
			continue
		}
		w.must(gen.Signal(syscall.SIGSTOP))
		path, half := look()
		if half != nil {
			w.uploaded(path)
		}
		w.must(gen.Signal(syscall.SIGCONT))
		return half
	}
}

// uploaded calls a hook and waits until all lines of a session, and of its
// subagents, are uploaded.
func (w *world) uploaded(path string) {
	w.t.Helper()
	id := strings.TrimSuffix(filepath.Base(path), ".jsonl")
	_, err := w.desk.Hook(w.t.Context(), w.cwd, map[string]any{"session_id": id, "transcript_path": path, "cwd": w.cwd, "hook_event_name": "Stop"})
	w.must(err)
	s := replay.Session{ID: id, Transcript: path}
	w.must(stack.Eventually(w.t.Context(), within, func() error {
		sessions, err := w.team.Sessions(w.t.Context())
		if err != nil {
			return err
		}
		if len(sessions) != 1 || sessions[0].Spec.Lines < s.Lines() {
			return errors.New("half an answer is not uploaded")
		}
		return nil
	}))
}

// inspected compares what undersong transcript inspect says of the files that
// were left with the manifest.
func (w *world) inspected(projects string, want *live) {
	w.t.Helper()
	out, err := w.desk.Run(w.t.Context(), "transcript", "inspect", "--json", projects)
	w.must(err)
	got := map[string][]string{}
	for line := range strings.Lines(out) {
		var file struct {
			File         string   `json:"file"`
			Lines        int      `json:"complete_lines"`
			Consumed     int64    `json:"consumed_bytes"`
			Title        string   `json:"title"`
			Conversation []string `json:"conversation"`
		}
		w.must(json.Unmarshal([]byte(line), &file))
		got[file.File] = file.Conversation
		if file.File == want.Path && (file.Lines != want.Lines || file.Consumed != want.Consumed || file.Title != want.Title) {
			w.t.Errorf("inspect finds %d lines, %d bytes and the title %q, want %d, %d, %q", file.Lines, file.Consumed, file.Title, want.Lines, want.Consumed, want.Title)
		}
	}
	expected := map[string][]string{want.Path: want.Conversation}
	for _, a := range want.Agents {
		expected[a.File] = a.Conversation
	}
	if diff := cmp.Diff(expected, got); diff != "" {
		w.t.Errorf("inspect (-want +got):\n%s", diff)
	}
}

// live is what the generator says of the session that it has written.
type live struct {
	SessionID    string   `json:"session_id"`
	Path         string   `json:"path"`
	Lines        int      `json:"lines"`
	Consumed     int64    `json:"consumed_bytes"`
	Title        string   `json:"title"`
	Conversation []string `json:"conversation"`
	Superseded   []string `json:"superseded"`
	Crashed      bool     `json:"crashed"`
	Agents       []struct {
		ID           string   `json:"agent_id"`
		File         string   `json:"file"`
		Conversation []string `json:"conversation"`
	} `json:"agents"`
	Hooks []struct {
		Event  string `json:"event"`
		Code   int    `json:"rc"`
		Killed bool   `json:"killed"`
		Stderr string `json:"stderr"`
		Stdout string `json:"stdout"`
	} `json:"hooks"`
}

func playLive(t *testing.T, python string, seed int) {
	t.Helper()
	w := newWorld(t, nil)
	w.startController()
	projects := filepath.Join(w.desk.ClaudeDir(), "projects")
	w.must(os.MkdirAll(projects, 0o700))
	manifest := filepath.Join(t.TempDir(), "manifest.json")
	args := []string{
		filepath.Join(tools.Root(), "internal", "transcript", "testdata", "corpus", "gen", "gen_live.py"),
		"--projects", projects, "--manifest", manifest, "--cwd", w.cwd, "--hook", filepath.Join(parts.Dir, "bin", "undersong-hook") + " --home " + w.desk.State,
		"--seed", strconv.Itoa(seed), "--turns", strconv.Itoa(liveTurns), "--torn", "0.5", "--pause", "0.05",
		"--relocate", "--cut", "--truncate", "--foreign", "--subagents", "3",
	}
	if seed%2 == 0 {
		args = append(args, "--crash")
	}
	gen := exec.CommandContext(t.Context(), python, args...)
	gen.Dir = w.cwd
	// The environment of a hook of Claude Code at this desk, and nothing else.
	gen.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + w.desk.Home, "TMPDIR=" + os.TempDir(), "UNDERSONG_HOME=" + w.desk.State,
		"CLAUDE_CONFIG_DIR=" + w.desk.ClaudeDir(), "CLAUDECODE=1", "CLAUDE_CODE_ENTRYPOINT=cli",
	}
	var out bytes.Buffer
	gen.Stdout, gen.Stderr = &out, &out
	w.must(gen.Start())
	ended := make(chan error, 1)
	go func() { ended <- gen.Wait() }()
	half := w.haltAtHalfAnAnswer(gen.Process, projects, ended)
	if *seeds != "" || seed%3 == 0 {
		w.desk.KillDaemon() // the next hook starts another
	}
	if err := <-ended; err != nil {
		t.Fatalf("gen_live.py: %v\n%s", err, out.String())
	}
	data, err := os.ReadFile(manifest)
	w.must(err)
	var want live
	w.must(json.Unmarshal(data, &want))
	if len(want.Conversation) == 0 || len(want.Superseded) == 0 || len(want.Agents) != 3 {
		t.Fatalf("the generator played %d records, %d superseded ones and %d agents: that is no test", len(want.Conversation), len(want.Superseded), len(want.Agents))
	}
	for _, h := range want.Hooks {
		if !h.Killed && h.Code != 0 || h.Stderr != "" {
			t.Errorf("the %s hook ended with %d and said %q", h.Event, h.Code, h.Stderr)
		}
	}
	streams := want.read(t, projects)
	w.inspected(projects, &want)

	var got arrived
	w.must(stack.Eventually(t.Context(), within, func() error {
		if got, err = w.arrived(want.SessionID); err != nil {
			return err
		}
		for _, s := range streams {
			if err := s.archivedIn(got.archive[s.name]); err != nil {
				return err
			}
		}
		return missing(streams[0].words, got.told)
	}))
	// Nothing more may come, in particular nothing twice.
	if got, err = w.arrived(want.SessionID); err != nil {
		t.Fatal(err)
	}
	want.checkTold(t, streams, got)
	switch {
	case half == nil:
		t.Log("half an answer was cut out before anybody looked")
	case !got.holds(half):
		t.Error("half an answer was uploaded, and is not in the archive")
	}
	if got.session.Status.Title != want.Title {
		t.Errorf("the title is %q, want %q", got.session.Status.Title, want.Title)
	}
}

// said is what one record says.
type said struct{ key, text string } // role:uuid

// stream is one transcript as it was left on the disk.
type stream struct {
	name  string
	lines [][]byte // complete ones
	words []said   // of the manifest's conversation, in its order
}

// read reads the files of the session, its own first, and finds the words of the
// manifest's conversation in them.
func (l *live) read(t *testing.T, projects string) []stream {
	t.Helper()
	open := func(name, path string, kind transcript.StreamKind, conversation []string) stream {
		data, err := os.ReadFile(filepath.Join(projects, path))
		if err != nil {
			t.Fatal(err)
		}
		s := stream{name: name}
		texts := map[string]string{}
		for line := range bytes.Lines(data) {
			if !bytes.HasSuffix(line, []byte("\n")) {
				continue // the tail of a crash
			}
			line = bytes.TrimSuffix(line, []byte("\n"))
			s.lines = append(s.lines, line)
			record, err := transcript.Parse(line)
			if err != nil {
				t.Fatalf("the generator wrote a bad line: %v", err)
			}
			for _, e := range record.Entries(kind, l.SessionID) {
				texts[string(e.Speaker)+":"+e.ID] = e.Text
			}
		}
		for _, key := range conversation {
			if texts[key] == "" {
				t.Fatalf("there are no words of %s in %s", key, path)
			}
			s.words = append(s.words, said{key, texts[key]})
		}
		if len(texts) != len(conversation) {
			t.Fatalf("%s has %d records with words, its manifest %d", path, len(texts), len(conversation))
		}
		return s
	}
	streams := []stream{open(segment.MainStream, l.Path, transcript.MainStream, l.Conversation)}
	if n := len(streams[0].lines); n != l.Lines {
		t.Fatalf("%s has %d lines, its manifest %d", l.Path, n, l.Lines)
	}
	for _, a := range l.Agents {
		streams = append(streams, open(segment.AgentPrefix+a.ID, a.File, transcript.AgentStream, a.Conversation))
	}
	return streams
}

// archivedIn compares the newest generation of the stream in the archive with
// the file: the same lines in the same order, each once, those that may leave
// byte for byte.
func (s *stream) archivedIn(archive []archivedSegment) error {
	generation := int64(-1)
	for _, a := range archive {
		generation = max(generation, a.header.Generation)
	}
	var lines [][]byte
	for _, a := range archive {
		if a.header.Generation == generation {
			lines = append(lines, a.lines...)
		}
	}
	if len(lines) != len(s.lines) {
		return fmt.Errorf("stream %s: generation %d has %d lines in the archive, the file %d", s.name, generation, len(lines), len(s.lines))
	}
	for i, line := range lines {
		record, err := transcript.Parse(line)
		if err != nil {
			return fmt.Errorf("stream %s: line %d of the archive is no record: %w", s.name, i+1, err)
		}
		if record.Type != "undersong-stub" && !bytes.Equal(line, s.lines[i]) {
			return fmt.Errorf("stream %s: line %d of the archive is not that of the file", s.name, i+1)
		}
		if original, err := transcript.Parse(s.lines[i]); err != nil || original.UUID != record.UUID {
			return fmt.Errorf("stream %s: line %d of the archive stands for record %q, want %q", s.name, i+1, record.UUID, original.UUID)
		}
	}
	return nil
}

// arrived is what has come of a session.
type arrived struct {
	session v1alpha1.Session
	archive map[string][]archivedSegment // by stream, in order
	told    map[string]int               // role and text: how often Letta has it
	order   []string                     // the keys of told
}

type archivedSegment struct {
	header segment.Header
	lines  [][]byte
}

var messageElement = regexp.MustCompile(`(?s)<message role="([a-z]+)">\n(.*?)\n</message>`)

func spoken(role, text string) string { return role + "\n" + text }

// arrived looks for the team's only session. It is an error while the controller
// has not caught up with what was uploaded.
func (w *world) arrived(id string) (arrived, error) {
	ctx := w.t.Context()
	sessions, err := w.team.Sessions(ctx)
	if err != nil {
		return arrived{}, err
	}
	if len(sessions) != 1 || sessions[0].Spec.SessionID != id {
		return arrived{}, fmt.Errorf("%d sessions are recorded, want one", len(sessions))
	}
	a := arrived{session: sessions[0], archive: map[string][]archivedSegment{}, told: map[string]int{}}
	if !stack.CaughtUp(&a.session) {
		return a, errors.New("the controller has not caught up")
	}
	bucket, err := w.team.Open()
	if err != nil {
		return a, err
	}
	if err := a.load(w, bucket); err != nil {
		return a, err
	}
	for _, c := range parts.Letta.Conversations() {
		if !strings.Contains(c.Summary, w.team.Namespace+"/") {
			continue
		}
		for _, m := range c.Messages {
			if m.Role != "user" {
				continue
			}
			for _, found := range messageElement.FindAllStringSubmatch(m.Text, -1) {
				key := spoken(found[1], html.UnescapeString(found[2]))
				a.told[key]++
				a.order = append(a.order, key)
			}
		}
	}
	return a, nil
}

// load reads the archive. The keys of one workstation's segments are in the
// order of their numbers.
func (a *arrived) load(w *world, bucket *store.Bucket) error {
	var keys []string
	for info, err := range bucket.List(w.t.Context(), segment.ArchivePrefix(a.session.Namespace, a.session.Spec.Owner, a.session.Name)) {
		if err != nil {
			return err
		}
		if strings.HasSuffix(info.Key, ".jsonl.zst") {
			keys = append(keys, info.Key)
		}
	}
	slices.Sort(keys)
	for _, key := range keys {
		header, lines, err := stack.Segment(w.t.Context(), bucket, key)
		if err != nil {
			return fmt.Errorf("read %s: %w", filepath.Base(key), err)
		}
		a.archive[header.Stream] = append(a.archive[header.Stream], archivedSegment{header, lines})
	}
	return nil
}

// holds reports whether a line is in the archive of the session's own stream.
func (a *arrived) holds(line []byte) bool {
	for _, s := range a.archive[segment.MainStream] {
		for _, l := range s.lines {
			if bytes.Equal(l, line) {
				return true
			}
		}
	}
	return false
}

// missing fails while Letta does not have all words.
func missing(words []said, told map[string]int) error {
	for _, s := range words {
		role, _, _ := strings.Cut(s.key, ":")
		if told[spoken(role, s.text)] == 0 {
			return fmt.Errorf("Letta does not have %s", s.key)
		}
	}
	return nil
}

// checkTold compares what Letta was told with the manifest: its words once each
// and in their order, and besides them only words that stood in the file once.
func (l *live) checkTold(t *testing.T, streams []stream, got arrived) {
	t.Helper()
	expected := map[string]bool{}
	var order []string
	for _, s := range streams[0].words {
		role, _, _ := strings.Cut(s.key, ":")
		key := spoken(role, s.text)
		expected[key] = true
		order = append(order, key)
		if n := got.told[key]; n != 1 {
			t.Errorf("Letta has %s %d times", s.key, n)
		}
	}
	superseded := l.superseded(got.archive[segment.MainStream])
	var told []string
	for _, key := range got.order {
		switch {
		case expected[key]:
			told = append(told, key)
		case superseded[key] && got.told[key] == 1, strings.HasPrefix(key, string(transcript.Tool)+"\n"):
		default:
			t.Errorf("Letta has %d times what is not in the manifest: %q", got.told[key], key)
		}
	}
	if !slices.Equal(told, order) {
		t.Error("Letta has the words in another order than the file")
	}
}

// superseded returns the words of records that were in the file once, from the
// archive: where else they are gone.
func (l *live) superseded(archive []archivedSegment) map[string]bool {
	words := map[string]bool{}
	for _, a := range archive {
		for _, line := range a.lines {
			record, err := transcript.Parse(line)
			if err != nil {
				continue
			}
			for _, e := range record.Entries(transcript.MainStream, l.SessionID) {
				if slices.Contains(l.Superseded, string(e.Speaker)+":"+e.ID) {
					words[spoken(string(e.Speaker), e.Text)] = true
				}
			}
		}
	}
	return words
}
