package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/controllers/connect"
	"github.com/undersong-dev/undersong/internal/letta"
)

// agents are the memory's agents, those of earlier scopes too, by id.
func (s *scrubRun) agents(ctx context.Context) (letta.Client, []string, error) {
	c, err := s.w.Connect.Letta(ctx, s.mem)
	if err != nil {
		return nil, nil, err
	}
	found, err := c.AgentsByTag(ctx, []string{connect.MemoryTag(s.mem)})
	if err != nil {
		return nil, nil, s.w.Connect.LettaError(s.mem, err)
	}
	var ids []string
	for _, a := range found {
		ids = append(ids, a.ID)
	}
	if id := s.mem.Spec.Agent.ID; id != "" && !slices.Contains(ids, id) {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return c, ids, nil
}

// blocks looks at what the agents know.
func (s *scrubRun) blocks(ctx context.Context) error {
	c, ids, err := s.agents(ctx)
	if err != nil {
		return err
	}
	caps, err := c.Capabilities(ctx)
	if err != nil {
		return s.w.Connect.LettaError(s.mem, err)
	}
	for _, id := range ids {
		var memory letta.Memory
		err := s.thing(ctx, id, func() (found []v1alpha1.ScrubFound, err error) {
			if memory, err = c.Memory(ctx, id); errors.Is(err, letta.ErrNotFound) {
				return nil, nil
			}
			if err != nil {
				return nil, s.w.Connect.LettaError(s.mem, err)
			}
			if memory.Rejected > 0 {
				s.leave("%d texts that the agent %s keeps under names that are no labels: look at them at Letta", memory.Rejected, id)
			}
			has := false
			for _, b := range memory.Blocks {
				hit := s.has(b.Value, b.Description)
				has = has || hit
				f := looked(v1alpha1.ScrubBlocks, hit)
				if s.Stage > 0 { // they were counted, see all
					f.Looked = 0
				}
				found = append(found, f)
			}
			had := len(s.Texts) > 0
			if caps.BlockHistory {
				past, err := s.revisions(ctx, c, id, memory)
				if err != nil {
					return nil, err
				}
				had = had || past
			}
			if had && !has && s.removes() { // else when it is changed
				return found, s.recompile(ctx, c, id)
			}
			return found, nil
		}, func() (bool, error) {
			for _, b := range memory.Blocks {
				if !s.has(b.Value, b.Description) {
					continue
				}
				value, _ := s.full.Text(b.Value)
				description, _ := s.full.Text(b.Description)
				revision, err := c.PutBlock(ctx, id, letta.Block{Label: b.Label, Value: value.String(), Description: description.String()}, "undersong: take a text out")
				if err != nil {
					return false, s.w.Connect.LettaError(s.mem, err)
				}
				s.w.Agents.Saw(id, revision)
			}
			return true, s.recompile(ctx, c, id)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// revisions looks at what the blocks of an agent were, where Letta keeps that,
// and reports whether the text stands there. It cannot be taken out. A block that
// is gone is known by its MemoryBlock.
func (s *scrubRun) revisions(ctx context.Context, c letta.Client, agent string, memory letta.Memory) (had bool, _ error) {
	var list v1alpha1.MemoryBlockList
	if err := s.w.Client.List(ctx, &list, client.InNamespace(s.mem.Namespace)); err != nil {
		return false, fmt.Errorf("list MemoryBlocks: %w", err)
	}
	var labels []string
	for _, b := range memory.Blocks {
		labels = append(labels, b.Label)
	}
	for i := range list.Items {
		if of := &list.Items[i].Spec; of.MemoryRef.Name == s.mem.Name {
			labels = append(labels, of.Label)
		}
	}
	slices.Sort(labels)
	for _, label := range slices.Compact(labels) {
		all, err := c.BlockHistory(ctx, agent, label, letta.MaxHistory)
		if errors.Is(err, letta.ErrNotFound) {
			return had, nil
		}
		if err != nil {
			return false, s.w.Connect.LettaError(s.mem, err)
		}
		hit := slices.ContainsFunc(all, func(r letta.BlockRevision) bool { return s.has(r.Block.Value, r.Block.Description, r.Reason) })
		had = had || hit
		switch {
		case hit:
			s.leave("revisions of the block %s of the agent %s, which Letta keeps in the history of its memory", label, agent)
		case len(all) == letta.MaxHistory:
			s.leave("revisions of the block %s of the agent %s before its last %d: nobody has looked at them", label, agent, letta.MaxHistory)
		}
	}
	return had, nil
}

// recompile takes the text out of what the conversations of an agent are told
// before all messages: that is made once and kept, also of a conversation that
// nobody goes on with.
func (s *scrubRun) recompile(ctx context.Context, c letta.Client, agent string) error {
	all, err := c.Conversations(ctx, agent, "")
	if err != nil && !errors.Is(err, letta.ErrNotFound) {
		return s.w.Connect.LettaError(s.mem, err)
	}
	for _, one := range all {
		err := c.Recompile(ctx, letta.Ref{AgentID: agent, ConversationID: one.ID})
		if err != nil && !errors.Is(err, letta.ErrNotFound) {
			return s.w.Connect.LettaError(s.mem, err)
		}
	}
	return nil
}

// conversations looks at what was said between sessions and agents.
func (s *scrubRun) conversations(ctx context.Context) error {
	c, ids, err := s.agents(ctx)
	if err != nil {
		return err
	}
	caps, err := c.Capabilities(ctx)
	if err != nil {
		return s.w.Connect.LettaError(s.mem, err)
	}
	if !caps.FullHistory {
		s.leave("what a conversation was compacted of: this Letta lists what was said since only")
	}
	owners, err := s.owners(ctx)
	if err != nil {
		return err
	}
	for _, id := range ids {
		found, err := c.Conversations(ctx, id, "")
		if errors.Is(err, letta.ErrNotFound) {
			continue
		}
		if err != nil {
			return s.w.Connect.LettaError(s.mem, err)
		}
		slices.SortFunc(found, func(a, b letta.Conversation) int { return strings.Compare(a.ID, b.ID) })
		for _, one := range found {
			ref := letta.Ref{AgentID: id, ConversationID: one.ID}
			err := s.thing(ctx, id+"/"+one.ID, func() ([]v1alpha1.ScrubFound, error) {
				if slices.Contains(s.Left, leftConversation(one.ID)) {
					return nil, nil // counted with its session
				}
				hit, err := s.said(ctx, c, ref)
				return []v1alpha1.ScrubFound{looked(v1alpha1.ScrubConversations, hit)}, err
			}, func() (bool, error) {
				if key, ok := owners[one.ID]; ok {
					return s.ask(ctx, key, &scrubTask{said: true})
				}
				if !strings.HasPrefix(one.Summary, "undersong "+s.mem.Namespace+"/") {
					s.leave("the conversation %s of the agent %s, which is none of undersong's: delete it at Letta", one.ID, id)
					return false, nil
				}
				err := c.DeleteConversation(ctx, ref)
				switch {
				case errors.Is(err, letta.ErrUnsupported):
					s.leave("%s", leftConversation(one.ID))
					return false, nil
				case err != nil && !errors.Is(err, letta.ErrNotFound):
					return false, s.w.Connect.LettaError(s.mem, err)
				}
				return true, nil
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// said reports whether the text stands in a conversation.
func (s *scrubRun) said(ctx context.Context, c letta.Client, ref letta.Ref) (bool, error) {
	for m, err := range c.Messages(ctx, ref, "") {
		if errors.Is(err, letta.ErrNotFound) {
			return false, nil
		}
		if err != nil {
			return false, s.w.Connect.LettaError(s.mem, err)
		}
		if s.has(m.Text) {
			return true, nil
		}
	}
	return false, nil
}
