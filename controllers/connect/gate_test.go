package connect

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/internal/letta"
	"github.com/undersong-dev/undersong/internal/outcome"
)

// dead is a server of which each call ends as answer says.
type dead struct {
	letta.Client
	calls  atomic.Int64
	sends  atomic.Int64
	answer atomic.Pointer[func() error]
}

func (d *dead) say(answer func() error) { d.answer.Store(&answer) }

func (d *dead) call() error {
	d.calls.Add(1)
	return (*d.answer.Load())()
}

func (d *dead) Lookup(context.Context, letta.Ref, string) (letta.Delivery, letta.Turn, error) {
	return letta.DeliveryAbsent, letta.Turn{}, d.call()
}

func (d *dead) Conversation(context.Context, letta.Ref) (letta.Conversation, error) {
	return letta.Conversation{}, d.call()
}

func (d *dead) DeleteConversation(context.Context, letta.Ref) error { return d.call() }

func (d *dead) Send(context.Context, letta.Ref, []letta.Input, letta.SendOptions) (letta.Turn, error) {
	d.sends.Add(1)
	return letta.Turn{}, d.call()
}

// storm lets so many sessions ask for d, each as often as it is told to, and
// returns how many of them were answered.
func storm(t *testing.T, o *Opener, c letta.Client, sessions int, d time.Duration) int64 {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	var answered atomic.Int64
	var all sync.WaitGroup
	for range sessions {
		all.Go(func() {
			for ctx.Err() == nil {
				wait := 100 * time.Millisecond // the queue's
				err := o.Resting(memory("https://letta.example.com"))
				if err == nil {
					if _, _, err = c.Lookup(ctx, letta.Ref{}, "id"); err == nil {
						answered.Add(1)
						return
					}
					err = o.LettaError(memory("https://letta.example.com"), err)
				}
				wait = max(wait, outcome.Of(err).After)
				select {
				case <-ctx.Done():
				case <-time.After(wait):
				}
			}
		})
	}
	all.Wait()
	return answered.Load()
}

func standing(d *dead) (*Opener, gated) {
	o := New(nil, nil, clock.RealClock{})
	return o, gated{Client: d, gates: o.gatesOf(memory("https://letta.example.com"))}
}

func TestAThousandSessionsAreOneRetry(t *testing.T) {
	refused := func() error { return fmt.Errorf("look up: %w: connection refused", letta.ErrUnavailable) }
	hang := func() error {
		time.Sleep(30 * time.Second)
		return fmt.Errorf("look up: %w: no answer in time", letta.ErrUnavailable)
	}
	for name, c := range map[string]struct {
		reason string
		answer func() error
		most   int64
	}{
		// All that were under way when it died, and then one a minute.
		"refused": {"the connection is refused", refused, 1000 + 75},
		"hang":    {"no answer comes, and one waits for it at a time after the first", hang, 1000 + 75},
		"5xx":     {"an error of the server", func() error { return &letta.RetryError{Down: true} }, 1000 + 75},
		"429":     {"without saying how long", func() error { return &letta.RetryError{Limited: true} }, 1000 + 75},
		"429 with Retry-After": {"asked to stay away for ten minutes", func() error {
			return &letta.RetryError{Limited: true, After: 10 * time.Minute}
		}, 1000 + 6},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := &dead{}
				d.say(c.answer)
				o, client := standing(d)
				storm(t, o, client, 1000, time.Hour)
				if n := d.calls.Load(); n > c.most {
					t.Errorf("%s: 1,000 sessions made %d calls in an hour, want at most %d", c.reason, n, c.most)
				}
				if n := d.calls.Load(); n < 3 {
					t.Errorf("%s: %d calls in an hour: it would never be seen again", c.reason, n)
				}
				d.say(func() error { return nil })
				if n := storm(t, o, client, 1000, 13*time.Minute); n != 1000 {
					t.Errorf("%s: %d of 1,000 sessions went on after it answered again", c.reason, n)
				}
			})
		})
	}
}

func TestRetryAfterIsHonoured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &dead{}
		d.say(func() error { return &letta.RetryError{Limited: true, After: 10 * time.Minute} })
		o, client := standing(d)
		_, _, _ = client.Lookup(t.Context(), letta.Ref{}, "id")
		for range 599 {
			time.Sleep(time.Second)
			if _, _, err := client.Lookup(t.Context(), letta.Ref{}, "id"); !errors.Is(err, letta.ErrUnavailable) {
				t.Fatalf("lookup: %v", err)
			}
		}
		if n := d.calls.Load(); n != 1 {
			t.Errorf("%d calls within the ten minutes that the server asked for, want 1", n)
		}
		err := o.Resting(memory("https://letta.example.com"))
		if err == nil || outcome.Of(err).Reason != v1alpha1.LettaUnavailableReason || outcome.Of(err).Err.Error() != "Letta at https://letta.example.com asks to wait" {
			t.Errorf("the condition says %v", err)
		}
		// Another endpoint is none of this one's business.
		if err := o.Resting(memory("https://other.example.com")); err != nil {
			t.Errorf("another endpoint rests, too: %v", err)
		}
	})
}

func TestASendIsNotTheTrial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &dead{}
		d.say(func() error { return fmt.Errorf("%w: connection refused", letta.ErrUnavailable) })
		_, client := standing(d)
		for range 100 {
			_, _ = client.Send(t.Context(), letta.Ref{}, nil, letta.SendOptions{}) // fails
			time.Sleep(time.Minute)
		}
		if n := d.sends.Load(); n != 1 {
			t.Errorf("%d sends to a dead server, want the first alone", n)
		}
	})
}

