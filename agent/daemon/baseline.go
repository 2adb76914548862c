package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/undersong-dev/undersong/agent/internal/durable"
	"github.com/undersong-dev/undersong/agent/read"
	"github.com/undersong-dev/undersong/agent/spool"
)

const (
	baselineFile = "baseline.json"
	maxBaseline  = 64 << 20
)

// baseline says how large every transcript was at init. What was written
// before is not sent.
type baseline struct {
	sizes map[string]int64  // by path
	moved map[string]string // base name of a main file to a path in sizes
}

// Measure returns the size of every transcript that is known now, by path: those
// below a folder of projects, and those of the spool's sessions wherever they
// are. A folder that does not exist has none.
func Measure(home, projects string) (map[string]int64, error) {
	sizes := map[string]int64{}
	err := filepath.WalkDir(projects, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) || path != projects {
				return nil // a folder that cannot be listed can have no session of ours either
			}
			return err
		}
		if entry.Type().IsRegular() && strings.HasSuffix(path, ".jsonl") {
			if info, err := entry.Info(); err == nil {
				sizes[path] = info.Size()
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("look at transcripts: %w", err)
	}
	for _, state := range spool.States(filepath.Join(home, SessionsDir)) {
		for _, path := range state.Transcripts() {
			if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
				sizes[path] = info.Size()
			}
		}
	}
	return sizes, nil
}

// WriteBaseline records the sizes of all transcripts as they are now.
func WriteBaseline(home, projects string) (int, error) {
	sizes, err := Measure(home, projects)
	if err != nil {
		return 0, err
	}
	data, err := json.Marshal(sizes)
	if err != nil {
		return 0, fmt.Errorf("record transcripts: %w", err)
	}
	if err := durable.WriteFile(filepath.Join(home, baselineFile), data); err != nil {
		return 0, fmt.Errorf("record transcripts: %w", err)
	}
	return len(sizes), nil
}

// readBaseline reads what WriteBaseline recorded. Without it nothing may be
// read: it says what must not be sent.
func readBaseline(home string) (*baseline, error) {
	data, err := durable.ReadFile(filepath.Join(home, baselineFile), maxBaseline)
	if err != nil {
		if perr, ok := errors.AsType[*os.PathError](err); ok {
			err = perr.Err
		}
		return nil, fmt.Errorf("read %s: %w: run undersong init again", baselineFile, err)
	}
	b := &baseline{moved: map[string]string{}}
	if err := json.Unmarshal(data, &b.sizes); err != nil {
		return nil, fmt.Errorf("read %s: it is damaged: run undersong init again", baselineFile)
	}
	for path := range b.sizes {
		b.moved[filepath.Base(path)] = path
	}
	return b, nil
}

// size returns how large a stream's file was at init. A file that was moved
// since is known by its name, which is the session's or the subagent's id.
func (b *baseline) size(src read.Source) int64 {
	if size, ok := b.sizes[src.Path]; ok {
		return size
	}
	return b.sizes[b.moved[filepath.Base(src.Path)]]
}
