// Package replay plays coding sessions the way Claude Code does: it appends
// records to a transcript and calls the hooks with the input, environment and
// working directory that the real one was seen to use, in its order, late
// file and late records included.
package replay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/google/uuid"
)

// Hooks calls a hook.
type Hooks interface {
	Hook(ctx context.Context, cwd string, input any, env ...string) (string, error)
}

// Session is one session that is being played.
type Session struct {
	// ID is the session's id, Transcript its file, Cwd its working directory.
	ID, Transcript, Cwd string

	hooks  Hooks
	last   string // uuid of the newest record in the chain
	prompt string // id of the newest prompt
	at     time.Time
	begun  bool
}

// Output is what a hook printed, taken apart.
type Output struct {
	// Raw is all of it.
	Raw string
	// Message is what the person sees, Context what the model is given.
	Message, Context string
}

// slug is how Claude Code names a project's folder.
var slug = regexp.MustCompile(`[^A-Za-z0-9]`)

// New returns a session in a project folder, whose transcript will be in
// Claude Code's configuration folder.
func New(hooks Hooks, claudeDir, cwd, id string) *Session {
	return &Session{
		ID: id, Cwd: cwd, hooks: hooks, at: time.Now().UTC(), //nolint:forbidigo // a session that is played now
		Transcript: filepath.Join(claudeDir, "projects", slug.ReplaceAllString(cwd, "-"), id+".jsonl"),
	}
}

// Start calls the SessionStart hook. The transcript does not exist yet.
func (s *Session) Start(ctx context.Context, source string) (Output, error) {
	if now := time.Now().UTC(); now.After(s.at) { //nolint:forbidigo // it goes on now
		s.at = now
	}
	return s.call(ctx, "SessionStart", map[string]any{"source": source, "model": "claude-demo-1"})
}

// Prompt calls the UserPromptSubmit hook and then writes what a person typed.
func (s *Session) Prompt(ctx context.Context, text string) (Output, error) {
	s.prompt = uuid.NewString()
	out, err := s.call(ctx, "UserPromptSubmit", map[string]any{"prompt": text, "permission_mode": "default"})
	if err != nil {
		return out, err
	}
	records := []map[string]any{}
	if !s.begun {
		s.begun = true
		records = append(records,
			map[string]any{"type": "mode", "mode": "default", "sessionId": s.ID},
			map[string]any{"type": "permission-mode", "permissionMode": "default", "sessionId": s.ID})
	}
	records = append(records, s.record("user", map[string]any{
		"message": map[string]any{"role": "user", "content": text}, "origin": map[string]any{"kind": "human"}, "promptSource": "typed", "promptId": s.prompt,
	}))
	if out.Context != "" {
		records = append(records, s.injected("UserPromptSubmit", out.Context))
	}
	return out, s.append(records...)
}

// Typed writes a prompt whose hook died: Claude Code goes on without it.
func (s *Session) Typed(text string) error {
	return s.append(s.record("user", map[string]any{
		"message": map[string]any{"role": "user", "content": text}, "origin": map[string]any{"kind": "human"}, "promptSource": "typed", "promptId": s.prompt,
	}))
}

// injected is the record that tells what the model was given by a hook.
func (s *Session) injected(event, text string) map[string]any {
	return s.record("attachment", map[string]any{"attachment": map[string]any{
		"type": "hook_additional_context", "content": []string{text}, "hookName": event, "hookEvent": event, "toolUseID": "hook-" + uuid.NewString()[:8],
	}})
}

// Old writes a turn of another time, of which no hook was called.
func (s *Session) Old(at time.Time, prompt, answer string) error {
	s.at, s.begun = at.UTC(), true
	return s.append(
		map[string]any{"type": "mode", "mode": "default", "sessionId": s.ID},
		s.record("user", map[string]any{
			"message": map[string]any{"role": "user", "content": prompt}, "origin": map[string]any{"kind": "human"}, "promptSource": "typed",
		}),
		s.record("assistant", map[string]any{"message": s.message([]map[string]any{{"type": "text", "text": answer}}, "end_turn")}),
	)
}

