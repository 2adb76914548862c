package session

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/controllers/connect"
	"github.com/undersong-dev/undersong/internal/outcome"
	"github.com/undersong-dev/undersong/internal/segment"
	"github.com/undersong-dev/undersong/internal/store"
)

// segmentID names one segment of a session.
type segmentID struct {
	workstation string
	chapter     int32
	seq         int64
}

// idOf names a segment of a writer's present chapter.
func idOf(w *v1alpha1.WriterSync, seq int64) segmentID {
	return segmentID{w.Workstation, w.Chapter, seq}
}

// archiveKey is the key of a segment whose chain ends in head.
func archiveKey(ses *v1alpha1.Session, id segmentID, head segment.Sum) string {
	return segment.ArchiveKey(ses.Namespace, ses.Spec.Owner, ses.Name, id.workstation, id.chapter, id.seq, head)
}

// archived is a segment as the archive has it.
type archived struct {
	header segment.Header
	lines  [][]byte
}

// gap reports whether the segment stands for one that was lost. Every other
// one ends behind the beginning of its file.
func (a *archived) gap() bool { return len(a.lines) == 0 && a.header.EndOffset == 0 }

// load reads a verified segment from the archive, once in each reconcile.
func (r *Reconciler) load(ctx context.Context, s *scope, bucket *store.Bucket, id segmentID) (*archived, error) {
	if a, ok := s.archive[id]; ok {
		return a, nil
	}
	a, err := r.readKnown(ctx, s, bucket, id)
	if err != nil {
		return nil, err
	}
	if connect.Removes(s.mem) {
		// The Scrubber may not have been here yet.
		clean, _ := s.redactor.Lines(a.lines)
		for i := range clean {
			a.lines[i] = []byte(clean[i].String())
		}
	}
	s.hold(id, a)
	return a, nil
}

// readKnown reads a segment under its key where the chain over it is known, of
// the newest from status and of others from the segment behind them, and else
// looks for it: a listing costs a store ten times what a read does.
func (r *Reconciler) readKnown(ctx context.Context, s *scope, bucket *store.Bucket, id segmentID) (*archived, error) {
	var chain string
	if w := syncOf(s.ses, id.workstation); w != nil && w.Chapter == id.chapter && w.Verified.Segments == id.seq {
		chain = w.Verified.Chain
	} else if next := s.archive[segmentID{id.workstation, id.chapter, id.seq + 1}]; next != nil && !next.gap() {
		chain = next.header.PreviousChain
	}
	if head, err := segment.ParseSum(chain); err == nil {
		a, _, err := r.read(ctx, s, bucket, id, archiveKey(s.ses, id, head))
		if !errors.Is(err, store.ErrNotExist) {
			return a, err
		}
	}
	key, err := r.find(ctx, s, bucket, id)
	if err != nil {
		return nil, err
	}
	a, _, err := r.read(ctx, s, bucket, id, key)
	return a, err
}

// holdBytes bounds the lines of segments that one reconcile holds, in bytes.
const holdBytes = 16 << 20

// hold keeps a segment for the rest of the reconcile, and lets go of the others
// when all together are too large. They can be read again.
func (s *scope) hold(id segmentID, a *archived) {
	n := 0
	for _, line := range a.lines {
		n += len(line)
	}
	if s.held += n; s.held > holdBytes {
		clear(s.archive)
		s.held = n
	}
	s.archive[id] = a
}

// errNotItsName is of an object that is not what its key says.
var errNotItsName = errors.New("it does not fit the chain in its name")

