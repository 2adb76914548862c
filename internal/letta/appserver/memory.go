package appserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/undersong-dev/undersong/internal/letta"
)

const (
	// folder holds the files that an agent reads in every turn.
	folder = "system/"
	suffix = ".md"
	// maxBlock bounds a file that is read as a block. The server has no
	// bound.
	maxBlock = 1 << 20
	// readTries is how often a memory is read that changes meanwhile.
	readTries = 3
)

// pathOf is the file of a block.
func pathOf(label string) string { return folder + label + suffix }

// labelOf is the label of a file, false for one that is no block: agents name
// their files as they like.
func labelOf(path string) (string, bool) {
	label, ok := strings.CutPrefix(path, folder)
	if !ok {
		return "", false
	}
	label, ok = strings.CutSuffix(label, suffix)
	return label, ok && letta.ValidLabel(label)
}

// describeBlock makes a description that the front matter can hold: one line,
// not empty, because the server refuses to commit a file without one, and
// then keeps it uncommitted.
func describeBlock(label, description string) string {
	if d := strings.Join(strings.Fields(description), " "); d != "" {
		return d
	}
	return "Memory block " + label
}

// file is the file of a block. The server reads the front matter by lines and
// knows no quotes.
func file(b letta.Block) string {
	return "---\ndescription: " + describeBlock(b.Label, b.Description) + "\n---\n" + b.Value
}

// value is what stands below the front matter, or the whole file where there
// is none.
func value(content string) string {
	if rest, ok := strings.CutPrefix(content, "---\n"); ok {
		if strings.HasPrefix(rest, "---\n") {
			return rest[len("---\n"):]
		}
		if _, below, ok := strings.Cut(rest, "\n---\n"); ok {
			return below
		}
	}
	return content
}

// description is what stands in the front matter.
func description(content string) string {
	rest, ok := strings.CutPrefix(content, "---\n")
	if !ok {
		return ""
	}
	matter, _, _ := strings.Cut(rest, "\n---\n")
	for line := range strings.Lines(matter) {
		if text, ok := strings.CutPrefix(line, "description:"); ok {
			return strings.TrimSpace(text)
		}
	}
	return ""
}

// Memory implements [letta.Client].
func (c *Client) Memory(ctx context.Context, agentID string) (letta.Memory, error) {
	const op = "read memory"
	// The server makes an empty memory for an agent that does not exist.
	if _, err := c.agent(ctx, op, agentID); err != nil {
		return letta.Memory{}, err
	}
	before, err := c.revision(ctx, op, agentID)
	if err != nil {
		return letta.Memory{}, err
	}
	for range readTries {
		blocks, rejected, err := c.blocks(ctx, op, agentID)
		if err != nil {
			return letta.Memory{}, err
		}
		after, err := c.revision(ctx, op, agentID)
		if err != nil {
			return letta.Memory{}, err
		}
		if after == before {
			return letta.Memory{Revision: before, Blocks: blocks, Rejected: rejected}, nil
		}
		before = after
	}
	// An agent that writes without end is not read under a wrong revision.
	return letta.Memory{}, fmt.Errorf("%s: %w", op, &letta.RetryError{})
}

type commit struct {
	SHA     string `json:"sha"`
	Message string `json:"message"`
	Time    stamp  `json:"timestamp"`
}

// commits of a file, or of all for "", newest first.
func (c *Client) commits(ctx context.Context, op, agentID, path string, limit int) ([]commit, error) {
	body := map[string]any{"type": "memory_history", "agent_id": agentID, "limit": limit}
	if path != "" {
		body["file_path"] = path
	}
	var history struct {
		Commits []commit `json:"commits"`
	}
	return history.Commits, c.request(ctx, op, false, body, &history)
}

// revision is the last commit.
func (c *Client) revision(ctx context.Context, op, agentID string) (string, error) {
	commits, err := c.commits(ctx, op, agentID, "", 1)
	if err != nil || len(commits) == 0 {
		return "", err
	}
	return commits[0].SHA, nil
}

// blocks reads the files that are blocks, and counts the others. The list has their contents too, but
// without the space around them.
func (c *Client) blocks(ctx context.Context, op, agentID string) (blocks []letta.Block, rejected int, _ error) {
	conn, err := c.connect(ctx, op)
	if err != nil {
		return nil, 0, err
	}
	err = conn.parts(ctx, op, false, map[string]any{"type": "list_memory", "agent_id": agentID}, func(data json.RawMessage) (bool, error) {
		var part struct {
			Entries []struct {
				Path        string `json:"relative_path"`
				Description string `json:"description"`
				Size        int64  `json:"size"`
			} `json:"entries"`
			Done bool `json:"done"`
		}
		if err := decode(op, data, &part); err != nil {
			return true, err
		}
		for _, e := range part.Entries {
			if label, ok := labelOf(e.Path); ok && e.Size <= maxBlock {
				blocks = append(blocks, letta.Block{Label: label, Description: e.Description})
			} else {
				rejected++
			}
		}
		return part.Done, nil
	})
	if err != nil {
		return nil, 0, err
	}
	for i := range blocks {
		var read struct {
			Content  string `json:"content"`
			Encoding string `json:"encoding"`
		}
		err := conn.call(ctx, op, false, map[string]any{"type": "read_memory_file", "agent_id": agentID, "path": pathOf(blocks[i].Label)}, &read)
		if err != nil {
			return nil, 0, err
		}
		blocks[i].Value = value(read.Content)
	}
	slices.SortFunc(blocks, func(a, b letta.Block) int { return strings.Compare(a.Label, b.Label) })
	return blocks, rejected, nil
}

