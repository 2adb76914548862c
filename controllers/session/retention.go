package session

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/controllers/connect"
	"github.com/undersong-dev/undersong/internal/letta"
	"github.com/undersong-dev/undersong/internal/outcome"
	"github.com/undersong-dev/undersong/internal/segment"
	"github.com/undersong-dev/undersong/internal/store"
)

const (
	// defaultSessionDays and defaultTranscriptDays are spec.retention where it
	// is omitted.
	defaultSessionDays    = 30
	defaultTranscriptDays = 90
	// eraseFinalizer holds a Session of a memory whose deletionPolicy is Erase
	// until its archive is erased.
	eraseFinalizer = "undersong.dev/erase"
	// eventNotErased and eventExpired are reasons of events.
	eventNotErased = "NotErased"
	eventExpired   = "Expired"
	// sweepEvery is how often the archive is looked through.
	sweepEvery = 6 * time.Hour
)

// +kubebuilder:rbac:groups=undersong.dev,resources=sessions,verbs=patch;delete

func days(n *int32, otherwise int32) time.Duration {
	if n != nil {
		otherwise = *n
	}
	return time.Duration(otherwise) * 24 * time.Hour
}

// untilExpired is how long a Session is still kept; ok is false while it is not
// over: Active, behind, or with a request that is not answered yet. An answer
// keeps nothing: nobody need ever take it away.
func (r *Reconciler) untilExpired(s *scope) (left time.Duration, ok bool) {
	st := &s.ses.Status
	if s.mem == nil || s.mem.UID == "" || (st.State != v1alpha1.SessionIdle && st.State != v1alpha1.SessionEnded) ||
		st.Lag != 0 || backlog(s.ses) || slices.ContainsFunc(s.ses.Spec.Requests, func(q v1alpha1.Request) bool { return !hasAnswer(s.ses, q.ID) }) || !apimeta.IsStatusConditionTrue(st.Conditions, v1alpha1.ReadyCondition) {
		return 0, false
	}
	return days(s.mem.Spec.Retention.SessionDays, defaultSessionDays) - r.Clock.Since(lastActivity(s.ses)), true
}

// expireSession deletes a Session whose time is over, as it was seen. Its archive has
// a time of its own, so a finalizer that would erase it goes first.
func (r *Reconciler) expireSession(ctx context.Context, s *scope) error {
	if controllerutil.ContainsFinalizer(s.ses, eraseFinalizer) {
		if err := r.finalizer(ctx, s.ses, false); err != nil {
			return err
		}
	}
	err := r.Client.Delete(ctx, s.ses, client.Preconditions{UID: &s.ses.UID, ResourceVersion: &s.ses.ResourceVersion})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // somebody was faster: it is looked at again
	}
	if err != nil {
		return fmt.Errorf("delete an expired Session: %w", err)
	}
	r.Recorder.Eventf(s.ses, nil, corev1.EventTypeNormal, eventExpired, "Reconcile", "nothing was heard of this session for spec.retention.sessionDays of TeamMemory %s", s.mem.Name)
	return nil
}

// guard gives the Session the finalizer that the memory's deletionPolicy wants,
// and reports whether it changed anything.
func (r *Reconciler) guard(ctx context.Context, s *scope) (bool, error) {
	want := s.mem.Spec.DeletionPolicy == v1alpha1.DeletionErase
	if want == controllerutil.ContainsFinalizer(s.ses, eraseFinalizer) {
		return false, nil
	}
	return true, r.finalizer(ctx, s.ses.DeepCopy(), want)
}

// finalizer adds or removes the finalizer.
func (r *Reconciler) finalizer(ctx context.Context, ses *v1alpha1.Session, want bool) error {
	before := ses.DeepCopy()
	if want {
		controllerutil.AddFinalizer(ses, eraseFinalizer)
	} else {
		controllerutil.RemoveFinalizer(ses, eraseFinalizer)
	}
	err := r.Client.Patch(ctx, ses, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("change the Session's finalizer: %w", err)
	}
	return nil
}

