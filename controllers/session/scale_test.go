//go:build envtest

package session

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/controllers/budget"
	"github.com/undersong-dev/undersong/controllers/connect"
	"github.com/undersong-dev/undersong/controllers/memoryblock"
	"github.com/undersong-dev/undersong/controllers/teammemory"
	"github.com/undersong-dev/undersong/controllers/workstation"
	"github.com/undersong-dev/undersong/internal/segment"
)

// tally counts requests by what they are.
type tally struct {
	base http.RoundTripper

	mu sync.Mutex
	// calls are requests to the API server by verb; others is what else there
	// was.
	calls map[string]int
}

// RoundTrip implements http.RoundTripper.
func (t *tally) RoundTrip(r *http.Request) (*http.Response, error) {
	t.mu.Lock()
	if t.calls == nil {
		t.calls = map[string]int{}
	}
	t.calls[r.Method]++
	t.mu.Unlock()
	return t.base.RoundTrip(r)
}

func (t *tally) of(methods ...string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for _, m := range methods {
		n += t.calls[m]
	}
	return n
}

var (
	reads  = []string{http.MethodGet, http.MethodHead}
	alters = []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}
)

// process is a manager with all reconcilers, as the controller runs them.
type process struct {
	w *world
	// api and outside count requests to the API server, and to the store and
	// Letta.
	api, outside *tally
	client       client.Client
	stop         func()
	sessions     int
	blocks       int
}

// run starts a process that serves the world's namespace.
func (w *world) run(compareWithin time.Duration) *process {
	w.t.Helper()
	ctx := w.t.Context()
	cfg, err := cluster.Controller(ctx)
	w.must(err)
	p := &process{w: w, api: &tally{}, outside: &tally{base: http.DefaultTransport}, sessions: looks("session"), blocks: looks("memoryblock")}
	scheme := runtime.NewScheme()
	w.must(clientgoscheme.AddToScheme(scheme))
	w.must(v1alpha1.AddToScheme(scheme))
	// A mapper made without the count: discovery is no call of ours.
	plain, err := cluster.Client(cluster.Admin())
	w.must(err)
	cfg.WrapTransport = func(rt http.RoundTripper) http.RoundTripper {
		p.api.base = rt
		return p.api
	}
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
		Cache:          cache.Options{DefaultNamespaces: map[string]cache.Config{w.namespace: {}}, DefaultTransform: cache.TransformStripManagedFields()},
		MapperProvider: func(*rest.Config, *http.Client) (apimeta.RESTMapper, error) { return plain.RESTMapper(), nil },
		Controller:     config.Controller{SkipNameValidation: new(true)},
	})
	w.must(err)
	p.client = mgr.GetClient()
	c, opener, turns := clock.RealClock{}, connect.New(mgr.GetAPIReader(), p.outside, clock.RealClock{}), NewTurns()
	agents, tokens, recorder := &connect.Agents{}, &budget.Ledger{Reader: mgr.GetClient(), Clock: c}, events.NewFakeRecorder(4096)
	w.must(mgr.Add(turns))
	w.must((&Reconciler{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Connect: opener, Agents: agents, Turns: turns, Budget: tokens,
		Redactor: w.r.Redactor, Recorder: recorder, Clock: c, CompareWithin: compareWithin,
	}).SetupWithManager(ctx, mgr))
	w.must((&workstation.Reconciler{Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Connect: opener, Recorder: recorder, Clock: c}).SetupWithManager(mgr))
	w.must((&teammemory.Reconciler{Client: mgr.GetClient(), Connect: opener, Budget: tokens, Recorder: recorder, Clock: c}).SetupWithManager(mgr))
	w.must((&memoryblock.Reconciler{Client: mgr.GetClient(), Connect: opener, Agents: agents, Redactor: w.r.Redactor, Recorder: recorder, Clock: c, Share: time.Minute}).SetupWithManager(mgr))
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(run) }()
	p.stop = sync.OnceFunc(func() {
		stop()
		if err := <-ended; err != nil {
			w.t.Error(err)
		}
	})
	w.t.Cleanup(p.stop)
	return p
}

// looks is how often a controller looked at an object, in this test binary.
func looks(controller string) int {
	families, err := metrics.Registry.Gather()
	if err != nil {
		return -1
	}
	n := 0
	for _, f := range families {
		if f.GetName() != "controller_runtime_reconcile_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "controller" && l.GetValue() == controller {
					n += int(m.GetCounter().GetValue())
				}
			}
		}
	}
	return n
}

// busy reports whether a Session waits to be looked at, or is looked at now.
func busy() bool {
	families, err := metrics.Registry.Gather()
	if err != nil {
		return true
	}
	known := false
	for _, f := range families {
		if f.GetName() != "workqueue_depth" && f.GetName() != "controller_runtime_active_workers" {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() != "controller" || l.GetValue() != "session" {
					continue
				}
				known = known || f.GetName() == "workqueue_depth"
				if m.GetGauge().GetValue() > 0 {
					return true
				}
			}
		}
	}
	return !known
}

