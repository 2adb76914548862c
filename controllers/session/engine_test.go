//go:build envtest

package session

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/internal/letta/lettatest"
)

// policy changes the TeamMemory's spec.
func (w *world) policy(change func(*v1alpha1.TeamMemory)) *v1alpha1.TeamMemory {
	w.t.Helper()
	mem := &v1alpha1.TeamMemory{}
	w.must(w.admin.Get(w.t.Context(), types.NamespacedName{Namespace: w.namespace, Name: "team"}, mem))
	change(mem)
	w.must(w.admin.Update(w.t.Context(), mem))
	return mem
}

// until reconciles until something holds.
func (w *world) until(what string, holds func(*v1alpha1.Session) bool) *v1alpha1.Session {
	w.t.Helper()
	for range 400 {
		if s := w.get(); holds(s) {
			return s
		}
		_, _ = w.reconcile() // what it says is in status
		select {
		case <-w.r.Turns.Events:
		case <-time.After(20 * time.Millisecond):
		}
	}
	w.t.Fatalf("%s did not come: %+v", what, w.get().Status.Conditions)
	return nil
}

// quiet reconciles ten times and fails if that wrote or reported anything.
func (w *world) quiet(what string) {
	w.t.Helper()
	before, events := w.get(), len(w.recorder.Events)
	for range 10 {
		_, _ = w.reconcile() // what it says is in status
	}
	if after := w.get(); after.ResourceVersion != before.ResourceVersion {
		w.t.Errorf("%s: ten reconciles wrote", what)
	}
	if n := len(w.recorder.Events) - events; n != 0 {
		w.t.Errorf("%s: ten reconciles sent %d events", what, n)
	}
}

func reasonIs(name, reason string) func(*v1alpha1.Session) bool {
	return func(s *v1alpha1.Session) bool { return condition(s, name).Reason == reason }
}

func TestAnEndlessTurnIsCancelled(t *testing.T) {
	w := newWorld(t, nil)
	release := w.letta.HoldTurns()
	w.story()
	w.until("a turn", func(*v1alpha1.Session) bool { return w.letta.Turns() > 0 || w.letta.Requests(sendRoute) > 0 })
	// The process that sent it is gone; the next one finds it running.
	w.restart()
	clock := clocktesting.NewFakePassiveClock(time.Now())
	w.r.Clock = clock
	const cancelRoute = "POST /v1/conversations/{id}/cancel"
	for range 5 {
		_, _ = w.reconcile() // waits
	}
	if n := w.letta.Requests(cancelRoute); n != 0 {
		t.Fatalf("%d cancels within the turn's time", n)
	}
	clock.SetTime(time.Now().Add(11 * time.Minute))
	cancelled := testutil.ToFloat64(turns.WithLabelValues(resultCancelled))
	_, _ = w.reconcile() // cancels
	if n := w.letta.Requests(cancelRoute); n != 1 {
		t.Errorf("%d cancels after its time, want 1", n)
	}
	if n := testutil.ToFloat64(turns.WithLabelValues(resultCancelled)) - cancelled; n != 1 {
		t.Errorf("%v turns are counted as cancelled, want 1", n)
	}
	if c := condition(w.get(), v1alpha1.DeliveredCondition); c.Reason != v1alpha1.LettaRejectedReason || !strings.Contains(c.Message, "did not end within 10m0s") {
		t.Errorf("Delivered is %s %s: %s", c.Status, c.Reason, c.Message)
	}
	release()
	a := w.writer("ws-a")
	a.segment(userLine("u9", "After the endless turn."))
	a.apply()
	w.settleDown()
	w.once("tide tables are stored in GMT.", "The harbour.", "After the endless turn.")
}

