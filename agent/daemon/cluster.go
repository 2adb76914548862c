package daemon

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/undersong-dev/undersong/agent/internal/kube"
	"github.com/undersong-dev/undersong/agent/spool"
	"github.com/undersong-dev/undersong/agent/status"
	"github.com/undersong-dev/undersong/agent/upload"
)

// Parts that the cluster's side tells trouble of.
const (
	partKubeconfig = "kubeconfig"
	partClock      = "clock"
)

// maxSkew is how far the clocks may differ before the user is told.
const maxSkew = 5 * time.Minute

// errOwner: the kubeconfig is now somebody else's.
var errOwner = errors.New("the kubeconfig now belongs to another user than at init: nothing is uploaded; log in as before, or run undersong init again")

// cluster speaks to the cluster until ctx is done. It starts anew when the
// kubeconfig changes, as a new login changes it.
func (d *daemon) cluster(ctx context.Context) {
	for failures := 0; ctx.Err() == nil; {
		stamp := stampOf(d.config.Kubeconfig)
		err := d.connected(ctx, stamp)
		d.connection(false)
		if err == nil {
			failures = 0
			continue
		}
		if ctx.Err() != nil {
			return
		}
		failures++
		d.log.Error("The cluster cannot be used", "error", d.explain(err))
		d.waitFor(ctx, d.Backoff.After(failures), stamp)
	}
}

// connection notes, and lets status.json say, whether there is one.
func (d *daemon) connection(online bool) {
	d.online.Store(online)
	poke(d.shot)
}

// waitFor waits, less long when the kubeconfig changes.
func (d *daemon) waitFor(ctx context.Context, wait time.Duration, stamp fileStamp) {
	until := d.Clock.Now().Add(wait)
	for ctx.Err() == nil && stampOf(d.config.Kubeconfig) == stamp {
		left := until.Sub(d.Clock.Now())
		if left <= 0 {
			return
		}
		timer := d.Clock.NewTimer(min(left, d.Watch))
		select {
		case <-ctx.Done():
		case <-timer.C():
		}
		timer.Stop()
	}
}

// explain tells the user of an error of connected, and returns the stable text.
func (d *daemon) explain(err error) string {
	switch {
	case errors.Is(err, ErrKubeconfig), errors.Is(err, ErrOtherServer), errors.Is(err, errOwner):
		d.trouble.Set(partKubeconfig, err.Error())
		return err.Error()
	}
	d.trouble.Set(partKubeconfig, "")
	upload.Report(d.trouble, upload.PartAPI, err)
	return upload.Explain(err)
}

// connected makes a client and works with it until ctx is done or the
// kubeconfig changes.
func (d *daemon) connected(ctx context.Context, stamp fileStamp) error {
	config, err := pinned(d.config)
	if err != nil {
		return err
	}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return skewed{clock: d.Clock, next: next, skew: &d.skew}
	})
	if d.WrapAPI != nil {
		config.Wrap(d.WrapAPI)
	}
	c, err := kube.New(config)
	if err != nil {
		return err
	}
	owner, err := WhoAmI(ctx, c)
	if err != nil {
		return err
	}
	if owner != d.config.Owner {
		return errOwner
	}
	d.trouble.Set(partKubeconfig, "")
	upload.Report(d.trouble, upload.PartAPI, nil)
	d.connection(true)

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	desk, stage, watcher := d.stages(c)
	d.desk.Store(desk)
	d.stage.Store(stage)
	var group sync.WaitGroup
	group.Go(func() { desk.Run(ctx) })
	group.Go(func() { stage.Run(ctx) })
	group.Go(func() { watcher.Run(ctx) })
	group.Go(func() { d.forgetter(c).Run(ctx) })
	d.lookAfter(ctx, stamp)
	cancel()
	group.Wait()
	d.desk.Store(nil)
	d.stage.Store(nil)
	return nil
}

// lookAfter returns when ctx is done or the kubeconfig changed. Meanwhile it
// compares clocks.
func (d *daemon) lookAfter(ctx context.Context, stamp fileStamp) {
	ticker := d.Clock.NewTicker(d.Watch)
	defer ticker.Stop()
	for {
		message := ""
		if time.Duration(d.skew.Load()).Abs() > maxSkew {
			message = "this computer's clock and the cluster's differ by more than five minutes: set it right; nothing is lost meanwhile"
		}
		d.trouble.Set(partClock, message)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
			if stampOf(d.config.Kubeconfig) != stamp {
				d.log.Info("The kubeconfig changed; connecting anew")
				return
			}
		}
	}
}

// stages makes what works with a client.
func (d *daemon) stages(c *kube.Client) (*upload.Desk, *upload.Stage, *status.Watcher) {
	desk := &upload.Desk{
		Client: c, Registry: d.registry, Grants: d.grants,
		Namespace: d.config.Namespace, Owner: d.config.Owner, Memory: d.config.Memory,
		PublicKey: d.identity.Recipient(), Version: d.Version,
		Clock: d.Clock, Timing: *d.Reporting, Backoff: *d.Backoff, Trouble: d.trouble, Log: d.log,
		Backlog:   func() (int64, time.Time) { return backlog(d.spool) },
		LastError: d.trouble.last,
	}
	desk.Init()
	stage := &upload.Stage{
		Spool: d.spool, Grants: d.grants, Desk: desk,
		Publisher: &upload.Publisher{
			Client: c, Redactor: d.redactor, Namespace: d.config.Namespace, Owner: d.config.Owner,
			Memory: d.config.Memory, Workstation: d.registry.Name(),
			HideTitles: func() bool { return d.view.Hears().HideTitles },
			Expired: func(state *spool.State) bool {
				return d.view.Expired(state, d.Clock.Now().Add(time.Duration(d.skew.Load())))
			},
		},
		HTTP: upload.NewHTTPClient(d.Transport), Clock: d.Clock, Backoff: *d.Backoff, Trouble: d.trouble, Log: d.log,
		Done: func() { poke(d.shot) },
	}
	stage.Init()
	watcher := &status.Watcher{
		Client: c, Home: d.Home, Namespace: d.config.Namespace, Owner: d.config.Owner, Memory: d.config.Memory,
		Workstation: d.registry.Name(), Identity: d.identity,
		Spool: d.spool, Grants: d.grants, Desk: desk, View: d.view, Projects: &d.projects, Clock: d.Clock, Backoff: *d.Backoff,
		Trouble: d.trouble, Log: d.log,
		Skew:    func() time.Duration { return time.Duration(d.skew.Load()) },
		Changed: d.wake,
		Heard: func() {
			poke(d.room)
			poke(d.shot)
		},
	}
	return desk, stage, watcher
}

// forgetter makes what asks for what a command could not ask for.
func (d *daemon) forgetter(c *kube.Client) *upload.Forgetter {
	return &upload.Forgetter{
		Client: c, Home: d.Home, Namespace: d.config.Namespace, Addressee: upload.Addressee(d.config),
		Every: d.Watch, Clock: d.Clock, Backoff: *d.Backoff, Trouble: d.trouble, Log: d.log,
	}
}
