package session

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/internal/crash"
	"github.com/undersong-dev/undersong/internal/outcome"
	"github.com/undersong-dev/undersong/internal/redact"
	"github.com/undersong-dev/undersong/internal/segment"
	"github.com/undersong-dev/undersong/internal/store"
)

// Reasons why a segment is asked for again.
var (
	errMissing = errors.New("is not in the inbox")
	errCorrupt = errors.New("does not fit its chain")
)

// maxVerified and maxVerifiedBytes bound the segments of one writer that one
// reconcile verifies.
const (
	maxVerified      = 16
	maxVerifiedBytes = 16 << 20
)

// maxKept bounds the segments that are kept for the delivery in the same
// reconcile, in bytes. The others are read again.
const maxKept = 8 << 20

// waitForWorkstation is how long to wait for a workstation's next write, which
// wakes the Session earlier.
const waitForWorkstation = 5 * time.Minute

// waitForSegment is how long to wait for a segment that was asked for again.
// Its workstation's next write wakes the Session earlier.
const waitForSegment = time.Minute

// verify reads the segments that the writers' entries name and status does not
// know, checks them against the chain, scans them again and puts them into the
// archive. When it returns nil the archive holds everything spec names.
//
// A segment that does not fit deletes nothing: it is asked for again.
func (r *Reconciler) verify(ctx context.Context, s *scope) error {
	var first error
	for i := range s.ses.Spec.Writers {
		w := &s.ses.Spec.Writers[i]
		if err := r.verifyWriter(ctx, s, w); err != nil && first == nil {
			first = err
		}
	}
	return first
}

func (r *Reconciler) verifyWriter(ctx context.Context, s *scope, w *v1alpha1.Writer) error {
	sync := ensureSync(s.ses, w.Workstation)
	bucket, err := r.Connect.Store(ctx, s.mem)
	if err != nil {
		return err
	}
	if sync.Verified.Segments > w.Segments {
		// The cluster was restored from an older backup than the archive.
		ok, err := r.onChain(ctx, s, bucket, w, sync.Chapter)
		if err != nil {
			return err
		}
		if ok {
			sync.Origin = ""
			return outcome.Waitf(v1alpha1.ProgressingReason, waitForWorkstation, "the archive has more of workstation %s than spec names, as after a restore; that workstation names it again when it runs", w.Workstation)
		}
	}
	if sync.Verified.Segments > w.Segments || (sync.Verified.Segments == w.Segments && sync.Verified.Chain != w.Chain) {
		if sync.Origin == v1alpha1.OriginArchive {
			return r.turnPage(s, sync)
		}
		return outcome.Stallf(v1alpha1.InvalidSpecReason, "spec names another chain of workstation %s than the archive has; nothing more of it is read. Delete this Session to begin anew", w.Workstation)
	}
	ws, err := r.workstation(ctx, s, w.Workstation)
	if err != nil {
		return err
	}
	if ws != nil && sync.Origin != v1alpha1.OriginArchive { // else the numbers may be those of other segments
		r.emptyAfterwards(s, bucket, ws, w, sync.Verified.Segments)
	}
	if s.mem.Spec.OnSecret != v1alpha1.OnSecretQuarantine {
		sync.Held = nil
	}
	if sync.Verified.Segments == w.Segments {
		sync.Origin = ""
		return nil
	}
	v := &verification{r: r, s: s, bucket: bucket, ws: ws, writer: w, sync: sync}
	v.chain, err = segment.ParseSum(sync.Verified.Chain)
	if err != nil {
		return outcome.Stallf(v1alpha1.InvalidSpecReason, "status.syncState of workstation %s has no readable chain", w.Workstation)
	}
	if err := v.begin(ctx); err != nil {
		return err
	}
	err = v.run(ctx)
	v.end(err)
	if v.verified > 0 {
		now := metav1.NewTime(r.Clock.Now().Truncate(time.Second))
		s.ses.Status.LastActivityTime = &now
		segmentsVerified.Add(float64(v.verified))
		if ws != nil {
			r.emptyAfterwards(s, bucket, ws, w, sync.Verified.Segments)
		}
		crash.Point(crash.ControllerArchived)
		s.after = append(s.after, func(context.Context) { crash.Point(crash.ControllerVerified) })
	}
	return err
}

