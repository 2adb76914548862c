package hook

import (
	"os"
	"path/filepath"
)

// markerVariable is a variable of ours in the shells of a session: its id.
const markerVariable = "UNDERSONG_SESSION"

// nested reports whether another session started the agent, from a tool or from
// a hook: then no person speaks in it. Either sign is enough. The marker tells of
// what the shells of a session start, wherever the agent runs them; the start
// environment of the agent's process tells of everything that a session starts,
// on systems that show it.
func (h call) nested() bool {
	outer := variable(markerVariable)
	return outer != "" && outer != h.session || startedBySession(variable("CLAUDE_PID"))
}

// leaveMarker puts the marker into the file from which the agent sets up the
// shells of a session that starts now. It is in a folder named after the
// session; what is not is no such file, whoever set the variable.
func (h call) leaveMarker() error {
	path := variable("CLAUDE_ENV_FILE")
	if h.event != SessionStart || !filepath.IsAbs(path) || filepath.Base(filepath.Dir(path)) != h.session {
		return nil
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600) //nolint:gosec // the agent's own, see above
	if err != nil {
		return err
	}
	_, err = file.WriteString("export " + markerVariable + "=" + h.session + "\n") // letters, digits and dashes
	if cerr := file.Close(); err == nil {
		err = cerr
	}
	return err
}
