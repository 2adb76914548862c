// Package memoryblock keeps MemoryBlocks and the blocks of Letta's agents the
// same: a Learned one follows what its agent wrote, a Pinned one is written to
// its agents and put back when they change it.
//
// A Session's publish phase makes the objects of Learned blocks, people make
// those of Pinned ones; this reconciler writes their status and is the only one
// that does. Every text is in the store, by its digest, before status names it.
//
//	            follow ◀── agent wrote ── publish
//	Learned ──▶ status ── restore ──▶ Letta
//	Pinned ───▶ Letta, every agent ──▶ status
package memoryblock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
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
	"github.com/undersong-dev/undersong/internal/outcome"
	"github.com/undersong-dev/undersong/internal/redact"
)

const (
	// interval is how often a block is compared with Letta when no session
	// says that the memory changed.
	interval = 30 * time.Minute
	// quiet is the shortest time between two writes of one block's text, to
	// status and to Letta.
	quiet = 15 * time.Second
	// maxValue bounds status.value, in characters as the API server counts.
	maxValue = 16384
	// maxBytes bounds the text that is compared.
	maxBytes = 1 << 20
)

// +kubebuilder:rbac:groups=undersong.dev,resources=memoryblocks;teammemories;sessions,verbs=get;list;watch
// +kubebuilder:rbac:groups=undersong.dev,resources=memoryblocks/status,verbs=update;patch

// Reconciler reconciles MemoryBlocks.
type Reconciler struct {
	// Client reads from the cache and writes.
	Client client.Client
	// Connect opens Letta and the store.
	Connect *connect.Opener
	// Agents is told which revision a memory has.
	Agents *connect.Agents
	// Redactor scans what an agent wrote before it is shown.
	Redactor *redact.Redactor
	// Recorder emits events.
	Recorder events.EventRecorder
	// Clock tells when a text was seen.
	Clock clock.PassiveClock
	// Share is how long what Letta said of a memory's agents is taken for true
	// for that memory's other blocks. Zero means that each block asks itself.
	Share time.Duration

	mu sync.Mutex
	// answers are what Letta said lately.
	answers answers
	// putBack says when this process put a block back, should the status have
	// failed to say so.
	putBack map[types.NamespacedName]metav1.Time
	// unsure are the digests of texts that were given to an agent, when no answer
	// came and Letta could not be asked either: what happened is said once it is
	// seen.
	unsure map[given]string

	onceRules sync.Once
	redactors *connect.Redactors
}

// rules returns the redactors of teams with rules of their own.
func (r *Reconciler) rules() *connect.Redactors {
	r.onceRules.Do(func() { r.redactors = &connect.Redactors{BuiltIn: r.Redactor, Open: r.Connect} })
	return r.redactors
}

// given is a block of an agent.
type given struct{ agent, label string }

// scope is what one reconcile knows.
type scope struct {
	block *v1alpha1.MemoryBlock
	mem   *v1alpha1.TeamMemory
	// redactor has the built-in rules and those of mem.
	redactor *redact.Redactor
	// again is when to look again after success; zero means after interval.
	again time.Duration
}

