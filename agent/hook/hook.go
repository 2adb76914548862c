package hook

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/undersong-dev/undersong/agent/internal/object"
	"github.com/undersong-dev/undersong/agent/note"
	"github.com/undersong-dev/undersong/agent/whisper"
	"github.com/undersong-dev/undersong/internal/crash"
)

// Events that the hook knows. It notes nothing of others.
const (
	SessionStart     = "SessionStart"
	UserPromptSubmit = "UserPromptSubmit"
	PreToolUse       = "PreToolUse"
	Stop             = "Stop"
	SubagentStop     = "SubagentStop"
	PreCompact       = "PreCompact"
	SessionEnd       = "SessionEnd"
)

// Events returns the events that the hook is to be registered for, in the order
// of a session.
func Events() []string {
	return []string{SessionStart, UserPromptSubmit, PreToolUse, SubagentStop, PreCompact, Stop, SessionEnd}
}

// maxVariable bounds a variable of the environment that is noted, in bytes.
const maxVariable = 4 << 10

// Env is what the hook takes from outside, besides the environment.
type Env struct {
	// Now is the clock.
	Now func() time.Time
	// Home is the state directory, see note.HookHome. Without it nothing is done.
	Home string
}

// Run reads one event from in and answers it on out. It always reads in to its
// end, and it never fails: what goes wrong is left out and, where there is a
// configuration, noted in hook.log. Of the environment, which a repository's
// settings can set, it reads CLAUDE_CODE_ENTRYPOINT, CLAUDE_ENV_FILE, CLAUDE_PID,
// CLAUDE_PROJECT_DIR, LETTA_MODE, LETTA_HOME and UNDERSONG_SESSION.
func Run(in io.Reader, out io.Writer, env Env) {
	// A fault of ours must not stop a person's work.
	defer func() { _ = recover() }()

	home := env.Home
	config, state := configured(home)
	if state == unconfigured {
		_, _ = io.Copy(io.Discard, in) // else the agent finds its pipe closed
		return
	}
	event, err := readInput(in)
	// Not in local time: that would read the time zone from the disk.
	h := call{input: event, home: home, config: config, at: env.Now().UTC()}
	if state == off {
		if err == nil && note.ValidSession(event.session) && known(event.event) {
			h.markOff()
		}
		return
	}
	switch {
	case err != nil:
		h.log("read stdin", err)
	case !note.ValidSession(event.session):
		h.log("read stdin", errSession)
	case known(event.event) && h.first():
		h.answer(out)
	}
}

// state says what a hook has to do.
type state int

const (
	// unconfigured: nothing. What is wrong with a configuration, undersong
	// status tells.
	unconfigured state = iota
	// off: nothing, except that what is said meanwhile must not be heard later.
	off
	// on: everything.
	on
)

// configured returns the configuration, and what there is to do.
func configured(home string) (note.Config, state) {
	if !filepath.IsAbs(home) {
		return note.Config{}, unconfigured
	}
	if strings.EqualFold(strings.TrimSpace(os.Getenv("LETTA_MODE")), "off") {
		return note.Config{}, off // see markOff
	}
	config, err := note.LoadConfig(home)
	switch {
	case err != nil:
		return note.Config{}, unconfigured
	case config.Off:
		return config, off
	}
	return config, on
}

// markOff notes, once, that the session is switched off, and how large its
// transcript was then: the daemon, which hears nothing of it now, may read the
// transcript later. Only where there is no mark is the configuration needed:
// where init has not run nothing will ever be read.
func (h call) markOff() {
	if note.IsOff(h.home, h.session) {
		return
	}
	config, err := note.LoadConfig(h.home)
	if err != nil || config.ConsentedAt.IsZero() {
		return
	}
	if err := note.BeginOff(h.home, h.session, h.transcript, h.at); err != nil {
		h.log("mark session off", err)
	}
}

func known(event string) bool {
	switch event {
	case SessionStart, UserPromptSubmit, PreToolUse, Stop, SubagentStop, PreCompact, SessionEnd:
		return true
	}
	return false
}

// call is one call of the hook.
type call struct {
	input
	home   string
	config note.Config
	at     time.Time
}

// answer leaves the note, sees to the daemon, and prints.
func (h call) answer(out io.Writer) {
	if err := note.EndOff(h.home, h.session, h.transcript, h.at); err != nil {
		h.log("mark session on", err)
	}
	if err := note.Write(h.home, h.note()); err != nil {
		h.log("write note", err)
	}
	crash.Point(crash.HookNoteWritten)
	if err := h.leaveMarker(); err != nil {
		h.log("mark the shells of the session", err)
	}
	if err := h.wakeDaemon(); err != nil {
		h.log("start daemon", err)
	}
	if !h.speaks() {
		return
	}
	line, err := h.whispers()
	if err != nil {
		h.log("recall", err)
	}
	if len(line) > 0 {
		if _, err := out.Write(line); err != nil {
			h.log("print", err) // the daemon finds that it did not arrive
		}
	}
}

