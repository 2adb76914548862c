package api

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/undersong-dev/undersong/internal/letta"
)

// The types of this file are the parts of Letta's objects that are read.

type wireBlock struct {
	ID          string `json:"id,omitempty"`
	Label       string `json:"label"`
	Value       string `json:"value"`
	Description string `json:"description,omitempty"`
	ReadOnly    bool   `json:"read_only,omitempty"`
}

func (b wireBlock) block() letta.Block {
	return letta.Block{Label: b.Label, Description: b.Description, Value: b.Value, ReadOnly: b.ReadOnly}
}

type wireAgent struct {
	ID        string      `json:"id"`
	Name      string      `json:"name"`
	Model     string      `json:"model"`
	System    string      `json:"system"`
	Tags      []string    `json:"tags"`
	Tools     []wireTool  `json:"tools"`
	Blocks    []wireBlock `json:"blocks"`
	CreatedAt stamp       `json:"created_at"`
	LLM       struct {
		ContextWindow int64 `json:"context_window"`
	} `json:"llm_config"`
}

type wireTool struct {
	Name string `json:"name"`
}

// agent converts an agent that was read with its tools included: a list that
// is not there was not reported, an empty one is empty.
func (a wireAgent) agent() letta.Agent {
	out := letta.Agent{ID: a.ID, Name: a.Name, Model: a.Model, System: a.System, Tags: a.Tags, ContextWindow: max(0, a.LLM.ContextWindow), CreatedAt: a.CreatedAt.Time}
	if a.Tools != nil {
		out.Tools = make([]string, 0, len(a.Tools))
		for _, t := range a.Tools {
			out.Tools = append(out.Tools, t.Name)
		}
		slices.Sort(out.Tools)
	}
	return out
}

type wireConversation struct {
	ID        string `json:"id"`
	AgentID   string `json:"agent_id"`
	Summary   string `json:"summary"`
	CreatedAt stamp  `json:"created_at"`
}

func (c wireConversation) conversation() letta.Conversation {
	return letta.Conversation{ID: c.ID, AgentID: c.AgentID, Summary: c.Summary, CreatedAt: c.CreatedAt.Time}
}

type wireRun struct {
	ID         string `json:"id"`
	Status     string `json:"status"`
	StopReason string `json:"stop_reason"`
	CreatedAt  stamp  `json:"created_at"`
}

func (r wireRun) active() bool { return r.Status == "created" || r.Status == "running" }

// wireMessage is one item of a listing, or one event of a stream.
type wireMessage struct {
	MessageType string          `json:"message_type"`
	ID          string          `json:"id"`
	OTID        string          `json:"otid"`
	RunID       string          `json:"run_id"`
	Date        stamp           `json:"date"`
	Content     json.RawMessage `json:"content"`
	// Summary is the text of a summary_message.
	Summary string `json:"summary"`

	// Of the events that are no messages.
	StopReason       string `json:"stop_reason"`
	ErrorType        string `json:"error_type"`
	PromptTokens     int64  `json:"prompt_tokens"`
	CompletionTokens int64  `json:"completion_tokens"`
	TotalTokens      int64  `json:"total_tokens"`
}

func (m wireMessage) message() letta.Message {
	text := contentText(m.Content)
	if text == "" {
		text = m.Summary
	}
	return letta.Message{ID: m.ID, Type: m.MessageType, OTID: m.OTID, RunID: m.RunID, Text: text, At: m.Date.Time}
}

// contentText reads a content that is a text or a list of parts.
func contentText(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	var parts []struct {
		Text string `json:"text"`
	}
	if lenient(raw, &parts) != nil {
		return ""
	}
	var b strings.Builder
	for _, p := range parts {
		b.WriteString(p.Text)
	}
	return b.String()
}

// lenient decodes and lets fields of an unexpected type be: an event whose
// date became a number is still an event.
func lenient(data []byte, out any) error {
	err := json.Unmarshal(data, out)
	if _, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return nil
	}
	return err
}

// stamp is a time that is zero where it is absent or cannot be read. The
// archived server leaves the zone out where it means UTC.
type stamp struct{ time.Time }

// UnmarshalJSON never fails: no call depends on a date alone.
func (s *stamp) UnmarshalJSON(data []byte) error {
	var text string
	if json.Unmarshal(data, &text) != nil {
		return nil //nolint:nilerr // Any other type is a date that is not told.
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05.999999999"} {
		if t, err := time.Parse(layout, text); err == nil {
			s.Time = t.UTC()
			return nil
		}
	}
	return nil
}
