package upload

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/undersong-dev/undersong/internal/seal"
)

// Errors of Put. Their texts are stable and hold no URL.
var (
	// ErrForbidden: the store refuses the URL. It expired, or was never good.
	ErrForbidden = errors.New("the object store refuses the URL of the slot")
	// ErrNoBucket: the store has no such bucket.
	ErrNoBucket = errors.New("the object store has no such bucket: ask whoever runs undersong in the cluster")
	// ErrUnreachable: there is no answer from the store.
	ErrUnreachable = errors.New("the object store cannot be reached from this workstation")
	// ErrStore: the store answers, and cannot take the object now.
	ErrStore = errors.New("the object store does not take the object now")
)

// answer is what a store says that does not take an object.
type answer struct {
	means  error // one of the errors of Put
	status int
}

// Error names the status.
func (a *answer) Error() string { return fmt.Sprintf("%s (status %d)", a.means, a.status) }

// Unwrap returns what it means.
func (a *answer) Unwrap() error { return a.means }

// Put deadlines: a start, and a rate that even a poor uplink has.
const (
	putBase = 30 * time.Second
	putRate = 64 << 10 // bytes a second
)

// NewHTTPClient returns a client for slots over the given transport. It
// follows no redirect: a slot is one exact URL.
func NewHTTPClient(transport http.RoundTripper) *http.Client {
	return &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// Put stores data in a slot. An object that is there already is success: the
// slot was recorded for these bytes before the first try.
func Put(ctx context.Context, client *http.Client, slot seal.Slot, data []byte) error {
	ctx, cancel := context.WithTimeout(ctx, putBase+time.Duration(len(data)/putRate)*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, slot.URL, bytes.NewReader(data))
	if err != nil {
		return errors.New("put segment: the grant holds a malformed URL")
	}
	for name, value := range slot.Headers {
		req.Header.Set(name, value)
	}
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("put segment: %w (%s)", ErrUnreachable, cause(err))
	}
	defer func() { _ = resp.Body.Close() }() // the status is all that counts
	// A small answer read to its end lets the connection be used again.
	_, _ = io.CopyN(io.Discard, resp.Body, 64<<10)

	switch resp.StatusCode {
	case http.StatusOK, http.StatusCreated, http.StatusNoContent, http.StatusPreconditionFailed:
		return nil
	}
	means := ErrStore
	switch resp.StatusCode {
	case http.StatusForbidden, http.StatusUnauthorized:
		means = ErrForbidden
	case http.StatusNotFound:
		means = ErrNoBucket
	}
	return fmt.Errorf("put segment: %w", &answer{means: means, status: resp.StatusCode})
}

// cause names why there was no answer, in words that do not change from try to
// try and name no address.
func cause(err error) string {
	if _, ok := errors.AsType[*net.DNSError](err); ok {
		return "its name cannot be resolved"
	}
	if nerr, ok := errors.AsType[net.Error](err); ok && nerr.Timeout() {
		return "no answer in time"
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return "no connection"
	}
	return "the connection broke"
}
