package appserver

import (
	"context"
	"encoding/json"
	"fmt"
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
		blocks, err := c.blocks(ctx, op, agentID)
		if err != nil {
			return letta.Memory{}, err
		}
		after, err := c.revision(ctx, op, agentID)
		if err != nil {
			return letta.Memory{}, err
		}
		if after == before {
			return letta.Memory{Revision: before, Blocks: blocks}, nil
		}
		before = after
	}
	// An agent that writes without end is not read under a wrong revision.
	return letta.Memory{}, fmt.Errorf("%s: %w", op, &letta.RetryError{})
}

// revision is the last commit.
func (c *Client) revision(ctx context.Context, op, agentID string) (string, error) {
	var history struct {
		Commits []struct {
			SHA string `json:"sha"`
		} `json:"commits"`
	}
	err := c.request(ctx, op, false, map[string]any{"type": "memory_history", "agent_id": agentID, "limit": 1}, &history)
	if err != nil {
		return "", err
	}
	if len(history.Commits) == 0 {
		return "", nil
	}
	return history.Commits[0].SHA, nil
}

// blocks reads the files that are blocks. The list has their contents too, but
// without the space around them.
func (c *Client) blocks(ctx context.Context, op, agentID string) ([]letta.Block, error) {
	conn, err := c.connect(ctx, op)
	if err != nil {
		return nil, err
	}
	var blocks []letta.Block
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
			}
		}
		return part.Done, nil
	})
	if err != nil {
		return nil, err
	}
	for i := range blocks {
		var read struct {
			Content  string `json:"content"`
			Encoding string `json:"encoding"`
		}
		err := conn.call(ctx, op, false, map[string]any{"type": "read_memory_file", "agent_id": agentID, "path": pathOf(blocks[i].Label)}, &read)
		if err != nil {
			return nil, err
		}
		blocks[i].Value = value(read.Content)
	}
	slices.SortFunc(blocks, func(a, b letta.Block) int { return strings.Compare(a.Label, b.Label) })
	return blocks, nil
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
		blocks, err := c.blocks(ctx, op, agentID)
		if err != nil {
			return "", err
		}
		old, _ := letta.Memory{Blocks: blocks}.Block(b.Label)
		b.Description = old.Description
	}
	if reason = strings.Join(strings.Fields(reason), " "); reason == "" {
		reason = "undersong: write " + b.Label
	}
	var written struct {
		SHA string `json:"commit_sha"`
	}
	// Written twice it is what it was: a lost answer is no riddle.
	err := c.request(ctx, op, false, map[string]any{
		"type": "write_memory_file", "agent_id": agentID, "path": pathOf(b.Label), "content": file(b), "commit_message": reason,
	}, &written)
	if err != nil {
		return "", err
	}
	if written.SHA == "" { // nothing changed
		return c.revision(ctx, op, agentID)
	}
	return written.SHA, nil
}
