package cli

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/undersong-dev/undersong/agent/consent"
	"github.com/undersong-dev/undersong/agent/daemon"
	"github.com/undersong-dev/undersong/agent/note"
	"github.com/undersong-dev/undersong/agent/spool"
	"github.com/undersong-dev/undersong/agent/status"
)

// here says whether a session in the folder of this command is recorded now.
type here struct {
	// Recorded says whether it is; Reason why not, in words for people.
	Recorded bool   `json:"recorded"`
	Reason   string `json:"reason,omitempty"`

	// Folder is the folder, Project what it is in.
	Folder  string `json:"folder"`
	Project string `json:"project,omitempty"`

	// Team and Memory hear it. Since is from when on it is as it is; Until when
	// that ends by itself.
	Team   string    `json:"team,omitempty"`
	Memory string    `json:"memory,omitempty"`
	Since  time.Time `json:"since,omitzero"`
	Until  time.Time `json:"until,omitzero"`

	// Session is the session that was looked at; empty without one.
	Session string `json:"session,omitempty"`

	// RecallPaused says that the user wants to be shown nothing.
	RecallPaused bool      `json:"recallPaused"`
	RecallUntil  time.Time `json:"recallUntil,omitzero"`
}

// Variables that say in which session a command runs. The agent sets its own for
// each command; ours was left at the start of a session, perhaps an outer one.
var sessionVariables = []string{"CLAUDE_CODE_SESSION_ID", "UNDERSONG_SESSION"}

// thisSession returns the session that this command is run in, else the newest
// one of this project, and which of both it is.
func (s *System) thisSession(home string) (id, how string) {
	for _, name := range sessionVariables {
		if id := s.Getenv(name); note.ValidSession(id) {
			return strings.ToLower(id), "the one that this command runs in"
		}
	}
	cwd, err := os.Getwd()
	if err != nil {
		return "", ""
	}
	finder := &consent.Finder{}
	project, err := finder.Project(cwd)
	if err != nil {
		return "", ""
	}
	var newest time.Time
	for _, state := range spool.States(filepath.Join(home, daemon.SessionsDir)) {
		its, err := finder.Project(state.Cwd)
		if err != nil || its.Remote != project.Remote {
			continue
		}
		at := state.FirstNote // until there is a transcript
		if info, err := os.Stat(state.Transcript); err == nil && info.ModTime().After(at) {
			at = info.ModTime()
		}
		if id == "" || at.After(newest) {
			id, newest = state.SessionID, at
		}
	}
	return id, "the newest one of this project"
}

// here looks at the folder of this command. It asks nobody.
func (s *System) here(home string, config note.Config) *here {
	h := &here{Team: config.Namespace, Memory: config.Memory, Since: config.ConsentedAt}
	now := s.Clock.Now()
	if pause, paused := note.RecallPaused(home, now); paused {
		h.RecallPaused, h.RecallUntil = true, pause.Until
	}
	h.Folder, _ = os.Getwd() // a folder that is gone is none
	finder := &consent.Finder{}
	if project, err := finder.Project(h.Folder); err == nil {
		h.Project = project.Remote
	}
	h.Session, _ = s.thisSession(home)
	h.Reason = s.unheard(home, config, finder, h)
	h.Recorded = h.Reason == ""
	return h
}

// unheard returns why nothing is recorded here, "" if it is.
func (s *System) unheard(home string, config note.Config, finder *consent.Finder, h *here) string {
	now := s.Clock.Now()
	switch {
	case config.ConsentedAt.IsZero():
		return "you have not agreed to be heard; run undersong init"
	case config.Off:
		h.Since = time.Time{}
		return "switched off in config.json"
	case strings.EqualFold(strings.TrimSpace(s.Getenv("LETTA_MODE")), "off"):
		h.Since = time.Time{}
		return "switched off by LETTA_MODE"
	}
	if where := s.disabled(); where != "" {
		h.Since = time.Time{}
		return "disableAllHooks is set in " + where
	}
	known, err := consent.LoadSilences(home)
	if err != nil {
		h.Since = time.Time{}
		return err.Error()
	}
	for i := range known.List {
		one := &known.List[i]
		if one.Session != "" && one.Session != h.Session {
			continue
		}
		if !one.Open(now) {
			if one.Reason != consent.ReasonForgotten && one.Until.After(h.Since) {
				h.Since = one.Until
			}
			continue
		}
		h.Since, h.Until = one.Since, one.Until
		if one.Reason == consent.ReasonPrivate {
			return "this session is private"
		}
		return "paused"
	}
	if h.Session != "" && note.IsOff(home, h.Session) {
		h.Since = time.Time{}
		return "this session is switched off"
	}
	view := status.OpenView(home)
	include, exclude, seen := view.Capture()
	if !seen {
		h.Since = time.Time{}
		return "what the team allows is not known yet"
	}
	rules := daemon.TeamRules(include, exclude, config.Exclude, view.Hears())
	if d := finder.Decide(h.Folder, rules); !d.Allowed {
		h.Since = time.Time{}
		if d.Reason == consent.ReasonOptOutFile {
			if err := consent.CheckFile(d.Project.Root); err != nil {
				return d.Reason + ": " + err.Error()
			}
		}
		return d.Reason
	}
	return ""
}

// render is one line for people.
func (h *here) render() string {
	text := "not recorded: " + safe(h.Reason)
	if h.Recorded {
		text = fmt.Sprintf("recorded for team %s, memory %s, as %s", safe(h.Team), safe(h.Memory), safe(cmp.Or(h.Project, h.Folder)))
	}
	if !h.Since.IsZero() {
		text += ", since " + clockTime(h.Since)
	}
	if !h.Until.IsZero() {
		text += ", until " + clockTime(h.Until)
	} else if h.Reason == "paused" {
		text += "; to go on: undersong resume"
	}
	if h.RecallPaused {
		text += "; the memory shows nothing"
		if !h.RecallUntil.IsZero() {
			text += " until " + clockTime(h.RecallUntil)
		}
	}
	return text
}
