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
	eventsv1 "k8s.io/api/events/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/internal/crash"
	"github.com/undersong-dev/undersong/internal/segment"
	"github.com/undersong-dev/undersong/test/stack"
)

// TestASegmentThatKillsTwice kills two controllers while they scan the first
// segment. The third sets it aside, and everything else is heard.
func TestASegmentThatKillsTwice(t *testing.T) {
	w := newWorld(t, nil)
	die := func(n int) func() error {
		mark := filepath.Join(t.TempDir(), fmt.Sprint("mark", n))
		w.startController("UNDERSONG_CRASH="+crash.ControllerScanning, "UNDERSONG_CRASH_MARK="+mark)
		return func() error {
			select {
			case <-w.ctl.Exited():
				_, err := os.Stat(mark)
				return err
			default:
				return errors.New("the controller lives")
			}
		}
	}
	dead := die(1)
	s := w.session(w.desk, w.cwd, uuid.NewString())
	w.turn(s, "What killed the first controller?", "Nobody knows.")
	w.must(stack.Eventually(t.Context(), within, dead))
	dead = die(2)
	w.must(stack.Eventually(t.Context(), within, dead))
	w.startController()
	w.turn(s, "Do we go on?", "We do.")

	var ses v1alpha1.Session
	w.must(stack.Eventually(t.Context(), within, func() error {
		sessions, err := w.team.Sessions(t.Context())
		if err != nil {
			return err
		}
		if len(sessions) != 1 || sessions[0].Spec.Lines < s.Lines() || sessions[0].Status.Lag != 0 || sessions[0].Status.Lines+sessions[0].Status.LostLines < s.Lines() {
			return errors.New("the session is behind")
		}
		ses = sessions[0]
		return nil
	}))

	bucket, err := w.team.Open()
	w.must(err)
	packed, err := bucket.Get(t.Context(), segment.ParkedKey(ses.Namespace, "ada", ses.Name, ses.Spec.Writers[0].Workstation, 0, 1), segment.MaxPacked)
	w.must(err)
	raw, err := segment.Unpack(packed)
	w.must(err)
	_, lines, err := segment.Decode(raw)
	w.must(err)
	if ses.Status.LostLines != int64(len(lines)) || len(lines) == 0 {
		t.Errorf("%d lines count as lost, %d are set aside", ses.Status.LostLines, len(lines))
	}
	text := w.conversations()
	for _, words := range w.said {
		want := 1
		if strings.Contains(string(raw), words) {
			want = 0
		}
		if n := strings.Count(text, words); n != want {
			t.Errorf("Letta has %d times, want %d: %s", n, want, words)
		}
	}
	if !strings.Contains(text, "Do we go on?") {
		t.Error("what came after it was not heard")
	}
	for info, err := range bucket.List(t.Context(), segment.TryingPrefix(ses.Namespace, ses.Name)) {
		w.must(err)
		t.Errorf("%s is still there", info.Key)
	}
	admin, err := parts.Cluster.Client(parts.Cluster.Admin())
	w.must(err)
	w.must(stack.Eventually(t.Context(), within, func() error {
		var list eventsv1.EventList
		if err := admin.List(t.Context(), &list, client.InNamespace(ses.Namespace)); err != nil {
			return err
		}
		for i := range list.Items {
			if list.Items[i].Reason == "SegmentParked" {
				return nil
			}
		}
		return errors.New("no event tells of it")
	}))
}