// Tool calls the PreToolUse hook and writes a tool call and its result.
func (s *Session) Tool(ctx context.Context, name string, input map[string]any, result string) (Output, error) {
	id := "toolu_" + strings.ReplaceAll(uuid.NewString(), "-", "")[:20]
	err := s.append(s.record("assistant", map[string]any{"message": s.message([]map[string]any{{"type": "tool_use", "id": id, "name": name, "input": input}}, "tool_use")}))
	if err != nil {
		return Output{}, err
	}
	out, err := s.call(ctx, "PreToolUse", map[string]any{"tool_name": name, "tool_input": input, "tool_use_id": id, "permission_mode": "default"})
	if err != nil {
		return out, err
	}
	records := []map[string]any{s.record("user", map[string]any{
		"message":       map[string]any{"role": "user", "content": []map[string]any{{"type": "tool_result", "tool_use_id": id, "content": result}}},
		"toolUseResult": map[string]any{"stdout": result, "stderr": ""},
	})}
	if out.Context != "" {
		records = append(records, s.injected("PreToolUse", out.Context))
	}
	return out, s.append(records...)
}

// Answer writes what the assistant said and calls the Stop hook.
func (s *Session) Answer(ctx context.Context, text string) error {
	if err := s.append(s.record("assistant", map[string]any{"message": s.message([]map[string]any{{"type": "text", "text": text}}, "end_turn")})); err != nil {
		return err
	}
	if err := s.Stop(ctx, text); err != nil {
		return err
	}
	return s.append(
		s.record("system", map[string]any{"subtype": "turn_duration", "durationMs": 1200}),
		map[string]any{"type": "last-prompt", "lastPrompt": text, "sessionId": s.ID},
	)
}

// Stop calls the Stop hook.
func (s *Session) Stop(ctx context.Context, last string) error {
	return s.silent(ctx, "Stop", map[string]any{"stop_hook_active": false, "last_assistant_message": last, "permission_mode": "default"})
}

// Title writes a title as Claude Code makes one.
func (s *Session) Title(text string) error {
	return s.append(map[string]any{"type": "ai-title", "aiTitle": text, "sessionId": s.ID})
}

// Subagent writes a subagent's own file and calls SubagentStop.
func (s *Session) Subagent(ctx context.Context, id, asked, said string) error {
	path := filepath.Join(strings.TrimSuffix(s.Transcript, ".jsonl"), "subagents", "agent-"+id+".jsonl")
	agent := &Session{ID: s.ID, Transcript: path, Cwd: s.Cwd, at: s.at}
	own := map[string]any{"isSidechain": true, "agentId": id}
	prompt := agent.record("user", map[string]any{"message": map[string]any{"role": "user", "content": asked}})
	reply := agent.record("assistant", map[string]any{"message": agent.message([]map[string]any{{"type": "text", "text": said}}, "end_turn")})
	for _, r := range []map[string]any{prompt, reply} {
		maps.Copy(r, own)
	}
	if err := agent.append(prompt, reply); err != nil {
		return err
	}
	return s.silent(ctx, "SubagentStop", map[string]any{"agent_id": id, "agent_type": "general-purpose", "agent_transcript_path": path, "stop_hook_active": false})
}

// End calls the SessionEnd hook.
func (s *Session) End(ctx context.Context) error {
	return s.silent(ctx, "SessionEnd", map[string]any{"reason": "prompt_input_exit"})
}

// silent calls a hook that must print nothing.
func (s *Session) silent(ctx context.Context, event string, extra map[string]any) error {
	out, err := s.call(ctx, event, extra)
	if err == nil && out.Raw != "" {
		return fmt.Errorf("the %s hook printed: %s", event, out.Raw)
	}
	return err
}

