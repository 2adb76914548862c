package note

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
)

// HomeVariable names the environment variable that moves the state directory.
const HomeVariable = "UNDERSONG_HOME"

// ErrHome is returned when the state directory cannot be told.
var ErrHome = errors.New("no usable state directory")

// Home returns the state directory: $UNDERSONG_HOME, else the user's state
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
	return filepath.Clean(dir), nil
}