// TestAStaleReadSendsNothing: the cache still has a ledger that another process
// has brought to its end meanwhile.
func TestAStaleReadSendsNothing(t *testing.T) {
	w := newWorld(t, nil)
	w.story()
	stale := w.until("the ledger", func(*v1alpha1.Session) bool { return w.phase() == v1alpha1.DeliverySending })
	if w.sent() != 0 {
		t.Fatal("the words were sent with the ledger")
	}
	live := stale.DeepCopy()
	live.Status.SyncState.Delivery.Phase = v1alpha1.DeliveryPublished
	w.must(w.r.Client.Status().Update(t.Context(), live))
	w.r.Client = interceptor.NewClient(w.watching(), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
			if s, ok := into.(*v1alpha1.Session); ok {
				stale.DeepCopyInto(s)
				return nil
			}
			return c.Get(ctx, key, into, options...)
		},
	})
	for range 5 {
		_, _ = w.reconcile() // what it says goes nowhere
		w.pause()
	}
	if n := w.sent(); n != 0 {
		t.Errorf("%d turns were sent whose ledger is not in status any more", n)
	}
}

func TestATurnIsAsOldAsItsSending(t *testing.T) {
	w := newWorld(t, nil)
	w.story()
	for d := (*v1alpha1.Delivery)(nil); d == nil; d = w.get().Status.SyncState.Delivery {
		_, _ = w.reconcile() // until the ledger is written
	}
	if w.letta.Requests(sendRoute) != 0 {
		t.Fatal("the words were sent with the ledger")
	}
	// The next process comes an hour later, and the one after that soon.
	w.restart()
	clock := clocktesting.NewFakePassiveClock(time.Now().Add(time.Hour))
	w.r.Clock = clock
	release := w.letta.HoldTurns()
	defer release()
	w.until("a turn", func(*v1alpha1.Session) bool { return w.letta.Turns() > 0 })
	w.restart()
	w.r.Clock = clock
	for range 5 {
		_, _ = w.reconcile() // waits
	}
	if n := w.letta.Requests("POST /v1/conversations/{id}/cancel"); n != 0 {
		t.Errorf("%d cancels of a turn that began just now", n)
	}
	release()
	w.settleDown()
	w.once("tide tables are stored in GMT.", "The harbour.")
}

func TestABudgetCountsWhatANewProcessFindsOut(t *testing.T) {
	w := newWorld(t, nil)
	w.letta.FailTurn(lettatest.TurnFault{Stored: true})
	w.story()
	w.until("a turn", func(*v1alpha1.Session) bool { return w.letta.Turns() > 0 })
	for state := turnRunning; state == turnRunning; { // it ends, and nobody notes it
		w.pause()
		state, _, _ = w.r.Turns.look(w.key, clientID(w.get().Status.SyncState.Delivery))
	}
	w.restart()
	s := w.settleDown()
	got, err := w.r.Budget.Today(t.Context(), w.policy(func(*v1alpha1.TeamMemory) {}))
	w.must(err)
	if got == nil || got.Tokens != s.Status.Usage.DayTokens || w.letta.Turns() != 2 {
		t.Errorf("after %d turns the budget counts %+v, the session %d tokens of today; want the same", w.letta.Turns(), got, s.Status.Usage.DayTokens)
	}
}

func TestATurnThatOutlastsItsTimeHere(t *testing.T) {
	w := newWorld(t, nil)
	five := int32(5)
	w.policy(func(m *v1alpha1.TeamMemory) { m.Spec.Delivery.TurnTimeoutSeconds = &five })
	release := w.letta.HoldTurns()
	defer release()
	w.story()
	w.until("a cancelled turn", func(*v1alpha1.Session) bool {
		return w.letta.Requests("POST /v1/conversations/{id}/cancel") > 0
	})
	release()
	w.settleDown()
	w.once("tide tables are stored in GMT.", "The harbour.")
}