func (h call) note() note.Note {
	return note.Note{
		Event:           h.event,
		Session:         h.session,
		Transcript:      h.transcript,
		Cwd:             h.cwd,
		ProjectDir:      variable("CLAUDE_PROJECT_DIR"),
		Source:          h.source,
		Reason:          h.reason,
		AgentID:         h.agentID,
		AgentTranscript: h.agentTranscript,
		Notification:    h.notification,
		Entrypoint:      variable("CLAUDE_CODE_ENTRYPOINT"),
		Nested:          h.nested(),
		LettaMode:       variable("LETTA_MODE"),
		LettaHome:       variable("LETTA_HOME"),
		At:              h.at,
	}
}

// variable returns a variable of the environment, or nothing if it is too long
// to be what it should be.
func variable(name string) string {
	if v := os.Getenv(name); len(v) <= maxVariable {
		return v
	}
	return ""
}

// speaks reports whether output of this call would reach the agent and do
// nothing else. A notification's prompt is read by nobody; its whispers would
// be spent.
func (h call) speaks() bool {
	if h.agentID != "" || h.notification {
		return false
	}
	switch h.event {
	case SessionStart, UserPromptSubmit, PreToolUse:
		return true
	}
	return false
}

// output returns what Claude Code reads: a line with what the person sees and
// what the agent is given, each unless it is empty. There is no decision in it.
func output(event, notices, text string) []byte {
	var o object.Writer
	o.Some("systemMessage", notices)
	if text != "" {
		var specific object.Writer
		specific.String("hookEventName", event)
		specific.String("additionalContext", text)
		o.Object("hookSpecificOutput", &specific)
	}
	return append(o.Bytes(), '\n')
}

// bypass is the permission mode in which nobody is asked before a tool runs.
const bypass = "bypassPermissions"

// recall says what may be shown at this call, as far as team, person and
// session are concerned. What was learned may come from a repository that
// somebody poisoned: where permissions are bypassed it is not shown, nor at an
// event that does not say whether they are.
func (h call) recall(policy note.Policy) note.Recall {
	if h.permissionMode == bypass || h.event == SessionStart && h.permissionMode == "" {
		return note.RecallOff
	}
	return note.Narrow(policy.Mode, h.config.Recall, note.Recall(variable("LETTA_MODE")))
}

// begin lets the blocks wait that a session with a fresh context is shown. One
// that is resumed or forked has them in its context.
func (h call) begin(policy note.Policy, mode note.Recall) error {
	if h.event == SessionStart {
		fresh := h.source == "startup" || h.source == "clear" || h.source == "compact"
		if !fresh || policy.Mode == note.RecallOff || policy.Mode == note.RecallWhisper {
			return nil
		}
		if err := whisper.Started(h.home, h.session, h.at); err != nil {
			return err
		}
	}
	return whisper.Begin(h.home, h.session, h.cwd, mode)
}

const (
	// deafAfter is how old a note is that no daemon will take any more.
	deafAfter = 10 * time.Minute
	deafLine  = "undersong: its daemon does not start, so nothing is sent; nothing is lost meanwhile (undersong status)"
)

// deaf reports, at the start of a session, whether no daemon has taken the notes
// of earlier hooks: it cannot say so itself.
func (h call) deaf() bool {
	if h.event != SessionStart || locked(filepath.Join(h.home, LockFile)) {
		return false
	}
	oldest := note.Oldest(h.home)
	return !oldest.IsZero() && h.at.Sub(oldest) > deafAfter
}

// whispers claims what waits and returns the line to print, or nothing. With an
// error, too, there may be a line.
func (h call) whispers() ([]byte, error) {
	policy := note.LoadPolicy(h.home)
	mode := h.recall(policy)
	if _, paused := note.RecallPaused(h.home, h.at); paused {
		mode = note.RecallOff
	}
	errs := []error{h.begin(policy, mode)}
	if h.event == UserPromptSubmit {
		errs = append(errs, whisper.Prompted(h.home, h.session))
	}
	// Before a tool call, a line for the person alone would be noise: it waits
	// for the next prompt.
	limit := whisper.Limit{
		Chars: policy.MaxCharacters, TextOnly: h.event == PreToolUse, Mode: mode,
		Wish: func() note.Recall {
			place, _ := whisper.FindPlace(h.home, h.cwd)
			return place.Recall
		},
	}
	text, notices, claimed, err := whisper.Claim(h.home, h.session, h.at, limit)
	errs = append(errs, err)
	if len(claimed) > 0 {
		crash.Point(crash.HookWhisperClaimed)
	}
	if h.deaf() {
		notices = strings.TrimPrefix(notices+"; "+deafLine, "; ")
	}
	if notices == "" && text == "" {
		return nil, errors.Join(errs...)
	}
	return output(h.event, notices, text), errors.Join(errs...)
}
