package daemon

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"

	"github.com/undersong-dev/undersong/agent/consent"
	"github.com/undersong-dev/undersong/agent/note"
)

// partConfig is the part that a configuration without use is trouble of.
const partConfig = "config"

var (
	// errSettings: while nobody knows what the person excludes, nothing is read.
	errSettings = errors.New("config.json cannot be used any more, so nothing is read: repair it (undersong status says what is wrong), or run undersong init again")
	// errEnd: the configuration is gone, or says off.
	errEnd = errors.New("the configuration wants no daemon")
	// errAnew: the configuration says something else than at the start.
	errAnew = errors.New("the configuration is another one than at the start")
)

// settings follows config.json, which its person edits while the daemon runs.
// They belong to the loop.
type settings struct {
	home   string
	config note.Config
	stamp  os.FileInfo // of what config was read from; nil: look again
	err    error       // of that look
}

// look reads config.json again if it was replaced, and says whether the person
// excludes something else since. After an error nothing may be read: errSettings
// until the file is repaired, errEnd and errAnew for good.
func (s *settings) look() (changed bool, err error) {
	stamp, err := os.Stat(filepath.Join(s.home, note.ConfigFile))
	if err != nil {
		stamp = nil
	}
	if s.stamp != nil && consent.SameStamp(stamp, s.stamp) {
		return false, s.err
	}
	s.stamp = stamp
	now, err := note.LoadConfig(s.home)
	switch {
	case errors.Is(err, note.ErrNotConfigured):
		s.err = errEnd
	case err != nil:
		s.err = errSettings
	case now.Off, now.ConsentedAt.IsZero():
		s.err = errEnd
	case !bytes.Equal(pins(now), pins(s.config)):
		s.err = errAnew
	default:
		changed = s.err != nil || !bytes.Equal(lists(now), lists(s.config))
		s.config, s.err = now, nil
	}
	return changed, s.err
}

// pins are what a daemon holds on to from its start to its end.
func pins(c note.Config) []byte {
	c.Exclude, c.Recall = nil, ""
	data, _ := json.Marshal(c) //nolint:errchkjson // it was read from JSON
	return data
}

// lists are what a daemon takes over while it runs.
func lists(c note.Config) []byte {
	data, _ := json.Marshal(c.Exclude) //nolint:errchkjson // texts
	return data
}
