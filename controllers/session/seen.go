package session

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/internal/crash"
	"github.com/undersong-dev/undersong/internal/outcome"
	"github.com/undersong-dev/undersong/internal/redact"
	"github.com/undersong-dev/undersong/internal/segment"
	"github.com/undersong-dev/undersong/internal/store"
	"github.com/undersong-dev/undersong/internal/transcript"
)

// maxSeenBytes bounds a seen-set object: two million records.
const maxSeenBytes = 16 << 20

// seenSet is the set of records whose words were delivered, as 8 bytes of
// their identity's hash. It is what makes a record that comes again, from a
// second workstation, a compaction, a fork or a replaced file, no news.
type seenSet struct {
	own map[uint64]struct{}
}

func seenHash(id string) uint64 {
	sum := sha256.Sum256([]byte(id))
	return binary.BigEndian.Uint64(sum[:8])
}

func (s *seenSet) has(id string) bool {
	_, ok := s.own[seenHash(id)]
	return ok
}

// seen reads the session's set.
func (r *Reconciler) seen(ctx context.Context, s *scope, bucket *store.Bucket) (*seenSet, error) {
	own, err := r.readSeen(ctx, s, bucket, s.ses)
	if err != nil {
		return nil, err
	}
	return &seenSet{own: own}, nil
}

const (
	// parentPatience is how long a fork waits, from its creation, for the
	// session it was forked from to be delivered.
	parentPatience = 10 * time.Minute
	// waitForParent is how often it looks.
	waitForParent = 5 * time.Second
)

// inherit gives a fork the set of the session it was forked from, before its
// first delivery and once: were the parent's set asked for again at each step,
// the same cuts would not make the same text. It waits for a parent that is
// behind, or both would say the same to one agent.
func (r *Reconciler) inherit(ctx context.Context, s *scope, bucket *store.Bucket) error {
	st := s.ses.Status.SyncState
	if s.ses.Spec.ForkedFrom == "" || st.Seen != "" || st.Delivery != nil {
		return nil
	}
	parent := &v1alpha1.Session{}
	name := v1alpha1.SessionName(s.ses.Spec.ForkedFrom, s.ses.Spec.Owner)
	err := r.Client.Get(ctx, types.NamespacedName{Namespace: s.ses.Namespace, Name: name}, parent)
	switch {
	case apierrors.IsNotFound(err):
		set, err := r.left(ctx, s, bucket, name)
		if err != nil || len(set) == 0 {
			return err
		}
		return r.writeSeen(ctx, s, bucket, &seenSet{own: set}, &batch{})
	case err == nil && parent.Spec.MemoryRef != s.ses.Spec.MemoryRef:
		return nil
	case err != nil:
		return fmt.Errorf("get the Session it was forked from: %w", err)
	}
	if behind(parent) && r.Clock.Since(s.ses.CreationTimestamp.Time) < parentPatience {
		return outcome.Waitf(v1alpha1.ProgressingReason, waitForParent, "waits for Session %s, from which it was forked", name)
	}
	set, err := r.readSeen(ctx, s, bucket, parent)
	if errors.Is(err, store.ErrNotExist) {
		// The parent's newest set has replaced the one that the cache names.
		return outcome.Waitf(v1alpha1.ProgressingReason, waitForCache, "waits for Session %s, from which it was forked", name)
	}
	if err != nil || len(set) == 0 {
		return err
	}
	return r.writeSeen(ctx, s, bucket, &seenSet{own: set}, &batch{})
}

// behind reports whether words of a session are still to be delivered.
func behind(ses *v1alpha1.Session) bool {
	if st := ses.Status.SyncState; st != nil && st.Delivery != nil && (st.Delivery.Phase == v1alpha1.DeliverySending || st.Delivery.Phase == v1alpha1.DeliveryNudging) {
		return true
	}
	return backlog(ses) || ses.Status.Lines+ses.Status.LostLines < ses.Spec.Lines
}

