package session

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/controllers/connect"
	"github.com/undersong-dev/undersong/controllers/internal/text"
	"github.com/undersong-dev/undersong/internal/crash"
	"github.com/undersong-dev/undersong/internal/letta"
	"github.com/undersong-dev/undersong/internal/segment"
	"github.com/undersong-dev/undersong/internal/store"
)

const (
	// maxBlocks bounds the blocks of one agent that are shown: all of them are
	// paid for in every turn.
	maxBlocks = 32
	// maxBlockObjects bounds the MemoryBlocks of one memory and project. An
	// object outlives its block, for its history.
	maxBlockObjects = 64
	// maxBlockBytes bounds the text of a block that is kept.
	maxBlockBytes = 1 << 20
)

// memory notes the memory's revision and blocks, keeps each text in the store
// under its digest, and makes the MemoryBlocks that are missing. Their own
// reconciler fills them.
func (r *Reconciler) memory(ctx context.Context, s *scope, c letta.Client) error {
	st := s.ses.Status.SyncState
	mem, err := c.Memory(ctx, st.AgentID)
	if errors.Is(err, letta.ErrNotFound) {
		return nil // a new agent is made with the next words
	}
	if err != nil {
		return r.Connect.LettaError(s.mem, err)
	}
	r.Agents.Saw(st.AgentID, mem.Revision)
	if mem.Revision == st.MemoryRevision {
		return nil
	}
	bucket, err := r.Connect.Store(ctx, s.mem)
	if err != nil {
		return err
	}
	project := connect.Project(s.mem, s.ses.Spec.Project.Remote)
	have, err := r.blockObjects(ctx, s, project)
	if err != nil {
		return err
	}
	shown, rejected, left := choose(mem, func(label string) bool { return have.labels[label] })
	blocks := []v1alpha1.SyncedBlock{}
	for _, b := range shown {
		synced, err := r.block(ctx, s, bucket, b)
		if err != nil {
			return err
		}
		blocks = append(blocks, synced)
		switch {
		case have.labels[b.Label]:
		case have.objects >= maxBlockObjects:
			left++
		default:
			if err := r.makeBlock(ctx, s, project, b.Label); err != nil {
				return err
			}
			have.objects++
		}
	}
	crash.Point(crash.ControllerBlocksCreated)
	st.Blocks, st.MemoryRevision = blocks, mem.Revision
	r.leftOut(s, project, rejected, left)
	return nil
}

// choose picks the blocks that are shown, sorted by label: those that have an
// object already, then those of the template, then others, so that an agent
// that is talked into making hundreds hides nothing of what was there. It counts
// what has no label, and what is too much.
func choose(mem letta.Memory, known func(label string) bool) (shown []letta.Block, rejected, left int) {
	rank := func(b letta.Block) int {
		switch {
		case known(b.Label):
			return 0
		case connect.Template(b.Label):
			return 1
		}
		return 2
	}
	shown, rejected = slices.Clone(mem.Blocks), mem.Rejected
	slices.SortStableFunc(shown, func(a, b letta.Block) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.Label, b.Label))
	})
	if len(shown) > maxBlocks {
		left = len(shown) - maxBlocks
		shown = shown[:maxBlocks]
	}
	slices.SortFunc(shown, func(a, b letta.Block) int { return cmp.Compare(a.Label, b.Label) })
	return shown, rejected, left
}

// objects are the MemoryBlocks that a project's memory has.
type objects struct {
	// labels that have one, of the project or pinned for all projects.
	labels map[string]bool
	// objects is the number of those of the project.
	objects int
}

