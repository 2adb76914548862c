package read

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/undersong-dev/undersong/internal/redact"
	"github.com/undersong-dev/undersong/internal/segment"
	"github.com/undersong-dev/undersong/internal/transcript"
)

const session = "0a1b2c3d-0000-4000-8000-000000000001"

var (
	tide  = Project{Name: "tide", Remote: "git.example.com/ada/tide"}
	other = Project{Name: "other", Remote: "git.example.com/ada/other"}
)

// decide hears /tide and /other, and headless records nowhere.
func decide(cwd, entrypoint string) Verdict {
	switch {
	case strings.HasPrefix(entrypoint, "sdk"):
		return Verdict{Reason: "headless"}
	case strings.HasPrefix(cwd, "/tide"):
		return Verdict{Allowed: true, Project: tide}
	case strings.HasPrefix(cwd, "/other"):
		return Verdict{Allowed: true, Project: other}
	}
	return Verdict{Reason: "not included"}
}

func newReader(t *testing.T) *Reader {
	t.Helper()
	redactor, err := redact.New()
	if err != nil {
		t.Fatalf("redact.New: %v", err)
	}
	return &Reader{Redactor: redactor, Clock: clocktesting.NewFakePassiveClock(time.Unix(1767225600, 0)), Decide: decide}
}

// user is a record of a person's words in a folder.
func user(n int, cwd string) string {
	return fmt.Sprintf(`{"type":"user","uuid":"u%d","sessionId":%q,"cwd":%q,"origin":{"kind":"human"},"message":{"role":"user","content":"words %d"}}`, n, session, cwd, n)
}

// transcriptAt writes lines, each with LF, and returns the source.
func transcriptAt(t *testing.T, dir string, lines ...string) Source {
	t.Helper()
	path := filepath.Join(dir, session+".jsonl")
	write(t, path, join(lines))
	return Source{Session: session, Stream: Main, Path: path, Cwd: "/tide"}
}

func join(lines []string) string {
	if len(lines) == 0 {
		return ""
	}
	return strings.Join(lines, "\n") + "\n"
}

func write(tb testing.TB, path, text string) {
	tb.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		tb.Fatalf("make folder: %v", err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		tb.Fatalf("write transcript: %v", err)
	}
}

func add(t *testing.T, path, text string) {
	t.Helper()
	file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatalf("open transcript: %v", err)
	}
	_, err = file.WriteString(text)
	if err := errors.Join(err, file.Close()); err != nil {
		t.Fatalf("append to transcript: %v", err)
	}
}

func must(t *testing.T, r *Reader, src Source, cur Cursor, want Want) Batch {
	t.Helper()
	batch, err := r.Next(t.Context(), src, cur, want)
	if err != nil {
		t.Fatalf("Next: %v", err)
	}
	return batch
}

func uuids(t *testing.T, b Batch) []string {
	t.Helper()
	var ids []string
	for _, line := range b.Lines {
		_, after, _ := strings.Cut(line.String(), `"uuid":"`)
		id, _, _ := strings.Cut(after, `"`)
		ids = append(ids, id)
	}
	return ids
}

func TestNextReadsWholeLinesAndGoesOn(t *testing.T) {
	r := newReader(t)
	src := transcriptAt(t, t.TempDir(), user(1, "/tide"), "", "not json", user(2, "/tide/sub"))
	add(t, src.Path, user(3, "/tide")[:20])

	first := must(t, r, src, Cursor{}, Want{})
	wantLines := []string{"u1", "", "u2"}
	if diff := cmp.Diff(wantLines, uuids(t, first)); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
	h := first.Header
	if diff := cmp.Diff([]int64{0, segment.NoIndex, 1}, h.Indexes); diff != "" {
		t.Errorf("indexes (-want +got):\n%s", diff)
	}
	if h.FirstIndex != 0 || h.LastIndex != 1 || h.Offset != 0 || h.EndOffset != first.Cursor.Offset || first.Cursor.NextIndex != 2 {
		t.Errorf("header %+v, cursor %+v", h, first.Cursor)
	}
	if diff := cmp.Diff(&tide, first.Project); diff != "" {
		t.Errorf("project (-want +got):\n%s", diff)
	}

	if b := must(t, r, src, first.Cursor, Want{Project: &tide}); b.Moved || len(b.Lines) > 0 {
		t.Errorf("the torn tail was read: %+v", b)
	}
	add(t, src.Path, user(3, "/tide")[20:]+"\n")
	second := must(t, r, src, first.Cursor, Want{Project: &tide})
	if diff := cmp.Diff([]string{"u3"}, uuids(t, second)); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
	if second.Header.Offset != first.Header.EndOffset || second.Header.FirstIndex != 2 || second.Cursor.NextIndex != 3 {
		t.Errorf("header %+v does not follow %+v", second.Header, h)
	}
}

