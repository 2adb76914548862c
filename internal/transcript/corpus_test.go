package transcript_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/undersong-dev/undersong/internal/transcript"
)

const corpus = "testdata/corpus"

// expectation is what a correct reader finds in a file of the corpus; the
// corpus README describes the keys.
type expectation struct {
	File          string            `json:"file"`
	FileKind      string            `json:"file_kind"`
	SessionID     string            `json:"session_id"`
	Lines         int               `json:"complete_lines"`
	Consumed      int64             `json:"consumed_bytes"`
	Tail          int64             `json:"tail_bytes"`
	Conversation  []string          `json:"conversation"`
	Repeats       int               `json:"repeats_dropped"`
	Bad           []int             `json:"bad_lines"`
	Messages      int               `json:"assistant_messages"`
	OutputTokens  int64             `json:"output_tokens_once_per_message"`
	Title         string            `json:"title"`
	ForkedFrom    string            `json:"forked_from"`
	FirstPrompt   string            `json:"first_prompt"`
	Texts         map[string]string `json:"texts"`
	NotHuman      []string          `json:"not_human"`
	Foreign       []string          `json:"foreign"`
	Sidechain     []string          `json:"sidechain"`
	Summaries     []string          `json:"summaries"`
	MustNotHold   []string          `json:"must_not_contain"`
	Redact        []string          `json:"redact"`
	TitleIsAbsent bool              `json:"title_absent"`
	Bytes         int64             `json:"bytes"`
	Abandoned     []string          `json:"abandoned"`
	Inherited     []string          `json:"inherited"`
	New           []string          `json:"new"`
	Calls         []string          `json:"tool_calls"`
	Results       []string          `json:"tool_results"`
	Thinking      []string          `json:"thinking"`
	Conflicts     []string          `json:"conflicts"`
	Optional      []string          `json:"optional"`
	Unknown       []string          `json:"unknown_types"`
	ContinuedIn   string            `json:"continued_in"`
	AgentID       string            `json:"agent_id"`
	ForeignID     string            `json:"foreign_session"`
	Supersedes    []string          `json:"supersedes"`
	Predecessor   string            `json:"predecessor"`
	StopInput     string            `json:"stop_input_last_assistant_message"`
	Live          any               `json:"sdk_live"`  // for information: another question
	LiveTitle     any               `json:"sdk_title"` // for information
}

func expectations(t *testing.T) []expectation {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(corpus, "expect", "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 49 {
		t.Fatalf("%d expectations, want at least 49: the corpus is not whole", len(files))
	}
	var all []expectation
	for _, f := range files {
		raw, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		var e expectation
		d := json.NewDecoder(bytes.NewReader(raw))
		d.DisallowUnknownFields() // what is not compared is no expectation
		if err := d.Decode(&e); err != nil {
			t.Fatalf("%s: %v", f, err)
		}
		all = append(all, e)
	}
	return all
}

// reading is everything a file gives.
type reading struct {
	lines        int
	bad          []int // lines, from 1
	consumed     int64
	conversation []string // role:uuid, each uuid once
	repeats      int
	texts        map[string]string
	firstPrompt  string
	speakers     map[string]transcript.Speaker
	state        transcript.State
	usage        transcript.Usage
	rendered     string
	memory       string // rendered by the default policy
	agents       map[string]bool
	foreign      map[string]bool // sessions
	unknown      []string        // types
	conflicts    []string
	calls        []string // uuids
	results      []string
	thinking     []string
	tree         transcript.Tree
}

