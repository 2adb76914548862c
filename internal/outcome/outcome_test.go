package outcome

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/undersong-dev/undersong/api/v1alpha1"
)

func TestOf(t *testing.T) {
	cause := errors.New("the cause")
	for name, c := range map[string]struct {
		reason string
		err    error
		kind   Kind
		why    string
		after  time.Duration
		text   string
	}{
		"plain":   {"an error without a kind is retried", cause, Retry, v1alpha1.FailedReason, 0, "the cause"},
		"retry":   {"a reason is kept", Retryf(v1alpha1.StoreUnavailableReason, "read: %w", cause), Retry, v1alpha1.StoreUnavailableReason, 0, "read: the cause"},
		"after":   {"a date is kept", RetryAfterf(v1alpha1.StoreUnavailableReason, time.Second, "x: %w", cause), Retry, v1alpha1.StoreUnavailableReason, time.Second, "x: the cause"},
		"wait":    {"waiting is told apart", Waitf(v1alpha1.ProgressingReason, time.Minute, "y: %w", cause), Wait, v1alpha1.ProgressingReason, time.Minute, "y: the cause"},
		"stall":   {"a person must act", Stallf(v1alpha1.InvalidSpecReason, "z: %w", cause), Stall, v1alpha1.InvalidSpecReason, 0, "z: the cause"},
		"wrapped": {"a wrapped outcome stays one", fmt.Errorf("phase: %w", Stallf(v1alpha1.InvalidSpecReason, "z: %w", cause)), Stall, v1alpha1.InvalidSpecReason, 0, "z: the cause"},
		"joined":  {"the first of several counts", errors.Join(Waitf(v1alpha1.SuspendedReason, time.Hour, "w: %w", cause), Stallf(v1alpha1.InvalidSpecReason, "z")), Wait, v1alpha1.SuspendedReason, time.Hour, "w: the cause"},
	} {
		t.Run(name, func(t *testing.T) {
			got := Of(c.err)
			if got.Kind != c.kind || got.Reason != c.why || got.After != c.after || got.Error() != c.text {
				t.Errorf("%s: Of is %+v: %s", c.reason, got, got)
			}
			if !errors.Is(got, cause) {
				t.Errorf("%s: the cause is lost", c.reason)
			}
		})
	}
}