func TestConsentIsAskedPerRecord(t *testing.T) {
	title := `{"type":"ai-title","aiTitle":"Retold","sessionId":"` + session + `"}`
	summary := strings.Replace(user(9, "/tide"), `"type":"user"`, `"type":"user","isCompactSummary":true`, 1)
	headless := strings.Replace(user(8, "/tide"), `"cwd"`, `"entrypoint":"sdk-cli","cwd"`, 1)
	queue := `{"type":"queue-operation","operation":"enqueue","content":"words","sessionId":"` + session + `"}`
	type withheld struct {
		from, to int64
		reason   string
	}
	type test struct {
		reason string
		source Source // what the notes say
		lines  []string
		lineNo []int // of the body lines
		ranges []withheld
	}
	for name, tt := range map[string]test{
		"nothing allowed": {
			reason: "no body, so nothing may leave", lines: []string{user(1, "/secret"), user(2, "/secret")},
		},
		"between": {
			reason: "a range lies between two lines that are sent",
			lines:  []string{user(1, "/tide"), user(2, "/secret"), user(3, "/secret"), user(4, "/tide")},
			lineNo: []int{0, 3}, ranges: []withheld{{1, 2, "not included"}},
		},
		"at the end": {
			reason: "what follows the last line sent leaves with it",
			lines:  []string{user(1, "/tide"), user(2, "/secret")},
			lineNo: []int{0}, ranges: []withheld{{1, 1, "not included"}},
		},
		"other project": {
			reason: "the first captured record decides the project",
			lines:  []string{user(1, "/tide"), user(2, "/other"), user(3, "/tide")},
			lineNo: []int{0, 2}, ranges: []withheld{{1, 1, ReasonOtherProject}},
		},
		"headless": {
			reason: "decided per record", lines: []string{user(1, "/tide"), headless, user(3, "/tide")},
			lineNo: []int{0, 2}, ranges: []withheld{{1, 1, "headless"}},
		},
		"headless from the start": {
			reason: "what the harness writes before the first record of a headless session says no entry point",
			source: Source{Entrypoint: "sdk-cli"}, lines: []string{queue, headless, `{"type":"tag","tag":"x"}`, queue},
		},
		"a person again": {
			reason: "the newest note stands in for the beginning only",
			source: Source{Entrypoint: "sdk-cli"}, lines: []string{strings.Replace(user(1, "/tide"), `"cwd"`, `"entrypoint":"cli","cwd"`, 1), `{"type":"tag","tag":"x"}`},
			lineNo: []int{0, 1},
		},
		"nested": {
			reason: "another session speaks, whatever its records say",
			source: Source{Nested: true}, lines: []string{strings.Replace(user(1, "/tide"), `"cwd"`, `"entrypoint":"cli","cwd"`, 1), user(2, "/tide")},
		},
		"no cwd": {
			reason: "the stream's last folder counts",
			lines:  []string{user(1, "/tide"), `{"type":"tag","tag":"x"}`, user(3, "/secret"), `{"type":"tag","tag":"y"}`},
			lineNo: []int{0, 1}, ranges: []withheld{{2, 3, "not included"}},
		},
		"title retells": {
			reason: "a title after a withheld prompt may retell it, after a captured one not",
			lines:  []string{user(1, "/tide"), user(2, "/secret"), user(3, "/tide/"), title},
			lineNo: []int{0, 2, 3}, ranges: []withheld{{1, 1, "not included"}},
		},
		"title retells at once": {
			reason: "no prompt was captured since",
			lines:  []string{user(1, "/tide"), user(2, "/secret"), `{"type":"system","subtype":"turn_duration","cwd":"/tide"}`, title},
			lineNo: []int{0, 2}, ranges: []withheld{{1, 1, "not included"}, {3, 3, "not included"}},
		},
		"summary retells": {
			reason: "every later compact summary retells the whole session",
			lines:  []string{user(1, "/tide"), user(2, "/secret"), user(3, "/tide"), summary, user(5, "/tide")},
			lineNo: []int{0, 2, 4}, ranges: []withheld{{1, 1, "not included"}, {3, 3, ReasonRetells}},
		},
		"summary": {
			reason: "nothing was withheld", lines: []string{user(1, "/tide"), summary}, lineNo: []int{0, 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			src := transcriptAt(t, t.TempDir(), tt.lines...)
			src.Entrypoint, src.Nested = tt.source.Entrypoint, tt.source.Nested
			b := must(t, newReader(t), src, Cursor{}, Want{})
			var lineNo []int
			for _, index := range b.Header.Indexes {
				lineNo = append(lineNo, int(index))
			}
			if diff := cmp.Diff(tt.lineNo, lineNo); diff != "" {
				t.Errorf("%s: lines (-want +got):\n%s", tt.reason, diff)
			}
			var ranges []withheld
			for _, r := range b.Header.Withheld {
				ranges = append(ranges, withheld{r.FromIndex, r.ToIndex, r.Reason})
			}
			if diff := cmp.Diff(tt.ranges, ranges, cmp.AllowUnexported(withheld{})); diff != "" {
				t.Errorf("%s: withheld (-want +got):\n%s", tt.reason, diff)
			}
			if len(tt.lineNo) == 0 && b.Project != nil {
				t.Errorf("%s: there is a project: %v", tt.reason, b.Project)
			}
		})
	}
}

