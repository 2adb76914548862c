package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/undersong-dev/undersong/agent/consent"
	"github.com/undersong-dev/undersong/agent/internal/durable"
	"github.com/undersong-dev/undersong/agent/note"
	"github.com/undersong-dev/undersong/agent/read"
	"github.com/undersong-dev/undersong/agent/spool"
	"github.com/undersong-dev/undersong/internal/crash"
)

const (
	historyFile    = "import.json"
	historyVersion = 1

	// maxHistory bounds the file, in bytes: some hundred for each session.
	maxHistory = 64 << 20

	// quietFor is how long nobody must have sat at a session before its older
	// lines are brought in: a session's segments arrive in the order in which they
	// were made, and what is said now would wait for what the budget holds back.
	quietFor = 10 * time.Minute

	partImport = "import"
)

// History is what a person wants to be brought in of before init. The command
// writes it, in one step, and the daemon only reads it: how far it is stands in
// the sessions' states.
type History struct {
	Version int       `json:"version"`
	At      time.Time `json:"at"`

	// For is whom it was agreed to be sent to. After init for another memory, or
	// as another workstation, it means nothing.
	For string `json:"for"`

	Sessions []HistorySession `json:"sessions"`
}

// HistorySession is one session, in the order in which they are brought in.
type HistorySession struct {
	ID      string          `json:"id"`
	Streams []HistoryStream `json:"streams"`
}

// HistoryStream is one transcript, the session's own first.
type HistoryStream struct {
	Stream string `json:"stream"`
	Path   string `json:"path"`

	// Cwd and Entrypoint are those of the first record that has any: they stand
	// in for the records before it, as the hook's do for what is said now.
	Cwd        string `json:"cwd,omitempty"`
	Entrypoint string `json:"entrypoint,omitempty"`

	// Until is the byte up to which it is brought in. Dated says that only the
	// times of records tell what is of before init.
	Until int64 `json:"until"`
	Dated bool  `json:"dated,omitempty"`

	// Leave are the bytes that stay, and why.
	Leave []HistoryRange `json:"leave,omitempty"`
}

// HistoryRange is a run of bytes that is not brought in.
type HistoryRange struct {
	From   int64  `json:"from"`
	To     int64  `json:"to"`
	Reason string `json:"reason"`
}

// audience names whom a configuration sends to, and under which consent.
func audience(c note.Config) string {
	return fmt.Sprintf("%s %s/%s %s %s %d", c.Server, c.Namespace, c.Memory, c.Owner, c.Workstation, c.ConsentedAt.UnixNano())
}

// LoadHistory returns what is to be brought in. None, or what was agreed to for
// another memory, is an empty one.
func LoadHistory(home string, config note.Config) (*History, error) {
	data, err := durable.ReadFile(filepath.Join(home, historyFile), maxHistory)
	if errors.Is(err, fs.ErrNotExist) {
		return &History{}, nil
	}
	var h History
	if err == nil {
		err = json.Unmarshal(data, &h)
	}
	if err != nil || h.Version != historyVersion {
		return nil, fmt.Errorf("read %s: it is damaged or newer than this undersong: undersong import --stop removes it", historyFile)
	}
	if h.For != audience(config) {
		return &History{}, nil
	}
	return &h, nil
}

// SaveHistory replaces what is to be brought in, and lets a daemon that runs look
// at it.
func SaveHistory(home string, config note.Config, h History) error {
	h.Version, h.For = historyVersion, audience(config)
	data, err := json.MarshalIndent(h, "", " ")
	if err == nil && len(data) > maxHistory {
		err = errors.New("too many sessions at a time")
	}
	if err == nil {
		err = durable.WriteFile(filepath.Join(home, historyFile), data)
	}
	if err != nil {
		return fmt.Errorf("keep what is to be imported: %w", err)
	}
	return stir(home)
}

// DropHistory gives up what is still to be brought in.
func DropHistory(home string) error {
	err := durable.Remove(filepath.Join(home, historyFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("stop the import: %w", err)
	}
	return stir(home)
}

// stir lets a running daemon look around: it watches the folder of notes.
func stir(home string) error {
	name := filepath.Join(note.Dir(home), durable.TempName(historyFile))
	file, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600) //nolint:gosec // the name is ours
	if err != nil {
		return nil //nolint:nilerr // without the folder there was no daemon; with it, it looks by itself in a while
	}
	return errors.Join(file.Close(), os.Remove(name))
}

