//go:build envtest

package memoryblock

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/controllers/connect"
	"github.com/undersong-dev/undersong/internal/letta"
	"github.com/undersong-dev/undersong/internal/letta/api"
	"github.com/undersong-dev/undersong/internal/letta/lettatest"
	"github.com/undersong-dev/undersong/internal/redact"
	"github.com/undersong-dev/undersong/internal/segment"
	"github.com/undersong-dev/undersong/internal/store"
	"github.com/undersong-dev/undersong/test/fault"
	"github.com/undersong-dev/undersong/test/kube"
	"github.com/undersong-dev/undersong/test/parts"
	"github.com/undersong-dev/undersong/test/versity"
)

// The real parts, started once.
var (
	cluster *kube.Cluster
	s3      *versity.Server
)

func TestMain(m *testing.M) { os.Exit(parts.Run(os.Stderr, m, &cluster, &s3)) }

const (
	owner  = "ada"
	lead   = "lena"
	remote = "git.example.com/lighthouse/lantern"
	other  = "git.example.com/lighthouse/harbour"
)

// world is a memory of two projects, each with an agent and a session.
type world struct {
	t         *testing.T
	namespace string
	admin     client.WithWatch
	lead      client.WithWatch
	server    *lettatest.Server
	letta     letta.Client
	bucket    *store.Bucket
	// agents and sessions by project.
	agents   map[string]string
	sessions map[string]string
	clock    *clocktesting.FakePassiveClock
	counter  *fault.Counter
	recorder *events.FakeRecorder
	r        *Reconciler
}

func newWorld(t *testing.T, counter *fault.Counter) *world {
	t.Helper()
	server, err := lettatest.New(lettatest.Options{Key: "key"})
	if err != nil {
		t.Fatal(err)
	}
	url, err := server.Start(context.WithoutCancel(t.Context()), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	c, err := api.New(api.Options{BaseURL: url, Key: "key"})
	if err != nil {
		t.Fatal(err)
	}
	w := newWorldAt(t, counter, c, v1alpha1.BackendAPI, url, "rules/stand-in", map[string]string{"apiKey": "key"})
	w.server = server
	return w
}

// newWorldAt is a world whose Letta is somewhere.
func newWorldAt(t *testing.T, counter *fault.Counter, c letta.Client, backend v1alpha1.Backend, url, model string, secret map[string]string) *world {
	t.Helper()
	ctx := t.Context()
	w := &world{
		t: t, namespace: fmt.Sprintf("b%d", time.Now().UnixNano()), counter: counter, letta: c, agents: map[string]string{}, sessions: map[string]string{},
		clock: clocktesting.NewFakePassiveClock(time.Date(2026, 11, 1, 9, 0, 0, 0, time.UTC)),
	}
	if w.counter == nil {
		w.counter = &fault.Counter{}
	}
	w.must(cluster.Team(ctx, w.namespace, []string{owner}, []string{lead}))
	var err error
	w.admin, err = cluster.Client(cluster.Admin())
	w.must(err)
	w.lead, err = cluster.Client(cluster.User(lead))
	w.must(err)
	w.must(s3.MakeBucket(ctx, w.namespace))
	w.bucket, err = store.Open(store.Options{Endpoint: s3.Endpoint, Bucket: w.namespace, AccessKeyID: s3.AccessKeyID, SecretAccessKey: s3.SecretAccessKey})
	w.must(err)
	w.secret(kube.LettaSecret, url, secret)
	w.secret(kube.StoreSecret, s3.Endpoint, map[string]string{"accessKeyID": s3.AccessKeyID, "secretAccessKey": s3.SecretAccessKey})
	w.must(w.admin.Create(ctx, &v1alpha1.TeamMemory{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "team"},
		Spec: v1alpha1.TeamMemorySpec{
			Letta:   v1alpha1.Letta{Backend: backend, BaseURL: url, Insecure: v1alpha1.InsecureAllow, CredentialsSecretRef: &v1alpha1.LocalRef{Name: kube.LettaSecret}},
			Agent:   v1alpha1.AgentSource{Template: &v1alpha1.AgentTemplate{Name: "Team", Model: model}},
			Store:   v1alpha1.Store{Endpoint: s3.Endpoint, Insecure: v1alpha1.InsecureAllow, Bucket: w.namespace, CredentialsSecretRef: v1alpha1.LocalRef{Name: kube.StoreSecret}},
			Capture: v1alpha1.Capture{Projects: v1alpha1.CaptureProjects{Include: []string{"**"}}},
		},
	}))
	w.restart()
	for i, project := range []string{remote, other} {
		w.session(fmt.Sprintf("5e550001-0000-4000-8000-00000000000%d", i), project)
	}
	return w
}

