package replay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/undersong-dev/undersong/internal/redact"
	"github.com/undersong-dev/undersong/internal/transcript"
)

// Recorded is a transcript that was written before and is played again: its
// lines as they are, but for the working directory, and the hooks where they
// belong.
type Recorded struct {
	*Session
	lines  [][]byte
	agents map[string][][]byte // lines of subagents, by the name of the file
}

// NewRecorded returns the transcript in a file, with its subagents beside it, as
// a session in a project folder. cwd is the working directory that its records
// name.
func NewRecorded(hooks Hooks, claudeDir, project, file, id, cwd string) (*Recorded, error) {
	r := &Recorded{Session: New(hooks, claudeDir, project, id), agents: map[string][][]byte{}}
	read := func(path string) ([][]byte, error) {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		data = bytes.ReplaceAll(data, fmt.Appendf(nil, "%q", cwd), fmt.Appendf(nil, "%q", project))
		return bytes.Split(bytes.TrimSuffix(data, []byte("\n")), []byte("\n")), nil
	}
	var err error
	if r.lines, err = read(file); err != nil {
		return nil, err
	}
	files, err := filepath.Glob(filepath.Join(strings.TrimSuffix(file, ".jsonl"), "subagents", "agent-*.jsonl"))
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		if r.agents[filepath.Base(file)], err = read(file); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// Lay writes all of it at once, as it lies there when nobody called a hook.
func (r *Recorded) Lay() error {
	err := r.write(append(bytes.Join(r.lines, []byte("\n")), '\n'))
	for name, lines := range r.agents {
		agent := &Session{Transcript: filepath.Join(strings.TrimSuffix(r.Transcript, ".jsonl"), "subagents", name)}
		err = errors.Join(err, agent.write(append(bytes.Join(lines, []byte("\n")), '\n')))
	}
	return err
}

// Play plays all of it.
func (r *Recorded) Play(ctx context.Context) error {
	if _, err := r.Start(ctx, "startup"); err != nil {
		return err
	}
	for _, line := range r.lines {
		if err := r.line(ctx, line); err != nil {
			return err
		}
	}
	for name, lines := range r.agents {
		agent := &Session{Transcript: filepath.Join(strings.TrimSuffix(r.Transcript, ".jsonl"), "subagents", name)}
		id := strings.TrimSuffix(strings.TrimPrefix(name, "agent-"), ".jsonl")
		err := agent.write(append(bytes.Join(lines, []byte("\n")), '\n'))
		err = errors.Join(err, r.silent(ctx, "SubagentStop", map[string]any{"agent_id": id, "agent_type": "general-purpose", "agent_transcript_path": agent.Transcript}))
		if err != nil {
			return err
		}
	}
	return errors.Join(r.Stop(ctx, ""), r.End(ctx))
}

// line writes a line, with the hook that Claude Code calls around it.
func (r *Recorded) line(ctx context.Context, line []byte) error {
	record, err := transcript.Parse(line)
	if err != nil {
		return r.write(append(slices.Clip(line), '\n')) // a bad line is one of the corpus's cases
	}
	if said := record.Entries(transcript.MainStream, r.ID); record.Type == "user" && len(said) > 0 {
		r.prompt = record.UUID
		if _, err := r.call(ctx, "UserPromptSubmit", map[string]any{"prompt": said[0].Text, "permission_mode": "default"}); err != nil {
			return err
		}
	}
	if err := r.write(append(slices.Clip(line), '\n')); err != nil {
		return err
	}
	for _, id := range record.LocalCalls() {
		if _, err := r.call(ctx, "PreToolUse", map[string]any{"tool_name": "Bash", "tool_use_id": id, "permission_mode": "default"}); err != nil {
			return err
		}
	}
	return nil
}

// Heard is the number of lines of it that are to be sent: all but blank ones.
func (r *Recorded) Heard() int64 {
	n := int64(0)
	count := func(lines [][]byte) {
		for _, line := range lines {
			if len(bytes.TrimSpace(line)) > 0 {
				n++
			}
		}
	}
	count(r.lines)
	for _, lines := range r.agents {
		count(lines)
	}
	return n
}

// Said returns the words of it as memory is to get them.
func (r *Recorded) Said(redactor *redact.Redactor) []string {
	var said []string
	for _, line := range r.lines {
		record, err := transcript.Parse(line)
		if err != nil {
			continue
		}
		for _, e := range record.Entries(transcript.MainStream, r.ID) {
			text, _ := redactor.Text(e.Text)
			said = append(said, text.String())
		}
	}
	return said
}
