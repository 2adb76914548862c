package status

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/undersong-dev/undersong/agent/spool"
	"github.com/undersong-dev/undersong/agent/statefile"
	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/internal/crash"
)

// stateFiles enters what the cluster has processed into the files that other
// plugins read. How far this workstation is, its own entry says: another one
// has another file.
func (w *Watcher) stateFiles(session *spool.Session, live *v1alpha1.Session) error {
	sync := w.sync(live)
	if sync == nil {
		return nil
	}
	state := session.State()
	if state.Transcript == "" {
		return nil // nobody opened it since init: its lines were brought in
	}
	dir, err := statefile.Dir(state.Cwd, state.LettaHome, state.SessionID, state.ProjectDir)
	if err != nil {
		return fmt.Errorf("find state files: %w", err)
	}
	wrote, plugin := state.WroteIndex, state.PluginIndex
	if had, err := statefile.Read(dir, state.SessionID); err == nil && had.LastProcessedIndex >= 0 {
		switch at := had.LastProcessedIndex; {
		case state.Wrote(at):
			wrote = &at // a run that was cut off may have written it
		case wrote == nil && plugin == nil:
			plugin = &at
		}
	}
	index := sync.LastProcessedIndex
	if wrote == nil || *wrote != index {
		// First, or nobody would know whose the index in the file is.
		err := session.Update(func(state *spool.State) {
			state.WroteIndex, state.PluginIndex, state.WritingIndex = wrote, plugin, &index
		})
		if err != nil {
			return err
		}
	}
	err = statefile.Write(dir, statefile.State{
		SessionID:          state.SessionID,
		ConversationID:     live.Status.SyncState.ConversationID,
		AgentID:            live.Status.SyncState.AgentID,
		LastProcessedIndex: index,
		Wrote:              wrote,
		LastSeenMessageID:  live.Status.SyncState.LastSeenMessageID,
		StartedAt:          state.FirstNote,
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the folder is gone, and with it whoever would read them
	}
	if err != nil {
		return fmt.Errorf("write state files: %w", err)
	}
	crash.Point(crash.AgentStateWritten)
	return session.Update(func(state *spool.State) {
		state.WroteIndex, state.PluginIndex, state.WritingIndex = &index, plugin, nil
	})
}
