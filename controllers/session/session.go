package session

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/controllers/budget"
	"github.com/undersong-dev/undersong/controllers/connect"
	"github.com/undersong-dev/undersong/controllers/internal/status"
	"github.com/undersong-dev/undersong/internal/outcome"
	"github.com/undersong-dev/undersong/internal/redact"
	"github.com/undersong-dev/undersong/internal/segment"
)

// Indexes of the cache.
const (
	memoryIndex      = budget.MemoryIndex
	workstationIndex = "spec.writers.workstation"
	ownerIndex       = "spec.owner"
)

// idleAfter is how long a session is Active after the last segment.
const idleAfter = time.Hour

// +kubebuilder:rbac:groups=undersong.dev,resources=sessions;teammemories;workstations,verbs=get;list;watch
// +kubebuilder:rbac:groups=undersong.dev,resources=sessions/status,verbs=update;patch
// +kubebuilder:rbac:groups=undersong.dev,resources=memoryblocks,verbs=get;list;watch;create
// +kubebuilder:rbac:groups="";events.k8s.io,resources=events,verbs=create;patch

// Reconciler reconciles Sessions.
type Reconciler struct {
	// Client reads from the cache and writes.
	Client client.Client
	// Live reads from the API server, past the cache, before something is done
	// that cannot be undone.
	Live client.Reader
	// Connect opens stores and Letta back ends.
	Connect *connect.Opener
	// Agents finds and makes Letta agents.
	Agents *connect.Agents
	// Turns runs Letta turns.
	Turns *Turns
	// Budget counts what they cost.
	Budget *budget.Ledger
	// Redactor scans what the workstations scanned, once more.
	Redactor *redact.Redactor
	// Recorder emits events.
	Recorder events.EventRecorder
	// Clock tells the time.
	Clock clock.PassiveClock
	// TakeoverDelay is how long after its first reconcile, which is when it
	// leads, this process leaves deliveries alone that another one began, and
	// how long one that another begins while this one leads.
	TakeoverDelay time.Duration
	// Scrubs is where the Scrubber leaves what is to be taken out. Nil means that
	// there is none.
	Scrubs *Scrubs
	// RetryBase is the wait after a first failed turn; it doubles with each
	// further one, up to maxRetry. Zero means two seconds.
	RetryBase time.Duration
	// CompareWithin is the time, from its first reconcile on, in which this
	// process compares the Sessions that rest with their records, each at a
	// moment of its own. Zero means at once.
	CompareWithin time.Duration
	// Timeout bounds one reconcile. Zero means two minutes.
	Timeout time.Duration
	// Slice bounds the segments that one reconcile looks for in the archive
	// when it goes through all of a session. Zero means 256: at a tenth of a
	// second each they take a fifth of Timeout.
	Slice int

	begun   sync.Once
	started time.Time
	// emptied remembers which inbox slots this process has emptied.
	emptied keySet
	// memos are the batches of the deliveries under way.
	memos memos
	// trials are its first looks at what waits of each writer.
	trials trials
	// told remembers what this process has said once.
	told keySet
	// revisions are those of the records that status was built on.
	revisions revisions
	// erasures and rebuilds are what goes through the whole archive of a
	// session, a slice in each reconcile.
	erasures unfinished[erasure]
	rebuilds unfinished[rebuild]

	onceRules sync.Once
	redactors *connect.Redactors
}

// scope is what one reconcile knows.
type scope struct {
	ses *v1alpha1.Session
	key types.NamespacedName
	// mem is the Session's TeamMemory; set before the phases run.
	mem *v1alpha1.TeamMemory
	// redactor has the built-in rules and those of mem.
	redactor *redact.Redactor
	// adopted says that the status was compared with the record.
	adopted bool
	// anew says that the record is written although status says nothing new.
	anew bool
	// archive keeps the segments read in this reconcile.
	archive map[segmentID]*archived
	// held is at least the size of their lines, in bytes.
	held int
	// sliced counts what slice allowed.
	sliced int
	// kept is the size of those that were verified in it, in bytes.
	kept int
	// missing is the segment that the archive was last found to lack.
	missing *segmentID
	// after runs once the status stands in the API server, in order.
	after []func(context.Context)
}

// phase is one step of the lifecycle. When it returns nil its condition holds.
type phase struct {
	condition string
	run       func(context.Context, *scope) error
	// apart says that the phases behind it go on when it fails: they have
	// enough of what it did before.
	apart bool
}

func (r *Reconciler) phases() []phase {
	return []phase{
		// One workstation's missing segment must not keep what is verified,
		// of it and of others, from the memory.
		{v1alpha1.VerifiedCondition, r.verify, true},
		{v1alpha1.DeliveredCondition, r.deliver, false},
		{v1alpha1.PublishedCondition, r.publish, false},
	}
}