// erase erases what is kept of a Session that is being deleted, and lets it go.
// Without its TeamMemory nobody knows where that is: then it is let go, and an
// event says so.
func (r *Reconciler) erase(ctx context.Context, s *scope) error {
	if !controllerutil.ContainsFinalizer(s.ses, eraseFinalizer) {
		return nil
	}
	s.mem = &v1alpha1.TeamMemory{}
	err := r.Live.Get(ctx, types.NamespacedName{Namespace: s.ses.Namespace, Name: s.ses.Spec.MemoryRef.Name}, s.mem)
	switch {
	case apierrors.IsNotFound(err):
		r.Recorder.Eventf(s.ses, nil, corev1.EventTypeWarning, eventNotErased, "Delete", "the TeamMemory %s is gone, and with it the way to the archive under %s", s.ses.Spec.MemoryRef.Name, segment.ArchivePrefix(s.ses.Namespace, s.ses.Spec.Owner, s.ses.Name))
		return r.finalizer(ctx, s.ses, false)
	case err != nil:
		return fmt.Errorf("get TeamMemory: %w", err)
	}
	bucket, err := r.Connect.Store(ctx, s.mem)
	if err != nil {
		return err
	}
	if err := r.eraseConversation(ctx, s); err != nil {
		return err
	}
	for _, prefix := range []string{
		segment.ArchivePrefix(s.ses.Namespace, s.ses.Spec.Owner, s.ses.Name), segment.SeenPrefix(s.ses.Namespace, s.ses.Name),
		segment.TryingPrefix(s.ses.Namespace, s.ses.Name),
	} {
		if err := removeAll(ctx, bucket, prefix); err != nil {
			return r.Connect.StoreError(s.mem, err)
		}
	}
	return r.finalizer(ctx, s.ses, false)
}

// tellNotErased says, once for each reason, why a deleted Session is still
// there.
func (r *Reconciler) tellNotErased(s *scope, err error) {
	o := outcome.Of(err)
	key := string(s.ses.UID) + "/" + eventNotErased + "/" + o.Reason
	if r.told.has(key) {
		return
	}
	r.told.add(key)
	message := "it is tried again; see the controller's log"
	if o.Reason != v1alpha1.FailedReason {
		message = o.Error()
	}
	r.Recorder.Eventf(s.ses, nil, corev1.EventTypeWarning, eventNotErased, "Delete", "the Session waits for what is kept of it to be erased: %s", message)
}

func (r *Reconciler) eraseConversation(ctx context.Context, s *scope) error {
	st := s.ses.Status.SyncState
	if st == nil || st.ConversationID == "" {
		return nil
	}
	c, err := r.Connect.Letta(ctx, s.mem)
	if err != nil {
		return err
	}
	err = c.DeleteConversation(ctx, letta.Ref{AgentID: st.AgentID, ConversationID: st.ConversationID})
	switch {
	case err == nil, errors.Is(err, letta.ErrNotFound):
		return nil
	case errors.Is(err, letta.ErrUnsupported):
		r.Recorder.Eventf(s.ses, nil, corev1.EventTypeWarning, eventNotErased, "Delete", "this Letta back end cannot delete the conversation %s", st.ConversationID)
		return nil
	}
	return r.Connect.LettaError(s.mem, err)
}

// removeAll deletes all objects below a prefix, the record of a session last:
// as long as it is there a later run finds the rest.
func removeAll(ctx context.Context, bucket *store.Bucket, prefix string) error {
	records, err := removeSegments(ctx, bucket, prefix)
	if err != nil {
		return err
	}
	for _, key := range records {
		if err := bucket.Delete(ctx, key); err != nil {
			return err
		}
	}
	return nil
}

// removeSegments deletes all objects below a prefix but records, whose keys it
// returns.
func removeSegments(ctx context.Context, bucket *store.Bucket, prefix string) (records []string, err error) {
	for info, err := range bucket.List(ctx, prefix) {
		if err != nil {
			return nil, err
		}
		if strings.HasSuffix(info.Key, recordName) {
			records = append(records, info.Key)
			continue
		}
		if err := bucket.Delete(ctx, info.Key); err != nil {
			return nil, err
		}
	}
	return records, nil
}

