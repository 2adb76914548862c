package letta

import (
	"errors"
	"time"
)

// Errors of a Client, for errors.Is. Several can hold at once: a turn that
// failed for want of credits is ErrTurnFailed and ErrQuota.
var (
	// ErrNotFound: no such agent, conversation or run, or not for this key.
	ErrNotFound = errors.New("not found by letta")
	// ErrUnauthorized: the key is missing, wrong or may not do this.
	ErrUnauthorized = errors.New("letta refuses the key")
	// ErrInvalid: the request can never succeed as it is, or the server does
	// not speak the expected protocol. Trying again is of no use.
	ErrInvalid = errors.New("letta refuses the request")
	// ErrApprovalPending: the conversation waits for a person to approve a
	// tool call and takes nothing until then.
	ErrApprovalPending = errors.New("letta waits for the approval of a tool call")
	// ErrQuota: credits or a plan's limits are used up. It lasts for hours.
	ErrQuota = errors.New("the quota at letta is used up")
	// ErrTurnFailed: the turn ran and ended without success.
	ErrTurnFailed = errors.New("letta's turn failed")
	// ErrOutcomeUnknown: the request may or may not have been carried out,
	// or may still be.
	ErrOutcomeUnknown = errors.New("the answer of letta was lost")
	// ErrUnsupported: the back end has no such call.
	ErrUnsupported = errors.New("this back end of letta cannot do that")
	// ErrUnavailable: the server cannot be reached or cannot serve now.
	ErrUnavailable = errors.New("letta is unavailable")
)

// BusyError says that another turn runs in the conversation. Nothing was
// sent.
type BusyError struct {
	// RunID names that turn, "" if the server did not say.
	RunID string
}

// Error leaves the run id out: it differs from turn to turn.
func (e *BusyError) Error() string { return "letta is busy with another turn of the conversation" }

// RetryError says that the same request can succeed later. It is
// ErrUnavailable too.
type RetryError struct {
	// After is how long the server asks to wait, 0 if it does not say, never
	// more than MaxRetryAfter.
	After time.Duration
	// Limited is true where somebody said "too many requests": the server, to
	// whoever has this key, or with ErrTurnFailed the model behind it.
	Limited bool
	// Down is true where the endpoint as a whole cannot serve (an HTTP status
	// of 500 or more). False says that it answers, and that what keeps it from
	// this request may be no other one's: a clash in one conversation, a memory
	// that is being written.
	Down bool
}

// MaxRetryAfter bounds RetryError.After: a server must not park a caller for
// good.
const MaxRetryAfter = time.Hour

// Error leaves the time out: it differs from answer to answer.
func (e *RetryError) Error() string {
	if e.Limited {
		return "letta limits the rate of requests"
	}
	return ErrUnavailable.Error()
}

// Is makes every RetryError an ErrUnavailable.
func (e *RetryError) Is(target error) bool { return target == ErrUnavailable }
