package statefile_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/undersong-dev/undersong/agent/statefile"
)

// TestDirLeavesForeignFilesAlone: above the working directory may be a folder
// that all may write to.
func TestDirLeavesForeignFilesAlone(t *testing.T) {
	shared := t.TempDir()
	cwd := filepath.Join(shared, "project")
	if err := os.Mkdir(cwd, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := statefile.Write(shared, full()); err != nil {
		t.Fatal(err)
	}
	if got, err := statefile.Dir(cwd, "", session); err != nil || got != shared {
		t.Errorf("our own: %s, %v", got, err)
	}
	if err := os.Chown(statefile.Path(shared, session), 4242, 4242); err != nil {
		t.Skip("only root can give a file away")
	}
	if got, err := statefile.Dir(cwd, "", session); err != nil || got != cwd {
		t.Errorf("another user's: %s, %v; want the working directory", got, err)
	}
}
