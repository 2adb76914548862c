//go:build envtest

package session

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"html"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/prometheus/client_golang/prometheus/testutil"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/internal/letta/lettatest"
	"github.com/undersong-dev/undersong/internal/segment"
)

// wholeMatrix runs every cell of the matrix; else each fault and each moment
// come up at least once.
var wholeMatrix = flag.Bool("matrix", false, "run the whole fault matrix")

// moments at which a fault strikes, in the order of one delivery.
var moments = []string{"before the ledger", "after the ledger", "in the turn", "after the turn", "before the status write"}

// disaster is what goes wrong. strike makes it so, and mend, if there is one,
// brings back what a person would.
type disaster struct {
	reason string
	strike func(*world) (mend func())
	// team, if there is one, is how the TeamMemory differs from the beginning.
	team func(*v1alpha1.TeamMemory)
	// again says that what was told may be told again, because Letta has lost
	// the conversation. Within one conversation nothing comes twice.
	again bool
	// unknowable says that Letta cannot be asked what became of a delivery: it
	// may be told again, under the same id, and is counted.
	unknowable bool
	// holds says that a turn under way does not end before it is mended.
	holds bool
	// lost are the lines that nobody has any more.
	lost int64
}

// disasters are the rows of the matrix. A real etcd is restored in
// TestARestoredCluster, and processes are killed in test/e2e.
var disasters = map[string]disaster{
	"controller killed": {reason: "the next process looks before it sends", strike: func(w *world) func() { w.restart(); return nil }},
	"two leaders": {reason: "only one of them has the newest status", strike: func(w *world) func() {
		old := w.r
		w.restart()
		old.TakeoverDelay, w.r.TakeoverDelay = 5*time.Second, 5*time.Second
		for range 3 {
			_, _ = w.reconcile() // the new leader
			w.pause()
			_, _ = old.Reconcile(w.t.Context(), ctrl.Request{NamespacedName: w.key}) // the old one, who has not noticed
			for range 20 {
				w.pause() // a turn of the old one would be over
			}
		}
		return nil
	}},
	"graceful rollout": {reason: "a turn that runs is waited for, and found by the next", strike: func(w *world) func() { w.stopTurns(); w.restart(); return nil }},
	"status fell back": {reason: "the archive's record is ahead", strike: func(w *world) func() {
		now := w.get()
		if w.early != nil {
			w.early.DeepCopyInto(&now.Status)
			w.must(w.watching().Status().Update(w.t.Context(), now))
		}
		w.restart()
		return nil
	}},
	"store refuses": {reason: "nothing goes on that is not kept", strike: func(w *world) func() {
		w.change(func(m *v1alpha1.TeamMemory) { m.Spec.Store.Bucket = "no-such-bucket" })
		for range 3 {
			_, _ = w.reconcile() // fails
		}
		return func() { w.change(func(m *v1alpha1.TeamMemory) { m.Spec.Store.Bucket = w.namespace }) }
	}},
	"store down": {reason: "nothing goes on that is not kept", strike: func(w *world) func() {
		w.storeAway.Store(true)
		return func() { w.storeAway.Store(false) }
	}},
	"Letta down": {reason: "it waits", strike: func(w *world) func() {
		for range 4 {
			w.letta.Inject(lettatest.Fault{Route: sendRoute, Status: 503})
		}
		return nil
	}},
	"hang": {reason: "what is not answered in time is looked up", strike: func(w *world) func() {
		w.change(func(m *v1alpha1.TeamMemory) { m.Spec.Delivery.TurnTimeoutSeconds = new(int32(5)) })
		w.letta.Inject(lettatest.Fault{Route: sendRoute, Hang: true})
		return nil
	}},
	"API server restarted": {reason: "what cannot be written is done again", strike: func(w *world) func() {
		w.outage.Store(true)
		return func() { w.outage.Store(false) }
	}},
	"answer forgotten": {reason: "nobody can say whether it was heard", unknowable: true, strike: func(w *world) func() {
		w.stopTurns()
		w.letta.ExpireReplays()
		for _, page := range []string{`[{"id":"message-1","message_type":"summary_message","summary":"Of earlier messages.","date":"2026-11-01T09:00:00Z"}]`, `[]`} {
			w.letta.Inject(lettatest.Fault{ // a listing after compaction
				Route: "GET /v1/conversations/{id}/messages", Status: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: page,
			})
		}
		w.restart()
		return nil
	}},
	"answer lost":       {reason: "it is looked up", strike: func(w *world) func() { w.letta.Inject(lettatest.Fault{Route: sendRoute, DropAfter: true}); return nil }},
	"request lost":      {reason: "it is sent again", strike: func(w *world) func() { w.letta.Inject(lettatest.Fault{Route: sendRoute, DropBefore: true}); return nil }},
	"cut in the answer": {reason: "what runs on is waited for", strike: func(w *world) func() { w.letta.Inject(lettatest.Fault{Route: sendRoute, CutAfter: 40}); return nil }},
	"429 storm": {reason: "it is tried again, later", strike: func(w *world) func() {
		for range 3 {
			w.letta.Inject(lettatest.Fault{Route: sendRoute, Status: 429})
		}
		return nil
	}},
	"conversation deleted": {reason: "another one is made", again: true, strike: func(w *world) func() {
		if st := w.get().Status.SyncState; st != nil && st.ConversationID != "" {
			w.delete("/v1/conversations/" + st.ConversationID)
		}
		return nil
	}},
	"agent deleted": {reason: "another one is made", again: true, strike: func(w *world) func() {
		if st := w.get().Status.SyncState; st != nil && st.AgentID != "" {
			w.delete("/v1/agents/" + st.AgentID)
		}
		return nil
	}},
	"segment missing": {reason: "it is asked for again", strike: func(w *world) func() {
		return w.spoil(func(a *writer, _ int64) { w.must(w.bucket.Delete(w.t.Context(), segment.InboxKey(a.uid, a.slot))) })
	}},
	"segment corrupt": {reason: "it is asked for again", strike: func(w *world) func() {
		return w.spoil(func(a *writer, _ int64) {
			w.must(w.bucket.Put(w.t.Context(), segment.InboxKey(a.uid, a.slot), []byte("garbage")))
		})
	}},
	"bomb": {reason: "it is not opened", strike: func(w *world) func() {
		return w.spoil(func(a *writer, _ int64) {
			w.must(w.bucket.Put(w.t.Context(), segment.InboxKey(a.uid, a.slot), bomb()))
		})
	}},
	"secret": {reason: "it stops here, the rest is heard", strike: func(w *world) func() {
		w.writer("ws-a").leak("ghp_"+strings.Repeat("A1b2", 9), userLine("u5", "the token is PLACEHOLDER"))
		w.writer("ws-a").apply()
		return nil
	}},
	"clock jump": {reason: "no clock decides what is sent", strike: func(w *world) func() {
		w.r.Clock = clocktesting.NewFakePassiveClock(time.Now().Add(-48 * time.Hour))
		_, _ = w.reconcile() // yesterday
		w.r.Clock = clocktesting.NewFakePassiveClock(time.Now().Add(5 * time.Minute))
		return nil
	}},
}