func TestLinesBeforeInitAreWithheld(t *testing.T) {
	r := newReader(t)
	lines := []string{user(1, "/tide"), user(2, "/tide"), user(3, "/tide")}
	src := transcriptAt(t, t.TempDir(), lines...)
	src.Baseline = int64(len(lines[0]) + 5) // in the middle of the second
	b := must(t, r, src, Cursor{}, Want{})
	if diff := cmp.Diff([]string{"u3"}, uuids(t, b)); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
	want := []segment.Range{{FromIndex: 0, ToIndex: 1, FromOffset: 0, ToOffset: int64(len(lines[0]) + len(lines[1]) + 2), Reason: ReasonBeforeInit}}
	if diff := cmp.Diff(want, b.Header.Withheld); diff != "" {
		t.Errorf("withheld (-want +got):\n%s", diff)
	}
}

func TestRangesWaitForTheNextLine(t *testing.T) {
	r := newReader(t)
	src := transcriptAt(t, t.TempDir(), user(1, "/secret"))
	first := must(t, r, src, Cursor{}, Want{})
	if len(first.Lines) != 0 || len(first.Cursor.Pending) != 1 || !first.Moved {
		t.Fatalf("batch %+v", first)
	}
	add(t, src.Path, user(2, "/secret")+"\n"+user(3, "/tide")+"\n")
	second := must(t, r, src, first.Cursor, Want{})
	if len(second.Header.Withheld) != 1 || second.Header.Withheld[0].ToIndex != 1 || second.Header.Offset != 0 || second.Header.FirstIndex != 0 {
		t.Errorf("header %+v", second.Header)
	}
	if len(second.Cursor.Pending) != 0 {
		t.Errorf("ranges would leave twice: %+v", second.Cursor.Pending)
	}
}

