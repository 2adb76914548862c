package daemon

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/fsnotify/fsnotify"

	"github.com/undersong-dev/undersong/agent/internal/durable"
	"github.com/undersong-dev/undersong/agent/note"
)

// watchNotes tells of changes in the notes folder until ctx is done. Where the
// system cannot tell, the loop's poll finds notes all the same.
func watchNotes(ctx context.Context, home string, log *slog.Logger) (<-chan struct{}, error) {
	dir := note.Dir(home)
	if err := durable.MkdirAll(dir); err != nil {
		return nil, fmt.Errorf("make notes folder: %w", err)
	}
	told := make(chan struct{}, 1)
	watcher, err := fsnotify.NewWatcher()
	if err == nil {
		err = watcher.Add(dir)
	}
	if err != nil {
		log.Info("Changes of the notes folder are not told by the system; polling", "error", err)
		return told, nil
	}
	go func() {
		defer func() { _ = watcher.Close() }() // nothing to do about it
		for {
			select {
			case <-ctx.Done():
				return
			case event, open := <-watcher.Events:
				if !open {
					return
				}
				if event.Has(fsnotify.Create) || event.Has(fsnotify.Rename) {
					poke(told)
				}
			case err, open := <-watcher.Errors:
				if !open {
					return
				}
				log.Info("Changes of the notes folder may have been missed", "error", err)
				poke(told)
			}
		}
	}()
	return told, nil
}

// poke tells without waiting.
func poke(told chan<- struct{}) {
	select {
	case told <- struct{}{}:
	default:
	}
}
