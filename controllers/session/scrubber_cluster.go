package session

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/controllers/internal/text"
)

// ask has a live Session do its part, and waits for it.
func (s *scrubRun) ask(ctx context.Context, key types.NamespacedName, t *scrubTask) (bool, error) {
	q := s.w.Scrubs
	q.put(key, t)
	defer q.take(key)
	patience := s.w.Patience
	if patience == 0 {
		patience = scrubPatience
	}
	over := time.NewTimer(patience)
	defer over.Stop()
	poll := time.NewTicker(scrubPoll)
	defer poll.Stop()
	for {
		q.wake(key)
		select {
		case <-t.done:
			for _, l := range t.left {
				s.leave("%s", l)
			}
			if t.stays {
				s.stays = append(s.stays, v1alpha1.ScrubConversations)
			}
			return true, nil
		case <-ctx.Done():
			return false, ctx.Err()
		case <-over.C:
			if err := s.w.Connect.Resting(s.mem); err != nil {
				return false, err // it is not the Session that does not come to it
			}
			s.leave("Session %s, which does not come to it: see its conditions, and scrub again", key.Name)
			return false, nil
		case <-poll.C:
		}
		err := s.w.Live.Get(ctx, key, &v1alpha1.Session{})
		if apierrors.IsNotFound(err) {
			return false, fmt.Errorf("the Session %s went meanwhile", key.Name) // its archive is looked at once more
		}
	}
}

// owners are the Sessions of the memory by their conversations.
func (s *scrubRun) owners(ctx context.Context) (map[string]types.NamespacedName, error) {
	all, err := s.list(ctx)
	owners := map[string]types.NamespacedName{}
	for i := range all {
		if y := all[i].Status.SyncState; y != nil && y.ConversationID != "" {
			owners[y.ConversationID] = client.ObjectKeyFromObject(&all[i])
		}
	}
	return owners, err
}

// list lists the memory's Sessions, by name.
func (s *scrubRun) list(ctx context.Context) ([]v1alpha1.Session, error) {
	var list v1alpha1.SessionList
	if err := s.w.Client.List(ctx, &list, client.InNamespace(s.mem.Namespace)); err != nil {
		return nil, fmt.Errorf("list Sessions: %w", err)
	}
	all := slices.DeleteFunc(list.Items, func(o v1alpha1.Session) bool { return o.Spec.MemoryRef.Name != s.mem.Name })
	slices.SortFunc(all, func(a, b v1alpha1.Session) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

// memoryBlocks looks at the MemoryBlocks.
func (s *scrubRun) memoryBlocks(ctx context.Context) error {
	var list v1alpha1.MemoryBlockList
	if err := s.w.Client.List(ctx, &list, client.InNamespace(s.mem.Namespace)); err != nil {
		return fmt.Errorf("list MemoryBlocks: %w", err)
	}
	slices.SortFunc(list.Items, func(a, b v1alpha1.MemoryBlock) int { return strings.Compare(a.Name, b.Name) })
	for i := range list.Items {
		b := &list.Items[i]
		if b.Spec.MemoryRef.Name != s.mem.Name {
			continue
		}
		err := s.thing(ctx, b.Name, func() ([]v1alpha1.ScrubFound, error) {
			if s.has(b.Spec.Value, b.Spec.Description) {
				s.leave("spec of MemoryBlock %s, which its author changes: kubectl edit memoryblock %s", b.Name, b.Name)
			}
			return []v1alpha1.ScrubFound{looked(v1alpha1.ScrubMemoryBlocks, s.shows(&b.Status))}, nil
		}, func() (bool, error) { return true, s.hide(ctx, client.ObjectKeyFromObject(b)) })
		if err != nil {
			return err
		}
	}
	return nil
}

// shows reports whether the status of a MemoryBlock has the text.
func (s *scrubRun) shows(st *v1alpha1.MemoryBlockStatus) bool {
	if s.has(st.Value) {
		return true
	}
	for i, h := range st.History {
		if s.has(h.Change) || h.Change != "" && s.pieces(st.History, i) {
			return true
		}
	}
	return false
}

// pieces reports whether a change may show the text in pieces, line by line or
// cut: the revision, or the one before it, had it.
func (s *scrubRun) pieces(history []v1alpha1.BlockRevision, i int) bool {
	return slices.Contains(s.Texts, history[i].Digest) || i+1 < len(history) && slices.Contains(s.Texts, history[i+1].Digest)
}

// hide takes the text out of the status of a MemoryBlock.
func (s *scrubRun) hide(ctx context.Context, key types.NamespacedName) error {
	for try := 0; ; try++ {
		live := &v1alpha1.MemoryBlock{}
		if err := s.w.Live.Get(ctx, key, live); err != nil {
			return client.IgnoreNotFound(err)
		}
		before := live.DeepCopy()
		st := &live.Status
		if s.has(st.Value) {
			clean, _ := s.full.Text(st.Value)
			st.Value = text.Plain(clean, maxBlockBytes)
		}
		for i := range st.History {
			if h := &st.History[i]; s.has(h.Change) || s.pieces(st.History, i) {
				h.Change = ""
			}
		}
		err := s.w.Client.Status().Patch(ctx, live, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), scrubManager)
		if !apierrors.IsConflict(err) || try == 10 {
			return client.IgnoreNotFound(err)
		}
	}
}

// sessions looks at what Sessions themselves say.
func (s *scrubRun) sessions(ctx context.Context) error {
	all, err := s.list(ctx)
	if err != nil {
		return err
	}
	for i := range all {
		ses := &all[i]
		err := s.thing(ctx, ses.Name, func() ([]v1alpha1.ScrubFound, error) {
			names := []string{ses.Spec.Project.Name, ses.Spec.Project.Remote, ses.Spec.Owner}
			for _, w := range ses.Spec.Writers {
				names = append(names, w.Branch)
			}
			if s.has(names...) {
				s.leave("spec of Session %s, its project or branch, which nobody can change: delete that Session", ses.Name)
			}
			shown := []string{ses.Status.Title, ses.Status.Tag, ses.Status.PullRequest}
			for _, w := range ses.Status.Whispers {
				shown = append(shown, w.Text)
			}
			return []v1alpha1.ScrubFound{looked(v1alpha1.ScrubSessions, s.has(shown...))}, nil
		}, func() (bool, error) { return s.ask(ctx, client.ObjectKeyFromObject(ses), &scrubTask{}) })
		if err != nil {
			return err
		}
	}
	return nil
}
