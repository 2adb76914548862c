package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/internal/crash"
	"github.com/undersong-dev/undersong/internal/outcome"
	"github.com/undersong-dev/undersong/internal/segment"
	"github.com/undersong-dev/undersong/internal/store"
)

const (
	// recordFormat is the format of records that this version reads and writes.
	recordFormat = 1
	// maxRecord bounds a record: no Session is larger.
	maxRecord = 2 << 20
	// eventRestored is the reason of the event about a record that was ahead,
	// eventArchiveBehind of the one about a record that was behind.
	eventRestored      = "Restored"
	eventArchiveBehind = "ArchiveBehind"
)

// record is what the archive says of a session as a whole. It is written
// before the status that it belongs to, so that a cluster that was restored
// from an older backup, or a Session that was made again, goes on where it was
// and nothing is delivered twice.
type record struct {
	Format   int       `json:"format"`
	Revision int64     `json:"revision"`
	UID      types.UID `json:"uid"`
	// Forgotten says that the owner had all of it erased: it is not made again.
	Forgotten bool `json:"forgotten,omitempty"`
	// Swept says that the archive was deleted when its time was over, and this
	// is left: how far it went, for a session that goes on after all.
	Swept bool `json:"swept,omitempty"`
	// Spec is the Session's, with the writers as far as they are verified.
	Spec v1alpha1.SessionSpec `json:"spec"`
	// Status is the Session's, without what others can tell: conditions,
	// whispers, answers.
	Status v1alpha1.SessionStatus `json:"status"`
}

// revisions remembers which revision of a record each Session's status has, as
// far as this process knows.
type revisions struct {
	mu   sync.Mutex
	seen map[types.UID]int64
}

func (r *revisions) get(uid types.UID) (int64, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n, ok := r.seen[uid]
	return n, ok
}

func (r *revisions) set(uid types.UID, n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.seen == nil || len(r.seen) >= keySetLimit {
		r.seen = map[types.UID]int64{} // what falls out is only read once more
	}
	r.seen[uid] = n
}

// adopt compares the status with the record once in each process, and whenever
// the status is older than this process left it. Where the record is ahead the
// status takes over what it says. When it returns nil the status can be built
// on.
func (r *Reconciler) adopt(ctx context.Context, s *scope) error {
	st := s.ses.Status.SyncState
	known, ok := r.revisions.get(s.ses.UID)
	if ok && st.Record >= known || len(s.ses.Spec.Writers) == 0 {
		return nil
	}
	if ok {
		live := &v1alpha1.Session{}
		if err := r.Live.Get(ctx, s.key, live); err != nil {
			return fmt.Errorf("read the Session live: %w", err)
		}
		if live.UID != s.ses.UID || (live.Status.SyncState != nil && live.Status.SyncState.Record >= known) {
			return underWay(s, waitForCache, "the newest status is on its way")
		}
	}
	bucket, err := r.Connect.Store(ctx, s.mem)
	if err != nil {
		return err
	}
	rec, err := r.readRecord(ctx, s, bucket)
	if err != nil {
		return err
	}
	if rec != nil && rec.Revision < st.Record {
		// A record is written before its status.
		s.anew = true
		// At once: where the status cannot be written the record is, and nothing
		// tells any more that it was behind.
		if key := fmt.Sprintf("%s/%s/%d", s.ses.UID, eventArchiveBehind, st.Record); !r.told.has(key) {
			r.told.add(key)
			r.Recorder.Eventf(s.ses, nil, corev1.EventTypeWarning, eventArchiveBehind, "Reconcile", "the archive is that of an older backup; what the memory was told since is missing there")
		}
		return nil // it is compared when that is written
	}
	if rec == nil || rec.Revision <= st.Record {
		r.revisions.set(s.ses.UID, st.Record)
		return nil
	}
	if rec.UID != s.ses.UID || rec.Revision > st.Record+1 {
		r.tell(s, corev1.EventTypeWarning, eventRestored, "the archive is ahead of this Session, which was restored or made again; it goes on as the archive says")
	}
	status := rec.Status.DeepCopy()
	status.Conditions, status.Whispers, status.Answered = s.ses.Status.Conditions, s.ses.Status.Whispers, s.ses.Status.Answered
	status.ObservedGeneration = s.ses.Status.ObservedGeneration
	status.SyncState.Record = rec.Revision
	if rec.UID != s.ses.UID {
		if err := r.doubt(ctx, s, bucket, status.SyncState); err != nil {
			return err
		}
	}
	s.ses.Status = *status
	r.Turns.drop(s.key)
	return nil
}