func TestWhereTheFileIsFound(t *testing.T) {
	first, second, third := user(1, "/tide"), user(2, "/tide"), user(3, "/tide")
	type test struct {
		reason     string
		change     func(t *testing.T, projects string, src *Source)
		want       []string
		generation int64
		missing    bool
	}
	for name, tt := range map[string]test{
		"grown": {
			reason: "appended to",
			change: func(t *testing.T, _ string, src *Source) {
				t.Helper()
				add(t, src.Path, third+"\n")
			},
			want: []string{"u3"},
		},
		"moved": {
			reason: "a worktree moves the file to another project folder",
			change: func(t *testing.T, projects string, src *Source) {
				t.Helper()
				write(t, filepath.Join(projects, "b", session+".jsonl"), join([]string{first, second, third}))
				remove(t, src.Path)
			},
			want: []string{"u3"},
		},
		"moved, and the note says where": {
			reason: "the newest path is looked at first",
			change: func(t *testing.T, projects string, src *Source) {
				t.Helper()
				remove(t, src.Path)
				src.Path = filepath.Join(projects, "b", session+".jsonl")
				write(t, src.Path, join([]string{first, second, third}))
			},
			want: []string{"u3"},
		},
		"moved, and a shorter file in its place": {
			reason: "a shorter file never resets the cursor while the one that was read exists",
			change: func(t *testing.T, projects string, src *Source) {
				t.Helper()
				write(t, filepath.Join(projects, "b", session+".jsonl"), join([]string{first, second, third}))
				write(t, src.Path, first+"\n")
			},
			want: []string{"u3"},
		},
		"shorter": {
			reason: "cut, and no other file",
			change: func(t *testing.T, _ string, src *Source) {
				t.Helper()
				write(t, src.Path, first+"\n")
			},
			want:       []string{"u1"},
			generation: 1,
		},
		"replaced": {
			reason: "as long, with other bytes",
			change: func(t *testing.T, _ string, src *Source) {
				t.Helper()
				write(t, src.Path, join([]string{third, second, first}))
			},
			want:       []string{"u3", "u2", "u1"},
			generation: 1,
		},
		"another file of that name elsewhere": {
			reason: "a neighbour that does not fit is not this one",
			change: func(t *testing.T, projects string, src *Source) {
				t.Helper()
				write(t, filepath.Join(projects, "b", session+".jsonl"), join([]string{third, third, third}))
				remove(t, src.Path)
			},
			missing: true,
		},
		"deleted": {
			reason: "nothing is lost, and nothing is wrong",
			change: func(t *testing.T, _ string, src *Source) {
				t.Helper()
				remove(t, src.Path)
			},
			missing: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, projects := newReader(t), t.TempDir()
			src := transcriptAt(t, filepath.Join(projects, "a"), first, second)
			before := must(t, r, src, Cursor{}, Want{})
			tt.change(t, projects, &src)
			b, err := r.Next(t.Context(), src, before.Cursor, Want{Project: &tide})
			if tt.missing {
				if !errors.Is(err, ErrMissing) {
					t.Errorf("%s: got %v, %v", tt.reason, uuids(t, b), err)
				}
				return
			}
			if err != nil {
				t.Fatalf("%s: %v", tt.reason, err)
			}
			if diff := cmp.Diff(tt.want, uuids(t, b)); diff != "" {
				t.Errorf("%s: lines (-want +got):\n%s", tt.reason, diff)
			}
			if b.Cursor.Generation != tt.generation || b.Header.Generation != tt.generation {
				t.Errorf("%s: generation %d, want %d", tt.reason, b.Cursor.Generation, tt.generation)
			}
		})
	}
}

