package daemon

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/undersong-dev/undersong/agent/internal/durable"
)

// TestADaemonThatBegins has the lock, and has not said yet who it is.
func TestADaemonThatBegins(t *testing.T) {
	home := t.TempDir()
	release, err := Hold(t.Context(), home)
	if err != nil {
		t.Fatal(err)
	}
	if _, running, err := Running(home); !running || !errors.Is(err, errNoInfo) {
		t.Errorf("of a lock that nobody answers for: %v, %v", running, err)
	}
	said := make(chan error, 1)
	go func() { said <- durable.WriteFile(filepath.Join(home, infoFile), []byte(`{"pid":42}`)) }()
	if info, running, err := Running(home); err != nil || !running || info.PID != 42 {
		t.Errorf("of a daemon that begins: %+v, %v, %v", info, running, err)
	}
	if err := <-said; err != nil {
		t.Fatal(err)
	}
	release()
	if _, running, err := Running(home); err != nil || running {
		t.Errorf("of a daemon that ended: %v, %v", running, err)
	}
}
