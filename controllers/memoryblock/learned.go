package memoryblock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/controllers/connect"
	"github.com/undersong-dev/undersong/internal/letta"
	"github.com/undersong-dev/undersong/internal/outcome"
	"github.com/undersong-dev/undersong/internal/segment"
	"github.com/undersong-dev/undersong/internal/store"
)

// follow brings the agent's text into status, and an earlier one back to the
// agent where spec.restore asks for it. When it returns nil status shows what
// the agent has, or had within the last quiet seconds.
func (r *Reconciler) follow(ctx context.Context, s *scope) error {
	c, err := r.Connect.Letta(ctx, s.mem)
	if err != nil {
		return err
	}
	// Not through the Sessions: the memory outlives them.
	agent, memory, err := r.keeper(ctx, c, s)
	switch {
	case err == nil && agent == "" && s.block.Status.Digest == "":
		return outcome.Waitf(v1alpha1.ProgressingReason, interval, "no agent keeps the memory of this project yet")
	case err == nil && agent == "", errors.Is(err, letta.ErrNotFound):
		return outcome.Waitf(v1alpha1.AgentNotFoundReason, interval, "Letta no longer has the agent; a new one is made with the next words of a session")
	case err != nil:
		return r.Connect.LettaError(s.mem, err)
	}
	r.Agents.Saw(agent, memory.Revision)
	st := &s.block.Status
	found, _ := memory.Block(s.block.Spec.Label) // a block that is gone is empty
	if err := r.scrubbed(ctx, s, c, agent, &memory, &found); err != nil {
		return err
	}
	value := s.plain(found.Value)
	fresh := digest(value) != st.Digest
	if fresh {
		if wait := r.wait(st.UpdatedAt); wait > 0 {
			s.again = wait // not said: it would be a write
			return nil
		}
		sessions, err := r.sessions(ctx, s)
		if err != nil {
			return err
		}
		session := ""
		if of := newest(sessions, func(y *v1alpha1.SyncState) bool { return y.MemoryRevision == memory.Revision }); of != nil {
			session = of.Name
		}
		if err := r.record(ctx, s, value, memory.Revision, session); err != nil {
			return err
		}
	}
	return r.restore(ctx, s, c, agent, fresh)
}

// scrubbed takes a text that is to be taken out from what the agent wrote, if it
// stands there: a turn that had read it before can write it once more.
func (r *Reconciler) scrubbed(ctx context.Context, s *scope, c letta.Client, agent string, memory *letta.Memory, found *letta.Block) error {
	if !connect.Scrubbed(s.mem) {
		return nil // the Scrubber counts what it finds
	}
	clean, findings := s.redactor.Text(found.Value)
	if findings.Known() == 0 {
		return nil
	}
	found.Value = clean.String()
	revision, err := r.write(ctx, c, agent, letta.Block{Label: found.Label, Value: found.Value}, "undersong: take a text out")
	if err != nil {
		return r.Connect.LettaError(s.mem, err)
	}
	memory.Revision = revision
	return nil
}

// restore gives the text of an earlier revision back to the agent, once for
// each value of spec.restore: what the agent writes afterwards is followed.
// fresh says that status was given a text in this reconcile, so that one write
// of it will show both.
func (r *Reconciler) restore(ctx context.Context, s *scope, c letta.Client, agent string, fresh bool) error {
	b, st := s.block, &s.block.Status
	want := b.Spec.Restore
	if want == "" || want == st.Restored {
		st.Restored = want
		return nil
	}
	over, err := r.pinnedForAll(ctx, b)
	if err != nil {
		return err
	}
	if over != "" {
		return outcome.Stallf(v1alpha1.InvalidSpecReason, "the MemoryBlock %s pins this label for all projects, so that nothing can be restored; change that one, or take spec.restore away", over)
	}
	i := slices.IndexFunc(st.History, func(h v1alpha1.BlockRevision) bool { return names(want, h.Revision) })
	if i < 0 {
		return outcome.Stallf(v1alpha1.InvalidSpecReason, "status.history has no revision %q; set spec.restore to one that it has, or take it away", want)
	}
	if old := st.History[i]; old.Digest != st.Digest {
		if wait := r.wait(st.UpdatedAt); wait > 0 && !fresh {
			return outcome.Waitf(v1alpha1.ProgressingReason, wait, "the text of revision %q is written within %s", want, quiet)
		}
		value := ""
		if old.Bytes > 0 {
			if value, err = r.stored(ctx, s, old.Digest); errors.Is(err, store.ErrNotExist) {
				return outcome.Stallf(v1alpha1.InvalidSpecReason, "the store no longer has the text of revision %q; set spec.restore to another one, or take it away", want)
			}
			if err != nil {
				return r.Connect.StoreError(s.mem, err)
			}
			value = s.plain(value) // what was scrubbed since does not come back
		}
		revision, err := r.write(ctx, c, agent, letta.Block{Label: b.Spec.Label, Value: value}, "undersong: restore an earlier text")
		if err != nil {
			return r.Connect.LettaError(s.mem, err)
		}
		r.arrived(given{agent, b.Spec.Label}, "") // an earlier try is this one's business
		r.sayRestored(b)
		if err := r.record(ctx, s, value, revision, ""); err != nil {
			return err
		}
	}
	if r.arrived(given{agent, b.Spec.Label}, st.Digest) {
		r.sayRestored(b)
	}
	st.Restored = want
	return nil
}

