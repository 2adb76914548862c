package letta_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/undersong-dev/undersong/internal/letta"
)

func TestErrorTextsAreStable(t *testing.T) {
	cases := map[string]struct {
		reason string
		a, b   error
	}{
		"Busy": {
			reason: "the run differs from turn to turn",
			a:      &letta.BusyError{RunID: "run-1"},
			b:      &letta.BusyError{RunID: "run-2"},
		},
		"Retry": {
			reason: "the time to wait differs from answer to answer",
			a:      &letta.RetryError{After: time.Second},
			b:      &letta.RetryError{After: time.Minute},
		},
		"Limited": {
			reason: "the same for rate limits",
			a:      &letta.RetryError{After: time.Second, Limited: true},
			b:      &letta.RetryError{Limited: true},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.a.Error(), tc.b.Error()); diff != "" {
				t.Errorf("%s: -a +b:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestRetryErrorIsUnavailable(t *testing.T) {
	err := fmt.Errorf("list: %w", &letta.RetryError{After: time.Second, Limited: true})
	if !errors.Is(err, letta.ErrUnavailable) {
		t.Errorf("a RetryError is not ErrUnavailable")
	}
	if errors.Is(err, letta.ErrQuota) {
		t.Errorf("a RetryError is ErrQuota")
	}
}
