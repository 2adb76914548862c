package session

import (
	"context"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/internal/segment"
	"github.com/undersong-dev/undersong/internal/store"
)

// rebuildManager owns what Rebuild creates.
const rebuildManager = client.FieldOwner("undersong-rebuild")

// recordName is how the key of a record ends.
const recordName = "/session.json"

// Rebuilt says what Rebuild did about one session.
type Rebuilt struct {
	// Name of the Session.
	Name string
	// Created is false where there was one already.
	Created bool
	// Err says why there is none.
	Err error
}

// Rebuild makes the Sessions of a memory again that the archive knows and the
// cluster does not, with c, which must be allowed to create Sessions for other
// owners. The controller then takes their status from the archive. Doing it
// again makes none twice.
func Rebuild(ctx context.Context, c client.Client, bucket *store.Bucket, mem *v1alpha1.TeamMemory, each func(Rebuilt)) error {
	for info, err := range bucket.List(ctx, segment.ArchiveOf(mem.Namespace)) {
		if err != nil {
			return fmt.Errorf("list the archive: %w", err)
		}
		if !strings.HasSuffix(info.Key, recordName) {
			continue
		}
		data, err := bucket.Get(ctx, info.Key, maxRecord)
		if err != nil {
			return fmt.Errorf("read a record: %w", err)
		}
		rec, err := parseRecord(data)
		if err == nil && (rec.Spec.MemoryRef.Name != mem.Name || rec.Forgotten || rec.Swept) {
			continue
		}
		var done Rebuilt
		if err == nil {
			done.Name = v1alpha1.SessionName(rec.Spec.SessionID, rec.Spec.Owner)
			if info.Key != segment.SessionKey(mem.Namespace, rec.Spec.Owner, done.Name) {
				err = errors.New("the record lies where another session's should")
			}
		}
		if err == nil {
			done.Created, err = remake(ctx, c, bucket, mem, rec)
		}
		if done.Err = err; done.Name == "" {
			done.Name = info.Key
		}
		each(done)
	}
	return nil
}

// remake creates one Session from its record.
func remake(ctx context.Context, c client.Client, bucket *store.Bucket, mem *v1alpha1.TeamMemory, rec *record) (bool, error) {
	ses := &v1alpha1.Session{
		ObjectMeta: metav1.ObjectMeta{Namespace: mem.Namespace, Name: v1alpha1.SessionName(rec.Spec.SessionID, rec.Spec.Owner)},
		Spec:       rec.Spec,
	}
	ses.Spec.Lines = 0
	for i := range ses.Spec.Writers {
		w := &ses.Spec.Writers[i]
		if w.Bytes == 0 && w.Segments > 0 {
			var err error
			if w.Lines, err = archivedLines(ctx, bucket, ses, w, rec.chapter(w.Workstation)); err != nil {
				return false, err
			}
		}
		ses.Spec.Lines += w.Lines
	}
	err := c.Create(ctx, ses, rebuildManager)
	if apierrors.IsAlreadyExists(err) {
		return false, nil
	}
	return err == nil, err
}

// archivedLines counts the lines of a writer's segments.
func archivedLines(ctx context.Context, bucket *store.Bucket, ses *v1alpha1.Session, w *v1alpha1.Writer, chapter int32) (int64, error) {
	var n int64
	for seq := int64(1); seq <= w.Segments; seq++ {
		for info, err := range bucket.List(ctx, archiveHead(ses, segmentID{w.Workstation, chapter, seq})) {
			if err != nil {
				return 0, fmt.Errorf("list the archive: %w", err)
			}
			packed, err := bucket.Get(ctx, info.Key, segment.MaxPacked)
			if err != nil {
				return 0, fmt.Errorf("read the archive: %w", err)
			}
			raw, err := segment.Unpack(packed)
			if err != nil {
				return 0, err
			}
			_, lines, err := segment.Decode(raw)
			if err != nil {
				return 0, err
			}
			n += int64(len(lines))
			break
		}
	}
	return n, nil
}
