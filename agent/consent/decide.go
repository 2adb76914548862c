package consent

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"sigs.k8s.io/yaml"

	"github.com/undersong-dev/undersong/agent/internal/durable"
	"github.com/undersong-dev/undersong/internal/redact"
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
	ReasonGone        = "working directory is gone"
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

	// Redact are expressions of what the repository wants to be redacted besides,
	// each one that redact.Options takes.
	Redact []string
}

// Facts are what a folder says of itself.
type Facts struct {
	Project Project

	// Wish is ReasonIncluded, or why the repository is not to be heard; Redact
	// what it wants to be redacted besides.
	Wish   string
	Redact []string
}

// Known says whether these are facts of a folder at all.
func (f Facts) Known() bool { return f.Wish != "" }

// ErrGone is returned for a working directory that is not there any more. What was
// said in it is not its parent's: a clone may have lain in it.
var ErrGone = errors.New("working directory is gone")

// worktrees is where Claude Code makes worktrees, which it removes again, in the
// repository that they are of.
var worktrees = filepath.FromSlash("/.claude/worktrees/")

// Look returns the facts of a folder as they are now. Of a worktree of Claude
// Code's that was removed they are those of its repository, together with
// ErrGone: who knows what the worktree itself said goes by that.
func (f *Finder) Look(cwd string) (Facts, error) {
	if !filepath.IsAbs(cwd) {
		return Facts{}, ErrCwd
	}
	var gone error
	if _, err := os.Stat(cwd); errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		repository, _, found := strings.Cut(filepath.Clean(cwd), worktrees)
		if _, there := gitDirOf(repository); !found || !there {
			return Facts{}, ErrGone
		}
		cwd, gone = repository, ErrGone
	}
	project, err := f.Project(cwd)
	if err != nil {
		return Facts{}, err
	}
	facts := Facts{Project: project}
	facts.Wish, facts.Redact = f.optOut(project.Root)
	return facts, gone
}

// Decide answers for one folder, as it is now.
func (f *Finder) Decide(cwd string, rules Rules) Decision {
	facts, err := f.Look(cwd)
	switch {
	case err == nil, facts.Known():
		return facts.Decide(rules)
	case errors.Is(err, ErrGone):
		return Decision{Reason: ReasonGone}
	}
	return Decision{Reason: ReasonNoFolder}
}

// Decide answers for a folder of which these are the facts.
func (f Facts) Decide(rules Rules) Decision {
	project := f.Project
	d := Decision{Project: project}
	switch {
	case matchAny(rules.Exclude, project.Remote):
		d.Reason = ReasonExcluded
	case project.Outside && !rules.Outside:
		d.Reason = ReasonOutside
	case !project.Outside && !matchAny(rules.Include, project.Remote):
		d.Reason = ReasonNotIncluded
	default:
		d.Reason, d.Redact = f.Wish, f.Redact
		d.Allowed = d.Reason == ReasonIncluded
	}
	return d
}

// optOut returns the reason that the repository's own file gives, and what it
// wants to be redacted. What cannot be read, expressions included, is taken for a
// wish not to be heard: somebody put it there.
func (f *Finder) optOut(dir string) (string, []string) {
	if dir == "" {
		return ReasonIncluded, nil
	}
	root, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return ReasonIncluded, nil // a worktree that was removed
	}
	if err != nil {
		return ReasonOptOutFile, nil
	}
	defer func() { _ = root.Close() }() // only read

	// Through root: a symbolic link out of the repository is not followed.
	info, err := root.Stat(optOutFile)
	if errors.Is(err, fs.ErrNotExist) {
		if _, lerr := root.Lstat(optOutFile); errors.Is(lerr, fs.ErrNotExist) {
			return ReasonIncluded, nil
		}
		return ReasonOptOutFile, nil // a link to nothing
	}
	if err != nil || !info.Mode().IsRegular() {
		return ReasonOptOutFile, nil
	}
	name := filepath.Join(dir, optOutFile)
	known, ok := f.recall(name, info)
	if !ok {
		known = ReasonOptOutFile
		if capture, redact, err := readOptOut(root); err == nil {
			known = ReasonIncluded
			if capture != "" && !strings.EqualFold(capture, "on") {
				known = ReasonOptOut
			}
			known = strings.Join(append([]string{known}, redact...), "\x00") // which no expression has
		}
		f.remember(name, info, known)
	}
	reason, rest, found := strings.Cut(known, "\x00")
	if !found {
		return reason, nil
	}
	return reason, strings.Split(rest, "\x00")
}

// readOptOut returns the value of capture: off, or anything else but on, is a
// wish not to be heard; on, or nothing, changes nothing; and the expressions of
// redact.
func readOptOut(root *os.Root) (capture string, rules []string, err error) {
	data, err := durable.ReadFileIn(root, optOutFile, maxOptOut)
	if err != nil {
		return "", nil, err
	}
	// Unknown fields are those of later versions.
	var file struct {
		Capture any      `json:"capture"`
		Redact  []string `json:"redact"`
	}
	if err := yaml.Unmarshal(data, &file); err != nil {
		return "", nil, fmt.Errorf("parse %s: %w", optOutFile, err)
	}
	if _, err := Redactor(file.Redact); err != nil {
		return "", nil, fmt.Errorf("parse %s: %w", optOutFile, err)
	}
	switch capture := file.Capture.(type) {
	case nil:
		return "", file.Redact, nil
	case bool: // off and on without quotes are booleans in YAML
		if capture {
			return "on", file.Redact, nil
		}
		return "off", file.Redact, nil
	default:
		return strings.TrimSpace(fmt.Sprint(capture)), file.Redact, nil
	}
}

// Redactor returns a redactor with the team's rules and a repository's expressions
// besides its own. The repository's can hide more, and allow nothing.
func Redactor(expressions []string, team ...redact.Rule) (*redact.Redactor, error) {
	options := redact.Options{Team: team}
	for _, pattern := range expressions {
		if strings.Contains(pattern, "\x00") {
			return nil, errors.New("an expression has a NUL in it")
		}
		options.Project = append(options.Project, redact.Rule{Pattern: pattern})
	}
	return redact.New(options)
}

// CheckFile says what is wrong with the file of the repository that a folder is
// in, for the person who wrote it; nil without one.
func CheckFile(root string) error {
	dir, err := os.OpenRoot(root)
	if err != nil {
		return nil // there is no repository
	}
	defer func() { _ = dir.Close() }() // only read
	if _, err := dir.Lstat(optOutFile); err != nil {
		return nil // nor a file
	}
	info, err := dir.Stat(optOutFile)
	if err == nil && !info.Mode().IsRegular() { // a pipe would be waited for
		err = fmt.Errorf("%s is not a regular file", optOutFile)
	}
	if err == nil {
		_, _, err = readOptOut(dir)
	}
	return err
}
