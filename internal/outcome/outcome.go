// Package outcome says what a reconciler's phase found. A phase returns an
// error and nothing else: nil, a plain error (retried with backoff), or one of
// this package with a reason for the condition.
package outcome

import (
	"errors"
	"fmt"
	"time"

	"github.com/undersong-dev/undersong/api/v1alpha1"
)

// Kind says what is to be done about an error.
type Kind int

const (
	// Retry: something failed; try again with backoff.
	Retry Kind = iota
	// Wait: nothing failed; look again after a while.
	Wait
	// Stall: only a person can help. Look again when an object changes.
	Stall
)

// Error is an outcome other than success.
type Error struct {
	// Kind says what is to be done.
	Kind Kind
	// Reason is the condition's reason, one of api/v1alpha1.
	Reason string
	// After is how long to wait: for Wait always, for Retry at least. Zero
	// means at once for Wait and the queue's backoff for Retry.
	After time.Duration
	// Err says what happened and what to do. Its text is stable between
	// retries and fit for a condition.
	Err error
}

// Error returns the text of the cause.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Of returns err as an outcome. A plain error is a Retry with reason Failed.
// Of must not be called with nil.
func Of(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return &Error{Kind: Retry, Reason: v1alpha1.FailedReason, Err: err}
}

// Retryf is a failure with a reason. The format takes %w.
func Retryf(reason, format string, args ...any) error {
	return &Error{Kind: Retry, Reason: reason, Err: fmt.Errorf(format, args...)}
}

// RetryAfterf is a failure that is not to be tried again before after.
func RetryAfterf(reason string, after time.Duration, format string, args ...any) error {
	return &Error{Kind: Retry, Reason: reason, After: after, Err: fmt.Errorf(format, args...)}
}

// Waitf is no failure: look again after a while.
func Waitf(reason string, after time.Duration, format string, args ...any) error {
	return &Error{Kind: Wait, Reason: reason, After: after, Err: fmt.Errorf(format, args...)}
}

// Stallf needs a person.
func Stallf(reason, format string, args ...any) error {
	return &Error{Kind: Stall, Reason: reason, Err: fmt.Errorf(format, args...)}
}
