package daemon

import (
	"slices"

	"github.com/undersong-dev/undersong/agent/consent"
	"github.com/undersong-dev/undersong/agent/note"
	"github.com/undersong-dev/undersong/agent/spool"
	"github.com/undersong-dev/undersong/agent/statefile"
	"github.com/undersong-dev/undersong/agent/whisper"
)

// place says whose memory is shown in a folder; false where it is nobody's: the
// team does not name the project. A repository that is not heard may be shown
// what the memory knows all the same, unless it wishes not to.
func (r *rules) place(cwd string) (whisper.Place, bool) {
	include, exclude, known := r.view.Capture()
	if !known {
		return whisper.Place{}, false
	}
	d := r.finder.Decide(cwd, consent.Rules{
		Include: include, Exclude: slices.Concat(exclude, r.settings.config.Exclude), Outside: r.view.Hears().OutsideGit,
	})
	if !d.Allowed && d.Reason != consent.ReasonOptOut {
		return whisper.Place{}, false
	}
	wish := note.Recall(r.finder.Recall(d.Project.Root))
	return whisper.Place{Cwd: cwd, Project: r.view.Key(d.Project.Remote), Recall: wish}, true
}

// settleIn tells the hook whose memory is shown in the folder that a note speaks
// of, and lets that memory be followed.
func (l *loop) settleIn(n note.Note) {
	if n.Cwd == "" || n.AgentID != "" {
		return
	}
	if n.Event == eventSessionStart || n.Event == eventPrompt || l.cwds[n.Session] != n.Cwd {
		l.cwds[n.Session] = n.Cwd
		l.settlePlace(n.Cwd)
	}
}

// resettle looks at every folder again: what the team shares has changed.
func (l *loop) resettle() {
	for id, cwd := range l.cwds {
		if _, active := l.active[id]; active {
			l.settlePlace(cwd)
		} else {
			delete(l.cwds, id)
		}
	}
}

func (l *loop) settlePlace(cwd string) {
	if l.place == nil {
		return
	}
	place, ok := l.place(cwd)
	if !ok {
		// Nobody's, not any more, or not known yet.
		place = whisper.Place{Cwd: cwd, Recall: note.RecallOff}
		if _, had := whisper.FindPlace(l.home, cwd); !had {
			return
		}
	} else if place.Recall != note.RecallOff {
		l.projects.Use(place.Project, l.clock.Now())
	}
	if err := whisper.PutPlace(l.home, place); err != nil {
		l.log.Error("A folder's memory cannot be recorded", "error", err)
	}
}

// arrived follows when the transcript shows that a whisper was given. In mode
// full, the state file says which blocks the session knows.
func (l *loop) arrived(held *spool.State, id string) error {
	if l.view.Mode() == note.RecallFull {
		unheard, err := whisper.Unheard(l.home, held.SessionID)
		if err != nil {
			return err
		}
		for _, w := range unheard {
			if w.ID == id && w.Label != "" {
				l.knows(held, w)
			}
		}
	}
	return whisper.Delivered(l.home, held.SessionID, id)
}

// knows enters a block into the state file. Where that cannot be written, the
// block is shown once more.
func (l *loop) knows(held *spool.State, w whisper.Whisper) {
	dir, err := statefile.Dir(held.Cwd, held.LettaHome, held.SessionID, held.ProjectDir)
	if err == nil {
		err = statefile.WriteBlocks(dir, held.SessionID, map[string]string{w.Label: w.Value})
	}
	if err != nil {
		l.log.Info("The state file does not say which blocks were shown", "session", held.SessionID, "error", err)
	}
}
