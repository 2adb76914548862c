// Package workstation answers a Workstation's requests for grants.
//
// A grant is a set of slots of the workstation's own inbox. Each slot is an
// URL that takes one object under one exact key, for at most an hour. The list
// is sealed to the workstation's key, so that whoever reads the status of
// another person's Workstation can do nothing with it. No storage key ever
// leaves the cluster.
package workstation

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/controllers/connect"
	"github.com/undersong-dev/undersong/controllers/internal/status"
	"github.com/undersong-dev/undersong/internal/crash"
	"github.com/undersong-dev/undersong/internal/outcome"
	"github.com/undersong-dev/undersong/internal/seal"
	"github.com/undersong-dev/undersong/internal/segment"
	"github.com/undersong-dev/undersong/internal/store"
)

const (
	// slotsPerGrant is how many slots a grant has.
	slotsPerGrant = 32
	// grantLife is how long a slot's URL works.
	grantLife = time.Hour
	// grantInterval is the shortest time between two grants of one
	// workstation. It bounds what a flood of requests can collect.
	grantInterval = 2 * time.Second
	// maxInboxObjects and maxInboxBytes bound what may wait in an inbox: twice
	// what an honest daemon lets wait, times eight sessions.
	maxInboxObjects = 1024
	maxInboxBytes   = 2 << 30
	// waitForInbox is how long to wait for an inbox to be worked off.
	waitForInbox = 30 * time.Second
)

// +kubebuilder:rbac:groups=undersong.dev,resources=workstations;teammemories,verbs=get;list;watch
// +kubebuilder:rbac:groups=undersong.dev,resources=workstations/status,verbs=update;patch

// Reconciler answers grant requests.
type Reconciler struct {
	// Client reads from the cache and writes.
	Client client.Client
	// Connect opens the memory's store.
	Connect *connect.Opener
	// Recorder emits events.
	Recorder events.EventRecorder
	// Clock tells when a grant expires.
	Clock clock.PassiveClock
	// Live reads the admission policies from the API server, past the cache.
	Live client.Reader

	mu sync.Mutex
	// guardedAt is when all policies were last seen to stand.
	guardedAt time.Time
}

// Reconcile answers the newest request of one Workstation.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	obj := &v1alpha1.Workstation{}
	if err := r.Client.Get(ctx, req.NamespacedName, obj); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !obj.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	before := obj.DeepCopy()
	err := r.grant(ctx, obj)
	status.Mark(obj, v1alpha1.GrantedCondition, err)
	w := status.Writer{Client: r.Client, Recorder: r.Recorder}
	res, _, err := w.Finish(ctx, before, obj, err, func() { obj.Status.ObservedGeneration = obj.Generation }, 0)
	return res, err
}

// grant makes the newest grant that was asked for. When it returns nil no
// request is open.
func (r *Reconciler) grant(ctx context.Context, ws *v1alpha1.Workstation) error {
	have := ws.Status.Grant
	if ws.Spec.GrantRequest == 0 || (have != nil && have.Request >= ws.Spec.GrantRequest) {
		return nil
	}
	mem := &v1alpha1.TeamMemory{}
	err := r.Client.Get(ctx, types.NamespacedName{Namespace: ws.Namespace, Name: ws.Spec.MemoryRef.Name}, mem)
	if apierrors.IsNotFound(err) {
		return outcome.RetryAfterf(v1alpha1.DependencyNotReadyReason, 30*time.Second, "create the TeamMemory %s in this namespace", ws.Spec.MemoryRef.Name)
	}
	if err != nil {
		return fmt.Errorf("get TeamMemory: %w", err)
	}
	if have != nil {
		issued := have.ExpiresAt.Add(-grantLife)
		if wait := grantInterval - r.Clock.Since(issued); wait > 0 {
			return outcome.Waitf(v1alpha1.ProgressingReason, min(wait, grantInterval), "the next grant is made in a moment")
		}
	}
	if err := r.guard(ctx); err != nil {
		return err
	}
	bucket, err := r.Connect.Store(ctx, mem)
	if err != nil {
		return err
	}
	last, err := r.inspect(ctx, mem, bucket, ws)
	if err != nil {
		return err
	}
	if have != nil {
		last = max(last, have.ToSlot)
	}
	made, err := r.sign(ctx, mem, bucket, ws, last+1)
	if err != nil {
		return err
	}
	crash.Point(crash.ControllerGrantSigned)
	ws.Status.Grant = made
	return nil
}