// readRecord returns the session's record, nil if there is none.
func (r *Reconciler) readRecord(ctx context.Context, s *scope, bucket *store.Bucket) (*record, error) {
	data, err := bucket.Get(ctx, segment.SessionKey(s.ses.Namespace, s.ses.Spec.Owner, s.ses.Name), maxRecord)
	if errors.Is(err, store.ErrNotExist) {
		return nil, nil //nolint:nilnil // absence is the answer
	}
	if err != nil {
		return nil, r.Connect.StoreError(s.mem, err)
	}
	rec, err := parseRecord(data)
	switch {
	case errors.Is(err, segment.ErrUnsupportedVersion):
		return nil, outcome.Stallf(v1alpha1.UnsupportedVersionReason, "a newer controller wrote the archive's record of this session; upgrade the controller, nothing is lost meanwhile")
	case err != nil, rec.Spec.Owner != s.ses.Spec.Owner, rec.Spec.SessionID != s.ses.Spec.SessionID:
		return nil, outcome.RetryAfterf(v1alpha1.SegmentCorruptReason, waitForSegment, "session.json of this session in the archive is damaged; restore the bucket, or delete that object")
	}
	return rec, nil
}

// parseRecord reads a record.
func parseRecord(data []byte) (*record, error) {
	var version struct {
		Format int `json:"format"`
	}
	if err := json.Unmarshal(data, &version); err != nil {
		return nil, fmt.Errorf("parse record: %w", segment.ErrCorrupt)
	}
	if version.Format > recordFormat {
		return nil, fmt.Errorf("parse record: %w", segment.ErrUnsupportedVersion)
	}
	rec := &record{}
	if err := json.Unmarshal(data, rec); err != nil || rec.Status.SyncState == nil {
		return nil, fmt.Errorf("parse record: %w", segment.ErrCorrupt)
	}
	return rec, nil
}

// rest is what is left of a record when the archive is deleted: how far the
// writers' segments went, and that the memory has heard them. Nothing of what
// was said, or where, is in it.
func (rec *record) rest() *record {
	st := rec.Status.SyncState
	left := &record{
		Format: rec.Format, Revision: rec.Revision + 1, UID: rec.UID, Swept: true,
		Spec:   v1alpha1.SessionSpec{Owner: rec.Spec.Owner, SessionID: rec.Spec.SessionID, MemoryRef: rec.Spec.MemoryRef},
		Status: v1alpha1.SessionStatus{Lines: rec.Status.Lines, LostLines: rec.Status.LostLines, SyncState: &v1alpha1.SyncState{LastProcessedIndex: st.LastProcessedIndex, Seen: st.Seen}},
	}
	for _, w := range st.Writers {
		left.Status.SyncState.Writers = append(left.Status.SyncState.Writers, v1alpha1.WriterSync{
			Workstation: w.Workstation, Chapter: w.Chapter, Verified: w.Verified, Delivered: v1alpha1.Cut{Segments: w.Verified.Segments},
			Lines: w.Lines, LastProcessedIndex: w.LastProcessedIndex,
		})
	}
	return left
}

// chapter is the one that a workstation's segments are in.
func (rec *record) chapter(workstation string) int32 {
	for _, w := range rec.Status.SyncState.Writers {
		if w.Workstation == workstation {
			return w.Chapter
		}
	}
	return 0
}

// doubt marks the writers of an earlier Session of this name that need not go
// on from where the archive is: a workstation whose owner deleted the Session
// and started over begins anew. What spec names tells where it is a head of
// the archive's; else the first segment does.
func (r *Reconciler) doubt(ctx context.Context, s *scope, bucket *store.Bucket, st *v1alpha1.SyncState) error {
	for i := range st.Writers {
		sync := &st.Writers[i]
		sync.Wanted, sync.Origin = nil, v1alpha1.OriginArchive
		w := writerOf(s.ses, sync.Workstation)
		if w == nil || w.Segments == 0 || w.Segments > sync.Verified.Segments {
			continue
		}
		if w.Segments == sync.Verified.Segments && w.Chain == sync.Verified.Chain {
			sync.Origin = "" // the archive itself may have been swept
			continue
		}
		ok, err := r.onChain(ctx, s, bucket, w, sync.Chapter)
		if err != nil {
			return err
		}
		if ok {
			sync.Origin = ""
		}
	}
	return nil
}

