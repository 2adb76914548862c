package daemon

import (
	"slices"
	"time"
)

// agenda says when which session is to be read. It belongs to one goroutine.
type agenda struct {
	at map[string][]time.Time // sorted
}

func newAgenda() *agenda { return &agenda{at: map[string][]time.Time{}} }

// maxTimes bounds the times of one session: those of a few notes.
const maxTimes = 16

// add lets a session be read at these times. Beyond the bound the latest are
// kept: a read at a later time finds all that an earlier one would.
func (a *agenda) add(id string, times ...time.Time) {
	list := append(a.at[id], times...)
	slices.SortFunc(list, time.Time.Compare)
	list = slices.CompactFunc(list, time.Time.Equal)
	if len(list) > maxTimes {
		list = list[len(list)-maxTimes:]
	}
	a.at[id] = list
}

// atMostBy makes sure that a session is read by that time, and adds nothing
// when it is anyway.
func (a *agenda) atMostBy(id string, by time.Time) {
	if list := a.at[id]; len(list) > 0 && !list[0].After(by) {
		return
	}
	a.add(id, by)
}

// due takes out the sessions whose time has come, sorted by time.
func (a *agenda) due(now time.Time) []string {
	type item struct {
		id string
		at time.Time
	}
	var items []item
	for id, list := range a.at {
		if list[0].After(now) {
			continue
		}
		items = append(items, item{id, list[0]})
		rest := slices.DeleteFunc(list, func(t time.Time) bool { return !t.After(now) })
		if len(rest) == 0 {
			delete(a.at, id)
		} else {
			a.at[id] = rest
		}
	}
	slices.SortFunc(items, func(x, y item) int { return x.at.Compare(y.at) })
	ids := make([]string, len(items))
	for i, item := range items {
		ids[i] = item.id
	}
	return ids
}

// pending says whether a session is to be read again.
func (a *agenda) pending(id string) bool { return len(a.at[id]) > 0 }

// next returns the earliest time, and false when nothing is planned.
func (a *agenda) next() (time.Time, bool) {
	var first time.Time
	for _, list := range a.at {
		if first.IsZero() || list[0].Before(first) {
			first = list[0]
		}
	}
	return first, !first.IsZero()
}
