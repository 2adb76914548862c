package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/undersong-dev/undersong/agent/note"
	"github.com/undersong-dev/undersong/agent/spool"
	"github.com/undersong-dev/undersong/agent/upload"
	"github.com/undersong-dev/undersong/agent/whisper"
)

const (
	// activeFor is how long after a note a session counts as one that somebody
	// sits at.
	activeFor = 30 * time.Minute

	// behindAfter is how long lines wait before the person is told. A turn of
	// the memory takes minutes.
	behindAfter = 15 * time.Minute

	// noticeLife is how long a line about a state is worth showing.
	noticeLife = 12 * time.Hour

	// silentEvery is how often it is looked for transcripts that grow unheard
	// of; silentFor is how long such a file must have grown so.
	silentEvery = 10 * time.Minute
	silentFor   = 2 * time.Minute

	partHooks = "hooks"
)

// Kinds of lines about a state. The first is the most important: one is shown.
const (
	kindRevoked = "revoked"
	kindLogin   = "login"
	kindBehind  = "behind"
)

// state is something that a person in a session is told, once.
type state struct {
	kind string
	id   string // differs when the state begins anew
	line string
}

// tell lets every session that somebody sits at say, once per state, what keeps
// the memory from hearing it. A line that is no longer true is taken back.
func (l *loop) tell() {
	now := l.clock.Now()
	for id, at := range l.active {
		if now.Sub(at).Abs() > activeFor {
			delete(l.active, id)
			delete(l.told, id)
			continue
		}
		session, ok := l.spool.Session(id)
		if !ok {
			continue
		}
		held := session.State()
		s, has := l.stateOf(&held, now)
		if before, told := l.told[id]; told && (!has || before.id != s.id) {
			delete(l.told, id)
			if err := whisper.Withdraw(l.home, id, before.id); err != nil {
				l.log.Error("A line cannot be taken back", "session", id, "error", err)
			}
		}
		if !has || l.told[id].id == s.id {
			continue
		}
		err := whisper.Put(l.home, whisper.Whisper{
			ID: s.id, Session: id, Memory: l.config.Memory, Notice: s.line, At: now.UTC(), Expires: now.UTC().Add(noticeLife),
		})
		if err != nil {
			l.log.Error("A line cannot be kept", "session", id, "error", err)
			continue
		}
		l.told[id] = s
	}
}

// stateOf returns what the person in a session is to be told.
func (l *loop) stateOf(held *spool.State, now time.Time) (state, bool) {
	if held.Project == nil || held.Withdrawn {
		return state{}, false // it is not recorded anyway
	}
	for _, t := range l.wrong() {
		switch t.Part {
		case upload.PartWorkstation:
			return state{
				kindRevoked, kindRevoked + "-" + day(t.Since),
				"undersong: this workstation was revoked, nothing more is uploaded; run undersong init to register it anew",
			}, true
		case upload.PartLogin:
			return state{
				kindLogin, kindLogin + "-" + day(t.Since),
				"undersong: the login to the cluster has expired, nothing is lost meanwhile; run undersong login",
			}, true
		}
	}
	lines, since := waits(held)
	if lines == 0 || since.IsZero() || now.Sub(since) < behindAfter {
		return state{}, false
	}
	synced := "not synced yet"
	if !held.Processed.At.IsZero() {
		synced = "last synced " + ago(now.Sub(held.Processed.At)) + " ago"
	}
	line := fmt.Sprintf("undersong: the team's memory is behind: %s, %d lines waiting (undersong status)", synced, lines)
	return state{kindBehind, fmt.Sprintf("%s-%d", kindBehind, since.Unix()), line}, true
}

// waits returns how many lines of a session the memory has not processed, as
// far as is known here, and since when nothing has moved.
func waits(held *spool.State) (int64, time.Time) {
	uploaded := int64(0)
	if held.Applied != nil {
		uploaded = held.Applied.Lines
	}
	lines := max(held.Head.Lines-uploaded, 0) + held.Processed.Lag
	since := held.Oldest()
	if held.Processed.At.After(since) {
		since = held.Processed.At
	}
	if since.IsZero() {
		since = held.FirstNote
	}
	return lines, since
}

func day(at time.Time) string { return at.UTC().Format(time.DateOnly) }

// ago says how long a time is, in one unit.
func ago(d time.Duration) string {
	switch {
	case d < time.Hour:
		return fmt.Sprintf("%d min", int(d/time.Minute))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", int(d/time.Hour))
	}
	return fmt.Sprintf("%d days", int(d/(24*time.Hour)))
}

// lookForUnheard looks for transcripts that grow while no hook is called. A
// project's settings can switch hooks off; that is its right, and the person
// should know.
func (l *loop) lookForUnheard() {
	now := l.clock.Now()
	if now.Sub(l.listened).Abs() < silentEvery {
		return
	}
	l.listened = now
	message := ""
	if n := l.unheard(now); n > 0 {
		what := "1 session was"
		if n > 1 {
			what = fmt.Sprintf("%d sessions were", n)
		}
		message = what + " written in the last hour without a call of the hook, and nothing of it is recorded: " +
			"hooks may be disabled there (disableAllHooks in the project's settings, or --bare), or it began before they were installed"
	}
	l.trouble.Set(partHooks, message)
}

// unheard counts the transcripts that grew within the hour and that no note
// spoke of meanwhile.
func (l *loop) unheard(now time.Time) int {
	n := 0
	for _, folder := range l.projectFolders() {
		files, err := os.ReadDir(folder)
		if err != nil {
			continue // gone
		}
		for _, file := range files {
			id, isTranscript := strings.CutSuffix(file.Name(), ".jsonl")
			info, err := file.Info()
			if !isTranscript || note.IsOff(l.home, id) || err != nil || !info.Mode().IsRegular() || now.Sub(info.ModTime()) > time.Hour {
				continue
			}
			if info.ModTime().Sub(l.lastNote(id)) > silentFor {
				n++
			}
		}
	}
	return n
}

// lastNote returns when a note last spoke of a session. One of which this
// process knows nothing better may have been spoken of until it started.
func (l *loop) lastNote(id string) time.Time {
	if at, ok := l.active[id]; ok {
		return at
	}
	return l.began
}

// projectFolders are the folders of transcripts, beside those that notes named.
func (l *loop) projectFolders() []string {
	var roots, folders []string
	for _, session := range l.spool.Sessions() {
		held := session.State()
		if root := filepath.Dir(filepath.Dir(held.Transcript)); held.Transcript != "" && !slices.Contains(roots, root) {
			roots = append(roots, root)
		}
	}
	for _, root := range roots {
		if filepath.Base(root) != "projects" {
			continue // not a place that holds transcripts only
		}
		entries, err := os.ReadDir(root)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			l.log.Info("The folders of transcripts cannot be listed", "error", err)
		}
		for _, e := range entries {
			if e.IsDir() {
				folders = append(folders, filepath.Join(root, e.Name()))
			}
		}
	}
	return folders
}