// workstation reads the writer's Workstation. It is nil when the Workstation
// is gone: nothing more can come of it. That is asked of the API server: a
// cache that is behind would turn segments that lie in the inbox into gaps.
func (r *Reconciler) workstation(ctx context.Context, s *scope, name string) (*v1alpha1.Workstation, error) {
	ws := &v1alpha1.Workstation{}
	key := types.NamespacedName{Namespace: s.ses.Namespace, Name: name}
	err := r.Client.Get(ctx, key, ws)
	if apierrors.IsNotFound(err) {
		err = r.Live.Get(ctx, key, ws)
	}
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil //nolint:nilnil // absence is the answer
	case err != nil:
		return nil, err
	case ws.Spec.Owner != s.ses.Spec.Owner:
		return nil, outcome.Stallf(v1alpha1.InvalidSpecReason, "spec.writers names the workstation %s of another owner; it is not read", name)
	}
	return ws, nil
}

// emptyAfterwards empties the slots of verified segments once the status that
// says so is written. Slots that spec still names are emptied again by the
// next process, in case this one dies in between.
func (r *Reconciler) emptyAfterwards(s *scope, bucket *store.Bucket, ws *v1alpha1.Workstation, w *v1alpha1.Writer, verified int64) {
	for _, slot := range w.Slots {
		key := segment.InboxKey(string(ws.UID), slot.Slot)
		if slot.Seq > verified || r.emptied.has(key) {
			continue
		}
		s.after = append(s.after, func(ctx context.Context) {
			if r.emptied.has(key) {
				return
			}
			if err := bucket.Delete(ctx, key); err != nil {
				// The bucket's lifecycle rule is the second broom.
				ctrl.LoggerFrom(ctx).V(1).Info("Leaving a verified segment in the inbox", "key", key, "reason", err.Error())
				return
			}
			r.emptied.add(key)
		})
	}
}

// verification walks one writer's segments.
type verification struct {
	r      *Reconciler
	s      *scope
	bucket *store.Bucket
	ws     *v1alpha1.Workstation
	writer *v1alpha1.Writer
	sync   *v1alpha1.WriterSync
	// trial is this process's first look at them, nil if it has looked before.
	trial *trial
	// chain over the segments confirmed so far.
	chain    segment.Sum
	verified int
	bytes    int
}

// candidate is a segment that fits what came before it. Only what comes after
// it, the next header or spec's head, shows that it is the one meant.
type candidate struct {
	seq    int64
	header segment.Header
	raw    []byte
	packed []byte
	lines  [][]byte
	// next is the chain over it.
	next segment.Sum
	gap  bool
}

// run confirms segment after segment. It holds at most two in memory, and stops
// for another reconcile when it has done a good deal, so that what is done
// stands in status before more is begun.
func (v *verification) run(ctx context.Context) error {
	var held *candidate
	for seq := v.sync.Verified.Segments + 1; seq <= v.writer.Segments; seq++ {
		if v.verified >= maxVerified || v.bytes >= maxVerifiedBytes {
			return outcome.Waitf(v1alpha1.ProgressingReason, 0, "more segments wait to be verified")
		}
		if len(v.sync.Held) >= maxHeld {
			return outcome.RetryAfterf(v1alpha1.SecretFoundReason, waitForRelease, "%d segments of workstation %s are held because of secrets; see the Delivered condition", maxHeld, v.writer.Workstation)
		}
		c, err := v.read(ctx, seq)
		if err != nil {
			return v.again(err, seq)
		}
		if held != nil {
			if err := v.confirm(ctx, held, v.follows(held, c)); err != nil {
				return v.again(err, held.seq, seq)
			}
		}
		held = c
		if !c.gap && c.header.PreviousChain != v.chain.String() {
			if v.sync.Origin == v1alpha1.OriginArchive && seq == v.sync.Verified.Segments+1 {
				return v.r.turnPage(v.s, v.sync)
			}
			return v.again(errCorrupt, seq)
		}
	}
	if held == nil {
		return nil
	}
	if err := v.confirm(ctx, held, v.writer.Chain); err != nil {
		return v.again(err, held.seq)
	}
	return nil
}

