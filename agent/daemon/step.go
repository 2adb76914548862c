package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/undersong-dev/undersong/agent/consent"
	"github.com/undersong-dev/undersong/agent/read"
	"github.com/undersong-dev/undersong/agent/spool"
	"github.com/undersong-dev/undersong/agent/whisper"
	"github.com/undersong-dev/undersong/internal/crash"
)

// teamRules is said while the team's own redaction rules cannot be used.
const teamRules = "a redaction rule of the team's memory cannot be used, so nothing is read; it waits until the team's lead has corrected spec.capture.redact"

// errTranscript marks errors of reading, as against those of writing.
var errTranscript = errors.New("transcript cannot be read")

// sources lists the streams of a session, the main one first.
func sources(state *spool.State) []read.Source {
	if state.Transcript == "" {
		return nil
	}
	main := state.Transcript
	paths := map[string]string{}
	maps.Copy(paths, state.AgentFiles)
	for stream, cursor := range state.Cursors {
		if stream != read.Main {
			paths[stream] = cursor.Path
		} else if cursor.Path != main {
			maps.Copy(paths, read.Agents(cursor.Path, state.SessionID))
		}
	}
	maps.Copy(paths, read.Agents(main, state.SessionID))

	source := func(stream, path string) read.Source {
		return read.Source{Session: state.SessionID, Stream: stream, Path: path, Cwd: state.Cwd, Entrypoint: state.Entrypoint, Nested: state.Nested, ForkedAt: state.ForkedAt}
	}
	list := []read.Source{source(read.Main, main)}
	for stream, path := range paths {
		list = append(list, source(stream, path))
	}
	slices.SortFunc(list[1:], func(a, b read.Source) int { return cmp.Compare(a.Stream, b.Stream) })
	return list
}

// step reads one batch of one session: of the first stream that has something
// to read. It plans the next step itself.
func (l *loop) step(ctx context.Context, id string) {
	session, ok := l.spool.Session(id)
	if !ok {
		return
	}
	state := session.State()
	if state.Withdrawn {
		return
	}
	if _, err := l.look(); err != nil {
		l.block(id, "") // its own trouble says why
		return
	}
	if _, _, known := l.view.Capture(); !known {
		l.block(id, "") // the memory's own trouble says why
		return
	}
	var err error
	if l.reader.Redactor, err = l.redactor(state.Folders); err != nil {
		l.block(id, teamRules)
		return
	}
	if err := session.Room(); err != nil {
		l.block(id, full(err))
		return
	}
	missing := false
	for _, src := range sources(&state) {
		more, err := l.stream(ctx, session, src)
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, read.ErrMissing):
			missing = missing || src.Stream == read.Main
		case err != nil:
			l.stepFailed(id, err)
			return
		case more:
			l.agenda.atMostBy(id, l.clock.Now())
			return
		}
	}
	l.trouble.Set(partRead+id, "")
	l.trouble.Set(partDisk, "")
	if missing {
		l.missing(id)
		return
	}
	l.caughtUp(session)
}

// stream reads one batch of one stream and makes it durable. It says whether
// the session has more to read.
func (l *loop) stream(ctx context.Context, session *spool.Session, src read.Source) (bool, error) {
	state := session.State()
	began, known := state.Cursors[src.Stream]
	cursor := began
	if known && src.Stream != read.Main && !read.Changed(src.Path, cursor) {
		return false, nil
	}
	src.Baseline, src.Init, src.ForkedFrom = l.baseline.size(src), l.config.ConsentedAt, origin(&state)
	src.Kept = l.baseline.kept(src)
	src.Earlier = func() ([]read.Kept, error) { return session.Withheld(src.Stream) }
	if !known {
		cursor = l.resume(&state, src)
	}
	var err error
	if src.Silences, err = l.silent(ctx, src); err != nil {
		return false, err
	}
	batch, err := l.reader.Next(ctx, src, cursor, read.Want{
		Project: state.Project, NoSummaries: hushed(&state), Claimed: l.listening(state.SessionID, src),
	})
	if errors.Is(err, read.ErrMissing) {
		return false, err
	}
	if err != nil {
		return false, fmt.Errorf("%w: %w", errTranscript, err)
	}
	// What the user said while the file was read holds for what was read.
	if now, err := l.silent(ctx, src); err != nil || !slices.Equal(now, src.Silences) {
		return err == nil, err
	}
	if changed, err := l.look(); changed || err != nil {
		return err == nil, err // again, by what it says now
	}
	if !batch.Moved && known && batch.Cursor.Generation == cursor.Generation {
		return false, nil
	}
	if cursor.Offset == 0 && !state.ForkedAt.IsZero() && !batch.Chained {
		return false, nil // the copies, which tell of what it is a fork, come next
	}
	batch.Began = &began
	crash.Point(crash.AgentLinesRead)
	for _, spoken := range batch.Spoken {
		// Before the cursor passes the record: after a crash it is read again.
		if err := l.arrived(&state, spoken); err != nil {
			return false, err
		}
	}
	if err := session.Append(src.Stream, batch); err != nil {
		return errors.Is(err, spool.ErrMoved), moved(err)
	}
	if err := l.inherit(ctx, state.SessionID, batch.Cursor.ForkedFrom); err != nil {
		return false, err
	}
	if len(batch.Lines) > 0 {
		l.spooled()
		if err := l.notice(session, batch.Project); err != nil {
			return false, err
		}
	}
	return batch.More, nil
}

