package claude

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// witnessVariable names the witness's folder to its hooks.
const witnessVariable = "UNDERSONG_TEST_WITNESS"

// witnessArgument makes a test binary a hook.
const witnessArgument = "be-the-witness"

// events are all that Claude Code has a hook for.
var events = []string{
	"SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "PostToolUseFailure", "PermissionRequest", "Notification",
	"Stop", "StopFailure", "SubagentStart", "SubagentStop", "PreCompact", "PostCompact", "SessionEnd",
}

// Witness is a hook of the project's own, beside those of the user's settings.
// It writes down every call, so that a test knows where Claude Code stands, and
// can behave as other people's hooks do: speak, and refuse a prompt.
type Witness struct {
	// Dir keeps the calls.
	Dir string
	// Speaks is what it prints at an event.
	Speaks map[string]string
	// Refuses are words in prompts that it blocks, saying Refusal.
	Refuses, Refusal string
}

// Call is one call of a hook.
type Call struct {
	Event      string `json:"hook_event_name"`
	Session    string `json:"session_id"`
	Transcript string `json:"transcript_path"`
	Prompt     string `json:"prompt"`
	PromptID   string `json:"prompt_id"`
	Source     string `json:"source"`
	AgentID    string `json:"agent_id"`
	Tool       string `json:"tool_name"`
	Last       string `json:"last_assistant_message"`
	// Env are the variables that tell how the session runs.
	Env map[string]string `json:"env"`
}

// NewWitness returns a witness in a folder that exists.
func NewWitness(dir string) *Witness { return &Witness{Dir: dir, Speaks: map[string]string{}} }

// hooks are the settings that call it: the binary that runs now, which must call
// BeWitness first.
func (w *Witness) hooks() map[string]any {
	self, err := os.Executable()
	if err != nil {
		panic(err) // nothing works without
	}
	command := "'" + strings.ReplaceAll(self, "'", `'\''`) + "' " + witnessArgument
	all := map[string]any{}
	for _, e := range events {
		all[e] = []any{map[string]any{"hooks": []any{map[string]any{"type": "command", "command": command}}}}
	}
	return all
}

// Tell puts down how it is to behave.
func (w *Witness) Tell() error { return writeJSON(filepath.Join(w.Dir, "witness.json"), w) }

// Calls returns the calls so far, in the order in which they came.
func (w *Witness) Calls() ([]Call, error) {
	data, err := os.ReadFile(filepath.Join(w.Dir, "calls.jsonl"))
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var calls []Call
	for line := range strings.Lines(string(data)) {
		if !strings.HasSuffix(line, "\n") {
			break // being written
		}
		var c Call
		if err := json.Unmarshal([]byte(line), &c); err != nil {
			return nil, fmt.Errorf("read the witness: %w", err)
		}
		calls = append(calls, c)
	}
	return calls, nil
}

// BeWitness is for TestMain: it reports whether this process is a hook, and with
// which code it then has to exit.
func BeWitness() (code int, is bool) {
	if len(os.Args) != 2 || os.Args[1] != witnessArgument {
		return 0, false
	}
	code, err := witness(os.Stdin, os.Stdout, os.Stderr, os.Getenv(witnessVariable))
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "witness:", err) // Claude Code shows it
		return 1, true
	}
	return code, true
}

func witness(in io.Reader, out, errs io.Writer, dir string) (int, error) {
	data, err := io.ReadAll(in)
	if err != nil {
		return 0, err
	}
	var c Call
	if err := json.Unmarshal(data, &c); err != nil {
		return 0, err
	}
	c.Env = map[string]string{}
	for _, name := range []string{"CLAUDE_ENV_FILE", "CLAUDE_PID", "CLAUDE_CODE_ENTRYPOINT", "CLAUDE_CODE_SESSION_ID", "UNDERSONG_SESSION"} {
		if v, ok := os.LookupEnv(name); ok {
			c.Env[name] = v
		}
	}
	line, err := json.Marshal(c)
	if err != nil {
		return 0, err
	}
	file, err := os.OpenFile(filepath.Join(dir, "calls.jsonl"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return 0, err
	}
	if _, err := file.Write(append(line, '\n')); err != nil { // one write: hooks run side by side
		return 0, err
	}
	if err := file.Close(); err != nil {
		return 0, err
	}
	var w Witness
	behaviour, err := os.ReadFile(filepath.Join(dir, "witness.json"))
	if os.IsNotExist(err) {
		return 0, nil
	}
	if err == nil {
		err = json.Unmarshal(behaviour, &w)
	}
	if err != nil {
		return 0, err
	}
	if c.Event == "UserPromptSubmit" && w.Refuses != "" && strings.Contains(c.Prompt, w.Refuses) {
		_, err := io.WriteString(errs, w.Refusal)
		return 2, err
	}
	_, err = io.WriteString(out, w.Speaks[c.Event])
	return 0, err
}
