package statefile

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/undersong-dev/undersong/agent/internal/durable"
	"github.com/undersong-dev/undersong/agent/note"
)

// List returns the sessions whose state lies below a base folder, by id. A file
// that is not the user's own, or is broken, is left out; where there are no
// files, there are no sessions.
func List(dir string) ([]State, error) {
	root, err := open(dir)
	if root == nil {
		return nil, err
	}
	defer func() { _ = root.Close() }() // only read

	names, err := own(root)
	if err != nil {
		return nil, err
	}
	ids := map[string]bool{}
	for _, name := range names {
		if name == conversationsFile {
			shared, _, err := load(root, name)
			if err != nil {
				continue // broken: the sessions' own files are still there
			}
			for id := range shared {
				ids[id] = note.ValidSession(id)
			}
			continue
		}
		ids[sessionOf(name)] = true
	}
	var all []State
	for _, id := range slices.Sorted(maps.Keys(ids)) {
		if !ids[id] {
			continue
		}
		state, err := Read(dir, id)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			continue
		}
		all = append(all, state)
	}
	return all, nil
}

// Backup copies the state files below a base folder as they are into the folder
// to, which it makes, and returns how many it copied. A file that is there
// already stays: it is from before. The copies are the user's alone.
func Backup(dir, to string) (int, error) {
	root, err := open(dir)
	if root == nil {
		return 0, err
	}
	defer func() { _ = root.Close() }() // only read

	names, err := own(root)
	if err != nil || len(names) == 0 {
		return 0, err
	}
	if err := durable.MkdirAll(to); err != nil {
		return 0, fmt.Errorf("keep state files: %w", err)
	}
	copied := 0
	for _, name := range names {
		target := filepath.Join(to, name)
		if _, err := os.Lstat(target); err == nil {
			continue
		}
		data, err := durable.ReadFileIn(root, path.Join(folder, name), maxFile)
		if err == nil {
			err = durable.WriteFile(target, data)
		}
		if err != nil {
			return copied, fmt.Errorf("keep state files: %w", err)
		}
		copied++
	}
	return copied, nil
}

// open opens a base folder. Nil without an error: there is none.
func open(dir string) (*os.Root, error) {
	root, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open base folder: %w", err)
	}
	return root, nil
}

// own lists the names of state files that are regular files of the user.
func own(root *os.Root) ([]string, error) {
	entries, err := fs.ReadDir(root.FS(), folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list state files: %w", err)
	}
	var names []string
	for _, entry := range entries {
		if entry.Name() != conversationsFile && !note.ValidSession(sessionOf(entry.Name())) {
			continue
		}
		info, err := entry.Info()
		if err == nil && info.Mode().IsRegular() && durable.Ours(info) {
			names = append(names, entry.Name())
		}
	}
	return names, nil
}

// sessionOf returns the session whose file has that name; empty if none has.
func sessionOf(name string) string {
	id, found := strings.CutPrefix(name, "session-")
	id, ended := strings.CutSuffix(id, ".json")
	if !found || !ended || sessionFile(id) != name {
		return ""
	}
	return id
}
