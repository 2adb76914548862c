// Package stack starts the whole of undersong on loopback for the demo and the
// end-to-end tests: a real API server under the real policies, a real S3
// server, a Letta stand-in or a real App Server, the controller with its own
// ServiceAccount, and workstations of impersonated users. Our own parts run as their binaries.
package stack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/internal/letta/appserver/appservertest"
	"github.com/undersong-dev/undersong/internal/letta/lettatest"
	"github.com/undersong-dev/undersong/internal/store"
	"github.com/undersong-dev/undersong/test/kube"
	"github.com/undersong-dev/undersong/test/tools"
	"github.com/undersong-dev/undersong/test/versity"
)

// lettaKey is the key of the stand-in. Tests look for it where it must not be.
const lettaKey = "letta-key-that-no-workstation-sees"

// Options say where a stack lives.
type Options struct {
	// Dir keeps everything. It must exist.
	Dir string
	// Bin is the folder of our binaries; empty means bin in the repository.
	Bin string
	// Keep keeps the state, so that a later Start in the same folder goes on.
	Keep bool
	// TurnDelay is how long the stand-in thinks.
	TurnDelay time.Duration
	// AppServer is the folder of a real App Server, which keeps the teams'
	// memories in place of the stand-in; empty means the stand-in.
	AppServer string
	// Progress is told what is being started. Nil means nobody.
	Progress io.Writer
	// Bare installs nothing of undersong into the cluster: a chart will.
	Bare bool
}

// Stack is the running whole.
type Stack struct {
	// Dir keeps everything.
	Dir string
	// Cluster is the API server.
	Cluster *kube.Cluster
	// S3 is the object store.
	S3 *versity.Server
	// Letta is the stand-in, App the real App Server in its place; one of them
	// is nil.
	Letta *lettatest.Server
	App   *appservertest.Server
	// Admin is a client that RBAC does not bind.
	Admin client.WithWatch
	// ControllerFlags are added to the controller's, and win.
	ControllerFlags []string

	bin        string
	letta      LettaServer // the stand-in
	controller *Process
	progress   io.Writer
	daemons    []*Workstation
}

