package daemon

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/undersong-dev/undersong/agent/note"
	"github.com/undersong-dev/undersong/agent/read"
	"github.com/undersong-dev/undersong/agent/spool"
	"github.com/undersong-dev/undersong/internal/crash"
)

// Hook events that the loop tells apart. Every other one means: read now.
const (
	eventSessionStart = "SessionStart"
	eventPrompt       = "UserPromptSubmit"
	eventTool         = "PreToolUse"
	eventStop         = "Stop"
	eventSubagentStop = "SubagentStop"
	eventSessionEnd   = "SessionEnd"
)

// sourceFork is the source of a session that begins as a copy of another.
const sourceFork = "fork"

// Timing says when the loop reads.
type Timing struct {
	// Late are the delays after a hook that may run before the last answer is
	// in the file: seen up to 120 ms late, and what is written after the hook
	// follows within a second.
	Late []time.Duration
	// Tool is the delay after a tool call, so that a burst of them is one
	// segment.
	Tool time.Duration
	// Missing are the delays after a note whose transcript is not there yet.
	Missing []time.Duration
	// Poll is how often notes are looked for, should the system not tell.
	Poll time.Duration
	// Blocked is when to look again at a session that cannot be read for a
	// reason that nobody will tell the end of, as a full disk.
	Blocked time.Duration
	// GiveUp is how long a session is remembered whose transcript never came.
	GiveUp time.Duration
}

// DefaultTiming is what a daemon uses.
var DefaultTiming = Timing{
	Late:    []time.Duration{300 * time.Millisecond, 2 * time.Second},
	Tool:    5 * time.Second,
	Missing: []time.Duration{300 * time.Millisecond, time.Second, 5 * time.Second},
	Poll:    30 * time.Second,
	Blocked: 10 * time.Second,
	GiveUp:  24 * time.Hour,
}

// maxAgentFiles bounds the subagent files that notes may name; others are
// found beside the main file.
const maxAgentFiles = 256

// takeNotes takes every waiting note in hand.
func (l *loop) takeNotes(ctx context.Context) {
	if _, err := l.look(); err != nil {
		return // what a note speaks of cannot be judged; it stays
	}
	defer l.provide()
	for {
		files, err := note.List(l.home)
		if err != nil {
			l.log.Error("Notes cannot be listed", "error", err)
			l.trouble.Set(partNotes, "the notes of the hook cannot be read from the local disk")
			return
		}
		if len(files) == 0 {
			l.trouble.Set(partNotes, "")
			return
		}
		l.heard = l.clock.Now()
		for _, file := range files {
			if !l.takeNote(ctx, file) {
				return // the disk: the note stays, and is taken at the next poll
			}
		}
	}
}

// provide leaves the next hooks files to write to. Without, they make their own.
func (l *loop) provide() {
	if err := note.Provide(l.home); err != nil {
		l.log.Error("No spare files for the hook", "error", err)
	}
}

// takeNote records what a note says and plans what follows from it. Then the
// note is not needed any more: state.json knows the transcript, and at every
// start a transcript that differs from its cursor is read.
func (l *loop) takeNote(ctx context.Context, file note.File) bool {
	crash.Point(crash.AgentNoteRead)
	n := file.Note
	session, err := l.spool.Ensure(n.Session, l.clock.Now())
	switch {
	case errors.Is(err, spool.ErrSessionID), errors.Is(err, spool.ErrDamaged):
		l.trouble.Set(partSession+n.Session, err.Error())
	case err == nil:
		look := l.glance(n)
		heeded := l.heed(ctx, session.State(), n, look)
		if err = session.Update(func(state *spool.State) {
			learn(state, n)
			visit(state, n, look)
			if heeded {
				wish(state, n, look)
			}
		}); err == nil {
			l.settleIn(n)
			l.plan(session.State(), n)
			err = l.greet(ctx, session, n)
		}
	}
	if err != nil && !errors.Is(err, spool.ErrSessionID) && !errors.Is(err, spool.ErrDamaged) {
		l.diskFailed(err)
		return false
	}
	if err := note.Remove(l.home, file.Name); err != nil {
		l.log.Error("A note cannot be removed", "error", err)
		l.trouble.Set(partNotes, "the notes of the hook cannot be removed from the local disk")
		return false
	}
	return true
}

