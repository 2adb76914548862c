package session

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/controllers/connect"
	"github.com/undersong-dev/undersong/controllers/internal/text"
	"github.com/undersong-dev/undersong/internal/crash"
	"github.com/undersong-dev/undersong/internal/letta"
	"github.com/undersong-dev/undersong/internal/seal"
	"github.com/undersong-dev/undersong/internal/segment"
	"github.com/undersong-dev/undersong/internal/store"
)

const (
	// maxWhispers and maxWhisperBytes bound status.whispers.
	maxWhispers     = 4
	maxWhisperBytes = 2000
	// whisperLife is how long a whisper is worth showing.
	whisperLife = 2 * time.Hour
	// maxRecipients is how many of the owner's workstations a whisper is
	// sealed to, newest first.
	maxRecipients = 8
	// maxBlocks bounds the blocks of one memory.
	maxBlocks = 32
	// maxBlockBytes bounds the text of a block that is kept.
	maxBlockBytes = 1 << 20
)

// publish shows what came of the newest delivery: the agent's answer, sealed
// to the owner, and the memory as it is now. When it returns nil both stand in
// status and in the MemoryBlocks.
func (r *Reconciler) publish(ctx context.Context, s *scope) error {
	d := s.ses.Status.SyncState.Delivery
	if d == nil || d.Phase != v1alpha1.DeliveryDelivered {
		return nil
	}
	c, err := r.Connect.Letta(ctx, s.mem)
	if err != nil {
		return err
	}
	turn, err := r.answerOf(ctx, s, c, d)
	if err != nil {
		return err
	}
	if err := r.memory(ctx, s, c); err != nil {
		return err
	}
	if err := r.whisper(ctx, s, d, turn); err != nil {
		return err
	}
	if id := turn.LastMessageID(); id != "" {
		s.ses.Status.SyncState.LastSeenMessageID = id
	}
	d.Phase = v1alpha1.DeliveryPublished
	s.after = append(s.after, func(context.Context) {
		r.Turns.drop(s.key)
		crash.Point(crash.ControllerPublished)
	})
	return nil
}

// answerOf returns the turn's reply: from this process, or from Letta where
// another one had it.
func (r *Reconciler) answerOf(ctx context.Context, s *scope, c letta.Client, d *v1alpha1.Delivery) (letta.Turn, error) {
	if state, turn, err := r.Turns.look(s.key, clientID(d)); state == turnDone && err == nil {
		return turn, nil
	}
	st := s.ses.Status.SyncState
	found, turn, err := c.Lookup(ctx, letta.Ref{AgentID: st.AgentID, ConversationID: st.ConversationID}, clientID(d))
	switch {
	case errors.Is(err, letta.ErrNotFound), err == nil && found != letta.DeliveryReplied:
		// The conversation is gone, or was compacted meanwhile: the words are
		// in the memory, the whisper about them is lost.
		ctrl.LoggerFrom(ctx).Info("Publishing without the answer, which Letta no longer has")
		return letta.Turn{}, nil
	case err != nil:
		return letta.Turn{}, r.Connect.LettaError(s.mem, err)
	}
	return turn, nil
}

// whisper seals the answer to the owner's workstations, unless it is silence,
// and drops what expired.
func (r *Reconciler) whisper(ctx context.Context, s *scope, d *v1alpha1.Delivery, turn letta.Turn) error {
	st := &s.ses.Status
	now := r.Clock.Now()
	st.Whispers = slices.DeleteFunc(st.Whispers, func(w v1alpha1.Whisper) bool { return now.Sub(w.At.Time) > whisperLife || w.ID == d.ID })
	clean, _ := r.Redactor.Text(whisperOf(turn))
	words := text.Plain(clean, maxWhisperBytes)
	if words == "" {
		return nil
	}
	keys, err := r.recipients(ctx, s)
	if err != nil || len(keys) == 0 {
		return err
	}
	at := now.Truncate(time.Second)
	sealed, err := seal.SealWhisper(seal.WhisperText{
		ID: d.ID, Session: s.ses.Spec.SessionID, Project: s.ses.Spec.Project.Remote, Memory: s.mem.Name, Text: words, At: at, Expires: at.Add(whisperLife),
		Source: origin(s.ses, d),
	}, keys...)
	if err != nil {
		return fmt.Errorf("seal a whisper: %w", err)
	}
	st.Whispers = append(st.Whispers, v1alpha1.Whisper{ID: d.ID, At: metav1.NewTime(at), Bytes: int32(len(words)), Sealed: sealed}) //nolint:gosec // at most maxWhisperBytes
	if n := len(st.Whispers); n > maxWhispers {
		st.Whispers = st.Whispers[n-maxWhispers:]
	}
	return nil
}

