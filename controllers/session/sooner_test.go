package session

import (
	"testing"
	"time"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/internal/outcome"
)

func TestTheFirstFailureIsToldAndTheSoonestIsWaitedFor(t *testing.T) {
	const first, second = v1alpha1.SegmentMissingReason, v1alpha1.DeliveryParkedReason
	retry := func(reason string, after time.Duration) error { return outcome.RetryAfterf(reason, after, "retry") }
	wait := func(reason string, after time.Duration) error { return outcome.Waitf(reason, after, "wait") }
	for name, c := range map[string]struct {
		reason string
		a, b   error
		kind   outcome.Kind
		after  time.Duration
	}{
		"a day, then at once":        {"what is under way goes on beside what was given up", retry(first, 24*time.Hour), retry(second, time.Millisecond), outcome.Retry, time.Millisecond},
		"a minute, then a day":       {"the sooner", retry(first, time.Minute), retry(second, 24*time.Hour), outcome.Retry, time.Minute},
		"a minute, then backoff":     {"the queue knows when", retry(first, time.Minute), retry(second, 0), outcome.Retry, 0},
		"a minute, then a wait of 0": {"at once, and still a failure", retry(first, time.Minute), wait(second, 0), outcome.Retry, time.Millisecond},
		"wait, then a failure":       {"it is a failure", wait(first, 0), retry(second, time.Minute), outcome.Retry, time.Minute},
		"stalled, then a failure":    {"it is not left alone", outcome.Stallf(first, "stall"), retry(second, time.Minute), outcome.Retry, time.Minute},
		"failure, then stalled":      {"nothing more is to be done for the second", retry(first, time.Minute), outcome.Stallf(second, "stall"), outcome.Retry, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			if got := outcome.Of(sooner(c.a, c.b)); got.Kind != c.kind || got.After != c.after || got.Reason != first {
				t.Errorf("%s: %d %s after %s, want %d %s after %s", c.reason, got.Kind, got.Reason, got.After, c.kind, first, c.after)
			}
		})
	}
}
