//go:build envtest

package session

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/controllers/budget"
	"github.com/undersong-dev/undersong/controllers/connect"
	"github.com/undersong-dev/undersong/internal/letta/lettatest"
	"github.com/undersong-dev/undersong/internal/redact"
	"github.com/undersong-dev/undersong/internal/seal"
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
	owner     = "ada"
	sessionID = "5e550001-0000-4000-8000-000000000001"
	remote    = "git.example.com/lighthouse/lantern"
)

// world is one team with one session, and a reconciler that nobody drives but
// the test.
type world struct {
	t         *testing.T
	namespace string
	admin     client.WithWatch
	user      client.WithWatch
	letta     *lettatest.Server
	lettaURL  string
	// app is a real App Server in letta's place, nil for most.
	app      *appKeeper
	bucket   *store.Bucket
	identity seal.Identity
	key      types.NamespacedName

	r         *Reconciler
	stopTurns func()
	// early is a status of before.
	early   *v1alpha1.SessionStatus
	counter *fault.Counter
	// outage says that the API server cannot be reached by the controller.
	outage *atomic.Bool
	// storeAway says that of the store.
	storeAway *atomic.Bool
	recorder  *events.FakeRecorder
	writers   map[string]*writer
}

// writer plays one workstation's daemon: it puts segments into its inbox and
// applies its entry.
type writer struct {
	w        *world
	name     string
	uid      string
	seq      int64
	slot     int64
	lines    int64
	bytes    int64
	offset   int64
	index    int64
	chain    segment.Sum
	slots    []v1alpha1.Slot
	gone     []int64
	raws     map[int64][]byte
	redactor *redact.Redactor
	state    v1alpha1.WriterState
	imported bool
	branch   string
	// before is the head that the first entry in a Session goes on from;
	// none means the beginning.
	before string
}

func newWorld(t *testing.T, counter *fault.Counter) *world {
	t.Helper()
	ctx := t.Context()
	w := &world{t: t, namespace: fmt.Sprintf("t%d", time.Now().UnixNano()), counter: counter, outage: &atomic.Bool{}, storeAway: &atomic.Bool{}, writers: map[string]*writer{}}
	if w.counter == nil {
		w.counter = &fault.Counter{}
	}
	w.must(cluster.Team(ctx, w.namespace, []string{owner, "bob"}, nil))
	var err error
	w.admin, err = cluster.Client(cluster.Admin())
	w.must(err)
	w.user, err = cluster.Client(cluster.User(owner))
	w.must(err)
	w.letta, err = lettatest.New(lettatest.Options{Key: "key"})
	w.must(err)
	w.lettaURL, err = w.letta.Start(context.WithoutCancel(ctx), "")
	w.must(err)
	t.Cleanup(func() { _ = w.letta.Close() })
	w.must(s3.MakeBucket(ctx, w.namespace))
	w.bucket, err = store.Open(store.Options{Endpoint: s3.Endpoint, Bucket: w.namespace, AccessKeyID: s3.AccessKeyID, SecretAccessKey: s3.SecretAccessKey})
	w.must(err)
	w.identity, err = seal.NewIdentity()
	w.must(err)

	w.secret(kube.LettaSecret, w.lettaURL, map[string]string{"apiKey": "key"})
	w.secret(kube.StoreSecret, s3.Endpoint, map[string]string{"accessKeyID": s3.AccessKeyID, "secretAccessKey": s3.SecretAccessKey})
	w.must(w.admin.Create(ctx, &v1alpha1.TeamMemory{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "team"},
		Spec: v1alpha1.TeamMemorySpec{
			Letta:   v1alpha1.Letta{Backend: v1alpha1.BackendAPI, BaseURL: w.lettaURL, Insecure: v1alpha1.InsecureAllow, CredentialsSecretRef: &v1alpha1.LocalRef{Name: kube.LettaSecret}},
			Agent:   v1alpha1.AgentSource{Template: &v1alpha1.AgentTemplate{Name: "Team", Model: "rules/stand-in"}},
			Store:   v1alpha1.Store{Endpoint: s3.Endpoint, Insecure: v1alpha1.InsecureAllow, Bucket: w.namespace, CredentialsSecretRef: v1alpha1.LocalRef{Name: kube.StoreSecret}},
			Capture: v1alpha1.Capture{Projects: v1alpha1.CaptureProjects{Include: []string{"**"}}},
		},
	}))
	w.key = types.NamespacedName{Namespace: w.namespace, Name: v1alpha1.SessionName(sessionID, owner)}
	w.must(w.user.Create(ctx, &v1alpha1.Session{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: w.key.Name},
		Spec: v1alpha1.SessionSpec{
			Owner: owner, SessionID: sessionID, Agent: v1alpha1.AgentClaudeCode, MemoryRef: v1alpha1.LocalRef{Name: "team"},
			Project: v1alpha1.Project{Name: "lantern", Remote: remote},
		},
	}, client.FieldOwner("undersong-create")))
	w.restart()
	return w
}

