package status

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/undersong-dev/undersong/agent/internal/kube"
	"github.com/undersong-dev/undersong/agent/upload"
)

const (
	// listTimeout bounds one list.
	listTimeout = 30 * time.Second
	// watchFor is how long the server keeps one watch. It is short enough that a
	// connection which died in a sleeping laptop is noticed.
	watchFor = 300 * time.Second
	// shortest is how long a watch lasts that did not fail.
	shortest = time.Second
)

// target is one set of objects to follow.
type target struct {
	list  func() kube.List
	which kube.Fields
	part  string // that trouble is told of

	// all takes the whole set, one a change of one object.
	all func(ctx context.Context, objects []runtime.Object) error
	one func(ctx context.Context, event watch.EventType, object runtime.Object)

	// again asks for the whole set to be read again.
	again <-chan struct{}
}

// follow reads the set, then its changes, for ever. After every failure it
// reads the whole set again.
func (w *Watcher) follow(ctx context.Context, t target) {
	failures := 0
	for ctx.Err() == nil {
		listed, err := w.round(ctx, t)
		if ctx.Err() != nil {
			return
		}
		if listed {
			failures = 0
		}
		if err == nil {
			continue
		}
		failures++
		w.Log.Error("Watch does not work", "part", t.part, "error", upload.Explain(err))
		upload.Report(w.Trouble, t.part, err)
		timer := w.Clock.NewTimer(w.Backoff.After(failures))
		select {
		case <-ctx.Done():
		case <-timer.C():
		}
		timer.Stop()
	}
}

// round lists once and watches until that ends. It says whether the list
// worked.
func (w *Watcher) round(ctx context.Context, t target) (bool, error) {
	version, err := w.listAll(ctx, t)
	if err != nil {
		return false, err
	}
	upload.Report(w.Trouble, t.part, nil)
	for {
		began := w.Clock.Now()
		next, err := w.watch(ctx, t, version)
		switch {
		case apierrors.IsResourceExpired(err), apierrors.IsGone(err):
			return true, nil
		case err != nil:
			return true, err
		case next == "": // asked to list again
			return true, nil
		case w.Clock.Since(began) < shortest:
			return false, fmt.Errorf("watch: it ends at once")
		}
		version = next
	}
}

// listAll reads the whole set and returns its version.
func (w *Watcher) listAll(ctx context.Context, t target) (string, error) {
	within, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	list := t.list()
	if err := w.Client.List(within, list, w.Namespace, t.which); err != nil {
		return "", fmt.Errorf("list: %w", err)
	}
	objects, err := apimeta.ExtractList(list)
	if err != nil {
		return "", fmt.Errorf("list: %w", err)
	}
	if err := t.all(ctx, objects); err != nil {
		return "", err
	}
	return list.GetResourceVersion(), nil
}

// watch follows changes from a version on. It returns the version reached when
// the server ends the watch, and "" when a list is asked for.
func (w *Watcher) watch(ctx context.Context, t target, version string) (string, error) {
	// The server ends the watch; the bound is for a connection that is dead.
	within, cancel := context.WithTimeout(ctx, watchFor+listTimeout)
	defer cancel()
	changes, err := w.Client.Watch(within, t.list(), w.Namespace, t.which, kube.Since{Version: version, For: watchFor})
	if err != nil {
		return "", fmt.Errorf("watch: %w", err)
	}
	defer changes.Stop()
	for {
		select {
		case <-ctx.Done():
			return version, ctx.Err()
		case <-t.again:
			return "", nil
		case event, open := <-changes.ResultChan():
			if !open {
				return version, nil
			}
			if event.Type == watch.Error {
				return "", fmt.Errorf("watch: %w", apierrors.FromObject(event.Object))
			}
			if object, err := apimeta.Accessor(event.Object); err == nil {
				version = object.GetResourceVersion()
			}
			if event.Type != watch.Bookmark {
				t.one(ctx, event.Type, event.Object)
			}
		}
	}
}
