package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/internal/crash"
	"github.com/undersong-dev/undersong/internal/letta"
	"github.com/undersong-dev/undersong/internal/outcome"
	"github.com/undersong-dev/undersong/internal/redact"
	"github.com/undersong-dev/undersong/internal/segment"
	"github.com/undersong-dev/undersong/internal/store"
	"github.com/undersong-dev/undersong/internal/transcript"
)

// Reasons of events about requests.
const (
	eventForgotten        = "Forgotten"
	eventWhisperWithdrawn = "WhisperWithdrawn"
)

const (
	// maxCorrections bounds status.syncState.corrections.
	maxCorrections = 16
	// tooManyCorrections says why the agent is not told of one more.
	tooManyCorrections = "16 wrong whispers wait already for the session's next words; ask again after them"
)

// whisperID is the form of whispers' ids, which are those of deliveries.
var whisperID = regexp.MustCompile(`^[0-9a-f-]{1,64}$`)

// requests carries out what the owner asks for. When it returns nil each
// request is answered. Until then nothing more is given to Letta.
//
// Every step can be done again, and the answer is written last: a process that
// dies in between leaves a request that is still open.
func (r *Reconciler) requests(ctx context.Context, s *scope) error {
	st := &s.ses.Status
	// An answer is kept as long as its request.
	st.Answered = slices.DeleteFunc(st.Answered, func(a v1alpha1.Answer) bool {
		return !slices.ContainsFunc(s.ses.Spec.Requests, func(q v1alpha1.Request) bool { return q.ID == a.ID })
	})
	for i := range s.ses.Spec.Requests {
		q := &s.ses.Spec.Requests[i]
		if hasAnswer(s.ses, q.ID) {
			continue
		}
		var answer v1alpha1.Answer
		var err error
		switch q.Kind {
		case v1alpha1.RequestForget:
			answer, err = r.forget(ctx, s, q)
		case v1alpha1.RequestWrongWhisper:
			answer = r.wrongWhisper(s, q)
		}
		if err != nil {
			return err
		}
		answer.ID = q.ID
		st.Answered = append(st.Answered, answer)
	}
	return nil
}

// hasAnswer reports whether a request is answered.
func hasAnswer(ses *v1alpha1.Session, id string) bool {
	return slices.ContainsFunc(ses.Status.Answered, func(a v1alpha1.Answer) bool { return a.ID == id })
}

// wrongWhisper withdraws a whisper, and notes that the agent is to be told.
func (r *Reconciler) wrongWhisper(s *scope, q *v1alpha1.Request) v1alpha1.Answer {
	if !whisperID.MatchString(q.Whisper) {
		return v1alpha1.Answer{Result: v1alpha1.AnswerRefused, Message: "whisper must be the id of a whisper, as undersong whispers lists it"}
	}
	st := &s.ses.Status
	shown := slices.ContainsFunc(st.Whispers, func(w v1alpha1.Whisper) bool { return w.ID == q.Whisper })
	answer := v1alpha1.Answer{Result: v1alpha1.AnswerDone, Message: "the agent is told with the session's next words, if any"}
	if !shown {
		answer.Message = "the whisper had left the status before; " + answer.Message
	}
	switch y := st.SyncState; {
	case slices.Contains(y.Corrections, q.Whisper):
	case len(y.Corrections) < maxCorrections:
		y.Corrections = append(y.Corrections, q.Whisper)
	case !shown:
		return v1alpha1.Answer{Result: v1alpha1.AnswerRefused, Message: tooManyCorrections}
	default:
		answer = v1alpha1.Answer{Result: v1alpha1.AnswerPartial, Message: "withdrawn; not reached: the agent, " + tooManyCorrections}
	}
	st.Whispers = slices.DeleteFunc(st.Whispers, func(w v1alpha1.Whisper) bool { return w.ID == q.Whisper })
	takeBack(st, q.Whisper)
	r.tell(s, corev1.EventTypeWarning, eventWhisperWithdrawn, fmt.Sprintf("%s calls the whisper %s wrong; see the memory's blocks for what it came from", s.ses.Spec.Owner, q.Whisper))
	return answer
}

// maxWithdrawn bounds status.withdrawn. A whisper is not shown for longer than
// two hours, and there are no more than maxWhispers in ten minutes.
const maxWithdrawn = 16