// TestAFileRewrittenWhileItIsRead: the bytes that were read are signed, not those
// that lie there when reading ends.
func TestAFileRewrittenWhileItIsRead(t *testing.T) {
	r := newReader(t)
	first, second, third := user(1, "/tide"), user(2, "/tide"), user(3, "/tide")
	src := transcriptAt(t, t.TempDir(), first, second)
	r.Decide = func(cwd, entrypoint string) Verdict {
		write(t, src.Path, join([]string{first, third, second})) // as if the writer had cut and gone on now
		return decide(cwd, entrypoint)
	}
	b := must(t, r, src, Cursor{}, Want{})
	if diff := cmp.Diff([]string{"u1", "u2", "u2"}, uuids(t, b)); diff != "" {
		t.Fatalf("lines (-want +got):\n%s", diff)
	}
	b = must(t, r, src, b.Cursor, Want{Project: &tide})
	if diff := cmp.Diff([]string{"u1", "u3", "u2"}, uuids(t, b)); diff != "" || b.Header.Generation != 1 {
		t.Errorf("generation %d, want 1; lines (-want +got):\n%s", b.Header.Generation, diff)
	}
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatalf("remove: %v", err)
	}
}

func TestSubagentStreams(t *testing.T) {
	dir := t.TempDir()
	src := transcriptAt(t, dir, user(1, "/tide"))
	below := filepath.Join(dir, session, "subagents")
	for _, name := range []string{"agent-a1.jsonl", "agent-a1.meta.json", "agent-.jsonl", "agent-../x.jsonl", "other.jsonl"} {
		write(t, filepath.Join(below, name), user(2, "/tide")+"\n")
	}
	got := Agents(src.Path, session)
	want := map[string]string{"agent-a1": filepath.Join(below, "agent-a1.jsonl")}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("streams (-want +got):\n%s", diff)
	}
	agent := Source{Session: session, Stream: "agent-a1", Path: got["agent-a1"]}
	b := must(t, newReader(t), agent, Cursor{}, Want{Project: &tide})
	if b.Header.Stream != "agent-a1" || len(b.Lines) != 1 {
		t.Errorf("batch %+v", b)
	}

	// The whole project folder was moved.
	moved := filepath.Join(filepath.Dir(dir), "moved")
	if err := os.Rename(dir, moved); err != nil {
		t.Fatalf("rename: %v", err)
	}
	add(t, filepath.Join(moved, session, "subagents", "agent-a1.jsonl"), user(3, "/tide")+"\n")
	b = must(t, newReader(t), agent, b.Cursor, Want{Project: &tide})
	if diff := cmp.Diff([]string{"u3"}, uuids(t, b)); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}

