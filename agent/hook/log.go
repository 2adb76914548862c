package hook

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"time"
)

// LogFile, in the state directory, has one JSON object a line. It is the only
// place where a hook can say what was wrong.
const LogFile = "hook.log"

// maxLog bounds it, in bytes. The one before is kept.
const maxLog = 64 << 10

var errSession = errors.New("session_id is missing or is not a session id")

// log notes a problem. The text is ours or the operating system's: nothing that
// came on stdin is in it.
func (h call) log(doing string, problem error) {
	event := h.event
	if !known(event) {
		event = ""
	}
	line, err := json.Marshal(struct {
		Time    time.Time `json:"time"`
		Event   string    `json:"event,omitempty"`
		Doing   string    `json:"doing"`
		Problem string    `json:"problem"`
	}{h.at, event, doing, problem.Error()})
	if err != nil {
		return
	}
	path := filepath.Join(h.home, LogFile)
	if info, err := os.Stat(path); err == nil && info.Size() >= maxLog {
		_ = os.Rename(path, path+".old") // a parallel hook may have
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600) //nolint:gosec // the name is ours
	if err != nil {
		return // there is nowhere else to say it
	}
	_, _ = file.Write(append(line, '\n'))
	_ = file.Close()
}