// follows is the chain over held as the segment after it has it. A gap does
// not tell: then a segment is taken as it is, and a gap before it gets a chain
// of our own, which the next segment that is there corrects.
func (v *verification) follows(held, next *candidate) string {
	switch {
	case !next.gap:
		return next.header.PreviousChain
	case !held.gap:
		return held.next.String()
	default:
		return v.chain.Next(nil).String()
	}
}

// read fetches one segment from its slot, or makes a gap of one that cannot be
// sent again.
func (v *verification) read(ctx context.Context, seq int64) (*candidate, error) {
	i := slices.IndexFunc(v.writer.Slots, func(s v1alpha1.Slot) bool { return s.Seq == seq })
	if v.ws == nil || i < 0 {
		c, err := v.kept(ctx, seq)
		switch {
		case c != nil || err != nil:
			return c, err
		case v.ws == nil || slices.Contains(v.writer.Gone, seq):
			return &candidate{seq: seq, gap: true}, nil
		}
		return nil, errMissing
	}
	key := segment.InboxKey(string(v.ws.UID), v.writer.Slots[i].Slot)
	info, err := v.bucket.Stat(ctx, key)
	switch {
	case errors.Is(err, store.ErrNotExist):
		return nil, errMissing
	case err != nil:
		return nil, v.r.Connect.StoreError(v.s.mem, err)
	case info.Size > segment.MaxPacked:
		return nil, errCorrupt // not even read
	}
	packed, err := v.bucket.Get(ctx, key, segment.MaxPacked)
	switch {
	case errors.Is(err, store.ErrNotExist):
		return nil, errMissing
	case errors.Is(err, store.ErrTooLarge):
		return nil, errCorrupt
	case err != nil:
		return nil, v.r.Connect.StoreError(v.s.mem, err)
	}
	return v.open(ctx, seq, packed)
}

// kept is what the archive has of a segment already, if a process died between
// archiving it and saying so, or if what is verified was taken back; nil if
// there is nothing.
func (v *verification) kept(ctx context.Context, seq int64) (*candidate, error) {
	id := idOf(v.sync, seq)
	for info, err := range v.bucket.List(ctx, archiveHead(v.s.ses, id)) {
		if err != nil {
			return nil, v.r.Connect.StoreError(v.s.mem, err)
		}
		a, raw, err := v.r.read(ctx, v.s, v.bucket, id, info.Key)
		if err != nil {
			return nil, err
		}
		if a.gap() {
			continue
		}
		next, err := a.header.Head(raw)
		if err != nil {
			return nil, damaged(id, err)
		}
		return &candidate{seq: seq, header: a.header, raw: raw, packed: segment.Pack(raw), lines: a.lines, next: next}, nil
	}
	return nil, nil //nolint:nilnil // absence is the answer
}

// decodeLocked is decode for who holds scanning.
func (v *verification) decodeLocked(seq int64, packed []byte) (*candidate, error) {
	raw, err := segment.Unpack(packed)
	if err != nil {
		return nil, errCorrupt
	}
	h, lines, err := segment.Decode(raw)
	switch {
	case errors.Is(err, segment.ErrUnsupportedVersion):
		return nil, outcome.Stallf(v1alpha1.UnsupportedVersionReason, "workstation %s writes a newer segment format; upgrade the controller, nothing is lost meanwhile", v.writer.Workstation)
	case err != nil, h.Session != v.s.ses.Name, h.Workstation != v.writer.Workstation, h.Seq != seq, h.Archived != nil:
		return nil, errCorrupt
	}
	previous, err := segment.ParseSum(h.PreviousChain)
	if err != nil {
		return nil, errCorrupt
	}
	return &candidate{seq: seq, header: h, raw: raw, packed: packed, lines: lines, next: previous.Next(raw)}, nil
}

// confirm archives a candidate if the chain over it is the one that follows.
func (v *verification) confirm(ctx context.Context, c *candidate, follows string) error {
	if c.gap {
		// Whatever was in it, the chain goes on with what follows.
		next, err := segment.ParseSum(follows)
		if err != nil {
			return errCorrupt
		}
		c.next = next
		if err := c.makeGap(v); err != nil {
			return err
		}
	}
	if c.next.String() != follows {
		return errCorrupt
	}
	if err := v.archive(ctx, c); err != nil {
		return err
	}
	if c.gap {
		v.s.after = append(v.s.after, func(context.Context) { gaps.Inc() })
	}
	v.chain = c.next
	v.sync.Origin = ""
	v.sync.Verified = v1alpha1.WriterVerified{Segments: c.seq, Chain: c.next.String()}
	v.sync.Wanted = slices.DeleteFunc(v.sync.Wanted, func(seq int64) bool { return seq <= c.seq })
	v.verified++
	return nil
}

