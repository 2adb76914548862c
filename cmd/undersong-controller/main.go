// Command undersong-controller turns the sessions that workstations upload
// into a team's memory. It runs in the cluster, once; a second copy waits for
// the lease.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/controllers/budget"
	"github.com/undersong-dev/undersong/controllers/connect"
	"github.com/undersong-dev/undersong/controllers/lag"
	"github.com/undersong-dev/undersong/controllers/memoryblock"
	"github.com/undersong-dev/undersong/controllers/session"
	"github.com/undersong-dev/undersong/controllers/teammemory"
	"github.com/undersong-dev/undersong/controllers/workstation"
	"github.com/undersong-dev/undersong/controllers/writes"
	"github.com/undersong-dev/undersong/internal/redact"
)

// version is set by the linker.
var version = "dev"

// answersFresh is how long an answer of Letta about a memory's agents serves all
// its blocks.
const answersFresh = 10 * time.Second

// leaseName is the Lease that the active copy holds.
const leaseName = "undersong-controller"

func main() {
	if err := run(ctrl.SetupSignalHandler(), os.Args[1:]); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return
		}
		fmt.Fprintln(os.Stderr, "undersong-controller:", err)
		os.Exit(1)
	}
}

// leader holds the settings of leader election.
type leader struct {
	elect                       bool
	namespace                   string
	lease, deadline, retryEvery time.Duration
}

func (l *leader) bindFlags(fs *flag.FlagSet) {
	fs.BoolVar(&l.elect, "leader-elect", true, "hold a Lease, so that one copy is active at a time")
	fs.StringVar(&l.namespace, "leader-elect-namespace", "", "namespace of the Lease; empty means the pod's own")
	fs.DurationVar(&l.lease, "leader-elect-lease-duration", 15*time.Second, "how long a lease is respected after its last renewal")
	fs.DurationVar(&l.deadline, "leader-elect-renew-deadline", 10*time.Second, "how long to try to renew before giving up")
	fs.DurationVar(&l.retryEvery, "leader-elect-retry-period", 2*time.Second, "how often to try")
}

func (l *leader) validate() error {
	if l.elect && (l.lease <= l.deadline || l.deadline <= l.retryEvery) {
		return fmt.Errorf("--leader-elect-lease-duration %s, --leader-elect-renew-deadline %s, --leader-elect-retry-period %s: each must be longer than the next", l.lease, l.deadline, l.retryEvery)
	}
	return nil
}

// takeover is how long another copy may still believe that it leads.
func (l *leader) takeover() time.Duration {
	if !l.elect {
		return 0
	}
	return l.lease
}

// settings are what the command line says.
type settings struct {
	leader      leader
	metricsAddr string
	// secureMetrics serves metrics by https, to those who may get /metrics.
	secureMetrics bool
	probeAddr     string
	profileAddr   string
	namespaces    string
	grace         time.Duration
	compareWithin time.Duration
	memoryLimit   int64
	showVersion   bool
	zap           zap.Options
}

func (s *settings) bindFlags(fs *flag.FlagSet) {
	s.leader.bindFlags(fs)
	fs.StringVar(&s.metricsAddr, "metrics-bind-address", ":8080", "where metrics are served; 0 serves none")
	fs.BoolVar(&s.secureMetrics, "metrics-secure", false, "serve metrics by https, to those whom RBAC lets get the non-resource URL /metrics")
	fs.StringVar(&s.probeAddr, "health-probe-bind-address", ":8081", "where /healthz and /readyz are served; 0 serves none")
	fs.StringVar(&s.profileAddr, "pprof-bind-address", "0", "where Go profiles are served, to whoever can connect; 0 serves none")
	fs.StringVar(&s.namespaces, "namespaces", "", "the namespaces to work in, with commas between them; empty means all")
	fs.DurationVar(&s.compareWithin, "compare-within", time.Hour, "how long a new process takes to compare the Sessions that rest with the archive's records; 0, which is right after etcd was restored, compares each at once")
	fs.Int64Var(&s.memoryLimit, "memory-limit", 0, "the container's memory limit in bytes; Go collects harder before nine tenths of it are in use, so that the process is slow for a while and not killed; 0 means none")
	fs.BoolVar(&s.showVersion, "version", false, "print the version and exit")
	fs.DurationVar(&s.grace, "shutdown-grace", 25*time.Second, "how long running turns are waited for at the end; keep it below the pod's own grace period")
	s.zap.BindFlags(fs)
	if kubeconfig := flag.Lookup("kubeconfig"); kubeconfig != nil {
		fs.Var(kubeconfig.Value, kubeconfig.Name, kubeconfig.Usage)
	}
}

// only are the namespaces to work in; none means all.
func (s *settings) only() []string {
	var names []string
	for name := range strings.SplitSeq(s.namespaces, ",") {
		if name = strings.TrimSpace(name); name != "" {
			names = append(names, name)
		}
	}
	return names
}

func (s *settings) validate() error {
	for _, name := range s.only() {
		if len(validation.IsDNS1123Label(name)) > 0 {
			return fmt.Errorf("--namespaces: %q is no namespace; give names with commas between them", name)
		}
	}
	if s.memoryLimit < 0 {
		return fmt.Errorf("--memory-limit %d: must not be negative", s.memoryLimit)
	}
	if s.compareWithin < 0 {
		return fmt.Errorf("--compare-within %s: must not be negative", s.compareWithin)
	}
	return s.leader.validate()
}

