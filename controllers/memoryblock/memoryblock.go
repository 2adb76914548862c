// Package memoryblock shows in MemoryBlocks what the agents wrote.
//
// A Session's publish phase makes the objects; this reconciler fills their
// status and is the only one that writes it.
package memoryblock

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

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
	"github.com/undersong-dev/undersong/controllers/internal/text"
	"github.com/undersong-dev/undersong/internal/letta"
	"github.com/undersong-dev/undersong/internal/outcome"
	"github.com/undersong-dev/undersong/internal/redact"
)

const (
	// interval is how often a block is compared with Letta when no session
	// says that the memory changed.
	interval = 30 * time.Minute
	// quiet is the shortest time between two writes of one block's text.
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
	// Connect opens Letta.
	Connect *connect.Opener
	// Redactor scans what an agent wrote before it is shown.
	Redactor *redact.Redactor
	// Recorder emits events.
	Recorder events.EventRecorder
	// Clock tells when a text was seen.
	Clock clock.PassiveClock
}

// Reconcile compares one MemoryBlock with the agent's.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	obj := &v1alpha1.MemoryBlock{}
	if err := r.Client.Get(ctx, req.NamespacedName, obj); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !obj.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	before := obj.DeepCopy()
	err := r.mirror(ctx, obj)
	w := status.Writer{Client: r.Client, Recorder: r.Recorder}
	res, _, err := w.Finish(ctx, before, obj, err, func() { obj.Status.ObservedGeneration = obj.Generation }, interval)
	return res, err
}

// mirror brings the agent's text into status. When it returns nil status shows
// what the agent has.
func (r *Reconciler) mirror(ctx context.Context, b *v1alpha1.MemoryBlock) error {
	if want := v1alpha1.MemoryBlockName(b.Spec.MemoryRef.Name, b.Spec.Project, b.Spec.Label); b.Name != want {
		return outcome.Stallf(v1alpha1.InvalidSpecReason, "the name must be %s; delete this MemoryBlock", want)
	}
	mem := &v1alpha1.TeamMemory{}
	err := r.Client.Get(ctx, types.NamespacedName{Namespace: b.Namespace, Name: b.Spec.MemoryRef.Name}, mem)
	if apierrors.IsNotFound(err) {
		return outcome.Waitf(v1alpha1.DependencyNotReadyReason, interval, "the TeamMemory %s does not exist", b.Spec.MemoryRef.Name)
	}
	if err != nil {
		return fmt.Errorf("get TeamMemory: %w", err)
	}
	sessions, err := r.sessions(ctx, mem, b)
	if err != nil {
		return err
	}
	agent := newest(sessions, func(*v1alpha1.SyncState) bool { return true })
	if agent == nil {
		return outcome.Waitf(v1alpha1.ProgressingReason, interval, "no session of this project has an agent yet")
	}
	c, err := r.Connect.Letta(ctx, mem)
	if err != nil {
		return err
	}
	memory, err := c.Memory(ctx, agent.Status.SyncState.AgentID)
	if errors.Is(err, letta.ErrNotFound) {
		return outcome.Waitf(v1alpha1.AgentNotFoundReason, interval, "Letta no longer has the agent; a new one is made with the next words of a session")
	}
	if err != nil {
		return r.Connect.LettaError(mem, err)
	}
	return r.show(b, memory, sessions)
}

// show writes the text into the object's status, if it is another one.
func (r *Reconciler) show(b *v1alpha1.MemoryBlock, memory letta.Memory, sessions []v1alpha1.Session) error {
	found, _ := memory.Block(b.Spec.Label) // a block that is gone is empty
	clean, _ := r.Redactor.Text(found.Value)
	value := text.Plain(clean, maxBytes)
	sum := sha256.Sum256([]byte(value))
	digest := hex.EncodeToString(sum[:])
	st := &b.Status
	if st.Digest == digest {
		return nil
	}
	now := r.Clock.Now()
	if st.UpdatedAt != nil {
		if wait := quiet - now.Sub(st.UpdatedAt.Time); wait > 0 {
			return outcome.Waitf(v1alpha1.ProgressingReason, min(wait, quiet), "the newest text is shown within %s", quiet)
		}
	}
	at := metav1.NewTime(now.Truncate(time.Second))
	st.Value, st.Digest, st.Bytes, st.Revision, st.UpdatedAt = cut(value), digest, int64(len(value)), memory.Revision, &at
	st.LastSession = ""
	if s := newest(sessions, func(y *v1alpha1.SyncState) bool { return y.MemoryRevision == memory.Revision }); s != nil {
		st.LastSession = s.Name
	}
	return nil
}