func TestADeliveryThatIsNeverAnsweredIsParked(t *testing.T) {
	w := newWorld(t, nil)
	mem := w.policy(func(*v1alpha1.TeamMemory) {})
	for range parkAfter {
		w.letta.FailTurn(lettatest.TurnFault{})
	}
	// Another session of the memory is answered all the time.
	w.r.Turns.answered[mem.UID] = answered{types.NamespacedName{Name: "another"}, time.Now().Add(time.Hour)}
	w.story()
	s := w.until("a parked delivery", func(s *v1alpha1.Session) bool {
		return s.Status.SyncState != nil && len(s.Status.SyncState.Parked) == 1
	})
	if p := s.Status.SyncState.Parked[0]; p.Lines != 7 || p.Delivery.Attempts != parkAfter || s.Status.Lag != 0 {
		t.Errorf("parked %d lines after %d attempts, lag %d; want 7, %d and 0", p.Lines, p.Delivery.Attempts, s.Status.Lag, parkAfter)
	}
	events := len(w.recorder.Events)
	a := w.writer("ws-a")
	for i := range 3 {
		a.segment(userLine(fmt.Sprintf("v%d", i), fmt.Sprintf("Later words %d.", i)))
		a.apply()
		if res, err := w.reconcile(); err != nil || res.RequeueAfter > time.Minute {
			t.Errorf("with words under way it is looked at again in %s, %v", res.RequeueAfter, err)
		}
		w.until("later words", func(*v1alpha1.Session) bool { return strings.Contains(w.words(), fmt.Sprintf("Later words %d.", i)) })
	}
	s = w.until("the end of what is not parked", func(s *v1alpha1.Session) bool {
		return !backlog(s) && s.Status.SyncState.Delivery != nil && s.Status.SyncState.Delivery.Phase == v1alpha1.DeliveryPublished && s.Status.Lag == 0
	})
	if c := condition(s, v1alpha1.DeliveredCondition); c.Reason != v1alpha1.DeliveryParkedReason || c.Status != metav1.ConditionFalse || !strings.Contains(c.Message, "TeamMemory team") {
		t.Errorf("Delivered is %s %s: %s", c.Status, c.Reason, c.Message)
	}
	if c := condition(s, v1alpha1.PublishedCondition); c.Status != metav1.ConditionTrue {
		t.Errorf("Published is %s %s: what was answered is published", c.Status, c.Reason)
	}
	if n := len(w.recorder.Events) - events; n != 0 {
		t.Errorf("%d events for words that are delivered beside a parked delivery, want none", n)
	}
	w.quiet("a parked delivery")
	if strings.Contains(w.words(), "tide tables") {
		t.Error("the parked words reached Letta")
	}
	// A new process changes nothing, another model does.
	w.restart()
	w.quiet("a parked delivery, a new process")
	w.policy(func(m *v1alpha1.TeamMemory) { m.Spec.Agent.Template.Model = "rules/better" })
	s = w.settleDown()
	if len(s.Status.SyncState.Parked) != 0 || s.Status.Lines != 10 {
		t.Errorf("%d deliveries are parked, %d lines processed; want none and 10", len(s.Status.SyncState.Parked), s.Status.Lines)
	}
	w.once("tide tables are stored in GMT.", "Understood.", "What next?", "The harbour.", "Later words 0.", "Later words 1.", "Later words 2.")
}

func TestNothingIsParkedWhileLettaFailsForAll(t *testing.T) {
	w := newWorld(t, nil)
	w.r.RetryBase = time.Millisecond
	for range parkAfter + 3 {
		w.letta.FailTurn(lettatest.TurnFault{})
	}
	w.story()
	s := w.settleDown()
	if len(s.Status.SyncState.Parked) != 0 {
		t.Error("a delivery was given up, though no other session was answered either")
	}
	w.once("tide tables are stored in GMT.", "The harbour.")
}

func TestAParkedDeliveryIsTriedAgainADayLater(t *testing.T) {
	w := newWorld(t, nil)
	mem := w.policy(func(*v1alpha1.TeamMemory) {})
	for range parkAfter {
		w.letta.FailTurn(lettatest.TurnFault{Stored: true}) // it is nudged
	}
	w.r.Turns.answered[mem.UID] = answered{types.NamespacedName{Name: "another"}, time.Now().Add(time.Hour)}
	w.story()
	w.until("a parked delivery", reasonIs(v1alpha1.DeliveredCondition, v1alpha1.DeliveryParkedReason))
	res, _ := w.reconcile()
	if res.RequeueAfter < 23*time.Hour || res.RequeueAfter > parkedAgain {
		t.Errorf("it is looked at again in %s, want a day", res.RequeueAfter)
	}
	w.r.Clock = clocktesting.NewFakePassiveClock(time.Now().Add(parkedAgain + time.Minute))
	s := w.settleDown()
	if len(s.Status.SyncState.Parked) != 0 || s.Status.Lines != 7 {
		t.Errorf("%d deliveries are parked, %d lines processed", len(s.Status.SyncState.Parked), s.Status.Lines)
	}
}

