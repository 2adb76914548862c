//go:build envtest

package session

import (
	"fmt"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/undersong-dev/undersong/api/v1alpha1"
)

// capture changes what the team hears.
func (w *world) capture(change func(*v1alpha1.Capture)) {
	w.t.Helper()
	mem := &v1alpha1.TeamMemory{}
	w.must(w.admin.Get(w.t.Context(), client.ObjectKey{Namespace: w.namespace, Name: "team"}, mem))
	change(&mem.Spec.Capture)
	w.must(w.admin.Update(w.t.Context(), mem))
}

func thoughtLine(id, text string) string {
	return fmt.Sprintf(`{"type":"assistant","uuid":%q,"parentUuid":null,"isSidechain":false,"sessionId":%q,"cwd":"/src/lantern","message":{"role":"assistant","id":"msg_%s","model":"claude-demo-1","content":[{"type":"thinking","thinking":%q},{"type":"text","text":"I see."}]}}`, id, sessionID, id, text)
}

// TestAChangedPolicyDoesNotChangeWhatIsInTheLedger: the text of a delivery that
// was begun is made again as it was, whatever the team hears meanwhile; the next
// one follows the new policy.
func TestAChangedPolicyDoesNotChangeWhatIsInTheLedger(t *testing.T) {
	for name, test := range map[string]struct {
		before, after   func(*v1alpha1.Capture)
		first, second   bool // thinking and the page's text are in it
		toolResultsKept v1alpha1.ToolResults
	}{
		"more is heard": {
			before: func(*v1alpha1.Capture) {},
			after: func(c *v1alpha1.Capture) {
				c.Thinking, c.ToolResults = v1alpha1.AllowanceAllow, v1alpha1.ToolResultsAll
			},
			second: true,
		},
		"less is heard": {
			before: func(c *v1alpha1.Capture) {
				c.Thinking, c.ToolResults = v1alpha1.AllowanceAllow, v1alpha1.ToolResultsAll
			},
			after: func(c *v1alpha1.Capture) {
				c.Thinking, c.ToolResults = v1alpha1.AllowanceDeny, v1alpha1.ToolResultsNone
			},
			first: true, toolResultsKept: v1alpha1.ToolResultsAll,
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			w.capture(test.before)
			a := w.writer("ws-a")
			a.segment(callLine("1", "WebFetch", `{"url":"https://example.test/"}`), resultLine("1", "page one"), thoughtLine("t1", "thought one"))
			a.apply()
			for range 50 {
				if _, err := w.reconcile(); err != nil {
					t.Fatal(err)
				}
				if d := w.get().Status.SyncState; d != nil && d.Delivery != nil {
					break
				}
			}
			d := w.get().Status.SyncState.Delivery
			if d == nil || d.Phase != v1alpha1.DeliverySending || d.ToolResults != test.toolResultsKept {
				t.Fatalf("the ledger has %+v", d)
			}
			w.capture(test.after)
			w.restart() // nothing but the ledger remembers what was meant
			w.settleDown()
			first := w.words()
			a.segment(callLine("2", "WebFetch", `{"url":"https://example.test/"}`), resultLine("2", "page two"), thoughtLine("t2", "thought two"))
			a.apply()
			w.settleDown()
			all := w.words()
			for said, want := range map[string]bool{
				"page one": test.first, "thought one": test.first, "page two": test.second, "thought two": test.second, "I see.": true,
			} {
				if got := strings.Contains(all, said); got != want {
					t.Errorf("Letta has %q: %v, want %v:\n%s", said, got, want, all)
				}
			}
			if !strings.HasPrefix(all, first) {
				t.Errorf("what was delivered first changed:\n%s\n%s", first, all)
			}
		})
	}
}

// TestTitlesCanBeHidden: what the whole team could read of a session goes, and
// does not come back.
func TestTitlesCanBeHidden(t *testing.T) {
	w := newWorld(t, nil)
	a := w.writer("ws-a")
	a.segment(userLine("u1", "Hello."), titleLine("The harbour"))
	a.apply()
	if got := w.settleDown().Status.Title; got != "The harbour" {
		t.Fatalf("title %q", got)
	}
	w.capture(func(c *v1alpha1.Capture) { c.Titles = v1alpha1.TitlesHide })
	if got := w.settleDown().Status.Title; got != "" {
		t.Errorf("title %q after titles were hidden", got)
	}
	a.segment(userLine("u2", "Go on."), titleLine("The lighthouse"))
	a.apply()
	if got := w.settleDown().Status.Title; got != "" {
		t.Errorf("title %q while titles are hidden", got)
	}
}