// restart makes a reconciler as a new process would have it.
func (w *world) restart() {
	w.t.Helper()
	cfg, err := cluster.Controller(w.t.Context())
	w.must(err)
	cfg.WrapTransport = func(rt http.RoundTripper) http.RoundTripper { return w.counter.Wrap(rt) }
	scheme := runtime.NewScheme()
	w.must(clientgoscheme.AddToScheme(scheme))
	w.must(v1alpha1.AddToScheme(scheme))
	// A mapper made without the counter: discovery is no call of ours.
	c, err := client.New(cfg, client.Options{Scheme: scheme, Mapper: w.admin.RESTMapper()})
	w.must(err)
	redactor, err := redact.New()
	w.must(err)
	w.recorder = events.NewFakeRecorder(64)
	opener := connect.New(c, w.counter.Wrap(nil), w.clock)
	opener.FirstRest = time.Nanosecond // how an endpoint is rested is the gate's own test
	w.r = &Reconciler{
		Client: c, Connect: opener, Agents: &connect.Agents{Pinned: Pinned(c, &connect.Redactors{BuiltIn: redactor, Open: opener})},
		Redactor: redactor, Recorder: w.recorder, Clock: w.clock,
	}
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) secret(name, url string, data map[string]string) {
	w.t.Helper()
	_, host, _ := strings.Cut(url, "://")
	w.must(w.admin.Create(w.t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name, Annotations: map[string]string{connect.HostsAnnotation: host}},
		StringData: data,
	}))
}

// agent makes a project's agent, as the first words of a session do.
func (w *world) agent(project string) string {
	w.t.Helper()
	mem := &v1alpha1.TeamMemory{}
	w.must(w.admin.Get(w.t.Context(), types.NamespacedName{Namespace: w.namespace, Name: "team"}, mem))
	id, err := (&connect.Agents{Pinned: Pinned(w.admin, &connect.Redactors{BuiltIn: w.r.Redactor})}).Ensure(w.t.Context(), w.letta, mem, connect.Project(mem, project))
	w.must(err)
	w.agents[project] = id
	return id
}

// session makes a Session of a project, with the project's agent.
func (w *world) session(id, project string) {
	w.t.Helper()
	user, err := cluster.Client(cluster.User(owner))
	w.must(err)
	s := &v1alpha1.Session{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: v1alpha1.SessionName(id, owner)},
		Spec: v1alpha1.SessionSpec{
			Owner: owner, SessionID: id, Agent: v1alpha1.AgentClaudeCode, MemoryRef: v1alpha1.LocalRef{Name: "team"},
			Project: v1alpha1.Project{Name: "x", Remote: project},
		},
	}
	w.must(user.Create(w.t.Context(), s, client.FieldOwner("undersong-create")))
	w.sessions[project] = s.Name
	w.publish(project, w.agent(project), "")
}

// publish has the project's session publish a revision.
func (w *world) publish(project, agent, revision string) {
	w.t.Helper()
	cfg, err := cluster.Controller(w.t.Context())
	w.must(err)
	controller, err := cluster.Client(cfg)
	w.must(err)
	s := &v1alpha1.Session{}
	w.must(w.admin.Get(w.t.Context(), types.NamespacedName{Namespace: w.namespace, Name: w.sessions[project]}, s))
	s.Status.SyncState = &v1alpha1.SyncState{LastProcessedIndex: -1, AgentID: agent, MemoryRevision: revision}
	w.must(controller.Status().Update(w.t.Context(), s))
}

