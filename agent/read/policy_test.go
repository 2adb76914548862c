package read

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/undersong-dev/undersong/internal/redact"
	"github.com/undersong-dev/undersong/internal/transcript"
)

// TestThePolicyIsKeptOnTheWorkstation: what the team does not hear is in no
// batch, whichever batch had the tool's call.
func TestThePolicyIsKeptOnTheWorkstation(t *testing.T) {
	call := func(id, tool string) string {
		return fmt.Sprintf(`{"type":"assistant","uuid":"c%[1]s","sessionId":%[3]q,"cwd":"/tide","message":{"role":"assistant","content":[{"type":"thinking","thinking":"secretly %[1]s"},{"type":"tool_use","id":%[1]q,"name":%[2]q,"input":{}}]}}`, id, tool, session)
	}
	result := func(id string) string {
		return fmt.Sprintf(`{"type":"user","uuid":"r%[1]s","sessionId":%[2]q,"cwd":"/tide","message":{"role":"user","content":[{"type":"tool_result","tool_use_id":%[1]q,"content":"gave %[1]s"}]}}`, id, session)
	}
	for name, test := range map[string]struct {
		reason string
		policy transcript.Policy
		want   []string
	}{
		"default": {"local results only, no thoughts", transcript.Policy{}, []string{"gave near"}},
		"all":     {"everything", transcript.Policy{Thinking: true, ToolResults: transcript.AllResults}, []string{"secretly near", "secretly far", "gave near", "gave far"}},
		"none":    {"no results", transcript.Policy{ToolResults: transcript.NoResults}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			r := newReader(t)
			r.Policy = func() transcript.Policy { return test.policy }
			src := transcriptAt(t, t.TempDir(), user(1, "/tide"), call("near", "Bash"), call("far", "WebFetch"))
			first := must(t, r, src, Cursor{}, Want{})
			add(t, src.Path, result("near")+"\n"+result("far")+"\n")
			second := must(t, r, src, first.Cursor, Want{Project: &tide})
			text := ""
			for _, line := range append(first.Lines, second.Lines...) {
				text += line.String() + "\n"
			}
			var got []string
			for _, said := range []string{"secretly near", "secretly far", "gave near", "gave far"} {
				if strings.Contains(text, said) {
					got = append(got, said)
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", test.reason, diff)
			}
			if strings.Count(text, "\n") != 5 {
				t.Errorf("%d lines left, want all 5:\n%s", strings.Count(text, "\n"), text)
			}
			if len(second.Cursor.Calls) != 0 {
				t.Errorf("calls that have their results are still waited for: %v", second.Cursor.Calls)
			}
		})
	}
}

// TestTheRepositorysOwnRulesHoldForTheBranch: its name stands unsealed in the
// Session.
func TestTheRepositorysOwnRulesHoldForTheBranch(t *testing.T) {
	own, err := redact.New(redact.Options{Project: []redact.Rule{{Pattern: `(?i)bluebird`}}})
	if err != nil {
		t.Fatal(err)
	}
	said := func(n int, cwd, branch string) string {
		return fmt.Sprintf(`{"type":"user","uuid":"u%d","sessionId":%q,"cwd":%q,"gitBranch":%q,"origin":{"kind":"human"},"message":{"role":"user","content":"words"}}`, n, session, cwd, branch)
	}
	r := newReader(t)
	r.Decide = func(cwd, entrypoint string) Verdict {
		v := decide(cwd, entrypoint)
		if cwd == "/tide" {
			v.Redactor = own
		}
		return v
	}
	for name, tc := range map[string]struct {
		lines []string
		want  string
	}{
		"one folder":            {[]string{said(1, "/tide", "feature/bluebird-offer")}, "feature/[redacted:project-1]-offer"},
		"then one without":      {[]string{said(1, "/tide", "feature/bluebird-offer"), said(2, "/tide-hotfix", "")}, "feature/[redacted:project-1]-offer"},
		"then another branch":   {[]string{said(1, "/tide", "feature/bluebird-offer"), said(2, "/tide-hotfix", "fix")}, "fix"},
		"a folder without them": {[]string{said(1, "/tide-hotfix", "bluebird")}, "bluebird"},
	} {
		t.Run(name, func(t *testing.T) {
			batch, err := r.Next(t.Context(), transcriptAt(t, t.TempDir(), tc.lines...), Cursor{}, Want{})
			if err != nil {
				t.Fatal(err)
			}
			if got := batch.Branch.String(); got != tc.want {
				t.Errorf("branch %q, want %q", got, tc.want)
			}
		})
	}
}