func TestASpentBudgetHoldsUntilTomorrow(t *testing.T) {
	w := newWorld(t, nil)
	clock := clocktesting.NewFakePassiveClock(time.Date(2026, 11, 30, 23, 0, 0, 0, time.UTC))
	w.r.Clock, w.r.Budget.Clock = clock, clock
	one := int64(1)
	w.policy(func(m *v1alpha1.TeamMemory) { m.Spec.Budget.DailyTokens = &one })
	w.story()
	s := w.settleDown() // the first turn begins while a token is left
	if u := s.Status.Usage; u.Day != "2026-11-30" || u.DayTokens == 0 || u.Tokens != u.DayTokens || u.Turns != 1 {
		t.Errorf("usage is %+v", u)
	}
	a := w.writer("ws-a")
	a.segment(userLine("u9", "Too late for today."))
	a.apply()
	s = w.until("the end of the budget", reasonIs(v1alpha1.DeliveredCondition, v1alpha1.BudgetExhaustedReason))
	if c := condition(s, v1alpha1.DeliveredCondition); c.Status != metav1.ConditionUnknown || !strings.Contains(c.Message, "deliveries continue on 2026-12-01 at 00:00 UTC") {
		t.Errorf("Delivered is %s: %s", c.Status, c.Message)
	}
	w.quiet("a spent budget")
	clock.SetTime(clock.Now().Add(30 * time.Minute))
	w.quiet("a spent budget, half an hour later")
	// A new process does not begin anew.
	w.restart()
	w.r.Clock, w.r.Budget.Clock = clock, clock
	w.quiet("a spent budget, a new process")
	if n := w.letta.Turns(); n != 1 {
		t.Errorf("%d turns, want 1", n)
	}
	clock.SetTime(time.Date(2026, 12, 1, 0, 0, 1, 0, time.UTC))
	s = w.settleDown()
	if u := s.Status.Usage; u.Day != "2026-12-01" || u.Tokens <= u.DayTokens {
		t.Errorf("usage on the next day is %+v", u)
	}
	a.segment(userLine("u10", "Then it is raised."))
	a.apply()
	w.until("the end of the next day's budget", reasonIs(v1alpha1.DeliveredCondition, v1alpha1.BudgetExhaustedReason))
	w.policy(func(m *v1alpha1.TeamMemory) { m.Spec.Budget.DailyTokens = nil })
	w.settleDown()
	w.once("Too late for today.", "Then it is raised.")
}

func TestTurnsThatFailCostToo(t *testing.T) {
	w := newWorld(t, nil)
	w.letta.FailTurn(lettatest.TurnFault{Stored: true})
	w.story()
	s := w.settleDown()
	one := newWorld(t, nil)
	one.story()
	if single := one.settleDown().Status.Usage.Tokens; s.Status.Usage.Tokens <= single || s.Status.Usage.Turns != 1 {
		t.Errorf("%d tokens for a failed turn and one that went well, %d for the latter alone", s.Status.Usage.Tokens, single)
	}
}

