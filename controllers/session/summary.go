package session

import (
	"time"

	"github.com/undersong-dev/undersong/api/v1alpha1"
)

// summarize computes the counters and the state from what the phases left in
// status. It asks nobody.
func (r *Reconciler) summarize(s *scope) {
	st := &s.ses.Status
	if st.SyncState == nil {
		return
	}
	st.Lines = 0
	for _, w := range s.ses.Spec.Writers {
		// One of an earlier Session of this name that is silent here has
		// nothing in spec either.
		if sync := syncOf(s.ses, w.Workstation); sync != nil {
			st.Lines += sync.Lines
		}
	}
	// What was lost stays lost while more is on its way.
	st.LostLines = max(st.LostLines, lost(s.ses))
	st.Lag = max(s.ses.Spec.Lines-st.Lines-st.LostLines, 0)
	st.State = r.state(s.ses)
	if s.mem != nil && s.mem.Spec.Capture.Titles == v1alpha1.TitlesHide {
		st.Title, st.Tag, st.PullRequest = "", "", ""
	}
}

// lost counts the lines of writers that are caught up and still short of what
// their workstation said: those lines were in segments that it could not send
// again.
func lost(ses *v1alpha1.Session) int64 {
	var n int64
	for _, w := range ses.Spec.Writers {
		sync := syncOf(ses, w.Workstation)
		if sync != nil && sync.Delivered.Segments == w.Segments {
			n += max(w.Lines-sync.Lines, 0)
		}
	}
	return n
}

// state says whether the session is still going on.
func (r *Reconciler) state(ses *v1alpha1.Session) v1alpha1.SessionState {
	ended := len(ses.Spec.Writers) > 0
	for _, w := range ses.Spec.Writers {
		ended = ended && w.State == v1alpha1.WriterEnded
	}
	switch {
	case ended:
		return v1alpha1.SessionEnded
	case r.Clock.Since(lastActivity(ses)) >= idleAfter:
		return v1alpha1.SessionIdle
	default:
		return v1alpha1.SessionActive
	}
}

// untilIdle is when an Active session becomes Idle; zero means never.
func (r *Reconciler) untilIdle(ses *v1alpha1.Session) time.Duration {
	if ses.Status.State != v1alpha1.SessionActive {
		return 0
	}
	return max(idleAfter-r.Clock.Since(lastActivity(ses)), time.Second)
}

func lastActivity(ses *v1alpha1.Session) time.Time {
	if t := ses.Status.LastActivityTime; t != nil {
		return t.Time
	}
	return ses.CreationTimestamp.Time
}

// backlog reports whether verified segments wait to be delivered.
func backlog(ses *v1alpha1.Session) bool {
	if ses.Status.SyncState == nil {
		return false
	}
	for _, w := range ses.Status.SyncState.Writers {
		if w.Delivered.Segments < deliverable(&w) {
			return true
		}
	}
	return false
}

// deliverable is the number of a writer's segments that may be delivered: those
// that are verified, up to the first that is held.
func deliverable(w *v1alpha1.WriterSync) int64 {
	if len(w.Held) > 0 {
		return min(w.Verified.Segments, w.Held[0].Segment-1)
	}
	return w.Verified.Segments
}

// writerOf returns what spec says of a writer, nil if nothing.
func writerOf(ses *v1alpha1.Session, workstation string) *v1alpha1.Writer {
	for i := range ses.Spec.Writers {
		if w := &ses.Spec.Writers[i]; w.Workstation == workstation {
			return w
		}
	}
	return nil
}

// syncOf returns what the status knows of a writer, nil if nothing.
func syncOf(ses *v1alpha1.Session, workstation string) *v1alpha1.WriterSync {
	if ses.Status.SyncState == nil {
		return nil
	}
	for i := range ses.Status.SyncState.Writers {
		if w := &ses.Status.SyncState.Writers[i]; w.Workstation == workstation {
			return w
		}
	}
	return nil
}
