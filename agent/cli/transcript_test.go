package cli

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// corpus is the folder of the synthetic transcripts.
func corpus(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join("..", "..", "internal", "transcript", "testdata", "corpus"))
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// notCompared are keys of the corpus that are no key of inspect: information,
// what another file says, and what the texts must not hold, which is looked for.
var notCompared = map[string]bool{
	"sdk_live": true, "sdk_title": true, "predecessor": true, "stop_input_last_assistant_message": true,
	"must_not_contain": true, "redact": true, "optional": true, "supersedes": true,
}

// inspectJSON runs transcript inspect --json and returns what it prints for one
// file.
func (m *machine) inspectJSON(t *testing.T, args ...string) map[string]any {
	t.Helper()
	code, out, errs := m.run(append([]string{"transcript", "inspect", "--json"}, args...)...)
	if code != 0 || errs != "" {
		t.Fatalf("exit %d: %s", code, errs)
	}
	if strings.Count(out, "\n") != 1 {
		t.Fatalf("printed %d lines, want one", strings.Count(out, "\n"))
	}
	var got map[string]any
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	return got
}

func TestInspectSaysWhatTheCorpusExpects(t *testing.T) {
	dir := corpus(t)
	files, err := filepath.Glob(filepath.Join(dir, "expect", "*.json"))
	if err != nil || len(files) < 49 {
		t.Fatalf("%d expectations, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			m := newMachine(t)
			var want map[string]any
			if err := json.Unmarshal([]byte(get(t, file)), &want); err != nil {
				t.Fatal(err)
			}
			t.Chdir(dir)
			name := want["file"].(string)
			args := []string{name}
			if parent := filepath.Join(filepath.Dir(name), "parent.jsonl"); filepath.Base(name) == "child.jsonl" {
				args = append(args, "--known", parent)
			}
			got := m.inspectJSON(t, args...)
			said, err := json.Marshal(got["texts"])
			if err != nil {
				t.Fatal(err)
			}
			for key, value := range want {
				switch {
				case key == "texts":
					for id, text := range value.(map[string]any) {
						if diff := cmp.Diff(text, got["texts"].(map[string]any)[id]); diff != "" {
							t.Errorf("words of %s (-want +got):\n%s", id, diff)
						}
					}
				case key == "must_not_contain" || key == "redact":
					for _, text := range value.([]any) {
						if strings.Contains(string(said), text.(string)) {
							t.Errorf("the words hold %q", text)
						}
					}
				case !notCompared[key]:
					if diff := cmp.Diff(value, got[key]); diff != "" {
						t.Errorf("%s (-want +got):\n%s", key, diff)
					}
				}
			}
			if n := len(got["texts"].(map[string]any)); n != len(got["conversation"].([]any)) {
				t.Errorf("%d texts, %d records with words", n, len(got["conversation"].([]any)))
			}
			if _, err := os.Stat(filepath.Join(m.dir, "state")); err == nil {
				t.Error("the command made a state directory")
			}
		})
	}
}

func TestInspectReadsFoldersAsPeopleKeepThem(t *testing.T) {
	m := newMachine(t)
	dir := filepath.Join(corpus(t), "p21_subagents")
	code, out, errs := m.run("transcript", "inspect", dir)
	if code != 0 || errs != "" {
		t.Fatalf("exit %d: %s", code, errs)
	}
	golden(t, "inspect-folder", out)
	_, out, _ = m.run("transcript", "inspect", "--json", dir)
	if n := strings.Count(out, "\n"); n != 2 {
		t.Errorf("%d objects for a session and its subagent: the journal beside it is no transcript", n)
	}
}

func TestInspectForPeople(t *testing.T) {
	for name, file := range map[string]string{
		"inspect-secrets": "p40_secrets.jsonl", "inspect-bad": "p27_corrupt_lines.jsonl", "inspect-types": "p13_every_metadata_type.jsonl",
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			put(t, filepath.Join(m.dir, "corpus", file), get(t, filepath.Join(corpus(t), file)))
			code, out, errs := m.run("transcript", "inspect", filepath.Join(m.dir, "corpus"))
			if code != 0 || errs != "" {
				t.Fatalf("exit %d: %s", code, errs)
			}
			golden(t, name, out)
		})
	}
}