// Sweeper deletes the archives of sessions whose time is over, with their
// conversations at Letta, what lies forgotten in inboxes, and the texts of
// blocks that nobody can ask for. The seen-sets stay, for the sake of forks: they hold
// no words.
type Sweeper struct {
	// Client reads from the cache.
	Client client.Client
	// Live reads Sessions past the cache, before their archive is deleted.
	Live client.Reader
	// Connect opens stores and Letta back ends.
	Connect *connect.Opener
	// Clock tells the time.
	Clock clock.PassiveClock
}

// Start sweeps every few hours until ctx ends.
func (w *Sweeper) Start(ctx context.Context) error {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		var list v1alpha1.TeamMemoryList
		if err := w.Client.List(ctx, &list); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Listing TeamMemories")
			return
		}
		for i := range list.Items {
			if err := w.Sweep(ctx, &list.Items[i]); err != nil {
				ctrl.LoggerFrom(ctx).Info("Leaving an archive for the next time", "TeamMemory", client.ObjectKeyFromObject(&list.Items[i]), "reason", err.Error())
			}
		}
	}, sweepEvery)
	return nil
}

// Sweep looks through the archive of one memory. What fails for one session is
// left for the next time and keeps no other; the first error is returned.
func (w *Sweeper) Sweep(ctx context.Context, mem *v1alpha1.TeamMemory) error {
	bucket, err := w.Connect.Store(ctx, mem)
	if err != nil {
		return err
	}
	first := w.sweepInboxes(ctx, mem, bucket)
	for info, err := range bucket.List(ctx, segment.ArchiveOf(mem.Namespace)) {
		if err != nil {
			return errors.Join(first, err)
		}
		if !strings.HasSuffix(info.Key, recordName) {
			continue
		}
		if err := w.sweepOne(ctx, mem, bucket, info.Key); err != nil && first == nil {
			first = err
		}
	}
	return cmp.Or(first, w.sweepTexts(ctx, mem, bucket))
}

