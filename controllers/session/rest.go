package session

import (
	"context"
	"hash/fnv"
	"slices"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/internal/segment"
)

// compareAgain is how long a Session that rests waits to be compared with its
// record, when that did not go.
const compareAgain = 10 * time.Minute

// rests reports whether a Session has nothing left to do but to grow old: all
// that spec says is done, and status says so. Of ten thousand Sessions nearly
// all rest, so nobody outside is asked about one that does.
func rests(ses *v1alpha1.Session) bool {
	st := &ses.Status
	y := st.SyncState
	switch {
	case y == nil, st.ObservedGeneration != ses.Generation, !apimeta.IsStatusConditionTrue(st.Conditions, v1alpha1.ReadyCondition),
		len(y.Parked) > 0, y.Delivery != nil && y.Delivery.Phase != v1alpha1.DeliveryPublished, backlog(ses):
		return false
	}
	for i := range ses.Spec.Writers {
		w := &ses.Spec.Writers[i]
		sync := syncOf(ses, w.Workstation)
		if sync == nil || sync.Verified.Segments != w.Segments || sync.Verified.Chain != w.Chain || len(sync.Held) > 0 || len(sync.Wanted) > 0 || sync.Origin != "" {
			return false
		}
	}
	// Each request is answered, and each answer has its request.
	return len(ses.Spec.Requests) == len(st.Answered) &&
		!slices.ContainsFunc(ses.Spec.Requests, func(q v1alpha1.Request) bool { return !hasAnswer(ses, q.ID) })
}

// rest reports whether the phases have nothing to do for a Session, and when
// it is to be looked at again; zero means at no time of its own. It asks the
// store, once in each process, whether the record is ahead: not all of them at
// the start, and what it cannot tell makes no Session unwell.
func (r *Reconciler) rest(ctx context.Context, s *scope) (again time.Duration, resting bool) {
	if !rests(s.ses) {
		return 0, false
	}
	if known, ok := r.revisions.get(s.ses.UID); ok {
		return 0, s.ses.Status.SyncState.Record >= known && !r.slotsLeft(ctx, s)
	}
	if len(s.ses.Spec.Writers) == 0 {
		return 0, true
	}
	if wait := r.untilCompared(s); wait > 0 {
		return wait, true
	}
	if err := r.adopt(ctx, s); err != nil {
		ctrl.LoggerFrom(ctx).V(1).Info("Leaving a Session uncompared with its record", "reason", err.Error())
		return compareAgain, true
	}
	return 0, false // what the record says, and what is left in the inbox, is seen to
}

// compared reports whether this process knows the Session's record.
func (r *Reconciler) compared(ses *v1alpha1.Session) bool {
	_, ok := r.revisions.get(ses.UID)
	return ok || len(ses.Spec.Writers) == 0
}

// untilCompared is how long a Session that rests waits for its comparison:
// each has its own moment within CompareWithin, and none is deleted before.
func (r *Reconciler) untilCompared(s *scope) time.Duration {
	if r.CompareWithin <= 0 {
		return 0
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(s.ses.UID)) // a hash takes everything

	at := r.started.Add(time.Duration(h.Sum64() % uint64(r.CompareWithin))) //nolint:gosec // less than CompareWithin, which is positive
	wait := at.Sub(r.Clock.Now())
	if left, ok := r.untilExpired(s); ok {
		wait = min(wait, left)
	}
	return wait
}

// slotsLeft reports whether a verified segment may still lie in the inbox.
func (r *Reconciler) slotsLeft(ctx context.Context, s *scope) bool {
	for i := range s.ses.Spec.Writers {
		w := &s.ses.Spec.Writers[i]
		if len(w.Slots) == 0 {
			continue
		}
		ws := &v1alpha1.Workstation{}
		if err := r.Client.Get(ctx, types.NamespacedName{Namespace: s.ses.Namespace, Name: w.Workstation}, ws); err != nil {
			continue // its inbox is nobody's
		}
		for _, slot := range w.Slots {
			if !r.emptied.has(segment.InboxKey(string(ws.UID), slot.Slot)) {
				return true
			}
		}
	}
	return false
}

// soonest is the shorter of two waits, of which zero is none.
func soonest(a, b time.Duration) time.Duration {
	if a == 0 || (b != 0 && b < a) {
		return b
	}
	return a
}

// enqueue puts a Session into the queue: one that rests behind all that do not.
func enqueue(q workqueue.TypedRateLimitingInterface[reconcile.Request], ses *v1alpha1.Session) {
	req := reconcile.Request{NamespacedName: client.ObjectKeyFromObject(ses)}
	pq, ok := q.(priorityqueue.PriorityQueue[reconcile.Request])
	if !ok {
		q.Add(req)
		return
	}
	priority := 0
	if rests(ses) {
		priority = handler.LowPriority
	}
	pq.AddWithOpts(priorityqueue.AddOpts{Priority: &priority}, req)
}

// first puts those Sessions to the front that a new process finds with
// something to do: all that it finds are in the queue, one after the other.
func first() handler.EventHandler {
	return handler.Funcs{CreateFunc: func(_ context.Context, e event.CreateEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
		if s, ok := e.Object.(*v1alpha1.Session); ok && e.IsInInitialList && !rests(s) {
			enqueue(q, s)
		}
	}}
}

// concerned maps an object to the Sessions that name it in an indexed field.
// What a new process finds concerns nobody: it looks at all Sessions anyway.
func (r *Reconciler) concerned(index string) handler.EventHandler {
	all := func(ctx context.Context, o client.Object, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
		var list v1alpha1.SessionList
		if err := r.Client.List(ctx, &list, client.InNamespace(o.GetNamespace()), client.MatchingFields{index: o.GetName()}, client.UnsafeDisableDeepCopy); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Listing Sessions of a changed object")
			return
		}
		for i := range list.Items {
			enqueue(q, &list.Items[i])
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			if !e.IsInInitialList {
				all(ctx, e.Object, q)
			}
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			all(ctx, e.ObjectNew, q)
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			all(ctx, e.Object, q)
		},
	}
}
