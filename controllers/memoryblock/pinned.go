package memoryblock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/controllers/connect"
	"github.com/undersong-dev/undersong/controllers/internal/text"
	"github.com/undersong-dev/undersong/internal/letta"
	"github.com/undersong-dev/undersong/internal/outcome"
	"github.com/undersong-dev/undersong/internal/redact"
)

// maxDescription bounds the description of a Pinned block, in characters.
const maxDescription = 200

// pin gives the team's text to every agent that has another one. When it
// returns nil all of them have it, or are given it within quiet seconds of the
// last time.
func (r *Reconciler) pin(ctx context.Context, s *scope) error {
	b, st := s.block, &s.block.Status
	want := pinned(s.redactor, b)
	if want.Value == "" {
		return outcome.Stallf(v1alpha1.InvalidSpecReason, "spec.value has no character that may be shown")
	}
	if b.Spec.Project != "" && connect.Project(s.mem, b.Spec.Project) == "" {
		return outcome.Stallf(v1alpha1.InvalidSpecReason, "TeamMemory %s has one agent for all projects; make this MemoryBlock without a project", s.mem.Name)
	}
	c, err := r.Connect.Letta(ctx, s.mem)
	if err != nil {
		return err
	}
	agents, err := r.targets(ctx, s, c)
	if err != nil {
		return err
	}
	written := st.Digest == digest(want.Value) // in an earlier reconcile, everywhere
	differ, edited, err := r.compare(ctx, s, c, agents, want)
	if err != nil {
		return err
	}
	var late []connect.Kept // put back by a try of which nothing was heard
	for _, agent := range agents {
		if r.arrived(given{agent.ID, want.Label}, digest(want.Value)) && written && !slices.Contains(differ, agent) {
			late = append(late, agent)
		}
	}
	st.PutBackAt = latest(st.PutBackAt, r.lastPutBack(client.ObjectKeyFromObject(b)))
	if wait := r.wait(latest(st.UpdatedAt, st.PutBackAt)); wait > 0 && len(differ) > 0 {
		if !written {
			return outcome.Waitf(v1alpha1.ProgressingReason, wait, "the text is written within %s", quiet)
		}
		s.again = wait // not said: it would be a write
		return nil
	}
	gave, err := r.give(ctx, c, differ, want)
	undone := append(late, slices.DeleteFunc(gave, func(k connect.Kept) bool { return !written || !slices.Contains(edited, k) })...)
	if len(undone) > 0 {
		// Said now, not when the status is written: it has happened.
		at := r.now()
		st.PutBackAt = &at
		r.putBackAt(client.ObjectKeyFromObject(b), at)
		r.Recorder.Eventf(b, nil, corev1.EventTypeWarning, v1alpha1.PutBackReason, "PutBack", "changed by %s; the pinned text was put back", whose(undone))
	}
	if err != nil {
		return r.Connect.LettaError(s.mem, err)
	}
	if err := r.record(ctx, s, want.Value, fmt.Sprintf("generation-%d", b.Generation), ""); err != nil {
		return err
	}
	if len(agents) == 0 {
		return outcome.Waitf(v1alpha1.ProgressingReason, interval, "no agent is there yet; one that is made has this block from the start")
	}
	return nil
}

// give writes the block to agents and returns those that were given it.
func (r *Reconciler) give(ctx context.Context, c letta.Client, agents []connect.Kept, want letta.Block) (given []connect.Kept, _ error) {
	for _, agent := range agents {
		_, err := r.write(ctx, c, agent.ID, want, "undersong: write a pinned block")
		switch {
		case errors.Is(err, letta.ErrNotFound): // one that is gone is made with the block
		case err != nil:
			return given, err
		default:
			given = append(given, agent)
		}
	}
	return given, nil
}

// compare reads the agents' memories. differ are those that have another text
// or description, edited those of them that have a text at all.
func (r *Reconciler) compare(ctx context.Context, s *scope, c letta.Client, agents []connect.Kept, want letta.Block) (differ, edited []connect.Kept, _ error) {
	for _, agent := range agents {
		memory, err := c.Memory(ctx, agent.ID)
		if errors.Is(err, letta.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, nil, r.Connect.LettaError(s.mem, err)
		}
		r.Agents.Saw(agent.ID, memory.Revision)
		found, ok := memory.Block(want.Label)
		same := ok && strings.TrimSpace(found.Value) == want.Value
		if ok && !same {
			edited = append(edited, agent)
		}
		if !same || (want.Description != "" && found.Description != want.Description) {
			differ = append(differ, agent)
		}
	}
	return differ, edited, nil
}

// targets are the agents that are to have the block. One whose project pins
// the label for itself is not among those of all projects.
func (r *Reconciler) targets(ctx context.Context, s *scope, c letta.Client) ([]connect.Kept, error) {
	b := s.block
	agents, err := connect.KeptOf(ctx, c, s.mem)
	if err != nil {
		return nil, r.Connect.LettaError(s.mem, err)
	}
	if b.Spec.Project != "" {
		return slices.DeleteFunc(agents, func(k connect.Kept) bool { return k.Project != b.Spec.Project }), nil
	}
	own, err := pins(ctx, r.Client, s.mem)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(agents, func(k connect.Kept) bool {
		return k.Project != "" && slices.ContainsFunc(own, func(o v1alpha1.MemoryBlock) bool {
			return o.Spec.Label == b.Spec.Label && o.Spec.Project == k.Project
		})
	}), nil
}

