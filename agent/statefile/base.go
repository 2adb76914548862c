package statefile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/undersong-dev/undersong/agent/internal/durable"
	"github.com/undersong-dev/undersong/agent/note"
)

// Errors of this package.
var (
	// ErrBase says that no base folder can be told: the working directory, or
	// LETTA_HOME after its expansion, is no absolute path.
	ErrBase = errors.New("no usable folder for state files")
	// ErrSession says that a session id cannot be part of a file name.
	ErrSession = errors.New("not a session id")
	// ErrBroken says that a file is there and cannot be parsed.
	ErrBroken = errors.New("state file is broken")
)

// Dir returns the base folder of a session's state files, the one that holds
// .letta.
//
// That is LETTA_HOME where it is set, with a leading ~, $HOME or ${HOME}
// expanded; it is made if there is none, as the plugin does. Else it is the nearest of the working directory and the folders
// above it that has the session's file already, since the agent may have
// changed its folder; then the first of others (such as CLAUDE_PROJECT_DIR)
// that has it; else the working directory.
func Dir(cwd, lettaHome, sessionID string, others ...string) (string, error) {
	if !note.ValidSession(sessionID) {
		return "", ErrSession
	}
	if lettaHome != "" {
		base, err := Expand(lettaHome)
		if err != nil {
			return "", err
		}
		if err := durable.MkdirAll(base); err != nil {
			return "", fmt.Errorf("LETTA_HOME: %w: %w", ErrBase, err)
		}
		return base, nil
	}
	if !filepath.IsAbs(cwd) {
		return "", fmt.Errorf("working directory: %w", ErrBase)
	}
	cwd = filepath.Clean(cwd)
	for dir := cwd; ; dir = filepath.Dir(dir) {
		if has(dir, sessionID) {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			break
		}
	}
	for _, dir := range others {
		if filepath.IsAbs(dir) && has(filepath.Clean(dir), sessionID) {
			return filepath.Clean(dir), nil
		}
	}
	return cwd, nil
}

// Path returns where a session's file lies below a base folder.
func Path(dir, sessionID string) string {
	return filepath.Join(dir, filepath.FromSlash(folder), sessionFile(sessionID))
}

// Expand returns the base folder that LETTA_HOME names, and makes nothing: it
// replaces the user's own folder at the start, as the plugin does. Nothing else
// is expanded, and a path that is not absolute then is refused: it would name a
// folder called ~ or $X below the project.
func Expand(base string) (string, error) {
	for _, prefix := range []string{"~", "$HOME", "${HOME}"} {
		rest, found := strings.CutPrefix(base, prefix)
		if !found || rest != "" && !os.IsPathSeparator(rest[0]) {
			continue
		}
		home, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("LETTA_HOME: %w: %w", ErrBase, err)
		}
		base = home + rest
		break
	}
	if !filepath.IsAbs(base) {
		return "", fmt.Errorf("LETTA_HOME: %w", ErrBase)
	}
	return filepath.Clean(base), nil
}

// has reports whether a base folder has a session's file, and it is the user's
// own: in a folder that all may write to, it may be anybody's.
func has(dir, sessionID string) bool {
	info, err := os.Lstat(Path(dir, sessionID))
	return err == nil && info.Mode().IsRegular() && durable.Ours(info)
}
