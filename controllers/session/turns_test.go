//go:build envtest

package session

import (
	"net/http"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/internal/letta"
	"github.com/undersong-dev/undersong/internal/letta/api"
	"github.com/undersong-dev/undersong/internal/letta/lettatest"
)

// sendRoute is the stand-in's route of a send.
const sendRoute = "POST /v1/conversations/{id}/messages"

// once fails unless Letta was told each of the texts once.
func (w *world) once(texts ...string) {
	w.t.Helper()
	for _, text := range texts {
		if n := strings.Count(w.words(), text); n != 1 {
			w.t.Errorf("Letta has %q %d times, want once:\n%s", text, n, w.words())
		}
	}
	if n := w.letta.Faults(); n != 0 {
		w.t.Errorf("%d ordered faults did not strike", n)
	}
}

func TestTurnsThatGoWrong(t *testing.T) {
	for name, c := range map[string]struct {
		reason string
		spoil  func(*lettatest.Server)
	}{
		"failed, nothing stored":     {"the words are sent again, under a fresh id", func(s *lettatest.Server) { s.FailTurn(lettatest.TurnFault{}) }},
		"failed twice":               {"and again", func(s *lettatest.Server) { s.FailTurn(lettatest.TurnFault{}); s.FailTurn(lettatest.TurnFault{}) }},
		"failed, words stored":       {"the agent is nudged, the words are not repeated", func(s *lettatest.Server) { s.FailTurn(lettatest.TurnFault{Stored: true}) }},
		"error event in a 200":       {"a failure inside a success is a failure", func(s *lettatest.Server) { s.FailTurn(lettatest.TurnFault{ErrorType: "llm_rate_limit"}) }},
		"no stop reason":             {"an end without an end is not taken for one", func(s *lettatest.Server) { s.FailTurn(lettatest.TurnFault{NoStop: true}) }},
		"answer lost after the turn": {"the answer is looked up", func(s *lettatest.Server) { s.Inject(lettatest.Fault{Route: sendRoute, DropAfter: true}) }},
		"connection lost before":     {"absent is sent", func(s *lettatest.Server) { s.Inject(lettatest.Fault{Route: sendRoute, DropBefore: true}) }},
		"cut in the middle":          {"what runs on is waited for", func(s *lettatest.Server) { s.Inject(lettatest.Fault{Route: sendRoute, CutAfter: 40}) }},
		"500":                        {"tried again", func(s *lettatest.Server) { s.Inject(lettatest.Fault{Route: sendRoute, Status: 500}) }},
		"429":                        {"tried again", func(s *lettatest.Server) { s.Inject(lettatest.Fault{Route: sendRoute, Status: 429}) }},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			c.spoil(w.letta)
			w.story()
			s := w.settleDown()
			w.once("tide tables are stored in GMT.", "Understood.", "What next?", "The harbour.")
			if d := s.Status.SyncState.Delivery; d.Phase != v1alpha1.DeliveryPublished {
				t.Errorf("%s: the delivery is %s", c.reason, d.Phase)
			}
		})
	}
}

func TestAFailingModelIsSaidOnceUntilItWorks(t *testing.T) {
	w := newWorld(t, nil)
	for range 5 {
		w.letta.FailTurn(lettatest.TurnFault{})
	}
	w.story()
	flips := 0
	var last metav1.ConditionStatus
	for w.letta.Faults() > 0 {
		_, _ = w.reconcile() // fails on purpose
		if is := condition(w.get(), v1alpha1.DeliveredCondition).Status; is != last {
			last = is
			flips++
		}
	}
	if flips > 2 { // Unknown while the first turn runs, False from then on
		t.Errorf("Delivered changed %d times under one lasting failure", flips)
	}
	if n := len(w.recorder.Events); n != 1 {
		t.Errorf("%d events for one lasting failure, want 1", n)
	}
	w.settleDown()
	w.once("tide tables are stored in GMT.", "The harbour.")
}

func TestANewLeaderWaitsBeforeItTakesOver(t *testing.T) {
	w := newWorld(t, nil)
	release := w.letta.HoldTurns()
	w.story()
	for w.letta.Requests(sendRoute) == 0 {
		_, _ = w.reconcile() // until the turn is sent
	}
	w.restart()
	now := time.Now()
	fake := clocktesting.NewFakePassiveClock(now)
	w.r.Clock, w.r.TakeoverDelay, w.r.started = fake, 15*time.Second, now
	asked := w.letta.Requests("GET /v1/conversations/{id}/messages")
	res, err := w.reconcile()
	if err != nil || res.RequeueAfter > 15*time.Second || res.RequeueAfter < 14*time.Second {
		t.Errorf("the new leader says %v, %v; want to wait its lease", res, err)
	}
	if n := w.letta.Requests("GET /v1/conversations/{id}/messages"); n != asked {
		t.Error("the new leader asked Letta before the lease ran out")
	}
	fake.SetTime(now.Add(16 * time.Second))
	_, _ = w.reconcile() // looks, and finds the turn running
	if n := w.letta.Requests(sendRoute); n != 1 {
		t.Errorf("%d sends while the turn runs, want 1", n)
	}
	release()
	w.r.Clock, w.r.TakeoverDelay = clock.RealClock{}, 0
	w.settleDown()
	w.once("tide tables are stored in GMT.", "The harbour.")
}