// caughtUp follows when every stream was read to its end.
func (l *loop) caughtUp(session *spool.Session) {
	state := session.State()
	if l.agenda.pending(state.SessionID) {
		return // it is read again in a moment
	}
	l.settle(state.SessionID)
	if !state.Ending {
		return
	}
	err := session.Update(func(state *spool.State) { state.Ending, state.Ended = false, true })
	if err != nil {
		l.diskFailed(err)
		l.agenda.add(state.SessionID, l.clock.Now().Add(l.timing.Blocked))
		return
	}
	l.spooled()
}

// listening returns the ids of whispers to look for in a stream.
func (l *loop) listening(id string, src read.Source) []string {
	if src.Stream != read.Main {
		return nil
	}
	claimed, err := whisper.Claimed(l.home, id)
	if err != nil {
		l.log.Error("Whispers cannot be listed", "session", id, "error", err)
	}
	for _, w := range claimed {
		if !slices.Contains(l.shown[id], w.ID) {
			l.shown[id] = append(l.shown[id], w.ID)
		}
	}
	return l.shown[id]
}

// settle returns the whispers that a hook printed before the newest turn, and
// that the transcript does not have: the agent never got them.
func (l *loop) settle(id string) {
	turn, ok := l.turns[id]
	if !ok {
		return
	}
	delete(l.turns, id)
	claimed, err := whisper.Claimed(l.home, id)
	if err != nil {
		l.log.Error("Whispers cannot be listed", "session", id, "error", err)
		return
	}
	for _, w := range claimed {
		// A hook writes its note before it claims.
		if !w.ClaimedAt.Before(turn) {
			continue
		}
		if err := whisper.Return(l.home, id, w.ID, l.clock.Now()); err != nil {
			l.log.Error("A whisper cannot be returned", "session", id, "error", err)
			continue
		}
		l.log.Info("A whisper was printed and not given; it waits again", "session", id, "whisper", w.ID)
	}
}

// missing plans the next look at a transcript that is not there yet.
func (l *loop) missing(id string) {
	n := l.missed[id]
	if n < len(l.timing.Missing) {
		l.missed[id] = n + 1
		l.agenda.atMostBy(id, l.clock.Now().Add(l.timing.Missing[n]))
	}
}

// block sets a session aside until something makes room, or for a while.
func (l *loop) block(id, message string) {
	l.blocked[id] = true
	l.trouble.Set(partRead+id, message)
	l.agenda.atMostBy(id, l.clock.Now().Add(l.timing.Blocked))
}

// full returns what to say of a spool without room. A session that is far
// behind is no trouble of its own: whatever holds the others up is.
func full(err error) string {
	if errors.Is(err, spool.ErrFull) {
		return spool.ErrFull.Error()
	}
	return ""
}

// stepFailed notes why a session could not be read.
func (l *loop) stepFailed(id string, err error) {
	l.log.Error("Session cannot be read", "session", id, "error", err)
	switch {
	case errors.Is(err, spool.ErrFull), errors.Is(err, spool.ErrBehind):
		l.block(id, full(err))
	case errors.Is(err, errSettings), errors.Is(err, errEnd), errors.Is(err, errAnew):
		l.block(id, "") // the configuration's own trouble says why
	case errors.Is(err, consent.ErrSilences):
		l.block(id, consent.ErrSilences.Error())
	case errors.Is(err, errTranscript):
		l.block(id, "the transcript cannot be read")
	default:
		l.diskFailed(err)
		l.block(id, "")
	}
}

// diskFailed notes that the local disk does not take what must be kept.
func (l *loop) diskFailed(err error) {
	l.log.Error("The local disk does not take what must be kept", "error", err)
	l.trouble.Set(partDisk, "the state directory cannot be written: is the disk full?")
}

// moved is the error of an append, nil where all there is to do is to read again.
func moved(err error) error {
	if errors.Is(err, spool.ErrMoved) {
		return nil
	}
	return err
}