// sessions are those whose agent keeps the block. What a memory's scope makes
// of a project is asked again each time: under another scope than before, a
// block of the whole team must not show one project's memory.
func (r *Reconciler) sessions(ctx context.Context, mem *v1alpha1.TeamMemory, b *v1alpha1.MemoryBlock) ([]v1alpha1.Session, error) {
	var list v1alpha1.SessionList
	if err := r.Client.List(ctx, &list, client.InNamespace(b.Namespace), client.MatchingFields{"spec.memoryRef.name": b.Spec.MemoryRef.Name}); err != nil {
		return nil, fmt.Errorf("list Sessions: %w", err)
	}
	var of []v1alpha1.Session
	for _, s := range list.Items {
		if s.Status.SyncState != nil && s.Status.SyncState.AgentID != "" && connect.Project(mem, s.Spec.Project.Remote) == b.Spec.Project {
			of = append(of, s)
		}
	}
	return of, nil
}

// newest is the session that was active last among those that fit.
func newest(sessions []v1alpha1.Session, fits func(*v1alpha1.SyncState) bool) *v1alpha1.Session {
	var best *v1alpha1.Session
	for i := range sessions {
		s := &sessions[i]
		if fits(s.Status.SyncState) && (best == nil || best.Status.LastActivityTime.Before(s.Status.LastActivityTime)) {
			best = s
		}
	}
	return best
}

// cut bounds a text to maxValue characters, of which none takes more than one
// place as the API server counts.
func cut(s string) string {
	if utf8.RuneCountInString(s) <= maxValue {
		return s
	}
	return string([]rune(s)[:maxValue])
}

// SetupWithManager registers the reconciler. The index spec.memoryRef.name of
// Sessions is the Session reconciler's.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	if r.Client == nil || r.Connect == nil || r.Redactor == nil || r.Recorder == nil || r.Clock == nil {
		return errors.New("memoryblock: every dependency must be set")
	}
	return ctrl.NewControllerManagedBy(mgr).
		For(&v1alpha1.MemoryBlock{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.Session{}, handler.EnqueueRequestsFromMapFunc(r.blocksOf), builder.WithPredicates(predicate.Funcs{
			CreateFunc: func(event.CreateEvent) bool { return false },
			DeleteFunc: func(event.DeleteEvent) bool { return false },
			UpdateFunc: func(e event.UpdateEvent) bool { return revision(e.ObjectOld) != revision(e.ObjectNew) },
		})).
		Watches(&v1alpha1.TeamMemory{}, handler.EnqueueRequestsFromMapFunc(r.blocksOfMemory), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WithOptions(controller.Options{MaxConcurrentReconciles: 2, ReconciliationTimeout: time.Minute, RateLimiter: status.Backoff()}).
		Complete(r)
}

// blocksOfMemory maps a TeamMemory to its blocks.
func (r *Reconciler) blocksOfMemory(ctx context.Context, o client.Object) []reconcile.Request {
	return r.list(ctx, o.GetNamespace(), func(b *v1alpha1.MemoryBlock) bool { return b.Spec.MemoryRef.Name == o.GetName() })
}

// blocksOf maps a Session to the blocks of its memory and project.
func (r *Reconciler) blocksOf(ctx context.Context, o client.Object) []reconcile.Request {
	s, ok := o.(*v1alpha1.Session)
	if !ok {
		return nil
	}
	return r.list(ctx, s.Namespace, func(b *v1alpha1.MemoryBlock) bool {
		return b.Spec.MemoryRef == s.Spec.MemoryRef && (b.Spec.Project == "" || b.Spec.Project == s.Spec.Project.Remote)
	})
}

// list names the blocks of a namespace that fit.
func (r *Reconciler) list(ctx context.Context, namespace string, fits func(*v1alpha1.MemoryBlock) bool) []reconcile.Request {
	var list v1alpha1.MemoryBlockList
	if err := r.Client.List(ctx, &list, client.InNamespace(namespace)); err != nil {
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