// call calls a hook and takes what it printed apart: one JSON object or
// nothing.
func (s *Session) call(ctx context.Context, event string, extra map[string]any) (Output, error) {
	input := map[string]any{"session_id": s.ID, "transcript_path": s.Transcript, "cwd": s.Cwd, "hook_event_name": event}
	if s.prompt != "" {
		input["prompt_id"] = s.prompt
	}
	maps.Copy(input, extra)
	raw, err := s.hooks.Hook(ctx, s.Cwd, input, "CLAUDE_CODE_SESSION_ID="+s.ID)
	out := Output{Raw: raw}
	if err != nil || raw == "" {
		return out, err
	}
	var printed struct {
		SystemMessage      string `json:"systemMessage"`
		HookSpecificOutput struct {
			HookEventName     string `json:"hookEventName"`
			AdditionalContext string `json:"additionalContext"`
		} `json:"hookSpecificOutput"`
	}
	d := json.NewDecoder(strings.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(&printed); err != nil {
		return out, fmt.Errorf("the %s hook printed what Claude Code would not read: %w: %q", event, err, raw)
	}
	if d.More() {
		return out, fmt.Errorf("the %s hook printed more than one object: %q", event, raw)
	}
	if name := printed.HookSpecificOutput.HookEventName; printed.HookSpecificOutput.AdditionalContext != "" && name != event {
		return out, fmt.Errorf("the %s hook answered for %q", event, name)
	}
	out.Message, out.Context = printed.SystemMessage, printed.HookSpecificOutput.AdditionalContext
	return out, nil
}

// record makes a record of the chain.
func (s *Session) record(kind string, extra map[string]any) map[string]any {
	s.at = s.at.Add(7 * time.Millisecond)
	id := uuid.NewString()
	r := map[string]any{
		"type": kind, "uuid": id, "parentUuid": nil, "isSidechain": false, "userType": "external", "entrypoint": "cli", "cwd": s.Cwd,
		"sessionId": s.ID, "version": "2.1.332", "gitBranch": "main", "timestamp": s.at.Format("2006-01-02T15:04:05.000Z"),
	}
	if s.last != "" {
		r["parentUuid"] = s.last
	}
	maps.Copy(r, extra)
	s.last = id
	return r
}

// message makes an API message.
func (s *Session) message(blocks []map[string]any, stop string) map[string]any {
	return map[string]any{
		"id": "msg_" + strings.ReplaceAll(uuid.NewString(), "-", "")[:20], "type": "message", "role": "assistant", "model": "claude-demo-1",
		"content": blocks, "stop_reason": stop, "usage": map[string]any{"input_tokens": 12, "output_tokens": 40},
	}
}

// append writes records at the end of the transcript, in one write.
func (s *Session) append(records ...map[string]any) error {
	var b []byte
	for _, r := range records {
		line, err := json.Marshal(r)
		if err != nil {
			return err
		}
		b = append(append(b, line...), '\n')
	}
	return s.write(b)
}

// write writes bytes at the end of the transcript.
func (s *Session) write(b []byte) (err error) {
	if err := os.MkdirAll(filepath.Dir(s.Transcript), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(s.Transcript, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	_, err = f.Write(b)
	return err
}

// Lines is the number of lines of the transcript and of its subagents.
func (s *Session) Lines() int64 {
	files, _ := filepath.Glob(filepath.Join(strings.TrimSuffix(s.Transcript, ".jsonl"), "subagents", "agent-*.jsonl")) // the pattern is well formed
	var n int64
	for _, f := range append(files, s.Transcript) {
		info, err := os.Lstat(f)
		if err != nil || !info.Mode().IsRegular() {
			continue // a link is no transcript of its own
		}
		if data, err := os.ReadFile(f); err == nil {
			n += int64(strings.Count(string(data), "\n"))
		}
	}
	return n
}