// reached says whether nothing is left to be read of a session.
func (h *HistorySession) reached(state *spool.State, at time.Time) bool {
	return state.Withdrawn || !slices.ContainsFunc(h.Streams, func(s HistoryStream) bool { return !state.Imports[s.Stream].Reached(s.Until, at) })
}

// HistoryProgress says how far an import is.
type HistoryProgress struct {
	// At is when it was agreed to; zero without one.
	At time.Time `json:"at,omitzero"`

	// Sessions are all, Read those of which nothing is left to be read, Archived
	// those of them of which nothing waits here, Left those that were given up, as
	// their transcripts are gone or others now.
	Sessions int `json:"sessions"`
	Read     int `json:"read"`
	Archived int `json:"archived"`
	Left     int `json:"left"`

	// Lines are the lines of these sessions in segments, Behind those that the
	// memory has not processed, as far as is known here.
	Lines  int64 `json:"lines"`
	Behind int64 `json:"behind"`
}

func byID(states []spool.State) map[string]*spool.State {
	all := make(map[string]*spool.State, len(states))
	for i := range states {
		all[states[i].SessionID] = &states[i]
	}
	return all
}

// Progress says how far it is, from the states of the spool.
func (h *History) Progress(states []spool.State) HistoryProgress {
	p := HistoryProgress{At: h.At, Sessions: len(h.Sessions)}
	byID := byID(states)
	for i := range h.Sessions {
		state := byID[h.Sessions[i].ID]
		if state == nil && h.Sessions[i].gone() {
			p.Read, p.Archived, p.Left = p.Read+1, p.Archived+1, p.Left+1
		}
		if state == nil {
			continue
		}
		behind, _ := waits(state)
		p.Lines, p.Behind = p.Lines+state.Head.Lines, p.Behind+behind
		if !h.Sessions[i].reached(state, h.At) {
			continue
		}
		p.Read++
		for _, s := range h.Sessions[i].Streams {
			if state.Imports[s.Stream].Abandoned(h.At) {
				p.Left++
				break
			}
		}
		if !slices.ContainsFunc(state.Segments, func(g spool.Segment) bool { return g.Import }) {
			p.Archived++
		}
	}
	return p
}

// gone says that no transcript of a session is there. One that was not begun then
// is over.
func (h *HistorySession) gone() bool {
	return !slices.ContainsFunc(h.Streams, func(s HistoryStream) bool { return exists(s.Path) })
}

// history is what the loop knows of an import.
type history struct {
	plan  *History
	stamp os.FileInfo
	over  map[string]bool      // sessions of which nothing is left to be read
	later map[string]time.Time // sessions that cannot be read now, and when to look again
}

// open returns how many sessions are still to be read.
func (h *history) open() int {
	if h.plan == nil {
		return 0
	}
	return len(h.plan.Sessions) - len(h.over)
}

// pending says whether a stream is still to be brought in.
func (h *history) pending(id, stream string) bool {
	if h.plan == nil || h.over[id] {
		return false
	}
	return slices.ContainsFunc(h.plan.Sessions, func(s HistorySession) bool {
		return s.ID == id && slices.ContainsFunc(s.Streams, func(one HistoryStream) bool { return one.Stream == stream })
	})
}

// lookUpHistory brings what the loop knows of an import up to date.
func (l *loop) lookUpHistory() error {
	stamp, err := os.Stat(filepath.Join(l.home, historyFile))
	if err != nil {
		stamp = nil
	}
	if l.history.plan != nil && consent.SameStamp(stamp, l.history.stamp) {
		return nil
	}
	plan, err := LoadHistory(l.home, l.config)
	if err != nil {
		return err
	}
	l.history = history{plan: plan, stamp: stamp, over: map[string]bool{}, later: map[string]time.Time{}}
	return nil
}

// bring reads one batch of what is to be brought in, when there is room for it.
// It says whether it did anything. It is called when nothing else is to be done.
func (l *loop) bring(ctx context.Context) bool {
	if err := l.lookUpHistory(); err != nil {
		l.trouble.Set(partImport, err.Error())
		return false
	}
	if l.history.open() == 0 {
		l.trouble.Set(partImport, "")
		return false
	}
	ok, err := l.mayBring(ctx)
	if err != nil {
		l.bringFailed("", err)
		return false
	}
	if !ok {
		return false
	}
	for i := range l.history.plan.Sessions {
		one := &l.history.plan.Sessions[i]
		if l.history.over[one.ID] || l.clock.Now().Before(l.history.later[one.ID]) {
			continue
		}
		did, err := l.bringOne(ctx, one)
		if err != nil {
			l.bringFailed(one.ID, err)
			continue
		}
		if did {
			l.trouble.Set(partImport, "")
			return true
		}
	}
	return false
}