// leastRevision is the length of the shortest beginning that names a revision: as
// much as undersong memory log shows.
const leastRevision = 12

// names reports whether want is a revision, or the beginning of one as it is shown
// to people, without the name of the digest.
func names(want, revision string) bool {
	_, shown, found := strings.Cut(revision, ":")
	if !found {
		shown = revision
	}
	return want == revision || len(want) >= leastRevision && strings.HasPrefix(shown, want)
}

func (r *Reconciler) sayRestored(b *v1alpha1.MemoryBlock) {
	r.Recorder.Eventf(b, nil, corev1.EventTypeNormal, v1alpha1.RestoredReason, "Restore", "the agent has the text of revision %q again", b.Spec.Restore)
}

func (r *Reconciler) doubt(g given, digest string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.unsure == nil {
		r.unsure = map[given]string{}
	}
	r.unsure[g] = digest
}

// arrived says whether a write of which nothing was heard did what it should: the
// agent has that text now. It answers yes once.
func (r *Reconciler) arrived(g given, digest string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	was, ok := r.unsure[g]
	delete(r.unsure, g)
	return ok && was == digest
}

// write gives an agent a block. Where that seems to fail it looks whether it
// did: a lost answer must not keep what was done from being said.
func (r *Reconciler) write(ctx context.Context, c letta.Client, agent string, b letta.Block, reason string) (string, error) {
	revision, err := c.PutBlock(ctx, agent, b, reason)
	if err != nil {
		memory, rerr := c.Memory(ctx, agent)
		if rerr != nil {
			r.doubt(given{agent, b.Label}, digest(b.Value))
			return "", err
		}
		if found, ok := memory.Block(b.Label); !ok || found.Value != b.Value || (b.Description != "" && found.Description != b.Description) {
			return "", err
		}
		revision = memory.Revision
	}
	r.Agents.Saw(agent, revision)
	return revision, nil
}

// stored reads a text from the store.
func (r *Reconciler) stored(ctx context.Context, s *scope, digest string) (string, error) {
	bucket, err := r.Connect.Store(ctx, s.mem)
	if err != nil {
		return "", err
	}
	text, err := bucket.Get(ctx, segment.BlockKey(s.block.Namespace, digest), maxBytes)
	return string(text), err
}

// sessions are those whose agent keeps the block, to name the one that a text
// came with. What a memory's scope makes
// of a project is asked again each time: under another scope than before, a
// block of the whole team must not show one project's memory. They are the
// cache's own, for reading alone.
func (r *Reconciler) sessions(ctx context.Context, s *scope) ([]v1alpha1.Session, error) {
	b := s.block
	var list v1alpha1.SessionList
	if err := r.Client.List(ctx, &list, client.InNamespace(b.Namespace), client.MatchingFields{"spec.memoryRef.name": b.Spec.MemoryRef.Name}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list Sessions: %w", err)
	}
	var of []v1alpha1.Session
	for _, ses := range list.Items {
		if ses.Status.SyncState != nil && ses.Status.SyncState.AgentID != "" && connect.Project(s.mem, ses.Spec.Project.Remote) == b.Spec.Project {
			of = append(of, ses)
		}
	}
	return of, nil
}

// newest is the session that was active last among those that fit.
func newest(sessions []v1alpha1.Session, fits func(*v1alpha1.SyncState) bool) *v1alpha1.Session {
	var best *v1alpha1.Session
	for i := range sessions {
		s := &sessions[i]
		if fits(s.Status.SyncState) && (best == nil || best.Status.LastActivityTime.Before(s.Status.LastActivityTime)) {
			best = s
		}
	}
	return best
}
