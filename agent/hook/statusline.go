package hook

import (
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/undersong-dev/undersong/agent/internal/durable"
	"github.com/undersong-dev/undersong/agent/note"
	"github.com/undersong-dev/undersong/agent/whisper"
)

const (
	// What the daemon and the command line keep of the state of things.
	snapshotFile = "status.json"
	silencesFile = "silence.json"
	maxSnapshot  = 8 << 20
)

// snapshot is what the status line needs of status.json.
type snapshot struct {
	WrittenAt   time.Time `json:"writtenAt"`
	LoginNeeded bool      `json:"loginNeeded"`
	Revoked     bool      `json:"revoked"`
	Sessions    []struct {
		ID      string `json:"id"`
		Project string `json:"project"`
		State   string `json:"state"`
		Lag     int64  `json:"lag"`
	} `json:"sessions"`
}

// StatusLine reads the JSON that Claude Code gives to a status line and prints
// one line: whether the session is recorded, for which team, and what waits. It
// reads two or three files of the state directory and asks nobody. Where init
// has not run it prints nothing.
func StatusLine(in io.Reader, out io.Writer, env Env) {
	// A fault of ours must not take the line away from others.
	defer func() { _ = recover() }()

	event, err := readInput(in)
	home := env.Home
	config, state := configured(home)
	if state == unconfigured || err != nil {
		return
	}
	h := call{input: event, home: home, config: config, at: env.Now().UTC()}
	_, _ = io.WriteString(out, whisper.PlainLine("undersong: "+h.line(state))+"\n") // nobody reads it then
}

// line says how things stand for the session.
func (h call) line(state state) string {
	if state == off {
		return "off"
	}
	if words := h.silence(); words != "" {
		return words
	}
	var s snapshot
	if data, err := durable.ReadFile(filepath.Join(h.home, snapshotFile), maxSnapshot); err == nil {
		_ = json.Unmarshal(data, &s) // a broken one says nothing
	}
	switch {
	case s.Revoked:
		return "revoked (undersong status)"
	case s.LoginNeeded:
		return "login needed (undersong login)"
	}
	for _, session := range s.Sessions {
		if !strings.EqualFold(session.ID, h.session) {
			continue
		}
		switch {
		case session.State == "Deleted":
			return "deleted by a person, not recorded"
		case session.Project == "":
			return "not recorded here"
		case session.Lag > 0:
			return fmt.Sprintf("recorded for %s, %d lines waiting", h.config.Namespace, session.Lag)
		}
		return "recorded for " + h.config.Namespace
	}
	if place, known := whisper.FindPlace(h.home, h.cwd); known && place.Project == "" && place.Recall == note.RecallOff {
		return "not recorded here"
	}
	return "ready, team " + h.config.Namespace
}

// silence says what the person has paused, empty if nothing.
func (h call) silence() string {
	var known struct {
		List []struct {
			Reason  string    `json:"reason"`
			Session string    `json:"session"`
			Until   time.Time `json:"until"`
		} `json:"silences"`
	}
	data, err := durable.ReadFile(filepath.Join(h.home, silencesFile), 8*maxSnapshot)
	if err != nil || json.Unmarshal(data, &known) != nil {
		return "" // there is none, or nothing is read anyway
	}
	for _, one := range known.List {
		open := one.Until.IsZero() || h.at.Before(one.Until)
		if !open || one.Session != "" && !strings.EqualFold(one.Session, h.session) {
			continue
		}
		words := "not recorded, " + one.Reason
		if !one.Until.IsZero() {
			words += " for " + left(one.Until.Sub(h.at))
		}
		return words
	}
	return ""
}

// left says how long something still lasts, in one unit, rounded up.
func left(d time.Duration) string {
	if d > 90*time.Minute {
		return fmt.Sprintf("%d h", int((d+time.Hour-1)/time.Hour))
	}
	return fmt.Sprintf("%d min", int((d+time.Minute-1)/time.Minute))
}