// TestInspectSaysWhatIsWithheld: a line that is too long for a scan is counted,
// named, and no bad line; what stands around it is read.
func TestInspectSaysWhatIsWithheld(t *testing.T) {
	m := newMachine(t)
	file := filepath.Join(m.dir, "talk.jsonl")
	before := `{"type":"user","uuid":"a","message":{"content":"before"}}` + "\n"
	after := strings.NewReplacer(`"a"`, `"b"`, "before", "after").Replace(before)
	put(t, file, before+`{"type":"user","uuid":"long","message":{"content":"`+strings.Repeat("x", 32<<20)+"\"}}\n"+after)
	got := m.inspectJSON(t, file)
	want := map[string]any{
		"withheld_lines": []any{2.0}, "bad_lines": []any{}, "complete_lines": 3.0, "stubs": map[string]any{}, "texts": map[string]any{"a": "before", "b": "after"},
		"records": map[string]any{"user": 2.0, "too-long": 1.0},
	}
	for key, value := range want {
		if diff := cmp.Diff(value, got[key]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", key, diff)
		}
	}
	_, table, _ := m.run("transcript", "inspect", file)
	for _, text := range []string{"withheld\n", "lines of more than 32 MiB, which cannot be scanned and are withheld: 2\n"} {
		if !strings.Contains(table, text) {
			t.Errorf("the table does not say %q:\n%s", text, table)
		}
	}
}

// TestStateInAFolder: a stream that lies in two files of a folder is read on in
// the second, and the list of its records holds both parts.
func TestStateInAFolder(t *testing.T) {
	m := newMachine(t)
	dir, state := filepath.Join(m.dir, "talks"), filepath.Join(m.dir, "cursor.json")
	line := func(id string) string {
		return `{"type":"user","uuid":"` + id + `","sessionId":"5e550001-0000-4000-8000-00000000000a","message":{"content":"` + id + `"}}` + "\n"
	}
	put(t, filepath.Join(dir, "1", "x.jsonl"), line("a")+line("b"))
	put(t, filepath.Join(dir, "2", "x.jsonl"), line("a")+line("b")+line("c"))
	for range 2 {
		if code, _, errs := m.run("transcript", "inspect", "--state", state, dir); code != 0 {
			t.Fatal(errs)
		}
	}
	put(t, filepath.Join(dir, "2", "x.jsonl"), line("c")+line("d"))
	got := m.inspectJSON(t, "--state", state, filepath.Join(dir, "2", "x.jsonl"))
	for key, want := range map[string][]any{"adds": {"user:d"}, "supersedes": {"user:a", "user:b"}} {
		if diff := cmp.Diff(want, got[key]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", key, diff)
		}
	}
}

// delta is what the second of two calls says.
type delta struct {
	Conversation, Adds, Supersedes []string
	Repeats                        int `json:"repeats_dropped"`
	Lines                          int `json:"complete_lines"`
	Generation                     int
	Title                          string
	LeftBehind                     bool `json:"left_behind"`
}

func TestInspectReadsOnFromItsState(t *testing.T) {
	dir := corpus(t)
	read := func(name string) []byte { return []byte(get(t, filepath.Join(dir, name))) }
	replay := read("p17_preserved_and_replayed.jsonl")
	cut := bytes.Index(replay, []byte(`"c0000011-0000-4000-8000-000000000006"`))
	cut = bytes.LastIndexByte(replay[:cut], '\n') + 1
	ids := func(prefix string, names ...string) []string {
		all := []string{}
		for _, name := range names {
			role, id, _ := strings.Cut(name, ":")
			all = append(all, role+":"+prefix+"-0000-4000-8000-00000000000"+id)
		}
		return all
	}
	type test struct {
		reason        string
		before, after []byte
		want          delta
	}
	for name, tt := range map[string]test{
		"TornTail": {"the torn line comes whole and once", read("p26_partial_tail.t0.jsonl"), read("p26_partial_tail.t1.jsonl"), delta{
			Conversation: ids("c000001a", "user:3", "assistant:4"), Adds: ids("c000001a", "user:3", "assistant:4"), Supersedes: []string{},
		}},
		"Nothing": {"an unchanged file says nothing new", read("p01_minimal.jsonl"), read("p01_minimal.jsonl"), delta{
			Conversation: []string{}, Adds: []string{}, Supersedes: []string{}, Title: "Tide gauge feeds",
		}},
		"LaterRepeats": {"rows that are appended again are known from the delta before", replay[:cut], replay, delta{
			Conversation: ids("c0000011", "user:8", "assistant:9"), Adds: ids("c0000011", "user:8", "assistant:9"), Supersedes: []string{}, Repeats: 4,
		}},
		"RecordCut": {"a file that lost a record is read anew, and says what is gone", read("p36_line_removed.t0.jsonl"), read("p36_line_removed.t1.jsonl"), delta{
			Conversation: ids("c0000024", "user:1", "assistant:3", "user:4", "assistant:5"), Adds: ids("c0000024", "assistant:3", "user:4", "assistant:5"),
			Supersedes: ids("c0000024", "assistant:2"), Generation: 1,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			file, state := filepath.Join(m.dir, "talk.jsonl"), filepath.Join(m.dir, "cursor.json")
			put(t, file, string(tt.before))
			first := m.inspectJSON(t, "--state", state, file)
			put(t, file, string(tt.after))
			second := m.inspectJSON(t, "--state", state, file)
			var got delta
			text, err := json.Marshal(second)
			if err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(text, &got); err != nil {
				t.Fatal(err)
			}
			if tt.want.Generation == 0 {
				if second["from_offset"] != first["consumed_bytes"] {
					t.Errorf("read on from %v, want %v", second["from_offset"], first["consumed_bytes"])
				}
			}
			whole := m.inspectJSON(t, file)
			for _, key := range []string{"bytes", "consumed_bytes", "tail_bytes", "complete_lines", "title"} {
				if diff := cmp.Diff(whole[key], second[key]); diff != "" {
					t.Errorf("%s is not that of the file (-want +got):\n%s", key, diff)
				}
			}
			got.Lines, tt.want.Title = 0, got.Title
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tt.reason, diff)
			}
		})
	}
}