// TestSubagentStreamsOfOtherReleases: beside the session's file, where only the
// records tell whose they are, and in folders of workflows.
func TestSubagentStreamsOfOtherReleases(t *testing.T) {
	projects := t.TempDir()
	dir := filepath.Join(projects, "a")
	src := transcriptAt(t, dir, user(1, "/tide"))
	foreign := strings.ReplaceAll(user(2, "/tide"), session, "0a1b2c3d-0000-4000-8000-000000000002")
	beside, flow, below := filepath.Join(dir, "agent-0a1b2c3.jsonl"), filepath.Join(dir, session, "subagents", "workflows", "wf_1"), filepath.Join(dir, session, "subagents")
	write(t, beside, `{"type":"summary"}`+"\n"+user(2, "/tide")+"\n")
	write(t, filepath.Join(dir, "agent-0a1b2c4.jsonl"), foreign+"\n"+user(3, "/tide")+"\n")
	write(t, filepath.Join(dir, "agent-0a1b2c5.jsonl"), user(2, "/tide")) // torn: not known yet
	write(t, filepath.Join(dir, "agent-0a1b2c6.jsonl"), "not json\n")
	write(t, filepath.Join(dir, "agent-0a1b2c7.jsonl"), strings.Replace(user(2, "/tide"), "words", strings.Repeat("x", 2*headOfAgent), 1)+"\n")
	write(t, filepath.Join(dir, "agent-nothex.jsonl"), user(2, "/tide")+"\n")
	write(t, filepath.Join(flow, "journal.jsonl"), user(2, "/tide")+"\n")
	write(t, filepath.Join(flow, "agent-b1.jsonl"), user(2, "/tide")+"\n")
	write(t, filepath.Join(flow, "agent-b2.jsonl"), user(2, "/tide")+"\n")
	write(t, filepath.Join(below, "agent-b2.jsonl"), user(2, "/tide")+"\n")
	write(t, filepath.Join(below, "deep", "agent-b3.jsonl"), user(2, "/tide")+"\n")

	got := Agents(src.Path, session)
	want := map[string]string{
		"agent-0a1b2c3": beside,
		"agent-b1":      filepath.Join(flow, "agent-b1.jsonl"),
		"agent-b2":      filepath.Join(below, "agent-b2.jsonl"),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("streams (-want +got):\n%s", diff)
	}

	// Moved with the session, each is found where it lies now.
	for stream, path := range want {
		agent := Source{Session: session, Stream: stream, Path: path}
		b := must(t, newReader(t), agent, Cursor{}, Want{Project: &tide})
		moved := strings.Replace(path, dir, filepath.Join(projects, "b"), 1)
		if err := errors.Join(os.MkdirAll(filepath.Dir(moved), 0o700), os.Rename(path, moved)); err != nil {
			t.Fatalf("move: %v", err)
		}
		add(t, moved, user(9, "/tide")+"\n")
		b = must(t, newReader(t), agent, b.Cursor, Want{Project: &tide})
		if diff := cmp.Diff([]string{"u9"}, uuids(t, b)); diff != "" {
			t.Errorf("%s: lines (-want +got):\n%s", stream, diff)
		}
	}
}

func TestSpokenWhispersAreFound(t *testing.T) {
	attachment := `{"type":"attachment","uuid":"a1","cwd":"/secret","attachment":{"type":"hook_additional_context","content":["<team_memory id=\"w-1234\">x</team_memory>"]}}`
	src := transcriptAt(t, t.TempDir(), user(1, "/tide"), attachment, strings.Replace(user(2, "/tide"), "words", "w-5678", 1))
	b := must(t, newReader(t), src, Cursor{}, Want{Claimed: []string{"w-1234", "w-5678", "w-9999"}})
	if diff := cmp.Diff([]string{"w-1234"}, b.Spoken); diff != "" {
		t.Errorf("spoken (-want +got):\n%s", diff)
	}
}

func TestSegmentsClose(t *testing.T) {
	r := newReader(t)
	big := strings.Replace(user(1, "/tide"), "words", strings.Repeat("a b ", 300_000), 1) // 1.2 MB
	huge := strings.Replace(user(2, "/tide"), "words", strings.Repeat("a b ", 1_500_000), 1)
	long := `{"type":"user","cwd":"/tide","x":"` + strings.Repeat("x", 33<<20) + `"}` // withheld
	src := transcriptAt(t, t.TempDir(), big, big, big, big, huge, user(3, "/tide"), long, user(4, "/tide"))

	var sizes []int
	cur := Cursor{}
	for {
		b := must(t, r, src, cur, Want{})
		if len(b.Lines) > 0 {
			sizes = append(sizes, len(b.Lines))
			raw, err := segment.Encode(complete(b.Header), b.Lines)
			if err != nil {
				t.Fatalf("Encode: %v", err)
			}
			if len(b.Lines) > 1 && len(raw) > segment.CloseAt+64<<10 {
				t.Errorf("a segment of %d lines has %d bytes", len(b.Lines), len(raw))
			}
		}
		cur = b.Cursor
		if !b.More {
			break
		}
	}
	if diff := cmp.Diff([]int{3, 1, 1, 2}, sizes); diff != "" {
		t.Errorf("lines per segment (-want +got):\n%s", diff)
	}
}

// complete fills what the spool fills.
func complete(h segment.Header) segment.Header {
	h.Session, h.Workstation, h.Seq = session+"-00000000", "ws-0123456789abcdef", 1
	h.PreviousChain = segment.Start(h.Session, h.Workstation).String()
	return h
}

