// Package status is the end of every reconcile: it turns the error of the last
// phase into conditions, one event and one status write, and nothing at all
// when nothing changed.
package status

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/internal/outcome"
)

// conflictDelay is how long to wait for the cache after somebody else's write.
const conflictDelay = 200 * time.Millisecond

// patchWithin bounds the status write.
const patchWithin = 10 * time.Second

// maxMessage bounds a condition's message, in bytes.
const maxMessage = 1024

// Object is a kind with conditions.
type Object interface {
	client.Object
	GetConditions() []metav1.Condition
	SetConditions([]metav1.Condition)
}

// Writer writes the status of one kind.
type Writer struct {
	// Client writes the status.
	Client client.Client
	// Recorder emits the event of a change.
	Recorder events.EventRecorder
}

// Finish ends a reconcile. before is obj as it was read, err the error of the
// last phase, observed sets the observedGeneration, and interval, if not zero,
// is when to look again after success.
//
// It is the only place that writes a status. written says that the status of
// obj now stands in the API server, so that what must come after it may be
// done.
func (w Writer) Finish(ctx context.Context, before, obj Object, err error, observed func(), interval time.Duration) (res ctrl.Result, written bool, _ error) {
	Mark(obj, v1alpha1.ReadyCondition, err)

	terminal := false // no retry, once the status says so
	switch o := of(err); {
	case err == nil:
		abnormal(obj, "", nil)
		observed()
		res.RequeueAfter = interval
	case o.Kind == outcome.Stall:
		abnormal(obj, v1alpha1.StalledCondition, err)
		observed()
		terminal = true
	case o.Kind == outcome.Wait:
		abnormal(obj, v1alpha1.ReconcilingCondition, err)
		// Zero would mean never; a millisecond is at once.
		res.RequeueAfter, err = max(o.After, time.Millisecond), nil
	case o.After > 0:
		abnormal(obj, v1alpha1.ReconcilingCondition, err)
		res.RequeueAfter, err = o.After, nil
	default:
		abnormal(obj, v1alpha1.ReconcilingCondition, err)
	}

	if !equality.Semantic.DeepEqual(before, obj) {
		patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
		// A reconcile that ran out of time still says how far it came.
		pctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patchWithin)
		perr := w.Client.Status().Patch(pctx, obj, patch)
		cancel()
		switch {
		case apierrors.IsConflict(perr):
			// Somebody wrote meanwhile: look again at what changed, quietly.
			return ctrl.Result{RequeueAfter: conflictDelay}, false, nil
		case apierrors.IsNotFound(perr):
			return ctrl.Result{}, false, nil
		case perr != nil:
			// Not joined to a TerminalError: a Stall that is not written must
			// be tried again.
			return ctrl.Result{}, false, errors.Join(err, fmt.Errorf("patch status: %w", perr))
		}
		w.report(before, obj)
	}
	if terminal {
		err = reconcile.TerminalError(err)
	}
	return res, true, err
}

// Mark sets one condition from the error of its phase: True for nil, Unknown
// while it waits, False when it failed.
func Mark(obj Object, condition string, err error) {
	c := metav1.Condition{Type: condition, Status: metav1.ConditionTrue, Reason: v1alpha1.SucceededReason, ObservedGeneration: obj.GetGeneration()}
	if err != nil {
		o := outcome.Of(err)
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, o.Reason, cut(o.Error())
		if o.Kind == outcome.Wait {
			c.Status = metav1.ConditionUnknown
		}
	}
	conditions := obj.GetConditions()
	apimeta.SetStatusCondition(&conditions, c)
	obj.SetConditions(conditions)
}

// Behind marks the condition of a phase that an earlier phase kept from
// running.
func Behind(obj Object, condition, earlier string) {
	conditions := obj.GetConditions()
	apimeta.SetStatusCondition(&conditions, metav1.Condition{
		Type: condition, Status: metav1.ConditionUnknown, Reason: v1alpha1.ProgressingReason,
		Message: "waits for " + earlier, ObservedGeneration: obj.GetGeneration(),
	})
	obj.SetConditions(conditions)
}

// abnormal makes the named one of Reconciling and Stalled the only one that is
// present. It does not touch one that is already right: removing it and
// setting it again would move its transition time, and every retry would write.
func abnormal(obj Object, present string, err error) {
	conditions := obj.GetConditions()
	for _, t := range []string{v1alpha1.ReconcilingCondition, v1alpha1.StalledCondition} {
		if t != present {
			apimeta.RemoveStatusCondition(&conditions, t)
		}
	}
	if present != "" {
		o := outcome.Of(err)
		reason := o.Reason
		if present == v1alpha1.ReconcilingCondition {
			reason = v1alpha1.ProgressingReason
			if o.Kind == outcome.Retry {
				reason = v1alpha1.ProgressingWithRetryReason
			}
		}
		apimeta.SetStatusCondition(&conditions, metav1.Condition{
			Type: present, Status: metav1.ConditionTrue, Reason: reason,
			Message: cut(o.Error()), ObservedGeneration: obj.GetGeneration(),
		})
	}
	obj.SetConditions(conditions)
}

// report emits one event when Ready turned False, or False for another reason,
// and one when it is no longer False. Steps under way are no news.
func (w Writer) report(before, obj Object) {
	was := apimeta.FindStatusCondition(before.GetConditions(), v1alpha1.ReadyCondition)
	is := apimeta.FindStatusCondition(obj.GetConditions(), v1alpha1.ReadyCondition)
	if w.Recorder == nil || is == nil || (was != nil && was.Status == is.Status && was.Reason == is.Reason) {
		return
	}
	switch {
	case is.Status == metav1.ConditionFalse:
		w.Recorder.Eventf(obj, nil, corev1.EventTypeWarning, is.Reason, "Reconcile", "%s", is.Message)
	case was != nil && was.Status == metav1.ConditionFalse:
		w.Recorder.Eventf(obj, nil, corev1.EventTypeNormal, is.Reason, "Reconcile", "recovered from %s", was.Reason)
	}
}

// of is outcome.Of that accepts nil.
func of(err error) *outcome.Error {
	if err == nil {
		return &outcome.Error{}
	}
	return outcome.Of(err)
}

// cut bounds a message at a rune border.
func cut(s string) string {
	if len(s) <= maxMessage {
		return s
	}
	end := maxMessage - len("…")
	for end > 0 && s[end]&0xC0 == 0x80 {
		end--
	}
	return s[:end] + "…"
}

// Backoff is the rate limiter of the queues: quick at first, never slower than
// a minute, so that what was repaired is seen soon.
func Backoff() workqueue.TypedRateLimiter[reconcile.Request] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](100*time.Millisecond, time.Minute)
}
