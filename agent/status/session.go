package status

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/undersong-dev/undersong/agent/internal/kube"
	"github.com/undersong-dev/undersong/agent/spool"
	"github.com/undersong-dev/undersong/agent/statefile"
	"github.com/undersong-dev/undersong/agent/upload"
	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/internal/crash"
)

// resendAfter is how long to wait before a segment that is still asked for is
// sent once more. The cluster may not have looked at the last one yet.
const resendAfter = 10 * time.Minute

// sessions follows the owner's Sessions.
func (w *Watcher) sessions() target {
	return target{
		part:  partSessions,
		list:  func() kube.List { return &v1alpha1.SessionList{} },
		which: kube.Fields{"spec.owner": w.Owner},
		again: w.relist,
		all:   w.allSessions,
		one: func(_ context.Context, event watch.EventType, object runtime.Object) {
			live, ok := object.(*v1alpha1.Session)
			switch {
			case !ok:
			case event == watch.Deleted:
				w.deleted(live)
			default:
				w.session(live)
			}
		},
	}
}

// allSessions handles every Session of the list, and looks for known ones that
// are not in it.
func (w *Watcher) allSessions(ctx context.Context, objects []runtime.Object) error {
	listed := map[string]bool{}
	for _, object := range objects {
		if live, ok := object.(*v1alpha1.Session); ok {
			listed[live.Name] = true
			w.session(live)
		}
	}
	for _, session := range w.Spool.Sessions() {
		state := session.State()
		if state.UID == "" || state.Withdrawn || listed[state.Name] {
			continue
		}
		// The list may be older than the Session: only the live object tells.
		within, cancel := context.WithTimeout(ctx, listTimeout)
		live := &v1alpha1.Session{}
		err := w.Client.Get(within, kube.Key{Namespace: w.Namespace, Name: state.Name}, live)
		cancel()
		switch {
		case apierrors.IsNotFound(err):
			w.gone(session, &state, false)
		case err != nil:
			return fmt.Errorf("read session: %w", err)
		default:
			w.session(live)
		}
	}
	return nil
}

// deleted handles the deletion of a Session.
func (w *Watcher) deleted(live *v1alpha1.Session) {
	session, ok := w.Spool.Named(live.Name)
	if !ok {
		return
	}
	if state := session.State(); state.UID == string(live.UID) && !state.Withdrawn {
		state.Active = activity(live)
		w.gone(session, &state, forgotten(live))
	}
}

// gone handles that a Session is not there any more. One whose time was over is
// no person's wish: the session goes on, and nothing that waits is dropped.
func (w *Watcher) gone(session *spool.Session, state *spool.State, forgotten bool) {
	end := session.Withdraw
	if !forgotten && w.View.Expired(state, w.Clock.Now().Add(w.Skew())) {
		w.Log.Info("The Session's time was over", "Session", state.Name)
		end = session.Expire
	} else {
		w.Log.Info("The session was deleted in the cluster", "Session", state.Name)
	}
	w.local(state.SessionID, end())
	w.Changed()
}

// forgotten says whether the owner had the whole session forgotten.
func forgotten(live *v1alpha1.Session) bool {
	return slices.ContainsFunc(live.Spec.Requests, func(q v1alpha1.Request) bool {
		_, answered := upload.AnswerTo(live, q.ID)
		return answered && q.Kind == v1alpha1.RequestForget && q.Workstation == "" && q.FromLine == nil && q.ToLine == nil
	})
}

// activity returns when the cluster last got anything new of a session.
func activity(live *v1alpha1.Session) time.Time {
	if t := live.Status.LastActivityTime; t != nil {
		return t.UTC()
	}
	return live.CreationTimestamp.UTC()
}

// session handles what one Session says. Each part is tried, whatever became
// of the others.
func (w *Watcher) session(live *v1alpha1.Session) {
	session, ok := w.Spool.Named(live.Name)
	if !ok || live.Spec.Owner != w.Owner {
		return
	}
	state := session.State()
	if state.UID != "" && state.UID != string(live.UID) {
		if !upload.Rebuilt(live, &state, w.Workstation) {
			if !state.Withdrawn {
				w.gone(session, &state, false)
			}
			if !w.adopt(session, live) {
				return
			}
			state = session.State()
		}
	}
	if state.UID != "" && state.UID != string(live.UID) {
		w.Log.Info("The session was made again in the cluster", "Session", session.Name())
		w.local(state.SessionID, session.Update(func(state *spool.State) {
			state.UID, state.Withdrawn, state.Applied = string(live.UID), false, nil
		}))
		w.Changed()
		state = session.State()
	}
	if state.Expired && state.UID == "" { // the next of its name, of another workstation
		w.local(state.SessionID, session.Update(func(state *spool.State) { state.UID = string(live.UID) }))
	}
	if state.Withdrawn {
		// The cluster need not wait for what was dropped.
		w.local(state.SessionID, w.wanted(session, live))
		return
	}
	if upload.Behind(live, &state, w.Workstation) {
		w.Log.Info("The cluster was restored from an older backup", "Session", session.Name())
		w.local(state.SessionID, session.Update(func(state *spool.State) { state.Applied = nil }))
		w.Changed()
	}
	w.local(state.SessionID, errors.Join(
		w.verified(session, live),
		w.wanted(session, live),
		w.processed(session, live),
		w.whispers(session, live),
		w.stateFiles(session, live),
	))
}