// Reconcile brings one Session one step further.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	obj := &v1alpha1.Session{}
	if err := r.Client.Get(ctx, req.NamespacedName, obj); err != nil {
		if apierrors.IsNotFound(err) {
			r.Turns.drop(req.NamespacedName)
			r.Turns.forget(req.NamespacedName)
			r.memos.drop(req.NamespacedName)
			r.erasures.drop(req.NamespacedName)
			r.rebuilds.drop(req.NamespacedName)
			return ctrl.Result{}, nil
		}
		return ctrl.Result{}, fmt.Errorf("get Session: %w", err)
	}
	defer r.Scrubs.begin()()
	before := obj.DeepCopy()
	s := &scope{ses: obj, key: req.NamespacedName, archive: map[segmentID]*archived{}}

	if !obj.DeletionTimestamp.IsZero() {
		r.Turns.drop(s.key) // its place is for others
		err := r.erase(ctx, s)
		if err != nil && !apierrors.IsConflict(err) {
			r.tellNotErased(s, err)
		}
		return ctrl.Result{}, err
	}
	r.begun.Do(func() {
		if r.started.IsZero() {
			r.started = r.Clock.Now()
		}
	})
	defer func() {
		if errors.Is(ctx.Err(), context.Canceled) { // told to stop; a reconcile that took too long goes on
			r.trials.leave(ctx, segment.TryingPrefix(s.key.Namespace, s.key.Name))
		}
	}()
	err := r.prepare(ctx, s)
	var again time.Duration
	if err == nil {
		changed, gerr := r.guard(ctx, s)
		if changed || gerr != nil {
			return ctrl.Result{RequeueAfter: time.Millisecond}, client.IgnoreNotFound(gerr)
		}
		var resting bool
		if again, resting = r.rest(ctx, s); !resting || r.Scrubs.task(s.key) != nil {
			err = r.run(ctx, s)
		}
	} else {
		r.Turns.abandon(s.key)
	}
	r.summarize(s)
	if !equality.Semantic.DeepEqual(before, obj) { // no write for it alone
		r.expire(&obj.Status)
	}

	if kerr := r.keep(ctx, s, before); kerr != nil {
		// A status may not stand before its record.
		conditions := obj.Status.Conditions
		before.Status.DeepCopyInto(&obj.Status)
		obj.Status.Conditions, s.after, err = conditions, nil, kerr
		r.Turns.abandon(s.key)
	}
	w := status.Writer{Client: r.Client, Recorder: r.Recorder}
	res, written, err := w.Finish(ctx, before, obj, err, func() { obj.Status.ObservedGeneration = obj.Generation }, r.untilIdle(obj))
	r.Turns.unused(s.key)
	if !written {
		r.Turns.abandon(s.key)
		return res, err
	}
	if s.adopted && obj.Status.SyncState != nil {
		r.revisions.set(obj.UID, obj.Status.SyncState.Record)
	}
	for _, f := range s.after {
		f(ctx)
	}
	if err != nil {
		return res, err
	}
	res.RequeueAfter = soonest(res.RequeueAfter, again)
	if left, ok := r.untilExpired(s); ok && r.compared(s.ses) {
		if left <= 0 {
			return ctrl.Result{}, r.expireSession(ctx, s)
		}
		res.RequeueAfter = soonest(res.RequeueAfter, left)
	}
	return res, nil
}

// run runs the phases in order and marks their conditions. A phase that fails
// or waits leaves those behind it Unknown, unless it stands apart.
func (r *Reconciler) run(ctx context.Context, s *scope) error {
	var first, err error
	if s.redactor, err = r.rules().For(ctx, s.mem); err != nil {
		r.Turns.abandon(s.key)
		return err
	}
	phases := r.phases()
	if err := r.adopt(ctx, s); err != nil {
		status.Mark(s.ses, phases[0].condition, err)
		for _, later := range phases[1:] {
			status.Behind(s.ses, later.condition, phases[0].condition)
		}
		return err
	}
	// One that nobody has written to is compared when somebody has.
	s.adopted = len(s.ses.Spec.Writers) > 0
	if err := r.scrub(ctx, s); err != nil {
		return err
	}
	for i, p := range phases {
		err, apart := p.run(ctx, s), p.apart
		if err == nil && p.condition == v1alpha1.DeliveredCondition {
			if err, apart = tellHeld(s), true; err == nil { // the rest goes on
				err = r.tellParked(s)
			}
		}
		status.Mark(s.ses, p.condition, err)
		if err == nil {
			continue
		}
		first = sooner(first, err)
		if apart {
			continue
		}
		for _, later := range phases[i+1:] {
			status.Behind(s.ses, later.condition, p.condition)
		}
		return first
	}
	if backlog(s.ses) {
		err := onward(s, 0, "more lines wait to be delivered")
		status.Mark(s.ses, v1alpha1.DeliveredCondition, err)
		first = sooner(first, err)
	}
	return first
}

// sooner is the first of two errors, looked at again when the second wants it
// if that is sooner.
func sooner(first, second error) error {
	if first == nil {
		return second
	}
	a, b := *outcome.Of(first), outcome.Of(second)
	switch {
	case b.Kind == outcome.Stall:
		return first
	case a.Kind == outcome.Stall, a.Kind == outcome.Wait && b.Kind == outcome.Retry:
		// Said to be failing, and not left alone yet.
		a.Kind = outcome.Retry
		a.After = b.After
		if b.Kind == outcome.Wait {
			a.After = max(b.After, time.Millisecond)
		}
	case b.Kind == outcome.Retry && a.Kind == outcome.Retry:
		a.After = min(a.After, b.After) // zero is the queue's backoff
	case b.Kind == outcome.Wait && (a.After > b.After || a.After == 0 && a.Kind == outcome.Retry):
		a.After = max(b.After, time.Millisecond)
	}
	return &a
}

