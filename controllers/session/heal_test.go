//go:build envtest

package session

import (
	"bytes"
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/controllers/connect"
	"github.com/undersong-dev/undersong/internal/letta/lettatest"
	"github.com/undersong-dev/undersong/internal/segment"
	"github.com/undersong-dev/undersong/test/kube"
)

func TestLettaThatMovedIsGivenWhatIsNew(t *testing.T) {
	w := newWorld(t, nil)
	w.story()
	old := w.settleDown().Status.SyncState
	archive := w.objects("archive/")
	moved, err := lettatest.New(lettatest.Options{Key: "key"})
	w.must(err)
	url, err := moved.Start(context.WithoutCancel(t.Context()), "")
	w.must(err)
	t.Cleanup(func() { _ = moved.Close() })
	secret := &corev1.Secret{}
	w.must(w.admin.Get(t.Context(), types.NamespacedName{Namespace: w.namespace, Name: kube.LettaSecret}, secret))
	secret.Annotations[connect.HostsAnnotation] = strings.TrimPrefix(url, "http://")
	w.must(w.admin.Update(t.Context(), secret))
	w.change(func(m *v1alpha1.TeamMemory) { m.Spec.Letta.BaseURL = url })

	a := w.writer("ws-a")
	a.segment(userLine("u9", "After Letta moved."))
	a.apply()
	s := w.settleDown()
	if y := s.Status.SyncState; y.AgentID == old.AgentID || y.ConversationID == old.ConversationID {
		t.Error("the session still names what the old place has")
	}
	if n := strings.Count(strings.Join(moved.Heard(), "\n"), "After Letta moved."); n != 1 {
		t.Errorf("the new place heard the new words %d times, want once", n)
	}
	if n := w.objects("archive/"); n != archive+1 {
		t.Errorf("%d objects in the archive, want the %d of before and one more", n, archive)
	}
	said := false
	for len(w.recorder.Events) > 0 {
		said = strings.Contains(<-w.recorder.Events, v1alpha1.AgentNotFoundReason) || said
	}
	if !said {
		t.Error("no event says that a new agent was made")
	}
}

func TestANewerFormatStopsNobodyElse(t *testing.T) {
	w := newWorld(t, nil)
	a, b := w.writer("ws-a"), w.writer("ws-b")
	seq := a.segment(userLine("u1", "Understood."))
	a.raws[seq] = bytes.Replace(a.raws[seq], []byte(`"format":1`), []byte(`"format":2`), 1)
	a.chain = segment.Start(w.key.Name, "ws-a").Next(a.raws[seq])
	a.put(seq, segment.Pack(a.raws[seq]))
	a.apply()
	b.segment(userLine("u2", "What next?"))
	b.apply()
	w.reach(func() bool {
		return strings.Contains(w.words(), "What next?") && w.phase() == v1alpha1.DeliveryPublished
	})
	b.segment(userLine("u3", "The harbour."))
	b.apply()
	w.reach(func() bool {
		return strings.Contains(w.words(), "The harbour.") && w.phase() == v1alpha1.DeliveryPublished
	})
	s := w.get()
	if c := condition(s, v1alpha1.VerifiedCondition); c.Status != metav1.ConditionFalse || c.Reason != v1alpha1.UnsupportedVersionReason || !strings.Contains(c.Message, "ws-a") {
		t.Errorf("Verified is %s %s: %s", c.Status, c.Reason, c.Message)
	}
	if n := w.objects(segment.InboxPrefix(a.uid)); n == 0 || len(syncOf(s, "ws-a").Wanted) != 0 {
		t.Errorf("%d objects in the inbox, wanted %v: what cannot be read yet is kept, and not asked for again", n, syncOf(s, "ws-a").Wanted)
	}
	w.only("Letta", w.words(), "What next?", "The harbour.")
}