// takeBack tells the workstations that have a whisper already.
func takeBack(st *v1alpha1.SessionStatus, ids ...string) {
	for _, id := range ids {
		st.Withdrawn = append(slices.DeleteFunc(st.Withdrawn, func(w string) bool { return w == id }), id)
	}
	st.Withdrawn = st.Withdrawn[max(0, len(st.Withdrawn)-maxWithdrawn):]
}

// takeBackAll takes all whispers back.
func takeBackAll(st *v1alpha1.SessionStatus) {
	for _, w := range st.Whispers {
		takeBack(st, w.ID)
	}
	st.Whispers = nil
}

// corrections is what a delivery says of wrong whispers, behind the words.
func corrections(d *v1alpha1.Delivery) string {
	var w strings.Builder
	for _, id := range d.Corrections {
		fmt.Fprintf(&w, "\n<wrong_answer id=%q/>", id)
	}
	if w.Len() > 0 {
		w.WriteString("\nWhoever was shown your answer to the transcript_delta of such an id says that it is wrong. Do not say it again, and correct the memory that it came from.")
	}
	return w.String()
}

// tell emits an event once the status that it speaks of is written.
func (r *Reconciler) tell(s *scope, kind, reason, message string) {
	s.after = append(s.after, func(context.Context) {
		r.Recorder.Eventf(s.ses, nil, kind, reason, "Reconcile", "%s", message)
	})
}

// span is a run of a writer's lines, counted from 1 over its segments; both
// ends are in it.
type span struct{ from, to int64 }

func spanOf(q *v1alpha1.Request) span {
	l := span{1, math.MaxInt64}
	if q.FromLine != nil {
		l.from = *q.FromLine
	}
	if q.ToLine != nil {
		l.to = *q.ToLine
	}
	return l
}

func (l span) has(line int64) bool { return line >= l.from && line <= l.to }

// all reports whether no line is outside.
func (l span) all() bool { return l.from == 1 && l.to == math.MaxInt64 }

// erasure is one Forget request being carried out, over as many reconciles as
// it takes to read the session's archive.
type erasure struct {
	session types.UID
	request string
	// walks say how far it is, with each chapter of each writer.
	walks map[chapterID]*walk

	r      *Reconciler
	s      *scope
	bucket *store.Bucket
	lines  span
	// uuids of the records that are erased: copies of them in other writers'
	// segments go, too.
	uuids map[string]bool
	// ids are the records' identities, for the seen-set: a copy that comes
	// later is no news.
	ids []string
	// types of the records.
	types map[string]bool
	// told says that Letta has, or may have, some of the lines.
	told bool
	// uncounted says that a lost segment keeps lines from being counted.
	uncounted bool
	// damaged are the segments that cannot be read.
	damaged []string
}

// chapterID names one chapter of a writer.
type chapterID struct {
	workstation string
	chapter     int32
}

// walk is how far an erasure came with the segments of one writer's chapter.
type walk struct {
	// segments and lines are those that were erased, or passed over.
	segments, lines int64
	// copied are the segments that were searched for copies.
	copied int64
	// uncounted says that the lines behind cannot be told apart.
	uncounted bool
}

// walk returns how far the erasure is with a writer's present chapter. It begins
// anew where the archive lost what it was through with.
func (e *erasure) walk(sync *v1alpha1.WriterSync) *walk {
	return e.walkOf(chapterID{sync.Workstation, sync.Chapter}, sync.Verified.Segments)
}

func (e *erasure) walkOf(id chapterID, verified int64) *walk {
	w := e.walks[id]
	if w == nil || verified < max(w.segments, w.copied) {
		w = &walk{}
		e.walks[id] = w
	}
	return w
}

// erasureOf returns what is done of a request.
func (r *Reconciler) erasureOf(s *scope, q *v1alpha1.Request) *erasure {
	e := r.erasures.take(s.key)
	if e == nil || e.session != s.ses.UID || e.request != q.ID {
		e = &erasure{session: s.ses.UID, request: q.ID, lines: spanOf(q), walks: map[chapterID]*walk{}, uuids: map[string]bool{}, types: map[string]bool{}}
	}
	e.r, e.s = r, s
	return e
}

// forget erases lines: from the archive, from what is still to be delivered,
// and the whispers that may have come of them. When the whole session is
// forgotten its conversation at Letta is deleted.
func (r *Reconciler) forget(ctx context.Context, s *scope, q *v1alpha1.Request) (v1alpha1.Answer, error) {
	e := r.erasureOf(s, q)
	answer, err := e.run(ctx, q)
	if err != nil {
		s.after = append(s.after, func(context.Context) { r.erasures.put(s.key, e) })
	}
	return answer, err
}

