package appserver

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/undersong-dev/undersong/internal/letta"
)

const (
	// listAll is asked for where pages cannot be trusted: the server sorts by
	// the last activity, so that a page moves while the next is read.
	listAll = 1 << 20
	// pageSize of the listing of messages.
	pageSize = 200
	// maxPages bounds that listing.
	maxPages = 10000
)

type wireConversation struct {
	ID        string   `json:"id"`
	AgentID   string   `json:"agent_id"`
	Summary   string   `json:"summary"`
	CreatedAt stamp    `json:"created_at"`
	Tags      []string `json:"tags"`
}

func (c wireConversation) conversation() letta.Conversation {
	return letta.Conversation{ID: c.ID, AgentID: c.AgentID, Summary: c.Summary, CreatedAt: c.CreatedAt.Time}
}

// CreateConversation implements [letta.Client].
func (c *Client) CreateConversation(ctx context.Context, agentID string, spec letta.ConversationSpec) (letta.Conversation, error) {
	const op = "create conversation"
	if err := checkIDs(op, agentID); err != nil {
		return letta.Conversation{}, err
	}
	var made struct {
		Conversation wireConversation `json:"conversation"`
	}
	err := c.request(ctx, op, true, map[string]any{
		"type": "conversation_create", "body": map[string]any{"agent_id": agentID, "summary": spec.Summary},
	}, &made)
	if err != nil {
		return letta.Conversation{}, err
	}
	if made.Conversation.ID == "" {
		return letta.Conversation{}, fmt.Errorf("%s: %w: the answer has no id", op, letta.ErrOutcomeUnknown)
	}
	return made.Conversation.conversation(), nil
}

// Conversation implements [letta.Client].
func (c *Client) Conversation(ctx context.Context, ref letta.Ref) (letta.Conversation, error) {
	found, err := c.conversation(ctx, "read conversation", ref)
	if err != nil {
		return letta.Conversation{}, err
	}
	return found.conversation(), nil
}

func (c *Client) conversation(ctx context.Context, op string, ref letta.Ref) (wireConversation, error) {
	if err := checkIDs(op, ref.AgentID, ref.ConversationID); err != nil {
		return wireConversation{}, err
	}
	var found struct {
		Conversation wireConversation `json:"conversation"`
	}
	err := c.request(ctx, op, false, map[string]any{
		"type": "conversation_retrieve", "conversation_id": ref.ConversationID, "agent_id": ref.AgentID,
	}, &found)
	if err != nil {
		return wireConversation{}, err
	}
	if found.Conversation.AgentID != ref.AgentID {
		return wireConversation{}, fmt.Errorf("%s: %w", op, letta.ErrNotFound)
	}
	return found.Conversation, nil
}

// cancelledTag begins the tag of a conversation that names an input whose
// turn was cancelled. The server lists what such a turn had said, or says
// later, like a whole answer.
const cancelledTag = "undersong-cancelled:"

// maxCancelled bounds those tags. The oldest are forgotten: they were looked
// up long ago.
const maxCancelled = 16

// mark writes down that the turns of these inputs are being cancelled. It
// outlives this client and the server's process.
func (c *Client) mark(ctx context.Context, op string, ref letta.Ref, ids []string) error {
	found, err := c.conversation(ctx, op, ref)
	if err != nil {
		return err
	}
	tags := found.Tags
	for _, id := range ids {
		if tag := cancelledTag + id; !slices.Contains(tags, tag) {
			tags = append(tags, tag)
		}
	}
	marks := 0
	for _, tag := range slices.Backward(slices.Clone(tags)) {
		if !strings.HasPrefix(tag, cancelledTag) {
			continue
		}
		if marks++; marks > maxCancelled {
			tags = slices.DeleteFunc(tags, func(t string) bool { return t == tag })
		}
	}
	return c.request(ctx, op, false, map[string]any{
		"type": "conversation_update", "conversation_id": ref.ConversationID, "body": map[string]any{"tags": tags},
	}, nil)
}

// cancelled reports whether the input's turn was marked.
func (c *Client) cancelled(ctx context.Context, op string, ref letta.Ref, id string) (bool, error) {
	found, err := c.conversation(ctx, op, ref)
	return slices.Contains(found.Tags, cancelledTag+id), err
}

// DeleteConversation implements [letta.Client]. The protocol has no call for
// it.
func (c *Client) DeleteConversation(_ context.Context, ref letta.Ref) error {
	const op = "delete conversation"
	if err := checkIDs(op, ref.AgentID, ref.ConversationID); err != nil {
		return err
	}
	return fmt.Errorf("%s: %w", op, letta.ErrUnsupported)
}

