package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/undersong-dev/undersong/agent/consent"
	"github.com/undersong-dev/undersong/agent/hook"
	"github.com/undersong-dev/undersong/agent/internal/durable"
	"github.com/undersong-dev/undersong/agent/note"
)

const installAgain = "run undersong init --install-hooks"

// claudeSettings is what a settings file of Claude Code says of hooks.
type claudeSettings struct {
	DisableAllHooks bool                         `json:"disableAllHooks"`
	ManagedOnly     bool                         `json:"allowManagedHooksOnly"`
	Hooks           map[string][]json.RawMessage `json:"hooks"`
}

// readSettings reads a settings file. One that is not there says nothing.
func readSettings(path string) (claudeSettings, error) {
	var c claudeSettings
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() { // a pipe in a repository would be waited for
		return c, fmt.Errorf("%s is not a regular file", path)
	}
	var data []byte
	if err == nil {
		data, err = durable.ReadFile(path, maxSettings)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return c, nil
	case err != nil:
		return c, fmt.Errorf("%s cannot be read", path)
	}
	if len(data) > 0 && json.Unmarshal(data, &c) != nil {
		return claudeSettings{}, fmt.Errorf("%s is not JSON as Claude Code reads it (comments are not), so it may ignore all of it; put it right, then %s", path, installAgain)
	}
	return c, nil
}

// managedPath is where an administrator's settings lie.
func managedPath() string {
	switch runtime.GOOS {
	case "windows":
		return `C:\Program Files\ClaudeCode\managed-settings.json`
	case "darwin":
		return "/Library/Application Support/ClaudeCode/managed-settings.json"
	}
	return "/etc/claude-code/managed-settings.json"
}

// hooksCalled says whether Claude Code, started in the folder of this command,
// calls our hooks, as far as its settings tell, and what to do if it does not.
func (s *System) hooksCalled(home string) (verdict, string) {
	path, err := s.settingsPath()
	if err != nil {
		return broken, err.Error()
	}
	user, err := readSettings(path)
	if err != nil {
		return broken, err.Error()
	}
	managed, err := readSettings(s.managed)
	if err != nil {
		return broken, err.Error()
	}
	if where := s.disabled(); where != "" {
		return broken, "disableAllHooks is set in " + where + ": Claude Code calls no hook there, so nothing is recorded; take it out if that is not meant"
	}
	command, err := s.hookCommand(home)
	if err != nil {
		return broken, err.Error()
	}
	theirs, err := s.hookCommand("")
	if err != nil {
		return broken, err.Error()
	}
	mine, all := registration(user, command), registration(managed, theirs)
	switch {
	case len(all.missing) < len(hook.Events()):
		return s.managedHooks(home, all)
	case managed.ManagedOnly:
		return broken, "allowManagedHooksOnly is set in " + s.managed + ": Claude Code calls no hook of yours, so nothing is recorded; whoever wrote that file can add what undersong init --managed prints"
	case len(mine.missing) == len(hook.Events()):
		return broken, fmt.Sprintf("none of ours are in %s, so Claude Code does not call undersong; %s", path, installAgain)
	case len(mine.missing) > 0:
		return broken, fmt.Sprintf("not all events call us in %s, missing: %s; %s again", path, strings.Join(mine.missing, ", "), installAgain)
	case len(mine.doubled) > 0:
		return odd, fmt.Sprintf("%s call us more than once in %s; the second call is dropped; %s again", strings.Join(mine.doubled, ", "), path, installAgain)
	case len(mine.elsewhere) > 0:
		return broken, fmt.Sprintf("%s call something else than %s; %s again", strings.Join(mine.elsewhere, ", "), command, installAgain)
	}
	return fine, path
}

// disabled names the settings file that disables all hooks, "" for none: the
// administrator's, the user's, or the project's of this folder.
func (s *System) disabled() string {
	files := []string{s.managed}
	if path, err := s.settingsPath(); err == nil {
		files = append(files, path)
	}
	if cwd, err := os.Getwd(); err == nil {
		folders := []string{cwd}
		if project, err := (&consent.Finder{}).Project(cwd); err == nil && project.Root != "" {
			folders = append(folders, project.Root)
		}
		for _, folder := range folders {
			files = append(files, filepath.Join(folder, ".claude", "settings.json"), filepath.Join(folder, ".claude", "settings.local.json"))
		}
	}
	i := slices.IndexFunc(files, func(path string) bool {
		settings, err := readSettings(path)
		return err == nil && settings.DisableAllHooks
	})
	if i < 0 {
		return ""
	}
	return files[i]
}

// managedHooks says whether an administrator's hooks, which look where each user's
// folder is, find this state directory.
func (s *System) managedHooks(home string, all registered) (verdict, string) {
	switch own, err := note.AccountHome(); {
	case len(all.missing) > 0:
		return broken, fmt.Sprintf("not all events call us in %s, missing: %s; whoever wrote that file can write what undersong init --managed prints", s.managed, strings.Join(all.missing, ", "))
	case err != nil || own != home:
		return broken, fmt.Sprintf("those in %s look into %s, and your state directory is %s; unset %s and the like, and run undersong init", s.managed, own, home, note.HomeVariable)
	}
	return fine, s.managed
}

// registered are the events that do not call us as they should.
type registered struct{ missing, doubled, elsewhere []string }

func registration(settings claudeSettings, command string) (c registered) {
	for _, event := range hook.Events() {
		ours, right := 0, 0
		for _, group := range settings.Hooks[event] {
			if is, same := oursIn(group, command); is {
				ours++
				if same {
					right++
				}
			}
		}
		switch {
		case ours == 0:
			c.missing = append(c.missing, event)
		case ours > 1:
			c.doubled = append(c.doubled, event)
		case right == 0:
			c.elsewhere = append(c.elsewhere, event)
		}
	}
	return c
}