func TestSuspendHoldsBackAndLosesNothing(t *testing.T) {
	w := newWorld(t, nil)
	mem := &v1alpha1.TeamMemory{}
	key := w.key
	key.Name = "team"
	w.must(w.admin.Get(t.Context(), key, mem))
	mem.Spec.Suspend = v1alpha1.SuspendDelivery
	w.must(w.admin.Update(t.Context(), mem))
	w.story()
	for range 3 {
		_, _ = w.reconcile() // waits
	}
	if c := condition(w.get(), v1alpha1.DeliveredCondition); c.Reason != v1alpha1.SuspendedReason || w.words() != "" {
		t.Errorf("Delivered is %s %s, Letta has %q", c.Status, c.Reason, w.words())
	}
	if c := condition(w.get(), v1alpha1.VerifiedCondition); c.Status != metav1.ConditionTrue {
		t.Errorf("Verified is %s: the archive goes on", c.Status)
	}
	w.must(w.admin.Get(t.Context(), key, mem))
	mem.Spec.Suspend = ""
	w.must(w.admin.Update(t.Context(), mem))
	w.settleDown()
	w.once("tide tables are stored in GMT.", "The harbour.")
}

func TestTheAgentBehindOurBackIsMadeAnew(t *testing.T) {
	w := newWorld(t, nil)
	w.story()
	old := w.settleDown().Status.SyncState
	w.delete("/v1/agents/" + old.AgentID)
	a := w.writer("ws-a")
	a.segment(userLine("u9", "After the agent went."))
	a.apply()
	s := w.settleDown()
	if s.Status.SyncState.AgentID == old.AgentID || s.Status.SyncState.ConversationID == old.ConversationID {
		t.Error("the session still names what Letta no longer has")
	}
	w.once("After the agent went.")
}

func TestALongBacklogIsBatched(t *testing.T) {
	w := newWorld(t, nil)
	a := w.writer("ws-a")
	for i := range 6 {
		var lines []string
		for j := range 10 {
			id := string(rune('a'+i)) + string(rune('0'+j))
			lines = append(lines, userLine("u"+id, "Words "+id+" "+strings.Repeat("and so on ", 120)))
		}
		a.segment(lines...)
	}
	a.apply()
	w.settleDown()
	for i := range 6 {
		for j := range 10 {
			w.once("Words " + string(rune('a'+i)) + string(rune('0'+j)) + " ")
		}
	}
	if n := w.letta.Turns(); n < 3 || n > 4 {
		t.Errorf("%d turns for 72 KB of words in batches of 32 KiB, want 3", n)
	}
}

func TestNoSuchMemory(t *testing.T) {
	w := newWorld(t, nil)
	mem := &v1alpha1.TeamMemory{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "team"}}
	w.must(w.admin.Delete(t.Context(), mem))
	w.story()
	_, _ = w.reconcile() // waits
	c := condition(w.get(), v1alpha1.ReadyCondition)
	if c.Reason != v1alpha1.DependencyNotReadyReason || !strings.Contains(c.Message, "create the TeamMemory team") {
		t.Errorf("Ready is %s %s: %s", c.Status, c.Reason, c.Message)
	}
	for info, err := range w.bucket.List(t.Context(), "inbox/") {
		w.must(err)
		_ = info
		return // still there
	}
	t.Error("the inbox was emptied without a memory")
}

func TestAConversationThatIsGoneIsMadeAnewForANamedAgent(t *testing.T) {
	w := newWorld(t, nil)
	c, err := api.New(api.Options{BaseURL: w.lettaURL, Key: "key"})
	w.must(err)
	agent, err := c.CreateAgent(t.Context(), letta.AgentSpec{Name: "named", Model: "m"})
	w.must(err)
	mem := &v1alpha1.TeamMemory{}
	key := w.key
	key.Name = "team"
	w.must(w.admin.Get(t.Context(), key, mem))
	mem.Spec.Agent = v1alpha1.AgentSource{ID: agent.ID}
	w.must(w.admin.Update(t.Context(), mem))
	w.story()
	old := w.settleDown().Status.SyncState
	if old.AgentID != agent.ID {
		t.Fatalf("agent %s, want the named %s", old.AgentID, agent.ID)
	}
	w.delete("/v1/conversations/" + old.ConversationID)
	a := w.writer("ws-a")
	a.segment(userLine("u9", "After the conversation went."))
	a.apply()
	if s := w.settleDown(); s.Status.SyncState.ConversationID == old.ConversationID {
		t.Error("the session still names a conversation that is gone")
	}
	w.once("After the conversation went.")

	w.delete("/v1/agents/" + agent.ID)
	w.restart()
	a.segment(userLine("u10", "After the agent went."))
	a.apply()
	for range 6 {
		_, _ = w.reconcile() // says so
	}
	if got := condition(w.get(), v1alpha1.DeliveredCondition); got.Reason != v1alpha1.AgentNotFoundReason || !strings.Contains(got.Message, agent.ID) {
		t.Errorf("Delivered is %s %s: %s", got.Status, got.Reason, got.Message)
	}
}

// delete deletes something behind the controller's back.
func (w *world) delete(path string) {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), http.MethodDelete, w.lettaURL+path, nil)
	w.must(err)
	req.Header.Set("Authorization", "Bearer key")
	res, err := http.DefaultClient.Do(req)
	w.must(err)
	w.must(res.Body.Close())
}