// Conversations implements [letta.Client].
func (c *Client) Conversations(ctx context.Context, agentID, summarySearch string) ([]letta.Conversation, error) {
	const op = "list conversations"
	if err := checkIDs(op, agentID); err != nil {
		return nil, err
	}
	query := map[string]any{"agent_id": agentID, "limit": listAll}
	if summarySearch != "" {
		query["summary_search"] = summarySearch
	}
	var page struct {
		Conversations []wireConversation `json:"conversations"`
	}
	if err := c.request(ctx, op, false, map[string]any{"type": "conversation_list", "query": query}, &page); err != nil {
		return nil, err
	}
	var out []letta.Conversation
	for _, w := range page.Conversations {
		// The server ignores case, and what it does not know.
		if w.AgentID == agentID && strings.Contains(w.Summary, summarySearch) {
			out = append(out, w.conversation())
		}
	}
	slices.SortFunc(out, func(a, b letta.Conversation) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(len(a.ID), len(b.ID)), cmp.Compare(a.ID, b.ID))
	})
	return out, nil
}

// Messages implements [letta.Client].
func (c *Client) Messages(ctx context.Context, ref letta.Ref, after string) iter.Seq2[letta.Message, error] {
	const op = "list messages"
	return func(yield func(letta.Message, error) bool) {
		if err := checkIDs(op, ref.AgentID, ref.ConversationID); err != nil {
			yield(letta.Message{}, err)
			return
		}
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		more := true
		err := c.list(ctx, op, ref, after, func(m letta.Message) {
			if more && !yield(m, nil) {
				more = false
				stop()
			}
		})
		if err != nil && more {
			yield(letta.Message{}, err)
		}
	}
}

// list gives each message once. A cursor that was compacted away is ignored by
// the server, which then begins anew: what was given is not given again.
func (c *Client) list(ctx context.Context, op string, ref letta.Ref, after string, take func(letta.Message)) error {
	seen := map[[3]string]bool{}
	for range maxPages {
		query := map[string]any{"order": "asc", "limit": pageSize, "agent_id": ref.AgentID}
		if after != "" {
			query["after"] = after
		}
		var page struct {
			Messages []wireMessage `json:"messages"`
		}
		err := c.request(ctx, op, false, map[string]any{
			"type": "conversation_messages_list", "conversation_id": ref.ConversationID, "query": query,
		}, &page)
		if err != nil {
			return err
		}
		fresh := false
		for _, w := range page.Messages {
			m := w.message()
			if key := [3]string{m.ID, m.Type, m.OTID}; !seen[key] {
				seen[key], fresh = true, true
				take(m)
			}
			after = m.ID
		}
		if len(page.Messages) < pageSize || !fresh {
			return nil
		}
	}
	return fmt.Errorf("%s: %w: the listing does not end", op, letta.ErrInvalid)
}

// wireMessage is one item of a listing, or a piece of one.
type wireMessage struct {
	MessageType string          `json:"message_type"`
	ID          string          `json:"id"`
	OTID        string          `json:"otid"`
	RunID       string          `json:"run_id"`
	Date        stamp           `json:"date"`
	Content     json.RawMessage `json:"content"`
	// Summary is the text of a summary_message.
	Summary string `json:"summary"`
}

func (m wireMessage) message() letta.Message {
	text := contentText(m.Content, m.MessageType == letta.UserMessage)
	if text == "" {
		text = m.Summary
	}
	return letta.Message{ID: m.ID, Type: m.MessageType, OTID: m.OTID, RunID: m.RunID, Text: text, At: m.Date.Time}
}

// reminder begins the parts that the server puts before a user's words.
const reminder = "<system-reminder>"

// contentText reads a content that is a text or a list of parts. Before the
// first words after a start the server puts parts of its own.
func contentText(raw json.RawMessage, user bool) string {
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
	for user && len(parts) > 1 && strings.HasPrefix(parts[0].Text, reminder) {
		parts = parts[1:]
	}
	var b strings.Builder
	for _, p := range parts {
		b.WriteString(p.Text)
	}
	return b.String()
}

// stamp is a time that is zero where it is absent or cannot be read.
type stamp struct{ time.Time }

// UnmarshalJSON never fails: no call depends on a date alone.
func (s *stamp) UnmarshalJSON(data []byte) error {
	var text string
	if json.Unmarshal(data, &text) != nil {
		return nil //nolint:nilerr // Any other type is a date that is not told.
	}
	if t, err := time.Parse(time.RFC3339Nano, text); err == nil {
		s.Time = t.UTC()
	}
	return nil
}
