package api

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/undersong-dev/undersong/internal/letta"
)

const (
	// messagePage is the server's own default, in stored messages.
	messagePage = 100
	// overlap is how many stored messages of a page the next one repeats.
	// After a compaction several messages can have the same position, and
	// "after" means "at a higher position": a cursor at the end of a page
	// would lose those that share its position. As many compactions as this
	// can happen before a message can be missed.
	overlap = 25
)

// CreateConversation implements [letta.Client].
func (c *Client) CreateConversation(ctx context.Context, agentID string, spec letta.ConversationSpec) (letta.Conversation, error) {
	const op = "create conversation"
	if err := checkIDs(op, agentID); err != nil {
		return letta.Conversation{}, err
	}
	var made wireConversation
	err := c.call(ctx, request{
		op: op, method: http.MethodPost, path: "/v1/conversations/", query: url.Values{"agent_id": {agentID}},
		body: struct {
			Summary string `json:"summary"`
		}{spec.Summary},
		effect: true,
	}, &made)
	if err != nil {
		return letta.Conversation{}, err
	}
	if made.ID == "" {
		return letta.Conversation{}, fmt.Errorf("%s: %w: the answer has no id", op, letta.ErrOutcomeUnknown)
	}
	return made.conversation(), nil
}

// Conversation implements [letta.Client].
func (c *Client) Conversation(ctx context.Context, ref letta.Ref) (letta.Conversation, error) {
	const op = "read conversation"
	if err := checkIDs(op, ref.AgentID, ref.ConversationID); err != nil {
		return letta.Conversation{}, err
	}
	var found wireConversation
	if err := c.get(ctx, op, "/v1/conversations/"+ref.ConversationID, nil, &found); err != nil {
		return letta.Conversation{}, err
	}
	if found.ID != ref.ConversationID || found.AgentID != ref.AgentID {
		return letta.Conversation{}, fmt.Errorf("%s: %w: it belongs to another agent", op, letta.ErrNotFound)
	}
	return found.conversation(), nil
}

// Conversations implements [letta.Client].
func (c *Client) Conversations(ctx context.Context, agentID, summarySearch string) ([]letta.Conversation, error) {
	const op = "find conversations"
	if err := checkIDs(op, agentID); err != nil {
		return nil, err
	}
	query := url.Values{"agent_id": {agentID}, "order": {"asc"}}
	if summarySearch != "" {
		query.Set("summary_search", summarySearch)
	}
	var found []letta.Conversation
	err := pages(op, query,
		func(q url.Values) ([]wireConversation, error) {
			var page []wireConversation
			return page, c.get(ctx, op, "/v1/conversations/", q, &page)
		},
		func(v wireConversation) string { return v.ID },
		func(v wireConversation) {
			// A server that does not know a parameter ignores it.
			if v.AgentID == agentID && strings.Contains(v.Summary, summarySearch) {
				found = append(found, v.conversation())
			}
		})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(found, func(a, b letta.Conversation) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
	return found, nil
}

// DeleteConversation implements [letta.Client]. The server answers 200 with
// null and keeps nothing that a later call can reach.
func (c *Client) DeleteConversation(ctx context.Context, ref letta.Ref) error {
	const op = "delete conversation"
	if err := checkIDs(op, ref.AgentID, ref.ConversationID); err != nil {
		return err
	}
	return c.call(ctx, request{op: op, method: http.MethodDelete, path: "/v1/conversations/" + ref.ConversationID}, nil)
}

// Messages implements [letta.Client].
func (c *Client) Messages(ctx context.Context, ref letta.Ref, after string) iter.Seq2[letta.Message, error] {
	const op = "list messages"
	return func(yield func(letta.Message, error) bool) {
		err := checkIDs(op, ref.AgentID, ref.ConversationID)
		if err == nil && after != "" {
			err = checkIDs(op, after)
		}
		if err == nil {
			err = c.list(ctx, op, ref, after, func(m letta.Message) bool { return yield(m, nil) })
		}
		if err != nil {
			yield(letta.Message{}, err)
		}
	}
}

// list gives each message of the conversation once, until each says no.
//
// A cursor names a position, and a compaction gives positions anew: messages
// behind the cursor can stand before it afterwards. So after a listing from a
// cursor it is looked whether there is a summary, which stands at the front,
// and if so everything is listed.
func (c *Client) list(ctx context.Context, op string, ref letta.Ref, after string, each func(letta.Message) bool) error {
	given := map[itemKey]bool{}
	fresh := func(m wireMessage) bool {
		if k := m.key(); !given[k] {
			given[k] = true
			return each(m.message())
		}
		return true
	}
	more, err := c.listFrom(ctx, op, ref, after, fresh)
	if err != nil || !more || after == "" {
		return err
	}
	front, err := c.messagePage(ctx, op, ref, "")
	if err != nil {
		return err
	}
	if slices.ContainsFunc(front, func(m wireMessage) bool { return m.MessageType == letta.SummaryMessage }) {
		_, err = c.listFrom(ctx, op, ref, "", fresh)
	}
	return err
}

// itemKey tells items of a listing apart: those of one stored message have
// one id.
type itemKey struct{ id, kind, otid string }

func (m wireMessage) key() itemKey { return itemKey{m.ID, m.MessageType, m.OTID} }

// listFrom pages through the conversation from a cursor. A page can be short
// before the end and its cursor can be forgotten, so that only a page that
// brings nothing new is the end. Items can come several times. more is false
// if each has said no.
func (c *Client) listFrom(ctx context.Context, op string, ref letta.Ref, cursor string, each func(wireMessage) bool) (more bool, err error) {
	visited := map[itemKey]bool{}
	for range maxPages {
		page, err := c.messagePage(ctx, op, ref, cursor)
		if err != nil {
			return false, err
		}
		var ids []string // of stored messages
		progress := false
		for _, m := range page {
			if m.ID != "" && !slices.Contains(ids, m.ID) {
				ids = append(ids, m.ID)
			}
			if !visited[m.key()] {
				visited[m.key()], progress = true, true
			}
			if !each(m) {
				return false, nil
			}
		}
		if !progress || len(ids) == 0 {
			return true, nil
		}
		cursor = ids[max(0, len(ids)-1-overlap)]
	}
	return false, fmt.Errorf("%s: %w: the listing has no end", op, letta.ErrInvalid)
}

func (c *Client) messagePage(ctx context.Context, op string, ref letta.Ref, after string) ([]wireMessage, error) {
	query := url.Values{"order": {"asc"}, "limit": {strconv.Itoa(messagePage)}}
	if after != "" {
		query.Set("after", after)
	}
	var page []wireMessage
	if err := c.get(ctx, op, "/v1/conversations/"+ref.ConversationID+"/messages", query, &page); err != nil {
		return nil, err
	}
	for i := range page {
		if m := &page[i]; m.MessageType == letta.UserMessage && compacted.MatchString(contentText(m.Content)) {
			m.MessageType = letta.SummaryMessage
		}
	}
	return page, nil
}

// compacted are the first words of the summary that a compaction leaves. The
// archived server lists it like a message of the user, in the JSON that it keeps
// it in. Ours begin otherwise;
// one that does not can make an input Unknown, which is not listed anyway.
var compacted = regexp.MustCompile(`^(?:\{\s*"type":\s*"system_alert",\s*"message":\s*")?Note: .{0,200}hidden from view due to .{0,40}memory constraints\.`)
