package session

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/internal/crash"
	"github.com/undersong-dev/undersong/internal/outcome"
	"github.com/undersong-dev/undersong/internal/redact"
	"github.com/undersong-dev/undersong/internal/segment"
	"github.com/undersong-dev/undersong/internal/store"
)

// eventSegmentParked is the reason of the event about a segment that is set
// aside because processes died of it.
const eventSegmentParked = "SegmentParked"

// maxMark bounds a mark, in bytes. One reconcile parks maxVerified at most.
const maxMark = 16 << 10

// suspect is a segment by its packed bytes: one that is sent again in another
// way is another.
type suspect struct {
	Segment int64 `json:"segment"`
	// Digest is their sha256. Empty: several segments were looked at, from
	// this one on.
	Digest string `json:"digest,omitempty"`
}

// mark is an object in the store that says what a process looks at, for the
// next process, should this one die of it.
type mark struct {
	suspect
	// Parked are those that killed before: while no status says that they are
	// gaps, the next process must not open them either.
	Parked []suspect `json:"parked,omitempty"`
}

// trial is a process's first look at what waits of one writer. When a process
// before this one died while it looked, each segment is tried alone.
type trial struct {
	key string
	// found says that an earlier process left a mark, and left what it says.
	found bool
	left  suspect
	// parked are the segments that killed.
	parked []suspect
	// clear takes the mark away.
	clear func(context.Context) error
}

// waitToClear bounds what a process that is told to stop spends on one mark.
const waitToClear = 5 * time.Second

// trials are those of one process.
type trials struct {
	// scanning is held shared while a segment is opened and scanned, and
	// exclusively while a suspect one is.
	scanning sync.RWMutex

	mu   sync.Mutex
	open map[string]*trial
	done keySet
}

func (t *trials) get(key string) *trial {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.open[key]
}

func (t *trials) put(tr *trial) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open == nil {
		t.open = map[string]*trial{}
	}
	t.open[tr.key] = tr
}

func (t *trials) end(key string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.open, key)
	t.done.add(key)
}

// leave takes away the marks of the looks below a prefix that this process did
// not finish, because it is told to stop: it dies of nothing. Where a process
// before it died the mark stays, because it still says so.
func (t *trials) leave(ctx context.Context, prefix string) {
	t.mu.Lock()
	var left []*trial
	for key, tr := range t.open {
		if strings.HasPrefix(key, prefix) {
			delete(t.open, key) // a look after this one marks again
			left = append(left, tr)
		}
	}
	t.mu.Unlock()
	for _, tr := range left {
		if tr.found {
			continue
		}
		// What told the process to stop must not keep it from this.
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), waitToClear)
		if err := tr.clear(within); err != nil {
			ctrl.LoggerFrom(ctx).Info("Leaving a mark of a look that was broken off", "key", tr.key, "reason", err.Error())
		}
		cancel()
	}
}

// begin sets the trial of this writer's segments; there is none if this process
// has looked at the writer before, and lived.
func (v *verification) begin(ctx context.Context) error {
	key := segment.TryingKey(v.s.ses.Namespace, v.s.ses.Name, v.writer.Workstation)
	t := &v.r.trials
	if t.done.has(key) {
		return nil
	}
	if v.trial = t.get(key); v.trial != nil {
		return nil
	}
	bucket := v.bucket
	tr := &trial{key: key, clear: func(ctx context.Context) error { return bucket.Delete(ctx, key) }}
	data, err := v.bucket.Get(ctx, key, maxMark)
	switch {
	case err == nil:
		tr.found = true
		var m mark
		if json.Unmarshal(data, &m) == nil { // else it says only that somebody died
			tr.left, tr.parked = m.suspect, m.Parked
		}
	case errors.Is(err, store.ErrNotExist):
		if err := v.mark(ctx, tr, suspect{Segment: v.sync.Verified.Segments + 1}); err != nil {
			return err
		}
	default:
		return v.r.Connect.StoreError(v.s.mem, err)
	}
	v.trial = tr
	t.put(tr)
	return nil
}