func (r *Reconciler) readSeen(ctx context.Context, s *scope, bucket *store.Bucket, ses *v1alpha1.Session) (map[uint64]struct{}, error) {
	set := map[uint64]struct{}{}
	if ses.Status.SyncState == nil || ses.Status.SyncState.Seen == "" {
		return set, nil
	}
	digest := ses.Status.SyncState.Seen
	if ses == s.ses && decodeSeen(r.memos.set(digest), digest, set) {
		return set, nil
	}
	data, err := bucket.Get(ctx, segment.SeenKey(ses.Namespace, ses.Name, digest), maxSeenBytes)
	if err != nil && !errors.Is(err, store.ErrNotExist) {
		return nil, r.Connect.StoreError(s.mem, err)
	}
	if err == nil && decodeSeen(data, digest, set) {
		r.memos.putSet(digest, data)
		return set, nil
	}
	if ses != s.ses {
		return nil, store.ErrNotExist // who it belongs to makes it again
	}
	return r.rebuildSeen(ctx, s, bucket)
}

// decodeSeen adds a set as it is stored, and reports whether it is the one of
// that digest.
func decodeSeen(data []byte, digest string, set map[uint64]struct{}) bool {
	if sum := sha256.Sum256(data); hex.EncodeToString(sum[:]) != digest || len(data)%8 != 0 {
		return false
	}
	for rest := data; len(rest) > 0; rest = rest[8:] {
		set[binary.BigEndian.Uint64(rest)] = struct{}{}
	}
	return true
}

// rebuildSeen makes the session's set anew from the archive: what lies before
// the cuts that were delivered, less what is parked, and what was forgotten.
func (r *Reconciler) rebuildSeen(ctx context.Context, s *scope, bucket *store.Bucket) (map[uint64]struct{}, error) {
	b, err := r.rebuildOf(ctx, s, bucket)
	if err != nil {
		return nil, err
	}
	if err := r.rebuildOn(ctx, s, bucket, b); err != nil {
		s.after = append(s.after, func(context.Context) { r.rebuilds.put(s.key, b) })
		return nil, err
	}
	data, digest, err := encodeSeen(b.set)
	if err == nil {
		err = r.putSeen(ctx, s, bucket, data, digest)
	}
	return b.set.own, err
}

// rebuild is a seen-set being made anew, over as many reconciles as it takes to
// read the session's archive.
type rebuild struct {
	session types.UID
	set     *seenSet
	// read are the segments that are in it, and delivered the cuts that it goes
	// by, by workstation.
	read      map[string]int64
	delivered map[string]v1alpha1.Cut
}

// rebuildOf returns what is done, while it goes by the cuts that status has.
func (r *Reconciler) rebuildOf(ctx context.Context, s *scope, bucket *store.Bucket) (*rebuild, error) {
	delivered := map[string]v1alpha1.Cut{}
	for _, w := range s.ses.Status.SyncState.Writers {
		delivered[w.Workstation] = w.Delivered
	}
	if b := r.rebuilds.take(s.key); b != nil && b.session == s.ses.UID && maps.Equal(b.delivered, delivered) {
		return b, nil
	}
	ctrl.LoggerFrom(ctx).Info("Making the seen-set anew from the archive")
	b := &rebuild{session: s.ses.UID, set: &seenSet{own: map[uint64]struct{}{}}, read: map[string]int64{}, delivered: delivered}
	if s.ses.Spec.ForkedFrom == "" {
		return b, nil
	}
	parent, err := r.left(ctx, s, bucket, v1alpha1.SessionName(s.ses.Spec.ForkedFrom, s.ses.Spec.Owner))
	b.set.own = parent
	return b, err
}

// rebuildOn reads on.
func (r *Reconciler) rebuildOn(ctx context.Context, s *scope, bucket *store.Bucket, b *rebuild) error {
	set := b.set
	st := s.ses.Status.SyncState
	for i := range st.Writers {
		w := &st.Writers[i]
		for ; b.read[w.Workstation] < w.Verified.Segments; b.read[w.Workstation]++ {
			if err := r.slice(s); err != nil {
				return err
			}
			seq := b.read[w.Workstation] + 1
			from, until := v1alpha1.Cut{Segments: seq - 1}, v1alpha1.Cut{Segments: seq}
			if reached(until, &w.Delivered) {
				until = w.Delivered
			}
			if err := r.rebuildFrom(ctx, s, bucket, set, w, from, until); err != nil {
				return err
			}
		}
	}
	for i := range st.Parked {
		d := &st.Parked[i].Delivery
		parked, err := r.collect(ctx, s, bucket, &seenSet{own: map[uint64]struct{}{}}, ensureSync(s.ses, d.Workstation), d.From, limits{entry: maxEntry, until: &d.To, policy: policyOf(s.mem, d)})
		if err != nil {
			return err
		}
		for _, id := range parked.ids {
			delete(set.own, seenHash(id))
		}
	}
	return nil
}

