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
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/internal/crash"
	"github.com/undersong-dev/undersong/internal/segment"
	"github.com/undersong-dev/undersong/test/replay"
	"github.com/undersong-dev/undersong/test/stack"
)

// convention is what the first session teaches and the second is told.
const convention = "tide tables are stored in GMT, never in local time."

// TestEveryCrashPoint kills the process at each point of the walk, starts it
// again, and compares the end with what was said. That the point was reached
// is proved by the mark that the process leaves.
func TestEveryCrashPoint(t *testing.T) {
	for _, point := range crash.All() {
		for n := 1; n <= *rounds; n++ {
			t.Run(fmt.Sprintf("%s/%d", point, n), func(t *testing.T) {
				killAt(t, point, n)
			})
		}
	}
}

func killAt(t *testing.T, point string, n int) {
	t.Helper()
	w := newWorld(t, nil)
	mark := filepath.Join(t.TempDir(), "mark")
	env := []string{fmt.Sprintf("UNDERSONG_CRASH=%s:%d", point, n), "UNDERSONG_CRASH_MARK=" + mark}

	switch {
	case strings.HasPrefix(point, "controller-"):
		w.startController(env...)
	case strings.HasPrefix(point, "agent-"):
		w.startController()
		p, err := w.desk.StartDaemon(env...)
		w.must(err)
		t.Cleanup(p.Kill)
	case strings.HasPrefix(point, "hook-"):
		w.startController()
		w.desk.HookEnv = env
	}
	// A hook is a new process each time and counts its own hits; the others
	// live on and are killed once.
	if strings.HasPrefix(point, "hook-") && n > 1 {
		t.Skip("a hook passes each point once")
	}
	dead := func() bool {
		_, err := os.Stat(mark)
		return err == nil
	}
	revive := func() {
		if !dead() {
			return
		}
		w.desk.HookEnv = nil
		if strings.HasPrefix(point, "controller-") && w.ctl != nil {
			select {
			case <-w.ctl.Exited():
				w.startController()
			default:
			}
		}
	}

	// ada teaches something, and ends.
	first := w.session(w.desk, w.cwd, uuid.NewString())
	w.turn(first, "Note for the team: "+convention, "Understood.")
	w.until(dead, revive, w.caughtUp)
	w.turn(first, "What comes next?", "The harbour.")
	if err := first.End(t.Context()); err != nil && !killed(err) {
		t.Fatal(err)
	}
	w.until(dead, revive, w.caughtUp)

	// ada asks in another session, and is told.
	second := w.session(w.desk, w.cwd, uuid.NewString())
	w.turn(second, "Should the tide tables be converted to local time before they are stored?", "Rather when they are read.")
	w.until(dead, revive, w.caughtUp)
	told := w.askUntilTold(second, revive)
	w.until(dead, revive, w.caughtUp)

	// ada has the second session forgotten; its words are no longer said.
	if point == crash.ControllerErased || point == crash.ControllerConversationDeleted {
		w.forget(second, dead, revive)
	}
	if !dead() {
		t.Fatalf("the point %s was not reached %d times", point, n)
	}
	if !strings.Contains(told.Context, convention) {
		t.Errorf("the second session was told %q", told.Context)
	}
	w.check()
}

// forget has a session forgotten, and waits for the answer.
func (w *world) forget(s *replay.Session, dead func() bool, revive func()) {
	w.t.Helper()
	key := types.NamespacedName{Namespace: w.team.Namespace, Name: v1alpha1.SessionName(s.ID, "ada")}
	ada, err := parts.Cluster.Client(parts.Cluster.User("ada"))
	w.must(err)
	live := &v1alpha1.Session{}
	w.must(ada.Get(w.t.Context(), key, live))
	before := live.DeepCopy()
	live.Spec.Requests = []v1alpha1.Request{{ID: "forget", Kind: v1alpha1.RequestForget}}
	w.must(ada.Patch(w.t.Context(), live, client.MergeFrom(before)))
	w.until(dead, revive, func() error {
		if err := ada.Get(w.t.Context(), key, live); err != nil {
			return err
		}
		if len(live.Status.Answered) == 0 {
			return errors.New("the request is not answered")
		}
		return nil
	})
	w.said = w.said[:4]
	bucket, err := w.team.Open()
	w.must(err)
	for info, err := range bucket.List(w.t.Context(), segment.ArchivePrefix(live.Namespace, "ada", live.Name)) {
		w.must(err)
		if strings.HasSuffix(info.Key, "/session.json") {
			continue // counters and digests
		}
		packed, err := bucket.Get(w.t.Context(), info.Key, segment.MaxPacked)
		w.must(err)
		raw, err := segment.Unpack(packed)
		w.must(err)
		if strings.Contains(string(raw), "tide tables") || strings.Contains(string(raw), "And what of the view") {
			w.t.Errorf("%s still has words of the forgotten session", info.Key)
		}
	}
	for _, words := range []string{"converted to local time", "And what of the view"} {
		if strings.Contains(w.conversations(), words) {
			w.t.Errorf("a conversation still has %q", words)
		}
	}
	// The session goes on, in another conversation.
	w.turn(s, "Said after it was forgotten.", "Heard.")
	w.until(dead, revive, w.caughtUp)
}

// caughtUp reports whether the controller has nothing left to do for what was
// played.
func (w *world) caughtUp() error {
	sessions, err := w.team.Sessions(w.t.Context())
	if err != nil {
		return err
	}
	if len(sessions) != len(w.ids()) {
		return fmt.Errorf("%d of %d sessions are recorded", len(sessions), len(w.ids()))
	}
	for i := range sessions {
		s := &sessions[i]
		if !stack.CaughtUp(s) || s.Spec.Lines < w.lines(s.Spec.SessionID) {
			return fmt.Errorf("session %s: %d lines played, %d uploaded, %d processed", s.Name, w.lines(s.Spec.SessionID), s.Spec.Lines, s.Status.Lines)
		}
	}
	return nil
}

// until waits for a condition. When the process was killed on the way it is
// started again: the controller at once, as a cluster does, the daemon by the
// next hook, as the next thing a person does.
func (w *world) until(dead func() bool, revive func(), done func() error) {
	w.t.Helper()
	woken := false
	err := stack.Eventually(w.t.Context(), within, func() error {
		revive()
		if dead() && w.desk.DaemonPID() == 0 && !woken {
			woken = true
			// Any hook of any session will do.
			s := w.sessions[len(w.sessions)-1]
			if err := s.Stop(w.t.Context(), ""); err != nil && !killed(err) {
				return err
			}
		}
		if dead() && w.desk.DaemonPID() == 0 {
			woken = false
		}
		return done()
	})
	w.must(err)
}

// askUntilTold plays prompts until a whisper is printed. A hook that was killed
// after it had claimed the whisper printed nothing: the whisper is shown again.
func (w *world) askUntilTold(s *replay.Session, revive func()) replay.Output {
	w.t.Helper()
	var out replay.Output
	n := 0
	err := stack.Eventually(w.t.Context(), within, func() error {
		revive()
		n++
		out = w.turn(s, fmt.Sprintf("And what of the view, number %d?", n), fmt.Sprintf("It is in the folder views, number %d.", n))
		if !whisperTag.MatchString(out.Context) {
			return errors.New("no whisper was printed")
		}
		return nil
	})
	w.must(err)
	for range 2 {
		n++
		if again := w.turn(s, fmt.Sprintf("And then, number %d?", n), fmt.Sprintf("Then the rest, number %d.", n)); again.Context != "" {
			w.t.Errorf("a whisper was printed twice: %q", again.Context)
		}
	}
	return out
}