// labelOf keeps the names of a team's own rules out of a metric's labels: they
// are without bound.
func labelOf(rule string) string {
	for _, source := range []string{"team", "scrub"} {
		if strings.HasPrefix(rule, source+"-") {
			return source
		}
	}
	return rule
}

// archive scans a segment once more and stores it. A line with a secret is
// stored without it.
func (v *verification) archive(ctx context.Context, c *candidate) error {
	var clean []redact.Redacted
	var found []redact.Findings
	if !c.gap {
		clean, found = v.scan(c.lines)
	}
	changed := false
	for i, line := range c.lines {
		changed = changed || clean[i].String() != string(line)
		for rule, n := range found[i] {
			secondPass.WithLabelValues(labelOf(rule)).Add(float64(n))
		}
	}
	v.report(c, found)
	packed := c.packed
	if changed {
		raw, err := segment.Rewrite(c.raw, clean)
		if err != nil {
			return errCorrupt
		}
		packed = segment.Pack(raw)
	}
	if err := v.bucket.Put(ctx, archiveKey(v.s.ses, idOf(v.sync, c.seq), c.next), packed); err != nil {
		return v.r.Connect.StoreError(v.s.mem, err)
	}
	v.bytes += len(c.raw)
	if v.s.kept += len(c.raw); v.s.kept > maxKept {
		return nil
	}
	kept := &archived{header: c.header, lines: make([][]byte, len(clean))}
	for i := range clean {
		kept.lines[i] = []byte(clean[i].String())
	}
	v.s.hold(idOf(v.sync, c.seq), kept)
	return nil
}

// makeGap turns a candidate that nobody can send again into an empty segment,
// so that the archive says explicitly that it is missing.
func (c *candidate) makeGap(v *verification) error {
	h := segment.Header{
		Format: segment.Format, Session: v.s.ses.Name, Workstation: v.writer.Workstation, Seq: c.seq, Stream: segment.MainStream,
		FirstIndex: segment.NoIndex, LastIndex: segment.NoIndex, PreviousChain: v.chain.String(), Rules: redact.RulesVersion,
		At: v.s.ses.CreationTimestamp.Time,
	}
	raw, err := segment.Encode(h, nil)
	if err != nil {
		return err
	}
	c.header, c.raw, c.packed = h, raw, segment.Pack(raw)
	return nil
}

// again asks for segments once more where that helps, and gives the error its
// reason.
func (v *verification) again(err error, seqs ...int64) error {
	var reason string
	switch {
	case errors.Is(err, errMissing):
		reason = v1alpha1.SegmentMissingReason
		seqs = seqs[len(seqs)-1:]
	case errors.Is(err, errCorrupt):
		reason = v1alpha1.SegmentCorruptReason
	default:
		return err
	}
	for _, seq := range seqs {
		if !slices.Contains(v.sync.Wanted, seq) && len(v.sync.Wanted) < 64 {
			v.sync.Wanted = append(v.sync.Wanted, seq)
		}
	}
	slices.Sort(v.sync.Wanted)
	return outcome.RetryAfterf(reason, waitForSegment, "segment %d of workstation %s %w; the workstation is asked to send it again", seqs[0], v.writer.Workstation, err)
}

// ensureSync returns the status entry of a writer, made if there was none.
func ensureSync(ses *v1alpha1.Session, workstation string) *v1alpha1.WriterSync {
	if w := syncOf(ses, workstation); w != nil {
		return w
	}
	st := ses.Status.SyncState
	st.Writers = append(st.Writers, v1alpha1.WriterSync{
		Workstation: workstation, LastProcessedIndex: -1,
		Verified: v1alpha1.WriterVerified{Chain: segment.Start(ses.Name, workstation).String()},
	})
	return &st.Writers[len(st.Writers)-1]
}
