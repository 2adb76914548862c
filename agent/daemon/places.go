package daemon

import (
	"cmp"
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
	place := spool.Folder{Name: facts.Project.Name, Remote: facts.Project.Remote, Outside: facts.Project.Outside, Redact: facts.Redact}
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
		Project: consent.Project{Name: place.Name, Remote: place.Remote, Outside: place.Outside},
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

func same(a, b spool.Folder) bool {
	return a.Name == b.Name && a.Remote == b.Remote && a.Outside == b.Outside && a.Wish == b.Wish && slices.Equal(a.Redact, b.Redact)
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
