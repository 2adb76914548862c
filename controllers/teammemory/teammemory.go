// Package teammemory watches over a TeamMemory: that its store and its Letta
// back end answer, which agents it has, and how many of its Sessions are
// behind.
package teammemory

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
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
	"github.com/undersong-dev/undersong/controllers/budget"
	"github.com/undersong-dev/undersong/controllers/connect"
	"github.com/undersong-dev/undersong/controllers/internal/status"
	"github.com/undersong-dev/undersong/internal/letta"
	"github.com/undersong-dev/undersong/internal/outcome"
	"github.com/undersong-dev/undersong/internal/segment"
)

const (
	// interval is how often a healthy memory is looked at; its counters are
	// renewed then and not oftener.
	interval = time.Minute
	// maxAgents bounds status.agents.
	maxAgents = 256
)

// +kubebuilder:rbac:groups=undersong.dev,resources=teammemories;sessions,verbs=get;list;watch
// +kubebuilder:rbac:groups=undersong.dev,resources=teammemories/status,verbs=update;patch

// Reconciler reconciles TeamMemories.
type Reconciler struct {
	// Client reads from the cache and writes.
	Client client.Client
	// Connect opens the store and Letta.
	Connect *connect.Opener
	// Budget counts what turns cost.
	Budget *budget.Ledger
	// Recorder emits events.
	Recorder events.EventRecorder
	// Clock tells when the counters are renewed.
	Clock clock.PassiveClock

	// rules sees whether the team's own redaction rules can be used.
	rules connect.Redactors

	mu      sync.Mutex
	counted map[types.UID]time.Time
}

// Reconcile looks at one TeamMemory.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	obj := &v1alpha1.TeamMemory{}
	if err := r.Client.Get(ctx, req.NamespacedName, obj); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !obj.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	before := obj.DeepCopy()
	obj.Status.SegmentFormat = segment.Format
	err := r.look(ctx, obj)
	w := status.Writer{Client: r.Client, Recorder: r.Recorder}
	res, written, err := w.Finish(ctx, before, obj, err, func() { obj.Status.ObservedGeneration = obj.Generation }, interval)
	if written {
		r.spent(before, obj)
	}
	return res, err
}

// look runs the checks. When it returns nil the memory can be used.
func (r *Reconciler) look(ctx context.Context, m *v1alpha1.TeamMemory) error {
	if _, err := r.rules.For(ctx, m); err != nil {
		return err
	}
	if r.due(m) {
		if err := r.count(ctx, m); err != nil {
			return err
		}
	}
	return errors.Join(r.store(ctx, m), r.letta(ctx, m))
}

// store checks that the bucket answers, and notes the key that a scrub needs.
func (r *Reconciler) store(ctx context.Context, m *v1alpha1.TeamMemory) error {
	bucket, err := r.Connect.Store(ctx, m)
	if err != nil {
		return err
	}
	if err := bucket.Check(ctx); err != nil {
		return r.Connect.StoreError(m, err)
	}
	identity, err := r.Connect.ScrubIdentity(ctx, m, true)
	if err != nil {
		return err
	}
	if key := identity.Recipient(); key != m.Status.ScrubKey {
		if m.Status.ScrubKey != "" {
			m.Status.Scrubs = nil // each is looked at again: it is sealed to a key that is gone
		}
		m.Status.ScrubKey = key
	}
	return nil
}

// letta checks that the key works, by asking for the memory's agents, and
// notes them.
func (r *Reconciler) letta(ctx context.Context, m *v1alpha1.TeamMemory) error {
	c, err := r.Connect.Letta(ctx, m)
	if err != nil {
		return err
	}
	if id := m.Spec.Agent.ID; id != "" {
		_, err := c.Agent(ctx, id)
		if errors.Is(err, letta.ErrNotFound) {
			return outcome.RetryAfterf(v1alpha1.AgentNotFoundReason, interval, "Letta has no agent %s; correct spec.agent.id", id)
		}
		if err != nil {
			return r.Connect.LettaError(m, err)
		}
		m.Status.Agents = []v1alpha1.ProjectAgent{{AgentID: id}}
		return nil
	}
	found, err := c.AgentsByTag(ctx, []string{connect.MemoryTag(m)})
	if err != nil {
		return r.Connect.LettaError(m, err)
	}
	agents := []v1alpha1.ProjectAgent{}
	for _, a := range found {
		project, ok := connect.ProjectOf(a)
		if ok && !slices.ContainsFunc(agents, func(p v1alpha1.ProjectAgent) bool { return p.Project == project }) {
			agents = append(agents, v1alpha1.ProjectAgent{Project: project, AgentID: a.ID})
		}
	}
	if n := len(agents); n > maxAgents {
		agents = agents[n-maxAgents:]
	}
	slices.SortFunc(agents, func(a, b v1alpha1.ProjectAgent) int { return strings.Compare(a.Project, b.Project) })
	m.Status.Agents = agents
	return nil
}

