//go:build envtest

package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/undersong-dev/undersong/internal/segment"
	"github.com/undersong-dev/undersong/test/stack"
)

// TestASessionBegunAnew deletes a Session whose archive stays, and starts it
// over: once as it was, when its segments are fewer and larger than those of
// before, and once with so much more that they are as many.
func TestASessionBegunAnew(t *testing.T) {
	for name, more := range map[string]int{"fewer segments": 1, "more segments": 4} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			w.startController()
			s := w.session(w.desk, w.cwd, uuid.NewString())
			for i := range 2 {
				w.turn(s, fmt.Sprintf("Said before it was deleted, %d.", i), fmt.Sprintf("Noted, %d.", i))
				w.processed()
			}
			old := w.processed()[0]
			ada, err := parts.Cluster.Client(parts.Cluster.User("ada"))
			w.must(err)
			w.must(ada.Delete(t.Context(), &old))
			w.turn(s, "Said while it was deleted.", "Nobody heard it yet.")
			w.status(w.desk, "Deleted")
			out, err := w.desk.Run(t.Context(), "reset", s.ID)
			w.must(err)
			t.Log(strings.TrimSpace(out))
			_, err = w.desk.StartDaemon() // a hook starts none right after another
			w.must(err)

			for i := range more {
				w.turn(s, fmt.Sprintf("Said after it began anew, %d.", i), fmt.Sprintf("Heard, %d.", i))
				w.must(stack.Eventually(t.Context(), within, func() error {
					sessions, err := w.team.Sessions(t.Context())
					if err != nil || len(sessions) != 1 || sessions[0].Spec.Lines < s.Lines() {
						return fmt.Errorf("not uploaded: %+v: %w", sessions, err)
					}
					return nil
				}))
			}
			now := w.processed()[0]
			if now.UID == old.UID || now.Status.LostLines != 0 {
				t.Errorf("uid %s, %d lines are lost", now.UID, now.Status.LostLines)
			}
			if err := stack.CheckTold(w.conversations(), w.said); err != nil {
				t.Error(err)
			}
			bucket, err := w.team.Open()
			w.must(err)
			lines, err := stack.ArchiveLines(t.Context(), bucket, segment.ArchivePrefix(now.Namespace, now.Spec.Owner, now.Name))
			w.must(err)
			if want := s.Lines() + old.Spec.Lines; lines != want {
				t.Errorf("the archive has %d lines, want %d of before and %d of now", lines, old.Spec.Lines, s.Lines())
			}
			if out, err := w.desk.Run(t.Context(), "verify", s.ID); err != nil {
				t.Errorf("verify: %v\n%s", err, out)
			}
			w.must(stack.Eventually(t.Context(), within, func() error { return w.stateFiles(s) }))
		})
	}
}