// TestEveryLineIsSentOrWithheldOnce appends a transcript in pieces cut at
// random and reads after each. Whatever the pieces, the lines and ranges are
// the same, and each complete line that is not blank is in exactly one.
func TestEveryLineIsSentOrWithheldOnce(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	places := []string{"/tide", "/tide", "/secret", "/other"}
	for range 30 {
		var lines []string
		for n := range 40 {
			switch random.IntN(8) {
			case 0:
				lines = append(lines, "")
			case 1:
				lines = append(lines, "{broken")
			case 2:
				lines = append(lines, `{"type":"ai-title","aiTitle":"x"}`)
			default:
				lines = append(lines, user(n, places[random.IntN(len(places))]))
			}
		}
		text := join(lines)
		var cuts []int
		for range random.IntN(12) {
			cuts = append(cuts, random.IntN(len(text)))
		}
		slices.Sort(cuts)
		whole, pieces := cover(t, text, nil), cover(t, text, cuts)
		if diff := cmp.Diff(whole, pieces); diff != "" {
			t.Fatalf("cut at %v (-whole +pieces):\n%s", cuts, diff)
		}
		offset := 0
		for i, line := range lines {
			if _, covered := whole[int64(offset)]; covered == (line == "") {
				t.Errorf("line %d %q: covered is %v", i, line, covered)
			}
			offset += len(line) + 1
		}
	}
}

// cover reads a text that appears in pieces. It returns, for the offset of each
// line, what became of it.
func cover(t *testing.T, text string, cuts []int) map[int64]string {
	t.Helper()
	r := newReader(t)
	src := transcriptAt(t, t.TempDir())
	got := map[int64]string{}
	note := func(offset int64, what string) {
		if _, twice := got[offset]; twice {
			t.Errorf("the line at %d is covered twice", offset)
		}
		got[offset] = what
	}
	cur, project, from := Cursor{}, (*Project)(nil), 0
	for _, to := range append(slices.Clone(cuts), len(text)) {
		add(t, src.Path, text[from:to])
		from = to
		b := must(t, r, src, cur, Want{Project: project})
		if b.Project != nil {
			project = b.Project
		}
		cur = b.Cursor
		for i, offset := range b.Header.Offsets {
			note(offset, fmt.Sprint("sent ", b.Header.Indexes[i]))
		}
		for _, w := range b.Header.Withheld {
			eachLine(text, w, func(offset int64) { note(offset, "withheld "+w.Reason) })
		}
	}
	for _, w := range cur.Pending {
		eachLine(text, w.Range, func(offset int64) { note(offset, "withheld "+w.Reason) })
	}
	return got
}

// eachLine calls f for each line of a range that is not blank.
func eachLine(text string, r segment.Range, f func(offset int64)) {
	offset := r.FromOffset
	for line := range strings.Lines(text[r.FromOffset:r.ToOffset]) {
		if line != "\n" {
			f(offset)
		}
		offset += int64(len(line))
	}
}

