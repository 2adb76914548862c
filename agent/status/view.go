package status

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/undersong-dev/undersong/agent/internal/durable"
	"github.com/undersong-dev/undersong/agent/note"
	"github.com/undersong-dev/undersong/agent/spool"
	"github.com/undersong-dev/undersong/agent/whisper"
	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/internal/redact"
)

const (
	viewFile = note.PolicyFile
	maxView  = 1 << 20

	// defaultCharacters is what TeamMemory.spec.recall.maxCharacters means when
	// it is omitted.
	defaultCharacters = 4000

	// defaultSessionDays is the same of TeamMemory.spec.retention.sessionDays.
	defaultSessionDays = 30

	// aheadOfUs is how much earlier than by this computer's clock a Session may
	// expire.
	aheadOfUs = time.Hour
)

// View is what the workstation knows of the team's memory. It is kept in the
// state directory, so that a session without network is heard under the policy
// last seen. Its methods may be called from several goroutines.
type View struct {
	path string

	mu     sync.Mutex
	saved  []byte
	policy *policy
}

// policy is the part of a TeamMemory that a workstation acts on.
type policy struct {
	Version       int         `json:"version"`
	Include       []string    `json:"include"`
	Exclude       []string    `json:"exclude,omitempty"`
	Capture       Capture     `json:"capture,omitzero"`
	Recall        bool        `json:"recall"`
	Mode          note.Recall `json:"mode"`
	MaxCharacters int32       `json:"maxCharacters"`

	// Redact are the team's own rules.
	Redact []redact.Rule `json:"redact,omitempty"`

	// Team says that all projects share one memory.
	Team bool `json:"team,omitempty"`

	// SessionDays is how long the cluster keeps a Session; 0 means what a
	// TeamMemory means that says nothing.
	SessionDays int32 `json:"sessionDays,omitempty"`
}

// Capture is what the team hears besides its projects' words. What is not known
// is not heard.
type Capture struct {
	// Headless, OutsideGit and Thinking are heard.
	Headless   bool `json:"headless,omitempty"`
	OutsideGit bool `json:"outsideGit,omitempty"`
	Thinking   bool `json:"thinking,omitempty"`
	// ToolResults says of which tools; empty means Local.
	ToolResults v1alpha1.ToolResults `json:"toolResults,omitempty"`
	// HideTitles leaves empty what the whole team could read of a session.
	HideTitles bool `json:"hideTitles,omitempty"`
}

// OpenView reads what was last seen. A file that cannot be read is as good as
// none: the cluster tells again.
func OpenView(home string) *View {
	v := &View{path: filepath.Join(home, viewFile)}
	data, err := durable.ReadFile(v.path, maxView)
	if err != nil {
		return v
	}
	var p policy
	if json.Unmarshal(data, &p) == nil && p.Version == 1 {
		v.saved, v.policy = data, &p
	}
	return v
}

// ForgetView forgets what was last seen, for a workstation that joins another
// memory, and with it what the memory held.
func ForgetView(home string) error {
	if err := whisper.ForgetMemories(home); err != nil {
		return err
	}
	if err := durable.Remove(filepath.Join(home, viewFile)); err != nil {
		return fmt.Errorf("forget the memory's policy: %w", err)
	}
	return nil
}

// See takes the memory as the cluster has it; nil when there is none. It says
// whether what may be heard, or where it is kept, changed, and whether more may be shown than before.
func (v *View) See(memory *v1alpha1.TeamMemory) (heard, shown bool, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	before := v.policy
	if memory == nil {
		v.policy, v.saved = nil, nil
		if err := durable.Remove(v.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return before != nil, false, fmt.Errorf("forget the memory's policy: %w", err)
		}
		return before != nil, false, nil
	}
	now := policyOf(memory)
	data, err := json.MarshalIndent(now, "", "  ")
	if err != nil {
		return false, false, fmt.Errorf("record the memory's policy: %w", err)
	}
	if bytes.Equal(data, v.saved) {
		return false, false, nil
	}
	v.policy = &now
	heard = before == nil || !slices.Equal(before.Include, now.Include) || !slices.Equal(before.Exclude, now.Exclude) ||
		before.Capture != now.Capture || before.Team != now.Team || !slices.Equal(before.Redact, now.Redact)
	shown = now.Recall && (before == nil || !before.Recall || before.Mode != now.Mode)
	if err := durable.WriteFile(v.path, data); err != nil {
		return heard, shown, fmt.Errorf("record the memory's policy: %w", err)
	}
	v.saved = data
	return heard, shown, nil
}