// TestFaultMatrix strikes at each moment of a delivery with each disaster, and
// compares the end with what was said.
func TestFaultMatrix(t *testing.T) {
	var repeats atomic.Int64
	before := testutil.ToFloat64(resends)
	t.Run("cells", func(t *testing.T) { // is over when all of them are
		for i, name := range slices.Sorted(maps.Keys(disasters)) {
			for m, moment := range moments {
				if !*wholeMatrix && m != i%len(moments) && !disasters[name].unknowable {
					continue
				}
				t.Run(name+"/"+moment, func(t *testing.T) {
					t.Parallel()
					repeats.Add(strikeAt(t, newWorld(t, nil), disasters[name], m))
				})
			}
		}
	})
	counted := int64(testutil.ToFloat64(resends) - before)
	t.Logf("%d repeats were seen, %d were counted", repeats.Load(), counted)
	if counted < repeats.Load() {
		t.Errorf("Letta was told %d deliveries again, undersong_resends_total counts %d", repeats.Load(), counted)
	}
}

// strikeAt returns how many deliveries Letta was told again.
func strikeAt(t *testing.T, w *world, d disaster, moment int) int64 {
	t.Helper()
	if d.team != nil {
		w.change(d.team)
	}
	a := w.writer("ws-a")
	a.segment(userLine("u1", "Note for the team: tide tables are stored in GMT."), assistantLine("a1", "Understood."))
	a.apply()
	w.early = w.settleDown().Status.DeepCopy()
	a.segment(userLine("u2", "What next?"), assistantLine("a2", "The harbour."))
	a.apply()

	var mend func()
	switch moment {
	case 0: // before the ledger
		mend = d.strike(w)
	case 1: // after the ledger
		w.reach(func() bool { return w.phase() == v1alpha1.DeliverySending })
		mend = d.strike(w)
	case 2: // in the turn
		release := w.hold()
		sent := w.sent()
		w.reach(func() bool { return w.sent() > sent })
		mend = d.strike(w)
		if !d.holds {
			release()
			break
		}
		then := mend
		mend = func() { then(); release() }
	case 3: // after the turn
		ran := w.ran()
		w.reach(func() bool { return w.ran() > ran })
		mend = d.strike(w)
	case 4: // before the status write
		w.reach(func() bool { return w.phase() == v1alpha1.DeliverySending })
		w.pause()
		w.failStatus()
		ran := w.ran()
		_, _ = w.reconcile() // does its work, and cannot say so
		for i := 0; i < 200 && w.ran() == ran; i++ {
			w.pause()
		}
		mend = d.strike(w)
		w.restart()
	}
	if mend != nil {
		for range 3 {
			_, _ = w.reconcile() // suffers
			w.pause()
		}
		mend()
	}
	a.segment(userLine("u8", "Afterwards."))
	a.apply()
	s := w.settleDown()
	if s.Status.LostLines != d.lost || s.Status.Lag != 0 {
		t.Errorf("%s: %d lines lost, %d behind", d.reason, s.Status.LostLines, s.Status.Lag)
	}
	repeats := w.repeats()
	for _, text := range []string{"tide tables are stored in GMT.", "Understood.", "What next?", "The harbour.", "Afterwards."} {
		n := strings.Count(html.UnescapeString(strings.Join(w.heard(), "\n")), text)
		if n == 0 || n > 1+repeats && !d.again {
			t.Errorf("%s: Letta heard %q %d times", d.reason, text, n)
		}
		if n := strings.Count(w.words(), text); n > 1+repeats {
			t.Errorf("%s: one conversation has %q %d times", d.reason, text, n)
		}
	}
	switch {
	case d.again: // in another conversation
		return 0
	case d.unknowable && moment == len(moments)-1 && repeats != 1:
		t.Errorf("%s: Letta was told %d deliveries again, want the one that nobody could ask about", d.reason, repeats)
	case repeats > 0 && !d.unknowable:
		t.Errorf("%s: Letta was told %d deliveries again, which it could have been asked about", d.reason, repeats)
	}
	return int64(repeats)
}

