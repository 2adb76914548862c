package hook

import (
	"bytes"
	"os"
	"strings"
)

// startedBySession reports whether the environment that a process was started
// with is one that Claude Code makes for its children. The process itself sets
// the same variables for its own children later: those do not show there.
func startedBySession(pid string) bool {
	if pid == "" || strings.Trim(pid, "0123456789") != "" {
		return false
	}
	environ, err := os.ReadFile("/proc/" + pid + "/environ") //nolint:gosec // digits, see above
	if err != nil {
		return false
	}
	environ = append([]byte{0}, environ...)
	return bytes.Contains(environ, []byte("\x00CLAUDECODE=1\x00")) && bytes.Contains(environ, []byte("\x00CLAUDE_CODE_SESSION_ID="))
}
