//go:build envtest

package session

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/internal/letta"
	"github.com/undersong-dev/undersong/internal/letta/api"
	"github.com/undersong-dev/undersong/internal/letta/lettatest"
	"github.com/undersong-dev/undersong/internal/redact"
	"github.com/undersong-dev/undersong/internal/segment"
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
	w.r.Clock, w.r.TakeoverDelay = fake, 15*time.Second
	// A standby is up for a long time before it leads: that does not count.
	now = now.Add(time.Hour)
	fake.SetTime(now)
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

// TestALeaderThatHasNotNoticed: another one leads, and has written the ledger.
// Where a back end runs a turn again whose id it has seen, both would send it.
func TestALeaderThatHasNotNoticed(t *testing.T) {
	w := newWorld(t, nil)
	w.writer("ws-a").say("u1", "Note for the team: tide tables are stored in GMT.")
	old := w.r
	fake := clocktesting.NewFakePassiveClock(time.Now().Add(time.Hour)) // so long it has led
	old.TakeoverDelay, old.Turns.Clock = 15*time.Second, fake
	w.restart()
	w.r.Clock, w.r.TakeoverDelay = fake, 15*time.Second
	w.writer("ws-a").segment(userLine("u2", "What next?"))
	w.writer("ws-a").apply()
	w.reach(func() bool { return w.phase() == v1alpha1.DeliverySending })
	old.Clock = fake
	asked, sent := w.letta.Requests("GET /v1/conversations/{id}/messages"), w.letta.Requests(sendRoute)
	for range 5 {
		res, err := old.Reconcile(t.Context(), ctrl.Request{NamespacedName: w.key})
		if err != nil || res.RequeueAfter > 15*time.Second || res.RequeueAfter < 14*time.Second {
			t.Fatalf("it says %v, %v; want to wait a lease", res, err)
		}
	}
	if w.letta.Requests("GET /v1/conversations/{id}/messages") != asked || w.letta.Requests(sendRoute) != sent {
		t.Error("it looked or sent what the other one is about to")
	}
	w.settleDown()
	w.once("tide tables are stored in GMT.", "What next?")

	// One that is still written by nobody's turn after a lease is its own again.
	w.writer("ws-a").segment(userLine("u3", "And then?"))
	w.writer("ws-a").apply()
	w.reach(func() bool { return w.phase() == v1alpha1.DeliverySending })
	_, _ = old.Reconcile(t.Context(), ctrl.Request{NamespacedName: w.key}) // meets it
	fake.SetTime(fake.Now().Add(16 * time.Second))
	w.r = old
	w.settleDown()
	w.once("tide tables are stored in GMT.", "What next?", "And then?")
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

func TestAStaleWorkstationCacheMakesNoGap(t *testing.T) {
	w := newWorld(t, nil)
	w.story()
	w.r.Client = interceptor.NewClient(w.watching(), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if _, ok := obj.(*v1alpha1.Workstation); ok {
				return apierrors.NewNotFound(schema.GroupResource{Resource: "workstations"}, key.Name)
			}
			return c.Get(ctx, key, obj, opts...)
		},
	})
	s := w.settleDown()
	if s.Status.LostLines != 0 || s.Status.Lines != 7 {
		t.Errorf("lines %d, lost %d; the segments lay in the inbox", s.Status.Lines, s.Status.LostLines)
	}
	w.once("tide tables are stored in GMT.", "The harbour.")
}

// watching is the controller's own client.
func (w *world) watching() client.WithWatch {
	w.t.Helper()
	cfg, err := cluster.Controller(w.t.Context())
	w.must(err)
	c, err := cluster.Client(cfg)
	w.must(err)
	return c
}

func TestAMissingSegmentKeepsNothingElseBack(t *testing.T) {
	w := newWorld(t, nil)
	a, b := w.writer("ws-a"), w.writer("ws-b")
	b.segment(userLine("u1", "Never arrives."))
	b.apply()
	w.must(w.bucket.Delete(t.Context(), segment.InboxKey(b.uid, 1)))
	a.segment(userLine("u2", "Said on the other workstation."))
	a.apply()
	for range 40 {
		_, _ = w.reconcile() // one writer fails, the other goes on
		if w.words() != "" {
			break
		}
		select {
		case <-w.r.Turns.Events:
		case <-time.After(20 * time.Millisecond):
		}
	}
	w.once("Said on the other workstation.")
	if c := condition(w.get(), v1alpha1.VerifiedCondition); c.Reason != v1alpha1.SegmentMissingReason {
		t.Errorf("Verified is %s %s", c.Status, c.Reason)
	}
}