// write has a project's agent write a block, and its session publish that.
func (w *world) write(project, label, value string) {
	w.t.Helper()
	revision, err := w.letta.PutBlock(w.t.Context(), w.agents[project], letta.Block{Label: label, Value: value}, "test")
	w.must(err)
	w.publish(project, w.agents[project], revision)
}

// has is what a project's agent has under a label.
func (w *world) has(project, label string) letta.Block {
	w.t.Helper()
	m, err := w.letta.Memory(w.t.Context(), w.agents[project])
	w.must(err)
	b, _ := m.Block(label)
	return b
}

func (w *world) name(project, label string) types.NamespacedName {
	return types.NamespacedName{Namespace: w.namespace, Name: v1alpha1.MemoryBlockName("team", project, label)}
}

// learned makes the object of a Learned block.
func (w *world) learned(project, label string) types.NamespacedName {
	w.t.Helper()
	return w.create(v1alpha1.MemoryBlockSpec{Project: project, Label: label, Mode: v1alpha1.BlockLearned})
}

// pinned makes a Pinned block, as a lead does.
func (w *world) pinned(project, label, value string) types.NamespacedName {
	w.t.Helper()
	return w.create(v1alpha1.MemoryBlockSpec{Project: project, Label: label, Mode: v1alpha1.BlockPinned, Value: value})
}

func (w *world) create(spec v1alpha1.MemoryBlockSpec) types.NamespacedName {
	w.t.Helper()
	key := w.name(spec.Project, spec.Label)
	spec.MemoryRef.Name = "team"
	w.must(w.lead.Create(w.t.Context(), &v1alpha1.MemoryBlock{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}, Spec: spec}))
	return key
}

// change changes a block's spec, as a lead does.
func (w *world) change(key types.NamespacedName, change func(*v1alpha1.MemoryBlockSpec)) {
	w.t.Helper()
	b := w.get(key)
	change(&b.Spec)
	w.must(w.lead.Update(w.t.Context(), b))
}

func (w *world) get(key types.NamespacedName) *v1alpha1.MemoryBlock {
	w.t.Helper()
	b := &v1alpha1.MemoryBlock{}
	w.must(w.admin.Get(w.t.Context(), key, b))
	return b
}

// reconcile runs one reconcile and returns the block.
func (w *world) reconcile(key types.NamespacedName) (*v1alpha1.MemoryBlock, ctrl.Result) {
	w.t.Helper()
	res, err := w.r.Reconcile(w.t.Context(), ctrl.Request{NamespacedName: key})
	if err != nil {
		w.t.Log(err)
	}
	return w.get(key), res
}

// settle reconciles until the block is ready, letting time pass.
func (w *world) settle(key types.NamespacedName) *v1alpha1.MemoryBlock {
	w.t.Helper()
	for range 20 {
		b, res := w.reconcile(key)
		if ready := condition(b); ready.Status == metav1.ConditionTrue && b.Status.ObservedGeneration == b.Generation && res.RequeueAfter == interval {
			return b
		}
		w.clock.SetTime(w.clock.Now().Add(quiet))
	}
	w.t.Fatalf("the block did not settle: %+v", w.get(key).Status.Conditions)
	return nil
}

// later lets the quiet time pass.
func (w *world) later() { w.clock.SetTime(w.clock.Now().Add(quiet)) }

// said are the events so far.
func (w *world) said() []string {
	var all []string
	for {
		select {
		case e := <-w.recorder.Events:
			all = append(all, e)
		default:
			return all
		}
	}
}

// text is what the store has under a digest.
func (w *world) text(digest string) string {
	w.t.Helper()
	data, err := w.bucket.Get(w.t.Context(), segment.BlockKey(w.namespace, digest), maxBytes)
	w.must(err)
	return string(data)
}

func condition(b *v1alpha1.MemoryBlock) metav1.Condition {
	for _, c := range b.Status.Conditions {
		if c.Type == v1alpha1.ReadyCondition {
			return c
		}
	}
	return metav1.Condition{}
}