func TestALostTurnClosesNoGate(t *testing.T) {
	d := &dead{}
	d.say(func() error { return fmt.Errorf("send: %w", letta.ErrOutcomeUnknown) })
	o, client := standing(d)
	_, _ = client.Send(t.Context(), letta.Ref{}, nil, letta.SendOptions{}) // its answer is lost
	if err := o.Resting(memory("https://letta.example.com")); err != nil {
		t.Errorf("one endless turn keeps everybody away: %v", err)
	}
}

func TestARefusedKeyIsAskedForOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, _ := standing(&dead{})
		m := memory("https://letta.example.com")
		first := o.LettaError(m, letta.ErrUnauthorized)
		again := o.Resting(m)
		if again == nil || outcome.Of(again).Reason != outcome.Of(first).Reason || again.Error() != first.Error() {
			t.Errorf("the next session hears %v, want %v", again, first)
		}
		m.Generation++
		if err := o.Resting(m); err != nil {
			t.Errorf("another spec is refused with the old one's answer: %v", err)
		}
		m.Generation--
		_ = o.LettaError(m, letta.ErrUnauthorized)
		time.Sleep(refused)
		if err := o.Resting(m); err != nil {
			t.Errorf("it is never asked again: %v", err)
		}
	})
}

// TestWhoIsKeptAway: what is one conversation's trouble, or one team's, is
// nobody else's.
func TestWhoIsKeptAway(t *testing.T) {
	for name, c := range map[string]struct {
		reason     string
		err        error
		same, team bool // kept away afterwards: the memory itself, another team at the endpoint
	}{
		"refused":      {"no connection", fmt.Errorf("list: %w: connection refused", letta.ErrUnavailable), true, true},
		"lost":         {"the connection broke on a call with an effect", fmt.Errorf("cancel: %w: connection lost", letta.ErrOutcomeUnknown), true, true},
		"5xx":          {"the server has trouble", fmt.Errorf("list: %w: status 502", &letta.RetryError{Down: true}), true, true},
		"5xx, lost":    {"and may have done it", fmt.Errorf("list: %w: status 502: %w", letta.ErrOutcomeUnknown, &letta.RetryError{Down: true}), true, true},
		"429":          {"too many requests with this key", &letta.RetryError{Limited: true, After: time.Minute}, true, false},
		"model":        {"the model behind one agent has enough", fmt.Errorf("send: %w: %w", letta.ErrTurnFailed, &letta.RetryError{Limited: true}), false, false},
		"conflict":     {"a clash over one row", fmt.Errorf("send: %w: conflict", &letta.RetryError{}), false, false},
		"wait":         {"a clash that says when", &letta.RetryError{After: time.Minute}, false, false},
		"not there":    {"an answer", letta.ErrNotFound, false, false},
		"no such call": {"this back end has none", letta.ErrUnsupported, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			d := &dead{}
			d.say(func() error { return c.err })
			o, client := standing(d)
			mine, theirs := memory("https://letta.example.com"), memory("https://letta.example.com")
			theirs.UID = "another"
			if err := client.DeleteConversation(t.Context(), letta.Ref{}); !errors.Is(err, c.err) {
				t.Fatalf("the call ends with %v", err)
			}
			if err := o.Resting(mine); (err != nil) != c.same {
				t.Errorf("%s: its own memory hears %v", c.reason, err)
			}
			if err := o.Resting(theirs); (err != nil) != c.team {
				t.Errorf("%s: another team hears %v", c.reason, err)
			}
			_ = gated{Client: d, gates: o.gatesOf(theirs)}.DeleteConversation(t.Context(), letta.Ref{}) // made, or not
			if made := d.calls.Load() == 2; made == c.team {
				t.Errorf("%s: another team's call was made: %t", c.reason, made)
			}
		})
	}
}

// TestAnEarlierAnswerOpensNothing: a turn of minutes that ends well does not
// cut short what the server asked for in between.
func TestAnEarlierAnswerOpensNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &dead{}
		o, client := standing(d)
		d.say(func() error { time.Sleep(time.Minute); return nil })
		var turn sync.WaitGroup
		turn.Go(func() { _, _ = client.Send(t.Context(), letta.Ref{}, nil, letta.SendOptions{}) }) // ends well
		time.Sleep(time.Second)
		d.say(func() error { return &letta.RetryError{Limited: true, After: 10 * time.Minute} })
		_, _, _ = client.Lookup(t.Context(), letta.Ref{}, "id") // limited
		turn.Wait()
		if err := o.Resting(memory("https://letta.example.com")); err == nil {
			t.Error("nobody waits any more")
		}
	})
}

// TestALimitedMemoryTriesNoEndpoint: who may not call does not keep the place
// of the one that asks whether the endpoint is there again.
func TestALimitedMemoryTriesNoEndpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &dead{}
		o, limited := standing(d)
		theirs := memory("https://letta.example.com")
		theirs.UID = "another"
		other := gated{Client: d, gates: o.gatesOf(theirs)}
		d.say(func() error { return &letta.RetryError{Limited: true, After: 10 * time.Minute} })
		_, _, _ = limited.Lookup(t.Context(), letta.Ref{}, "id") // limited
		d.say(func() error { return &letta.RetryError{Down: true} })
		_, _, _ = other.Lookup(t.Context(), letta.Ref{}, "id") // down
		d.say(func() error { return nil })
		time.Sleep(5 * time.Second)
		if _, _, err := limited.Lookup(t.Context(), letta.Ref{}, "id"); err == nil {
			t.Error("the limited memory calls")
		}
		if _, _, err := other.Lookup(t.Context(), letta.Ref{}, "id"); err != nil {
			t.Errorf("the other one hears %v", err)
		}
	})
}
