//go:build envtest

package session

import (
	"strings"
	"testing"

	"k8s.io/utils/ptr"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/internal/segment"
)

// leak uploads a segment of a workstation whose rules are too old: the secret
// is in it as it was typed.
func (wr *writer) leak(secret string, lines ...string) {
	wr.w.t.Helper()
	before := wr.chain
	seq := wr.segment(lines...)
	raw := []byte(strings.ReplaceAll(string(wr.raws[seq]), "PLACEHOLDER", secret))
	wr.bytes += int64(len(raw) - len(wr.raws[seq]))
	wr.raws[seq] = raw
	wr.chain = before.Next(raw)
	wr.put(seq, segment.Pack(raw))
}

func TestSecretsOfTheSecondPass(t *testing.T) {
	token := "ghp_" + strings.Repeat("A1b2", 9)
	for name, c := range map[string]struct {
		reason  string
		policy  v1alpha1.OnSecret
		release func(*world)
		words   []string
	}{
		"redact": {reason: "the rest is delivered at once", words: []string{"Understood.", "What next?", "The harbour."}},
		"quarantine, then redact": {
			reason: "a lead who has looked lets go of it", policy: v1alpha1.OnSecretQuarantine,
			release: func(w *world) {
				w.change(func(m *v1alpha1.TeamMemory) { m.Spec.OnSecret = v1alpha1.OnSecretRedact })
			},
			words: []string{"Understood.", "What next?", "The harbour."},
		},
		"quarantine, then forgotten": {
			reason: "an owner who has the lines erased lets go of it, too", policy: v1alpha1.OnSecretQuarantine,
			release: func(w *world) {
				w.request(v1alpha1.Request{ID: "f1", Kind: v1alpha1.RequestForget, FromLine: ptr.To[int64](3), ToLine: ptr.To[int64](3)})
			},
			words: []string{"Understood.", "What next?", "The harbour."},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, nil)
			w.change(func(m *v1alpha1.TeamMemory) { m.Spec.OnSecret = c.policy })
			a := w.writer("ws-a")
			a.segment(userLine("u1", "Understood."))
			a.leak(token, assistantLine("a1", "What next?"), userLine("u2", "my token is PLACEHOLDER"))
			a.segment(userLine("u3", "The harbour."))
			a.apply()
			if c.release != nil {
				for range 60 {
					_, _ = w.reconcile() // as far as it goes
					if condition(w.get(), v1alpha1.DeliveredCondition).Reason == v1alpha1.SecretFoundReason {
						break
					}
					w.pause()
				}
				s := w.get()
				if got := condition(s, v1alpha1.DeliveredCondition); got.Reason != v1alpha1.SecretFoundReason || !strings.Contains(got.Message, "segment 2 of workstation ws-a") || !strings.Contains(got.Message, "spec.onSecret") {
					t.Errorf("%s: Delivered is %s %s: %s", c.reason, got.Status, got.Reason, got.Message)
				}
				w.only("Letta", w.words(), "Understood.")
				for range 3 {
					_, _ = w.reconcile() // publishes what was said before
					w.pause()
				}
				version := w.get().ResourceVersion
				for range 5 {
					_, _ = w.reconcile() // says the same
				}
				if w.get().ResourceVersion != version {
					t.Errorf("%s: a held segment is written again and again", c.reason)
				}
				c.release(w)
			}
			s := w.settleDown()
			w.only("Letta", w.words(), c.words...)
			if strings.Contains(w.words(), token) || strings.Contains(w.kept(), token) {
				t.Errorf("%s: the token got through", c.reason)
			}
			if len(s.Status.SyncState.Writers[0].Held) != 0 {
				t.Errorf("%s: still held: %v", c.reason, s.Status.SyncState.Writers[0].Held)
			}
			found := 0
			for len(w.recorder.Events) > 0 {
				e := <-w.recorder.Events
				if strings.Contains(e, v1alpha1.SecretFoundReason) && strings.Contains(e, "lines 2 to 2 of segment 2") {
					found++
					if strings.Contains(e, token) {
						t.Errorf("%s: the event has the token", c.reason)
					}
				}
			}
			if found != 1 {
				t.Errorf("%s: %d events name the place, want 1", c.reason, found)
			}
		})
	}
}