// read reads one object of the archive, checks that the chain over it is the
// one in its name, and returns its uncompressed bytes as well.
func (r *Reconciler) read(ctx context.Context, s *scope, bucket *store.Bucket, id segmentID, key string) (*archived, []byte, error) {
	packed, err := bucket.Get(ctx, key, segment.MaxPacked)
	if errors.Is(err, store.ErrTooLarge) {
		return nil, nil, damaged(id, err)
	}
	if err != nil {
		return nil, nil, r.Connect.StoreError(s.mem, err)
	}
	raw, err := segment.Unpack(packed)
	if err != nil {
		return nil, nil, damaged(id, err)
	}
	h, lines, err := segment.Decode(raw)
	if err != nil {
		return nil, nil, damaged(id, err)
	}
	a := &archived{header: h, lines: lines}
	if a.gap() {
		return a, raw, nil // the chain over what was lost is that of others
	}
	head, err := h.Head(raw)
	if err != nil {
		return nil, nil, damaged(id, err)
	}
	if key != archiveKey(s.ses, id, head) {
		return nil, nil, damaged(id, errNotItsName)
	}
	return a, raw, nil
}

// find returns the key of a verified segment. The key ends in the chain over
// it, which status keeps of the newest only; a listing of this one number
// tells the rest.
func (r *Reconciler) find(ctx context.Context, s *scope, bucket *store.Bucket, id segmentID) (string, error) {
	var found []string
	for info, err := range bucket.List(ctx, archiveHead(s.ses, id)) {
		if err != nil {
			return "", r.Connect.StoreError(s.mem, err)
		}
		found = append(found, info.Key)
	}
	switch len(found) {
	case 0:
		s.missing = &id
		return "", damaged(id, store.ErrNotExist)
	case 1:
		return found[0], nil
	default:
		return "", damaged(id, errors.New("it is there twice"))
	}
}

// archiveHead is what the key of a segment begins with: all but the chain over
// it.
func archiveHead(ses *v1alpha1.Session, id segmentID) string {
	key := archiveKey(ses, id, segment.Sum{})
	return key[:strings.LastIndex(key, "-")+1]
}

// damaged is an error of the archive itself, which nobody but a person can
// mend: its bytes were verified once.
func damaged(id segmentID, err error) error {
	return outcome.RetryAfterf(v1alpha1.SegmentCorruptReason, waitForSegment, "%w", &damageError{id, err})
}

// damageError says what is wrong with a segment in the archive.
type damageError struct {
	id  segmentID
	err error
}

func (e *damageError) Error() string {
	return fmt.Sprintf("segment %d of workstation %s in the archive: %s; restore the bucket", e.id.seq, e.id.workstation, e.err)
}

func (e *damageError) Unwrap() error { return e.err }

// mend looks at the error of a delivery. Where the archive lacks a segment that
// was verified, because an older backup of the bucket was restored, what is
// verified is taken back, so that the segment is asked for again or becomes a
// gap. A bucket that knows nothing of the session is the wrong one: then
// nothing is given up.
func (r *Reconciler) mend(ctx context.Context, s *scope, bucket *store.Bucket, err error) error {
	if s.missing == nil || !errors.Is(err, store.ErrNotExist) {
		return err
	}
	id := *s.missing
	sync := syncOf(s.ses, id.workstation)
	if sync == nil || id.seq <= sync.Delivered.Segments || id.seq > sync.Verified.Segments {
		return err
	}
	rec, rerr := r.readRecord(ctx, s, bucket)
	if rerr != nil {
		return rerr
	}
	if rec == nil {
		return err
	}
	chain := segment.Start(s.ses.Name, id.workstation).String()
	if id.seq > 1 {
		key, ferr := r.find(ctx, s, bucket, segmentID{id.workstation, id.chapter, id.seq - 1})
		if ferr != nil {
			return r.mend(ctx, s, bucket, ferr)
		}
		_, chain, _ = strings.Cut(key[strings.LastIndex(key, "/")+1:], "-")
		chain, _, _ = strings.Cut(chain, ".")
	}
	sync.Verified = v1alpha1.WriterVerified{Segments: id.seq - 1, Chain: chain}
	r.tell(s, corev1.EventTypeWarning, v1alpha1.SegmentMissingReason, fmt.Sprintf("the archive lost segment %d of workstation %s, which was verified; it is asked for again", id.seq, id.workstation))
	return outcome.Waitf(v1alpha1.ProgressingReason, 0, "segments that the archive lost are asked for again")
}
