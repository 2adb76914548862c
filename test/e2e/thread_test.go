//go:build envtest

package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/undersong-dev/undersong/test/replay"
	"github.com/undersong-dev/undersong/test/stack"
)

func TestUploadedRunsAheadWhileTheControllerIsStopped(t *testing.T) {
	w := newWorld(t, nil)
	w.startController()
	s := w.session(w.desk, w.cwd, uuid.NewString())
	w.turn(s, "First words.", "Noted.")
	w.processed()
	w.stopController()

	w.turn(s, "Words while nobody listens.", "They wait.")
	w.must(stack.Eventually(t.Context(), within, func() error {
		sessions, err := w.team.Sessions(t.Context())
		if err != nil {
			return err
		}
		if len(sessions) != 1 || sessions[0].Spec.Lines != s.Lines() {
			return errors.New("the lines are not uploaded")
		}
		if sessions[0].Status.Lines >= sessions[0].Spec.Lines {
			t.Fatalf("processed %d of %d lines without a controller", sessions[0].Status.Lines, sessions[0].Spec.Lines)
		}
		return nil
	}))
	w.startController()
	w.check()
}

func TestTwoWorkstationsOfOneOwnerOnOneSession(t *testing.T) {
	w := newWorld(t, nil)
	w.startController()
	id := uuid.NewString()
	desk := w.session(w.desk, w.cwd, id)
	w.turn(desk, "Said at the desk.", "Heard at the desk.")
	w.processed()

	// The file goes along to the laptop, and the session is resumed there.
	laptop := w.workstation("ada", "laptop")
	there := replay.New(laptop, laptop.ClaudeDir(), w.project(laptop), id)
	data, err := os.ReadFile(desk.Transcript)
	w.must(err)
	w.must(os.MkdirAll(filepath.Dir(there.Transcript), 0o700))
	w.must(os.WriteFile(there.Transcript, data, 0o600))
	w.sessions = append(w.sessions, there)
	_, err = there.Start(t.Context(), "resume")
	w.must(err)
	w.turn(there, "Said on the laptop.", "Heard on the laptop.")
	w.turn(desk, "Said at the desk again.", "Heard at the desk again.")
	w.check()

	sessions, err := w.team.Sessions(t.Context())
	w.must(err)
	if n := len(sessions[0].Spec.Writers); n != 2 {
		t.Errorf("%d writers, want 2", n)
	}
}

func TestNothingIsLostWhileTheStoreIsDown(t *testing.T) {
	w := newWorld(t, nil)
	w.startController()
	s := w.session(w.desk, w.cwd, uuid.NewString())
	w.turn(s, "Before the store went away.", "Noted.")
	w.processed()
	w.must(parts.RestartS3(t.Context(), func() error {
		w.turn(s, "While the store is away.", "This waits on the desk.")
		return stack.Eventually(t.Context(), within, func() error {
			out, err := w.desk.Run(t.Context(), "status")
			if err != nil {
				return err
			}
			if !strings.Contains(out, "store") {
				return fmt.Errorf("undersong status does not speak of the store:\n%s", out)
			}
			return nil
		})
	}))
	w.check()
}

func TestOldMarksOfHooksAreSweptUp(t *testing.T) {
	w := newWorld(t, nil)
	old := filepath.Join(w.desk.State, "once", "0")
	w.must(os.MkdirAll(old, 0o700))
	s := w.session(w.desk, w.cwd, uuid.NewString())
	w.turn(s, "Hello.", "Hello to you.")
	w.must(stack.Eventually(t.Context(), within, func() error {
		if _, err := os.Stat(old); !errors.Is(err, os.ErrNotExist) {
			return errors.New("the daemon left what hooks of long ago put down")
		}
		return nil
	}))
}
