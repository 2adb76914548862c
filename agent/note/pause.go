package note

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/undersong-dev/undersong/agent/internal/durable"
)

// recallPauseFile is there while the user wants to be shown nothing.
const recallPauseFile = "recall-pause.json"

// maxRecallPause bounds it, in bytes.
const maxRecallPause = 4 << 10

// RecallPause says that the user wants to be shown nothing of the memory.
type RecallPause struct {
	// Version is 1.
	Version int `json:"version"`

	// Since is when that was said, Until when it ends. A zero Until: when the
	// user says so.
	Since time.Time `json:"since"`
	Until time.Time `json:"until,omitzero"`
}

// PauseRecall lets hooks show nothing until a time; zero: until ResumeRecall.
func PauseRecall(home string, now, until time.Time) error {
	data, err := json.Marshal(RecallPause{Version: Version, Since: now, Until: until})
	if err == nil {
		err = durable.WriteFile(filepath.Join(home, recallPauseFile), data)
	}
	if err != nil {
		return fmt.Errorf("pause recall: %w", err)
	}
	return nil
}

// ResumeRecall ends it. It says whether there was one.
func ResumeRecall(home string) (bool, error) {
	path := filepath.Join(home, recallPauseFile)
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err := durable.Remove(path); err != nil {
		return false, fmt.Errorf("resume recall: %w", err)
	}
	return true, nil
}

// RecallPaused returns the pause of now, and whether there is one. A file that
// cannot be read is one without end: somebody put it there.
func RecallPaused(home string, now time.Time) (RecallPause, bool) {
	data, err := durable.ReadFile(filepath.Join(home, recallPauseFile), maxRecallPause)
	if errors.Is(err, fs.ErrNotExist) {
		return RecallPause{}, false
	}
	var p RecallPause
	if err != nil || json.Unmarshal(data, &p) != nil || p.Version != Version {
		return RecallPause{}, true
	}
	return p, p.Until.IsZero() || now.Before(p.Until)
}
