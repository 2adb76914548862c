package transcript

import (
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
	// ForkedFrom is the id of the session this one was copied from.
	ForkedFrom string `json:"forkedFrom,omitempty"`

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
	if r.Branch != "" {
		s.Branch = r.Branch
	}
	if r.Cwd != "" {
		s.Cwd = r.Cwd
	}
	if r.ForkedFrom != "" {
		s.ForkedFrom = r.ForkedFrom
	}
	title, value := jsonline.Text(r.raw, r.title), jsonline.Text(r.raw, r.value)
	switch r.Type {
	case "custom-title":
		s.title(title, CustomTitle)
	case "ai-title":
		s.title(title, AITitle)
	case "summary":
		s.summary(summary{leaf: value, text: title})
	case "tag":
		s.Tag = value
	case "pr-link":
		s.pullRequest(r, value)
	case "relocated":
		if value != "" {
			s.Cwd = value
		}
	}
}

// Equal reports whether both say the same about their session. What they
// remember of records does not count.
func (s State) Equal(other State) bool {
	return s.Title == other.Title && s.TitleSource == other.TitleSource && s.Tag == other.Tag && s.PullRequest == other.PullRequest &&
		s.Branch == other.Branch && s.Cwd == other.Cwd && s.ForkedFrom == other.ForkedFrom
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

func (s *State) pullRequest(r Record, url string) {
	if url != "" {
		s.PullRequest = url
		return
	}
	number := member(r.raw, jsonline.Next(r.raw, 0), "prNumber")
	if number.Kind == jsonline.Number {
		s.PullRequest = jsonline.Text(r.raw, r.repository) + "#" + string(r.raw[number.Start:number.End])
	}
}
