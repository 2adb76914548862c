package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"

	"github.com/undersong-dev/undersong/agent/internal/durable"
	"github.com/undersong-dev/undersong/agent/note"
	"github.com/undersong-dev/undersong/agent/read"
	"github.com/undersong-dev/undersong/agent/spool"
	"github.com/undersong-dev/undersong/agent/status"
	"github.com/undersong-dev/undersong/agent/upload"
	"github.com/undersong-dev/undersong/internal/redact"
	"github.com/undersong-dev/undersong/internal/seal"
)

const (
	identityFile = "identity"
	maxIdentity  = 4 << 10

	// SessionsDir is the spool's folder in the state directory.
	SessionsDir = "sessions"

	// defaultIdle is after how long without work the daemon leaves.
	defaultIdle = 30 * time.Minute
)

// Options says how a daemon runs. The zero value of each is the real thing.
type Options struct {
	Home    string // the state directory
	Version string // of this program
	Stay    bool   // do not leave when there is nothing to do

	Clock     clock.WithTicker
	Timing    *Timing
	Reporting *upload.ReportTiming
	Backoff   *upload.Backoff

	// Watch is how often the kubeconfig is looked at for a new login.
	Watch time.Duration

	// WrapAPI and Transport let a test stand between the daemon and the
	// cluster, and the daemon and the store.
	WrapAPI   func(http.RoundTripper) http.RoundTripper
	Transport http.RoundTripper
}

func (o *Options) fill() {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Timing == nil {
		o.Timing = &DefaultTiming
	}
	if o.Reporting == nil {
		o.Reporting = &upload.DefaultReportTiming
	}
	if o.Backoff == nil {
		o.Backoff = &upload.DefaultBackoff
	}
	if o.Watch == 0 {
		o.Watch = 10 * time.Second
	}
	if o.Transport == nil {
		o.Transport = http.DefaultTransport
	}
}

// daemon is one running process.
type daemon struct {
	Options
	config   note.Config
	log      *slog.Logger
	identity seal.Identity
	registry *upload.Registry
	redactor *redact.Redactor
	spool    *spool.Spool
	view     *status.View
	projects status.Projects
	grants   *upload.Grants
	trouble  *troubles
	started  time.Time
	skew     atomic.Int64 // of the cluster's clock before ours, in nanoseconds
	online   atomic.Bool

	stage atomic.Pointer[upload.Stage] // while there is a client
	desk  atomic.Pointer[upload.Desk]
	room  chan struct{}
	shot  chan struct{} // status.json is to be written
}

// Run is the daemon. It returns nil when ctx is done, when there was nothing
// to do for a while, or when the user switched undersong off; ErrRunning when
// another daemon has the state directory.
func Run(ctx context.Context, o Options) error {
	o.fill()
	for {
		if err := runOnce(ctx, o); !errors.Is(err, errAnew) {
			return err
		}
	}
}

// runOnce is Run with the configuration as it is now; errAnew when that became
// another one.
func runOnce(ctx context.Context, o Options) error {
	config, err := note.LoadConfig(o.Home)
	if err != nil {
		return err
	}
	if config.Off || config.ConsentedAt.IsZero() {
		return nil
	}
	started := o.Clock.Now().UTC()
	held, err := lock(ctx, o.Home, Info{PID: os.Getpid(), StartedAt: started, Version: o.Version})
	if err != nil {
		return err
	}
	defer func() { _ = held.Unlock() }() // the system does it otherwise
	log, file, err := openLog(o.Home)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }() // nothing is left to be written

	d := &daemon{Options: o, config: config, log: log, started: started, room: make(chan struct{}, 1), shot: make(chan struct{}, 1)}
	d.trouble = newTroubles(o.Clock, d.changed)
	if err := d.open(); err != nil {
		d.trouble.Set("start", err.Error())
		d.writeSnapshot(false)
		d.log.Error("The daemon cannot start", "error", err)
		return err
	}
	return d.work(ctx)
}

