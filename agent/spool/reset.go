package spool

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/undersong-dev/undersong/agent/internal/durable"
	"github.com/undersong-dev/undersong/agent/read"
	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/internal/segment"
)

// ErrUnknown is returned for a session that this workstation never heard of.
var ErrUnknown = errors.New("this workstation knows no such session")

// Reset lets a session start over: everything is read again, and the chain
// goes on from the entry that the cluster has of this workstation, nil if it
// has none. uid is the Session's. Segments that wait, and of which the cluster
// does not know, are dropped. Nobody else may have the spool open.
func Reset(o Options, id, uid string, entry *v1alpha1.Writer) error {
	id = strings.ToLower(id)
	folder, err := durable.SafeName(id)
	if err != nil || !sessionID.MatchString(id) {
		return ErrSessionID
	}
	dir := filepath.Join(o.Dir, folder)
	data, err := durable.ReadFile(filepath.Join(dir, stateFile), maxState)
	if err != nil {
		return fmt.Errorf("reset session: %w", ErrUnknown)
	}
	// Of a damaged state, whatever can still be read: where the transcript is,
	// above all.
	var old State
	_ = json.Unmarshal(data, &old)

	name := v1alpha1.SessionName(id, o.Owner)
	mark := Mark{Chain: segment.Start(name, o.Workstation).String()}
	if entry != nil {
		mark = Mark{Segments: entry.Segments, Lines: entry.Lines, Bytes: entry.Bytes, Chain: entry.Chain}
	}
	next := State{
		Version: stateVersion, SessionID: id, Name: name, UID: uid, Expired: uid == "" && (old.UID != "" || old.Expired),
		Transcript: old.Transcript, Cwd: old.Cwd, ProjectDir: old.ProjectDir, LettaHome: old.LettaHome, AgentFiles: old.AgentFiles,
		FirstNote: old.FirstNote, Noticed: old.Noticed, Ending: old.Ending || old.Ended,
		Cursors: map[string]read.Cursor{}, Head: mark, Verified: mark, Applied: entry,
	}
	text, err := json.MarshalIndent(next, "", "  ")
	if err != nil {
		return fmt.Errorf("reset session: %w", err)
	}
	if err := o.FS.WriteFile(filepath.Join(dir, stateFile), text); err != nil {
		return fmt.Errorf("reset session: %w", err)
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("reset session: %w", err)
	}
	for _, file := range files {
		if _, ok := segmentSeq(file.Name()); !ok {
			continue
		}
		if err := o.FS.Remove(filepath.Join(dir, file.Name())); err != nil {
			return fmt.Errorf("reset session: %w", err)
		}
	}
	return nil
}
