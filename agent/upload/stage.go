package upload

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"

	"github.com/undersong-dev/undersong/agent/spool"
	"github.com/undersong-dev/undersong/internal/crash"
	"github.com/undersong-dev/undersong/internal/seal"
)

// Stage uploads what the spool holds and publishes it. Its fields are set once.
type Stage struct {
	Spool     *spool.Spool
	Grants    *Grants
	Desk      *Desk
	Publisher *Publisher
	HTTP      *http.Client
	Clock     clock.Clock
	Backoff   Backoff
	Trouble   Trouble
	Log       *slog.Logger

	// Done is called when something was uploaded or published.
	Done func()

	wake    chan struct{}
	retries retries
	misses  misses
}

// Init makes the stage ready. It must be called once, before Run and Wake.
func (s *Stage) Init() {
	s.wake = make(chan struct{}, 1)
	s.retries = retries{clock: s.Clock, backoff: s.Backoff, after: map[string]retry{}}
	s.misses = misses{behind: map[string]int{}, spent: map[string]time.Time{}}
}

// Wake lets Run look at the spool again. It never blocks.
func (s *Stage) Wake() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Run uploads and publishes until ctx is done. A step under way when that
// happens is either finished or repeated by the next process.
func (s *Stage) Run(ctx context.Context) {
	for {
		s.pass(ctx)
		timer, stop := s.timer()
		select {
		case <-ctx.Done():
			stop()
			return
		case <-s.wake:
		case <-timer:
		}
		stop()
	}
}

// timer fires when something that failed may be tried again.
func (s *Stage) timer() (<-chan time.Time, func()) {
	wait, waiting := s.retries.wait()
	if !waiting {
		return nil, func() {}
	}
	timer := s.Clock.NewTimer(wait)
	return timer.C(), func() { timer.Stop() }
}

// pass looks at every session once.
func (s *Stage) pass(ctx context.Context) {
	s.retries.begin()
	if s.Desk.Revoked() {
		return // the Workstation was deleted: nothing leaves any more
	}
	s.misses.begin()
	for _, session := range s.misses.order(s.Spool.Sessions()) {
		if ctx.Err() != nil {
			return
		}
		state := session.State()
		if state.Project == nil {
			continue
		}
		if s.retries.due(PartStore) && s.retries.due(PartUpload+state.SessionID) {
			s.upload(ctx, session)
		}
		s.publish(ctx, session)
	}
	s.alone()
}

// upload puts every segment that is in no slot yet.
func (s *Stage) upload(ctx context.Context, session *spool.Session) {
	state := session.State()
	for _, g := range state.Segments {
		if g.SlotState == spool.SlotUploaded || g.SlotState == spool.SlotGone {
			continue
		}
		if g.Import && g.SlotState == spool.SlotNone && s.Grants.Low() {
			s.Desk.Ask() // the last slots are for what is said now
			return
		}
		err := s.segment(ctx, session, g)
		if err == nil {
			s.retries.worked(PartUpload + state.SessionID)
			continue
		}
		if ctx.Err() == nil {
			s.uploadFailed(err, state.SessionID, g.Seq)
		}
		return
	}
	s.misses.worked(state.SessionID)
	s.retries.worked(PartUpload + state.SessionID)
	s.Trouble.Set(PartUpload+state.SessionID, "")
}

// segment puts one segment into a slot.
func (s *Stage) segment(ctx context.Context, session *spool.Session, g spool.Segment) error {
	data, err := session.Read(g.Seq)
	if errors.Is(err, fs.ErrNotExist) {
		s.Log.Error("A segment's file is lost", "session", session.Name(), "segment", g.Seq)
		return session.Update(func(state *spool.State) { setSlot(state, g.Seq, 0, spool.SlotGone) })
	}
	if err != nil {
		return err
	}
	slot, err := s.slot(session, g)
	if err != nil {
		return err
	}
	crash.Point(crash.AgentSlotTaken)
	err = Put(ctx, s.HTTP, slot, data)
	if errors.Is(err, ErrForbidden) {
		return errors.Join(err, session.Update(func(state *spool.State) { setSlot(state, g.Seq, 0, spool.SlotNone) }))
	}
	if err != nil {
		return err
	}
	crash.Point(crash.AgentUploaded)
	s.Grants.Worked()
	s.reached(session.State().SessionID)
	return session.Update(func(state *spool.State) { setSlot(state, g.Seq, slot.N, spool.SlotUploaded) })
}

// slot returns the slot that an earlier try recorded for the segment, or
// records the next unused one.
func (s *Stage) slot(session *spool.Session, g spool.Segment) (seal.Slot, error) {
	if g.SlotState == spool.SlotTaken {
		if slot, ok := s.Grants.Slot(g.Slot); ok {
			return slot, nil
		}
	}
	slot, err := s.Grants.Take()
	if s.Grants.Low() {
		s.Desk.Ask()
	}
	if err != nil {
		return seal.Slot{}, err
	}
	return slot, session.Update(func(state *spool.State) { setSlot(state, g.Seq, slot.N, spool.SlotTaken) })
}

func setSlot(state *spool.State, seq, slot int64, to spool.SlotState) {
	if g := state.Segment(seq); g != nil {
		g.Slot, g.SlotState = slot, to
		state.Sent = state.Sent || to == spool.SlotTaken
	}
}

// publish tells the cluster what is in the store, if it does not know.
func (s *Stage) publish(ctx context.Context, session *spool.Session) {
	state := session.State()
	key := PartSession + state.SessionID
	if !s.Publisher.Due(&state) || !s.retries.due(key) || !s.retries.due(PartAPI) {
		return
	}
	err := s.Publisher.Publish(ctx, session)
	switch {
	case ctx.Err() != nil:
		return
	case err == nil:
		s.retries.worked(key)
		s.retries.worked(PartAPI)
		s.Log.Info("Published session", "Session", state.Name)
		s.Done()
	case errors.Is(err, ErrWithdrawn):
		s.Log.Info("The session was deleted in the cluster", "Session", state.Name)
		err = nil // its state says so; nothing is wrong
	case own(err):
		s.retries.failed(key)
		s.Log.Error("Session cannot be published", "Session", state.Name, "error", err)
	default:
		s.retries.failed(PartAPI)
		s.Log.Error("API call does not work", "Session", state.Name, "error", Explain(err))
	}
	Report(s.Trouble, key, err)
}

// own says whether an error concerns this Session alone.
func own(err error) bool {
	for _, known := range []error{ErrDisagree, ErrNameTaken, ErrOtherSession, ErrTooManyWriters} {
		if errors.Is(err, known) {
			return true
		}
	}
	return apierrors.IsInvalid(err)
}