func TestFailingTurnsAreSlowedDownAndBounded(t *testing.T) {
	w := newWorld(t, nil)
	w.r.RetryBase = 200 * time.Millisecond
	for range 50 {
		w.letta.FailTurn(lettatest.TurnFault{})
	}
	w.story()
	begin := time.Now()
	for time.Since(begin) < 2*time.Second {
		_, _ = w.reconcile() // fails on purpose, woken all the time
	}
	// 200 ms, 400, 800, 1600: four or five tries in two seconds.
	if n := 50 - w.letta.Faults(); n > 6 {
		t.Errorf("%d turns in two seconds of failure", n)
	}
}

func TestAWorkstationThatIsGoneLosesNothingThatIsArchived(t *testing.T) {
	w := newWorld(t, nil)
	w.story()
	// The process dies after the archive and before the status.
	dead := errors.New("dead")
	w.r.Client = interceptor.NewClient(w.watching(), interceptor.Funcs{
		SubResourcePatch: func(context.Context, client.Client, string, client.Object, client.Patch, ...client.SubResourcePatchOption) error {
			return dead
		},
	})
	if _, err := w.reconcile(); !errors.Is(err, dead) {
		t.Fatalf("reconcile: %v", err)
	}
	w.must(w.user.Delete(t.Context(), &v1alpha1.Workstation{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "ws-a"}}))
	w.restart()
	s := w.settleDown()
	if s.Status.LostLines != 0 {
		t.Errorf("%d lines are lost that are in the archive", s.Status.LostLines)
	}
	w.once("tide tables are stored in GMT.", "The harbour.")
}

func TestAnotherAgentInSpecIsUsed(t *testing.T) {
	w := newWorld(t, nil)
	w.story()
	old := w.settleDown().Status.SyncState.AgentID
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
	a := w.writer("ws-a")
	a.segment(userLine("u9", "For the new agent."))
	a.apply()
	if s := w.settleDown(); s.Status.SyncState.AgentID != agent.ID || agent.ID == old {
		t.Errorf("the agent is %s, spec names %s", s.Status.SyncState.AgentID, agent.ID)
	}
	w.once("For the new agent.")
}

func TestAHugeRecordDoesNotWedge(t *testing.T) {
	w := newWorld(t, nil)
	a := w.writer("ws-a")
	a.segment(userLine("u1", "It begins. "+strings.Repeat("log line ", 1<<20)+" It ends."), assistantLine("a1", "Long."))
	a.apply()
	w.settleDown()
	w.once("It begins.", "It ends.", "are left out here", "Long.")
}

func TestAForkIsNotToldTwice(t *testing.T) {
	w := newWorld(t, nil)
	w.story()
	w.settleDown()
	parent := w.key
	a, mine := w.fork(), w.mine
	a.segment(mine(userLine("u1", "Note for the team: tide tables are stored in GMT.")), mine(assistantLine("a1", "Understood.")), mine(userLine("u7", "Only in the fork.")))
	a.apply()
	w.settleDown()
	w.once("tide tables are stored in GMT.", "Understood.", "Only in the fork.")
	// Without its parent the fork still knows what it inherited.
	w.must(w.user.Delete(t.Context(), &v1alpha1.Session{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: parent.Name}}))
	a.segment(mine(userLine("u2", "What next?")), mine(userLine("u8", "Later in the fork.")))
	a.apply()
	w.settleDown()
	w.once("What next?", "Later in the fork.")
}

// forkID is the id of the session that fork makes.
var forkID = strings.Replace(sessionID, "000000000001", "000000000002", 1)

// fork makes a fork of the session, which the world then speaks of, and
// returns its writer.
func (w *world) fork() *writer {
	w.t.Helper()
	w.key.Name = v1alpha1.SessionName(forkID, owner)
	w.must(w.user.Create(w.t.Context(), &v1alpha1.Session{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: w.key.Name},
		Spec: v1alpha1.SessionSpec{
			Owner: owner, SessionID: forkID, Agent: v1alpha1.AgentClaudeCode, MemoryRef: v1alpha1.LocalRef{Name: "team"},
			Project: v1alpha1.Project{Name: "lantern", Remote: remote}, ForkedFrom: sessionID,
		},
	}, client.FieldOwner("undersong-create")))
	ws := &v1alpha1.Workstation{}
	w.must(w.admin.Get(w.t.Context(), types.NamespacedName{Namespace: w.namespace, Name: "ws-a"}, ws))
	r, err := redact.New()
	w.must(err)
	return &writer{w: w, name: "ws-a", uid: string(ws.UID), slot: 100, chain: segment.Start(w.key.Name, "ws-a"), raws: map[int64][]byte{}, redactor: r}
}

// mine is a line as the fork has it.
func (w *world) mine(line string) string { return strings.ReplaceAll(line, sessionID, forkID) }