// rebuildFrom adds the records of one segment up to a cut, and all that were
// forgotten. A segment that the archive keeps no more adds nothing.
func (r *Reconciler) rebuildFrom(ctx context.Context, s *scope, bucket *store.Bucket, set *seenSet, w *v1alpha1.WriterSync, from, until v1alpha1.Cut) error {
	id := idOf(w, from.Segments+1)
	a, err := r.load(ctx, s, bucket, id)
	if errors.Is(err, store.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer delete(s.archive, id) // a session can be larger than the memory
	if !reached(from, &until) {
		b, err := r.collect(ctx, s, bucket, set, w, from, limits{entry: maxEntry, until: &until, policy: policyOf(s.mem, nil)})
		if err != nil {
			return err
		}
		for _, id := range b.ids {
			set.own[seenHash(id)] = struct{}{}
		}
	}
	for i, line := range a.lines {
		if a.header.Stream != segment.MainStream || redact.ForgottenType(line) == "" {
			continue
		}
		if rec, err := transcript.Parse(line); err == nil {
			set.own[seenHash(transcript.ID(rec, a.header.Generation, a.header.Stream, a.header.Offsets[i]))] = struct{}{}
		}
	}
	return nil
}

// left is what the store still has of a session's set, whether or not there is
// a Session. A set outlives its session, for the sake of forks.
func (r *Reconciler) left(ctx context.Context, s *scope, bucket *store.Bucket, name string) (map[uint64]struct{}, error) {
	set := map[uint64]struct{}{}
	for info, err := range bucket.List(ctx, segment.SeenPrefix(s.ses.Namespace, name)) {
		if err != nil {
			return nil, r.Connect.StoreError(s.mem, err)
		}
		data, err := bucket.Get(ctx, info.Key, maxSeenBytes)
		if err != nil {
			return nil, r.Connect.StoreError(s.mem, err)
		}
		// One that is damaged is none.
		decodeSeen(data, strings.TrimPrefix(info.Key, segment.SeenPrefix(s.ses.Namespace, name)), set)
	}
	return set, nil
}

// writeSeen stores the set with the batch's records added, before the status
// that names it, and removes the one before once that status is written.
func (r *Reconciler) writeSeen(ctx context.Context, s *scope, bucket *store.Bucket, set *seenSet, b *batch) error {
	for _, id := range b.ids {
		set.own[seenHash(id)] = struct{}{}
	}
	data, digest, err := encodeSeen(set)
	if err != nil || digest == s.ses.Status.SyncState.Seen {
		return err
	}
	return r.putSeen(ctx, s, bucket, data, digest)
}

// encodeSeen returns a set as it is stored, and its digest.
func encodeSeen(set *seenSet) (data []byte, digest string, err error) {
	hashes := slices.SortedFunc(maps.Keys(set.own), cmp.Compare[uint64])
	data = make([]byte, 0, 8*len(hashes))
	for _, h := range hashes {
		data = binary.BigEndian.AppendUint64(data, h)
	}
	if len(data) > maxSeenBytes {
		return nil, "", outcome.Stallf(v1alpha1.FailedReason, "the session has more than %d records; end it and begin a new one", maxSeenBytes/8)
	}
	sum := sha256.Sum256(data)
	return data, hex.EncodeToString(sum[:]), nil
}

// putSeen stores an encoded set and names it in status.
func (r *Reconciler) putSeen(ctx context.Context, s *scope, bucket *store.Bucket, data []byte, digest string) error {
	old := s.ses.Status.SyncState.Seen
	if err := bucket.Put(ctx, segment.SeenKey(s.ses.Namespace, s.ses.Name, digest), data); err != nil {
		return r.Connect.StoreError(s.mem, err)
	}
	crash.Point(crash.ControllerSeenWritten)
	s.ses.Status.SyncState.Seen = digest
	r.memos.putSet(digest, data)
	if old != "" && old != digest {
		s.after = append(s.after, func(ctx context.Context) {
			if err := bucket.Delete(ctx, segment.SeenKey(s.ses.Namespace, s.ses.Name, old)); err != nil {
				ctrl.LoggerFrom(ctx).V(1).Info("Leaving an old seen-set in the store", "reason", err.Error())
			}
		})
	}
	return nil
}