// due reports whether the counters are to be renewed: once in an interval,
// however often the memory is looked at because something fails.
func (r *Reconciler) due(m *v1alpha1.TeamMemory) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.Clock.Now()
	at, ok := r.counted[m.UID]
	// A healthy memory is looked at once in an interval, to the moment. After
	// a spec was changed people look at the numbers.
	if since := now.Sub(at); ok && since >= 0 && since < interval*9/10 && m.Status.ObservedGeneration == m.Generation {
		return false
	}
	if r.counted == nil {
		r.counted = map[types.UID]time.Time{}
	}
	r.counted[m.UID] = now
	return true
}

// count renews the counters from the cache.
func (r *Reconciler) count(ctx context.Context, m *v1alpha1.TeamMemory) error {
	var list v1alpha1.SessionList
	if err := r.Client.List(ctx, &list, client.InNamespace(m.Namespace), client.MatchingFields{budget.MemoryIndex: m.Name}, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list Sessions: %w", err)
	}
	m.Status.Sessions, m.Status.Lagging = int64(len(list.Items)), 0
	for i := range list.Items {
		if s := &list.Items[i]; s.Spec.Lines > s.Status.Lines+s.Status.LostLines {
			m.Status.Lagging++
		}
	}
	today, err := r.Budget.Today(ctx, m)
	if err != nil {
		return err
	}
	if today == nil && m.Status.Usage != nil {
		today = m.Status.Usage.DeepCopy()
		if today.Day != budget.Day(r.Clock.Now()) {
			today.Percent = 0 // a new day
		}
	}
	m.Status.Usage = today
	return nil
}

// spent emits one event when the day's tokens have come to their end.
func (r *Reconciler) spent(before, m *v1alpha1.TeamMemory) {
	is := m.Status.Usage
	if is == nil || is.Percent < 100 {
		return
	}
	if was := before.Status.Usage; was != nil && was.Day == is.Day && was.Percent >= 100 {
		return
	}
	r.Recorder.Eventf(m, nil, corev1.EventTypeWarning, v1alpha1.BudgetExhaustedReason, "Reconcile",
		"the %d tokens of %s are spent; deliveries go on the next day at 00:00 UTC, or when spec.budget.dailyTokens is raised", budget.Limit(m), is.Day)
}

// SetupWithManager registers the reconciler. The index spec.memoryRef.name of
// Sessions is the Session reconciler's.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	if r.Client == nil || r.Connect == nil || r.Budget == nil || r.Recorder == nil || r.Clock == nil {
		return errors.New("teammemory: every dependency must be set")
	}
	return ctrl.NewControllerManagedBy(mgr).
		For(&v1alpha1.TeamMemory{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		// A Session with another agent than before means that one was made.
		Watches(&v1alpha1.Session{}, handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
			s := o.(*v1alpha1.Session) //nolint:forcetypeassert // registered for Sessions
			return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: s.Namespace, Name: s.Spec.MemoryRef.Name}}}
		}), builder.WithPredicates(predicate.Funcs{
			CreateFunc: func(event.CreateEvent) bool { return false },
			DeleteFunc: func(event.DeleteEvent) bool { return false },
			UpdateFunc: func(e event.UpdateEvent) bool { return agentID(e.ObjectOld) != agentID(e.ObjectNew) },
		})).
		WithOptions(controller.Options{ReconciliationTimeout: time.Minute, RateLimiter: status.Backoff()}).
		Complete(r)
}

func agentID(o client.Object) string {
	s, ok := o.(*v1alpha1.Session)
	if !ok || s.Status.SyncState == nil {
		return ""
	}
	return s.Status.SyncState.AgentID
}