// onChain reports whether the archive has, in that chapter, the segment that
// spec says is a writer's last, under the same chain.
func (r *Reconciler) onChain(ctx context.Context, s *scope, bucket *store.Bucket, w *v1alpha1.Writer, chapter int32) (bool, error) {
	if w.Segments == 0 {
		return w.Chain == segment.Start(s.ses.Name, w.Workstation).String(), nil
	}
	for info, err := range bucket.List(ctx, archiveHead(s.ses, segmentID{w.Workstation, chapter, w.Segments})) {
		if err != nil {
			return false, r.Connect.StoreError(s.mem, err)
		}
		if strings.Contains(info.Key, "-"+w.Chain+".") {
			return true, nil
		}
	}
	return false, nil
}

// keep writes the record that belongs to the new status, if it says anything
// that the one before did not.
func (r *Reconciler) keep(ctx context.Context, s *scope, before *v1alpha1.Session) error {
	st := s.ses.Status.SyncState
	if st == nil || s.mem == nil || s.mem.UID == "" || !slices.ContainsFunc(st.Writers, func(w v1alpha1.WriterSync) bool { return w.Verified.Segments > 0 }) {
		return nil
	}
	if !s.anew && st.Record > 0 && equality.Semantic.DeepEqual(before, s.ses) {
		return nil // as is nearly every Session that is looked at
	}
	if !s.adopted && !r.compared(s.ses) {
		return nil // what is not compared yet may be older than the record
	}
	rec := recordOf(s.ses)
	if old := recordOf(before); !s.anew && before.Status.SyncState != nil && st.Record > 0 && rec.Forgotten == old.Forgotten && equality.Semantic.DeepEqual(rec.Status, old.Status) {
		return nil
	}
	st.Record++
	rec.Revision, rec.Status.SyncState.Record = st.Record, st.Record
	data, err := json.Marshal(rec)
	if err != nil {
		return fmt.Errorf("encode record: %w", err)
	}
	bucket, err := r.Connect.Store(ctx, s.mem)
	if err != nil {
		return err
	}
	if err := bucket.Put(ctx, segment.SessionKey(s.ses.Namespace, s.ses.Spec.Owner, s.ses.Name), data); err != nil {
		return r.Connect.StoreError(s.mem, err)
	}
	crash.Point(crash.ControllerRecordWritten)
	return nil
}

// recordOf is a Session's record, without its revision.
func recordOf(ses *v1alpha1.Session) *record {
	rec := &record{Format: recordFormat, UID: ses.UID, Spec: *ses.Spec.DeepCopy(), Status: *ses.Status.DeepCopy()}
	rec.Forgotten = slices.ContainsFunc(ses.Spec.Requests, func(q v1alpha1.Request) bool {
		return q.Kind == v1alpha1.RequestForget && q.Workstation == "" && spanOf(&q).all() &&
			slices.ContainsFunc(ses.Status.Answered, func(a v1alpha1.Answer) bool { return a.ID == q.ID })
	})
	st := &rec.Status
	st.Conditions, st.Whispers, st.Answered, st.ObservedGeneration, st.State, st.Lag = nil, nil, nil, 0, "", 0
	rec.Spec.Requests, rec.Spec.Lines = nil, 0
	var writers []v1alpha1.Writer
	for _, w := range rec.Spec.Writers {
		sync := syncOf(ses, w.Workstation)
		if sync == nil {
			continue
		}
		if sync.Verified.Segments < w.Segments {
			// Lines and bytes up to there are the workstation's knowledge.
			w.Segments, w.Chain, w.Lines, w.Bytes = sync.Verified.Segments, sync.Verified.Chain, 0, 0
		}
		w.Slots, w.Gone = nil, nil
		writers = append(writers, w)
	}
	rec.Spec.Writers = writers
	return rec
}
