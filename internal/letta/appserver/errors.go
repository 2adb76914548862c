package appserver

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/undersong-dev/undersong/internal/letta"
)

var (
	errLost = errors.New("connection lost")

	// ids go into requests and from there into names of files.
	id       = regexp.MustCompile(`^[A-Za-z0-9_-]{1,128}$`)
	clientID = regexp.MustCompile(`^[A-Za-z0-9_.:/-]{1,128}$`)
	// token is what may be quoted of a server's stop reasons.
	token = regexp.MustCompile(`^[a-z0-9_]{1,64}$`)
)

func checkIDs(op string, ids ...string) error {
	for _, s := range ids {
		if !id.MatchString(s) {
			return fmt.Errorf("%s: %w: not an id", op, letta.ErrInvalid)
		}
	}
	return nil
}

func quotable(s string) string {
	if token.MatchString(s) {
		return s
	}
	return "other"
}

// failed makes the error of a request without an answer. The cause's own text
// holds addresses and ports, so only its kind is told.
func failed(ctx context.Context, op string, cause error, effect bool) error {
	kind := letta.ErrUnavailable
	if effect {
		kind = letta.ErrOutcomeUnknown
	}
	if err := ctx.Err(); errors.Is(err, context.Canceled) {
		return fmt.Errorf("%s: %w: %w", op, kind, err)
	}
	return fmt.Errorf("%s: %w: %s", op, kind, describe(ctx, cause))
}

func describe(ctx context.Context, cause error) string {
	var (
		dns  *net.DNSError
		cert *tls.CertificateVerificationError
		rec  tls.RecordHeaderError
	)
	switch {
	case ctx.Err() != nil:
		return "no answer in time"
	case errors.As(cause, &dns):
		return "the name does not resolve"
	case errors.As(cause, &cert):
		return "the certificate is not trusted"
	case errors.As(cause, &rec):
		return "the server does not speak TLS"
	case errors.Is(cause, syscall.ECONNREFUSED):
		return "connection refused"
	}
	return "connection lost"
}

// refusedDial makes the error of a connection that was refused over HTTP, by
// the server or by a proxy before it. Nothing was sent yet.
func refusedDial(op string, res *http.Response) error {
	switch s := res.StatusCode; {
	case s == http.StatusUnauthorized, s == http.StatusForbidden, s == http.StatusProxyAuthRequired:
		return fmt.Errorf("%s: %w", op, letta.ErrUnauthorized)
	case s == http.StatusTooManyRequests:
		return fmt.Errorf("%s: %w", op, &letta.RetryError{After: retryAfter(res.Header), Limited: true})
	case s >= 500:
		return fmt.Errorf("%s: %w", op, &letta.RetryError{After: retryAfter(res.Header), Down: true})
	case s >= 300 && s < 400:
		return fmt.Errorf("%s: %w: the server redirects", op, letta.ErrInvalid)
	}
	return fmt.Errorf("%s: %w: there is no App Server", op, letta.ErrInvalid)
}

// retryAfter reads a number of seconds. A date is not read: only proxies
// answer here, and they send numbers.
func retryAfter(h http.Header) time.Duration {
	s, err := strconv.ParseFloat(strings.TrimSpace(h.Get("Retry-After")), 64)
	switch {
	case err != nil && !errors.Is(err, strconv.ErrRange), math.IsNaN(s), s <= 0:
		return 0
	case s >= letta.MaxRetryAfter.Seconds():
		return letta.MaxRetryAfter
	}
	return time.Duration(s * float64(time.Second))
}

// refused makes the error of an answer that says no. The server has no codes:
// a few of its texts are known, and none is quoted.
func refused(op string, data json.RawMessage) error {
	var a struct {
		Success *bool  `json:"success"`
		Error   string `json:"error"`
	}
	_ = lenient(data, &a) // what cannot be read says nothing, and fails where it is decoded
	if a.Success == nil || *a.Success {
		return nil
	}
	text := strings.ToLower(a.Error)
	switch {
	case strings.HasSuffix(text, "not found"),
		// git's words for a file that a commit does not have
		strings.Contains(text, "does not exist in"), strings.Contains(text, "exists on disk, but not in"):
		return fmt.Errorf("%s: %w", op, letta.ErrNotFound)
	case strings.Contains(text, "must resolve inside"), strings.Contains(text, "frontmatter validation"), strings.Contains(text, "invalid"):
		return fmt.Errorf("%s: %w", op, letta.ErrInvalid)
	}
	return fmt.Errorf("%s: %w", op, &letta.RetryError{})
}

// decode reads an answer.
func decode(op string, data json.RawMessage, out any) error {
	if err := lenient(data, out); err != nil {
		// The text of err can quote the answer.
		return fmt.Errorf("%s: %w: the answer is not what the App Server answers", op, letta.ErrInvalid)
	}
	return nil
}
