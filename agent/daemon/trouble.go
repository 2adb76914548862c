package daemon

import (
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// Trouble is one thing that is wrong.
type Trouble struct {
	// Part is what has it: login, api, memory, workstation, store, grant, disk,
	// clock, notes, or session/ and an id.
	Part    string    `json:"part"`
	Message string    `json:"message"`
	Since   time.Time `json:"since"`
}

// troubles is the list of what is wrong now. Its methods may be called from
// several goroutines.
type troubles struct {
	clock   clock.PassiveClock
	changed func() // called without the lock

	mu   sync.Mutex
	list map[string]Trouble
}

func newTroubles(c clock.PassiveClock, changed func()) *troubles {
	return &troubles{clock: c, changed: changed, list: map[string]Trouble{}}
}

// Set notes a trouble; an empty message ends it.
func (t *troubles) Set(part, message string) {
	t.mu.Lock()
	now, had := t.list[part]
	switch {
	case message == "" && !had, had && now.Message == message:
		t.mu.Unlock()
		return
	case message == "":
		delete(t.list, part)
	default:
		t.list[part] = Trouble{Part: part, Message: message, Since: t.clock.Now().UTC()}
	}
	t.mu.Unlock()
	t.changed()
}

// all returns what is wrong, that which concerns everything first.
func (t *troubles) all() []Trouble {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := make([]Trouble, 0, len(t.list))
	for _, trouble := range t.list {
		list = append(list, trouble)
	}
	slices.SortFunc(list, func(a, b Trouble) int {
		if x, y := strings.Contains(a.Part, "/"), strings.Contains(b.Part, "/"); x != y {
			if x {
				return 1
			}
			return -1
		}
		return strings.Compare(a.Part, b.Part)
	})
	return list
}

// last returns the newest message, "" when all is well.
func (t *troubles) last() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var newest Trouble
	for _, trouble := range t.list {
		if newest.Message == "" || trouble.Since.After(newest.Since) ||
			trouble.Since.Equal(newest.Since) && trouble.Part < newest.Part {
			newest = trouble
		}
	}
	return newest.Message
}
