//go:build envtest

package daemon

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/undersong-dev/undersong/agent/statefile"
	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/internal/segment"
)

func TestATurnBecomesASession(t *testing.T) {
	s := newTeam(t)
	m := newMachine(t, s, "ada")
	m.start()
	k := m.talk()
	want := k.turn("why is the tide late?", "the moon is")
	k.settled(2)
	want = append(want, k.turn("and tomorrow?", "later still")...)
	k.settled(4)
	if diff := cmp.Diff(want, s.lines(k.name(), segment.MainStream)); diff != "" {
		t.Errorf("archive (-want +got):\n%s", diff)
	}
	live := k.live()
	if live == nil {
		t.Fatal("there is no Session")
	}
	if live.Spec.Owner != "ada" || live.Spec.Project.Remote != remote || live.Spec.Lines != 4 || len(live.Spec.Writers) != 1 {
		t.Errorf("spec %+v", live.Spec)
	}
	eventually(t, "the state files are there", func() error {
		got, err := statefile.Read(m.cwd, k.id)
		if err != nil {
			return err
		}
		got.StartedAt = time.Time{}
		want := statefile.State{SessionID: k.id, ConversationID: "conv-" + k.id, AgentID: "agent-1", LastProcessedIndex: 3, LastSeenMessageID: "message-1"}
		if diff := cmp.Diff(want, got); diff != "" {
			return errors.New(diff)
		}
		return nil
	})
	k.hook("SessionEnd")
	eventually(t, "the entry ends", func() error {
		if got := k.live().Spec.Writers[0].State; got != v1alpha1.WriterEnded {
			return errFault
		}
		return nil
	})
	m.troubled("api", "")
}