// pinnedForAll is the name of the block that pins a Learned block's label for
// all projects, empty where none does.
func (r *Reconciler) pinnedForAll(ctx context.Context, b *v1alpha1.MemoryBlock) (string, error) {
	if b.Spec.Project == "" {
		return "", nil // it would be this one
	}
	name := v1alpha1.MemoryBlockName(b.Spec.MemoryRef.Name, "", b.Spec.Label)
	other := &v1alpha1.MemoryBlock{}
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: b.Namespace, Name: name}, other)
	if client.IgnoreNotFound(err) != nil {
		return "", fmt.Errorf("get MemoryBlock: %w", err)
	}
	if err != nil || other.Spec.Mode != v1alpha1.BlockPinned || other.Spec.Project != "" || other.Spec.Label != b.Spec.Label {
		return "", nil //nolint:nilerr // none is an answer
	}
	return name, nil
}

// Pinned returns what connect.Agents asks for: the blocks that an agent of a
// project has from the start, because the team writes them.
func Pinned(reader client.Reader, rules *connect.Redactors) func(context.Context, *v1alpha1.TeamMemory, string) ([]letta.Block, error) {
	return func(ctx context.Context, m *v1alpha1.TeamMemory, project string) ([]letta.Block, error) {
		all, err := pins(ctx, reader, m)
		if err != nil {
			return nil, err
		}
		redactor, err := rules.For(ctx, m)
		if err != nil {
			return nil, err
		}
		// The project's own come last, and win.
		slices.SortStableFunc(all, func(a, b v1alpha1.MemoryBlock) int { return strings.Compare(a.Spec.Project, b.Spec.Project) })
		var blocks []letta.Block
		for i := range all {
			if p := all[i].Spec.Project; p != "" && p != project {
				continue
			}
			b := pinned(redactor, &all[i])
			blocks = slices.DeleteFunc(blocks, func(o letta.Block) bool { return o.Label == b.Label })
			if b.Value != "" {
				blocks = append(blocks, b)
			}
		}
		return blocks, nil
	}
}

// pins lists the Pinned blocks of a memory, without those whose name is not
// right: they are acted on by nobody.
func pins(ctx context.Context, reader client.Reader, m *v1alpha1.TeamMemory) ([]v1alpha1.MemoryBlock, error) {
	var list v1alpha1.MemoryBlockList
	if err := reader.List(ctx, &list, client.InNamespace(m.Namespace)); err != nil {
		return nil, fmt.Errorf("list MemoryBlocks: %w", err)
	}
	return slices.DeleteFunc(list.Items, func(b v1alpha1.MemoryBlock) bool {
		return b.Spec.Mode != v1alpha1.BlockPinned || b.Spec.MemoryRef.Name != m.Name ||
			b.Name != v1alpha1.MemoryBlockName(m.Name, b.Spec.Project, b.Spec.Label)
	}), nil
}

// pinned is a Pinned block as Letta is given it: scanned, as all that is
// learned is.
func pinned(redactor *redact.Redactor, b *v1alpha1.MemoryBlock) letta.Block {
	value, _ := redactor.Text(b.Spec.Value)
	description, _ := redactor.Text(b.Spec.Description)
	return letta.Block{
		Label: b.Spec.Label, Value: text.Plain(value, maxBytes), Description: text.Label(description, maxDescription),
	}
}

// whose names agents by their projects, the first few of them.
func whose(agents []connect.Kept) string {
	var names []string
	for _, a := range agents {
		name := "the agent of " + a.Project
		if a.Project == "" {
			name = "the agent"
		}
		names = append(names, name)
	}
	slices.Sort(names)
	if len(names) > 3 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:3], ", "), len(names)-3)
	}
	return strings.Join(names, ", ")
}

// lastPutBack is when this process put a block back, nil if it did not.
func (r *Reconciler) lastPutBack(key types.NamespacedName) *metav1.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	if at, ok := r.putBack[key]; ok {
		return &at
	}
	return nil
}

func (r *Reconciler) putBackAt(key types.NamespacedName, at metav1.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.putBack == nil {
		r.putBack = map[types.NamespacedName]metav1.Time{}
	}
	r.putBack[key] = at
}

// forget drops what is known of a block that is gone.
func (r *Reconciler) forget(key types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.putBack, key)
}

// latest is the later of two times of which either may be unknown.
func latest(a, b *metav1.Time) *metav1.Time {
	if a == nil || (b != nil && a.Before(b)) {
		return b
	}
	return a
}

// wait is how long it is quiet after a write; a clock that was set back makes
// it no longer.
func (r *Reconciler) wait(since *metav1.Time) time.Duration {
	if since == nil {
		return 0
	}
	return min(quiet-r.Clock.Since(since.Time), quiet)
}

// now is the time as status has it.
func (r *Reconciler) now() metav1.Time { return metav1.NewTime(r.Clock.Now().Truncate(time.Second)) }