// adopt lets a session that was withdrawn go on, where the Session was made again
// from the archive and that has a head of ours: nobody wanted it to be deleted, or
// somebody wants it back. What was dropped is read again from there.
func (w *Watcher) adopt(session *spool.Session, live *v1alpha1.Session) bool {
	i := slices.IndexFunc(live.Spec.Writers, func(entry v1alpha1.Writer) bool { return entry.Workstation == w.Workstation })
	if i < 0 || live.Spec.Writers[i].Segments == 0 {
		return false
	}
	entry := live.Spec.Writers[i].DeepCopy()
	state := session.State()
	made, err := session.Made(entry.Segments, entry.Chain)
	if err == nil && made && state.Withdrawn {
		w.Log.Info("The session was made again in the cluster and is read again from what that has", "Session", live.Name)
		err = session.Adopt(string(live.UID), entry)
		w.Changed()
	}
	w.local(state.SessionID, err)
	return err == nil && made && state.Withdrawn
}

// local tells of an error of the local disk.
func (w *Watcher) local(id string, err error) {
	message := "what the cluster says of the session cannot be written to the local disk"
	if errors.Is(err, statefile.ErrBase) {
		message = "the session's folder or LETTA_HOME is no absolute path: the state files are not written"
	}
	part := "files/" + id
	if err == nil {
		w.Trouble.Set(part, "")
		return
	}
	w.Log.Error("Cannot keep what the cluster says", "session", id, "error", err)
	w.Trouble.Set(part, message)
}

// sync returns what the cluster says of this workstation's part, or nil.
func (w *Watcher) sync(live *v1alpha1.Session) *v1alpha1.WriterSync {
	if live.Status.SyncState == nil {
		return nil
	}
	for i := range live.Status.SyncState.Writers {
		if s := &live.Status.SyncState.Writers[i]; s.Workstation == w.Workstation {
			return s
		}
	}
	return nil
}

// verified drops the segments that the archive has.
func (w *Watcher) verified(session *spool.Session, live *v1alpha1.Session) error {
	sync := w.sync(live)
	state := session.State()
	if sync == nil || sync.Origin == v1alpha1.OriginArchive || sync.Verified.Segments <= state.Verified.Segments {
		return nil
	}
	part := upload.PartSession + state.SessionID
	mark, ok := state.At(sync.Verified.Segments)
	if !ok || mark.Chain != sync.Verified.Chain {
		w.Log.Error("Verified is another chain than the spool's", "Session", live.Name, "segments", sync.Verified.Segments)
		w.Trouble.Set(part, upload.ErrDisagree.Error())
		return nil
	}
	w.Trouble.Set(part, "")
	crash.Point(crash.AgentVerifiedSeen)
	err := session.Drop(sync.Verified.Segments)
	w.Changed()
	w.Heard() // there is room for more
	return err
}

// processed notes how far the memory is.
func (w *Watcher) processed(session *spool.Session, live *v1alpha1.Session) error {
	now := w.Clock.Now().UTC().Truncate(time.Second)
	return session.Update(func(state *spool.State) {
		p := &state.Processed
		if live.Status.Lines > p.Lines || live.Status.Lag == 0 && p.Lag > 0 || p.At.IsZero() && live.Status.Lines > 0 {
			p.At = now
		}
		p.Lines, p.Lag = live.Status.Lines, live.Status.Lag
		state.Active = activity(live)
	})
}

// wanted lets segments be sent again, or says that they are gone.
func (w *Watcher) wanted(session *spool.Session, live *v1alpha1.Session) error {
	var wanted []int64
	if sync := w.sync(live); sync != nil {
		wanted = sync.Wanted
	}
	now := w.Clock.Now().UTC()
	changed := false
	err := session.Update(func(state *spool.State) {
		changed = resend(state, wanted, now)
	})
	if changed {
		w.Changed()
	}
	return err
}

// resend enters into a state what the cluster asks for again. It says whether
// there is something to send or to say.
func resend(state *spool.State, wanted []int64, now time.Time) bool {
	changed := false
	for i := range state.Segments {
		g := &state.Segments[i]
		switch {
		case !slices.Contains(wanted, g.Seq):
			g.ResentAt = nil
		case g.SlotState != spool.SlotUploaded:
			// On its way already.
		case g.ResentAt == nil, now.Sub(*g.ResentAt).Abs() >= resendAfter:
			g.Slot, g.SlotState, g.ResentAt = 0, spool.SlotNone, &now
			changed = true
		}
	}
	gone := slices.DeleteFunc(slices.Clone(wanted), func(seq int64) bool {
		return state.Segment(seq) != nil || seq > state.Head.Segments
	})
	if !slices.Equal(gone, state.Gone) {
		state.Gone = gone
		changed = changed || len(gone) > 0
	}
	return changed
}
