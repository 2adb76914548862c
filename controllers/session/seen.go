package session

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/internal/crash"
	"github.com/undersong-dev/undersong/internal/outcome"
	"github.com/undersong-dev/undersong/internal/segment"
	"github.com/undersong-dev/undersong/internal/store"
)

// maxSeenBytes bounds a seen-set object: two million records.
const maxSeenBytes = 16 << 20

// seenSet is the set of records whose words were delivered, as 8 bytes of
// their identity's hash. It is what makes a record that comes again, from a
// second workstation, a compaction, a fork or a replaced file, no news.
type seenSet struct {
	own    map[uint64]struct{}
	parent map[uint64]struct{}
}

func seenHash(id string) uint64 {
	sum := sha256.Sum256([]byte(id))
	return binary.BigEndian.Uint64(sum[:8])
}

func (s *seenSet) has(id string) bool {
	h := seenHash(id)
	_, own := s.own[h]
	_, parent := s.parent[h]
	return own || parent
}

// seen reads the session's set, and its parent's where it was forked.
func (r *Reconciler) seen(ctx context.Context, s *scope, bucket *store.Bucket) (*seenSet, error) {
	own, err := r.readSeen(ctx, s, bucket, s.ses)
	if err != nil {
		return nil, err
	}
	set := &seenSet{own: own}
	if s.ses.Spec.ForkedFrom == "" {
		return set, nil
	}
	parent := &v1alpha1.Session{}
	name := v1alpha1.SessionName(s.ses.Spec.ForkedFrom, s.ses.Spec.Owner)
	err = r.Client.Get(ctx, types.NamespacedName{Namespace: s.ses.Namespace, Name: name}, parent)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("get the Session it was forked from: %w", err)
	}
	if err == nil && parent.Spec.MemoryRef == s.ses.Spec.MemoryRef {
		if set.parent, err = r.readSeen(ctx, s, bucket, parent); err != nil {
			return nil, err
		}
	}
	return set, nil
}

func (r *Reconciler) readSeen(ctx context.Context, s *scope, bucket *store.Bucket, ses *v1alpha1.Session) (map[uint64]struct{}, error) {
	set := map[uint64]struct{}{}
	if ses.Status.SyncState == nil || ses.Status.SyncState.Seen == "" {
		return set, nil
	}
	digest := ses.Status.SyncState.Seen
	data, err := bucket.Get(ctx, segment.SeenKey(ses.Namespace, ses.Name, digest), maxSeenBytes)
	if err != nil {
		return nil, r.Connect.StoreError(s.mem, err)
	}
	if sum := sha256.Sum256(data); hex.EncodeToString(sum[:]) != digest || len(data)%8 != 0 {
		return nil, outcome.RetryAfterf(v1alpha1.SegmentCorruptReason, waitForSegment, "the seen-set of Session %s in the store is damaged; restore the bucket", ses.Name)
	}
	for rest := data; len(rest) > 0; rest = rest[8:] {
		set[binary.BigEndian.Uint64(rest)] = struct{}{}
	}
	return set, nil
}

// writeSeen stores the set with the batch's records added, before the status
// that names it, and removes the one before once that status is written.
func (r *Reconciler) writeSeen(ctx context.Context, s *scope, bucket *store.Bucket, set *seenSet, b *batch) error {
	for _, id := range b.ids {
		set.own[seenHash(id)] = struct{}{}
	}
	hashes := slices.SortedFunc(maps.Keys(set.own), cmp.Compare[uint64])
	data := make([]byte, 0, 8*len(hashes))
	for _, h := range hashes {
		data = binary.BigEndian.AppendUint64(data, h)
	}
	if len(data) > maxSeenBytes {
		return outcome.Stallf(v1alpha1.FailedReason, "the session has more than %d records; end it and begin a new one", maxSeenBytes/8)
	}
	sum := sha256.Sum256(data)
	digest := hex.EncodeToString(sum[:])
	old := s.ses.Status.SyncState.Seen
	if digest == old {
		return nil
	}
	if err := bucket.Put(ctx, segment.SeenKey(s.ses.Namespace, s.ses.Name, digest), data); err != nil {
		return r.Connect.StoreError(s.mem, err)
	}
	crash.Point(crash.ControllerSeenWritten)
	s.ses.Status.SyncState.Seen = digest
	if old != "" {
		s.after = append(s.after, func(ctx context.Context) {
			if err := bucket.Delete(ctx, segment.SeenKey(s.ses.Namespace, s.ses.Name, old)); err != nil {
				ctrl.LoggerFrom(ctx).V(1).Info("Leaving an old seen-set in the store", "reason", err.Error())
			}
		})
	}
	return nil
}