func TestWordsAreGatheredBetweenTurns(t *testing.T) {
	w := newWorld(t, nil)
	hour := int32(3600)
	w.policy(func(m *v1alpha1.TeamMemory) { m.Spec.Delivery.MinIntervalSeconds = &hour })
	w.story()
	w.settleDown()
	a := w.writer("ws-a")
	for i := range 3 {
		a.segment(userLine(fmt.Sprintf("v%d", i), fmt.Sprintf("Gathered %d.", i)))
		a.apply()
		for range 3 {
			_, _ = w.reconcile() // waits
		}
	}
	if c := condition(w.get(), v1alpha1.DeliveredCondition); c.Status != metav1.ConditionUnknown || !strings.Contains(c.Message, "minIntervalSeconds") {
		t.Errorf("Delivered is %s %s: %s", c.Status, c.Reason, c.Message)
	}
	w.quiet("a session that gathers words")
	if n := w.letta.Turns(); n != 1 {
		t.Fatalf("%d turns within the interval, want 1", n)
	}
	// A session that ends waits for nothing.
	a.state = v1alpha1.WriterEnded
	a.segment(userLine("v9", "Gathered to the end."))
	a.apply()
	w.settleDown()
	w.once("Gathered 0.", "Gathered 1.", "Gathered 2.", "Gathered to the end.")
	if n := w.letta.Turns(); n != 2 {
		t.Errorf("%d turns, want one for all that was gathered", n)
	}
}

func TestTheTextOfADeliveryIsNotThePolicys(t *testing.T) {
	w := newWorld(t, nil)
	a := w.writer("ws-a")
	for i := range 3 {
		var lines []string
		for j := range 10 {
			lines = append(lines, userLine(fmt.Sprintf("u%d%d", i, j), fmt.Sprintf("Words %d%d %s", i, j, strings.Repeat("and so on ", 90))))
		}
		a.segment(lines...)
	}
	a.apply()
	s := w.until("the ledger", func(s *v1alpha1.Session) bool { return s.Status.SyncState != nil && s.Status.SyncState.Delivery != nil })
	text := w.text(s)
	// The process dies, and everything is said to be different.
	w.restart()
	small := int32(1024)
	w.policy(func(m *v1alpha1.TeamMemory) {
		m.Spec.Delivery.MaxBatchBytes = &small
		m.Spec.Capture.ToolResults = v1alpha1.ToolResultsNone
	})
	if again := w.text(w.get()); again != text {
		t.Errorf("the text changed with the policy: %d bytes, then %d", len(text), len(again))
	}
	w.settleDown()
	var first string
	for _, c := range w.letta.Conversations() {
		if i := slices.IndexFunc(c.Messages, func(m lettatest.Message) bool { return m.Role == "user" }); i >= 0 {
			first = c.Messages[i].Text
		}
	}
	if first != text {
		t.Errorf("Letta got %d bytes, the ledger meant %d", len(first), len(text))
	}
	for i := range 3 {
		for j := range 10 {
			w.once(fmt.Sprintf("Words %d%d ", i, j))
		}
	}
}

// text is what the ledger of a Session means.
func (w *world) text(ses *v1alpha1.Session) string {
	w.t.Helper()
	mem := &v1alpha1.TeamMemory{}
	w.must(w.admin.Get(w.t.Context(), types.NamespacedName{Namespace: w.namespace, Name: "team"}, mem))
	s := &scope{ses: ses, key: w.key, mem: mem, archive: map[segmentID]*archived{}}
	_, b, err := w.r.again(w.t.Context(), s, w.bucket, ses.Status.SyncState.Delivery)
	w.must(err)
	return b.message(s, ses.Status.SyncState.Delivery.ID)
}

func TestSuspend(t *testing.T) {
	for value, delivers := range map[v1alpha1.Suspend]bool{
		v1alpha1.SuspendNone: true, v1alpha1.SuspendRecall: true, v1alpha1.SuspendDelivery: false, v1alpha1.SuspendAll: false,
	} {
		t.Run(string(value), func(t *testing.T) {
			w := newWorld(t, nil)
			w.policy(func(m *v1alpha1.TeamMemory) { m.Spec.Suspend = value })
			w.story()
			if delivers {
				w.settleDown()
			} else {
				w.until("the suspension", reasonIs(v1alpha1.DeliveredCondition, v1alpha1.SuspendedReason))
				if w.words() != "" {
					t.Errorf("Letta has %q", w.words())
				}
				w.quiet("a suspended session")
			}
			w.policy(func(m *v1alpha1.TeamMemory) { m.Spec.Suspend = v1alpha1.SuspendNone })
			w.settleDown()
			w.once("tide tables are stored in GMT.", "Understood.", "What next?", "The harbour.")
		})
	}
}