// inspect refuses a grant while too much waits in the inbox, and returns the
// last slot that is in use there: a restored cluster may have forgotten grants
// that the store still holds objects of.
func (r *Reconciler) inspect(ctx context.Context, mem *v1alpha1.TeamMemory, bucket *store.Bucket, ws *v1alpha1.Workstation) (int64, error) {
	var last, objects, bytes int64
	for info, err := range bucket.List(ctx, segment.InboxPrefix(string(ws.UID))) {
		if err != nil {
			return 0, r.Connect.StoreError(mem, err)
		}
		objects++
		bytes += info.Size
		if n, err := strconv.ParseInt(info.Key[strings.LastIndex(info.Key, "/")+1:], 10, 64); err == nil {
			last = max(last, n)
		}
		if objects > maxInboxObjects || bytes > maxInboxBytes {
			return 0, outcome.RetryAfterf(v1alpha1.InboxFullReason, waitForInbox, "more waits in this workstation's inbox than the controller has verified; see the Verified condition of its Sessions")
		}
	}
	return last, nil
}

// sign makes a grant of the slots from first on.
func (r *Reconciler) sign(ctx context.Context, mem *v1alpha1.TeamMemory, bucket *store.Bucket, ws *v1alpha1.Workstation, first int64) (*v1alpha1.Grant, error) {
	expires := r.Clock.Now().Add(grantLife).Truncate(time.Second)
	g := seal.Grant{ExpiresAt: expires}
	for n := first; n < first+slotsPerGrant; n++ {
		url, headers, err := bucket.PresignPut(ctx, segment.InboxKey(string(ws.UID), n), grantLife)
		if err != nil {
			return nil, r.Connect.StoreError(mem, err)
		}
		g.Slots = append(g.Slots, seal.Slot{N: n, URL: url, Headers: headers})
	}
	sealed, err := seal.SealGrant(g, ws.Spec.PublicKey)
	if err != nil {
		return nil, outcome.Stallf(v1alpha1.InvalidSpecReason, "spec.publicKey is not a key that grants can be sealed to; run undersong init again on that workstation")
	}
	return &v1alpha1.Grant{
		Request: ws.Spec.GrantRequest, Sealed: sealed, FromSlot: first, ToSlot: first + slotsPerGrant - 1, ExpiresAt: metav1.NewTime(expires),
	}, nil
}

// waiting maps a TeamMemory to its Workstations with an open request.
func (r *Reconciler) waiting(ctx context.Context, o client.Object) []reconcile.Request {
	var list v1alpha1.WorkstationList
	if err := r.Client.List(ctx, &list, client.InNamespace(o.GetNamespace()), client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing Workstations of a changed TeamMemory")
		return nil
	}
	var requests []reconcile.Request
	for i := range list.Items {
		ws := &list.Items[i]
		open := ws.Status.Grant == nil || ws.Status.Grant.Request < ws.Spec.GrantRequest
		if open && ws.Spec.MemoryRef.Name == o.GetName() {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(ws)})
		}
	}
	return requests
}

// SetupWithManager registers the reconciler.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	if r.Client == nil || r.Connect == nil || r.Recorder == nil || r.Clock == nil || r.Live == nil {
		return errors.New("workstation: every dependency must be set")
	}
	return ctrl.NewControllerManagedBy(mgr).
		For(&v1alpha1.Workstation{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		// Whoever waits for a grant because of the memory's spec sees its correction.
		Watches(&v1alpha1.TeamMemory{}, handler.EnqueueRequestsFromMapFunc(r.waiting), builder.WithPredicates(predicate.GenerationChangedPredicate{}, predicate.Funcs{
			CreateFunc: func(e event.CreateEvent) bool { return !e.IsInInitialList }, // each Workstation is looked at then
		})).
		WithOptions(controller.Options{MaxConcurrentReconciles: 4, ReconciliationTimeout: time.Minute, RateLimiter: status.Backoff()}).
		Complete(r)
}
