package whisper

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// States of a whisper, the names of its folders.
const (
	Waiting = waiting
	Printed = claimed
	Done    = done
)

// Kept is a whisper that the state directory remembers.
type Kept struct {
	Whisper
	// State is Waiting, Printed, or Done: it was given, it expired, it was
	// printed three times, or it was withdrawn.
	State string
}

// List returns the whispers with words that the state directory remembers, of
// all sessions, the newest first.
func List(home string) ([]Kept, error) {
	sessions, err := os.ReadDir(filepath.Join(home, rootDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list whispers: %w", err)
	}
	var all []Kept
	for _, s := range sessions {
		for _, state := range []string{waiting, claimed, done} {
			dir := filepath.Join(home, rootDir, s.Name(), state)
			names, err := list(dir)
			if err != nil {
				return nil, fmt.Errorf("list whispers: %w", err)
			}
			for _, name := range names {
				w, err := decode(filepath.Join(dir, name))
				if err != nil || w.Text == "" {
					continue // a hook moved it, or it is broken or a line for the person
				}
				w.Shown = parse(name).shown
				all = append(all, Kept{Whisper: w, State: state})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b Kept) int { return b.At.Compare(a.At) })
	return all, nil
}