// mayBring says whether anything may be brought in now.
func (l *loop) mayBring(ctx context.Context) (bool, error) {
	if _, err := l.look(); err != nil {
		return false, nil //nolint:nilerr // it has said so itself
	}
	if _, _, known := l.view.Capture(); !known || !l.spool.RoomForImport() {
		return false, nil
	}
	if _, err := l.redactor(nil); err != nil {
		return false, nil //nolint:nilerr // as for what is said now; that says why
	}
	if err := l.quiet(ctx, ""); err != nil {
		return false, err
	}
	return l.silences.known.Current(consent.ReasonPaused, "", l.clock.Now()) == nil, nil
}

// bringFailed notes why nothing is brought in, of one session or at all.
func (l *loop) bringFailed(id string, err error) {
	l.log.Error("History cannot be brought in", "session", id, "error", err)
	if id != "" {
		l.history.later[id] = l.clock.Now().Add(l.timing.Blocked)
	}
	switch {
	case errors.Is(err, spool.ErrFull), errors.Is(err, spool.ErrBehind):
	case errors.Is(err, consent.ErrSilences):
		l.trouble.Set(partImport, consent.ErrSilences.Error())
	case errors.Is(err, errTranscript):
		l.trouble.Set(partImport, "a transcript that is to be imported cannot be read")
	default:
		l.diskFailed(err)
	}
}

// bringOne reads one batch of one session. It says whether it did anything.
func (l *loop) bringOne(ctx context.Context, one *HistorySession) (bool, error) {
	session, known := l.spool.Session(one.ID)
	if !known {
		if one.gone() {
			l.history.over[one.ID] = true // it is gone, and was not begun
			return false, nil
		}
		var err error
		if session, err = l.spool.Ensure(one.ID, l.clock.Now()); err != nil {
			if errors.Is(err, spool.ErrSessionID) || errors.Is(err, spool.ErrDamaged) {
				l.history.over[one.ID] = true
				l.trouble.Set(partSession+one.ID, err.Error())
				return false, nil
			}
			return false, err
		}
	}
	state := session.State()
	if one.reached(&state, l.history.plan.At) {
		return false, l.brought(session, one)
	}
	if l.hushedNow(&state) {
		for _, s := range one.Streams {
			if err := l.giveUp(session, s, errors.New("the session is private, or switched off")); err != nil {
				return false, err
			}
		}
		return true, nil
	}
	if l.talkedIn(&state) {
		l.history.later[one.ID] = l.clock.Now().Add(l.timing.Poll)
		return false, nil
	}
	if err := session.Room(); err != nil {
		return false, err
	}
	for _, s := range one.Streams {
		if state.Imports[s.Stream].Reached(s.Until, l.history.plan.At) {
			continue
		}
		return true, l.bringStream(ctx, session, s)
	}
	return true, nil
}

// brought notes that nothing is left to be read of a session. One that nobody
// opened since init has ended.
func (l *loop) brought(session *spool.Session, one *HistorySession) error {
	err := session.Update(func(state *spool.State) { state.Ended = state.Ended || state.Transcript == "" })
	if err != nil {
		return err
	}
	l.history.over[one.ID] = true
	l.spooled()
	return nil
}

// talkedIn says whether somebody sits at a session.
func (l *loop) talkedIn(state *spool.State) bool {
	at, ok := l.active[state.SessionID]
	return ok && !state.Ended && l.clock.Now().Sub(at).Abs() < quietFor
}

// hushedNow says whether nothing may be heard of a session at this time: it is
// private, or switched off. What was said in it before is left alone, too.
func (l *loop) hushedNow(state *spool.State) bool {
	return note.IsOff(l.home, state.SessionID) || l.silences.known.Current(consent.ReasonPrivate, state.SessionID, l.clock.Now()) != nil
}

