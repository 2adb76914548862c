package daemon

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"runtime/debug"
	"slices"
	"time"

	"k8s.io/utils/clock"

	"github.com/undersong-dev/undersong/agent/hook"
	"github.com/undersong-dev/undersong/agent/note"
	"github.com/undersong-dev/undersong/agent/read"
	"github.com/undersong-dev/undersong/agent/spool"
	"github.com/undersong-dev/undersong/agent/status"
	"github.com/undersong-dev/undersong/agent/upload"
	"github.com/undersong-dev/undersong/agent/whisper"
	"github.com/undersong-dev/undersong/internal/redact"
)

// Parts that the loop tells trouble of.
const (
	partDisk    = "disk"
	partNotes   = "notes"
	partRead    = "read/"
	partSession = upload.PartSession
)

// sweepEvery is how often sessions without transcript and old whispers are
// looked at.
const sweepEvery = time.Hour

// loop takes notes and reads transcripts, one step at a time. It belongs to one
// goroutine, except for the channels.
type loop struct {
	home     string
	config   note.Config
	settings *settings
	clock    clock.Clock
	timing   Timing
	idle     time.Duration // 0: never leave
	spool    *spool.Spool
	reader   *read.Reader
	redactor func(places map[string]spool.Folder) (*redact.Redactor, error) // for the next batch of a session
	sight    func(cwd string) (spool.Folder, bool)
	place    func(cwd string) (whisper.Place, bool)
	projects *status.Projects
	wrong    func() []Trouble
	view     *status.View
	baseline *baseline
	trouble  upload.Trouble
	log      *slog.Logger

	notes   <-chan struct{} // something is in the notes folder
	room    <-chan struct{} // what was blocked may go on
	spooled func()          // there is something to upload

	agenda   *agenda
	silences silences
	history  history

	blocked  map[string]bool
	missed   map[string]int       // looks at a transcript that is not there
	turns    map[string]time.Time // newest Stop or prompt, until it is settled
	shown    map[string][]string  // whispers that a hook printed
	active   map[string]time.Time // newest note, of sessions that somebody sits at
	told     map[string]state     // what sessions were told last
	cwds     map[string]string    // the folder that a session was last in
	fresh    map[string]bool      // sessions that started and had no prompt yet
	heard    time.Time            // the newest note, or the start
	began    time.Time
	listened time.Time
	swept    time.Time
	worked   bool // since memory was last given back
}

// errIdle: there was nothing to do for a while.
var errIdle = errors.New("there is nothing to do")

// run works until ctx is done, until there was nothing to do for a while, or
// until the configuration wants it; it says which.
func (l *loop) run(ctx context.Context) error {
	l.begin()
	l.takeNotes(ctx)
	l.clean(true)
	for ctx.Err() == nil {
		for _, id := range l.agenda.due(l.clock.Now()) {
			if ctx.Err() != nil || l.over() != nil {
				break
			}
			delete(l.blocked, id)
			l.worked = true
			l.step(ctx, id)
		}
		if err := l.over(); err != nil {
			return err
		}
		if l.leave() {
			return errIdle
		}
		if l.bring(ctx) {
			l.worked = true
			l.attend(ctx) // what is said now comes first
			continue
		}
		l.wait(ctx)
	}
	return ctx.Err()
}

// look brings what the person says in config.json up to date. An error says that
// nothing may be read now.
func (l *loop) look() (changed bool, err error) {
	if l.settings == nil { // of a test
		return false, nil
	}
	changed, err = l.settings.look()
	if !errors.Is(err, errSettings) {
		l.trouble.Set(partConfig, "")
	} else {
		l.trouble.Set(partConfig, err.Error())
	}
	if changed {
		l.resettle()
	}
	return changed, err
}

// over says why the configuration wants this loop to end; nil while it does not.
func (l *loop) over() error {
	if _, err := l.look(); errors.Is(err, errEnd) || errors.Is(err, errAnew) {
		return err
	}
	return nil
}

