package transcript_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/undersong-dev/undersong/internal/transcript"
)

// chain makes records from "uuid<parent kind": kind p is a person's prompt, a an
// assistant's words, c a call, r a result, s a system record, b a compaction's
// boundary, x an agent's prompt. A parent of "-" is null, of "?" missing.
func chain(t *testing.T, links string) (records []transcript.Record) {
	t.Helper()
	kinds := map[string]string{
		"p": `"type":"user","message":{"content":"words"}`,
		"a": `"type":"assistant","message":{"content":[{"type":"text","text":"words"}]}`,
		"c": `"type":"assistant","message":{"content":[{"type":"tool_use","name":"Bash"}]}`,
		"r": `"type":"user","message":{"content":[{"type":"tool_result","content":"x"}]}`,
		"s": `"type":"system","subtype":"turn_duration"`,
		"b": `"type":"system","subtype":"compact_boundary"`,
		"x": `"type":"user","isSidechain":true,"message":{"content":"words"}`,
	}
	for link := range strings.SplitSeq(links, ",") {
		uuid, rest, _ := strings.Cut(strings.TrimSpace(link), "<")
		parent, kind, _ := strings.Cut(rest, " ")
		head := fmt.Sprintf(`"uuid":%q,"parentUuid":%q`, uuid, parent)
		switch parent {
		case "-":
			head = fmt.Sprintf(`"uuid":%q,"parentUuid":null`, uuid)
		case "?":
			head = fmt.Sprintf(`"uuid":%q`, uuid)
		}
		records = append(records, parse(t, "{"+head+","+kinds[kind]+"}"))
	}
	return records
}

func TestAbandoned(t *testing.T) {
	cases := map[string]struct {
		reason string
		links  string
		want   []string
	}{
		"Straight":    {"nobody went back", "1<- p, 2<1 a, 3<2 p, 4<3 a", nil},
		"Rewind":      {"the later prompt at one point leaves the earlier", "1<- p, 2<1 a, 3<2 p, 4<3 a, 5<4 s, 6<2 p, 7<6 a", []string{"3", "4", "5"}},
		"Twice":       {"every time", "1<- p, 2<1 a, 3<2 p, 4<3 a, 5<2 p, 6<5 a, 7<2 p", []string{"3", "4", "5", "6"}},
		"Nested":      {"with all that hangs from it", "1<- p, 2<1 a, 3<2 p, 4<3 a, 5<4 p, 6<4 p, 7<2 p", []string{"3", "4", "5", "6"}},
		"Root":        {"to the very beginning", "1<- p, 2<1 a, 3<- p, 4<3 a", []string{"1", "2"}},
		"Compaction":  {"a compaction starts anew and leaves nothing", "1<- p, 2<1 a, 3<- b, 4<3 p, 5<4 a", nil},
		"RootCompact": {"nor does a prompt behind it", "1<- p, 2<1 a, 3<- b, 4<- p", nil},
		"Parallel":    {"calls and results branch without a prompt", "1<- p, 2<1 c, 3<2 c, 4<3 r, 5<2 r, 6<4 a, 7<6 p", nil},
		"Leaf":        {"what holds no message is no branch", "1<- p, 2<1 a, 3<2 s, 4<2 p", nil},
		"LeafTalk":    {"one that does is, although it begins with a record of the program", "1<- p, 2<1 a, 3<2 s, 4<3 p, 5<2 p", []string{"3", "4"}},
		"Agents":      {"agents have no place in it", "1<- p, 2<1 a, 3<- x, 4<2 p", nil},
		"Broken":      {"links that lead nowhere say nothing", "1<9 p, 2<8 p, 3<? p, 4<4 p, 5<6 p, 6<5 a", nil},
		"Repeated":    {"a record that comes again is where it was", "1<- p, 2<1 a, 3<2 p, 1<- p", nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var tree transcript.Tree
			for _, r := range chain(t, tc.links) {
				tree.Fold(r, session)
			}
			if diff := cmp.Diff(tc.want, slices.Collect(tree.Abandoned())); diff != "" {
				t.Errorf("%s\n-want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestKnown(t *testing.T) {
	var known transcript.Known
	for _, step := range []struct {
		line string
		want transcript.Novelty
	}{
		{`{"uuid":"a","message":{"content":"x"}}`, transcript.New},
		{`{"uuid":"a","message":{"content":"x"},"parentUuid":"p"}`, transcript.Repeated},
		{`{"uuid":"a","message":{"content":"y"}}`, transcript.Conflicting},
		{`{"uuid":"a","message":{"content":"x"}}`, transcript.Repeated},
		{`{"uuid":"a","message":{"content":"z"}}`, transcript.Disputed},
		{`{"type":"mode"}`, transcript.New},
		{`{"type":"mode"}`, transcript.New},
		{`{"uuid":"b"}`, transcript.New},
	} {
		if got := known.Add(parse(t, step.line)); got != step.want {
			t.Errorf("%s is %d, want %d", step.line, got, step.want)
		}
	}
	for line, want := range map[string]bool{
		`{"uuid":"a","message":{"content":"z"}}`:           true,
		`{"uuid":"c"}`:                                     false,
		`{"type":"mode"}`:                                  false,
		`{"uuid":"c","forkedFrom":{"sessionId":"before"}}`: true,
	} {
		if got := known.Inherited(parse(t, line)); got != want {
			t.Errorf("%s: inherited %v, want %v", line, got, want)
		}
	}
}
