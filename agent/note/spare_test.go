package note_test

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/undersong-dev/undersong/agent/internal/object/objecttest"
	"github.com/undersong-dev/undersong/agent/note"
)

// entries returns how many entries there are below a folder, and of those how
// many are spare files.
func entries(t *testing.T, home string) (all, spare int) {
	t.Helper()
	err := filepath.WalkDir(home, func(path string, e fs.DirEntry, err error) error {
		all++
		if !e.IsDir() && filepath.Base(filepath.Dir(path)) == "spare" {
			spare++
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all, spare
}

// TestANoteMakesNoFile: making one can take as long as starting the hook.
func TestANoteMakesNoFile(t *testing.T) {
	home := t.TempDir()
	if err := note.Write(home, example(0)); err != nil { // makes the folders
		t.Fatal(err)
	}
	if err := note.Provide(home); err != nil {
		t.Fatal(err)
	}
	_, before := entries(t, home)
	if err := note.Write(home, example(1)); err != nil {
		t.Fatal(err)
	}
	if _, after := entries(t, home); after != before-1 {
		t.Errorf("%d spare files before a note, %d after it", before, after)
	}
	if err := note.Provide(home); err != nil {
		t.Fatal(err)
	}
	if _, again := entries(t, home); again != before {
		t.Errorf("%d spare files after Provide, want %d", again, before)
	}
	files, err := note.List(home)
	if err != nil || len(files) != 2 || files[1].Note.Session != "session-1" {
		t.Errorf("List: %v, %v", files, err)
	}
}

// TestNotesWithoutSpareFiles: what is in the place of spare files stops nobody.
func TestNotesWithoutSpareFiles(t *testing.T) {
	for name, prepare := range map[string]func(dir string) error{
		"none":       func(string) error { return nil },
		"a file":     func(dir string) error { return os.WriteFile(dir, nil, 0o600) },
		"used up":    func(dir string) error { return os.Mkdir(dir, 0o700) },
		"no rights":  func(dir string) error { return os.Mkdir(dir, 0) },
		"no folders": func(dir string) error { return os.Symlink("nowhere", dir) },
	} {
		t.Run(name, func(t *testing.T) {
			home := t.TempDir()
			if err := prepare(filepath.Join(home, "spare")); err != nil {
				t.Fatal(err)
			}
			for i := range 3 {
				if err := note.Write(home, example(i)); err != nil {
					t.Fatal(err)
				}
			}
			files, err := note.List(home)
			if err != nil || len(files) != 3 {
				t.Errorf("%d notes, want 3: %v", len(files), err)
			}
			for _, file := range files {
				info, err := os.Stat(filepath.Join(note.Dir(home), file.Name))
				if err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
					t.Errorf("a note of the hook's own: %v, %v", info.Mode(), err)
				}
			}
		})
	}
}

// TestProvideReplacesWhatIsNotEmpty: else a note would end with what was there.
func TestProvideReplacesWhatIsNotEmpty(t *testing.T) {
	home := t.TempDir()
	if err := note.Provide(home); err != nil {
		t.Fatal(err)
	}
	_, want := entries(t, home)
	spare := func(i int) string { return filepath.Join(home, "spare", strconv.Itoa(i)) }
	if err := os.WriteFile(spare(0), []byte("words"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Remove(spare(1)), os.MkdirAll(filepath.Join(spare(1), "folder"), 0o700)); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Remove(spare(2)), os.Symlink(spare(0), spare(2))); err != nil {
		t.Fatal(err)
	}
	if err := note.Provide(home); err != nil {
		t.Fatal(err)
	}
	for i := range want {
		info, err := os.Lstat(spare(i))
		if err != nil || !info.Mode().IsRegular() || info.Size() != 0 {
			t.Errorf("spare file %d: %v, %v", i, info, err)
		}
	}
}

// TestFilesAreReadWhole: every field that is written is read.
func TestFilesAreReadWhole(t *testing.T) {
	home := t.TempDir()
	var c note.Config
	objecttest.Fill(&c)
	c.Version = note.Version
	if err := note.SaveConfig(home, c); err != nil {
		t.Fatal(err)
	}
	got, err := note.LoadConfig(home)
	if diff := cmp.Diff(c, got); diff != "" || err != nil {
		t.Errorf("configuration (-written +read): %v\n%s", err, diff)
	}

	var n note.Note
	objecttest.Fill(&n)
	n.Version, n.Session, n.At = note.Version, "session", at
	if err := note.Write(home, n); err != nil {
		t.Fatal(err)
	}
	files, err := note.List(home)
	if err != nil || len(files) != 1 {
		t.Fatalf("List: %v, %v", files, err)
	}
	if diff := cmp.Diff(n, files[0].Note); diff != "" {
		t.Errorf("note (-written +read):\n%s", diff)
	}

	var p note.Policy
	objecttest.Fill(&p)
	p.Version, p.Mode = 1, note.RecallFull
	data, err := json.Marshal(p)
	if err == nil {
		err = os.WriteFile(filepath.Join(home, note.PolicyFile), data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(p, note.LoadPolicy(home)); diff != "" {
		t.Errorf("policy (-written +read):\n%s", diff)
	}
}