// Capture returns the globs of what may be heard, and false while nothing is
// known of the memory: then nothing is read, and nothing is lost.
func (v *View) Capture() (include, exclude []string, known bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.policy == nil {
		return nil, nil, false
	}
	return v.policy.Include, v.policy.Exclude, true
}

// Hears returns what is heard besides words, as far as it is known.
func (v *View) Hears() Capture {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.policy == nil {
		return Capture{}
	}
	return v.policy.Capture
}

// Expired says whether a Session that is not there any more was deleted because
// its time was over, and not by a person: nothing new of it reached the cluster
// for as long as the team keeps Sessions.
func (v *View) Expired(state *spool.State, now time.Time) bool {
	last := state.LastActive()
	if last.IsZero() {
		return false
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	days := int32(0)
	if v.policy != nil {
		days = v.policy.SessionDays
	}
	return now.Sub(last) >= time.Duration(cmp.Or(days, defaultSessionDays))*24*time.Hour-aheadOfUs
}

// Rules returns the team's own redaction rules, as far as they are known.
func (v *View) Rules() []redact.Rule {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.policy == nil {
		return nil
	}
	return v.policy.Redact
}

// Recall says whether whispers may be shown, and in how many characters.
func (v *View) Recall() (bool, int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.policy == nil {
		return false, defaultCharacters
	}
	return v.policy.Recall, int(v.policy.MaxCharacters)
}

// Mode says what may be shown.
func (v *View) Mode() note.Recall {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.policy == nil || !v.policy.Recall {
		return note.RecallOff
	}
	return v.policy.Mode
}

// Key returns under which project the blocks are that a project is shown.
func (v *View) Key(remote string) string {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.policy != nil && v.policy.Team {
		return teamKey
	}
	return remote
}

// modes are those of a TeamMemory. Omitted means brief.
var modes = map[v1alpha1.RecallMode]note.Recall{
	"":                     note.RecallBrief,
	v1alpha1.RecallBrief:   note.RecallBrief,
	v1alpha1.RecallWhisper: note.RecallWhisper,
	v1alpha1.RecallFull:    note.RecallFull,
	v1alpha1.RecallOff:     note.RecallOff,
}

func rulesOf(memory *v1alpha1.TeamMemory) []redact.Rule {
	var rules []redact.Rule
	for _, r := range memory.Spec.Capture.Redact {
		rules = append(rules, redact.Rule{Name: r.Name, Pattern: r.Pattern, Allow: r.Effect == v1alpha1.RedactionAllow})
	}
	return rules
}

func policyOf(memory *v1alpha1.TeamMemory) policy {
	p := policy{
		Redact:  rulesOf(memory),
		Version: 1,
		Include: memory.Spec.Capture.Projects.Include,
		Exclude: memory.Spec.Capture.Projects.Exclude,
		Capture: Capture{
			Headless:    memory.Spec.Capture.Headless == v1alpha1.AllowanceAllow,
			OutsideGit:  memory.Spec.Capture.OutsideGit == v1alpha1.AllowanceAllow,
			Thinking:    memory.Spec.Capture.Thinking == v1alpha1.AllowanceAllow,
			ToolResults: memory.Spec.Capture.ToolResults,
			HideTitles:  memory.Spec.Capture.Titles == v1alpha1.TitlesHide,
		},
		Recall: memory.Spec.Recall.Mode != v1alpha1.RecallOff &&
			memory.Spec.Suspend != v1alpha1.SuspendRecall && memory.Spec.Suspend != v1alpha1.SuspendAll,
		Mode:          note.RecallWhisper, // of a later version: the least of what was said to be shown
		MaxCharacters: defaultCharacters,
		Team:          memory.Spec.Scope == v1alpha1.ScopeTeam,
	}
	if mode, known := modes[memory.Spec.Recall.Mode]; known {
		p.Mode = mode
	}
	if n := memory.Spec.Recall.MaxCharacters; n != nil {
		p.MaxCharacters = *n
	}
	if n := memory.Spec.Retention.SessionDays; n != nil {
		p.SessionDays = *n
	}
	return p
}
