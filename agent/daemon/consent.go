package daemon

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/undersong-dev/undersong/agent/consent"
	"github.com/undersong-dev/undersong/agent/note"
	"github.com/undersong-dev/undersong/agent/read"
	"github.com/undersong-dev/undersong/agent/status"
	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/internal/redact"
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

	mu sync.Mutex
	// own are redactors with the team's rules or a repository's expressions.
	own map[string]made
}

// maxOwn bounds the redactors that are kept.
const maxOwn = 32

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
	team := r.view.Rules()
	if len(team) > 0 {
		if _, err := r.redactor(nil, team); err != nil {
			return read.Verdict{Reason: consent.ReasonTeamRules}
		}
	}
	verdict := read.Verdict{Allowed: true, Project: read.Project{Name: d.Project.Name, Remote: d.Project.Remote}}
	if len(d.Redact) > 0 {
		var err error
		if verdict.Redactor, err = r.redactor(d.Redact, team); err != nil {
			return read.Verdict{Reason: consent.ReasonOptOutFile}
		}
	}
	return verdict
}

// made is a redactor, or why there is none.
type made struct {
	redactor *redact.Redactor
	err      error
}

// redactor returns the redactor of a repository under the team's rules as they
// are now.
func (r *rules) redactor(expressions []string, team []redact.Rule) (*redact.Redactor, error) {
	key := strings.Join(expressions, "\x00") + "\x00\x00" + fmt.Sprintf("%#v", team)
	r.mu.Lock()
	defer r.mu.Unlock()
	known, ok := r.own[key]
	if !ok {
		known.redactor, known.err = consent.Redactor(expressions, team...)
		if r.own == nil || len(r.own) >= maxOwn {
			r.own = map[string]made{}
		}
		r.own[key] = known
	}
	return known.redactor, known.err
}

// base returns the redactor of what is in no repository with rules of its own,
// and of texts about a session. While the team's rules cannot be used nothing is
// heard, and the built-in ones are all that is left for the rest.
func (r *rules) base(builtIn *redact.Redactor) *redact.Redactor {
	team := r.view.Rules()
	if len(team) == 0 {
		return builtIn
	}
	if own, err := r.redactor(nil, team); err == nil {
		return own
	}
	return builtIn
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