// historySource is where a stream is read from, with what of it stays. It is the
// same for who asks what would be brought in, and for who does it.
func (l *loop) historySource(ctx context.Context, id string, s HistoryStream) (read.Source, error) {
	src := read.Source{
		Session: id, Stream: s.Stream, Path: s.Path, Cwd: s.Cwd, Entrypoint: s.Entrypoint,
		History: &read.History{Until: s.Until, Before: l.config.ConsentedAt, Dated: s.Dated},
	}
	var err error
	if src.Silences, err = l.silent(ctx, src); err != nil {
		return src, err
	}
	never := time.Unix(0, 1) // no record is of that time: the bytes alone are meant
	for _, r := range s.Leave {
		src.Silences = append(src.Silences, read.Silence{Reason: r.Reason, Session: id, From: r.From, To: r.To, Since: never, Until: never})
	}
	return src, nil
}

// wantOf is what reading history has to know of the session besides.
func wantOf(state *spool.State) read.Want {
	want := read.Want{Project: state.Project}
	for _, one := range state.Imports {
		want.NoSummaries = want.NoSummaries || one.Cursor.NoSummaries
	}
	return want
}

// bringStream reads one batch of one stream and makes it durable.
func (l *loop) bringStream(ctx context.Context, session *spool.Session, s HistoryStream) error {
	state := session.State()
	var err error
	if l.reader.Redactor, err = l.redactor(state.Folders); err != nil {
		return nil //nolint:nilerr // as for what is said now; that says why
	}
	src, err := l.historySource(ctx, state.SessionID, s)
	if err != nil {
		return err
	}
	began := state.Imports[s.Stream].Cursor
	batch, err := l.reader.Next(ctx, src, began, wantOf(&state))
	batch.Began = &began
	switch {
	case ctx.Err() != nil:
		return nil //nolint:nilerr // the next daemon reads it
	case errors.Is(err, read.ErrMissing), errors.Is(err, read.ErrReplaced):
		return l.giveUp(session, s, err)
	case err != nil:
		return fmt.Errorf("%w: %w", errTranscript, err)
	}
	// What the user said while the file was read holds for what was read.
	if now, err := l.historySource(ctx, state.SessionID, s); err != nil || !slices.Equal(now.Silences, src.Silences) {
		return err
	}
	if changed, err := l.look(); changed || err != nil {
		return nil //nolint:nilerr // again, by what it says now
	}
	if state = session.State(); state.Withdrawn {
		return nil
	}
	crash.Point(crash.AgentLinesRead)
	if err := session.AppendImport(s.Stream, batch); err != nil {
		return moved(err)
	}
	if len(batch.Lines) > 0 {
		l.spooled()
	}
	if batch.More || batch.Cursor.Offset >= s.Until {
		return nil
	}
	// The file ends before it should, or what follows is younger.
	return l.giveUp(session, s, errors.New("nothing more is to be read in it"))
}

// giveUp notes that a stream is not brought in any further.
func (l *loop) giveUp(session *spool.Session, s HistoryStream, why error) error {
	l.log.Info("A transcript is not imported any further", "session", session.Name(), "stream", s.Stream, "error", why)
	return session.Update(func(state *spool.State) {
		if state.Imports == nil {
			state.Imports = map[string]spool.Import{}
		}
		one := state.Imports[s.Stream]
		one.Left = l.history.plan.At
		state.Imports[s.Stream] = one
	})
}

// resume returns the cursor with which a stream is first read that was brought in
// before somebody opened the session again: what was brought in is not read
// again, and not called withheld. Without one it is the zero cursor.
func (l *loop) resume(state *spool.State, src read.Source) read.Cursor {
	one, ok := state.Imports[src.Stream]
	if !ok || one.Cursor.Offset == 0 || one.Cursor.Generation > 0 || l.history.pending(state.SessionID, src.Stream) {
		return read.Cursor{}
	}
	if !read.Fits(src.Path, one.Cursor) {
		return read.Cursor{}
	}
	cursor := one.Cursor.Clone()
	cursor.Baseline = src.Baseline
	return cursor
}

// bounded is how far a stream may be brought in at most: up to where it was at
// init, as the cursor has it that reads what is said now, else the record of
// init. dated says that only the times of its records tell.
func (b *baseline) bounded(state *spool.State, stream, path string) (until int64, dated bool) {
	if cursor, live := state.Cursors[stream]; live {
		if cursor.Generation > 0 {
			return 0, false // another file took the place since, and was read from its beginning
		}
		return cursor.Baseline, false
	}
	if size, known := b.knows(path); known {
		return size, false
	}
	return math.MaxInt64, true
}
