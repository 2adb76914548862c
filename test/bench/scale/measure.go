package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/test/stack"
)

// settleFor is how long a controller that is at rest is watched.
const settleFor = 20 * time.Second

// restarts starts the controller and the bare program in turns. Each time a
// delta waits that came while nobody was there.
func (b *bench) restarts(ctx context.Context) error {
	c := b.company
	var bares, picked []time.Duration
	for i := range b.rounds {
		d, err := bare(ctx, b.kubeconfig)
		if err != nil {
			return err
		}
		bares = append(bares, d)
		k := c.active[i]
		if err := c.say(ctx, k, i); err != nil {
			return err
		}
		turns := c.stack.Letta.Turns()
		p, took, err := b.restart(ctx, k)
		if err != nil {
			return err
		}
		picked = append(picked, took)
		if err := p.quiet(ctx); err != nil {
			return err
		}
		b.say("round %d: a bare cache %.1f s, the delta %.1f s, RSS %.0f MB", i+1, d.Seconds(), took.Seconds(), rss(p.PID()))
		if i == b.rounds-1 {
			if err := b.atRest(ctx, p, c.stack.Letta.Turns()-turns); err != nil {
				return err
			}
		}
		b.seen(p)
		if err := p.Stop(); err != nil {
			return err
		}
	}
	was, is := median(bares), median(picked)
	b.rows = append(b.rows, row{
		what: fmt.Sprintf("a delta that came while the controller was away, from the start of the process (median of %d)", b.rounds),
		bar:  "≤ a bare cache sync + 1 s", value: fmt.Sprintf("%.1f s (%.2f ×)", is.Seconds(), is.Seconds()/was.Seconds()), bare: fmt.Sprintf("%.1f s", was.Seconds()),
		ok: is <= was+b.second(),
	})
	return nil
}

// restart starts the controller and waits until it says something about a
// session.
func (b *bench) restart(ctx context.Context, k *talk) (*running, time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	ses := &v1alpha1.Session{}
	if err := b.company.stack.Admin.Get(ctx, k.key, ses); err != nil {
		return nil, 0, err
	}
	events, err := b.company.stack.Admin.Watch(ctx, &v1alpha1.SessionList{}, client.InNamespace(k.key.Namespace), client.MatchingFields{"metadata.name": k.key.Name})
	if err != nil {
		return nil, 0, err
	}
	defer events.Stop()
	p, begun, err := b.company.start(context.WithoutCancel(ctx))
	if err != nil {
		return nil, 0, err
	}
	for {
		select {
		case <-ctx.Done():
			return nil, 0, errors.Join(fmt.Errorf("wait for a word about %s: %w", k.key.Name, ctx.Err()), p.Stop())
		case <-p.Exited():
			return nil, 0, errors.New("the controller ended")
		case e := <-events.ResultChan():
			if is, ok := e.Object.(*v1alpha1.Session); ok && is.ResourceVersion != ses.ResourceVersion {
				return p, now().Sub(begun), nil
			}
		}
	}
}

// atRest counts what a start with one delta cost, and what a controller at
// rest costs.
func (b *bench) atRest(ctx context.Context, p *running, turns int) error {
	var errs []error
	count := func(name string, labels ...string) int {
		n, err := p.count(ctx, name, labels...)
		errs = append(errs, err)
		return int(n)
	}
	// What the one delta brought is two status writes.
	written := count("undersong_api_writes_total", `kind="Session"`)
	gets := count("rest_client_requests_total", `method="GET"`)
	reconciled := count("controller_runtime_reconcile_total", `controller="session"`)
	errs = append(errs, p.profile(ctx, b.profiles, "heap-start.pprof", "heap?gc=0"), p.profile(ctx, b.profiles, "allocs-start.pprof", "allocs"))
	b.rows = append(b.rows,
		row{
			what: "writes to Sessions after a start with one delta", bar: "≤ 3", value: fmt.Sprint(written), bare: "–", ok: written <= 3 && turns <= 1,
		},
		row{
			what: "reads from the API server until all was looked at", bar: "≤ 200, and none for each Session", value: fmt.Sprint(gets), bare: "–", ok: gets <= 200,
		})
	b.notes = append(b.notes, fmt.Sprintf("The start looked at %d Sessions and used %.0f MB; at rest the process has %.0f MB.", reconciled, peak(p.PID()), rss(p.PID())))
	before := count("undersong_api_writes_total", `kind="Session"`)
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(settleFor): //nolint:forbidigo // nothing is expected to happen
	}
	idle := count("undersong_api_writes_total", `kind="Session"`) - before
	again := count("controller_runtime_reconcile_total", `controller="session"`) - reconciled
	b.rows = append(b.rows, row{
		what: fmt.Sprintf("writes to Sessions, and looks at them, in %.0f s at rest", settleFor.Seconds()), bar: "0 and 0", value: fmt.Sprintf("%d and %d", idle, again), bare: "–", ok: idle == 0 && again == 0,
	})
	b.say("at rest: RSS %.0f MB, peak %.0f MB, %d reads, %d writes, %d looks", rss(p.PID()), peak(p.PID()), gets, written, reconciled)
	return errors.Join(errs...)
}

