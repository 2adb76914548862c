package daemon

import (
	"cmp"
	"context"
	"path/filepath"
	"slices"
	"time"

	"github.com/undersong-dev/undersong/agent/consent"
	"github.com/undersong-dev/undersong/agent/note"
	"github.com/undersong-dev/undersong/agent/spool"
)

// maxPlaces bounds the folders that are remembered of a session.
const maxPlaces = 64

// look says what a folder says of itself now, whatever the team's rules are; false
// when it is gone.
func (r *rules) look(cwd string) (spool.Folder, bool) {
	facts, err := r.finder.Look(cwd)
	if err != nil {
		return spool.Folder{}, false
	}
	place := spool.Folder{Name: facts.Project.Name, Remote: facts.Project.Remote, Root: facts.Project.Root, Outside: facts.Project.Outside, Redact: facts.Redact}
	if facts.Wish != consent.ReasonIncluded {
		place.Wish = facts.Wish
	}
	return place, true
}

// facts are those of a folder now, else as they were when a note last spoke of it.
func (r *rules) facts(cwd string) (consent.Facts, error) {
	facts, err := r.finder.Look(cwd)
	if err == nil {
		return facts, nil
	}
	place, known := r.places[filepath.Clean(cwd)]
	switch {
	case !known && facts.Known():
		return facts, nil
	case !known:
		return consent.Facts{}, err
	}
	return consent.Facts{
		Project: consent.Project{Name: place.Name, Remote: place.Remote, Root: place.Root, Outside: place.Outside},
		Wish:    cmp.Or(place.Wish, consent.ReasonIncluded), Redact: place.Redact,
	}, nil
}

// visit remembers what the folder of a note says of itself: when its lines are
// read it may be gone.
func visit(state *spool.State, n note.Note, look func(cwd string) (spool.Folder, bool)) {
	if look == nil || !filepath.IsAbs(n.Cwd) {
		return
	}
	cwd := filepath.Clean(n.Cwd)
	place, there := look(cwd)
	before, known := state.Folders[cwd]
	place.At = before.At
	if !there || known && same(place, before) {
		return
	}
	place.At = n.At.UTC()
	if state.Folders == nil {
		state.Folders = map[string]spool.Folder{}
	}
	state.Folders[cwd] = place
	for len(state.Folders) > maxPlaces {
		delete(state.Folders, oldest(state.Folders))
	}
}

// promptLead is how long before its hook is called a prompt may say that it was
// written.
const promptLead = time.Second

// wish follows, from note to note, in which times the working tree that the person is
// in wishes not to be heard: what was said in it then is withheld also if the wish is
// taken back before it is read. Nobody saw when it began and when it ended, so the
// time between two notes that saw different things counts as of the wish, but not
// the prompt that ends it. A note from another tree says nothing of it, unless that
// one wishes the same: one tree is followed. It returns the time that a note ends.
func wish(state *spool.State, n note.Note, look func(cwd string) (spool.Folder, bool)) (over *consent.Silence) {
	if n.AgentID != "" { // a subagent may be elsewhere for a while
		return nil
	}
	at, before := n.At.UTC(), state.Noted
	state.Noted = at
	if look == nil {
		return nil
	}
	place, there := look(filepath.Clean(n.Cwd))
	open := state.OptOut
	moved := open != nil && open.Root != "" && open.Root != place.Root
	switch {
	case !there, place.Wish == "" && (open == nil || moved):
		return nil
	case place.Wish != "" && open != nil && !moved:
		state.OptOut = &spool.OptOut{Reason: open.Reason, Root: open.Root, Since: open.Since, Seen: at}
		return nil
	}
	state.OptOut = nil
	if place.Wish != "" {
		since := before.Add(time.Nanosecond) // what is of that note's moment is not of the wish's time
		if before.IsZero() || since.After(at) {
			since = at.Add(-promptLead)
		}
		state.OptOut = &spool.OptOut{Reason: place.Wish, Root: place.Root, Since: since, Seen: at}
	}
	if open != nil {
		until := at
		if n.Event == eventPrompt || n.Event == eventSessionStart {
			until = at.Add(-promptLead)
		}
		if until.Before(open.Seen) {
			until = open.Seen
		}
		return &consent.Silence{Reason: open.Reason, Session: state.SessionID, Root: open.Root, Since: open.Since, Until: until, Measured: true}
	}
	return nil
}

// heed keeps the time that a note ends in which the folder wished not to be heard,
// before the session's state forgets it. It says whether the state may.
func (l *loop) heed(ctx context.Context, state spool.State, n note.Note, look func(string) (spool.Folder, bool)) bool {
	over := wish(&state, n, look)
	if over == nil {
		return true
	}
	err := consent.UpdateSilences(ctx, l.home, l.clock.Now(), l.measure, func(s *consent.Silences) error {
		s.Add(*over)
		return nil
	})
	if err != nil {
		l.log.Error("The end of an opt-out cannot be kept", "error", err)
	}
	return err == nil
}

// glance looks at the folder of a note once, so that all that is made of it is of
// one moment.
func (l *loop) glance(n note.Note) func(string) (spool.Folder, bool) {
	if l.sight == nil || !filepath.IsAbs(n.Cwd) {
		return nil
	}
	place, there := l.sight(filepath.Clean(n.Cwd))
	return func(string) (spool.Folder, bool) { return place, there }
}

func same(a, b spool.Folder) bool {
	return a.Name == b.Name && a.Remote == b.Remote && a.Root == b.Root && a.Outside == b.Outside && a.Wish == b.Wish && slices.Equal(a.Redact, b.Redact)
}

func oldest(places map[string]spool.Folder) string {
	var first string
	var at time.Time
	for cwd, place := range places {
		if first == "" || place.At.Before(at) || place.At.Equal(at) && cwd < first {
			first, at = cwd, place.At
		}
	}
	return first
}
