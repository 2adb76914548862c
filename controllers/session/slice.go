package session

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/internal/outcome"
)

const defaultSlice = 256

// slice allows to look for one more segment of a whole archive, and is an error
// when this reconcile has looked for as many as it may: what goes through the archive of a long session would not end within a
// reconcile's time, and would begin anew for ever. The next reconcile goes on.
func (r *Reconciler) slice(s *scope) error {
	most := r.Slice
	if most == 0 {
		most = defaultSlice
	}
	if s.sliced < most {
		s.sliced++
		return nil
	}
	return outcome.Waitf(v1alpha1.ProgressingReason, 0, "the session's archive is read from its beginning")
}

// unfinished keeps what one reconcile of a session did not end and the next
// one goes on with. It is lost with the process, which costs time alone: each
// such work can be begun anew.
type unfinished[T any] struct {
	mu    sync.Mutex
	items map[types.NamespacedName]*T
}

// take returns what is unfinished of a session, nil if nothing is. Who takes
// it puts it back once the status that belongs to it is written.
func (u *unfinished[T]) take(key types.NamespacedName) *T {
	u.mu.Lock()
	defer u.mu.Unlock()
	item := u.items[key]
	delete(u.items, key)
	return item
}

func (u *unfinished[T]) put(key types.NamespacedName, item *T) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.items == nil {
		u.items = map[types.NamespacedName]*T{}
	}
	u.items[key] = item
}

func (u *unfinished[T]) drop(key types.NamespacedName) { u.take(key) }
