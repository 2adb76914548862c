package daemon

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/undersong-dev/undersong/agent/consent"
	"github.com/undersong-dev/undersong/agent/read"
	"github.com/undersong-dev/undersong/agent/spool"
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
	finder   *consent.Finder
	settings *settings
	view     *status.View

	// places are those of the session that is read, for folders that are gone.
	places map[string]spool.Folder

	// team are the team's own redaction rules, as begin found them.
	team []redact.Rule
	// own are redactors with the team's rules or a repository's expressions. They
	// belong to the loop.
	own map[string]*redact.Redactor
}

// maxOwn bounds the redactors that are kept.
const maxOwn = 32

func newConsent(s *settings, view *status.View) *rules {
	return &rules{finder: &consent.Finder{}, settings: s, view: view}
}

// decide answers for one record.
func (r *rules) decide(cwd, entrypoint string) read.Verdict {
	hears := r.view.Hears()
	if strings.HasPrefix(entrypoint, "sdk-") && !hears.Headless {
		return read.Verdict{Reason: reasonHeadless}
	}
	include, exclude, _ := r.view.Capture() // unknown: nothing matches
	facts, err := r.facts(cwd)
	switch {
	case errors.Is(err, consent.ErrGone):
		return read.Verdict{Reason: consent.ReasonGone}
	case err != nil:
		return read.Verdict{Reason: consent.ReasonNoFolder}
	}
	d := facts.Decide(TeamRules(include, exclude, r.settings.config.Exclude, hears))
	if !d.Allowed {
		return read.Verdict{Reason: d.Reason, Root: facts.Project.Root}
	}
	verdict := read.Verdict{Allowed: true, Root: facts.Project.Root, Project: read.Project{Name: d.Project.Name, Remote: d.Project.Remote}}
	if len(d.Redact) > 0 {
		var err error
		if verdict.Redactor, err = r.redactor(d.Redact); err != nil {
			return read.Verdict{Reason: consent.ReasonOptOutFile, Root: facts.Project.Root}
		}
	}
	return verdict
}

// redactor returns the redactor of a repository under the team's rules of this
// batch.
func (r *rules) redactor(expressions []string) (*redact.Redactor, error) {
	key := strings.Join(expressions, "\x00") + "\x00\x00" + fmt.Sprintf("%#v", r.team)
	if known := r.own[key]; known != nil {
		return known, nil
	}
	made, err := consent.Redactor(expressions, r.team...)
	if err != nil {
		return nil, err
	}
	if r.own == nil || len(r.own) >= maxOwn {
		r.own = map[string]*redact.Redactor{}
	}
	r.own[key] = made
	return made, nil
}

// begin takes the team's rules as they are now, for one batch, and returns the
// redactor of what is in no repository with rules of its own. places are those that
// the session was in. It fails while they
// cannot be used: then nothing is read, and so nothing is lost.
func (r *rules) begin(builtIn *redact.Redactor, places map[string]spool.Folder) (*redact.Redactor, error) {
	r.places = places
	r.team = r.view.Rules()
	if len(r.team) == 0 {
		return builtIn, nil
	}
	return r.redactor(nil)
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