// prepare checks that the Session may be acted on, and reads its TeamMemory.
func (r *Reconciler) prepare(ctx context.Context, s *scope) error {
	spec := &s.ses.Spec
	if want := v1alpha1.SessionName(spec.SessionID, spec.Owner); s.ses.Name != want {
		return outcome.Stallf(v1alpha1.InvalidSpecReason, "the name must be %s, made of sessionID and owner; delete this Session, the workstation makes it with the right name", want)
	}
	s.mem = &v1alpha1.TeamMemory{}
	err := r.Client.Get(ctx, types.NamespacedName{Namespace: s.ses.Namespace, Name: spec.MemoryRef.Name}, s.mem)
	if apierrors.IsNotFound(err) {
		return outcome.Waitf(v1alpha1.DependencyNotReadyReason, 5*time.Minute, "create the TeamMemory %s in this namespace; nothing is lost meanwhile", spec.MemoryRef.Name)
	}
	if err != nil {
		return fmt.Errorf("get TeamMemory: %w", err)
	}
	if s.ses.Status.SyncState == nil {
		s.ses.Status.SyncState = &v1alpha1.SyncState{LastProcessedIndex: -1}
	}
	return nil
}

// rules returns the redactors of teams with rules of their own.
func (r *Reconciler) rules() *connect.Redactors {
	r.onceRules.Do(func() { r.redactors = &connect.Redactors{BuiltIn: r.Redactor, Open: r.Connect} })
	return r.redactors
}

// SetupWithManager registers the reconciler, its indexes and its watches.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager) error {
	if r.Client == nil || r.Live == nil || r.Connect == nil || r.Agents == nil || r.Turns == nil || r.Budget == nil || r.Redactor == nil || r.Recorder == nil || r.Clock == nil {
		return errors.New("session: every dependency must be set")
	}
	if r.Timeout == 0 {
		r.Timeout = 2 * time.Minute
	}
	for _, rule := range r.Redactor.Rules() {
		secondPass.WithLabelValues(rule)
	}
	ix := mgr.GetFieldIndexer()
	err := errors.Join(
		ix.IndexField(ctx, &v1alpha1.Session{}, memoryIndex, func(o client.Object) []string {
			return []string{o.(*v1alpha1.Session).Spec.MemoryRef.Name} //nolint:forcetypeassert // registered for Sessions
		}),
		ix.IndexField(ctx, &v1alpha1.Session{}, workstationIndex, func(o client.Object) []string {
			var names []string
			for _, w := range o.(*v1alpha1.Session).Spec.Writers { //nolint:forcetypeassert // registered for Sessions
				names = append(names, w.Workstation)
			}
			return names
		}),
		ix.IndexField(ctx, &v1alpha1.Workstation{}, ownerIndex, func(o client.Object) []string {
			return []string{o.(*v1alpha1.Workstation).Spec.Owner} //nolint:forcetypeassert // registered for Workstations
		}),
	)
	if err != nil {
		return fmt.Errorf("index: %w", err)
	}
	if err := mgr.Add(manager.RunnableFunc(r.leaveNoMark)); err != nil {
		return fmt.Errorf("add what clears marks: %w", err)
	}
	return ctrl.NewControllerManagedBy(mgr).
		// What a new process finds has low priority there.
		For(&v1alpha1.Session{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.Session{}, first(), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		// Its counters move every minute, and are no new generation.
		Watches(&v1alpha1.TeamMemory{}, r.concerned(memoryIndex), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		// A Workstation's grants change often and matter to no Session; that
		// it came or went does.
		Watches(&v1alpha1.Workstation{}, r.concerned(workstationIndex), builder.WithPredicates(predicate.Funcs{
			UpdateFunc: func(event.UpdateEvent) bool { return false },
		})).
		WatchesRawSource(source.Channel(r.Turns.Events, &handler.EnqueueRequestForObject{})).
		WatchesRawSource(source.Channel(r.scrubEvents(), &handler.EnqueueRequestForObject{})).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: 8,
			ReconciliationTimeout:   r.Timeout,
			RateLimiter:             status.Backoff(),
		}).
		Complete(r)
}

// leaveNoMark takes the marks of unfinished looks away when the process is told
// to stop, of those that no reconcile is at.
func (r *Reconciler) leaveNoMark(ctx context.Context) error {
	<-ctx.Done()
	r.trials.leave(ctx, "")
	return nil
}

// scrubEvents wake Sessions for the Scrubber; none without one.
func (r *Reconciler) scrubEvents() chan event.GenericEvent {
	if r.Scrubs == nil {
		return make(chan event.GenericEvent)
	}
	return r.Scrubs.Events
}
