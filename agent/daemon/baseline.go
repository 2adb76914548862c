package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/undersong-dev/undersong/agent/internal/durable"
	"github.com/undersong-dev/undersong/agent/read"
	"github.com/undersong-dev/undersong/agent/spool"
	"github.com/undersong-dev/undersong/internal/segment"
)

const (
	baselineFile = "baseline.json"
	sentFile     = "sent.json"
	maxBaseline  = 64 << 20
)

// baseline says how large every transcript was at init. What was written
// before is not sent.
type baseline struct {
	sizes map[string]int64  // by path
	moved map[string]string // base name of a main file to a path in sizes
	sent  map[string]Sent   // by path
}

// Sent is how far another program had sent a transcript when this one took over:
// the byte behind it, and the newest time that a record before that gives.
type Sent struct {
	Behind int64     `json:"behind"`
	Until  time.Time `json:"until,omitzero"`
}

// Kept is what is withheld of it, in a generation of the file.
func (s Sent) Kept(generation int64) read.Kept {
	return read.Kept{Generation: generation, Withheld: read.Withheld{
		Range: segment.Range{ToOffset: s.Behind, FromIndex: segment.NoIndex, ToIndex: segment.NoIndex, Reason: read.ReasonSent}, Until: s.Until,
	}}
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
	return len(sizes), saveBaseline(home, sizes)
}

func saveBaseline(home string, sizes map[string]int64) error {
	data, err := json.Marshal(sizes)
	if err == nil {
		err = durable.WriteFile(filepath.Join(home, baselineFile), data)
	}
	if err != nil {
		return fmt.Errorf("record transcripts: %w", err)
	}
	return nil
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
	b.sent, err = readSent(home)
	return b, err
}

func readSent(home string) (map[string]Sent, error) {
	data, err := durable.ReadFile(filepath.Join(home, sentFile), maxBaseline)
	if errors.Is(err, fs.ErrNotExist) {
		return map[string]Sent{}, nil
	}
	var sent map[string]Sent
	if err == nil {
		err = json.Unmarshal(data, &sent)
	}
	if err != nil || sent == nil {
		return nil, fmt.Errorf("read %s: it is damaged: remove it and run undersong migrate again", sentFile)
	}
	return sent, nil
}

// kept is what is withheld of a stream because another program has sent it.
func (b *baseline) kept(src read.Source) []read.Kept {
	for path, sent := range b.sent {
		if path == src.Path || filepath.Base(path) == filepath.Base(src.Path) {
			return []read.Kept{sent.Kept(0)}
		}
	}
	return nil
}

// size returns how large a stream's file was at init. A file that was moved
// since is known by its name, which is the session's or the subagent's id.
func (b *baseline) size(src read.Source) int64 { return b.at(src.Path) }

func (b *baseline) at(path string) int64 {
	size, _ := b.knows(path)
	return size
}

// knows says, too, whether the file was there at all.
func (b *baseline) knows(path string) (int64, bool) {
	if size, ok := b.sizes[path]; ok {
		return size, true
	}
	size, ok := b.sizes[b.moved[filepath.Base(path)]]
	return size, ok
}

// Baseline returns how many bytes of a transcript are never sent.
func Baseline(home string) (func(path string) int64, error) {
	b, err := readBaseline(home)
	if err != nil {
		return nil, err
	}
	return func(path string) int64 { return max(b.at(path), b.sent[path].Behind) }, nil
}

// WithholdSent withholds, of transcripts of which nothing was read yet, what another
// program has sent, by path. It never withholds less than before. No daemon may run.
func WithholdSent(home string, sent map[string]Sent) error {
	all, err := readSent(home)
	if err != nil {
		return err
	}
	for path, one := range sent {
		if one.Behind > all[path].Behind {
			all[path] = one
		}
	}
	data, err := json.Marshal(all)
	if err == nil {
		err = durable.WriteFile(filepath.Join(home, sentFile), data)
	}
	if err != nil {
		return fmt.Errorf("record what was sent: %w", err)
	}
	return nil
}
