package spool

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/undersong-dev/undersong/agent/internal/durable"
	"github.com/undersong-dev/undersong/agent/read"
	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/internal/segment"
)

// ErrUnknown is returned for a session that this workstation never heard of.
var ErrUnknown = errors.New("this workstation knows no such session")

// Reset lets a session start over: everything is read again, but for what was
// withheld, and the chain goes on from the entry that the cluster has of this
// workstation, nil if it has none. uid is the Session's. Segments that wait, and of which the cluster
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
	next, err := startOver(o.Dir, id, &old)
	if err != nil {
		return fmt.Errorf("reset session: %w", err)
	}
	next.Name, next.UID, next.Expired = name, uid, uid == "" && (old.UID != "" || old.Expired)
	next.Head, next.Verified, next.Applied = mark, mark, entry
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

// Made says whether the session's chain once had this head after so many
// segments, also when nothing of them is left here but receipts.
func (s *Session) Made(segments int64, chain string) (bool, error) {
	receipts, err := Receipts(s.spool.options.Dir, s.State().SessionID)
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(receipts, func(r Receipt) bool { return r.Seq == segments && r.Chain == chain }), nil
}

// Adopt lets a withdrawn session go on from the entry of a Session that was made
// again from the archive: what waited was dropped, so all but what was withheld is
// read again.
func (s *Session) Adopt(uid string, entry *v1alpha1.Writer) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	next, err := startOver(s.spool.options.Dir, s.state.SessionID, &s.state)
	if err != nil {
		return fmt.Errorf("adopt session: %w", err)
	}
	mark := Mark{Segments: entry.Segments, Lines: entry.Lines, Bytes: entry.Bytes, Chain: entry.Chain}
	next.Name, next.UID, next.Project, next.Branch = s.state.Name, uid, s.state.Project, s.state.Branch
	next.Processed, next.Active = s.state.Processed, s.state.Active
	next.Head, next.Verified, next.Applied = mark, mark, entry
	return s.saveLocked(next)
}

// startOver returns the state of a session of which nothing was read, with what
// is known of it: where its files are, whose words they have, and what of them was
// withheld. The chain is not set.
func startOver(dir, id string, old *State) (State, error) {
	next := State{
		Version: stateVersion, SessionID: id,
		Transcript: old.Transcript, Cwd: old.Cwd, ProjectDir: old.ProjectDir, LettaHome: old.LettaHome, AgentFiles: old.AgentFiles, Folders: old.Folders,
		Noted: old.Noted, OptOut: old.OptOut,
		WroteIndex: old.WroteIndex, WritingIndex: old.WritingIndex, PluginIndex: old.PluginIndex,
		FirstNote: old.FirstNote, Noticed: old.Noticed, Ending: old.Ending || old.Ended,
		ForkedAt: old.ForkedAt, ForkedFrom: old.ForkedFrom, Entrypoint: old.Entrypoint, Nested: old.Nested,
		Cursors: map[string]read.Cursor{},
	}
	kept, err := withheld(dir, id, true)
	if err != nil {
		return State{}, err
	}
	for stream, one := range old.Imports {
		if next.Imports == nil {
			next.Imports = map[string]Import{}
		}
		next.Imports[stream] = Import{Cursor: read.StartOver(one.Cursor, kept[stream])}
	}
	if kept, err = withheld(dir, id, false); err != nil {
		return State{}, err
	}
	for stream, cursor := range old.Cursors {
		next.Cursors[stream] = read.StartOver(cursor, kept[stream])
		delete(kept, stream)
	}
	// Of a state that could not be read the receipts are left.
	for stream, ranges := range kept {
		last := int64(0)
		for _, k := range ranges {
			last = max(last, k.Generation)
		}
		next.Cursors[stream] = read.StartOver(read.Cursor{Generation: last}, ranges)
	}
	return next, nil
}

// withheld returns, by stream, the ranges that receipts name, of what was brought
// in of before init or of what was said since: the one withholds what the other
// is about.
func withheld(dir, id string, imported bool) (map[string][]read.Kept, error) {
	receipts, err := Receipts(dir, id)
	if err != nil {
		return nil, err
	}
	return keptOf(receipts, imported), nil
}

func keptOf(receipts []Receipt, imported bool) map[string][]read.Kept {
	kept := map[string][]read.Kept{}
	for i := range receipts {
		if receipts[i].Import != imported {
			continue
		}
		for _, w := range receipts[i].Withheld {
			kept[receipts[i].Stream] = append(kept[receipts[i].Stream], read.Kept{Withheld: w, Generation: receipts[i].Generation})
		}
	}
	return kept
}

// Withheld returns what segments of a stream name as withheld. The cursor knows
// what was withheld since.
func (s *Session) Withheld(stream string) ([]read.Kept, error) {
	kept, err := withheld(s.spool.options.Dir, s.State().SessionID, false)
	return kept[stream], err
}