// looked is how many Sessions and MemoryBlocks the process looked at.
func (p *process) looked() (sessions, blocks int) {
	return looks("session") - p.sessions, looks("memoryblock") - p.blocks
}

// eventually waits until something holds.
func (w *world) eventually(what string, holds func(context.Context) bool) {
	w.t.Helper()
	err := wait.PollUntilContextTimeout(w.t.Context(), 20*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) { return holds(ctx), nil })
	if err != nil {
		w.t.Fatalf("%s did not come: %v", what, err)
	}
}

// crowd makes n Sessions that rest, after the one that settled.
func (w *world) crowd(n int) {
	w.t.Helper()
	ctx := w.t.Context()
	model := w.settleDown()
	for range n {
		id := uuid.NewString()
		ses := &v1alpha1.Session{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: v1alpha1.SessionName(id, owner)}, Spec: *model.Spec.DeepCopy()}
		ses.Spec.SessionID = id
		w.must(w.user.Create(ctx, ses, client.FieldOwner("undersong-create")))
		before := ses.DeepCopy()
		ses.Status = *model.Status.DeepCopy()
		ses.Status.ObservedGeneration = ses.Generation
		w.must(w.r.Client.Status().Patch(ctx, ses, client.MergeFrom(before)))
	}
}

// never is no time within a test.
const never = 10_000 * time.Hour

// TestSessionsThatRestCostNothing starts processes beside few and beside many
// Sessions that rest.
func TestSessionsThatRestCostNothing(t *testing.T) {
	w := newWorld(t, nil)
	w.story()
	start := func(n int, compareWithin time.Duration) (reads_, alters_, outside int) {
		t.Helper()
		p := w.run(compareWithin)
		w.eventually(fmt.Sprintf("a look at %d Sessions", n), func(context.Context) bool { s, b := p.looked(); return s >= n && b >= 5 })
		// Another controller counts them. Stopped before, it would leave that to
		// the next process, for which it would be a write.
		w.eventually("the number of Sessions", func(ctx context.Context) bool {
			mem := &v1alpha1.TeamMemory{}
			return w.admin.Get(ctx, types.NamespacedName{Namespace: w.namespace, Name: "team"}, mem) == nil && mem.Status.Sessions == int64(n)
		})
		// Nor is a Session to be left to it: one that was written is looked at twice.
		idle := 0
		w.eventually("an empty queue", func(context.Context) bool {
			idle++
			if busy() {
				idle = 0
			}
			return idle == 10
		})
		p.stop()
		return p.api.of(reads...), p.api.of(alters...), p.outside.of(append(reads, alters...)...)
	}
	w.crowd(20)
	few := [3]int{}
	few[0], _, few[2] = start(21, never) // renews the counters
	w.crowd(180)
	_, _, _ = start(201, never) // renews the counters
	many := [3]int{}
	many[0], many[1], many[2] = start(201, never)
	t.Logf("21 Sessions: %d reads, %d requests to store and Letta; 201 Sessions: %d and %d", few[0], few[2], many[0], many[2])
	if many[0] > few[0]+15 {
		t.Errorf("a start beside 201 Sessions reads the API server %d times, beside 21 %d times; want no more for more Sessions", many[0], few[0])
	}
	if many[1] != 0 {
		t.Errorf("a start beside 201 Sessions that rest wrote %d times, want never", many[1])
	}
	if many[2] > few[2]+15 {
		t.Errorf("a start beside 201 Sessions asks store and Letta %d times, beside 21 %d times; want no more for more Sessions", many[2], few[2])
	}
	// What is put off is done: the records are read, once for each.
	if _, _, outside := start(201, 0); outside < 201 {
		t.Errorf("with all records compared at once the store was asked %d times, want once for each of 201 Sessions", outside)
	}
}

