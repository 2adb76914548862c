package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/undersong-dev/undersong/agent/note"
	"github.com/undersong-dev/undersong/agent/whisper"
)

// cmdSeed lays out the state directory named by UNDERSONG_HOME as a daemon
// leaves it before the run that HOOKBENCH_* describes: configured, and with the
// whisper that the case asks for.
func cmdSeed() error {
	home := os.Getenv("UNDERSONG_HOME")
	if home == "" {
		return errors.New("seed: UNDERSONG_HOME is not set")
	}
	_, err := note.LoadConfig(home)
	if errors.Is(err, note.ErrNotConfigured) {
		err = note.SaveConfig(home, note.Config{
			Server: "https://127.0.0.1:6443", Kubeconfig: home + "/kubeconfig", Namespace: "bench", Memory: "bench",
			StoreHost: "127.0.0.1:9000", Owner: "bench", Daemon: "/bin/true", ConsentedAt: now(),
		})
	}
	if err != nil {
		return fmt.Errorf("seed: %w", err)
	}
	if err := note.Provide(home); err != nil {
		return fmt.Errorf("seed: %w", err)
	}
	if !strings.Contains(os.Getenv("HOOKBENCH_CASE"), "one whisper") {
		return nil
	}
	for range whisper.Pace { // as many prompts ago as let a message be shown again
		if err := whisper.Prompted(home, os.Getenv("HOOKBENCH_SESSION")); err != nil {
			return fmt.Errorf("seed: %w", err)
		}
	}
	err = whisper.Put(home, whisper.Whisper{
		ID: "bench-" + os.Getenv("HOOKBENCH_EVENT") + "-" + os.Getenv("HOOKBENCH_RUN"), Session: os.Getenv("HOOKBENCH_SESSION"),
		Project: "example.test/demo/lantern", Memory: "bench", Text: newText(99).prose(600), At: now(),
	})
	if err != nil {
		return fmt.Errorf("seed: %w", err)
	}
	return nil
}