// PutBlock implements [letta.Client]. Without a description the block keeps
// the one it has.
func (c *Client) PutBlock(ctx context.Context, agentID string, b letta.Block, reason string) (string, error) {
	const op = "write memory"
	if !letta.ValidLabel(b.Label) || !utf8.ValidString(b.Value) || len(b.Value) > maxBlock {
		return "", fmt.Errorf("%s: %w: not a label, or not a value", op, letta.ErrInvalid)
	}
	if _, err := c.agent(ctx, op, agentID); err != nil {
		return "", err
	}
	if b.Description == "" {
		blocks, _, err := c.blocks(ctx, op, agentID)
		if err != nil {
			return "", err
		}
		old, _ := letta.Memory{Blocks: blocks}.Block(b.Label)
		b.Description = old.Description
	}
	var written change
	// Written twice it is what it was: a lost answer is no riddle.
	err := c.request(ctx, op, false, map[string]any{
		"type": "write_memory_file", "agent_id": agentID, "path": pathOf(b.Label), "content": file(b),
		"commit_message": message(reason, "undersong: write "+b.Label),
	}, &written)
	if err != nil {
		return "", err
	}
	return c.changed(ctx, op, agentID, written)
}

// change is the answer to a change of the memory: no commit where nothing
// changed.
type change struct {
	SHA string `json:"commit_sha"`
}

func (c *Client) changed(ctx context.Context, op, agentID string, made change) (string, error) {
	if made.SHA == "" {
		return c.revision(ctx, op, agentID)
	}
	return made.SHA, nil
}

// message makes the message of a commit. The server lists commits in lines
// that it cuts at each bar.
func message(reason, fallback string) string {
	return strings.ReplaceAll(letta.Reason(reason, fallback), "|", "/")
}

// DeleteBlock implements [letta.Client]. The server takes no reason, and names
// the file.
func (c *Client) DeleteBlock(ctx context.Context, agentID, label, _ string) (string, error) {
	const op = "delete block"
	if !letta.ValidLabel(label) {
		return "", fmt.Errorf("%s: %w: not a label", op, letta.ErrInvalid)
	}
	if _, err := c.agent(ctx, op, agentID); err != nil {
		return "", err
	}
	var made change
	if err := c.request(ctx, op, false, map[string]any{"type": "delete_memory_file", "agent_id": agentID, "path": pathOf(label)}, &made); err != nil {
		return "", err
	}
	return c.changed(ctx, op, agentID, made)
}

// sha is a commit. Another text would be an option, or another file, to the
// server's git.
var sha = regexp.MustCompile(`^[0-9a-f]{40}([0-9a-f]{24})?$`)

// BlockHistory implements [letta.Client].
func (c *Client) BlockHistory(ctx context.Context, agentID, label string, limit int) ([]letta.BlockRevision, error) {
	const op = "read history"
	if !letta.ValidLabel(label) || limit < 1 {
		return nil, fmt.Errorf("%s: %w: not a label, or no limit", op, letta.ErrInvalid)
	}
	if _, err := c.agent(ctx, op, agentID); err != nil {
		return nil, err
	}
	path := pathOf(label)
	commits, err := c.commits(ctx, op, agentID, path, min(limit, letta.MaxHistory))
	if err != nil {
		return nil, err
	}
	out := make([]letta.BlockRevision, 0, len(commits))
	for _, commit := range commits {
		if !sha.MatchString(commit.SHA) {
			return nil, fmt.Errorf("%s: %w: not a revision", op, letta.ErrInvalid)
		}
		var read struct {
			Content string `json:"content"`
		}
		r := letta.BlockRevision{Revision: commit.SHA, At: commit.Time.Time, Reason: letta.Reason(commit.Message, "")}
		err := c.request(ctx, op, false, map[string]any{
			"type": "memory_file_at_ref", "agent_id": agentID, "file_path": path, "ref": commit.SHA,
		}, &read)
		switch {
		case errors.Is(err, letta.ErrNotFound):
			r.Deleted = true
			r.Block = letta.Block{Label: label}
		case err != nil:
			return nil, err
		default:
			r.Block = letta.Block{Label: label, Description: description(read.Content), Value: value(read.Content)}
		}
		out = append(out, r)
	}
	return out, nil
}

// Recompile implements [letta.Client]. Of itself the server puts each change
// behind the old text.
func (c *Client) Recompile(ctx context.Context, ref letta.Ref) error {
	const op = "recompile"
	if err := checkIDs(op, ref.AgentID, ref.ConversationID); err != nil {
		return err
	}
	return c.request(ctx, op, false, map[string]any{
		"type": "conversation_recompile", "conversation_id": ref.ConversationID, "body": map[string]any{"agent_id": ref.AgentID},
	}, nil)
}