// manager holds the settings for the manager.
func (s *settings) manager(scheme *runtime.Scheme) ctrl.Options {
	opts := ctrl.Options{
		Scheme:                        scheme,
		Metrics:                       metricsserver.Options{BindAddress: s.metricsAddr, SecureServing: s.secureMetrics},
		HealthProbeBindAddress:        s.probeAddr,
		PprofBindAddress:              s.profileAddr,
		LeaderElection:                s.leader.elect,
		LeaderElectionID:              leaseName,
		LeaderElectionNamespace:       s.leader.namespace,
		LeaseDuration:                 &s.leader.lease,
		RenewDeadline:                 &s.leader.deadline,
		RetryPeriod:                   &s.leader.retryEvery,
		LeaderElectionReleaseOnCancel: true,
		GracefulShutdownTimeout:       &s.grace,
		// Nobody reads managedFields, and they are two fifths of a Session.
		Cache: cache.Options{DefaultTransform: cache.TransformStripManagedFields()},
	}
	if s.secureMetrics {
		opts.Metrics.FilterProvider = filters.WithAuthenticationAndAuthorization
	}
	for _, name := range s.only() {
		if opts.Cache.DefaultNamespaces == nil {
			opts.Cache.DefaultNamespaces = map[string]cache.Config{}
		}
		opts.Cache.DefaultNamespaces[name] = cache.Config{}
	}
	return opts
}

func run(ctx context.Context, args []string) error {
	if len(args) > 0 && args[0] == "rebuild" {
		return rebuild(ctx, args[1:])
	}
	if len(args) > 0 && args[0] == "check" {
		return runCheck(ctx, args[1:], os.Stdout)
	}
	fs := flag.NewFlagSet("undersong-controller", flag.ContinueOnError)
	var s settings
	s.bindFlags(fs)
	if err := fs.Parse(args); err != nil {
		return err
	}
	if s.showVersion {
		_, err := fmt.Fprintln(os.Stdout, version)
		return err
	}
	if fs.NArg() > 0 {
		return fmt.Errorf("%q: unknown argument; the subcommands are check and rebuild", fs.Arg(0))
	}
	if err := s.validate(); err != nil {
		return err
	}
	ctrl.SetLogger(zap.New(zap.UseFlagOptions(&s.zap)))
	if s.memoryLimit > 0 {
		// The rest is for what Go does not count: its own code, stacks of the kernel.
		debug.SetMemoryLimit(s.memoryLimit / 10 * 9)
	}

	cfg, err := apiServer()
	if err != nil {
		return err
	}
	scheme, err := kinds()
	if err != nil {
		return err
	}
	mgr, err := ctrl.NewManager(cfg, s.manager(scheme))
	if err != nil {
		return fmt.Errorf("make the manager: %w", err)
	}
	if err := setUp(ctx, mgr, &s); err != nil {
		return err
	}
	ctrl.Log.Info("Starting", "version", version)
	return mgr.Start(ctx)
}

func apiServer() (*rest.Config, error) {
	cfg, err := ctrl.GetConfig()
	if err != nil {
		return nil, fmt.Errorf("find the API server: %w; give --kubeconfig outside a cluster", err)
	}
	return cfg, nil
}

func kinds() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme))
	return scheme, err
}

// setUp wires everything by hand: what depends on what can be read here.
func setUp(ctx context.Context, mgr ctrl.Manager, s *settings) error {
	redactor, err := redact.New()
	if err != nil {
		return fmt.Errorf("compile the redaction rules: %w", err)
	}
	c := clock.RealClock{}
	opener := connect.New(mgr.GetAPIReader(), nil, c)
	recorder := mgr.GetEventRecorder("undersong-controller")
	api := writes.Count(mgr.GetClient())
	turns := session.NewTurns()
	agents := &connect.Agents{Clock: c, Pinned: memoryblock.Pinned(mgr.GetClient(), &connect.Redactors{BuiltIn: redactor, Open: opener}), Recorder: recorder}
	tokens := &budget.Ledger{Reader: mgr.GetClient(), Clock: c}

	sweeper := &session.Sweeper{Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Connect: opener, Clock: c}
	scrubs := session.NewScrubs()
	scrubber := &session.Scrubber{
		Client: api, Live: mgr.GetAPIReader(), Connect: opener, Agents: agents, Redactor: redactor, Scrubs: scrubs, Clock: c,
	}
	if err := errors.Join(mgr.Add(turns), mgr.Add(sweeper), mgr.Add(scrubber)); err != nil {
		return err
	}
	err = errors.Join(
		(&session.Reconciler{
			Client: api, Live: mgr.GetAPIReader(), Connect: opener, Agents: agents, Turns: turns, Budget: tokens,
			Redactor: redactor, Recorder: recorder, Clock: c, TakeoverDelay: s.leader.takeover(), CompareWithin: s.compareWithin, Scrubs: scrubs,
		}).SetupWithManager(ctx, mgr),
		(&workstation.Reconciler{Client: api, Live: mgr.GetAPIReader(), Connect: opener, Recorder: recorder, Clock: c}).SetupWithManager(mgr),
		(&teammemory.Reconciler{Client: api, Connect: opener, Budget: tokens, Recorder: recorder, Clock: c}).SetupWithManager(mgr),
		(&memoryblock.Reconciler{Client: api, Connect: opener, Agents: agents, Redactor: redactor, Recorder: recorder, Clock: c, Share: answersFresh}).SetupWithManager(mgr),
		mgr.AddHealthzCheck("ping", healthz.Ping),
		mgr.AddReadyzCheck("ping", healthz.Ping),
		metrics.Registry.Register(turns),
		metrics.Registry.Register(&lag.Collector{Reader: mgr.GetClient(), Clock: c}),
	)
	if err != nil {
		return fmt.Errorf("set up: %w", err)
	}
	return nil
}