// deliveryID is how a delivery begins.
var deliveryID = regexp.MustCompile(`<transcript_delta id="([^"]+)"`)

// repeats is how often Letta was told a delivery again, by its id.
func (w *world) repeats() int {
	n := 0
	told := map[string]bool{}
	for _, text := range w.sends() {
		for _, id := range deliveryID.FindAllStringSubmatch(text, -1) {
			if told[id[1]] {
				n++
			}
			told[id[1]] = true
		}
	}
	return n
}

// hold keeps turns from ending.
func (w *world) hold() (release func()) {
	if w.app != nil {
		return w.app.Model.Hold()
	}
	return w.letta.HoldTurns()
}

// sent counts the turns that were begun.
func (w *world) sent() int {
	if w.app != nil {
		return w.app.Model.Turns()
	}
	return w.letta.Requests(sendRoute)
}

// ran counts the turns that were answered.
func (w *world) ran() int {
	if w.app != nil {
		return w.app.answers(w)
	}
	return w.letta.Turns()
}

// heard is what any agent was told, also those that are gone.
func (w *world) heard() []string {
	if w.app != nil {
		return w.app.heard()
	}
	return w.letta.Heard()
}

// sends is what we told, each send once.
func (w *world) sends() []string {
	if w.app != nil {
		return w.app.told(w)
	}
	return w.letta.Heard()
}

// phase is that of the newest delivery.
func (w *world) phase() v1alpha1.DeliveryPhase {
	if st := w.get().Status.SyncState; st != nil && st.Delivery != nil {
		return st.Delivery.Phase
	}
	return ""
}

// reach reconciles until something holds.
func (w *world) reach(holds func() bool) {
	w.t.Helper()
	for range 400 {
		if holds() {
			return
		}
		_, _ = w.reconcile() // whatever it says
		w.pause()
	}
	w.t.Fatalf("it did not come so far: %+v", w.get().Status.Conditions)
}

// spoil uploads a segment and ruins it in its slot. What it returns uploads it
// once more.
func (w *world) spoil(how func(a *writer, seq int64)) func() {
	w.t.Helper()
	a := w.writer("ws-a")
	seq := a.segment(userLine("u6", fmt.Sprint("Said at ", len(a.raws))))
	how(a, seq)
	a.apply()
	return func() {
		a.put(seq, segment.Pack(a.raws[seq]))
		a.apply()
	}
}

// failStatus makes this process unable to write a status.
func (w *world) failStatus() {
	w.r.Client = interceptor.NewClient(w.watching(), interceptor.Funcs{
		SubResourcePatch: func(context.Context, client.Client, string, client.Object, client.Patch, ...client.SubResourcePatchOption) error {
			return errors.New("dead")
		},
	})
}

// bomb is a small object that opens to a gigabyte.
var bomb = sync.OnceValue(func() []byte {
	var b bytes.Buffer
	w, err := zstd.NewWriter(&b)
	if err != nil {
		panic(err)
	}
	zeros := make([]byte, 1<<20)
	for range 1 << 10 {
		if _, err := w.Write(zeros); err != nil {
			panic(err)
		}
	}
	if err := w.Close(); err != nil {
		panic(err)
	}
	return b.Bytes()
})
