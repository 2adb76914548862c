package transcript_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/undersong-dev/undersong/internal/redact"
	"github.com/undersong-dev/undersong/internal/transcript"
)

// TestEveryType reads one line of each type and subtype that was seen in any
// release, and of some that were not. Only the talk gives words, and none breaks
// the reader, as written and as it leaves the workstation.
func TestEveryType(t *testing.T) {
	// PLANTED stands where a type keeps text. It is wanted in words only where
	// words says so.
	cases := map[string]struct {
		line    string
		words   transcript.Speaker
		unknown bool
	}{
		"user":                      {line: `{"type":"user","promptSource":"typed","origin":{"kind":"human"},"turnOrigin":"human","turnPosition":{"promptIndex":1,"turnIndex":0},"message":{"role":"user","content":"PLANTED"}}`, words: transcript.User},
		"user/sdk":                  {line: `{"type":"user","promptSource":"sdk","turnOrigin":"sdk","rowSource":"local","message":{"role":"user","content":"PLANTED"}}`, words: transcript.User},
		"user/summary":              {line: `{"type":"user","isCompactSummary":true,"turnOrigin":"human","message":{"content":"PLANTED"}}`},
		"user/bash":                 {line: `{"type":"user","turnOrigin":"human","rowSource":"local","message":{"content":"<bash-stdout>PLANTED</bash-stdout>"}}`},
		"user/skill":                {line: `{"type":"user","isMeta":true,"message":{"content":[{"type":"text","text":"PLANTED"}]}}`},
		"user/interrupted":          {line: `{"type":"user","rowSource":"harness","interruptedMessageId":"m","message":{"content":[{"type":"text","text":"PLANTED"}]}}`},
		"assistant":                 {line: `{"type":"assistant","requestRef":"r","madeBy":"x","message":{"id":"m","model":"claude-demo-1","content":[{"type":"text","text":"PLANTED"}],"stop_reason":"end_turn"}}`, words: transcript.Assistant},
		"assistant/synthetic":       {line: `{"type":"assistant","isApiErrorMessage":false,"message":{"model":"<synthetic>","content":[{"type":"text","text":"PLANTED"}]}}`},
		"assistant/blocks":          {line: `{"type":"assistant","message":{"content":[{"type":"fallback","text":"PLANTED"},{"type":"of next year","text":"PLANTED"},{"type":"redacted_thinking","data":"PLANTED"}]}}`},
		"progress":                  {line: `{"type":"progress","data":{"type":"agent_progress","message":{"type":"user","message":{"content":"PLANTED"}}}}`},
		"summary":                   {line: `{"type":"summary","summary":"PLANTED","leafUuid":"l"}`},
		"custom-title":              {line: `{"type":"custom-title","customTitle":"PLANTED"}`},
		"ai-title":                  {line: `{"type":"ai-title","aiTitle":"PLANTED"}`},
		"agent-name":                {line: `{"type":"agent-name","agentName":"PLANTED"}`},
		"agent-color":               {line: `{"type":"agent-color","agentColor":"PLANTED"}`},
		"agent-setting":             {line: `{"type":"agent-setting","agentSetting":"PLANTED"}`},
		"last-prompt":               {line: `{"type":"last-prompt","lastPrompt":"PLANTED","leafUuid":"l"}`},
		"last-prompt/explicit":      {line: `{"type":"last-prompt","explicit":true,"leafUuid":"00000000-0000-0000-0000-000000000000"}`},
		"task-summary":              {line: `{"type":"task-summary","summary":"PLANTED","timestamp":"2026-10-01T09:00:00Z"}`},
		"tag":                       {line: `{"type":"tag","tag":"PLANTED"}`},
		"pr-link":                   {line: `{"type":"pr-link","prNumber":7,"prUrl":"https://example.test/PLANTED","prRepository":"demo/x"}`},
		"mode":                      {line: `{"type":"mode","mode":"PLANTED"}`},
		"permission-mode":           {line: `{"type":"permission-mode","permissionMode":"PLANTED"}`},
		"worktree-state":            {line: `{"type":"worktree-state","worktreeSession":{"worktreePath":"/PLANTED","sessionId":"other"}}`},
		"worktree-state/left":       {line: `{"type":"worktree-state","worktreeSession":null}`},
		"relocated":                 {line: `{"type":"relocated","relocatedCwd":"/PLANTED"}`},
		"continued-in":              {line: `{"type":"continued-in","continuedInSessionId":"PLANTED"}`},
		"fork-context-ref":          {line: `{"type":"fork-context-ref","agentId":"a","parentSessionId":"p","parentLastUuid":"u","contextLength":3}`},
		"history-suppression":       {line: `{"type":"history-suppression","cause":"PLANTED","ts":1}`},
		"queue-operation":           {line: `{"type":"queue-operation","operation":"enqueue","content":"PLANTED","timestamp":"2026-10-01T09:00:00Z"}`},
		"file-history-snapshot":     {line: `{"type":"file-history-snapshot","messageId":"m","snapshot":{"trackedFileBackups":{"PLANTED":1}},"isSnapshotUpdate":false}`},
		"file-history-delta":        {line: `{"type":"file-history-delta","snapshotMessageId":"m","trackingPath":"PLANTED","backup":{}}`},
		"attribution-snapshot":      {line: `{"type":"attribution-snapshot","messageId":"m","fileStates":{"PLANTED":{}}}`},
		"speculation-accept":        {line: `{"type":"speculation-accept","timeSavedMs":5}`},
		"content-replacement":       {line: `{"type":"content-replacement","replacements":[{"kind":"tool-result","replacement":"PLANTED"}]}`},
		"marble-origami-commit":     {line: `{"type":"marble-origami-commit","collapseId":"c","summaryContent":"PLANTED","summary":"PLANTED"}`},
		"marble-origami-snapshot":   {line: `{"type":"marble-origami-snapshot","staged":["PLANTED"],"armed":true}`},
		"marble-origami-reset":      {line: `{"type":"marble-origami-reset"}`},
		"bridge-session":            {line: `{"type":"bridge-session","account":"PLANTED"}`},
		"atis-latch":                {line: `{"type":"atis-latch","latched":true}`},
		"isolation-latch":           {line: `{"type":"isolation-latch","latched":true}`},
		"cost-state":                {line: `{"type":"cost-state","costUsd":1.5}`},
		"frame-link":                {line: `{"type":"frame-link","url":"PLANTED"}`},
		"artifact-comment-monitor":  {line: `{"type":"artifact-comment-monitor","x":"PLANTED"}`},
		"artifact-autoreact-ledger": {line: `{"type":"artifact-autoreact-ledger","x":"PLANTED"}`},
		"observer-ref":              {line: `{"type":"observer-ref","x":"PLANTED"}`},
		"ended-by-model":            {line: `{"type":"ended-by-model","x":"PLANTED"}`},
		"api-request-shape":         {line: `{"type":"api-request-shape","system":"PLANTED","tools":[{"name":"PLANTED"}]}`},
		"api-request-blob":          {line: `{"type":"api-request-blob","message":{"role":"user","content":"PLANTED"}}`},
		"api-request":               {line: `{"type":"api-request","params":{"model":"PLANTED"}}`},
		"tools-used":                {line: `{"type":"tools-used","tools":["PLANTED"]}`},
		"undersong-stub":            {line: `{"type":"undersong-stub","of":"attachment/hook_success","uuid":"u","bytes":7}`},
		"next year":                 {line: `{"type":"a-type-of-next-year","message":{"role":"user","content":"PLANTED"}}`, unknown: true},
		"no type":                   {line: `{"message":{"role":"user","content":"PLANTED"}}`, unknown: true},
		"odd type":                  {line: `{"type":["user"],"message":{"content":"PLANTED"}}`, unknown: true},
	}
	for _, subtype := range []string{
		"stop_hook_summary", "turn_duration", "compact_boundary", "local_command", "api_error", "microcompact_boundary", "informational", "away_summary",
		"bridge_status", "agents_killed", "model_refusal_fallback", "of_next_year", "",
	} {
		c := cases["mode"]
		c.line = `{"type":"system","subtype":"` + subtype + `","content":"PLANTED","message":{"content":"PLANTED"},"hookAdditionalContext":"PLANTED"}`
		cases["system/"+subtype] = c
	}
	for _, subtype := range []string{
		"total_tokens_reminder", "task_reminder", "prompt_snapshot", "environment", "model", "date", "session_context", "remote_session_change", "instructions",
		"skill_listing", "agent_listing_delta", "deferred_tools_delta", "mcp_instructions_delta", "file", "edited_text_file", "compact_file_reference", "plan_mode",
		"date_change", "invoked_skills", "hook_success", "hook_additional_context", "hook_system_message", "hook_non_blocking_error", "hook_blocking_error",
		"hook_cancelled", "async_hook_response", "structured_output", "auto_mode", "task_status", "of_next_year", "",
	} {
		c := cases["mode"]
		c.line = `{"type":"attachment","rendered":["PLANTED"],"renderedRole":"system","attachment":{"type":"` + subtype + `","content":["PLANTED"],"prompt":"PLANTED","stdout":"PLANTED"}}`
		cases["attachment/"+subtype] = c
	}
	c := cases["user"]
	c.line = `{"type":"attachment","attachment":{"type":"queued_command","prompt":"PLANTED","commandMode":"prompt","origin":{"kind":"human"}}}`
	cases["attachment/queued_command"] = c

	redactor, err := redact.New()
	if err != nil {
		t.Fatal(err)
	}
	everything := transcript.Policy{ToolResults: transcript.AllResults, Thinking: true}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			leaves, _ := redactor.Line([]byte(tc.line))
			for _, line := range []string{tc.line, leaves.String()} {
				r := parse(t, line)
				var want []transcript.Entry
				if tc.words != "" {
					want = []transcript.Entry{{Speaker: tc.words, Text: "PLANTED"}}
				}
				if diff := cmp.Diff(want, r.Entries(transcript.MainStream, session)); diff != "" {
					t.Errorf("words of %s: -want, +got:\n%s", line, diff)
				}
				if diff := cmp.Diff(want, r.Memory(transcript.MainStream, session, everything, nil)); diff != "" {
					t.Errorf("memory of %s: -want, +got:\n%s", line, diff)
				}
				var (
					state transcript.State
					usage transcript.Usage
					tree  transcript.Tree
				)
				state.Fold(r, session)
				usage.Fold(r, transcript.MainStream, session)
				tree.Fold(r, session)
			}
			r := parse(t, tc.line)
			if transcript.KnownType(r.Type) == tc.unknown {
				t.Errorf("type %q: known is %v", r.Type, !tc.unknown)
			}
			if base, _, _ := strings.Cut(name, "/"); !tc.unknown && r.Type != base {
				t.Errorf("type %q, want %q", r.Type, base)
			}
		})
	}
}