// restart makes a reconciler as a new process would have it: knowing nothing.
func (w *world) restart() {
	w.t.Helper()
	ctx := w.t.Context()
	cfg, err := cluster.Controller(ctx)
	w.must(err)
	cfg.WrapTransport = func(rt http.RoundTripper) http.RoundTripper {
		return w.counter.Wrap(refusing{outage: w.outage, base: rt})
	}
	scheme := runtime.NewScheme()
	w.must(clientgoscheme.AddToScheme(scheme))
	w.must(v1alpha1.AddToScheme(scheme))
	// A mapper made without the counter: discovery is no call of ours.
	plain, err := cluster.Client(cluster.Admin())
	w.must(err)
	c, err := client.New(cfg, client.Options{Scheme: scheme, Mapper: plain.RESTMapper()})
	w.must(err)
	redactor, err := redact.New()
	w.must(err)
	turns := NewTurns()
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	w.t.Cleanup(stop)
	w.stopTurns = stop
	go func() { _ = turns.Start(run) }()
	w.recorder = events.NewFakeRecorder(64)
	_, bucketHost, _ := strings.Cut(s3.Endpoint, "://")
	opener := connect.New(c, w.counter.Wrap(refusing{outage: w.storeAway, host: bucketHost, base: http.DefaultTransport}), clock.RealClock{})
	opener.FirstRest = 10 * time.Millisecond
	w.r = &Reconciler{
		Client: c, Live: c, Connect: opener, Agents: &connect.Agents{}, Turns: turns,
		Budget:   &budget.Ledger{Reader: c, Clock: clock.RealClock{}},
		Redactor: redactor, Recorder: w.recorder, Clock: clock.RealClock{},
		RetryBase: 10 * time.Millisecond,
	}
}

// refusing is a transport that reaches nobody during an outage; with a host only
// that one is out of reach.
type refusing struct {
	outage *atomic.Bool
	host   string
	base   http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t refusing) RoundTrip(r *http.Request) (*http.Response, error) {
	if t.outage.Load() && (t.host == "" || t.host == r.URL.Host) {
		return nil, syscall.ECONNREFUSED
	}
	return t.base.RoundTrip(r)
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

// writer returns a workstation of the owner.
func (w *world) writer(name string) *writer {
	w.t.Helper()
	if wr, ok := w.writers[name]; ok {
		return wr
	}
	ws := &v1alpha1.Workstation{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name},
		Spec:       v1alpha1.WorkstationSpec{Owner: owner, MemoryRef: v1alpha1.LocalRef{Name: "team"}, PublicKey: w.identity.Recipient()},
	}
	w.must(w.user.Create(w.t.Context(), ws))
	r, err := redact.New()
	w.must(err)
	wr := &writer{w: w, name: name, uid: string(ws.UID), chain: segment.Start(w.key.Name, name), raws: map[int64][]byte{}, redactor: r}
	w.writers[name] = wr
	return wr
}

// segment makes a segment of these lines, uploads it and returns its number.
// apply names it in the Session.
func (wr *writer) segment(lines ...string) int64 {
	wr.w.t.Helper()
	h := segment.Header{
		Session: wr.w.key.Name, Workstation: wr.name, Seq: wr.seq + 1, Stream: segment.MainStream, FirstIndex: wr.index, Offset: wr.offset,
		PreviousChain: wr.chain.String(), Import: wr.imported, Rules: redact.RulesVersion, At: time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC),
	}
	var clean []redact.Redacted
	for _, line := range lines {
		c, _ := wr.redactor.Line([]byte(line))
		clean = append(clean, c)
		h.Offsets = append(h.Offsets, wr.offset)
		h.Indexes = append(h.Indexes, wr.index)
		wr.offset += int64(len(line)) + 1
		wr.index++
	}
	h.EndOffset, h.LastIndex = wr.offset, wr.index-1
	raw, err := segment.Encode(h, clean)
	wr.w.must(err)
	wr.seq++
	wr.lines += int64(len(lines))
	wr.bytes += int64(len(raw))
	wr.chain = wr.chain.Next(raw)
	wr.raws[wr.seq] = raw
	wr.put(wr.seq, segment.Pack(raw))
	return wr.seq
}