// run erases, and is called again until it returns no error.
func (e *erasure) run(ctx context.Context, q *v1alpha1.Request) (v1alpha1.Answer, error) {
	r, s := e.r, e.s
	refused := func(message string) (v1alpha1.Answer, error) {
		return v1alpha1.Answer{Result: v1alpha1.AnswerRefused, Message: message}, nil
	}
	var meant, others []v1alpha1.Writer
	for _, w := range writersOf(s.ses) {
		if q.Workstation == "" || q.Workstation == w.Workstation {
			meant = append(meant, w)
		} else {
			others = append(others, w)
		}
	}
	switch {
	case e.lines.from > e.lines.to:
		return refused("fromLine must not be greater than toLine")
	case len(meant) == 0 && q.Workstation != "":
		return refused("workstation " + q.Workstation + " has written no part of this session")
	}
	var err error
	if e.bucket, err = r.Connect.Store(ctx, s.mem); err != nil {
		return v1alpha1.Answer{}, err
	}
	behind := ""
	for _, w := range meant {
		short, err := e.writer(ctx, w)
		if err != nil {
			return v1alpha1.Answer{}, err
		}
		if short {
			behind = w.Workstation
		}
		if err := e.earlier(ctx, w.Workstation, e.lines.all()); err != nil {
			return v1alpha1.Answer{}, err
		}
	}
	for _, w := range meant {
		if err := e.inbox(ctx, w); err != nil {
			return v1alpha1.Answer{}, err
		}
	}
	if e.lines.all() {
		meant = nil // of these everything is erased
	}
	for _, w := range slices.Concat(meant, others) {
		if err := e.copies(ctx, w.Workstation); err != nil {
			return v1alpha1.Answer{}, err
		}
		if err := e.earlier(ctx, w.Workstation, false); err != nil {
			return v1alpha1.Answer{}, err
		}
	}
	if e.uncounted && len(e.ids) == 0 {
		return refused("a lost segment lies before these lines, so that they cannot be counted; leave fromLine and toLine out to have all lines erased")
	}
	if err := e.remember(ctx); err != nil {
		return v1alpha1.Answer{}, err
	}
	crash.Point(crash.ControllerErased)
	whole := len(others) == 0 && e.lines.all()
	e.withdraw()
	answer, err := e.unsay(ctx, whole)
	if err != nil {
		return v1alpha1.Answer{}, err
	}
	if behind != "" {
		// What is erased stays erased; the rest follows when it is here.
		return v1alpha1.Answer{}, outcome.Waitf(v1alpha1.ProgressingReason, waitForSegment, "lines of workstation %s that are to be erased are not in the archive yet", behind)
	}
	message := "lines were erased from the archive, as their owner asked"
	if whole {
		message = "the session was erased from the archive, as its owner asked"
	}
	r.tell(s, corev1.EventTypeNormal, eventForgotten, message)
	return answer, nil
}

// writer erases the lines of one writer. It reports whether some of them may
// still be on their way.
func (e *erasure) writer(ctx context.Context, w v1alpha1.Writer) (short bool, err error) {
	sync := ensureSync(e.s.ses, w.Workstation)
	if sync.Origin == v1alpha1.OriginArchive && !e.lines.all() {
		return true, nil // which lines are meant is known when more of it is here
	}
	at := e.walk(sync)
	for at.segments < sync.Verified.Segments && at.lines < e.lines.to && !at.uncounted {
		if err := e.r.slice(e.s); err != nil {
			return false, err
		}
		seq, line := at.segments+1, at.lines
		erased := map[int]bool{}
		a, err := e.segment(ctx, idOf(sync, seq), func(a *archived, i int) bool {
			line++
			if e.lines.has(line) {
				e.note(a, i, sync)
				erased[i] = true
			}
			return e.lines.has(line)
		})
		if err != nil {
			return false, err
		}
		release(sync, seq, erased)
		if a != nil && a.gap() { // which lines were in it nobody can say
			ses := e.s.ses
			if err := e.bucket.Delete(ctx, segment.ParkedKey(ses.Namespace, ses.Spec.Owner, ses.Name, w.Workstation, sync.Chapter, seq)); err != nil {
				return false, e.r.Connect.StoreError(e.s.mem, err)
			}
		}
		if (a == nil || a.gap()) && !e.lines.all() && (e.lines.from > line || e.lines.to != math.MaxInt64) {
			// Who counts at the other end counts the lost lines, too.
			e.uncounted, at.uncounted = true, true
		}
		at.segments, at.lines = seq, line
	}
	begins := sync.Origin == v1alpha1.OriginArchive && writerOf(e.s.ses, w.Workstation) != nil
	return !at.uncounted && at.lines < e.lines.to && (begins || sync.Verified.Segments < w.Segments), nil
}

