package api

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/undersong-dev/undersong/internal/letta"
)

// refusal is what is read of an error's body. Letta writes {"detail": text}
// mostly; Cloud has shapes of its own. None of it gets into an error's text.
type refusal struct {
	Detail   json.RawMessage `json:"detail"`
	RunID    string          `json:"run_id"`
	Reasons  []string        `json:"reasons"`
	Admitted *bool           `json:"admitted"`
}

func parseRefusal(body []byte) refusal {
	var r refusal
	// A field of an unexpected type leaves the others filled, and a body that
	// is no JSON leaves all empty: the status alone then decides.
	_ = json.Unmarshal(body, &r)
	return r
}

// says reports whether the detail, text or object, contains the phrase.
func (r refusal) says(phrase string) bool {
	return strings.Contains(strings.ToLower(string(r.Detail)), phrase)
}

// refused makes the error of an answer that is no success.
func (c *Client) refused(r request, res *http.Response, body []byte) error {
	why := parseRefusal(body)
	code := res.StatusCode
	switch {
	case code >= 300 && code < 400:
		return fmt.Errorf("%s: %w: the server redirects, correct the base URL", r.op, letta.ErrInvalid)
	case code == http.StatusUnauthorized, code == http.StatusForbidden:
		return fmt.Errorf("%s: %w", r.op, letta.ErrUnauthorized)
	case code == http.StatusPaymentRequired:
		return fmt.Errorf("%s: %w", r.op, letta.ErrQuota)
	case code == http.StatusNotFound, code == http.StatusGone:
		return fmt.Errorf("%s: %w", r.op, letta.ErrNotFound)
	case code == http.StatusConflict:
		return c.conflict(r, res, why)
	case code == http.StatusTooManyRequests:
		for _, reason := range why.Reasons {
			// "exceeded-quota", "agents-limit-exceeded" and their like last
			// until a bill is paid or a month ends.
			if strings.Contains(reason, "quota") || strings.Contains(reason, "limit-exceeded") {
				return fmt.Errorf("%s: %w", r.op, letta.ErrQuota)
			}
		}
		return fmt.Errorf("%s: %w", r.op, &letta.RetryError{After: c.retryAfter(res.Header), Limited: true})
	case code == http.StatusRequestTimeout, code >= 500:
		retry := &letta.RetryError{After: c.retryAfter(res.Header), Down: code >= 500}
		// A gateway answers 502 and 504 while Letta goes on behind it, and
		// Letta answers 500 for what failed half way. Only a 503 of Letta's
		// own (no Redis, or a shutdown with "admitted": false) says that
		// nothing was begun.
		own := code == http.StatusServiceUnavailable && (why.Detail != nil || (why.Admitted != nil && !*why.Admitted))
		if r.effect && !own {
			return fmt.Errorf("%s: %w: status %d: %w", r.op, letta.ErrOutcomeUnknown, code, retry)
		}
		return fmt.Errorf("%s: %w: status %d", r.op, retry, code)
	}
	return fmt.Errorf("%s: %w: status %d", r.op, letta.ErrInvalid, code)
}

// conflict tells the meanings of 409 apart.
func (c *Client) conflict(r request, res *http.Response, why refusal) error {
	switch {
	case r.conflictIsNone:
		return errNoneRuns
	case why.says("waiting for approval"), why.says("pending_approval"):
		return fmt.Errorf("%s: %w", r.op, letta.ErrApprovalPending)
	case why.RunID != "", why.says("currently being processed"):
		return fmt.Errorf("%s: %w", r.op, &letta.BusyError{RunID: why.RunID})
	}
	// What is left are clashes in the server's database.
	return fmt.Errorf("%s: %w: conflict", r.op, &letta.RetryError{After: c.retryAfter(res.Header)})
}

// retryAfter reads how long the server asks to wait: milliseconds in a header
// of Letta's, seconds or a date in the standard one. 0 if it does not say.
func (c *Client) retryAfter(h http.Header) time.Duration {
	if ms, err := strconv.ParseFloat(h.Get("Retry-After-Ms"), 64); err == nil {
		return bounded(ms * float64(time.Millisecond))
	}
	v := h.Get("Retry-After")
	if s, err := strconv.ParseFloat(v, 64); err == nil {
		return bounded(s * float64(time.Second))
	}
	at, err := http.ParseTime(v)
	if err != nil {
		return 0
	}
	// The server's date is in the server's time, so its own clock is the one
	// to compare with.
	now, err := http.ParseTime(h.Get("Date"))
	if err != nil {
		now = c.clock.Now()
	}
	return bounded(float64(at.Sub(now)))
}

func bounded(d float64) time.Duration {
	if math.IsNaN(d) || d < 0 {
		return 0
	}
	return time.Duration(min(d, float64(letta.MaxRetryAfter)))
}