// origin says what an answer came from: the owner asks why.
func origin(ses *v1alpha1.Session, d *v1alpha1.Delivery) seal.WhisperSource {
	from := seal.WhisperSource{
		Session: ses.Name, Workstation: d.Workstation, FromSegment: d.From.Segments + 1, ToSegment: d.To.Segments,
		Agent: ses.Status.SyncState.AgentID, Conversation: ses.Status.SyncState.ConversationID, Revision: ses.Status.SyncState.MemoryRevision,
	}
	if d.To.Lines > 0 {
		from.ToSegment++
	}
	return from
}

// recipients are the public keys of the owner's newest workstations.
func (r *Reconciler) recipients(ctx context.Context, s *scope) ([]string, error) {
	var list v1alpha1.WorkstationList
	if err := r.Client.List(ctx, &list, client.InNamespace(s.ses.Namespace), client.MatchingFields{ownerIndex: s.ses.Spec.Owner}); err != nil {
		return nil, fmt.Errorf("list the owner's workstations: %w", err)
	}
	slices.SortFunc(list.Items, func(a, b v1alpha1.Workstation) int {
		return b.CreationTimestamp.Compare(a.CreationTimestamp.Time)
	})
	var keys []string
	for _, w := range list.Items {
		if len(keys) == maxRecipients || slices.Contains(keys, w.Spec.PublicKey) {
			continue
		}
		// A key that nothing can be sealed to must not keep the whisper from
		// the others.
		if _, err := seal.Seal(nil, w.Spec.PublicKey); err == nil {
			keys = append(keys, w.Spec.PublicKey)
		}
	}
	return keys, nil
}

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
	if mem.Revision == st.MemoryRevision {
		return nil
	}
	bucket, err := r.Connect.Store(ctx, s.mem)
	if err != nil {
		return err
	}
	project := connect.Project(s.mem, s.ses.Spec.Project.Remote)
	blocks := []v1alpha1.SyncedBlock{}
	for _, b := range mem.Blocks {
		if !letta.ValidLabel(b.Label) || len(blocks) == maxBlocks {
			ctrl.LoggerFrom(ctx).Info("Leaving out a memory block whose label is not allowed, or one too many", "agentID", st.AgentID)
			continue
		}
		synced, err := r.block(ctx, s, bucket, project, b)
		if err != nil {
			return err
		}
		blocks = append(blocks, synced)
	}
	crash.Point(crash.ControllerBlocksCreated)
	st.Blocks, st.MemoryRevision = blocks, mem.Revision
	return nil
}

// block stores one block's text and makes its MemoryBlock.
func (r *Reconciler) block(ctx context.Context, s *scope, bucket *store.Bucket, project string, b letta.Block) (v1alpha1.SyncedBlock, error) {
	clean, _ := r.Redactor.Text(b.Value)
	value := text.Plain(clean, maxBlockBytes)
	sum := sha256.Sum256([]byte(value))
	synced := v1alpha1.SyncedBlock{Label: b.Label, Digest: hex.EncodeToString(sum[:]), Bytes: int64(len(value))}
	if old := slices.IndexFunc(s.ses.Status.SyncState.Blocks, func(o v1alpha1.SyncedBlock) bool { return o == synced }); old >= 0 {
		return synced, nil
	}
	if value != "" { // nothing need not be kept
		if err := bucket.Put(ctx, segment.BlockKey(s.ses.Namespace, synced.Digest), []byte(value)); err != nil {
			return synced, r.Connect.StoreError(s.mem, err)
		}
	}
	obj := &v1alpha1.MemoryBlock{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.ses.Namespace, Name: v1alpha1.MemoryBlockName(s.mem.Name, project, b.Label)},
		Spec:       v1alpha1.MemoryBlockSpec{MemoryRef: v1alpha1.LocalRef{Name: s.mem.Name}, Project: project, Label: b.Label, Mode: v1alpha1.BlockLearned},
	}
	err := r.Client.Get(ctx, client.ObjectKeyFromObject(obj), &v1alpha1.MemoryBlock{})
	if apierrors.IsNotFound(err) {
		err = r.Client.Create(ctx, obj)
	}
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return synced, fmt.Errorf("make a MemoryBlock: %w", err)
	}
	return synced, nil
}