// begin makes what the loop remembers.
func (l *loop) begin() {
	l.agenda = newAgenda()
	l.blocked = map[string]bool{}
	l.missed, l.turns, l.shown = map[string]int{}, map[string]time.Time{}, map[string][]string{}
	l.active, l.told, l.cwds, l.fresh = map[string]time.Time{}, map[string]state{}, map[string]string{}, map[string]bool{}
	l.began = l.clock.Now()
	l.heard, l.listened = l.began, l.began
}

// wait returns when something happened or is due.
func (l *loop) wait(ctx context.Context) {
	now := l.clock.Now()
	until := now.Add(l.timing.Poll)
	if next, planned := l.agenda.next(); planned && next.Before(until) {
		until = next
	}
	if l.idle > 0 {
		if leave := l.heard.Add(l.idle); leave.After(now) && leave.Before(until) {
			until = leave
		}
	}
	if soon := now.Add(restAfter); l.worked && soon.Before(until) {
		until = soon
	}
	timer := l.clock.NewTimer(until.Sub(now))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return
	case <-l.room:
		l.unblock()
		l.resettle()
		return
	case <-l.notes:
	case <-timer.C():
		l.rest()
	}
	l.attend(ctx)
}

// attend takes what came, and does what is due now and then.
func (l *loop) attend(ctx context.Context) {
	l.takeNotes(ctx)
	l.tell()
	l.lookForUnheard()
	l.clean(false)
}

// restAfter is how long nothing happens before memory is given back, and how long
// nothing is to happen then.
const restAfter = 5 * time.Second

// rest gives memory back to the system after a burst of work: most of its life
// a daemon waits, and then it should not be noticed.
func (l *loop) rest() {
	next, planned := l.agenda.next()
	if l.worked && (!planned || !next.Before(l.clock.Now().Add(restAfter))) {
		l.worked = false
		runtime.GC() // what lies in pools outlives one collection
		debug.FreeOSMemory()
	}
}

// unblock plans to read what was set aside.
func (l *loop) unblock() {
	for id := range l.blocked {
		l.agenda.atMostBy(id, l.clock.Now())
	}
}

// clean looks, at the start and now and then, at what no note speaks of.
func (l *loop) clean(start bool) {
	now := l.clock.Now()
	if !start && now.Sub(l.swept).Abs() < sweepEvery {
		return
	}
	l.swept = now
	l.sweep(start)
	if err := whisper.Sweep(l.home, now); err != nil {
		l.log.Error("Old whispers cannot be removed", "error", err)
	}
	if err := hook.Sweep(l.home, now); err != nil {
		l.log.Error("What old hook calls left cannot be removed", "error", err)
	}
	for _, id := range l.spool.Damaged() {
		l.trouble.Set(partSession+id, spool.ErrDamaged.Error())
	}
}

// leave says whether nothing was heard for long enough and nothing waits.
func (l *loop) leave() bool {
	if l.idle <= 0 || l.clock.Now().Sub(l.heard) < l.idle || len(l.blocked) > 0 {
		return false
	}
	if _, planned := l.agenda.next(); planned {
		return false
	}
	waiting, _ := backlog(l.spool)
	if waiting > 0 || l.history.open() > 0 || l.owesForgetting() {
		return false
	}
	files, err := note.List(l.home)
	return err == nil && len(files) == 0
}

// owesForgetting says whether the cluster is still to be asked to forget something.
// What has no Session there waits for a lead, and nobody stays for that.
func (l *loop) owesForgetting() bool {
	wishes, err := upload.Wishes(l.home)
	return err == nil && slices.ContainsFunc(wishes, func(w upload.Wish) bool {
		return w.Open(upload.Addressee(l.config)) && !w.Absent
	})
}

// backlog returns the number of segments that are not verified, and when the
// oldest was made.
func backlog(s *spool.Spool) (int64, time.Time) {
	var n int64
	var oldest time.Time
	for _, session := range s.Sessions() {
		state := session.State()
		n += int64(len(state.Segments))
		if at := state.Oldest(); !at.IsZero() && (oldest.IsZero() || at.Before(oldest)) {
			oldest = at
		}
	}
	return n, oldest
}