func (v *verification) mark(ctx context.Context, t *trial, at suspect) error {
	data, err := json.Marshal(mark{suspect: at, Parked: t.parked})
	if err != nil {
		return fmt.Errorf("mark a segment: %w", err)
	}
	if err := v.bucket.Put(ctx, t.key, data); err != nil {
		return v.r.Connect.StoreError(v.s.mem, err)
	}
	return nil
}

// end takes the mark away once the status stands: this process has looked, and
// lives. A look that came to nothing, because the store failed, goes on.
func (v *verification) end(err error) {
	if v.trial == nil || (v.verified == 0 && unread(err)) {
		return
	}
	key := v.trial.key
	v.s.after = append(v.s.after, func(ctx context.Context) {
		if derr := v.bucket.Delete(ctx, key); derr != nil {
			ctrl.LoggerFrom(ctx).V(1).Info("Leaving a mark for the next time", "key", key, "reason", derr.Error())
			return
		}
		v.r.trials.end(key)
	})
}

// unread reports whether an error is not about the segments.
func unread(err error) bool {
	if err == nil {
		return false
	}
	o := outcome.Of(err)
	return o.Kind == outcome.Retry && o.Reason != v1alpha1.SegmentMissingReason && o.Reason != v1alpha1.SegmentCorruptReason
}

// open opens a segment that was read. One that a process died of while it
// looked at nothing else, after another process had died, is parked.
func (v *verification) open(ctx context.Context, seq int64, packed []byte) (*candidate, error) {
	t := v.trial
	if t == nil || !t.found {
		return v.decode(seq, packed)
	}
	sum := sha256.Sum256(packed)
	at := suspect{Segment: seq, Digest: hex.EncodeToString(sum[:])}
	if t.left == at && !slices.Contains(t.parked, at) {
		t.parked = append(t.parked, at)
	}
	if slices.Contains(t.parked, at) {
		return v.park(ctx, seq, packed)
	}
	return v.alone(ctx, at, packed)
}

// alone opens and scans a suspect segment while this process opens and scans no
// other, so that a death is of this one.
func (v *verification) alone(ctx context.Context, at suspect, packed []byte) (*candidate, error) {
	c, err := func() (*candidate, error) {
		v.r.trials.scanning.Lock()
		defer v.r.trials.scanning.Unlock()
		if err := v.mark(ctx, v.trial, at); err != nil {
			return nil, err
		}
		c, err := v.decodeLocked(at.Segment, packed)
		if err == nil {
			v.scanLocked(c.lines)
		}
		return c, err
	}()
	// It lived, also where it is told to stop: whatever a process dies of now,
	// it is not this look.
	if merr := v.mark(context.WithoutCancel(ctx), v.trial, suspect{Segment: at.Segment + 1}); merr != nil {
		return nil, merr
	}
	return c, err
}

// park sets a segment aside as it is, unopened, and makes a gap of it.
func (v *verification) park(ctx context.Context, seq int64, packed []byte) (*candidate, error) {
	ses := v.s.ses
	key := segment.ParkedKey(ses.Namespace, ses.Spec.Owner, ses.Name, v.writer.Workstation, v.sync.Chapter, seq)
	if err := v.bucket.Put(ctx, key, packed); err != nil {
		return nil, v.r.Connect.StoreError(v.s.mem, err)
	}
	v.r.tell(v.s, corev1.EventTypeWarning, eventSegmentParked, fmt.Sprintf(
		"two controllers died while they looked at segment %d of workstation %s; it is set aside as %s, counts as lost, and the session goes on; please report it", seq, v.writer.Workstation, key))
	return &candidate{seq: seq, gap: true}, nil
}

// decode opens a segment and checks that it is the one that spec names.
func (v *verification) decode(seq int64, packed []byte) (*candidate, error) {
	v.r.trials.scanning.RLock()
	defer v.r.trials.scanning.RUnlock()
	return v.decodeLocked(seq, packed)
}

// scan scans the lines of a segment once more.
func (v *verification) scan(lines [][]byte) ([]redact.Redacted, []redact.Findings) {
	v.r.trials.scanning.RLock()
	defer v.r.trials.scanning.RUnlock()
	return v.scanLocked(lines)
}

func (v *verification) scanLocked(lines [][]byte) ([]redact.Redacted, []redact.Findings) {
	crash.Point(crash.ControllerScanning)
	return v.s.redactor.Lines(lines)
}
