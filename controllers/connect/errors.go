package connect

import (
	"context"
	"errors"
	"time"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/internal/letta"
	"github.com/undersong-dev/undersong/internal/outcome"
	"github.com/undersong-dev/undersong/internal/store"
)

// refused is how long to wait after a server refused a key: a person must
// change it, and nothing tells when that is done.
const refused = 30 * time.Second

// StoreError gives an error of the store its reason and says what to do.
func (o *Opener) StoreError(m *v1alpha1.TeamMemory, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, store.ErrAccessDenied):
		forget(o, o.stores, m.UID)
		return outcome.RetryAfterf(v1alpha1.StoreAccessDeniedReason, refused, "the store refuses the keys; check the Secret that TeamMemory %s names in spec.store.credentialsSecretRef, and the bucket's policy", m.Name)
	case errors.Is(err, store.ErrBucketNotFound):
		return outcome.RetryAfterf(v1alpha1.BucketNotFoundReason, refused, "create the bucket %s, or correct spec.store of TeamMemory %s", m.Spec.Store.Bucket, m.Name)
	case errors.Is(err, store.ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
		return outcome.Retryf(v1alpha1.StoreUnavailableReason, "the store at %s does not answer", m.Spec.Store.Endpoint)
	}
	return err
}

// LettaError gives an error of Letta its reason and says what to do.
func (o *Opener) LettaError(m *v1alpha1.TeamMemory, err error) error {
	var retry *letta.RetryError
	var busy *letta.BusyError
	var resting *restingError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, letta.ErrUnauthorized):
		forget(o, o.lettas, m.UID)
		return o.refuse(m, outcome.RetryAfterf(v1alpha1.LettaRejectedReason, refused, "Letta refuses the key; check the Secret that TeamMemory %s names in spec.letta.credentialsSecretRef", m.Name))
	case errors.Is(err, letta.ErrQuota):
		return o.refuse(m, outcome.RetryAfterf(v1alpha1.LettaRejectedReason, 10*time.Minute, "the quota at Letta is used up; it is tried again every ten minutes"))
	case errors.Is(err, letta.ErrApprovalPending):
		return outcome.RetryAfterf(v1alpha1.LettaRejectedReason, time.Minute, "the conversation waits for a tool call to be approved; deny it at Letta, and take that tool from the agent")
	case errors.As(err, &busy):
		return outcome.Waitf(v1alpha1.ProgressingReason, 5*time.Second, "another turn runs in the conversation")
	case errors.As(err, &resting) && resting.asked:
		return outcome.RetryAfterf(v1alpha1.LettaUnavailableReason, resting.after, "Letta at %s asks to wait", m.Spec.Letta.BaseURL)
	case errors.As(err, &resting):
		return outcome.RetryAfterf(v1alpha1.LettaUnavailableReason, resting.after, "Letta at %s does not answer", m.Spec.Letta.BaseURL)
	case errors.As(err, &retry) && (retry.Limited || retry.After > 0):
		return outcome.RetryAfterf(v1alpha1.LettaUnavailableReason, max(retry.After, firstRest), "Letta at %s asks to wait", m.Spec.Letta.BaseURL)
	case errors.Is(err, letta.ErrUnavailable), errors.Is(err, letta.ErrOutcomeUnknown):
		return outcome.Retryf(v1alpha1.LettaUnavailableReason, "Letta at %s does not answer", m.Spec.Letta.BaseURL)
	case errors.Is(err, letta.ErrInvalid):
		return outcome.RetryAfterf(v1alpha1.LettaRejectedReason, time.Minute, "Letta refuses the request: %w", err)
	}
	return err
}
