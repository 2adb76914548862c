package daemon

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/undersong-dev/undersong/agent/upload"
)

// TestTheDaemonStaysForAWish: while the cluster is to be asked to forget
// something, and no longer.
func TestTheDaemonStaysForAWish(t *testing.T) {
	for name, tt := range map[string]struct {
		reason string
		change func(w *upload.Wish)
		stays  bool
	}{
		"waits":    {"it asks when the network is back", func(*upload.Wish) {}, true},
		"answered": {"the person is told by status", func(w *upload.Wish) { w.Result = "forgotten in the cluster." }, false},
		"absent":   {"a lead may need weeks", func(w *upload.Wish) { w.Absent = true }, false},
		"others'":  {"it is not asked there", func(w *upload.Wish) { w.For = "elsewhere" }, false},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEvening(t, rand.New(rand.NewPCG(1, 1)))
			e.loop.idle = time.Minute
			e.clock.Step(time.Hour)
			if !e.loop.leave() {
				t.Fatal("without a wish it stays: that is no test")
			}
			w := upload.Wish{For: upload.Addressee(e.loop.config)}
			tt.change(&w)
			e.must(upload.UpdateWishes(t.Context(), e.home, func([]upload.Wish) []upload.Wish { return []upload.Wish{w} }))
			if e.loop.leave() == tt.stays {
				t.Errorf("%s: it stays is %v", tt.reason, !tt.stays)
			}
		})
	}
}
