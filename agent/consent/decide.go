package consent

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/undersong-dev/undersong/agent/internal/durable"
)

// Reasons of decisions: a fixed set, which names no path and no pattern, since
// the whole team sees them beside withheld ranges.
const (
	ReasonIncluded    = "included"
	ReasonNotIncluded = "not included by the team"
	ReasonExcluded    = "excluded"
	ReasonOutside     = "outside a shared repository"
	ReasonOptOut      = "opted out by the repository"
	ReasonOptOutFile  = "opt-out file cannot be read"
	ReasonNoFolder    = "no working directory"
)

// optOutFile, in the root of a repository, can switch capture off there.
const optOutFile = ".undersong.yaml"

// maxOptOut bounds it, in bytes.
const maxOptOut = 64 << 10

// Rules say what may be heard, as far as folders are concerned. The zero value
// allows nothing.
type Rules struct {
	// Include are globs over remotes (see Match). One must match.
	Include []string

	// Exclude are globs of the team and of the user; they win.
	Exclude []string

	// Outside allows what is in no shared repository. The globs are not asked,
	// except that one of Exclude still wins.
	Outside bool
}

// Decision says whether what was said in a folder may be heard.
type Decision struct {
	Allowed bool

	// Reason is one of the reasons of this package.
	Reason string

	// Project is the folder's, also when it is not allowed. Empty without a
	// folder.
	Project Project
}

// Decide answers for one folder, as it is now.
func (f *Finder) Decide(cwd string, rules Rules) Decision {
	project, err := f.Project(cwd)
	if err != nil {
		return Decision{Reason: ReasonNoFolder}
	}
	d := Decision{Project: project}
	switch {
	case matchAny(rules.Exclude, project.Remote):
		d.Reason = ReasonExcluded
	case project.Outside && !rules.Outside:
		d.Reason = ReasonOutside
	case !project.Outside && !matchAny(rules.Include, project.Remote):
		d.Reason = ReasonNotIncluded
	default:
		d.Reason = f.optOut(project.Root)
		d.Allowed = d.Reason == ReasonIncluded
	}
	return d
}

// optOut returns the reason that the repository's own file gives. What cannot
// be read is taken for a wish not to be heard: somebody put it there.
func (f *Finder) optOut(dir string) string {
	if dir == "" {
		return ReasonIncluded
	}
	root, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return ReasonIncluded // a worktree that was removed
	}
	if err != nil {
		return ReasonOptOutFile
	}
	defer func() { _ = root.Close() }() // only read

	// Through root: a symbolic link out of the repository is not followed.
	info, err := root.Stat(optOutFile)
	if errors.Is(err, fs.ErrNotExist) {
		if _, lerr := root.Lstat(optOutFile); errors.Is(lerr, fs.ErrNotExist) {
			return ReasonIncluded
		}
		return ReasonOptOutFile // a link to nothing
	}
	if err != nil || !info.Mode().IsRegular() {
		return ReasonOptOutFile
	}
	name := filepath.Join(dir, optOutFile)
	if reason, ok := f.recall(name, info); ok {
		return reason
	}
	reason := ReasonOptOutFile
	if capture, err := readOptOut(root); err == nil {
		reason = ReasonIncluded
		if capture != "" && !strings.EqualFold(capture, "on") {
			reason = ReasonOptOut
		}
	}
	f.remember(name, info, reason)
	return reason
}

// readOptOut returns the value of capture: off, or anything else but on, is a
// wish not to be heard; on, or nothing, changes nothing.
func readOptOut(root *os.Root) (string, error) {
	data, err := durable.ReadFileIn(root, optOutFile, maxOptOut)
	if err != nil {
		return "", err
	}
	// Unknown fields are those of later versions.
	var file struct {
		Capture any `json:"capture"`
	}
	if err := yaml.Unmarshal(data, &file); err != nil {
		return "", fmt.Errorf("parse %s: %w", optOutFile, err)
	}
	switch capture := file.Capture.(type) {
	case nil:
		return "", nil
	case bool: // off and on without quotes are booleans in YAML
		if capture {
			return "on", nil
		}
		return "off", nil
	default:
		return strings.TrimSpace(fmt.Sprint(capture)), nil
	}
}