// learn enters what a note says into the session's state.
func learn(state *spool.State, n note.Note) {
	if filepath.IsAbs(n.Transcript) && filepath.Ext(n.Transcript) == ".jsonl" {
		state.Transcript = filepath.Clean(n.Transcript)
	}
	if filepath.IsAbs(n.Cwd) {
		state.Cwd = filepath.Clean(n.Cwd)
	}
	if filepath.IsAbs(n.ProjectDir) {
		state.ProjectDir = filepath.Clean(n.ProjectDir)
	}
	state.LettaHome = n.LettaHome
	state.Entrypoint = cmp.Or(n.Entrypoint, state.Entrypoint)
	state.Nested = state.Nested || n.Nested
	if n.Event == eventSessionStart && n.Source == sourceFork && state.ForkedAt.IsZero() {
		state.ForkedAt = n.At
	}
	if stream, ok := read.AgentStream(n.AgentTranscript); ok && filepath.IsAbs(n.AgentTranscript) && len(state.AgentFiles) < maxAgentFiles {
		if state.AgentFiles == nil {
			state.AgentFiles = map[string]string{}
		}
		state.AgentFiles[stream] = filepath.Clean(n.AgentTranscript)
	}
	switch n.Event {
	case eventSessionEnd:
		state.Ending = true
	case eventSessionStart, eventPrompt:
		state.Ending = false
	}
}

// plan lets the session be read when its file should have what the note speaks
// of.
func (l *loop) plan(state spool.State, n note.Note) {
	id, now := state.SessionID, l.clock.Now()
	l.missed[id] = 0
	switch n.Event {
	case eventStop, eventSubagentStop, eventSessionEnd:
		for _, delay := range l.timing.Late {
			l.agenda.add(id, now.Add(delay))
		}
	case eventTool:
		l.agenda.atMostBy(id, now.Add(l.timing.Tool))
	case eventSessionStart:
		l.agenda.add(id, now)
		l.sweep(false)
	default:
		l.agenda.add(id, now)
	}
	l.active[id] = n.At
	switch n.Event {
	case eventSessionStart:
		l.fresh[id] = true
	case eventStop:
		l.turns[id] = n.At
	case eventPrompt:
		// At the first prompt, what was printed at the start is not in the file
		// yet: that says nothing about whether it was given.
		if !l.fresh[id] {
			l.turns[id] = n.At
		}
		delete(l.fresh, id)
	}
}

// sweep plans to read every session whose files differ from its cursors,
// whatever became of its notes, and forgets those that never had a file.
func (l *loop) sweep(start bool) {
	now := l.clock.Now()
	for _, session := range l.spool.Sessions() {
		state := session.State()
		switch {
		case state.Withdrawn && !over(&state, now):
		case over(&state, now):
			l.log.Info("Forgetting a session of which nothing is left to do", "session", state.SessionID)
			if err := l.spool.Prune(state.SessionID); err != nil {
				l.diskFailed(err)
			}
		case never(&state, now, l.timing.GiveUp):
			l.log.Info("Forgetting a session whose transcript never came", "session", state.SessionID)
			if err := l.spool.Forget(state.SessionID); err != nil {
				l.diskFailed(err)
			}
		case start && state.Ending, changed(&state, start):
			l.agenda.atMostBy(state.SessionID, now)
		}
	}
}

// never says whether a session had time enough for a transcript and got none.
func never(state *spool.State, now time.Time, giveUp time.Duration) bool {
	if len(state.Cursors)+len(state.Imports) > 0 || state.Head.Segments > 0 || now.Sub(state.FirstNote).Abs() < giveUp {
		return false
	}
	return !exists(state.Transcript)
}

// keepSession is how long a session is remembered whose transcript is gone and
// whose lines are all in the archive.
const keepSession = 30 * 24 * time.Hour

// over says whether nothing of a session can be asked for any more.
func over(state *spool.State, now time.Time) bool {
	if now.Sub(state.FirstNote) < keepSession || now.Sub(state.Processed.At) < keepSession {
		return false
	}
	// Of a session that a person deleted nothing waits, whatever was not read.
	if !state.Withdrawn && (len(state.Segments) > 0 || len(state.Gone) > 0 || len(state.Cursors)+len(state.Imports) == 0 || state.Processed.Lag > 0) {
		return false
	}
	for _, cursor := range state.Cursors {
		if exists(cursor.Path) {
			return false
		}
	}
	for _, one := range state.Imports {
		if exists(one.Cursor.Path) {
			return false
		}
	}
	return !exists(state.Transcript)
}

// changed says whether a session has bytes that were not read. Looking for
// subagents that are not known yet lists folders, once for each session: that
// is done at the start only. Later their session's next note finds them.
func changed(state *spool.State, start bool) bool {
	if start {
		for _, src := range sources(state) {
			if _, known := state.Cursors[src.Stream]; !known && exists(src.Path) {
				return true
			}
		}
	}
	main, known := state.Cursors[read.Main]
	if known && read.Changed(state.Transcript, main) || !known && exists(state.Transcript) {
		return true
	}
	for stream, cursor := range state.Cursors {
		if stream != read.Main && read.Changed(cursor.Path, cursor) {
			return true
		}
	}
	return false
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
