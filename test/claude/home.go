package claude

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// key is what Claude Code shows to the model. It is worth nothing.
const key = "sk-ant-dummy-local-key-0000000000000000"

// Home is one person's Claude Code: a home folder, and a model.
type Home struct {
	// Dir is HOME. Its .claude may hold settings already.
	Dir string
	// Program is Claude Code, Model what answers it.
	Program string
	Model   *Model
	// Witness is where the project's own hooks report. Empty: it has none.
	Witness *Witness
	// Env is added to the environment.
	Env map[string]string
}

// Prepare lets Claude Code work in a folder without asking a person anything:
// neither at its first start nor for the tools of a test. The folder's settings
// name the Witness.
func (h *Home) Prepare(project string) error {
	config := map[string]any{
		"hasCompletedOnboarding": true, "lastOnboardingVersion": "2.1.332", "theme": "dark", "numStartups": 5,
		"customApiKeyResponses": map[string]any{"approved": []string{key[len(key)-20:]}, "rejected": []string{}},
		"projects":              map[string]any{project: map[string]any{"hasTrustDialogAccepted": true, "hasCompletedProjectOnboarding": true}},
	}
	settings := map[string]any{"permissions": map[string]any{"allow": []string{"Bash", "Read", "Agent"}}}
	if h.Witness != nil {
		settings["hooks"] = h.Witness.hooks()
	}
	return errors.Join(
		writeJSON(filepath.Join(h.Dir, ".claude.json"), config),
		writeJSON(filepath.Join(project, ".claude", "settings.json"), settings),
	)
}

func writeJSON(path string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o600)
}

// Environ is all that Claude Code gets: nothing of the caller's.
func (h *Home) Environ() []string {
	env := map[string]string{
		"HOME": h.Dir, "PATH": "/usr/local/bin:/usr/bin:/bin", "TERM": "xterm-256color", "LANG": "C.UTF-8", "SHELL": "/bin/bash",
		"TMPDIR": filepath.Join(h.Dir, "tmp"), "CLAUDE_CODE_TMPDIR": filepath.Join(h.Dir, "tmp"),
		"ANTHROPIC_BASE_URL": h.Model.URL, "ANTHROPIC_API_KEY": key,
		"DISABLE_TELEMETRY": "1", "DISABLE_AUTOUPDATER": "1", "DISABLE_ERROR_REPORTING": "1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
	}
	if h.Witness != nil {
		env[witnessVariable] = h.Witness.Dir
	}
	maps.Copy(env, h.Env)
	var list []string
	for _, name := range slices.Sorted(maps.Keys(env)) {
		list = append(list, name+"="+env[name])
	}
	return list
}

// Result is what a headless run printed.
type Result struct {
	// Session is its id, Text the last answer, Took how long it ran.
	Session, Text string
	Took          time.Duration
}

// Headless runs claude -p with stream-json on stdout, in a folder.
func (h *Home) Headless(ctx context.Context, dir, prompt string, args ...string) (Result, error) {
	if err := os.MkdirAll(filepath.Join(h.Dir, "tmp"), 0o700); err != nil {
		return Result{}, err
	}
	args = append([]string{"-p", prompt, "--output-format", "stream-json", "--verbose"}, args...)
	cmd := exec.CommandContext(ctx, h.Program, args...)
	cmd.Dir, cmd.Env = dir, h.Environ()
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	begin := time.Now() //nolint:forbidigo // how long it really takes
	err := cmd.Run()
	r := Result{Took: time.Since(begin)} //nolint:forbidigo // see above
	if err != nil {
		return r, fmt.Errorf("claude -p: %w: %s\n%s", err, errs.String(), out.String())
	}
	for line := range strings.Lines(out.String()) {
		var m struct {
			Type    string `json:"type"`
			Session string `json:"session_id"`
			Result  string `json:"result"`
		}
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			return r, fmt.Errorf("claude -p printed what is no JSON: %q", line)
		}
		if m.Type == "result" {
			r.Session, r.Text = m.Session, m.Result
		}
	}
	if r.Session == "" {
		return r, fmt.Errorf("claude -p printed no result: %s", out.String())
	}
	return r, nil
}

// Transcripts are the files of all sessions, by session id.
func (h *Home) Transcripts() map[string]string {
	files, _ := filepath.Glob(filepath.Join(h.Dir, ".claude", "projects", "*", "*.jsonl")) // the pattern is well formed
	found := map[string]string{}
	for _, f := range files {
		found[strings.TrimSuffix(filepath.Base(f), ".jsonl")] = f
	}
	return found
}
