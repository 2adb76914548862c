package durable_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/undersong-dev/undersong/agent/internal/durable"
)

var errStopped = errors.New("stopped")

// stopAfter returns an FS that makes n operations and none after, like a
// process that is killed there, and the list of the operations it was asked for.
func stopAfter(n int) (durable.FS, *[]durable.Op) {
	var asked []durable.Op
	return durable.FS{Before: func(op durable.Op, _ string) error {
		asked = append(asked, op)
		if len(asked) > n {
			return errStopped
		}
		return nil
	}}, &asked
}

func TestWriteFileSurvivesEveryStop(t *testing.T) {
	before, after := []byte("old content"), []byte("new, longer content")
	var all []durable.Op
	for n := 0; ; n++ {
		dir := t.TempDir()
		name := filepath.Join(dir, "file.json")
		if err := durable.WriteFile(name, before); err != nil {
			t.Fatal(err)
		}
		fs, asked := stopAfter(n)
		err := fs.WriteFile(name, after)
		all = *asked

		// Reopen: a reader, and the next start of the owner.
		got, rerr := durable.ReadFile(name, 1<<10)
		if rerr != nil {
			t.Fatalf("after %d operations: read: %v", n, rerr)
		}
		if !bytes.Equal(got, before) && !bytes.Equal(got, after) {
			t.Errorf("after %d operations: a part of a file: %q", n, got)
		}
		if err == nil && !bytes.Equal(got, after) {
			t.Errorf("after %d operations: success, and the old content", n)
		}
		if err := durable.RemoveTemps(dir); err != nil {
			t.Errorf("after %d operations: %v", n, err)
		}
		if left := names(t, dir); len(left) != 1 {
			t.Errorf("after %d operations: left behind: %v", n, left)
		}
		if err := durable.WriteFile(name, after); err != nil {
			t.Errorf("after %d operations: write again: %v", n, err)
		}
		if err == nil {
			break
		}
		if !errors.Is(err, errStopped) {
			t.Fatalf("after %d operations: %v", n, err)
		}
	}
	want := []durable.Op{
		durable.OpCreate, durable.OpWrite, durable.OpSync, durable.OpClose, durable.OpRename, durable.OpSyncDir,
	}
	if runtime.GOOS == "windows" {
		want = want[:5]
	}
	if diff := cmp.Diff(want, all); diff != "" {
		t.Errorf("operations (-want +got):\n%s", diff)
	}
}

func TestWriteFileFailure(t *testing.T) {
	full := errors.New("no space")
	for _, at := range []durable.Op{
		durable.OpCreate, durable.OpWrite, durable.OpSync, durable.OpClose, durable.OpRename,
	} {
		t.Run(string(at), func(t *testing.T) {
			dir := t.TempDir()
			name := filepath.Join(dir, "file")
			if err := durable.WriteFile(name, []byte("old")); err != nil {
				t.Fatal(err)
			}
			fs := durable.FS{Before: func(op durable.Op, _ string) error {
				if op == at {
					return full
				}
				return nil
			}}
			if err := fs.WriteFile(name, []byte("new")); !errors.Is(err, full) {
				t.Errorf("error = %v, want %v", err, full)
			}
			if diff := cmp.Diff([]string{"file"}, names(t, dir)); diff != "" {
				t.Errorf("a failed write leaves the temporary file (-want +got):\n%s", diff)
			}
			got, err := durable.ReadFile(name, 10)
			if err != nil || string(got) != "old" {
				t.Errorf("content = %q, %v; want the old one", got, err)
			}
		})
	}
}

func TestWriteFileMode(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no mode bits")
	}
	dir := filepath.Join(t.TempDir(), "a", "b")
	if err := durable.MkdirAll(dir); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, "file")
	if err := os.WriteFile(name, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := durable.WriteFile(name, []byte("x")); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]os.FileMode{name: 0o600, dir: 0o700, filepath.Dir(dir): 0o700} {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode().Perm(); got != want {
			t.Errorf("mode of %s = %o, want %o", filepath.Base(path), got, want)
		}
	}
}

func TestWriteFileInStaysInside(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("symbolic links need a privilege on Windows")
	}
	outside, inside := t.TempDir(), t.TempDir()
	victim := filepath.Join(outside, "victim")
	if err := os.WriteFile(victim, []byte("theirs"), 0o600); err != nil {
		t.Fatal(err)
	}
	for link, target := range map[string]string{"dir": outside, "file": victim} {
		if err := os.Symlink(target, filepath.Join(inside, link)); err != nil {
			t.Fatal(err)
		}
	}
	root, err := os.OpenRoot(inside)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = root.Close() }()

	if err := durable.WriteFileIn(root, "dir/victim", []byte("ours")); err == nil {
		t.Error("a linked directory was followed out of the root")
	}
	if err := durable.WriteFileIn(root, "../x", []byte("ours")); err == nil {
		t.Error("the parent directory was written to")
	}
	if _, err := durable.ReadFileIn(root, "file", 100); err == nil {
		t.Error("a linked file was read out of the root")
	}
	if err := durable.WriteFileIn(root, "file", []byte("ours")); err != nil {
		t.Errorf("a link in the file's place is not replaced: %v", err)
	}
	if got, err := os.ReadFile(victim); err != nil || string(got) != "theirs" {
		t.Errorf("outside = %q, %v; want it untouched", got, err)
	}
	if diff := cmp.Diff([]string{"victim"}, names(t, outside)); diff != "" {
		t.Errorf("outside (-want +got):\n%s", diff)
	}
}

func TestRenameAndRemove(t *testing.T) {
	dir := t.TempDir()
	from, to := filepath.Join(dir, "from"), filepath.Join(dir, "sub", "to")
	if err := durable.MkdirAll(filepath.Dir(to)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{from, to} {
		if err := durable.WriteFile(name, []byte(filepath.Base(name))); err != nil {
			t.Fatal(err)
		}
	}
	if err := durable.Rename(from, to); err != nil {
		t.Fatal(err)
	}
	if got, err := durable.ReadFile(to, 10); err != nil || string(got) != "from" {
		t.Errorf("renamed = %q, %v", got, err)
	}
	if err := durable.Rename(from, to); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("rename of an absent file = %v, want not exist", err)
	}
	for range 2 { // the second time it is absent, which is success
		if err := durable.Remove(to); err != nil {
			t.Errorf("remove: %v", err)
		}
	}
	if err := durable.MkdirAll(dir); err != nil {
		t.Errorf("an existing directory: %v", err)
	}
	file := filepath.Join(dir, "file")
	if err := durable.WriteFile(file, nil); err != nil {
		t.Fatal(err)
	}
	if err := durable.MkdirAll(filepath.Join(file, "x")); err == nil {
		t.Error("a directory below a file was made")
	}
}

func TestReadFileIsBounded(t *testing.T) {
	name := filepath.Join(t.TempDir(), "file")
	if err := durable.WriteFile(name, make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	for limit, want := range map[int64]error{99: durable.ErrTooLarge, 100: nil, 101: nil} {
		data, err := durable.ReadFile(name, limit)
		if diff := cmp.Diff(want, err, cmpopts.EquateErrors()); diff != "" {
			t.Errorf("limit %d (-want +got):\n%s", limit, diff)
		}
		if want == nil && len(data) != 100 {
			t.Errorf("limit %d: %d bytes", limit, len(data))
		}
	}
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	slices.Sort(out)
	return out
}
