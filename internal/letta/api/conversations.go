package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
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

// Cancel implements [letta.Client].
func (c *Client) Cancel(ctx context.Context, ref letta.Ref) error {
	const op = "cancel turn"
	if err := checkIDs(op, ref.AgentID, ref.ConversationID); err != nil {
		return err
	}
	err := c.call(ctx, request{op: op, method: http.MethodPost, path: "/v1/conversations/" + ref.ConversationID + "/cancel", conflictIsNone: true}, nil)
	if errors.Is(err, errNoneRuns) {
		return nil
	}
	return err
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
// A page can be short before the end, its cursor can be forgotten, and a
// compaction gives old messages positions among each other. So pages overlap,
// a pass ends with the page that brings nothing it has not seen, and a
// summary found behind a given cursor starts over from the beginning.
func (c *Client) list(ctx context.Context, op string, ref letta.Ref, after string, each func(letta.Message) bool) error {
	type key struct{ id, kind, otid string }
	given := map[key]bool{}
	visited := map[key]bool{} // in this pass
	cursor, partial := after, after != ""
	for range maxPages {
		query := url.Values{"order": {"asc"}, "limit": {strconv.Itoa(messagePage)}}
		if cursor != "" {
			query.Set("after", cursor)
		}
		var page []wireMessage
		if err := c.get(ctx, op, "/v1/conversations/"+ref.ConversationID+"/messages", query, &page); err != nil {
			return err
		}
		var ids []string // of stored messages
		progress, compacted := false, false
		for _, m := range page {
			if m.ID != "" && !slices.Contains(ids, m.ID) {
				ids = append(ids, m.ID)
			}
			k := key{m.ID, m.MessageType, m.OTID}
			if !visited[k] {
				visited[k], progress = true, true
			}
			compacted = compacted || m.MessageType == letta.SummaryMessage
			if !given[k] {
				given[k] = true
				if !each(m.message()) {
					return nil
				}
			}
		}
		switch {
		case partial && compacted:
			cursor, partial = "", false
			clear(visited)
		case !progress || len(ids) == 0:
			return nil
		default:
			cursor = ids[max(0, len(ids)-1-overlap)]
		}
	}
	return fmt.Errorf("%s: %w: the listing has no end", op, letta.ErrInvalid)
}
