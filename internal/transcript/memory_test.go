package transcript_test

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/undersong-dev/undersong/internal/transcript"
)

func tool(text string) transcript.Entry {
	return transcript.Entry{Speaker: transcript.Tool, Text: text}
}

// long is n characters, numbered so that one sees which.
func long(n int) string {
	var w strings.Builder
	for w.Len() < 2*n {
		w.WriteString(strings.Repeat("é", 4) + "12345,")
	}
	return string([]rune(w.String())[:n])
}

func TestMemory(t *testing.T) {
	const bash = `{"type":"assistant","message":{"content":[{"type":"tool_use","id":"c1","name":"Bash","input":{"command":"ls"}}]}}`
	call := func(name, input string) string {
		return `{"type":"assistant","message":{"content":[{"type":"tool_use","id":"c1","name":"` + name + `","input":` + input + `}]}}`
	}
	result := func(content string) string {
		return `{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"c1","content":` + content + `}]}}`
	}
	all := transcript.Policy{ToolResults: transcript.AllResults, Thinking: true}
	none := transcript.Policy{ToolResults: transcript.NoResults}
	cases := map[string]struct {
		reason string
		before string // a record seen before
		line   string
		kind   transcript.StreamKind
		policy transcript.Policy
		want   []transcript.Entry
	}{
		"Words":        {reason: "words are those of Entries", line: `{"type":"user","message":{"content":"hello"}}`, want: []transcript.Entry{{Speaker: transcript.User, Text: "hello"}}},
		"Call":         {reason: "a call is one line", line: call("Bash", `{"command":"go test ./...\n  | tail","description":"x"}`), want: []transcript.Entry{tool("[tool Bash: go test ./... | tail]")}},
		"CallFile":     {reason: "the argument that matters, not the shortest", line: call("Edit", `{"old_string":"a","new_string":"b","file_path":"/src/lantern/main.go"}`), want: []transcript.Entry{tool("[tool Edit: /src/lantern/main.go]")}},
		"CallUnknown":  {reason: "of a tool that is not known the shortest string", line: call("mcp__tide__list", `{"query":"a long query","n":3,"station":"kelp","empty":""}`), want: []transcript.Entry{tool("[tool mcp__tide__list: kelp]")}},
		"CallNothing":  {reason: "a call may have no argument that matters", line: call("TodoWrite", `{"todos":[{"content":"x"}],"x":"y"}`), want: []transcript.Entry{tool("[tool TodoWrite]")}},
		"CallSecond":   {reason: "or the second best", line: call("Skill", `{"command":"later","args":"z"}`), want: []transcript.Entry{tool("[tool Skill: later]")}},
		"CallBest":     {reason: "the best wins wherever it stands", line: call("Skill", `{"command":"later","skill":"first","args":"z"}`), want: []transcript.Entry{tool("[tool Skill: first]")}},
		"CallOddInput": {reason: "an input of another shape is none", line: call("Bash", `"ls"`), want: []transcript.Entry{tool("[tool Bash]")}},
		"CallNameless": {reason: "a call may lack its name", line: `{"type":"assistant","message":{"content":[{"type":"tool_use"}]}}`, want: []transcript.Entry{tool("[tool ?]")}},
		"CallLong":     {reason: "a long argument is cut at a character", line: call("Bash", `{"command":"`+long(300)+`"}`), want: []transcript.Entry{tool("[tool Bash: " + long(200) + "…]")}},
		"CallHuge":     {reason: "however long it is", line: call("Bash", `{"command":"`+long(30000)+`"}`), want: []transcript.Entry{tool("[tool Bash: " + long(200) + "…]")}},
		"CallSpaces":   {reason: "blanks are not counted", line: call("Bash", `{"command":"a\n\t\r  b\u0000c\u001b[1m"}`), want: []transcript.Entry{tool("[tool Bash: a b c [1m]")}},
		"ResultDoc":    {reason: "a document is a placeholder", before: bash, line: result(`[{"type":"document","source":{"data":"AAAA"}}]`), want: []transcript.Entry{tool("[result Bash]\n[document]")}},
		"ResultOdd":    {reason: "a result of another shape is none", before: bash, line: result(`{"text":"x"}`)},
		"ResultEscape": {reason: "names may be written with escapes", before: bash, line: strings.Replace(result(`"a"`), `"tool_result"`, `"tool\u005fresult"`, 1), want: []transcript.Entry{tool("[result Bash]\na")}},
		"ResultMarks2": {
			reason: "what is left out may be nothing when marks are kept whole", before: bash,
			line: result(`"` + long(395) + `[redacted:jwt]` + `[redacted:pem]` + long(195) + `"`), want: []transcript.Entry{tool("[result Bash]\n" + long(395) + "[redacted:jwt][redacted:pem]" + long(195))},
		},
		"CallMark":   {reason: "but no mark of redaction is", line: call("Bash", `{"command":"`+long(190)+`[redacted:github-token] x"}`), want: []transcript.Entry{tool("[tool Bash: " + long(190) + "[redacted:github-token]…]")}},
		"CallServer": {reason: "tools of the provider are tools", line: `{"type":"assistant","message":{"content":[{"type":"server_tool_use","id":"s1","name":"web_search","input":{"query":"tide"}}]}}`, want: []transcript.Entry{tool("[tool web_search: tide]")}},
		"TextAndCall": {
			reason: "words first, all calls of a record in one entry", line: `{"type":"assistant","message":{"content":[{"type":"thinking","thinking":"hm"},{"type":"text","text":"I look."},{"type":"tool_use","name":"Bash","input":{"command":"ls"}},{"type":"tool_use","name":"Read","input":{"file_path":"a"}}]}}`,
			want: []transcript.Entry{{Speaker: transcript.Assistant, Text: "I look."}, tool("[tool Bash: ls]\n[tool Read: a]")},
		},
		"Thinking":      {reason: "by policy", policy: all, line: `{"type":"assistant","message":{"content":[{"type":"thinking","thinking":"hm"},{"type":"redacted_thinking","data":"AA"}]}}`, want: []transcript.Entry{{Speaker: transcript.Thinking, Text: "hm"}}},
		"ThinkingOff":   {reason: "off by default", line: `{"type":"assistant","message":{"content":[{"type":"thinking","thinking":"hm"}]}}`},
		"Result":        {reason: "of a local tool", before: bash, line: result(`"a\nb\n"`), want: []transcript.Entry{tool("[result Bash]\na\nb")}},
		"ResultBlocks":  {reason: "in blocks", before: bash, line: result(`["a",null,{"type":"text","text":"b"},{"type":"image","source":{"data":"AAAA"}},{"type":"later","text":"c"}]`), want: []transcript.Entry{tool("[result Bash]\na\nb\n[image]")}},
		"ResultFailed":  {reason: "that failed", before: bash, line: `{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"c1","content":"no","is_error":true}]}}`, want: []transcript.Entry{tool("[result Bash, failed]\nno")}},
		"ResultWeb":     {reason: "of a web page nothing by default", before: call("WebFetch", `{"url":"https://example.test"}`), line: result(`"obey"`)},
		"ResultMCP":     {reason: "nor of another server", before: call("mcp__x__y", `{}`), line: result(`"obey"`)},
		"ResultUnknown": {reason: "nor of a call that was not seen", line: result(`"obey"`)},
		"ResultAll":     {reason: "unless the policy says so", policy: all, before: call("WebFetch", `{"url":"https://example.test"}`), line: result(`"page"`), want: []transcript.Entry{tool("[result WebFetch]\npage")}},
		"ResultAllOdd":  {reason: "even without a name", policy: all, line: result(`"page"`), want: []transcript.Entry{tool("[result ?]\npage")}},
		"ResultNone":    {reason: "or takes none", policy: none, before: bash, line: result(`"a"`)},
		"ResultEmpty":   {reason: "an empty one says nothing", before: bash, line: result(`" \n"`)},
		"ResultAndText": {
			reason: "both are kept apart", before: bash, line: `{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"c1","content":"x"},{"type":"text","text":"and this"}]}}`,
			want: []transcript.Entry{tool("[result Bash]\nx"), {Speaker: transcript.User, Text: "and this"}},
		},
		"ResultLong": {
			reason: "head and tail", before: bash, line: result(`"` + long(1000) + `"`),
			want: []transcript.Entry{tool("[result Bash]\n" + long(400) + "\n[… 400 characters left out …]\n" + string([]rune(long(1000))[800:]))},
		},
		"ResultLimit": {reason: "600 characters are kept whole", before: bash, line: result(`"` + long(600) + `"`), want: []transcript.Entry{tool("[result Bash]\n" + long(600))}},
		"ResultMarks": {
			reason: "marks of redaction are not cut, and counted where they are left out", before: bash,
			line: result(`"` + long(395) + `[redacted:jwt]` + long(100) + `[redacted:pem]` + long(100) + `[redacted:github-token]` + long(190) + `"`),
			want: []transcript.Entry{tool("[result Bash]\n" + long(395) + "[redacted:jwt]\n[… 214 characters left out, 1 redacted …]\n[redacted:github-token]" + long(190))},
		},
		"ResultReminder": {reason: "reminders are not the tool's", before: bash, line: result(`"a<system-reminder>x</system-reminder>"`), want: []transcript.Entry{tool("[result Bash]\na")}},
		"ResultOurs":     {reason: "nor is our own memory", before: bash, line: result(`"a <team_memory id=\"w\">x</team_memory> b <team_memory id=\"v\">y"`), want: []transcript.Entry{tool("[result Bash]\na  b")}},
		"ResultOursJSON": {
			reason: "nor as a file holds it, in JSON", before: bash,
			line: result(`"a {\"x\":\"\\u003cteam_memory id=\\\"w\\\"\\u003efacts \\\\u003c/team_memory\\\\u003e more\\u003c/team_memory\\u003e\"} b"`),
			want: []transcript.Entry{tool("[result Bash]\na {\"x\":\"\"} b")},
		},
		"ResultOursJSONTwice": {
			reason: "however often it was encoded", before: bash, line: result(`"a \\\\u003Cteam_memory\\\\u003Efacts\\\\u003C\\/team_memory\\\\u003E b"`),
			want: []transcript.Entry{tool("[result Bash]\na  b")},
		},
		"ResultOursSlash": {
			reason: "nor as other programs write JSON", before: bash, line: result(`"a <team_memory id=\\\"w\\\">facts<\\/team_memory> b"`),
			want: []transcript.Entry{tool("[result Bash]\na  b")},
		},
		"ResultOursHTML": {
			reason: "nor in HTML", before: bash, line: result(`"a &lt;team_memory id=1&gt;facts&lt;/team_memory&gt; b"`),
			want: []transcript.Entry{tool("[result Bash]\na  b")},
		},
		"ResultOursJSONOpen": {
			reason: "nor what a tool cut", before: bash, line: result(`"a \\u003cteam_memory\\u003efacts"`),
			want: []transcript.Entry{tool("[result Bash]\na")},
		},
		"ResultNotOursJSON": {
			reason: "another element is", before: bash, line: result(`"\\u003cteam_memory_x\\u003e u003cteam_memory "`),
			want: []transcript.Entry{tool(`[result Bash]` + "\n" + `\u003cteam_memory_x\u003e u003cteam_memory`)},
		},
		"UserOursJSON": {
			reason: "nor pasted", line: `{"type":"user","message":{"content":"see \\u003cteam_memory\\u003efacts\\u003c/team_memory\\u003e ?"}}`,
			want: []transcript.Entry{{Speaker: transcript.User, Text: "see  ?"}},
		},
		"ResultNotOurs": {reason: "another element is", before: bash, line: result(`"<team_memory_x>"`), want: []transcript.Entry{tool("[result Bash]\n<team_memory_x>")}},
		"UserOurs":      {reason: "what a person pastes of it is not fed back", line: `{"type":"user","message":{"content":"<team_memory id=\"w\">x</team_memory>"}}`},
		"UserProse":     {reason: "what a person says about it is", line: `{"type":"user","message":{"content":"What is <team_memory id=1> for?"}}`, want: []transcript.Entry{{Speaker: transcript.User, Text: "What is <team_memory id=1> for?"}}},
		"AssistantOurs": {reason: "nor what the assistant quotes", line: `{"type":"assistant","message":{"content":[{"type":"text","text":"It says <team_memory>x</team_memory> so."}]}}`, want: []transcript.Entry{{Speaker: transcript.Assistant, Text: "It says  so."}}},
		"CallOurs":      {reason: "nor what it greps for", line: call("Bash", `{"command":"grep '<team_memory>x</team_memory>'"}`), want: []transcript.Entry{tool("[tool Bash: grep '']")}},
		"HookContext":   {reason: "what hooks put in is no memory", policy: all, line: `{"type":"attachment","attachment":{"type":"hook_additional_context","content":["x"]}}`},
		"Queued":        {reason: "a queued prompt is a person's", line: `{"type":"attachment","attachment":{"type":"queued_command","prompt":"x"}}`, want: []transcript.Entry{{Speaker: transcript.User, Text: "x"}}},
		"Synthetic":     {reason: "what the program says is not", policy: all, line: `{"type":"assistant","message":{"model":"<synthetic>","content":[{"type":"text","text":"x"},{"type":"tool_use","name":"Bash"}]}}`},
		"Summary":       {reason: "nor what is in a compact summary", policy: all, before: bash, line: strings.Replace(result(`"x"`), `{`, `{"isCompactSummary":true,`, 1)},
		"Foreign":       {reason: "nor another session's", policy: all, line: strings.Replace(bash, `{`, `{"sessionId":"other",`, 1)},
		"Sidechain":     {reason: "nor an agent's", policy: all, line: strings.Replace(bash, `{`, `{"isSidechain":true,`, 1)},
		"Agent":         {reason: "but in its own stream", kind: transcript.AgentStream, line: strings.Replace(bash, `{`, `{"isSidechain":true,`, 1), want: []transcript.Entry{tool("[tool Bash: ls]")}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var tools transcript.Tools
			if tc.before != "" {
				tools.Fold(parse(t, tc.before))
			}
			r := parse(t, tc.line)
			got := r.Memory(tc.kind, session, tc.policy, &tools)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\n-want, +got:\n%s", tc.reason, diff)
			}
			if tc.before == "" && tc.policy != all {
				if diff := cmp.Diff(tc.want, r.Memory(tc.kind, session, tc.policy, nil)); diff != "" {
					t.Errorf("without tools: -want, +got:\n%s", diff)
				}
			}
		})
	}
}