// writersOf are spec's writers, and those that only an earlier Session of this
// name had.
func writersOf(ses *v1alpha1.Session) []v1alpha1.Writer {
	all := slices.Clone(ses.Spec.Writers)
	if ses.Status.SyncState == nil {
		return all
	}
	for _, w := range ses.Status.SyncState.Writers {
		if writerOf(ses, w.Workstation) == nil {
			all = append(all, v1alpha1.Writer{Workstation: w.Workstation, Segments: w.Verified.Segments})
		}
	}
	return all
}

// earlier erases what a writer's earlier chapters have of the same records, or
// all of them.
func (e *erasure) earlier(ctx context.Context, workstation string, all bool) error {
	sync := syncOf(e.s.ses, workstation)
	if sync == nil || (!all && len(e.uuids) == 0) {
		return nil
	}
	ses := e.s.ses
	for chapter := range sync.Chapter {
		prefix := segment.WriterPrefix(ses.Namespace, ses.Spec.Owner, ses.Name, workstation, chapter)
		at := e.walkOf(chapterID{workstation, chapter}, math.MaxInt64)
		done := &at.copied
		if all {
			done = &at.segments
		}
		for info, err := range e.bucket.List(ctx, prefix) {
			if err != nil {
				return e.r.Connect.StoreError(e.s.mem, err)
			}
			seq, ok := segment.ArchivedSeq(prefix, info.Key)
			if !ok || seq <= *done { // they come in order
				continue
			}
			if err := e.r.slice(e.s); err != nil {
				return err
			}
			if err := e.earlierSegment(ctx, segmentID{workstation, chapter, seq}, all); err != nil {
				return err
			}
			*done = seq
		}
	}
	return nil
}

func (e *erasure) earlierSegment(ctx context.Context, id segmentID, all bool) error {
	a, err := e.segment(ctx, id, func(a *archived, i int) bool {
		if all {
			e.told = true
			e.record(a, i)
			return true
		}
		rec, err := transcript.Parse(a.lines[i])
		return err == nil && rec.UUID != "" && e.uuids[rec.UUID]
	})
	if err != nil || a == nil || !a.gap() || !all {
		return err
	}
	ses := e.s.ses
	if err := e.bucket.Delete(ctx, segment.ParkedKey(ses.Namespace, ses.Spec.Owner, ses.Name, id.workstation, id.chapter, id.seq)); err != nil {
		return e.r.Connect.StoreError(e.s.mem, err)
	}
	return nil
}

// inbox deletes what lies in the writer's inbox of this session and will not be
// read: a segment that was put there and never named, or one whose slot could
// not be emptied. Should its workstation name it later it is asked for again.
func (e *erasure) inbox(ctx context.Context, w v1alpha1.Writer) error {
	ws, err := e.r.workstation(ctx, e.s, w.Workstation)
	if err != nil || ws == nil {
		return err
	}
	sync := ensureSync(e.s.ses, w.Workstation)
	verified := sync.Verified.Segments
	if sync.Origin == v1alpha1.OriginArchive {
		verified = 0 // of other segments
	}
	waiting := map[string]bool{}
	for _, slot := range w.Slots {
		if slot.Seq > verified {
			waiting[segment.InboxKey(string(ws.UID), slot.Slot)] = true
		}
	}
	for info, err := range e.bucket.List(ctx, segment.InboxPrefix(string(ws.UID))) {
		if err != nil {
			return e.r.Connect.StoreError(e.s.mem, err)
		}
		if waiting[info.Key] {
			continue
		}
		packed, err := e.bucket.Get(ctx, info.Key, segment.MaxPacked)
		if errors.Is(err, store.ErrNotExist) || errors.Is(err, store.ErrTooLarge) {
			continue
		}
		if err != nil {
			return e.r.Connect.StoreError(e.s.mem, err)
		}
		raw, err := segment.Unpack(packed)
		if err != nil {
			continue // whatever it is, the sweep takes it
		}
		if h, _, err := segment.Decode(raw); err != nil || h.Session != e.s.ses.Name {
			continue
		}
		if err := e.bucket.Delete(ctx, info.Key); err != nil {
			return e.r.Connect.StoreError(e.s.mem, err)
		}
	}
	return nil
}

