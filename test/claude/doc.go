// Package claude runs the real Claude Code against a scripted model, and
// without a network: for the tests that let it call our hooks and that read
// what it writes.
//
//	Terminal, Headless ──▶ Claude Code ──▶ Model (scripted answers)
//	                          │
//	                          ├──▶ hooks of the user's settings: ours
//	                          └──▶ hooks of the project's settings: Witness
//
// The program comes from hack/tools/claude-code/install. It starts with an
// environment that holds nothing of the caller's, in a home folder of its own.
// Neither it nor anything that it writes may be committed.
package claude

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/undersong-dev/undersong/test/tools"
)

// ErrNotInstalled is returned where Claude Code is not in .tools.
var ErrNotInstalled = errors.New("Claude Code is not installed: ACCEPT_CLAUDE_LICENSE=1 hack/tools/claude-code/install fetches it") //nolint:staticcheck // a name begins it

// Find returns the program.
func Find() (string, error) {
	path := filepath.Join(tools.Root(), ".tools", "claude-code", "claude")
	if _, err := os.Stat(path); err != nil {
		return "", ErrNotInstalled
	}
	return path, nil
}
