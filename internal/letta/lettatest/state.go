package lettatest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/google/uuid"
)

// state is everything the server keeps, and the form of its file.
type state struct {
	Agents        map[string]*agent        `json:"agents"`
	Blocks        map[string]*block        `json:"blocks"` // attached to no agent yet
	Conversations map[string]*conversation `json:"conversations"`
	Runs          map[string]*run          `json:"runs"`
	// ByOTID maps an otid, and the hash of all otids of a request, to its
	// run. The keys are the server's, not a conversation's.
	ByOTID map[string]string `json:"byOtid"`
}

type block struct {
	ID          string `json:"id"`
	Label       string `json:"label"`
	Value       string `json:"value"`
	Description string `json:"description"`
	Limit       int    `json:"limit"`
	ReadOnly    bool   `json:"read_only"`
}

type agent struct {
	ID        string    `json:"id"`
	Name      string    `json:"name"`
	Model     string    `json:"model"`
	System    string    `json:"system"`
	Tags      []string  `json:"tags"`
	Tools     []string  `json:"tools"`
	Blocks    []*block  `json:"blocks"`
	CreatedAt time.Time `json:"createdAt"`
	// Teachers says which session taught a line, by label and line.
	Teachers map[string]string `json:"teachers"`
}

type conversation struct {
	ID            string     `json:"id"`
	AgentID       string     `json:"agentId"`
	Summary       string     `json:"summary"`
	CreatedAt     time.Time  `json:"createdAt"`
	LastMessageAt *time.Time `json:"lastMessageAt,omitempty"`
	Deleted       bool       `json:"deleted,omitempty"`
	// Messages in the order in which they were stored; listings go by
	// position.
	Messages []*message `json:"messages"`
	// Deltas that were handled, by their id in the text.
	Deltas map[string]bool `json:"deltas"`
	// Pending: the last turn waits for an approval, and nothing gets in.
	Pending bool `json:"pending,omitempty"`
}

type message struct {
	ID        string    `json:"id"`
	Role      string    `json:"role"`
	Text      string    `json:"text"`
	OTID      string    `json:"otid"`
	RunID     string    `json:"runId"`
	Reasoning string    `json:"reasoning,omitempty"` // of an assistant's message
	Tool      string    `json:"tool,omitempty"`      // the tool called or answering
	Position  int       `json:"position"`
	InContext bool      `json:"inContext"`
	At        time.Time `json:"at"`
}

type run struct {
	ID             string     `json:"id"`
	AgentID        string     `json:"agentId"`
	ConversationID string     `json:"conversationId"`
	Status         string     `json:"status"`
	StopReason     string     `json:"stopReason,omitempty"`
	Background     bool       `json:"background"`
	CreatedAt      time.Time  `json:"createdAt"`
	CompletedAt    *time.Time `json:"completedAt,omitempty"`
	// Events of the stream, ready to be sent.
	Events []string `json:"events"`
}

func newState() state {
	return state{
		Agents:        map[string]*agent{},
		Blocks:        map[string]*block{},
		Conversations: map[string]*conversation{},
		Runs:          map[string]*run{},
		ByOTID:        map[string]string{},
	}
}

func newID(kind string) string { return kind + "-" + uuid.NewString() }

// conversations that are not deleted, oldest first.
func (st *state) conversations() []*conversation {
	var out []*conversation
	for _, c := range st.Conversations {
		if !c.Deleted {
			out = append(out, c)
		}
	}
	slices.SortFunc(out, func(a, b *conversation) int { return a.CreatedAt.Compare(b.CreatedAt) })
	return out
}

func (a *agent) block(label string) *block {
	for _, b := range a.Blocks {
		if b.Label == label {
			return b
		}
	}
	return nil
}

// store appends a message behind all others, in context or not.
func (c *conversation) store(m *message) {
	m.Position = 0
	for _, o := range c.Messages {
		m.Position = max(m.Position, o.Position+1)
	}
	m.InContext = true
	c.Messages = append(c.Messages, m)
}

// byPosition is the order of listings. Equal positions keep the order of
// storing, where a database promises nothing.
func (c *conversation) byPosition() []*message {
	out := slices.Clone(c.Messages)
	slices.SortStableFunc(out, func(a, b *message) int { return a.Position - b.Position })
	return out
}

// compact takes the older half of the context out of it and puts a summary in
// front. What is in context is numbered from 0, what is not keeps its
// numbers, so that the two mix in every listing from now on.
func (c *conversation) compact(at time.Time) (before, after int) {
	var system *message
	var context []*message
	for _, m := range c.byPosition() {
		switch {
		case !m.InContext:
		case m.Role == "system" && system == nil:
			system = m
		default:
			context = append(context, m)
		}
	}
	before = len(context)
	gone := context[:len(context)/2]
	for _, m := range gone {
		m.InContext = false
	}
	summary := &message{
		ID: newID("message"), Role: "summary", At: at,
		Text: fmt.Sprintf(`{"type": "system_alert", "message": "Note: %d messages from the beginning of the conversation have been hidden from view due to memory constraints.\nThe following is a summary of the previous messages:\n They were heard.", "time": "now"}`, len(gone)),
	}
	c.store(summary)
	kept := []*message{summary}
	if system != nil {
		kept = []*message{system, summary}
	}
	kept = append(kept, context[len(gone):]...)
	for i, m := range kept {
		m.Position = i
	}
	return before, len(kept)
}

// load reads a state file. None is an empty state. Turns that ran when the
// process ended call themselves running until they are cancelled: nobody works
// on them, and the real server does not notice.
func (st *state) load(path string) error {
	data, err := os.ReadFile(filepath.Clean(path))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return json.Unmarshal(data, st)
}

// save replaces the file in one step.
func (st *state) save(path string) error {
	data, err := json.Marshal(st)
	if err != nil {
		return fmt.Errorf("save state: %w", err)
	}
	temp := path + ".new"
	if err := os.WriteFile(temp, data, 0o600); err != nil {
		return fmt.Errorf("save state: %w", err)
	}
	if err := os.Rename(temp, path); err != nil {
		return fmt.Errorf("save state: %w", err)
	}
	return nil
}
