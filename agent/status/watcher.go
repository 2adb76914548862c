package status

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"

	"github.com/undersong-dev/undersong/agent/internal/kube"
	"github.com/undersong-dev/undersong/agent/spool"
	"github.com/undersong-dev/undersong/agent/upload"
	"github.com/undersong-dev/undersong/agent/whisper"
	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/internal/seal"
)

// Parts that trouble is told of.
const (
	partSessions    = "api/sessions"
	partMemory      = "memory"
	partWorkstation = "api/workstation"
)

// Watcher follows the cluster. Its exported fields are set once.
type Watcher struct {
	Client      *kube.Client
	Home        string // the state directory
	Namespace   string
	Owner       string
	Memory      string
	Workstation string
	Identity    seal.Identity

	Spool  *spool.Spool
	Grants *upload.Grants
	Desk   *upload.Desk
	View   *View

	// Projects are those whose blocks are followed.
	Projects *Projects

	Clock   clock.Clock
	Backoff upload.Backoff
	Trouble upload.Trouble
	Log     *slog.Logger

	// Skew is how far the cluster's clock is ahead of this computer's.
	Skew func() time.Duration

	// Changed is called when something may now be uploaded or reported;
	// Heard when what may be heard changed.
	Changed func()
	Heard   func()

	memories memories

	relist  chan struct{}
	handled map[string]map[string]bool // whispers, by session and id; of the goroutine of Sessions
}

// Run follows all four kinds until ctx is done.
func (w *Watcher) Run(ctx context.Context) {
	w.relist = make(chan struct{}, 1)
	w.handled = map[string]map[string]bool{}
	var group sync.WaitGroup
	for _, t := range []target{w.sessions(), w.workstation(), w.memory()} {
		group.Go(func() { w.follow(ctx, t) })
	}
	group.Go(func() { w.followBlocks(ctx) })
	group.Wait()
}

// workstation follows the own Workstation.
func (w *Watcher) workstation() target {
	see := func(object *v1alpha1.Workstation) {
		w.Desk.Seen(object)
		if object == nil || w.Desk.Revoked() {
			return
		}
		taken, err := w.Grants.Offer(object.Status.Grant)
		switch {
		case err != nil:
			w.Log.Error("Grant cannot be used", "error", err)
			w.Trouble.Set(upload.PartGrant, explainGrant(err))
			w.Desk.Ask() // for a better one, in a while
		case taken:
			w.Log.Info("Got a grant", "request", object.Status.Grant.Request, "toSlot", object.Status.Grant.ToSlot)
			w.Trouble.Set(upload.PartGrant, "")
		}
		if taken {
			w.Changed()
		}
	}
	return target{
		part:  partWorkstation,
		list:  func() kube.List { return &v1alpha1.WorkstationList{} },
		which: named(w.Workstation),
		all: func(_ context.Context, objects []runtime.Object) error {
			see(first[*v1alpha1.Workstation](objects))
			return nil
		},
		one: func(_ context.Context, event watch.EventType, object runtime.Object) {
			see(present[*v1alpha1.Workstation](event, object))
		},
	}
}

// memory follows the TeamMemory.
func (w *Watcher) memory() target {
	see := func(object *v1alpha1.TeamMemory) {
		heard, shown, err := w.View.See(object)
		switch {
		case err != nil:
			w.Log.Error("Memory's policy cannot be recorded", "error", err)
		case object == nil:
			w.Trouble.Set(partMemory, noMemory(w.Namespace, w.Memory))
			if err := whisper.ForgetMemories(w.Home); err != nil {
				w.Log.Error("The memory's blocks cannot be forgotten", "error", err)
			}
		default:
			w.Trouble.Set(partMemory, "")
		}
		if heard {
			w.Heard()
		}
		if shown {
			w.again() // whispers that were held back
		}
	}
	return target{
		part:  "api/memory",
		list:  func() kube.List { return &v1alpha1.TeamMemoryList{} },
		which: named(w.Memory),
		all: func(_ context.Context, objects []runtime.Object) error {
			see(first[*v1alpha1.TeamMemory](objects))
			return nil
		},
		one: func(_ context.Context, event watch.EventType, object runtime.Object) {
			see(present[*v1alpha1.TeamMemory](event, object))
		},
	}
}

// again lets the Sessions be read again as a whole.
func (w *Watcher) again() {
	select {
	case w.relist <- struct{}{}:
	default:
	}
}

// named selects one object.
func named(name string) kube.Fields { return kube.Fields{"metadata.name": name} }

// first returns the only object of a list, or nil.
func first[T runtime.Object](objects []runtime.Object) (none T) {
	for _, object := range objects {
		if typed, ok := object.(T); ok {
			return typed
		}
	}
	return none
}

// present returns the object of an event, or nil when it was deleted.
func present[T runtime.Object](event watch.EventType, object runtime.Object) (none T) {
	typed, ok := object.(T)
	if !ok || event == watch.Deleted {
		return none
	}
	return typed
}