func TestACancelledReadIsABatch(t *testing.T) {
	src := transcriptAt(t, t.TempDir(), user(1, "/tide"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	b, err := newReader(t).Next(ctx, src, Cursor{}, Want{})
	if err != nil || b.Moved {
		t.Errorf("batch %+v, %v", b, err)
	}
}

func TestCopiesInAForkAreWithheld(t *testing.T) {
	stamped := func(n int, at string) string {
		return strings.Replace(user(n, "/tide"), `"cwd"`, `"timestamp":"`+at+`","cwd"`, 1)
	}
	answer := `{"type":"assistant","uuid":"a","sessionId":"` + session + `","requestSessionId":"abc","timestamp":"2026-01-01T09:59:59Z","cwd":"/tide","message":{"role":"assistant","content":[{"type":"text","text":"x"}]}}`
	src := transcriptAt(t, t.TempDir(), `{"type":"mode"}`, stamped(1, "2026-01-01T09:59:58Z"), answer, stamped(2, "2026-01-01T10:00:01Z"))
	src.ForkedAt = time.Date(2026, 1, 1, 10, 0, 0, 0, time.UTC)
	b := must(t, newReader(t), src, Cursor{}, Want{})
	if diff := cmp.Diff([]string{"", "u2"}, uuids(t, b)); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
	if len(b.Header.Withheld) != 1 || b.Header.Withheld[0].Reason != ReasonInherited || b.Header.Withheld[0].FromIndex != 1 || b.Header.Withheld[0].ToIndex != 2 {
		t.Errorf("withheld %+v", b.Header.Withheld)
	}
	if !b.Chained || must(t, newReader(t), transcriptAt(t, t.TempDir(), `{"type":"mode"}`), Cursor{}, Want{}).Chained {
		t.Error("what the harness notes is told for the talk, or the other way round")
	}
	if b.ForkedFrom != "abc" {
		t.Errorf("forked from %q: the copies tell, although they stay here", b.ForkedFrom)
	}
}

func TestForkedFromAndBranch(t *testing.T) {
	line := strings.Replace(user(1, "/tide"), `"cwd"`, `"gitBranch":"feature/x","forkedFrom":{"sessionId":"abc"},"cwd"`, 1)
	b := must(t, newReader(t), transcriptAt(t, t.TempDir(), line), Cursor{}, Want{})
	if b.Branch.String() != "feature/x" || b.ForkedFrom != "abc" {
		t.Errorf("branch %q, forked from %q", b.Branch, b.ForkedFrom)
	}
}

// TestALineThatIsTooLongIsWithheld: it cannot be scanned, so it stays and is
// named; nothing before or behind it waits, nothing is taken for refused.
func TestALineThatIsTooLongIsWithheld(t *testing.T) {
	r := newReader(t)
	src := transcriptAt(t, t.TempDir(), user(1, "/tide"))
	before := int64(len(user(1, "/tide")) + 1)
	add(t, src.Path, `{"type":"user","uuid":"long","message":{"content":"`+strings.Repeat("tide ", transcript.MaxLine/5)+"\"}}\n")
	info, err := os.Stat(src.Path)
	if err != nil {
		t.Fatal(err)
	}
	add(t, src.Path, user(2, "/tide")+"\n"+`{"type":"custom-title","customTitle":"Tide","sessionId":"`+session+"\"}\n")

	got := must(t, r, src, Cursor{}, Want{})
	if diff := cmp.Diff([]string{"u1", "u2", ""}, uuids(t, got)); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
	want := []segment.Range{{FromIndex: segment.NoIndex, ToIndex: segment.NoIndex, FromOffset: before, ToOffset: info.Size(), Reason: "too long"}}
	if diff := cmp.Diff(want, got.Header.Withheld); diff != "" {
		t.Errorf("withheld (-want +got):\n%s", diff)
	}
	if got.Cursor.Hushed != "" || got.Cursor.NoSummaries || got.More {
		t.Errorf("cursor %+v, more %v: a long line is taken for one that may not be heard", got.Cursor, got.More)
	}
	if b := must(t, r, src, got.Cursor, Want{Project: &tide}); b.Moved {
		t.Error("it is read again")
	}
	// Alone it moves the cursor, and the next segment names it.
	add(t, src.Path, strings.Repeat("x", transcript.MaxLine+1)+"\n")
	alone := must(t, r, src, got.Cursor, Want{Project: &tide})
	if len(alone.Lines) > 0 || !alone.Moved || len(alone.Cursor.Pending) != 1 {
		t.Errorf("%d lines, moved %v, pending %v", len(alone.Lines), alone.Moved, alone.Cursor.Pending)
	}
	add(t, src.Path, user(3, "/tide")+"\n")
	if next := must(t, r, src, alone.Cursor, Want{Project: &tide}); len(next.Lines) != 1 || len(next.Header.Withheld) != 1 {
		t.Errorf("%d lines, withheld %v", len(next.Lines), next.Header.Withheld)
	}
}