// Reconcile brings one MemoryBlock and Letta together.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	obj := &v1alpha1.MemoryBlock{}
	if err := r.Client.Get(ctx, req.NamespacedName, obj); err != nil {
		if apierrors.IsNotFound(err) {
			r.forget(req.NamespacedName)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !obj.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	before := obj.DeepCopy()
	s := &scope{block: obj}
	err := r.prepare(ctx, s)
	switch {
	case err != nil:
	case obj.Spec.Mode == v1alpha1.BlockPinned:
		err = r.pin(ctx, s)
	default:
		err = r.follow(ctx, s)
	}
	again := interval
	if s.again > 0 {
		again = s.again
	}
	w := status.Writer{Client: r.Client, Recorder: r.Recorder}
	res, _, err := w.Finish(ctx, before, obj, err, func() { obj.Status.ObservedGeneration = obj.Generation }, again)
	return res, err
}

// prepare checks that the block may be acted on, and reads its TeamMemory.
func (r *Reconciler) prepare(ctx context.Context, s *scope) error {
	b := s.block
	if want := v1alpha1.MemoryBlockName(b.Spec.MemoryRef.Name, b.Spec.Project, b.Spec.Label); b.Name != want {
		return outcome.Stallf(v1alpha1.InvalidSpecReason, "the name must be %s; delete this MemoryBlock", want)
	}
	s.mem = &v1alpha1.TeamMemory{}
	err := r.Client.Get(ctx, types.NamespacedName{Namespace: b.Namespace, Name: b.Spec.MemoryRef.Name}, s.mem)
	if apierrors.IsNotFound(err) {
		return outcome.Waitf(v1alpha1.DependencyNotReadyReason, interval, "the TeamMemory %s does not exist", b.Spec.MemoryRef.Name)
	}
	if err != nil {
		return fmt.Errorf("get TeamMemory: %w", err)
	}
	s.redactor, err = r.rules().For(ctx, s.mem)
	return err
}

// SetupWithManager registers the reconciler. The index spec.memoryRef.name of
// Sessions is the Session reconciler's.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	if r.Client == nil || r.Connect == nil || r.Agents == nil || r.Redactor == nil || r.Recorder == nil || r.Clock == nil {
		return errors.New("memoryblock: every dependency must be set")
	}
	return ctrl.NewControllerManagedBy(mgr).
		For(&v1alpha1.MemoryBlock{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.Session{}, handler.EnqueueRequestsFromMapFunc(r.blocksOf), builder.WithPredicates(predicate.Funcs{
			CreateFunc: func(event.CreateEvent) bool { return false },
			DeleteFunc: func(event.DeleteEvent) bool { return false },
			UpdateFunc: func(e event.UpdateEvent) bool { return revision(e.ObjectOld) != revision(e.ObjectNew) },
		})).
		Watches(&v1alpha1.TeamMemory{}, handler.EnqueueRequestsFromMapFunc(r.blocksOfMemory), builder.WithPredicates(predicate.GenerationChangedPredicate{}, news)).
		// A block that a project has for itself comes before the one of all
		// projects, and when it goes that one is written again.
		Watches(&v1alpha1.MemoryBlock{}, handler.EnqueueRequestsFromMapFunc(behind), builder.WithPredicates(predicate.GenerationChangedPredicate{}, news)).
		WithOptions(controller.Options{MaxConcurrentReconciles: 2, ReconciliationTimeout: time.Minute, RateLimiter: status.Backoff()}).
		Complete(r)
}

// news are events of what this process did not find when it began: all that it
// finds are looked at for themselves.
var news = predicate.Funcs{CreateFunc: func(e event.CreateEvent) bool { return !e.IsInInitialList }}

// behind maps a Pinned block of one project to that of all projects.
func behind(_ context.Context, o client.Object) []reconcile.Request {
	b, ok := o.(*v1alpha1.MemoryBlock)
	if !ok || b.Spec.Project == "" || b.Spec.Mode != v1alpha1.BlockPinned {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{
		Namespace: b.Namespace, Name: v1alpha1.MemoryBlockName(b.Spec.MemoryRef.Name, "", b.Spec.Label),
	}}}
}

// blocksOfMemory maps a TeamMemory to its blocks.
func (r *Reconciler) blocksOfMemory(ctx context.Context, o client.Object) []reconcile.Request {
	return r.list(ctx, o.GetNamespace(), func(b *v1alpha1.MemoryBlock) bool { return b.Spec.MemoryRef.Name == o.GetName() })
}

// blocksOf maps a Session to the blocks of its memory and project whose text
// is another one than the Session published, or that are not well.
func (r *Reconciler) blocksOf(ctx context.Context, o client.Object) []reconcile.Request {
	s, ok := o.(*v1alpha1.Session)
	if !ok || s.Status.SyncState == nil {
		return nil
	}
	published := map[string]string{}
	for _, b := range s.Status.SyncState.Blocks {
		published[b.Label] = b.Digest
	}
	return r.list(ctx, s.Namespace, func(b *v1alpha1.MemoryBlock) bool {
		return b.Spec.MemoryRef == s.Spec.MemoryRef && (b.Spec.Project == "" || b.Spec.Project == s.Spec.Project.Remote) &&
			(published[b.Spec.Label] != b.Status.Digest || !apimeta.IsStatusConditionTrue(b.Status.Conditions, v1alpha1.ReadyCondition))
	})
}

// list names the blocks of a namespace that fit.
func (r *Reconciler) list(ctx context.Context, namespace string, fits func(*v1alpha1.MemoryBlock) bool) []reconcile.Request {
	var list v1alpha1.MemoryBlockList
	if err := r.Client.List(ctx, &list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing MemoryBlocks of a changed object")
		return nil
	}
	var requests []reconcile.Request
	for i := range list.Items {
		if fits(&list.Items[i]) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
		}
	}
	return requests
}

func revision(o client.Object) string {
	s, ok := o.(*v1alpha1.Session)
	if !ok || s.Status.SyncState == nil {
		return ""
	}
	return s.Status.SyncState.MemoryRevision
}
