package daemon

import (
	"context"
	"errors"

	"github.com/undersong-dev/undersong/agent/consent"
	"github.com/undersong-dev/undersong/agent/note"
	"github.com/undersong-dev/undersong/agent/read"
	"github.com/undersong-dev/undersong/agent/spool"
	"github.com/undersong-dev/undersong/agent/whisper"
)

// greet lets the person see, at the first prompt of a session, that it is
// recorded: the hook of that prompt comes after the note of the session's start.
// In a project that the team hears it also says when it is not, because the
// person paused it. Elsewhere it says nothing.
func (l *loop) greet(ctx context.Context, session *spool.Session, n note.Note) error {
	state := session.State()
	if n.Event != eventSessionStart && n.Event != eventPrompt || state.Withdrawn || state.Noticed {
		return nil
	}
	if _, _, known := l.view.Capture(); !known {
		return nil
	}
	source := read.Source{Session: state.SessionID, Stream: read.Main, Path: state.Transcript}
	silences, err := l.silent(ctx, source)
	if err != nil {
		return nil //nolint:nilerr // nothing is read then, and reading says why
	}
	entrypoint := state.Entrypoint
	if state.Nested {
		entrypoint = read.NestedEntrypoint
	}
	verdict := l.reader.Decide(state.Cwd, entrypoint)
	if !verdict.Allowed || state.Project != nil && state.Project.Remote != verdict.Project.Remote {
		return nil
	}
	now := l.clock.Now()
	for _, w := range silences {
		if w.Elsewhere(verdict) || (w.Session != "" && w.Session != state.SessionID && w.Session != origin(&state)) || !w.Until.IsZero() && !now.Before(w.Until) {
			continue
		}
		text := "undersong: paused, this session is not recorded (undersong resume)"
		if w.Reason != consent.ReasonPaused {
			text = "undersong: this session is not recorded: it is " + w.Reason + " (undersong status)"
		}
		if n.Event != eventSessionStart {
			return nil // it was said when the session began
		}
		return l.line(state.SessionID, "silent-", text, verdict.Project)
	}
	return l.notice(session, &verdict.Project)
}

// notice tells the person, once per session, that it is recorded.
func (l *loop) notice(session *spool.Session, project *read.Project) error {
	state := session.State()
	if state.Noticed {
		return nil
	}
	text := "undersong: this session is recorded for team " + l.config.Namespace + ", memory " + l.config.Memory + " (undersong status)"
	if err := l.line(state.SessionID, "recorded-", text, *project); err != nil {
		return err
	}
	return session.Update(func(state *spool.State) { state.Noticed = true })
}

// line lets the person of a session see a line.
func (l *loop) line(id, kind, text string, project read.Project) error {
	err := whisper.Put(l.home, whisper.Whisper{
		ID: kind + id, Session: id, Project: project.Remote, Memory: l.config.Memory, Notice: text, At: l.clock.Now().UTC(),
	})
	if errors.Is(err, whisper.ErrInvalid) {
		return nil
	}
	return err
}
