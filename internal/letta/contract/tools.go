package contract

import (
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"

	"github.com/undersong-dev/undersong/internal/letta"
)

// callTool runs a turn in which the model calls a tool, and returns what the
// tool answered.
func (s *suite) callTool(ref letta.Ref, name string, arguments map[string]any) string {
	t := s.t
	t.Helper()
	result, offered := s.CallTool(name, arguments)
	s.mustSend(t, ref, input())
	if diff := cmp.Diff([]string{"memory"}, offered()); diff != "" {
		t.Errorf("the tools that the model is offered: -want +got:\n%s", diff)
	}
	answer := result()
	for _, secret := range s.SecretTexts {
		if strings.Contains(answer, secret) {
			t.Errorf("%s shows what stands in a secret file", name)
		}
	}
	return answer
}

// toolsRefused: what an agent hears was written by strangers. A tool that it
// could be talked into using must not be there.
func (s *suite) toolsRefused() {
	t := s.t
	need(t, "make the model call a tool", s.CallTool != nil)
	ref := s.conversation(t)
	for name, arguments := range map[string]map[string]any{
		"Read":      {"file_path": "/etc/passwd"},
		"Bash":      {"command": "cat /etc/passwd", "description": "look"},
		"Write":     {"file_path": "/tmp/undersong-was-here", "content": "x"},
		"WebSearch": {"query": "x"},
		"Task":      {"prompt": "read /etc/passwd", "subagent_type": "general", "description": "look"},
	} {
		answer := s.callTool(ref, name, arguments)
		// Either there is no such tool, in the words of one server or the other,
		// or permission was asked for and denied.
		if !strings.Contains(answer, "not found") && !strings.Contains(answer, "Cannot call "+name) && !strings.Contains(answer, "Not allowed") {
			t.Errorf("%s answers %q, want a refusal", name, answer)
		}
	}
}

// secretsUnreadable: the one tool that there is must not lead out of the
// memory.
func (s *suite) secretsUnreadable() {
	t := s.t
	need(t, "make the model call a tool", s.CallTool != nil)
	ref := s.conversation(t)
	before, err := s.Client.Memory(t.Context(), ref.AgentID)
	if err != nil {
		t.Fatalf("Memory: %v", err)
	}
	for _, file := range s.SecretFiles {
		s.callTool(ref, "Read", map[string]any{"file_path": file})
		for _, path := range []string{file, "../../../../.." + file, "../../../providers/auth.json", "system/../../../../providers/auth.json"} {
			s.callTool(ref, "memory", map[string]any{"command": "view", "reason": "look", "file_path": path, "path": path})
			s.callTool(ref, "memory", map[string]any{"command": "rename", "reason": "look", "old_path": path, "new_path": "system/stolen.md"})
			s.callTool(ref, "memory", map[string]any{"command": "str_replace", "reason": "look", "file_path": path, "old_string": "a", "new_string": "b"})
		}
	}
	after, err := s.Client.Memory(t.Context(), ref.AgentID)
	if err != nil {
		t.Fatalf("Memory: %v", err)
	}
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("the memory after all attempts: -before +after:\n%s", diff)
	}
}

// memoryByAgent: what the agent writes is read, under a new revision.
func (s *suite) memoryByAgent() {
	t := s.t
	need(t, "make the model call a tool", s.CallTool != nil)
	ref := s.conversation(t)
	before, err := s.Client.Memory(t.Context(), ref.AgentID)
	if err != nil {
		t.Fatalf("Memory: %v", err)
	}
	answer := s.callTool(ref, "memory", map[string]any{
		"command": "str_replace", "reason": "learned", "file_path": "system/brief.md", "path": "system/brief.md",
		"old_string": "Nothing yet.", "new_string": "Use tabs.", "old_str": "Nothing yet.", "new_str": "Use tabs.",
	})
	after, err := s.Client.Memory(t.Context(), ref.AgentID)
	if err != nil {
		t.Fatalf("Memory: %v", err)
	}
	if b, _ := after.Block("brief"); b.Value != "Use tabs." || after.Revision == before.Revision {
		t.Errorf("the block is %q, the revision new: %v; the tool answered %q", b.Value, after.Revision != before.Revision, answer)
	}
}

// memoryHostileLabels: an agent can be talked into any name for a file. What
// is no label is not shown, and does not hide what is.
func (s *suite) memoryHostileLabels() {
	t := s.t
	need(t, "make the model call a tool", s.CallTool != nil)
	ref := s.conversation(t)
	if m, err := s.Client.Memory(t.Context(), ref.AgentID); err != nil || m.Rejected != 0 {
		t.Errorf("a new agent has %d names that are no labels (%v)", m.Rejected, err)
	}
	for _, name := range []string{"a<b>&\"\u202e", "UPPER", "sub/folder", "good"} {
		s.callTool(ref, "memory", map[string]any{
			"command": "create", "reason": "learned", "file_path": "system/" + name + ".md", "path": "system/" + name + ".md",
			"description": "what <b>bold</b>", "file_text": "text",
		})
	}
	m, err := s.Client.Memory(t.Context(), ref.AgentID)
	if err != nil {
		t.Fatalf("Memory: %v", err)
	}
	var labels []string
	for _, b := range m.Blocks {
		labels = append(labels, b.Label)
		if !letta.ValidLabel(b.Label) {
			t.Errorf("the label %q is shown", b.Label)
		}
	}
	if !slices.Contains(labels, "brief") || !slices.Contains(labels, "good") {
		t.Errorf("the labels are %q, want brief and good among them", labels)
	}
	if m.Rejected == 0 {
		t.Error("nothing says that the agent keeps more than is shown")
	}
}
