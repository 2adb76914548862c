package lettatest_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/undersong-dev/undersong/internal/letta/lettatest"
	"github.com/undersong-dev/undersong/internal/letta/modelstub"
)

// said is a request's messages: role and text by turns.
func said(parts ...string) modelstub.Request {
	var r modelstub.Request
	for i := 0; i < len(parts); i += 2 {
		content, _ := json.Marshal(parts[i+1]) // a string always encodes
		r.Messages = append(r.Messages, modelstub.Message{Role: parts[i], Content: content})
	}
	return r
}

func heard(id, session, words string) string {
	return fmt.Sprintf(`<transcript_delta id="%s" session="%s"><message role="user">%s</message></transcript_delta>`, id, session, words)
}

func TestScript(t *testing.T) {
	const known = "You listen.\n<memory>\n<conventions>\n  <description>what holds</description>\n  - tide tables are stored in GMT\n</conventions>\n</memory>"
	insert := func(file, text string) modelstub.Step {
		return modelstub.Step{Calls: []modelstub.Call{{Name: "memory", Arguments: map[string]any{
			"command": "insert", "reason": "a session taught it", "file_path": "system/" + file + ".md",
			"insert_line": 1 << 20, "insert_text": text,
		}}}}
	}
	teaches := heard("d1", "s1", "Note for the team: wombats come in dozens")
	cases := map[string]struct {
		reason string
		in     modelstub.Request
		want   modelstub.Step
	}{
		"Teaches": {
			"a lesson is written with the tool", said("system", "You listen.", "user", teaches),
			insert("conventions", "- wombats come in dozens"),
		},
		"Adds": {
			"what is known is left alone", said("system", known, "user", heard("d1", "s1", "Careful: tables may be empty")),
			insert("pitfalls", "- tables may be empty"),
		},
		"AfterTool": {
			"one call, then the answer", said("system", "You listen.", "user", teaches, "assistant", "", "tool", "Edited."),
			modelstub.Step{Text: "(silence)"},
		},
		"Known": {
			"a lesson that is known is not written again", said("system", known, "user", heard("d1", "s1", "Remember: tide tables are stored in GMT")),
			modelstub.Step{Text: "(silence)"},
		},
		"Tells": {
			"what a colleague taught is said", said("system", known, "user", heard("d2", "s2", "Are tide tables stored in local time?")),
			modelstub.Step{Text: "From an earlier session in this project: tide tables are stored in GMT"},
		},
		"Own": {
			"a session is not told what it taught itself",
			said("system", known, "user", heard("d1", "s1", "Remember: tide tables are stored in GMT"), "assistant", "(silence)",
				"user", heard("d2", "s1", "Are tide tables stored in local time?")),
			modelstub.Step{Text: "(silence)"},
		},
		"Again": {
			"a delta that comes again is silence", said("system", "You listen.", "user", teaches, "assistant", "(silence)", "user", teaches),
			modelstub.Step{Text: "(silence)"},
		},
		"Newest": {
			"of two renderings of a block the last counts",
			said("system", known+"\n<memory_update><conventions>\n</conventions></memory_update>", "user", heard("d2", "s2", "Are tide tables stored in local time?")),
			modelstub.Step{Text: "(silence)"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, lettatest.Script(tc.in)); diff != "" {
				t.Errorf("%s: -want +got:\n%s", tc.reason, diff)
			}
		})
	}
}
