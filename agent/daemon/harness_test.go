//go:build envtest

package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentkube "github.com/undersong-dev/undersong/agent/internal/kube"
	"github.com/undersong-dev/undersong/agent/note"
	"github.com/undersong-dev/undersong/agent/spool"
	"github.com/undersong-dev/undersong/agent/upload"
	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/internal/store"
	"github.com/undersong-dev/undersong/test/kube"
	"github.com/undersong-dev/undersong/test/versity"
)

const (
	team   = "alpha"
	memory = "main"
	bucket = "alpha"
	remote = "git.example.com/alpha/tide"
)

var (
	cluster *kube.Cluster
	gateway *versity.Server
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	ctx := context.Background()
	var err error
	if cluster, err = kube.Start(ctx, kube.Options{}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer cluster.Stop()
	dir, err := os.MkdirTemp("", "undersong-store-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if gateway, err = versity.Start(ctx, versity.Options{Dir: dir}); err == nil {
		defer gateway.Stop()
		err = gateway.MakeBucket(ctx, bucket)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

func openBucket(t *testing.T) *store.Bucket {
	t.Helper()
	b, err := store.Open(store.Options{Endpoint: gateway.Endpoint, Bucket: bucket, AccessKeyID: gateway.AccessKeyID, SecretAccessKey: gateway.SecretAccessKey})
	if err != nil {
		t.Fatalf("open store: %v", err)
	}
	return b
}

// newTeam makes a namespace with a memory, and the stand-in that serves it.
func newTeam(t *testing.T) *standin {
	t.Helper()
	ns := fmt.Sprintf("%s-%s", team, uuid.NewString()[:8])
	if err := cluster.Team(t.Context(), ns, []string{"ada", "bob"}, []string{"lead"}); err != nil {
		t.Fatalf("make team: %v", err)
	}
	makeMemory(t, ns)
	return startStandin(t, ns)
}

func makeMemory(t *testing.T, ns string) {
	t.Helper()
	m := &v1alpha1.TeamMemory{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: memory},
		Spec: v1alpha1.TeamMemorySpec{
			Letta:   v1alpha1.Letta{Backend: v1alpha1.BackendAPI, BaseURL: "http://127.0.0.1:1", Insecure: v1alpha1.InsecureAllow},
			Agent:   v1alpha1.AgentSource{Template: &v1alpha1.AgentTemplate{Name: "memory", Model: "x/y"}},
			Store:   v1alpha1.Store{Endpoint: gateway.Endpoint, Bucket: bucket, Insecure: v1alpha1.InsecureAllow, CredentialsSecretRef: v1alpha1.LocalRef{Name: "store"}},
			Capture: v1alpha1.Capture{Projects: v1alpha1.CaptureProjects{Include: []string{"git.example.com/alpha/*"}}},
		},
	}
	if err := adminClient(t).Create(t.Context(), m); err != nil {
		t.Fatalf("make memory: %v", err)
	}
}

func adminClient(t *testing.T) client.WithWatch {
	t.Helper()
	c, err := cluster.Client(cluster.Admin())
	if err != nil {
		t.Fatalf("admin's client: %v", err)
	}
	return c
}

// machine is a workstation of one user: a state directory, a home, a checkout.
type machine struct {
	t       *testing.T
	home    string // the state directory
	user    string // the person's home
	cwd     string // a checkout
	ns      string
	options Options
	config  note.Config
}

var quick = Timing{
	Late: []time.Duration{20 * time.Millisecond, 60 * time.Millisecond}, Tool: 100 * time.Millisecond,
	Missing: []time.Duration{20 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond},
	Poll:    500 * time.Millisecond, Blocked: 200 * time.Millisecond, GiveUp: 24 * time.Hour,
}

// newMachine makes a workstation, registered as undersong init does.
func newMachine(t *testing.T, s *standin, owner string) *machine {
	t.Helper()
	user := t.TempDir()
	m := &machine{t: t, user: user, home: filepath.Join(user, "state"), ns: s.ns}
	m.options = Options{
		Home: m.home, Version: "test", Timing: &quick, Watch: 100 * time.Millisecond,
		Reporting: &upload.ReportTiming{Every: 10 * time.Minute, Gap: 50 * time.Millisecond, Grant: time.Second},
		Backoff:   &upload.Backoff{Min: 20 * time.Millisecond, Max: 200 * time.Millisecond},
	}
	must(t, os.MkdirAll(m.home, 0o700))
	m.cwd = m.project("tide", "https://"+remote+".git")
	kubeconfig, err := cluster.Kubeconfig(cluster.User(owner), s.ns)
	must(t, err)
	must(t, os.WriteFile(m.kubeconfig(), kubeconfig, 0o600))
	identity, err := NewIdentity(m.home)
	must(t, err)
	registry, err := upload.NewRegistry(m.home)
	must(t, err)
	desk := upload.Desk{Client: m.client(), Registry: registry, Namespace: s.ns, Owner: owner, Memory: memory, PublicKey: identity.Recipient(), Version: "test"}
	must(t, desk.Register(t.Context()))
	_, err = WriteBaseline(m.home, m.projects())
	must(t, err)
	m.config = note.Config{
		Server: cluster.Admin().Host, Kubeconfig: m.kubeconfig(), Namespace: s.ns, Memory: memory, StoreHost: gateway.Endpoint,
		Owner: owner, Workstation: registry.Name(), Daemon: "/nowhere", ConsentedAt: time.Now(), IdleExitSeconds: -1,
	}
	m.save()
	return m
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (m *machine) save()              { must(m.t, note.SaveConfig(m.home, m.config)) }
func (m *machine) kubeconfig() string { return filepath.Join(m.user, "kubeconfig") }
func (m *machine) projects() string   { return filepath.Join(m.user, ".claude", "projects") }

func (m *machine) client() *agentkube.Client {
	m.t.Helper()
	config, err := LoadREST(m.kubeconfig(), "")
	must(m.t, err)
	c, err := agentkube.New(config)
	must(m.t, err)
	return c
}

// project makes a checkout.
func (m *machine) project(name, url string) string {
	m.t.Helper()
	dir := filepath.Join(m.user, name)
	must(m.t, os.MkdirAll(filepath.Join(dir, ".git"), 0o700))
	must(m.t, os.WriteFile(filepath.Join(dir, ".git", "HEAD"), []byte("ref: refs/heads/main\n"), 0o600))
	must(m.t, os.WriteFile(filepath.Join(dir, ".git", "config"), []byte("[remote \"origin\"]\n\turl = "+url+"\n"), 0o600))
	return dir
}

// start runs the daemon; stop lets it end and returns what it returned.
func (m *machine) start() (stop func()) {
	m.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- Run(ctx, m.options) }()
	var once atomic.Bool
	stop = func() {
		if once.Swap(true) {
			return
		}
		cancel()
		if err := <-done; err != nil {
			m.t.Errorf("daemon: %v", err)
		}
	}
	m.t.Cleanup(stop)
	return stop
}

// talk is one session's transcript as it grows.
type talk struct {
	m    *machine
	id   string
	path string
	n    int
}

func (m *machine) talk() *talk {
	id := uuid.NewString()
	return &talk{m: m, id: id, path: filepath.Join(m.projects(), "-tide", id+".jsonl")}
}

func (k *talk) name() string { return v1alpha1.SessionName(k.id, k.m.config.Owner) }

// record returns the next record.
func (k *talk) record(kind, text string) string {
	k.n++
	who := `"origin":{"kind":"human"},"promptSource":"typed",`
	content, _ := json.Marshal(text)
	if kind == "assistant" {
		who, content = "", []byte(fmt.Sprintf(`[{"type":"text","text":%s}]`, content))
	}
	return fmt.Sprintf(`{"type":%q,"uuid":"%s-%d","sessionId":%q,"cwd":%q,"gitBranch":"main",%s"message":{"role":%q,"content":%s}}`,
		kind, k.id, k.n, k.id, k.m.cwd, who, kind, content)
}

// turn appends a question and an answer, and tells of it as the hook does.
func (k *talk) turn(question, answer string) []string {
	k.m.t.Helper()
	k.hook("UserPromptSubmit")
	lines := []string{k.record("user", question), k.record("assistant", answer)}
	k.append(lines...)
	k.hook("Stop")
	return lines
}

func (k *talk) append(lines ...string) {
	k.m.t.Helper()
	must(k.m.t, os.MkdirAll(filepath.Dir(k.path), 0o700))
	file, err := os.OpenFile(k.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	must(k.m.t, err)
	_, err = file.WriteString(strings.Join(lines, "\n") + "\n")
	must(k.m.t, errors.Join(err, file.Close()))
}

// hook writes the note that the hook writes.
func (k *talk) hook(event string) {
	k.m.t.Helper()
	must(k.m.t, note.Write(k.m.home, note.Note{
		Event: event, Session: k.id, Transcript: k.path, Cwd: k.m.cwd, Entrypoint: "cli", At: time.Now(),
	}))
}

// live returns the Session; nil when there is none.
func (k *talk) live() *v1alpha1.Session {
	s := &v1alpha1.Session{}
	if err := k.m.client().Get(k.m.t.Context(), client.ObjectKey{Namespace: k.m.ns, Name: k.name()}, s); err != nil {
		return nil
	}
	return s
}

// local returns the session's state on the disk.
func (k *talk) local() spool.State {
	var s spool.State
	data, err := os.ReadFile(filepath.Join(k.m.home, SessionsDir, k.id, "state.json"))
	if err == nil {
		err = json.Unmarshal(data, &s)
	}
	if err != nil {
		return spool.State{}
	}
	return s
}

// settled waits until so many lines are verified, and nothing waits.
func (k *talk) settled(lines int64) {
	k.m.t.Helper()
	eventually(k.m.t, fmt.Sprintf("%d lines of session %s are verified", lines, k.id), func() error {
		s := k.local()
		if s.Verified.Lines != lines || len(s.Segments) > 0 {
			return fmt.Errorf("verified %d lines, %d segments wait; trouble: %v", s.Verified.Lines, len(s.Segments), k.m.trouble())
		}
		return nil
	})
}

// trouble returns what undersong status would show.
func (m *machine) trouble() map[string]string {
	s, _, err := ReadSnapshot(m.home)
	if err != nil {
		return map[string]string{"status": err.Error()}
	}
	all := map[string]string{}
	for _, trouble := range s.Trouble {
		all[trouble.Part] = trouble.Message
	}
	return all
}

// troubled waits until a part has trouble with these words; "" for none.
func (m *machine) troubled(part, words string) {
	m.t.Helper()
	eventually(m.t, fmt.Sprintf("trouble with %s: %q", part, words), func() error {
		message, has := m.trouble()[part]
		if has != (words != "") || !strings.Contains(message, words) {
			return fmt.Errorf("trouble: %v", m.trouble())
		}
		return nil
	})
}

func eventually(t *testing.T, what string, f func() error) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not seen in time: %s: %v", what, err)
		}
		<-tick.C
	}
}

// faulty fails the n-th of the calls that pass through it, before or after
// they are made, or all of them while down is set.
type faulty struct {
	calls atomic.Int64
	at    int64
	after bool
	down  atomic.Bool
	last  atomic.Value
}

var errFault = errors.New("fault of the test")

func (f *faulty) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		if f.down.Load() {
			return nil, errFault
		}
		if f.calls.Add(1) != f.at {
			return next.RoundTrip(req)
		}
		f.last.Store(req.Method + " " + req.URL.Path)
		if f.after {
			resp, err := next.RoundTrip(req)
			if err == nil {
				_ = resp.Body.Close()
			}
		}
		return nil, errFault
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// shifted is a clock that is wrong.
type shifted struct {
	clock.RealClock
	by time.Duration
}

func (s shifted) Now() time.Time                  { return s.RealClock.Now().Add(s.by) }
func (s shifted) Since(t time.Time) time.Duration { return s.Now().Sub(t) }

func keyOf(o client.Object) client.ObjectKey { return client.ObjectKeyFromObject(o) }