// load gives every active session a delta, and compares the writes per second
// until all are caught up with those of a loop that only writes.
func (b *bench) load(ctx context.Context) error {
	c := b.company
	b.say("giving every active session a delta")
	for range deltas {
		err := c.each(ctx, len(c.active), func(ctx context.Context, i int) error { return c.say(ctx, c.active[i], i) })
		if err != nil {
			return err
		}
	}
	w, err := c.watch(ctx)
	if err != nil {
		return err
	}
	before := cpu()
	p, _, err := c.start(ctx)
	if err != nil {
		return err
	}
	if b.profiles != "" {
		go func() { _ = p.profile(ctx, b.profiles, "cpu-load.pprof", "profile?seconds=15") }() // what it says is in the file
	}
	if err := c.caughtUp(ctx, p, w); err != nil {
		return err
	}
	b.seen(p)
	if err := errors.Join(p.profile(ctx, b.profiles, "heap-load.pprof", "heap"), p.profile(ctx, b.profiles, "allocs-load.pprof", "allocs")); err != nil {
		return err
	}
	n, took := w.stop()
	cost := spent(before, n)
	rate := float64(n) / took.Seconds()
	b.rows = append(b.rows, row{
		what: fmt.Sprintf("status writes per second while %d sessions have a delta, with all that a delta is (%.1f writes for each)", len(c.active), float64(n)/float64(deltas*len(c.active))), bar: "none",
		value: fmt.Sprintf("%.0f/s (%.0f %%)", rate, 100*rate/b.loop), bare: fmt.Sprintf("%.0f/s", b.loop), ok: true,
	})
	b.notes = append(b.notes, fmt.Sprintf("CPU time for one status write: in the bare loop %s; with a delta %s.", b.loopCost, cost))
	b.say("%d writes in %.1f s: %.0f per second, RSS %.0f MB; for one: %s", n, took.Seconds(), rate, peak(p.PID()), cost)
	if err := b.fanOut(ctx, p); err != nil {
		return err
	}
	return p.Stop()
}

// fanOut changes what every memory says about titles, so that each Session with
// a title is one status write, and compares the writes per second with those of
// a loop that only writes.
func (b *bench) fanOut(ctx context.Context, p *running) error {
	c := b.company
	w, err := c.watch(ctx)
	if err != nil {
		return err
	}
	for _, t := range c.teams {
		mem := &v1alpha1.TeamMemory{}
		if err := c.stack.Admin.Get(ctx, client.ObjectKey{Namespace: t.Namespace, Name: t.Memory}, mem); err != nil {
			return err
		}
		mem.Spec.Capture.Titles = v1alpha1.TitlesHide
		if err := c.stack.Admin.Update(ctx, mem); err != nil {
			return err
		}
	}
	err = p.await(ctx, func() error {
		if !w.begun() {
			return errors.New("no Session's title was hidden")
		}
		return nil
	})
	if err != nil {
		return err
	}
	before := cpu()
	stack.Eventually(ctx, loopFor, func() error { return errors.New("") }) //nolint:errcheck // it is the time that is waited for
	b.seen(p)
	n, took := w.stop()
	rate := float64(n) / took.Seconds()
	b.rows = append(b.rows, row{
		what: "status writes per second when every Session needs one, because its memory's spec was changed", bar: "≥ 60 % of a bare loop's",
		value: fmt.Sprintf("%.0f/s (%.0f %%)", rate, 100*rate/b.loop), bare: fmt.Sprintf("%.0f/s", b.loop), ok: rate >= 0.6*b.loop,
	})
	b.say("%d writes in %.1f s because of a changed spec: %.0f per second; for one: %s", n, took.Seconds(), rate, spent(before, n))
	return nil
}

// second is what a second of a bar is here: on a machine that others use, the
// few requests that a start takes beside filling its cache take longer.
func (b *bench) second() time.Duration {
	const requests = 16
	latency := controllerWorkers / b.loop * float64(time.Second)
	return max(time.Second, time.Duration(requests*latency))
}

// from asks for a watch from a resource version on.
func from(version string) *metav1.ListOptions { return &metav1.ListOptions{ResourceVersion: version} }

// deltas is how many each active session gets.
const deltas = 1

// watching counts status writes, and notes which sessions are caught up.
type watching struct {
	stops []func()

	mu          sync.Mutex
	n           int
	first, last time.Time
	behind      map[types.NamespacedName]bool
}

// stop ends it, and says how many writes there were from the first to the last.
func (w *watching) stop() (int, time.Duration) {
	for _, stop := range w.stops {
		stop()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.n, w.last.Sub(w.first)
}

// begun reports whether there was a write.
func (w *watching) begun() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.n > 0
}

// left is how many of the active sessions are still behind.
func (w *watching) left() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.behind)
}

func (w *watching) saw(s *v1alpha1.Session) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last = now()
	if w.n++; w.n == 1 {
		w.first = w.last
	}
	if stack.CaughtUp(s) {
		delete(w.behind, client.ObjectKeyFromObject(s))
	}
}

// watch counts the status writes from now on.
func (c *company) watch(ctx context.Context) (*watching, error) {
	w := &watching{behind: map[types.NamespacedName]bool{}}
	for _, k := range c.active {
		w.behind[k.key] = true
	}
	for _, t := range c.teams {
		var list v1alpha1.SessionList
		if err := c.stack.Admin.List(ctx, &list, client.InNamespace(t.Namespace), client.Limit(1)); err != nil {
			return nil, err
		}
		events, err := c.stack.Admin.Watch(ctx, &v1alpha1.SessionList{}, client.InNamespace(t.Namespace), &client.ListOptions{Raw: from(list.ResourceVersion)})
		if err != nil {
			return nil, err
		}
		w.stops = append(w.stops, events.Stop)
		go func() {
			for e := range events.ResultChan() {
				if s, ok := e.Object.(*v1alpha1.Session); ok && e.Type == watch.Modified {
					w.saw(s)
				}
			}
		}()
	}
	return w, nil
}