// TestAStubLeftBehindIsNotTheSession: Claude Code moves a file away and leaves a
// short one with the same session in its place.
func TestAStubLeftBehindIsNotTheSession(t *testing.T) {
	m := newMachine(t)
	dir := filepath.Join(corpus(t), "p25_relocated")
	state := filepath.Join(m.dir, "cursor.json")
	m.inspectJSON(t, "--state", state, filepath.Join(dir, "1_before", "-srv-demo-lantern--claude-worktrees-gmt.jsonl"))
	moved := m.inspectJSON(t, "--state", state, filepath.Join(dir, "2_after", "-srv-demo-lantern.jsonl"))
	if n := len(moved["adds"].([]any)); n != 2 {
		t.Errorf("the moved file adds %d records, want 2", n)
	}
	before := get(t, state)
	stub := m.inspectJSON(t, "--state", state, filepath.Join(dir, "3_stub_left_behind", "-srv-demo-lantern--claude-worktrees-gmt.jsonl"))
	if stub["left_behind"] != true {
		t.Errorf("the stub is taken for the session: %v", stub)
	}
	if diff := cmp.Diff(before, get(t, state)); diff != "" {
		t.Errorf("the stub moved the cursor (-want +got):\n%s", diff)
	}
}

func TestTranscriptErrors(t *testing.T) {
	m := newMachine(t)
	put(t, filepath.Join(m.dir, "cursor.json"), `{"version":7}`)
	put(t, filepath.Join(m.dir, "a.jsonl"), "{}\n")
	for name, args := range map[string][]string{
		"NoFile":       {"inspect", filepath.Join(m.dir, "none.jsonl")},
		"NoKnown":      {"inspect", "--known", filepath.Join(m.dir, "none.jsonl"), filepath.Join(m.dir, "a.jsonl")},
		"OtherState":   {"inspect", "--state", filepath.Join(m.dir, "cursor.json"), filepath.Join(m.dir, "a.jsonl")},
		"RenderFolder": {"render", m.dir},
		"Unknown":      {"nonsense"},
	} {
		t.Run(name, func(t *testing.T) {
			code, out, errs := m.run(append([]string{"transcript"}, args...)...)
			if code != 1 || out != "" || !strings.HasPrefix(errs, "undersong: ") || strings.Count(errs, "\n") != 1 {
				t.Errorf("exit %d, printed %q, %q", code, out, errs)
			}
		})
	}
	if code, out, _ := m.run("transcript", "inspect", t.TempDir()); code != 0 || out != "There is no transcript here.\n" {
		t.Errorf("an empty folder: exit %d, printed %q", code, out)
	}
}

func TestRender(t *testing.T) {
	for name, file := range map[string]string{"render-secrets": "p40_secrets.jsonl", "render-reminders": "p35_reminders_in_prompts.jsonl"} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			code, out, errs := m.run("transcript", "render", filepath.Join(corpus(t), file))
			if code != 0 || errs != "" {
				t.Fatalf("exit %d: %s", code, errs)
			}
			golden(t, name, out)
		})
	}
}