// read reads a file as its consumers do. Of records with one uuid the first
// stands. A nil filter keeps each line as it is.
func read(t *testing.T, raw []byte, kind transcript.StreamKind, session string, filter func([]byte) []byte) reading {
	t.Helper()
	got := reading{texts: map[string]string{}, speakers: map[string]transcript.Speaker{}, agents: map[string]bool{}, foreign: map[string]bool{}}
	var (
		rendered, memory strings.Builder
		seen             transcript.Known
		tools, all       transcript.Tools
	)
	lines := transcript.NewLines(bytes.NewReader(raw), 0)
	for lines.Next() {
		got.lines++
		line := lines.Line().Raw
		if filter != nil {
			line = filter(line)
		}
		rec, err := transcript.Parse(line)
		if errors.Is(err, transcript.ErrBlank) {
			continue
		}
		if err != nil {
			got.bad = append(got.bad, got.lines)
			continue
		}
		if rec.Type != "" && !transcript.KnownType(rec.Type) {
			got.unknown = append(got.unknown, rec.Type)
		}
		switch seen.Add(rec) {
		case transcript.Conflicting:
			got.conflicts = append(got.conflicts, rec.UUID)
			fallthrough
		case transcript.Repeated, transcript.Disputed:
			got.repeats++
			continue
		case transcript.New:
		}
		if rec.AgentID != "" {
			got.agents[rec.AgentID] = true
		}
		if rec.SessionID != "" && rec.SessionID != session {
			got.foreign[rec.SessionID] = true
		}
		got.tree.Fold(rec, session)
		transcript.Render(&memory, rec.Memory(kind, session, transcript.Policy{}, &tools))
		got.acts(rec, rec.Memory(kind, session, transcript.Policy{ToolResults: transcript.AllResults, Thinking: true}, &all))
		got.state.Fold(rec, session)
		got.usage.Fold(rec, kind, session)
		entries := rec.Entries(kind, session)
		transcript.Render(&rendered, entries)
		for _, e := range entries {
			got.conversation = append(got.conversation, string(e.Speaker)+":"+e.ID)
			got.texts[e.ID] = e.Text
			got.speakers[e.ID] = e.Speaker
			if got.firstPrompt == "" && e.Speaker == transcript.User {
				got.firstPrompt = e.Text
			}
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	got.consumed = lines.Offset()
	got.rendered, got.memory = rendered.String(), memory.String()
	return got
}

// acts notes what memory holds besides words.
func (r *reading) acts(rec transcript.Record, memory []transcript.Entry) {
	for _, e := range memory {
		switch {
		case e.Speaker == transcript.Thinking:
			r.thinking = append(r.thinking, e.ID)
		case e.Speaker == transcript.Tool && rec.Type == "assistant":
			r.calls = append(r.calls, e.ID)
		case e.Speaker == transcript.Tool:
			r.results = append(r.results, e.ID)
		}
	}
}

func kindOf(e expectation) transcript.StreamKind {
	if e.FileKind == "subagent" {
		return transcript.AgentStream
	}
	return transcript.MainStream
}

func TestCorpus(t *testing.T) {
	for _, want := range expectations(t) {
		t.Run(want.File, func(t *testing.T) {
			raw, err := os.ReadFile(filepath.Join(corpus, want.File))
			if err != nil {
				t.Fatal(err)
			}
			got := read(t, raw, kindOf(want), want.SessionID, nil)
			want.compare(t, got, int64(len(raw)))
		})
	}
}

// compare compares what a file gave with what it should, key by key.
func (e expectation) compare(t *testing.T, got reading, size int64) {
	t.Helper()
	type values struct {
		Lines, Repeats, Messages     int
		Bad                          []int
		Consumed, Tail, OutputTokens int64
		Conversation                 []string
		Title                        string
	}
	wantTitle := e.Title
	if e.Title == "" && !e.TitleIsAbsent {
		wantTitle = got.state.Title // not said: any
	}
	want := values{
		Lines: e.Lines, Repeats: e.Repeats, Messages: e.Messages, Bad: e.Bad, Consumed: e.Consumed, Tail: e.Tail,
		OutputTokens: e.OutputTokens, Conversation: e.Conversation, Title: wantTitle,
	}
	have := values{
		Lines: got.lines, Repeats: got.repeats, Messages: got.usage.Messages(), Bad: got.bad, Consumed: got.consumed,
		Tail: size - got.consumed, OutputTokens: got.usage.OutputTokens(), Conversation: got.conversation, Title: got.state.Title,
	}
	if diff := cmp.Diff(want, have, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
	e.compareHints(t, got, size)
	if e.ForkedFrom != got.state.ForkedFrom {
		t.Errorf("forked from %q, want %q", got.state.ForkedFrom, e.ForkedFrom)
	}
	if e.FirstPrompt != "" && e.FirstPrompt != got.firstPrompt {
		t.Errorf("first prompt %q, want %q", got.firstPrompt, e.FirstPrompt)
	}
	for uuid, text := range e.Texts {
		if diff := cmp.Diff(text, got.texts[uuid]); diff != "" {
			t.Errorf("words of %s: -want, +got:\n%s", uuid, diff)
		}
	}
	for name, uuids := range map[string][]string{"not human": e.NotHuman, "foreign": e.Foreign, "sidechain": e.Sidechain, "summary": e.Summaries} {
		for _, uuid := range uuids {
			if speaker, ok := got.speakers[uuid]; ok && (name != "not human" || speaker == transcript.User) {
				t.Errorf("%s is %s, yet its words are the %s's", uuid, name, speaker)
			}
		}
	}
	for _, s := range e.MustNotHold {
		if strings.Contains(got.rendered, s) || strings.Contains(got.memory, s) {
			t.Errorf("the words hold %q", s)
		}
	}
}

// compareHints compares what is not the talk itself.
func (e expectation) compareHints(t *testing.T, got reading, size int64) {
	t.Helper()
	type values struct {
		Bytes                                                   int64
		Abandoned, Conflicts, Unknown, Calls, Results, Thinking []string
		ContinuedIn                                             string
	}
	want := values{e.Bytes, e.Abandoned, e.Conflicts, e.Unknown, e.Calls, e.Results, e.Thinking, e.ContinuedIn}
	if d, ok := deviations[e.File]; ok {
		want.Results = without(want.Results, d.emptyResults)
		want.Thinking = without(want.Thinking, d.emptyThinking)
	}
	have := values{size, slices.Collect(got.tree.Abandoned()), got.conflicts, got.unknown, got.calls, got.results, got.thinking, got.state.ContinuedIn}
	if diff := cmp.Diff(want, have, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
	if e.AgentID != "" && (len(got.agents) != 1 || !got.agents[e.AgentID]) {
		t.Errorf("agents %v, want %s", got.agents, e.AgentID)
	}
	if e.ForeignID != "" && !got.foreign[e.ForeignID] {
		t.Errorf("sessions besides ours %v, want %s", got.foreign, e.ForeignID)
	}
	for _, record := range e.Optional {
		if slices.Contains(got.conversation, record) {
			t.Errorf("%s is said: DEVIATIONS.md says that it is not", record)
		}
	}
	for _, record := range e.Supersedes {
		if slices.Contains(got.conversation, record) {
			t.Errorf("%s is said, yet it was superseded", record)
		}
	}
	if e.Predecessor == e.SessionID && e.Predecessor != "" || e.StopInput != "" && strings.Contains(got.memory, e.StopInput) {
		t.Error("a hint of a hook, or of another file, is taken for a record")
	}
}

// deviation is where we give less than the corpus names, on purpose: see
// DEVIATIONS.md.
type deviation struct{ emptyResults, emptyThinking []string }

var deviations = map[string]deviation{
	"p03_split_assistant_message.jsonl": {emptyThinking: []string{"c0000003-0000-4000-8000-000000000002"}},
	"p06_tool_result_shapes.jsonl": {emptyResults: []string{
		"c0000006-0000-4000-8000-000000000009", "c0000006-0000-4000-8000-00000000000b", "c0000006-0000-4000-8000-00000000000d",
	}},
	"p34_synthetic_and_blocks.jsonl": {
		emptyResults: []string{"c0000022-0000-4000-8000-000000000009"}, emptyThinking: []string{"c0000022-0000-4000-8000-000000000007"},
	},
}

func without(all, some []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(s string) bool { return slices.Contains(some, s) })
}

// TestCorpusInherited tells what a fork took over from what is new in it.
func TestCorpusInherited(t *testing.T) {
	compared := 0
	for _, want := range expectations(t) {
		if len(want.Inherited)+len(want.New) == 0 {
			continue
		}
		compared++
		t.Run(want.File, func(t *testing.T) {
			var known transcript.Known
			if parent := filepath.Join(corpus, filepath.Dir(want.File), "parent.jsonl"); parent != filepath.Join(corpus, "parent.jsonl") {
				each(t, parent, func(r transcript.Record) { known.Add(r) })
			}
			var inherited, fresh []string
			each(t, filepath.Join(corpus, want.File), func(r transcript.Record) {
				for _, e := range r.Entries(transcript.MainStream, want.SessionID) {
					if said := string(e.Speaker) + ":" + e.ID; known.Inherited(r) {
						inherited = append(inherited, said)
					} else {
						fresh = append(fresh, said)
					}
				}
			})
			if diff := cmp.Diff([][]string{want.Inherited, want.New}, [][]string{inherited, fresh}); diff != "" {
				t.Errorf("-want, +got:\n%s", diff)
			}
		})
	}
	if compared != 2 {
		t.Errorf("%d forks were compared, want 2", compared)
	}
}

// each calls f for each record of a file.
func each(t *testing.T, path string, f func(transcript.Record)) {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(raw) {
		if r, err := transcript.Parse(bytes.TrimSuffix(line, []byte("\n"))); err == nil {
			f(r)
		}
	}
}

// TestCorpusState reads what the corpus describes in words only.
func TestCorpusState(t *testing.T) {
	cases := map[string]struct {
		reason, file, session string
		want                  transcript.State
	}{
		"EveryType": {
			"the last of each state record counts, whatever stands between", "p13_every_metadata_type.jsonl", "5e55000d-0000-4000-8000-000000000001",
			transcript.State{
				Title: "gmt-pr", TitleSource: transcript.CustomTitle, Tag: "release", PullRequest: "https://example.test/demo/lantern/pull/7",
				Branch: "main", Cwd: "/srv/demo/lantern", Relocated: "/srv/demo/lantern", Mode: "normal", PermissionMode: "plan",
				LastPrompt: "Open a pull request for the GMT work.",
			},
		},
		"Relocated": {
			"a moved session tells its new folder", "p25_relocated/2_after/-srv-demo-lantern.jsonl", "5e550019-0000-4000-8000-000000000001",
			transcript.State{Branch: "main", Cwd: "/srv/demo/lantern", Relocated: "/srv/demo/lantern"},
		},
		"DetachedHead": {
			"branch and folder are those of the last record", "p39_mixed_versions.jsonl", "5e550027-0000-4000-8000-000000000001",
			transcript.State{Branch: "HEAD", Cwd: "/srv/demo/lantern/web", Mode: "normal"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			raw, err := os.ReadFile(filepath.Join(corpus, tc.file))
			if err != nil {
				t.Fatal(err)
			}
			got := read(t, raw, transcript.MainStream, tc.session, nil).state
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\n-want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// TestCorpusDeltas reads the second state of a file from where the first ended.
func TestCorpusDeltas(t *testing.T) {
	cases := map[string]struct {
		reason, before, after, session string
		grew                           bool
		conversation                   []string // of the delta, if the file grew
	}{
		"TornTail": {
			"the line that was torn comes whole, once", "p26_partial_tail.t0.jsonl", "p26_partial_tail.t1.jsonl", "5e55001a-0000-4000-8000-000000000001", true,
			[]string{"user:c000001a-0000-4000-8000-000000000003", "assistant:c000001a-0000-4000-8000-000000000004"},
		},
		"StopBeforeFlush": {
			"the answer comes later and once", "p41_stop_before_flush.t0.jsonl", "p41_stop_before_flush.t1.jsonl", "5e550029-0000-4000-8000-000000000001", true,
			[]string{"assistant:c0000029-0000-4000-8000-000000000004"},
		},
		"Relocated": {
			"a renamed file begins with the bytes that were read", "p25_relocated/1_before/-srv-demo-lantern--claude-worktrees-gmt.jsonl",
			"p25_relocated/2_after/-srv-demo-lantern.jsonl", "5e550019-0000-4000-8000-000000000001", true,
			[]string{"user:c0000019-0000-4000-8000-000000000003", "assistant:c0000019-0000-4000-8000-000000000004"},
		},
		"StubLeftBehind": {
			"a file shorter than what was read is not that file", "p25_relocated/2_after/-srv-demo-lantern.jsonl",
			"p25_relocated/3_stub_left_behind/-srv-demo-lantern--claude-worktrees-gmt.jsonl", "5e550019-0000-4000-8000-000000000001", false, nil,
		},
		"LineRemoved": {
			"a file from which a record was cut is another, although it is longer", "p36_line_removed.t0.jsonl", "p36_line_removed.t1.jsonl",
			"5e550024-0000-4000-8000-000000000001", false, nil,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			before, err := os.ReadFile(filepath.Join(corpus, tc.before))
			if err != nil {
				t.Fatal(err)
			}
			after, err := os.ReadFile(filepath.Join(corpus, tc.after))
			if err != nil {
				t.Fatal(err)
			}
			first := read(t, before, transcript.MainStream, tc.session, nil)
			sig, err := transcript.Sign(bytes.NewReader(before), first.consumed)
			if err != nil {
				t.Fatal(err)
			}
			grew, err := sig.Matches(bytes.NewReader(after))
			if err != nil {
				t.Fatal(err)
			}
			if grew != tc.grew {
				t.Fatalf("%s: Matches = %v, want %v", tc.reason, grew, tc.grew)
			}
			if !grew {
				return
			}
			delta := read(t, after[first.consumed:], transcript.MainStream, tc.session, nil)
			if diff := cmp.Diff(tc.conversation, delta.conversation); diff != "" {
				t.Errorf("%s\n-want, +got:\n%s", tc.reason, diff)
			}
			whole := read(t, after, transcript.MainStream, tc.session, nil)
			if diff := cmp.Diff(whole.conversation, append(first.conversation, delta.conversation...)); diff != "" {
				t.Errorf("both parts are not the whole: -whole, +parts:\n%s", diff)
			}
		})
	}
}

// python returns the interpreter, or skips the test where there is none.
func python(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("NOT TESTED: python3 is not installed, and the generators of the corpus need it")
	}
	return path
}

// TestGeneratedLarge compares a large generated file with the manifest that its
// generator kept.
func TestGeneratedLarge(t *testing.T) {
	dir := t.TempDir()
	file, manifest := filepath.Join(dir, "big.jsonl"), filepath.Join(dir, "big.json")
	run(t, python(t), filepath.Join(corpus, "gen", "gen_large.py"), "--size", "8M", "--max-line", "2M", "--bad", "5", "--replay", "--rewind",
		"--torn", "--crlf", "--out", file, "--manifest", manifest)
	var want struct {
		SessionID    string `json:"session_id"`
		Lines        int    `json:"lines"`
		Bad          int    `json:"bad_lines"`
		Consumed     int64  `json:"consumed_bytes"`
		Repeats      int    `json:"repeats_dropped"`
		Conversation string `json:"conversation_sha256"`
		Title        string `json:"title"`
		Messages     int    `json:"assistant_messages"`
		OutputTokens int64  `json:"output_tokens_once_per_message"`
		Abandoned    int    `json:"abandoned"` // those with words
	}
	unmarshal(t, manifest, &want)
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	r := read(t, raw, transcript.MainStream, want.SessionID, nil)
	conversation := sha256.Sum256([]byte(strings.Join(r.conversation, "\n") + "\n"))
	got := want
	got.Lines, got.Bad, got.Consumed, got.Repeats, got.Title = r.lines, len(r.bad), r.consumed, r.repeats, r.state.Title
	got.Conversation, got.Messages, got.OutputTokens = hex.EncodeToString(conversation[:]), r.usage.Messages(), r.usage.OutputTokens()
	got.Abandoned = 0
	for id := range r.tree.Abandoned() {
		if r.speakers[id] != "" {
			got.Abandoned++
		}
	}
	if want.Abandoned == 0 {
		t.Error("nobody went back: nothing was compared")
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-manifest, +got:\n%s", diff)
	}
}

// TestGeneratedLive follows a session while it is written with torn writes, a
// record cut out, a truncation, a move, agents and a crash at its end. Each pass
// goes on from the last, or starts anew where the file is no longer the one
// that was read.
func TestGeneratedLive(t *testing.T) {
	dir := t.TempDir()
	projects, manifest := filepath.Join(dir, "projects"), filepath.Join(dir, "m.json")
	cmd := exec.CommandContext(t.Context(), python(t), filepath.Join(corpus, "gen", "gen_live.py"), "--projects", projects, "--manifest", manifest,
		"--turns", "30", "--pause", "0.004", "--relocate", "--cut", "--truncate", "--foreign", "--crash", "--subagents", "3")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()

	const session = "11fe0000-0000-4000-8000-000000000001"
	main := follower{kind: transcript.MainStream, session: session}
	for ended := false; !ended; {
		select {
		case err := <-done:
			if err != nil {
				t.Fatalf("gen_live.py: %v\n%s", err, out.Bytes())
			}
			ended = true
		default:
		}
		files, err := filepath.Glob(filepath.Join(projects, "*", session+".jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		if len(files) > 0 {
			main.pass(t, files[0])
		}
	}
	var want struct {
		SessionID    string   `json:"session_id"`
		Path         string   `json:"path"`
		Consumed     int64    `json:"consumed_bytes"`
		Title        string   `json:"title"`
		Conversation []string `json:"conversation"`
		Agents       []struct {
			File         string   `json:"file"`
			Conversation []string `json:"conversation"`
		} `json:"agents"`
	}
	unmarshal(t, manifest, &want)
	if len(want.Conversation) == 0 || len(want.Agents) == 0 || want.SessionID != session {
		t.Fatal("the manifest is not the one expected: nothing was compared")
	}
	if diff := cmp.Diff(want.Conversation, main.conversation); diff != "" {
		t.Errorf("after %d passes and %d generations: -manifest, +got:\n%s", main.passes, main.generations, diff)
	}
	if main.offset != want.Consumed || main.state.Title != want.Title {
		t.Errorf("offset %d, title %q, want %d, %q", main.offset, main.state.Title, want.Consumed, want.Title)
	}
	if main.passes < 10 || main.generations == 0 {
		t.Errorf("%d passes, %d generations: the file was not followed while it changed", main.passes, main.generations)
	}
	for _, a := range want.Agents {
		f := follower{kind: transcript.AgentStream, session: session}
		f.pass(t, filepath.Join(projects, a.File))
		if diff := cmp.Diff(a.Conversation, f.conversation); diff != "" {
			t.Errorf("%s: -manifest, +got:\n%s", a.File, diff)
		}
	}
}

// follower reads a growing file as the daemon does.
type follower struct {
	kind                transcript.StreamKind
	session             string
	sig                 transcript.Signature
	offset              int64
	passes, generations int
	conversation        []string
	seen                map[string]bool
	state               transcript.State
}

func (f *follower) pass(t *testing.T, path string) {
	t.Helper()
	file, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return // being renamed
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }() // only read
	signer, same, err := f.sig.Resume(file)
	if err != nil {
		t.Fatal(err)
	}
	if !same || f.seen == nil {
		if !same {
			f.generations++
		}
		f.offset, f.conversation, f.seen, f.state = 0, nil, map[string]bool{}, transcript.State{}
		signer = new(transcript.Signer)
	}
	f.passes++
	lines := transcript.NewSignedLines(io.NewSectionReader(file, f.offset, 1<<40), signer)
	for lines.Next() {
		rec, err := transcript.Parse(lines.Line().Raw)
		if err != nil || rec.UUID != "" && f.seen[rec.UUID] {
			continue
		}
		f.seen[rec.UUID] = true
		f.state.Fold(rec, f.session)
		for _, e := range rec.Entries(f.kind, f.session) {
			f.conversation = append(f.conversation, string(e.Speaker)+":"+e.ID)
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	f.offset = lines.Offset()
	if f.sig, err = lines.Signature(f.offset); err != nil {
		t.Fatal(err)
	}
}

func run(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", args, err, out)
	}
}

func unmarshal(t *testing.T, file string, to any) {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, to); err != nil {
		t.Fatal(err)
	}
}
