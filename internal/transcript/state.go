package transcript

import (
	"reflect"
	"slices"

	"github.com/undersong-dev/undersong/internal/redact/jsonline"
)

// TitleSource says where a title comes from; a later one outranks an earlier.
type TitleSource int

// Sources of titles.
const (
	NoTitle TitleSource = iota
	// SummaryTitle is what older releases wrote about a session.
	SummaryTitle
	// AITitle is the program's.
	AITitle
	// CustomTitle is a person's.
	CustomTitle
)

// State is what the records say about a session as a whole. The last record
// that says something wins. It is raw text: nothing of it has been redacted.
type State struct {
	// Title is the last title of the highest source, TitleSource that source.
	Title       string      `json:"title,omitempty"`
	TitleSource TitleSource `json:"titleSource,omitempty"`
	// Tag is the label a person gave the session.
	Tag string `json:"tag,omitempty"`
	// PullRequest is the URL of a pull request, or repository#number.
	PullRequest string `json:"pullRequest,omitempty"`
	// Branch and Cwd are the last git branch and working directory. Branch is
	// "HEAD" while no branch is checked out.
	Branch string `json:"branch,omitempty"`
	Cwd    string `json:"cwd,omitempty"`
	// Worktree is the folder of the git worktree that the session works in, ""
	// outside of one.
	Worktree string `json:"worktree,omitempty"`
	// Relocated is the folder to which the session was moved last.
	Relocated string `json:"relocated,omitempty"`
	// Mode and PermissionMode are those the session ran in last.
	Mode           string `json:"mode,omitempty"`
	PermissionMode string `json:"permissionMode,omitempty"`
	// LastPrompt is the beginning of the last prompt, as the program noted it. It
	// repeats a person's words and says nothing of where they were said.
	LastPrompt string `json:"lastPrompt,omitempty"`
	// ForkedFrom is the id of the session this one was copied from, ContinuedIn
	// that of the one in which it goes on.
	ForkedFrom  string `json:"forkedFrom,omitempty"`
	ContinuedIn string `json:"continuedIn,omitempty"`

	recent    []string  // uuids of the last records
	summaries []summary // whose record was not seen yet
}

// summary is a title that belongs to the session whose file holds leaf.
type summary struct{ leaf, text string }

const (
	recentSize   = 1024
	pendingLimit = 64
)

// Fold takes a record of the main file into account. Records of another session
// and of agents are none of this session's state. A summary counts when the
// record it names comes later in the file, or is one of the 1024 before it that
// this State has seen.
func (s *State) Fold(r Record, sessionID string) {
	if !r.belongs(MainStream, sessionID) {
		return
	}
	if r.UUID != "" {
		s.see(r.UUID)
	}
	keep(&s.Branch, r.Branch)
	keep(&s.Cwd, r.Cwd)
	keep(&s.ForkedFrom, r.ForkedFrom)
	switch r.Type {
	case "custom-title":
		s.title(r.field("customTitle"), CustomTitle)
	case "ai-title":
		s.title(r.field("aiTitle"), AITitle)
	case "summary":
		s.summary(summary{leaf: r.field("leafUuid"), text: r.field("summary")})
	case "tag":
		s.Tag = r.field("tag")
	case "pr-link":
		s.pullRequest(r)
	case "relocated":
		keep(&s.Relocated, r.field("relocatedCwd"))
		keep(&s.Cwd, r.field("relocatedCwd"))
	case "worktree-state":
		w := member(r.raw, jsonline.Next(r.raw, 0), "worktreeSession")
		s.Worktree = jsonline.Text(r.raw, member(r.raw, w, "worktreePath")) // null is none
	case "mode":
		keep(&s.Mode, r.field("mode"))
	case "permission-mode":
		keep(&s.PermissionMode, r.field("permissionMode"))
	case "last-prompt":
		keep(&s.LastPrompt, r.field("lastPrompt"))
	case "continued-in":
		keep(&s.ContinuedIn, r.field("continuedInSessionId"))
	}
}

// keep replaces what was said by what is said now, if anything is.
func keep(to *string, said string) {
	if said != "" {
		*to = said
	}
}

// Equal reports whether both say the same about their session. What they
// remember of records does not count.
func (s State) Equal(other State) bool {
	for _, state := range []*State{&s, &other} {
		state.recent, state.summaries = nil, nil
	}
	return reflect.DeepEqual(s, other)
}

func (s *State) title(text string, source TitleSource) {
	if !isBlank(text) && source >= s.TitleSource {
		s.Title, s.TitleSource = text, source
	}
}

// see notes that a record is in this file, and takes the summary that was
// waiting for it.
func (s *State) see(uuid string) {
	for i, w := range s.summaries {
		if w.leaf == uuid {
			s.title(w.text, SummaryTitle)
			s.summaries = slices.Delete(slices.Clone(s.summaries), i, i+1)
			break
		}
	}
	if len(s.recent) >= 2*recentSize {
		s.recent = slices.Clone(s.recent[recentSize:])
	}
	s.recent = append(s.recent, uuid)
}

func (s *State) summary(w summary) {
	if w.leaf == "" {
		return
	}
	if slices.Contains(s.recent[max(0, len(s.recent)-recentSize):], w.leaf) {
		s.title(w.text, SummaryTitle)
		return
	}
	if len(s.summaries) < pendingLimit {
		s.summaries = append(s.summaries, w)
	}
}

func (s *State) pullRequest(r Record) {
	if url := r.field("prUrl"); url != "" {
		s.PullRequest = url
		return
	}
	number := member(r.raw, jsonline.Next(r.raw, 0), "prNumber")
	if number.Kind == jsonline.Number {
		s.PullRequest = r.field("prRepository") + "#" + string(r.raw[number.Start:number.End])
	}
}