func TestWhatRunsWhenItIsSuspendedIsPublished(t *testing.T) {
	w := newWorld(t, nil)
	release := w.letta.HoldTurns()
	w.story()
	w.until("a turn", func(*v1alpha1.Session) bool { return w.letta.Requests(sendRoute) > 0 })
	w.policy(func(m *v1alpha1.TeamMemory) { m.Spec.Suspend = v1alpha1.SuspendAll })
	a := w.writer("ws-a")
	a.segment(userLine("u9", "After it was suspended."))
	a.apply()
	release()
	s := w.until("the suspension", reasonIs(v1alpha1.DeliveredCondition, v1alpha1.SuspendedReason))
	if d := s.Status.SyncState.Delivery; d.Phase != v1alpha1.DeliveryPublished {
		t.Errorf("the delivery that ran is %s, want Published", d.Phase)
	}
	if strings.Contains(w.words(), "After it was suspended.") {
		t.Error("more was given to Letta")
	}
}

func TestADeltaCostsTwoStatusWrites(t *testing.T) {
	w := newWorld(t, nil)
	w.story()
	w.settleDown()
	a := w.writer("ws-a")
	for i := range 3 {
		var versions []string
		watch, err := w.admin.Watch(t.Context(), &v1alpha1.SessionList{}, client.InNamespace(w.namespace))
		w.must(err)
		a.segment(userLine(fmt.Sprintf("v%d", i), fmt.Sprintf("Delta %d.", i)), assistantLine(fmt.Sprintf("b%d", i), "Good."))
		a.apply()
		last := w.settleDown().ResourceVersion
		for versions == nil || versions[len(versions)-1] != last {
			e := <-watch.ResultChan()
			s, ok := e.Object.(*v1alpha1.Session)
			if !ok {
				t.Fatalf("watch: %v", e.Object)
			}
			versions = append(versions, s.ResourceVersion)
		}
		watch.Stop()
		// The first is the object as it was, the second the workstation's.
		if n := len(versions) - 2; n != 2 {
			t.Errorf("delta %d cost %d status writes, want 2: the ledger, and what came of it", i, n)
		}
	}
}

func TestAnImportIsMarkedAndWaits(t *testing.T) {
	w := newWorld(t, nil)
	twenty := int64(200_000)
	w.policy(func(m *v1alpha1.TeamMemory) { m.Spec.Budget.DailyTokens = &twenty })
	a := w.writer("ws-a")
	a.imported = true
	a.segment(userLine("u1", "From long ago."))
	a.imported = false
	a.segment(userLine("u2", "Said today."))
	a.apply()
	s := w.settleDown()
	u := s.Status.Usage
	if u.DayImportTokens == 0 || u.DayImportTokens >= u.DayTokens {
		t.Errorf("%d of %d tokens are those of imports, want those of one turn of two", u.DayImportTokens, u.DayTokens)
	}
	// With a fifth of the day spent imports wait, and what is live does not.
	mem := w.policy(func(*v1alpha1.TeamMemory) {})
	w.r.Budget.Add(mem.UID, "bob", true, twenty/5)
	a.segment(userLine("u3", "Said later."))
	a.imported = true
	a.segment(userLine("u4", "From longer ago."))
	a.apply()
	s = w.until("the end of the imports' part", reasonIs(v1alpha1.DeliveredCondition, v1alpha1.BudgetExhaustedReason))
	if c := condition(s, v1alpha1.DeliveredCondition); !strings.Contains(c.Message, "imports have spent a fifth") {
		t.Errorf("Delivered says %q", c.Message)
	}
	w.once("From long ago.", "Said today.", "Said later.")
	if strings.Contains(w.words(), "From longer ago.") {
		t.Error("an import passed its part of the budget")
	}
}