// TestRenderReadsOn renders a file in two parts, cut at each line end, and
// compares with the whole.
func TestRenderReadsOn(t *testing.T) {
	for _, name := range []string{"p06_tool_result_shapes.jsonl", "p17_preserved_and_replayed.jsonl", "p09_queued_prompts.jsonl"} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			data := get(t, filepath.Join(corpus(t), name))
			file := filepath.Join(m.dir, "talk.jsonl")
			put(t, file, data)
			_, want, _ := m.run("transcript", "render", file)
			for at := range data {
				if data[at] != '\n' {
					continue
				}
				state := filepath.Join(t.TempDir(), "cursor.json")
				got := ""
				for _, part := range []string{data[:at+1], data} {
					put(t, file, part)
					code, out, errs := m.run("transcript", "render", "--state", state, file)
					if code != 0 {
						t.Fatal(errs)
					}
					got += out
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Fatalf("cut at %d (-want +got):\n%s", at, diff)
				}
			}
		})
	}
}

// TestInspectReadsTheRestOfAFolder: one file that cannot be read is told of, and
// keeps nobody from the others.
func TestInspectReadsTheRestOfAFolder(t *testing.T) {
	m := newMachine(t)
	dir := filepath.Join(m.dir, "talks")
	put(t, filepath.Join(dir, "a.jsonl"), "{}\n")
	put(t, filepath.Join(dir, "b.jsonl"), "{}\n")
	put(t, filepath.Join(dir, "c.jsonl"), "{}\n")
	if err := os.Chmod(filepath.Join(dir, "b.jsonl"), 0); err != nil {
		t.Fatal(err)
	}
	if _, err := os.ReadFile(filepath.Join(dir, "b.jsonl")); err == nil {
		t.Skip("NOT TESTED: this user can read every file")
	}
	code, out, errs := m.run("transcript", "inspect", "--json", dir)
	if code != 1 || strings.Count(out, "\n") != 2 || !strings.Contains(errs, "b.jsonl") || !strings.Contains(errs, "1 file could not be read") {
		t.Errorf("exit %d, printed %q, %q", code, out, errs)
	}
}

var documentedKey = regexp.MustCompile("`([a-z_]+)`")

// TestThePageNamesEveryKey compares the tables of docs/spec/commands.md with
// what inspect --json prints.
func TestThePageNamesEveryKey(t *testing.T) {
	m := newMachine(t)
	documented, printed := map[string]bool{}, map[string]bool{}
	for line := range strings.Lines(get(t, filepath.Join("..", "..", "docs", "spec", "commands.md"))) {
		if cells := strings.Split(line, "|"); len(cells) == 4 {
			for _, key := range documentedKey.FindAllStringSubmatch(cells[1], -1) {
				documented[key[1]] = true
			}
		}
	}
	state := filepath.Join(m.dir, "cursor.json")
	_, out, errs := m.run("transcript", "inspect", "--json", "--state", state, corpus(t))
	if errs != "" {
		t.Fatal(errs)
	}
	for line := range strings.Lines(out) {
		var keys map[string]any
		if err := json.Unmarshal([]byte(line), &keys); err != nil {
			t.Fatal(err)
		}
		for key := range keys {
			printed[key] = true
		}
	}
	if diff := cmp.Diff(documented, printed); diff != "" {
		t.Errorf("-documented +printed:\n%s", diff)
	}
}

// TestListsAreWholeWhereverTheyLie: a list that outgrows memory goes on in a
// file, which nobody finds afterwards.
func TestListsAreWholeWhereverTheyLie(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	l := &list{open: '{', end: '}', keep: true}
	want := map[string]string{}
	for i := range 40 {
		id, text := strings.Repeat("k", i+1), strings.Repeat("\"words\"\n", 10_000)
		want[id] = text
		if err := l.entry(id, text); err != nil {
			t.Fatal(err)
		}
		if l.buf.Cap() > 4*spillSize {
			t.Fatalf("%d bytes are in memory", l.buf.Cap())
		}
	}
	var out bytes.Buffer
	if err := l.writeTo(&out); err != nil {
		t.Fatal(err)
	}
	var got map[string]string
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff[:min(len(diff), 500)])
	}
	if l.file == nil {
		t.Error("nothing went to a file: nothing was tested")
	}
	if err := l.close(); err != nil {
		t.Error(err)
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("%s is left behind", left[0].Name())
	}
}
