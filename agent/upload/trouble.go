package upload

import (
	"context"
	"errors"
	"net"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Trouble is told what is wrong, part by part, and by an empty message that it
// is no longer. Messages are for people, stable between retries, and hold no
// secret and no text of a session.
type Trouble interface {
	Set(part, message string)
}

// Parts that trouble is told of.
const (
	PartLogin       = "login"
	PartAPI         = "api"
	PartStore       = "store"
	PartGrant       = "grant"
	PartWorkstation = "workstation"
	PartSession     = "session/" // and the session's id
	PartUpload      = "upload/"  // and the session's id: a segment of it alone
)

// Messages for the API server's refusals.
const (
	loginNeeded   = "the login to the cluster has expired: log in again"
	forbidden     = "the cluster refuses the request: ask whoever runs undersong there for the role undersong-workstation in your namespace"
	unknownKinds  = "the cluster does not know undersong's kinds: is undersong installed there?"
	unavailable   = "the API server is overloaded or not ready"
	unreachable   = "the API server cannot be reached"
	refusedObject = "the cluster refuses what this version of undersong writes: update undersong here or in the cluster"
)

// LoginNeeded says whether an error of the API means that the user's login is
// no longer good. Nobody is asked for it here: the daemon has no terminal.
func LoginNeeded(err error) bool {
	return apierrors.IsUnauthorized(err) ||
		// The credential plugin of a kubeconfig fails inside the transport, and
		// has no type of its own.
		err != nil && (strings.Contains(err.Error(), "getting credentials: ") || strings.Contains(err.Error(), "exec plugin"))
}

// Explain returns what an error of the API means for the user, in words that
// are the same at every retry.
func Explain(err error) string {
	for _, known := range []error{ErrDisagree, ErrWithdrawn, ErrNameTaken, ErrOtherSession, ErrTooManyWriters, ErrNotRegistered} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	switch {
	case err == nil:
		return ""
	case LoginNeeded(err):
		return loginNeeded
	case apierrors.IsForbidden(err):
		return forbidden
	case apierrors.IsNotFound(err):
		return unknownKinds
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return refusedObject
	case apierrors.ReasonForError(err) != "":
		return unavailable
	}
	return unreachable + " (" + reason(err) + ")"
}

// reason is cause for errors of the API's client, which wraps fewer types.
func reason(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return "no answer in time"
	}
	if strings.Contains(err.Error(), "certificate has expired or is not yet valid") {
		return "its certificate is not valid now: is this computer's clock right?"
	}
	if strings.Contains(err.Error(), "x509: ") || strings.Contains(err.Error(), "tls: ") {
		return "its certificate is not trusted"
	}
	if _, ok := errors.AsType[net.Error](err); ok {
		return cause(err)
	}
	return "the connection broke"
}

// Report tells of an API error where it belongs: a login that expired is one
// trouble, whoever meets it.
func Report(trouble Trouble, part string, err error) {
	trouble.Set(PartLogin, "")
	switch {
	case err == nil:
		trouble.Set(PartAPI, "")
		trouble.Set(part, "")
	case LoginNeeded(err):
		trouble.Set(PartLogin, loginNeeded)
	case about(err):
		trouble.Set(PartAPI, "")
		trouble.Set(part, Explain(err))
	default:
		trouble.Set(PartAPI, Explain(err))
	}
}

// about says whether an error is about what was asked for, not about the way
// there.
func about(err error) bool {
	return own(err) || apierrors.IsForbidden(err) || apierrors.IsNotFound(err) || apierrors.IsBadRequest(err)
}