// Start starts the real parts. The controller is started by StartController,
// when there is a team.
func Start(ctx context.Context, o Options) (_ *Stack, err error) {
	s := &Stack{Dir: o.Dir, bin: o.Bin, progress: o.Progress}
	if s.bin == "" {
		s.bin = filepath.Join(tools.Root(), "bin")
	}
	if s.progress == nil {
		s.progress = io.Discard
	}
	for _, name := range []string{"undersong", "undersong-hook", "undersong-controller"} {
		if _, err := os.Stat(filepath.Join(s.bin, name)); err != nil {
			return nil, fmt.Errorf("find %s: %w; run make build", name, err)
		}
	}
	defer func() { //nolint:contextcheck // stopping must outlive the context
		if err != nil {
			s.Stop()
		}
	}()
	if err := os.MkdirAll(s.path("logs"), 0o700); err != nil {
		return nil, err
	}
	kubeDir, lettaState := "", ""
	if o.Keep {
		kubeDir, lettaState = s.path("kube"), s.path("letta.json")
	}
	logs, err := os.OpenFile(s.path("logs/cluster.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	s.say("starting etcd and kube-apiserver")
	if s.Cluster, err = kube.Start(ctx, kube.Options{Dir: kubeDir, Logs: logs, Bare: o.Bare}); err != nil {
		return nil, err
	}
	s.say("starting the S3 server")
	address, err := s.keptAddress("s3.address", o.Keep)
	if err != nil {
		return nil, err
	}
	if s.S3, err = versity.Start(ctx, versity.Options{Dir: s.path("s3"), Address: address}); err != nil {
		return nil, err
	}
	if err := s.startLetta(ctx, o, lettaState); err != nil {
		return nil, err
	}
	if err := s.keepAddresses(o.Keep); err != nil {
		return nil, err
	}
	if s.Admin, err = s.Cluster.Client(s.Cluster.Admin()); err != nil {
		return nil, err
	}
	return s, nil
}

// Outside is a stack whose workstations are the only thing here: cluster, store
// and Letta are run by somebody else.
func Outside(dir, bin string, admin client.WithWatch, s3 *versity.Server) *Stack {
	return &Stack{Dir: dir, Admin: admin, S3: s3, bin: bin, progress: io.Discard}
}

// Adopt returns a team that is there already.
func (s *Stack) Adopt(namespace, memory, bucket string) *Team {
	return &Team{Namespace: namespace, Memory: memory, Bucket: bucket, stack: s}
}

// startLetta starts what keeps the memories.
func (s *Stack) startLetta(ctx context.Context, o Options, state string) error {
	address, err := s.keptAddress("letta.address", o.Keep)
	if err != nil {
		return err
	}
	if o.AppServer != "" {
		s.say("starting a real App Server, with a scripted model behind it")
		s.App, err = appservertest.Start(ctx, AppServerOptions(o.AppServer, s.path("letta"), address))
		return err
	}
	s.say("starting the Letta stand-in (rules, not a model)")
	if s.Letta, err = lettatest.New(lettatest.Options{Key: lettaKey, StateFile: state, Delay: o.TurnDelay}); err != nil {
		return err
	}
	url, err := s.Letta.Start(ctx, address)
	s.letta = LettaServer{
		Backend: v1alpha1.BackendAPI, URL: url, Model: "rules/stand-in", Secret: map[string]string{"apiKey": lettaKey},
	}
	return err
}

// keptAddress is where a part listened last time: its address is in objects
// that are kept.
func (s *Stack) keptAddress(name string, keep bool) (string, error) {
	if !keep {
		return "", nil
	}
	data, err := os.ReadFile(s.path(name))
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	return strings.TrimSpace(string(data)), err
}

func (s *Stack) keepAddresses(keep bool) error {
	if !keep {
		return nil
	}
	return errors.Join(
		os.WriteFile(s.path("s3.address"), []byte(host(s.S3.Endpoint)), 0o600),
		os.WriteFile(s.path("letta.address"), []byte(host(s.LettaServer().URL)), 0o600),
	)
}

// Stop stops everything that was started.
func (s *Stack) Stop() {
	for _, w := range s.daemons {
		w.StopDaemon()
	}
	if s.controller != nil {
		if err := s.controller.Stop(); err != nil {
			s.say(err.Error())
		}
		s.controller = nil
	}
	if s.Letta != nil {
		_ = s.Letta.Close() // its state is written after each change
	}
	if s.App != nil {
		s.App.Stop()
	}
	if s.S3 != nil {
		s.S3.Stop()
	}
	if s.Cluster != nil {
		s.Cluster.Stop()
	}
}

// RestartS3 stops the S3 server, runs f, and starts it again where it was.
func (s *Stack) RestartS3(ctx context.Context, f func() error) error {
	address := host(s.S3.Endpoint)
	s.S3.Stop()
	err := f()
	again, serr := versity.Start(ctx, versity.Options{Dir: s.path("s3"), Address: address})
	if serr != nil {
		return errors.Join(err, serr)
	}
	s.S3 = again
	return err
}

// StartController starts the controller with the token of its own
// ServiceAccount. env is added to its environment.
func (s *Stack) StartController(ctx context.Context, env ...string) (*Process, error) {
	cfg, err := s.Cluster.Controller(ctx)
	if err != nil {
		return nil, err
	}
	file, err := s.Cluster.Kubeconfig(cfg, kube.ControllerNamespace)
	if err != nil {
		return nil, err
	}
	path := s.path("controller.kubeconfig")
	if err := os.WriteFile(path, file, 0o600); err != nil {
		return nil, err
	}
	p, err := start("undersong-controller", s.path("logs/controller.log"), filepath.Join(s.bin, "undersong-controller"),
		append(basicEnv(s.Dir), env...),
		append([]string{
			"--kubeconfig", path, "--metrics-bind-address=0", "--health-probe-bind-address=0",
			"--leader-elect-namespace", kube.ControllerNamespace,
			// Short, so that a test that kills the controller need not wait.
			"--leader-elect-lease-duration=3s", "--leader-elect-renew-deadline=2s", "--leader-elect-retry-period=500ms",
		}, s.ControllerFlags...)...)
	if err != nil {
		return nil, err
	}
	s.controller = p
	return p, nil
}

// Team is a namespace with a memory.
type Team struct {
	// Namespace and Memory name the TeamMemory.
	Namespace, Memory string
	// Bucket is the team's bucket.
	Bucket string

	stack *Stack
}

// TeamOptions describe a team.
type TeamOptions struct {
	// Namespace of the team; its memory is called team.
	Namespace string
	// Members are the users who may record, Leads those who may correct.
	Members, Leads []string
	// Include are the projects that may be heard.
	Include []string
	// Letta keeps the memory; the zero value means the stack's own.
	Letta LettaServer
	// Change changes the TeamMemory before it is written. Nil means nothing.
	Change func(*v1alpha1.TeamMemory)
}

// Team makes a team: a namespace, its people, its bucket, two Secrets and a
// TeamMemory.
func (s *Stack) Team(ctx context.Context, o TeamOptions) (*Team, error) {
	if err := s.Cluster.Team(ctx, o.Namespace, o.Members, o.Leads); err != nil {
		return nil, err
	}
	if o.Letta.URL == "" {
		o.Letta = s.LettaServer()
	}
	t, err := s.Furnish(ctx, o.Namespace, "team", o.Letta)
	if err != nil {
		return nil, err
	}
	m := &v1alpha1.TeamMemory{ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: t.Memory}}
	_, err = controllerutil.CreateOrUpdate(ctx, s.Admin, m, func() error {
		m.Spec = v1alpha1.TeamMemorySpec{
			Letta:   v1alpha1.Letta{Backend: o.Letta.Backend, BaseURL: o.Letta.URL, Insecure: v1alpha1.InsecureAllow, CredentialsSecretRef: &v1alpha1.LocalRef{Name: kube.LettaSecret}},
			Agent:   v1alpha1.AgentSource{Template: &v1alpha1.AgentTemplate{Name: "Team memory", Model: o.Letta.Model}},
			Store:   v1alpha1.Store{Endpoint: s.S3.Endpoint, Insecure: v1alpha1.InsecureAllow, Bucket: t.Bucket, CredentialsSecretRef: v1alpha1.LocalRef{Name: kube.StoreSecret}},
			Capture: v1alpha1.Capture{Projects: v1alpha1.CaptureProjects{Include: o.Include}},
		}
		if o.Change != nil {
			o.Change(m)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("write TeamMemory: %w", err)
	}
	return t, nil
}

// Furnish makes what a team's memory needs in a namespace that exists: a bucket
// and the two Secrets. The TeamMemory is somebody else's to write.
func (s *Stack) Furnish(ctx context.Context, namespace, memory string, keeper LettaServer) (*Team, error) {
	t := &Team{Namespace: namespace, Memory: memory, Bucket: namespace, stack: s}
	if err := s.S3.MakeBucket(ctx, t.Bucket); err != nil {
		return nil, err
	}
	err := errors.Join(
		s.secret(ctx, namespace, kube.LettaSecret, host(keeper.URL), keeper.Secret),
		s.secret(ctx, namespace, kube.StoreSecret, host(s.S3.Endpoint), map[string]string{"accessKeyID": s.S3.AccessKeyID, "secretAccessKey": s.S3.SecretAccessKey}),
	)
	if err != nil {
		return nil, err
	}
	return t, nil
}

// secret writes a Secret that names the one host it may be sent to.
func (s *Stack) secret(ctx context.Context, namespace, name, host string, data map[string]string) error {
	obj := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	_, err := controllerutil.CreateOrUpdate(ctx, s.Admin, obj, func() error {
		obj.Annotations = map[string]string{"undersong.dev/hosts": host}
		obj.StringData = data
		return nil
	})
	if err != nil {
		return fmt.Errorf("write Secret %s: %w", name, err)
	}
	return nil
}

// Open opens the team's bucket with the store's own key.
func (t *Team) Open() (*store.Bucket, error) {
	s3 := t.stack.S3
	return store.Open(store.Options{Endpoint: s3.Endpoint, Bucket: t.Bucket, AccessKeyID: s3.AccessKeyID, SecretAccessKey: s3.SecretAccessKey})
}

// Sessions lists the team's Sessions.
func (t *Team) Sessions(ctx context.Context) ([]v1alpha1.Session, error) {
	var list v1alpha1.SessionList
	err := t.stack.Admin.List(ctx, &list, client.InNamespace(t.Namespace))
	return list.Items, err
}

// CaughtUp reports whether a Session's controller has nothing left to do.
func CaughtUp(s *v1alpha1.Session) bool {
	return s.Status.ObservedGeneration == s.Generation && apimeta.IsStatusConditionTrue(s.Status.Conditions, v1alpha1.ReadyCondition) &&
		s.Status.Lines+s.Status.LostLines == s.Spec.Lines
}

// say tells what is being done.
func (s *Stack) say(text string) {
	_, _ = fmt.Fprintln(s.progress, "  "+text) // progress is for people
}

func (s *Stack) path(name string) string { return filepath.Join(s.Dir, name) }

// host is the host and port of a URL.
func host(url string) string {
	_, rest, _ := strings.Cut(url, "://")
	return strings.TrimRight(rest, "/")
}

// basicEnv is an environment with nothing of the caller's but the way to
// programs: what is not in it cannot leak into a test.
func basicEnv(home string) []string {
	return slices.Clone([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "TMPDIR=" + os.TempDir()})
}
