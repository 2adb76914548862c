//go:build envtest

package e2e

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/undersong-dev/undersong/test/stack"
)

// TestVerifyProves: undersong verify follows a session from the file to the
// memory, says what is on its way, names what was withheld, and finds what does
// not fit.
func TestVerifyProves(t *testing.T) {
	w := newWorld(t, nil)
	w.startController()
	s := w.session(w.desk, w.cwd, uuid.NewString())
	w.turn(s, "First words.", "Noted.")
	w.processed()
	_, err := w.desk.Run(t.Context(), "pause", "--capture")
	w.must(err)
	w.turn(s, "Said while paused.", "Not heard.")
	_, err = w.desk.Run(t.Context(), "resume")
	w.must(err)
	w.turn(s, "Words after the pause.", "Heard again.")
	w.stopController()

	prove := func(args ...string) (string, error) {
		return w.desk.Run(t.Context(), append([]string{"verify", s.ID}, args...)...)
	}
	w.must(stack.Eventually(t.Context(), within, func() error {
		out, err := prove()
		if err == nil && !strings.Contains(out, "on its way") {
			err = errors.New("nothing is said to be on its way")
		}
		return err
	}))
	w.startController()
	var proof struct {
		Segments, Verified, Delivered int64
		Lines                         int64
		Withheld                      []struct{ Reason string }
		Gap                           string
	}
	w.must(stack.Eventually(t.Context(), within, func() error {
		out, err := prove("--json")
		if err == nil {
			err = json.Unmarshal([]byte(out), &proof)
		}
		if err == nil && (proof.Segments < 2 || proof.Verified != proof.Segments || proof.Delivered != proof.Segments) {
			err = errors.New("not all is delivered")
		}
		return err
	}))
	if proof.Gap != "" || len(proof.Withheld) == 0 || proof.Withheld[0].Reason != "paused" {
		t.Errorf("proof: %+v; want a withheld range, paused, and no gap", proof)
	}
	out, err := prove()
	w.must(err)
	for _, want := range []string{"read to its end", "verified      all", "delivered     all", "paused", "the chain is whole"} {
		if !strings.Contains(out, want) {
			t.Errorf("there is no %q in:\n%s", want, out)
		}
	}
	t.Logf("undersong verify:\n%s", out)

	// A receipt that was changed, and one that is gone.
	receipts, err := filepath.Glob(filepath.Join(w.desk.State, "sessions", "*", "receipts.jsonl"))
	w.must(err)
	whole, err := os.ReadFile(receipts[0])
	w.must(err)
	for name, spoiled := range map[string]string{
		"a changed digest":  strings.Replace(string(whole), `"digest":"`, `"digest":"0`, 1),
		"a missing receipt": string(whole[strings.Index(string(whole[1:]), "\n")+1:]),
	} {
		w.must(os.WriteFile(receipts[0], []byte(spoiled), 0o600))
		if out, err := prove(); err == nil || !strings.Contains(out, "GAP: ") {
			t.Errorf("%s: %v, and no gap is named in:\n%s", name, err, out)
		}
	}
}
