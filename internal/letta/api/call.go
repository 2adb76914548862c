package api

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"regexp"
	"sync/atomic"
	"syscall"

	"github.com/undersong-dev/undersong/internal/letta"
)

// ids are opaque, but they become path segments: "..", "a/b" or an id with a
// query must not reach another route.
var id = regexp.MustCompile(`^[A-Za-z0-9_-]{1,128}$`)

func checkIDs(op string, ids ...string) error {
	for _, s := range ids {
		if !id.MatchString(s) {
			return fmt.Errorf("%s: %w: not an id", op, letta.ErrInvalid)
		}
	}
	return nil
}

// request is one HTTP call. path has its exact trailing slash: collections
// end in one, items and actions do not.
type request struct {
	op     string // begins every error text
	method string
	path   string
	query  url.Values
	body   any
	stream bool // asks for server-sent events
	// effect: the server does something that should not be done twice, so
	// that a lost answer is ErrOutcomeUnknown.
	effect bool
	// conflictIsNone: 409 says that no turn runs, and is errNoneRuns.
	conflictIsNone bool
}

var errNoneRuns = errors.New("no turn runs")

// open sends the request and returns the answer if its status is 200 to 299.
// The caller closes the body. ctx must have a deadline.
func (c *Client) open(ctx context.Context, r request) (*http.Response, error) {
	var body io.Reader
	if r.body != nil {
		data, err := json.Marshal(r.body)
		if err != nil {
			return nil, fmt.Errorf("%s: encode: %w", r.op, err)
		}
		body = bytes.NewReader(data)
	}
	target := c.base + r.path
	if len(r.query) > 0 {
		target += "?" + r.query.Encode()
	}
	var sent atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		WroteHeaders: func() { sent.Store(true) },
	})
	req, err := http.NewRequestWithContext(ctx, r.method, target, body)
	if err != nil {
		// The text of err holds the URL.
		return nil, fmt.Errorf("%s: %w: no valid URL", r.op, letta.ErrInvalid)
	}
	req.Header.Set("Accept", "application/json")
	if r.stream {
		req.Header.Set("Accept", "text/event-stream, application/json")
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.key != "" {
		req.Header.Set("Authorization", "Bearer "+c.key)
	}
	res, err := c.http.Do(req)
	if err != nil {
		return nil, lost(ctx, r.op, err, r.effect && sent.Load())
	}
	if res.StatusCode < 200 || res.StatusCode > 299 {
		// An error page that cannot be read whole is judged by its status.
		data, _ := io.ReadAll(io.LimitReader(res.Body, maxErrorBody))
		_ = res.Body.Close() // nothing was asked of it
		return nil, c.refused(r, res, data)
	}
	return res, nil
}

// call sends the request and decodes the answer's JSON into out, if not nil.
func (c *Client) call(ctx context.Context, r request, out any) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	res, err := c.open(ctx, r)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }() // read to its end or given up
	data, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	if err != nil {
		return lost(ctx, r.op, err, r.effect)
	}
	if len(data) > maxAnswer {
		return fmt.Errorf("%s: %w: the answer is too large", r.op, letta.ErrInvalid)
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(data, out); err != nil {
		// The text of err can quote the body.
		return fmt.Errorf("%s: %w: the answer is not what Letta answers", r.op, letta.ErrInvalid)
	}
	return nil
}

func (c *Client) get(ctx context.Context, op, path string, query url.Values, out any) error {
	return c.call(ctx, request{op: op, method: http.MethodGet, path: path, query: query}, out)
}

// lost makes the error of a connection that failed: at all, or after the
// request was sent. The cause's own text holds addresses and ports, so only
// its kind is told.
func lost(ctx context.Context, op string, cause error, sent bool) error {
	kind := letta.ErrUnavailable
	if sent {
		kind = letta.ErrOutcomeUnknown
	}
	if ctxErr := ctx.Err(); errors.Is(ctxErr, context.Canceled) && !errors.Is(context.Cause(ctx), errIdle) {
		return fmt.Errorf("%s: %w: %w", op, kind, ctxErr)
	}
	return fmt.Errorf("%s: %w: %s", op, kind, describe(ctx, cause))
}

func describe(ctx context.Context, cause error) string {
	var (
		dns  *net.DNSError
		cert *tls.CertificateVerificationError
		rec  tls.RecordHeaderError
		op   net.Error
	)
	switch {
	case ctx.Err() != nil:
		return "no answer in time"
	case errors.As(cause, &dns):
		return "the name does not resolve"
	case errors.As(cause, &cert):
		return "the certificate is not trusted"
	case errors.As(cause, &rec), errors.Is(cause, http.ErrSchemeMismatch):
		return "the server does not speak TLS"
	case errors.Is(cause, syscall.ECONNREFUSED):
		return "connection refused"
	case errors.As(cause, &op) && op.Timeout():
		return "no answer in time"
	}
	return "connection lost"
}