// note takes down what else is to be done about a line.
func (e *erasure) note(a *archived, i int, sync *v1alpha1.WriterSync) {
	if a.header.Stream != segment.MainStream {
		return
	}
	e.hear(a, i, sync)
	e.record(a, i)
}

// record takes down whose line it is.
func (e *erasure) record(a *archived, i int) {
	rec, err := transcript.Parse(a.lines[i])
	if err != nil || a.header.Stream != segment.MainStream {
		return
	}
	if rec.UUID != "" {
		e.uuids[rec.UUID] = true
	}
	e.ids = append(e.ids, transcript.ID(rec, a.header.Generation, a.header.Stream, a.header.Offsets[i]))
	e.types[cmp.Or(redact.ForgottenType(a.lines[i]), rec.Type)] = true
}

// hear notes whether Letta has a line of the main stream, or is about to, and
// drops the answers to it.
func (e *erasure) hear(a *archived, i int, sync *v1alpha1.WriterSync) {
	at := v1alpha1.Cut{Segments: a.header.Seq - 1, Lines: int64(i)}
	e.told = e.told || !reached(at, &sync.Delivered)
	st := e.s.ses.Status.SyncState
	if d := st.Delivery; d != nil && d.Phase != v1alpha1.DeliveryPublished && covers(d, sync.Workstation, at) {
		e.told = true
		d.Answer = v1alpha1.AnswerDrop
	}
	for i := range st.Parked {
		if d := &st.Parked[i].Delivery; covers(d, sync.Workstation, at) {
			d.Answer = v1alpha1.AnswerDrop
		}
	}
}

// covers reports whether a line is between a delivery's cuts.
func covers(d *v1alpha1.Delivery, workstation string, at v1alpha1.Cut) bool {
	return d.Workstation == workstation && reached(at, &d.From) && !reached(at, &d.To)
}

