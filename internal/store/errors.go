package store

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"syscall"

	"github.com/minio/minio-go/v7"
)

// What can be wrong, one of them in every error of a call, unless the caller's
// context ended: then it is that context's error. Their text never changes.
var (
	// ErrNotExist means that there is no such object.
	ErrNotExist = errors.New("object does not exist")
	// ErrTooLarge means that the object has more bytes than were asked for.
	ErrTooLarge = errors.New("object is too large")
	// ErrAccessDenied means that the server refuses the credentials, or what
	// they ask for.
	ErrAccessDenied = errors.New("object store denies access")
	// ErrBucketNotFound means that the server answers and has no such bucket.
	ErrBucketNotFound = errors.New("bucket does not exist")
	// ErrUnavailable means everything else: no answer, or one of no use.
	ErrUnavailable = errors.New("object store is unavailable")
)

// failed makes an error of ours of one of the client's, which names hosts,
// ports and request ids. ctx is the caller's context.
func failed(ctx context.Context, op string, err error) error {
	if cerr := ctx.Err(); cerr != nil {
		return fmt.Errorf("%s: %w", op, cerr)
	}
	detail, sentinel := classify(err)
	if detail != "" {
		return fmt.Errorf("%s: %w (%s)", op, sentinel, detail)
	}
	return fmt.Errorf("%s: %w", op, sentinel)
}

// classify returns the sentinel for an error of the client, and, where the
// sentinel alone does not say what to do, a detail that is the same each time.
func classify(err error) (detail string, sentinel error) {
	if !answered(err) {
		return networkDetail(err), ErrUnavailable
	}
	answer := minio.ToErrorResponse(err)
	switch answer.Code {
	case minio.NoSuchKey:
		return "", ErrNotExist
	case minio.NoSuchBucket:
		return "", ErrBucketNotFound
	case minio.AccessDenied:
		return "", ErrAccessDenied
	case "ExpiredToken", "InvalidToken", "TokenRefreshRequired", // 400 at Amazon
		"XAdminUserNotFound": // 404 at versitygw
		return answer.Code, ErrAccessDenied
	}
	detail = answerDetail(answer)
	switch answer.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden:
		return detail, ErrAccessDenied
	default:
		return detail, ErrUnavailable
	}
}

// answered reports whether the server, not the way to it, is what failed.
func answered(err error) bool {
	return minio.ToErrorResponse(err).StatusCode != 0
}

// answerDetail is the server's own word for what is wrong, such as SlowDown or
// RequestTimeTooSkewed, if it is one word, else the HTTP status.
func answerDetail(answer minio.ErrorResponse) string {
	word := answer.Code
	other := func(r rune) bool { return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') }
	if word == "" || len(word) > 64 || strings.ContainsFunc(word, other) {
		return fmt.Sprintf("HTTP status %d", answer.StatusCode)
	}
	return word
}

// networkDetail says which kind of trouble there was without an answer.
func networkDetail(err error) string {
	_, untrusted := errors.AsType[*tls.CertificateVerificationError](err)
	dns, lookup := errors.AsType[*net.DNSError](err)
	switch {
	case errors.Is(err, errLinkLocal):
		return errLinkLocal.Error()
	case errors.Is(err, errTooLong):
		return errTooLong.Error()
	case untrusted:
		return "its certificate is not trusted"
	case lookup && dns.IsNotFound:
		return "host not found"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused"
	case errors.Is(err, context.DeadlineExceeded):
		return "no answer in time"
	default:
		return ""
	}
}
