package note

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// HomeVariable names the environment variable that moves the state directory.
const HomeVariable = "UNDERSONG_HOME"

// ErrHome is returned when the state directory cannot be told.
var ErrHome = errors.New("no usable state directory")

// HomeFlag is the flag by which Claude Code's settings name the state directory
// to the hook. The environment does not: a repository's settings set it.
const HomeFlag = "--home"

// Home returns the state directory of a person's own shell: $UNDERSONG_HOME, else the user's state
// directory of the operating system ($XDG_STATE_HOME or ~/.local/state,
// ~/Library/Application Support, %LOCALAPPDATA%) and undersong below it. It
// makes nothing. A relative path is refused (ErrHome): it would move with the
// folder that the agent works in, and a ~ or $HOME that nobody expanded is one.
func Home() (string, error) {
	if dir := os.Getenv(HomeVariable); dir != "" {
		return absolute(HomeVariable, dir)
	}
	switch runtime.GOOS {
	case "windows":
		return below(os.Getenv("LOCALAPPDATA"))
	case "darwin", "ios":
		return below(os.Getenv("HOME"), "Library", "Application Support")
	}
	// The XDG specification has relative paths ignored.
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return below(dir)
	}
	return below(os.Getenv("HOME"), ".local", "state")
}

// HookHome returns the state directory of a hook, or of a status line, and the
// arguments without the one that names it. Where none does, as in the settings
// that an administrator wrote for all, it is the one below the folder that the
// system's own records have for the user: what is in the environment a
// repository may have set, and the configuration names what the hook starts.
func HookHome(args []string) (string, []string, error) {
	for i, arg := range args {
		dir, joined := strings.CutPrefix(arg, HomeFlag+"=")
		rest := args[i+1:]
		switch {
		case joined:
		case arg == HomeFlag && len(rest) > 0:
			dir, rest = rest[0], rest[1:]
		default:
			continue
		}
		home, err := absolute(HomeFlag, dir)
		return home, slices.Concat(args[:i], rest), err
	}
	home, err := AccountHome()
	return home, args, err
}

// AccountHome returns the state directory that Home returns where no variable
// moves it, below the folder that the system's own records have for the user.
func AccountHome() (string, error) {
	dir, err := accountFolder()
	if err != nil {
		return "", fmt.Errorf("find the user's folder: %w: %w", ErrHome, err)
	}
	switch runtime.GOOS {
	case "windows":
		return below(dir, "AppData", "Local")
	case "darwin", "ios":
		return below(dir, "Library", "Application Support")
	}
	return below(dir, ".local", "state")
}

// below returns undersong's folder below a folder of the user.
func below(base string, parts ...string) (string, error) {
	if base == "" {
		return "", fmt.Errorf("the user's directory is not set: %w", ErrHome)
	}
	dir := filepath.Join(append(append([]string{base}, parts...), "undersong")...)
	return absolute("the user's directory", dir)
}

func absolute(what, dir string) (string, error) {
	if !filepath.IsAbs(dir) {
		return "", fmt.Errorf("%s is not an absolute path: %w", what, ErrHome)
	}
	dir = filepath.Clean(dir)
	for _, own := range []string{"/proc", "/dev/fd"} {
		if dir == own || strings.HasPrefix(dir, own+"/") {
			return "", fmt.Errorf("%s is below %s, where a path leads elsewhere for each process: %w", what, own, ErrHome)
		}
	}
	return dir, nil
}