// blockObjects looks which MemoryBlocks there are.
func (r *Reconciler) blockObjects(ctx context.Context, s *scope, project string) (objects, error) {
	var list v1alpha1.MemoryBlockList
	if err := r.Client.List(ctx, &list, client.InNamespace(s.ses.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return objects{}, fmt.Errorf("list MemoryBlocks: %w", err)
	}
	have := objects{labels: map[string]bool{}}
	for _, b := range list.Items {
		if b.Spec.MemoryRef.Name != s.mem.Name || b.Name != v1alpha1.MemoryBlockName(s.mem.Name, b.Spec.Project, b.Spec.Label) {
			continue
		}
		switch {
		case b.Spec.Project == project:
			have.labels[b.Spec.Label] = true
			have.objects++
		case b.Spec.Project == "" && b.Spec.Mode == v1alpha1.BlockPinned:
			have.labels[b.Spec.Label] = true // one object says it for all
		}
	}
	return have, nil
}

// block stores one block's text.
func (r *Reconciler) block(ctx context.Context, s *scope, bucket *store.Bucket, b letta.Block) (v1alpha1.SyncedBlock, error) {
	clean, _ := s.redactor.Text(b.Value)
	value := text.Plain(clean, maxBlockBytes)
	sum := sha256.Sum256([]byte(value))
	synced := v1alpha1.SyncedBlock{Label: b.Label, Digest: hex.EncodeToString(sum[:]), Bytes: int64(len(value))}
	if slices.Contains(s.ses.Status.SyncState.Blocks, synced) || value == "" { // nothing need not be kept
		return synced, nil
	}
	if err := bucket.Put(ctx, segment.BlockKey(s.ses.Namespace, synced.Digest), []byte(value)); err != nil {
		return synced, r.Connect.StoreError(s.mem, err)
	}
	return synced, nil
}

// makeBlock makes a block's MemoryBlock.
func (r *Reconciler) makeBlock(ctx context.Context, s *scope, project, label string) error {
	err := r.Client.Create(ctx, &v1alpha1.MemoryBlock{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.ses.Namespace, Name: v1alpha1.MemoryBlockName(s.mem.Name, project, label)},
		Spec:       v1alpha1.MemoryBlockSpec{MemoryRef: v1alpha1.LocalRef{Name: s.mem.Name}, Project: project, Label: label, Mode: v1alpha1.BlockLearned},
	})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("make a MemoryBlock: %w", err)
	}
	return nil
}

// refresh has the conversation see the memory as it is, where another
// conversation, a person or a Pinned block may have changed it since the
// conversation's own last turn. It is called right before a turn, so that many
// changes are one call, and conversations that rest cost none.
func (r *Reconciler) refresh(ctx context.Context, s *scope, c letta.Client) error {
	st := s.ses.Status.SyncState
	if st.MemoryRevision == "" || st.MemoryRevision == r.Agents.Newest(st.AgentID) {
		return nil // a new conversation begins with the memory as it is
	}
	if err := c.Recompile(ctx, letta.Ref{AgentID: st.AgentID, ConversationID: st.ConversationID}); err != nil {
		return r.lettaError(s, err)
	}
	return nil
}

// leftOut says once per process and agent, on the TeamMemory, that some of an
// agent's memory is not shown. The names are not said: an agent can be talked
// into any.
func (r *Reconciler) leftOut(s *scope, project string, rejected, left int) {
	agent := s.ses.Status.SyncState.AgentID
	whose := "the agent " + agent
	if project != "" {
		whose += " of " + project
	}
	say := func(reason, format string, args ...any) {
		key := reason + " " + string(s.mem.UID) + " " + agent
		s.after = append(s.after, func(context.Context) {
			if !r.told.has(key) {
				r.told.add(key)
				r.Recorder.Eventf(s.mem, nil, corev1.EventTypeWarning, reason, "Publish", format, args...)
			}
		})
	}
	if rejected > 0 {
		say(v1alpha1.LabelRejectedReason, "%s keeps memory under names that are no labels; it is read by the agent and not shown here. Rename it at Letta, or take it away", whose)
	}
	if left > 0 {
		say(v1alpha1.BlockLimitReason, "%s keeps more blocks than the %d that are shown, or than the %d MemoryBlocks a project may have. Take away at Letta what is of no use, and delete MemoryBlocks that are not needed", whose, maxBlocks, maxBlockObjects)
	}
}
