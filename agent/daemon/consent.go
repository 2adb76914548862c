package daemon

import (
	"slices"
	"strings"

	"github.com/undersong-dev/undersong/agent/consent"
	"github.com/undersong-dev/undersong/agent/note"
	"github.com/undersong-dev/undersong/agent/read"
	"github.com/undersong-dev/undersong/agent/status"
	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/internal/transcript"
)

// reasonHeadless is given for records that no person's terminal made.
const reasonHeadless = "headless"

// rules decides what may be heard, from the team's globs as they are now, the
// user's own, and the repository's wish.
type rules struct {
	finder *consent.Finder
	config note.Config
	view   *status.View
}

func newConsent(config note.Config, view *status.View) *rules {
	return &rules{finder: &consent.Finder{}, config: config, view: view}
}

// decide answers for one record.
func (r *rules) decide(cwd, entrypoint string) read.Verdict {
	hears := r.view.Hears()
	if strings.HasPrefix(entrypoint, "sdk-") && !hears.Headless {
		return read.Verdict{Reason: reasonHeadless}
	}
	include, exclude, _ := r.view.Capture() // unknown: nothing matches
	d := r.finder.Decide(cwd, TeamRules(include, exclude, r.config.Exclude, hears))
	if !d.Allowed {
		return read.Verdict{Reason: d.Reason}
	}
	return read.Verdict{Allowed: true, Project: read.Project{Name: d.Project.Name, Remote: d.Project.Remote}}
}

// policy is what the team hears besides words.
func (r *rules) policy() transcript.Policy {
	hears := r.view.Hears()
	p := transcript.Policy{Thinking: hears.Thinking}
	switch hears.ToolResults {
	case v1alpha1.ToolResultsAll:
		p.ToolResults = transcript.AllResults
	case v1alpha1.ToolResultsNone:
		p.ToolResults = transcript.NoResults
	case v1alpha1.ToolResultsLocal:
	}
	return p
}

// TeamRules are the rules of a team and a user.
func TeamRules(include, exclude, own []string, hears status.Capture) consent.Rules {
	return consent.Rules{Include: include, Exclude: slices.Concat(exclude, own), Outside: hears.OutsideGit}
}