// open reads what the state directory holds.
func (d *daemon) open() error {
	var err error
	if d.identity, err = ReadIdentity(d.Home); err != nil {
		return err
	}
	if d.registry, err = upload.OpenRegistry(d.Home); err != nil {
		return err
	}
	if d.redactor, err = redact.New(); err != nil {
		return fmt.Errorf("make redactor: %w", err)
	}
	d.spool, err = spool.Open(spool.Options{
		Dir: filepath.Join(d.Home, SessionsDir), Owner: d.config.Owner, Workstation: d.registry.Name(),
	})
	if err != nil {
		return err
	}
	d.view = status.OpenView(d.Home)
	d.grants = upload.NewGrants(d.identity, d.config.StoreHost, d.registry)
	return nil
}

// work runs until there is an end.
func (d *daemon) work(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	loop, err := d.newLoop(ctx)
	if err != nil {
		d.trouble.Set("start", err.Error())
		d.writeSnapshot(false)
		return err
	}
	d.log.Info("Started", "version", d.Version, "pid", os.Getpid())
	var group sync.WaitGroup
	group.Go(func() { d.cluster(ctx) })
	group.Go(func() { d.snapshots(ctx) })
	end := loop.run(ctx)
	cancel()
	group.Wait()
	d.writeSnapshot(false)
	_ = durable.Remove(filepath.Join(d.Home, infoFile)) // it would be stale; nobody trusts it without the lock
	d.log.Info("Stopped", "why", end)
	if errors.Is(end, errAnew) {
		return end
	}
	return nil
}

// newLoop makes the loop.
func (d *daemon) newLoop(ctx context.Context) (*loop, error) {
	told, err := watchNotes(ctx, d.Home, d.log)
	if err != nil {
		return nil, err
	}
	baseline, err := readBaseline(d.Home)
	if err != nil {
		return nil, err
	}
	settings := &settings{home: d.Home, config: d.config}
	consent := newConsent(settings, d.view)
	return &loop{
		home: d.Home, config: d.config, settings: settings, clock: d.Clock, timing: *d.Timing, idle: d.idle(),
		spool: d.spool, view: d.view, baseline: baseline, trouble: d.trouble, log: d.log,
		redactor: func(places map[string]spool.Folder) (*redact.Redactor, error) {
			return consent.begin(d.redactor, places)
		},
		sight:  consent.look,
		reader: &read.Reader{Redactor: d.redactor, Clock: d.Clock, Decide: consent.decide, Policy: consent.policy},
		place:  consent.place, projects: &d.projects, wrong: d.trouble.all,
		notes: told, room: d.room, spooled: d.wake,
	}, nil
}

// idle is after how long without work the daemon leaves; 0 means never.
func (d *daemon) idle() time.Duration {
	switch after := d.config.IdleExitSeconds; {
	case d.Stay, after < 0:
		return 0
	case after == 0:
		return defaultIdle
	default:
		return time.Duration(after) * time.Second
	}
}

// wake lets whoever speaks to the cluster look again.
func (d *daemon) wake() {
	if stage := d.stage.Load(); stage != nil {
		stage.Wake()
	}
	d.changed()
}

// changed lets status.json be written and the desk look whether to report.
func (d *daemon) changed() {
	if desk := d.desk.Load(); desk != nil {
		desk.Wake()
	}
	poke(d.shot)
}

// ReadIdentity reads the key that grants and whispers are sealed to.
func ReadIdentity(home string) (seal.Identity, error) {
	data, err := durable.ReadFile(filepath.Join(home, identityFile), maxIdentity)
	if errors.Is(err, os.ErrNotExist) {
		return seal.Identity{}, upload.ErrNotRegistered
	}
	if err != nil {
		return seal.Identity{}, fmt.Errorf("read %s: %w", identityFile, err)
	}
	identity, err := seal.ParseIdentity(strings.TrimSpace(string(data)))
	if err != nil {
		return seal.Identity{}, fmt.Errorf("read %s: it is damaged: run undersong init again", identityFile)
	}
	return identity, nil
}

// NewIdentity makes a key and keeps it in the state directory, in place of any
// other.
func NewIdentity(home string) (seal.Identity, error) {
	identity, err := seal.NewIdentity()
	if err != nil {
		return seal.Identity{}, err
	}
	if err := durable.WriteFile(filepath.Join(home, identityFile), []byte(identity.String()+"\n")); err != nil {
		return seal.Identity{}, fmt.Errorf("keep %s: %w", identityFile, err)
	}
	return identity, nil
}