// copies erases what a writer has of the same records: another one's copy of
// the file, or what the same one wrote again.
func (e *erasure) copies(ctx context.Context, workstation string) error {
	sync := syncOf(e.s.ses, workstation)
	if sync == nil || len(e.uuids) == 0 {
		return nil
	}
	for at := e.walk(sync); at.copied < sync.Verified.Segments; at.copied++ {
		if err := e.r.slice(e.s); err != nil {
			return err
		}
		_, err := e.segment(ctx, idOf(sync, at.copied+1), func(a *archived, i int) bool {
			rec, err := transcript.Parse(a.lines[i])
			if err != nil || rec.UUID == "" || !e.uuids[rec.UUID] {
				return false
			}
			if a.header.Stream == segment.MainStream {
				e.hear(a, i, sync)
			}
			return true
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// segment replaces the lines of one segment that are meant, and returns it as
// it was; nil if the archive keeps it no more, or it is damaged: then the
// answer says so, and what can be read is erased all the same. Doing it again
// changes nothing.
func (e *erasure) segment(ctx context.Context, id segmentID, meant func(*archived, int) bool) (*archived, error) {
	var a *archived
	var raw []byte
	key, err := e.r.find(ctx, e.s, e.bucket, id)
	if err == nil {
		a, raw, err = e.r.read(ctx, e.s, e.bucket, id, key)
	}
	if errors.Is(err, store.ErrNotExist) {
		return nil, nil //nolint:nilnil // what is not there need not be erased
	}
	if _, bad := errors.AsType[*damageError](err); bad && !errors.Is(err, segment.ErrUnsupportedVersion) {
		if name := fmt.Sprintf("segment %d of workstation %s", id.seq, id.workstation); !slices.Contains(e.damaged, name) {
			e.damaged = append(e.damaged, name)
		}
		return nil, nil //nolint:nilnil // see damaged
	}
	if err != nil {
		return nil, err
	}
	erased := map[int]redact.Redacted{}
	for i, line := range a.lines {
		if !meant(a, i) {
			continue
		}
		if stub := e.r.Redactor.Forgotten(line); stub.String() != string(line) {
			erased[i] = stub
		}
	}
	if len(erased) == 0 {
		return a, nil
	}
	clean, _ := e.s.redactor.Lines(a.lines)
	for i, stub := range erased {
		clean[i] = stub
	}
	if raw, err = segment.Rewrite(raw, clean); err != nil {
		return nil, damaged(id, err)
	}
	if err := e.bucket.Put(ctx, key, segment.Pack(raw)); err != nil {
		return nil, e.r.Connect.StoreError(e.s.mem, err)
	}
	delete(e.s.archive, id)
	return a, nil
}

// remember enters the erased records into the seen-set.
func (e *erasure) remember(ctx context.Context) error {
	if len(e.ids) == 0 {
		return nil
	}
	seen, err := e.r.seen(ctx, e.s, e.bucket)
	if err != nil {
		return err
	}
	return e.r.writeSeen(ctx, e.s, e.bucket, seen, &batch{ids: e.ids})
}

// withdraw takes back what status shows of the lines. Which whisper came of
// which lines is known of the newest only, so all of the session's go.
func (e *erasure) withdraw() {
	if len(e.ids) == 0 {
		return
	}
	st := &e.s.ses.Status
	takeBackAll(st)
	if e.types["ai-title"] || e.types["custom-title"] {
		st.Title = ""
	}
	if e.types["tag"] {
		st.Tag = ""
	}
	if e.types["pr-link"] {
		st.PullRequest = ""
	}
}

// unsay deletes the conversation where the whole session is forgotten, and
// says what cannot be reached.
func (e *erasure) unsay(ctx context.Context, whole bool) (v1alpha1.Answer, error) {
	var left []string
	st := e.s.ses.Status.SyncState
	switch {
	case whole && st.ConversationID != "":
		c, err := e.r.Connect.Letta(ctx, e.s.mem)
		if err != nil {
			return v1alpha1.Answer{}, err
		}
		ref := letta.Ref{AgentID: st.AgentID, ConversationID: st.ConversationID}
		if d := st.Delivery; d != nil && d.Phase != v1alpha1.DeliveryPublished {
			if err := c.Cancel(ctx, ref); err != nil && !errors.Is(err, letta.ErrNotFound) {
				return v1alpha1.Answer{}, e.r.Connect.LettaError(e.s.mem, err)
			}
		}
		err = c.DeleteConversation(ctx, ref)
		switch {
		case errors.Is(err, letta.ErrUnsupported):
			abandon(st)
			left = append(left, "Letta's conversation, which this back end cannot delete; the session does not go on in it")
		case err != nil && !errors.Is(err, letta.ErrNotFound):
			return v1alpha1.Answer{}, e.r.Connect.LettaError(e.s.mem, err)
		}
		crash.Point(crash.ControllerConversationDeleted)
		st.ConversationID, st.LastSeenMessageID, st.Delivery, st.Parked = "", "", nil, nil
		e.r.Turns.drop(e.s.key)
	case whole:
	case e.told:
		left = append(left, "Letta's conversation, which has read them; forget the whole session to have it deleted")
	}
	if e.told || whole && e.s.ses.Status.Usage.Turns > 0 {
		left = append(left, "what the memory's blocks learned from them, see undersong memory list")
	}
	if e.uncounted {
		left = append(left, "the lines behind a lost segment, which cannot be counted; leave toLine out")
	}
	if n := len(e.damaged); n > 0 {
		left = append(left, "what is damaged in the archive, "+strings.Join(e.damaged[:min(n, 4)], ", ")+"; have the bucket restored and ask again")
	}
	forks, err := e.forks(ctx)
	if err != nil {
		return v1alpha1.Answer{}, err
	}
	if len(forks) > 0 {
		left = append(left, "the copies in the sessions forked from this one: "+strings.Join(forks[:min(len(forks), 8)], ", "))
	}
	if len(left) == 0 {
		return v1alpha1.Answer{Result: v1alpha1.AnswerDone}, nil
	}
	return v1alpha1.Answer{Result: v1alpha1.AnswerPartial, Message: "erased; not reached: " + strings.Join(left, "; ")}, nil
}

// forks are the names of the Sessions that were forked from this one.
func (e *erasure) forks(ctx context.Context) ([]string, error) {
	var list v1alpha1.SessionList
	if err := e.r.Client.List(ctx, &list, client.InNamespace(e.s.ses.Namespace)); err != nil {
		return nil, fmt.Errorf("list Sessions: %w", err)
	}
	var names []string
	for i := range list.Items {
		if f := &list.Items[i].Spec; f.Owner == e.s.ses.Spec.Owner && f.ForkedFrom == e.s.ses.Spec.SessionID {
			names = append(names, list.Items[i].Name)
		}
	}
	slices.Sort(names)
	return names, nil
}