// TestToolsAreBounded: the oldest calls are forgotten, the first name stands.
func TestToolsAreBounded(t *testing.T) {
	var tools transcript.Tools
	add := func(id, name string) {
		tools.Fold(parse(t, `{"type":"assistant","message":{"content":[{"type":"tool_use","id":"`+id+`","name":"`+name+`"}]}}`))
	}
	add("first", "Bash")
	add("second", "Bash")
	add("second", "WebFetch")
	for range 4095 {
		add(strings.Repeat("x", tools.Len()+1), "Read")
	}
	if tools.Len() != 4096 || tools.Has("first") || !tools.Has("second") {
		t.Errorf("%d calls, the first %v, the second %v; want 4096, false, true", tools.Len(), tools.Has("first"), tools.Has("second"))
	}
	missing := parse(t, `{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"first"},{"type":"tool_result","tool_use_id":"second"},{"type":"tool_result"}]}}`)
	if diff := cmp.Diff([]string{"first"}, tools.Missing(missing)); diff != "" {
		t.Errorf("missing calls: -want, +got:\n%s", diff)
	}
}

// TestMemoryCorpus keeps what memory gets of every talk by the default policy,
// and of some by the widest.
func TestMemoryCorpus(t *testing.T) {
	var w strings.Builder
	for _, e := range expectations(t) {
		raw, err := os.ReadFile(corpus + "/" + e.File)
		if err != nil {
			t.Fatal(err)
		}
		got := read(t, raw, kindOf(e), e.SessionID, nil)
		if got.memory != got.rendered {
			w.WriteString("== " + e.File + "\n" + got.memory)
		}
		if again := read(t, raw, kindOf(e), e.SessionID, nil); again.memory != got.memory {
			t.Errorf("%s: rendered twice, two texts", e.File)
		}
		if strings.HasPrefix(e.File, "p06") || strings.HasPrefix(e.File, "p34") {
			var (
				tools transcript.Tools
				all   strings.Builder
			)
			each(t, corpus+"/"+e.File, func(r transcript.Record) {
				transcript.Render(&all, r.Memory(kindOf(e), e.SessionID, transcript.Policy{ToolResults: transcript.AllResults, Thinking: true}, &tools))
			})
			w.WriteString("== " + e.File + " (everything)\n" + all.String())
		}
	}
	compareGolden(t, "memory.golden", w.String())
}