// TestACounterThatMovesWakesNoSession moves what moves often, and then what
// must wake the Sessions.
func TestACounterThatMovesWakesNoSession(t *testing.T) {
	const n = 200
	w := newWorld(t, nil)
	w.story()
	w.crowd(n - 1)
	p := w.run(never)
	ctx := t.Context()
	w.eventually("a look at all Sessions", func(context.Context) bool { s, b := p.looked(); return s >= n && b >= 5 })
	sessions, blocks := p.looked()
	if sessions != n {
		t.Errorf("a start looked %d times at %d Sessions, want once at each", sessions, n)
	}
	version := func(obj client.Object) int {
		n, err := strconv.Atoi(obj.GetResourceVersion()) // a real API server's are numbers
		w.must(err)
		return n
	}
	arrived := func(obj client.Object) {
		t.Helper()
		seen, _ := obj.DeepCopyObject().(client.Object)
		w.eventually("the cache", func(ctx context.Context) bool {
			return p.client.Get(ctx, client.ObjectKeyFromObject(obj), seen) == nil && version(seen) >= version(obj)
		})
	}
	for i := range 3 {
		mem := &v1alpha1.TeamMemory{}
		w.must(w.admin.Get(ctx, types.NamespacedName{Namespace: w.namespace, Name: "team"}, mem))
		mem.Status.Lagging = int64(100 + i)
		w.must(w.r.Client.Status().Update(ctx, mem))
		arrived(mem)
		ws := &v1alpha1.Workstation{}
		w.must(w.user.Get(ctx, types.NamespacedName{Namespace: w.namespace, Name: "ws-a"}, ws))
		ws.Spec.Report = &v1alpha1.WorkstationReport{LastSeen: metav1.Now(), BacklogSegments: int64(10 + i)}
		w.must(w.user.Update(ctx, ws))
		arrived(ws)
		block := &v1alpha1.MemoryBlock{}
		w.must(w.admin.Get(ctx, types.NamespacedName{Namespace: w.namespace, Name: v1alpha1.MemoryBlockName("team", remote, "brief")}, block))
		block.Status.LastSession = fmt.Sprintf("another-%d", i)
		w.must(w.r.Client.Status().Update(ctx, block))
		arrived(block)
	}
	// One that has something to do is looked at, and so are all when their
	// memory's spec changes: what came before would be counted with it.
	w.change(func(m *v1alpha1.TeamMemory) { m.Spec.Capture.Titles = v1alpha1.TitlesHide })
	w.eventually("a look at all Sessions again", func(context.Context) bool { s, _ := p.looked(); return s >= 2*n })
	again, more := p.looked()
	if again != 2*n {
		t.Errorf("%d looks at Sessions, want %d: one for each of %d at the start, and one for the memory's spec", again, 2*n, n)
	}
	if more > 2*blocks+5 { // a memory's spec concerns its blocks, too
		t.Errorf("%d looks at MemoryBlocks after %d at the start, want no more than one for each for the memory's spec", more, blocks)
	}
}

func TestAStoreThatIsDownMakesNoRestingSessionUnwell(t *testing.T) {
	w := newWorld(t, nil)
	w.story()
	s := w.settleDown()
	w.restart()
	w.change(func(m *v1alpha1.TeamMemory) { m.Spec.Store.Bucket = "no-such-bucket" })
	w.quiet("a Session that rests, without its bucket")
	if res, err := w.reconcile(); err != nil || res.RequeueAfter > compareAgain {
		t.Errorf("it is looked at again in %s, %v; want within %s", res.RequeueAfter, err, compareAgain)
	}
	w.change(func(m *v1alpha1.TeamMemory) { m.Spec.Store.Bucket = w.namespace })
	_, _ = w.reconcile() // compares it
	if !w.r.compared(s) {
		t.Error("with the bucket back the record was not read")
	}
}

func TestEachSessionIsComparedAtAMomentOfItsOwn(t *testing.T) {
	w := newWorld(t, nil)
	w.story()
	s := w.settleDown()
	w.restart()
	w.r.CompareWithin = time.Hour
	w.quiet("a Session that rests")
	res, err := w.reconcile()
	if err != nil || res.RequeueAfter <= 0 || res.RequeueAfter > time.Hour || w.r.compared(s) {
		t.Fatalf("a Session that rests is looked at again in %s, %v, compared: %v; want within an hour, and not yet", res.RequeueAfter, err, w.r.compared(s))
	}
	// Until then nothing is built on it: the record may be ahead of a cluster that
	// was restored, and would be written over.
	key := segment.SessionKey(w.namespace, owner, s.Name)
	before, err := w.bucket.Get(t.Context(), key, maxRecord)
	w.must(err)
	w.change(func(m *v1alpha1.TeamMemory) { m.Spec.Capture.Titles = v1alpha1.TitlesHide })
	_, _ = w.reconcile()
	if w.get().Status.Title != "" || w.r.compared(s) {
		t.Fatalf("the title is %q, compared: %v; want it hidden, and nothing compared", w.get().Status.Title, w.r.compared(s))
	}
	after, err := w.bucket.Get(t.Context(), key, maxRecord)
	w.must(err)
	if string(before) != string(after) {
		t.Error("a record was written for a status that nobody compared with it")
	}
	// What the archive has that status does not is not waited for.
	a := w.writer("ws-a")
	a.segment(userLine("u9", "More words."))
	a.apply()
	_, _ = w.reconcile()
	if !w.r.compared(s) {
		t.Error("a Session with something to do was built on without its record")
	}
}