// put uploads bytes for a segment into the next slot.
func (wr *writer) put(seq int64, packed []byte) {
	wr.w.t.Helper()
	wr.slot++
	wr.w.must(wr.w.bucket.Put(wr.w.t.Context(), segment.InboxKey(wr.uid, wr.slot), packed))
	for i := range wr.slots {
		if wr.slots[i].Seq == seq {
			wr.slots[i].Slot = wr.slot
			return
		}
	}
	wr.slots = append(wr.slots, v1alpha1.Slot{Seq: seq, Slot: wr.slot})
}

// apply writes the writer's entry as the daemon does.
func (wr *writer) apply() {
	wr.w.t.Helper()
	ctx := wr.w.t.Context()
	live := wr.w.get()
	previous := cmp.Or(wr.before, segment.Start(wr.w.key.Name, wr.name).String())
	var others int64
	for _, e := range live.Spec.Writers {
		if e.Workstation == wr.name {
			if previous = e.Chain; e.Segments == wr.seq {
				previous = e.PreviousChain
			}
			continue
		}
		others += e.Lines
	}
	var slots []any
	for _, s := range wr.slots {
		slots = append(slots, map[string]any{"seq": s.Seq, "slot": s.Slot})
	}
	var gone []any
	for _, g := range wr.gone {
		gone = append(gone, g)
	}
	entry := map[string]any{
		"workstation": wr.name, "state": string(cmp.Or(wr.state, v1alpha1.WriterActive)), "segments": wr.seq, "lines": wr.lines, "bytes": wr.bytes,
		"chain": wr.chain.String(), "previousChain": previous,
	}
	if len(slots) > 0 {
		entry["slots"] = slots
	}
	if len(gone) > 0 {
		entry["gone"] = gone
	}
	if wr.branch != "" {
		entry["branch"] = wr.branch
	}
	u := unstructuredSession(wr.w.key, live, map[string]any{"writers": []any{entry}, "lines": others + wr.lines})
	wr.w.must(wr.w.user.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner("undersong-"+wr.name), client.ForceOwnership))
}

func (w *world) get() *v1alpha1.Session {
	w.t.Helper()
	s := &v1alpha1.Session{}
	w.must(w.admin.Get(w.t.Context(), w.key, s))
	return s
}

// reconcile runs one reconcile and returns what it said.
func (w *world) reconcile() (ctrl.Result, error) {
	return w.r.Reconcile(w.t.Context(), ctrl.Request{NamespacedName: w.key})
}

// settleDown reconciles until the Session is caught up.
func (w *world) settleDown() *v1alpha1.Session {
	w.t.Helper()
	var last error
	rounds := 400
	if w.app != nil {
		rounds = 8000 // a turn that the model refuses takes the server half a minute
	}
	for range rounds {
		_, last = w.reconcile()
		s := w.get()
		if ready := condition(s, v1alpha1.ReadyCondition); ready.Status == metav1.ConditionTrue && s.Status.ObservedGeneration == s.Generation {
			return s
		}
		w.pause()
	}
	w.t.Fatalf("the session did not settle: %v: %+v", last, w.get().Status.Conditions)
	return nil
}

// pause waits a little for a turn.
func (w *world) pause() {
	select {
	case <-w.r.Turns.Events:
	case <-time.After(20 * time.Millisecond):
	}
}

func condition(s *v1alpha1.Session, name string) metav1.Condition {
	for _, c := range s.Status.Conditions {
		if c.Type == name {
			return c
		}
	}
	return metav1.Condition{}
}

// user and assistant make transcript lines.
func userLine(id, text string) string {
	return fmt.Sprintf(`{"type":"user","uuid":%q,"parentUuid":null,"isSidechain":false,"sessionId":%q,"cwd":"/src/lantern","timestamp":"2026-11-01T09:00:00.000Z","origin":{"kind":"human"},"message":{"role":"user","content":%q}}`, id, sessionID, text)
}

func assistantLine(id, text string) string {
	return fmt.Sprintf(`{"type":"assistant","uuid":%q,"parentUuid":null,"isSidechain":false,"sessionId":%q,"cwd":"/src/lantern","timestamp":"2026-11-01T09:00:01.000Z","message":{"role":"assistant","id":"msg_%s","model":"claude-demo-1","content":[{"type":"text","text":%q}]}}`, id, sessionID, id, text)
}

func titleLine(text string) string {
	return fmt.Sprintf(`{"type":"ai-title","aiTitle":%q,"sessionId":%q}`, text, sessionID)
}