// sweepTexts deletes the texts of memory blocks that no MemoryBlock names any
// more, neither as its own nor in its history, and that were last written
// longer ago than transcripts are kept. A text that is named again is written
// again first, so what is young is left alone.
func (w *Sweeper) sweepTexts(ctx context.Context, mem *v1alpha1.TeamMemory, bucket *store.Bucket) error {
	keep := days(mem.Spec.Retention.TranscriptDays, defaultTranscriptDays)
	old := func(info store.Info) bool { return !info.Modified.IsZero() && w.Clock.Since(info.Modified) >= keep }
	var named map[string]bool
	prefix := segment.BlocksOf(mem.Namespace)
	for info, err := range bucket.List(ctx, prefix) {
		switch {
		case err != nil:
			return err
		case !old(info):
			continue
		case named == nil: // most sweeps find nothing that is old
			if named, err = w.named(ctx, mem.Namespace); err != nil {
				return err
			}
		}
		if named[strings.TrimPrefix(info.Key, prefix)] {
			continue
		}
		// Written again since it was listed?
		now, err := bucket.Stat(ctx, info.Key)
		if errors.Is(err, store.ErrNotExist) || err == nil && !old(now) {
			continue
		}
		if err == nil {
			err = bucket.Delete(ctx, info.Key)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// named are the digests of all texts that a namespace's MemoryBlocks name.
func (w *Sweeper) named(ctx context.Context, namespace string) (map[string]bool, error) {
	var list v1alpha1.MemoryBlockList
	if err := w.Live.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("list MemoryBlocks: %w", err)
	}
	named := map[string]bool{}
	for i := range list.Items {
		st := &list.Items[i].Status
		named[st.Digest] = true
		for _, h := range st.History {
			named[h.Digest] = true
		}
	}
	return named, nil
}

// unnamedFor is how long a segment may lie in an inbox that no Session names.
// Its workstation keeps it until it is verified, and sends it again should it
// name it later.
const unnamedFor = 24 * time.Hour

// sweepInboxes deletes what was put into the inboxes of a memory's workstations
// and is waited for by nobody: its Session was never made, or it was put there
// twice. A bucket's lifecycle rule does the same where there is one.
func (w *Sweeper) sweepInboxes(ctx context.Context, mem *v1alpha1.TeamMemory, bucket *store.Bucket) error {
	var workstations v1alpha1.WorkstationList
	if err := w.Client.List(ctx, &workstations, client.InNamespace(mem.Namespace)); err != nil {
		return fmt.Errorf("list Workstations: %w", err)
	}
	var old []string
	uids := map[string]types.UID{}
	for i := range workstations.Items {
		ws := &workstations.Items[i]
		if ws.Spec.MemoryRef.Name != mem.Name {
			continue
		}
		uids[ws.Name] = ws.UID
		for info, err := range bucket.List(ctx, segment.InboxPrefix(string(ws.UID))) {
			if err != nil {
				return err
			}
			if w.Clock.Since(info.Modified) > unnamedFor {
				old = append(old, info.Key)
			}
		}
	}
	if len(old) == 0 {
		return nil
	}
	var sessions v1alpha1.SessionList
	if err := w.Client.List(ctx, &sessions, client.InNamespace(mem.Namespace)); err != nil {
		return fmt.Errorf("list Sessions: %w", err)
	}
	named := map[string]bool{}
	for i := range sessions.Items {
		for _, writer := range sessions.Items[i].Spec.Writers {
			for _, slot := range writer.Slots {
				named[segment.InboxKey(string(uids[writer.Workstation]), slot.Slot)] = true
			}
		}
	}
	for _, key := range old {
		if named[key] {
			continue
		}
		if err := bucket.Delete(ctx, key); err != nil {
			return err
		}
	}
	return nil
}

// sweepOne deletes what is kept of one session, whose record is under key, if
// its time is over. The archive does not wait for Letta; the record does, and
// with it the conversation is found again. What is left of the record says where
// a session that goes on after all goes on.
func (w *Sweeper) sweepOne(ctx context.Context, mem *v1alpha1.TeamMemory, bucket *store.Bucket, key string) error {
	data, err := bucket.Get(ctx, key, maxRecord)
	if errors.Is(err, store.ErrNotExist) || errors.Is(err, store.ErrTooLarge) {
		return nil // it went meanwhile, or it is no record
	}
	if err != nil {
		return err
	}
	keep := days(mem.Spec.Retention.TranscriptDays, defaultTranscriptDays)
	rec, err := parseRecord(data)
	if err != nil || rec.Swept || rec.Spec.MemoryRef.Name != mem.Name || rec.Status.LastActivityTime == nil || w.Clock.Since(rec.Status.LastActivityTime.Time) < keep {
		return nil //nolint:nilerr // what cannot be read is not deleted
	}
	name := v1alpha1.SessionName(rec.Spec.SessionID, rec.Spec.Owner)
	err = w.Live.Get(ctx, types.NamespacedName{Namespace: mem.Namespace, Name: name}, &v1alpha1.Session{})
	if err == nil || !apierrors.IsNotFound(err) {
		return err
	}
	prefix := segment.ArchivePrefix(mem.Namespace, rec.Spec.Owner, name)
	if _, err := removeSegments(ctx, bucket, prefix); err != nil {
		return err
	}
	if err := w.removeConversation(ctx, mem, rec.Status.SyncState); err != nil {
		return err
	}
	if rec.Forgotten {
		return removeAll(ctx, bucket, prefix)
	}
	if data, err = json.Marshal(rec.rest()); err != nil {
		return fmt.Errorf("encode record: %w", err)
	}
	return bucket.Put(ctx, key, data)
}

// removeConversation deletes a conversation that a record names, where the back
// end can.
func (w *Sweeper) removeConversation(ctx context.Context, mem *v1alpha1.TeamMemory, st *v1alpha1.SyncState) error {
	if st.ConversationID == "" {
		return nil
	}
	c, err := w.Connect.Letta(ctx, mem)
	if err != nil {
		return err
	}
	err = c.DeleteConversation(ctx, letta.Ref{AgentID: st.AgentID, ConversationID: st.ConversationID})
	if err == nil || errors.Is(err, letta.ErrNotFound) || errors.Is(err, letta.ErrUnsupported) {
		return nil
	}
	return w.Connect.LettaError(mem, err)
}
