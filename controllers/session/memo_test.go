//go:build envtest

package session

import (
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/controllers/connect"
	"github.com/undersong-dev/undersong/internal/letta/lettatest"
	"github.com/undersong-dev/undersong/internal/segment"
)

// ledgered are the requests to a store, by what they are for.
type ledgered struct {
	w *world

	mu    sync.Mutex
	calls map[string]int
}

// RoundTrip implements http.RoundTripper.
func (l *ledgered) RoundTrip(r *http.Request) (*http.Response, error) {
	_, key, ok := strings.Cut(r.URL.Path, "/"+l.w.namespace+"/")
	verb := r.Method
	if r.Method == http.MethodGet && r.URL.Query().Has("list-type") {
		verb, key, ok = "LIST", r.URL.Query().Get("prefix"), true
	}
	if ok {
		what, _, _ := strings.Cut(key, "/")
		if strings.HasSuffix(key, "session.json") {
			what = "record"
		}
		l.mu.Lock()
		l.calls[verb+" "+what]++
		l.mu.Unlock()
	}
	return http.DefaultTransport.RoundTrip(r)
}

func TestADeltaAsksTheStoreOnceForEachThing(t *testing.T) {
	w := newWorld(t, nil)
	w.story()
	w.settleDown()
	l := &ledgered{w: w, calls: map[string]int{}}
	w.r.Connect = connect.New(w.r.Client, l, clock.RealClock{})
	a := w.writer("ws-a")
	a.segment(callLine("a9", "Bash", `{"command":"make"}`), resultLine("a9", "done"), userLine("u3", "And the lighthouse?"), assistantLine("a3", "It stays."))
	a.apply()
	w.settleDown()
	want := map[string]int{
		"HEAD inbox": 1, "GET inbox": 1, "DELETE inbox": 1, // how large, what, and away
		"PUT archive": 1,
		"GET archive": 1,                    // the segment before it, for what its words belong to
		"PUT state":   1, "DELETE state": 1, // what was told, and what had been
		"PUT record": 2, // the ledger, and what came of it
	}
	if diff := cmp.Diff(want, l.calls); diff != "" {
		t.Errorf("requests to the store for one delta (-want +got):\n%s", diff)
	}
	w.once("And the lighthouse?")
}

func TestWhatChangedAfterTheLedgerIsReadAgain(t *testing.T) {
	var pair []byte
	for name, c := range map[string]struct {
		reason string
		before func(*world)
		change func(*world)
		words  []string
	}{
		"nothing": {reason: "the words of the ledger are sent", change: func(*world) {}, words: []string{"tide tables are stored in GMT.", "Understood.", "What next?", "The harbour."}},
		"a line was forgotten": {
			reason: "what was kept for the turn has it", words: []string{"Understood.", "What next?", "The harbour."},
			change: func(w *world) {
				w.request(v1alpha1.Request{ID: "f1", Kind: v1alpha1.RequestForget, FromLine: ptr.To[int64](1), ToLine: ptr.To[int64](1)})
			},
		},
		"a text is scrubbed": {
			reason: "the Scrubber comes later, and what is sent is not to have it", words: []string{"Understood.", "What next?", "The harbour."},
			change: func(w *world) {
				entry := w.scrubEntry("leak-1", "tide tables are stored in GMT.", v1alpha1.ScrubRemove)
				w.change(func(m *v1alpha1.TeamMemory) { m.Spec.Scrubs = append(m.Spec.Scrubs, entry) })
			},
		},
		"a scrub can be opened again": {
			reason: "the bucket was restored, and spec is the same", words: []string{"Understood.", "What next?", "The harbour."},
			before: func(w *world) {
				entry := w.scrubEntry("leak-1", "tide tables are stored in GMT.", v1alpha1.ScrubRemove)
				w.change(func(m *v1alpha1.TeamMemory) { m.Spec.Scrubs = append(m.Spec.Scrubs, entry) })
				key := segment.ScrubIdentityKey(w.namespace, "team")
				var err error
				pair, err = w.bucket.Get(w.t.Context(), key, 1<<10)
				w.must(err)
				w.must(w.bucket.Delete(w.t.Context(), key))
			},
			change: func(w *world) {
				w.must(w.bucket.Put(w.t.Context(), segment.ScrubIdentityKey(w.namespace, "team"), pair))
				_, err := w.r.Connect.ScrubIdentity(w.t.Context(), w.team(), true) // as its TeamMemory is looked at
				w.must(err)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			if c.before != nil {
				c.before(w)
			}
			w.story()
			w.until("the ledger", func(*v1alpha1.Session) bool { return w.phase() == v1alpha1.DeliverySending })
			if w.letta.Turns() > 0 {
				t.Fatal("a turn ran in the reconcile of the ledger")
			}
			c.change(w)
			w.settleDown()
			w.only("Letta ("+c.reason+")", strings.Join(w.heard(), "\n"), c.words...)
		})
	}
}

func TestAnAnswerThatCannotBePublishedStandsInStatus(t *testing.T) {
	w := newWorld(t, nil)
	const route = "GET /v1/agents/{agent}"
	w.story()
	w.until("the ledger", func(*v1alpha1.Session) bool { return w.phase() == v1alpha1.DeliverySending })
	release := w.letta.HoldTurns()
	w.until("a turn", func(*v1alpha1.Session) bool { return w.letta.Requests(sendRoute) > 0 })
	w.letta.Inject(lettatest.Fault{Route: route, Status: http.StatusServiceUnavailable})
	release()
	s := w.until("the answer", func(*v1alpha1.Session) bool { return w.phase() == v1alpha1.DeliveryDelivered })
	if c := condition(s, v1alpha1.PublishedCondition); c.Status != metav1.ConditionFalse || s.Status.Lines == 0 {
		t.Errorf("Published is %s (%s) with %d lines processed; want False, and the lines counted", c.Status, c.Message, s.Status.Lines)
	}
	// Another process has nothing but status, and shows what the turn said.
	w.restart()
	w.settleDown()
	if w.phase() != v1alpha1.DeliveryPublished {
		t.Errorf("the delivery is %s, want Published", w.phase())
	}
	w.once("tide tables are stored in GMT.", "What next?")
}
