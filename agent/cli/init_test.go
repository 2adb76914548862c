//go:build envtest

package cli

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/undersong-dev/undersong/agent/consent"
	"github.com/undersong-dev/undersong/agent/daemon"
	"github.com/undersong-dev/undersong/agent/note"
	"github.com/undersong-dev/undersong/agent/read"
	"github.com/undersong-dev/undersong/agent/spool"
	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/internal/redact"
	"github.com/undersong-dev/undersong/internal/segment"
	"github.com/undersong-dev/undersong/test/kube"
)

var cluster *kube.Cluster

// asCommand lets the test binary be undersong, for what needs a process.
const asCommand = "UNDERSONG_TEST_COMMAND"

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if os.Getenv(asCommand) != "" {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		return Run(ctx, NewSystem("test"), os.Args[1:])
	}
	var err error
	if cluster, err = kube.Start(context.Background(), kube.Options{}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer cluster.Stop()
	return m.Run()
}

func admin(t *testing.T) client.Client {
	t.Helper()
	c, err := cluster.Client(cluster.Admin())
	must(t, err)
	return c
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// newTeam makes a namespace with these memories, and ada in it.
func newTeam(t *testing.T, ns string, memories ...string) {
	t.Helper()
	must(t, cluster.Team(t.Context(), ns, []string{"ada"}, nil))
	for _, name := range memories {
		must(t, admin(t).Create(t.Context(), &v1alpha1.TeamMemory{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
			Spec: v1alpha1.TeamMemorySpec{
				Letta:   v1alpha1.Letta{Backend: v1alpha1.BackendAPI, BaseURL: "https://letta.example.com"},
				Agent:   v1alpha1.AgentSource{Template: &v1alpha1.AgentTemplate{Name: "memory", Model: "x/y"}},
				Store:   v1alpha1.Store{Endpoint: "https://minio.internal:9000", PublicEndpoint: "https://s3.example.com:443", Bucket: "team", CredentialsSecretRef: v1alpha1.LocalRef{Name: "store"}},
				Capture: v1alpha1.Capture{Projects: v1alpha1.CaptureProjects{Include: []string{"git.example.com/" + ns + "/*"}}},
			},
		}))
	}
}

// login writes the kubeconfig of a user.
func (m *machine) login(t *testing.T, user, ns string) string {
	t.Helper()
	data, err := cluster.Kubeconfig(cluster.User(user), ns)
	must(t, err)
	path := filepath.Join(m.dir, ".kube", "config")
	put(t, path, string(data))
	return path
}

func (m *machine) config(t *testing.T) note.Config {
	t.Helper()
	c, err := note.LoadConfig(filepath.Join(m.dir, "state"))
	must(t, err)
	return c
}

func TestInit(t *testing.T) {
	newTeam(t, "init", "main")
	m := newMachine(t)
	m.env["PATH"] = "/bin"
	kubeconfig := m.login(t, "ada", "init")
	transcript := filepath.Join(m.dir, ".claude", "projects", "-x", "old.jsonl")
	put(t, transcript, "{}\n")

	code, out, errs := m.run("init", "--yes")
	if code != 0 {
		t.Fatalf("exit %d: %s%s", code, out, errs)
	}
	for _, want := range []string{"You are ada", "git.example.com/init/*", "https://s3.example.com,", "undersong-hook", "--install-hooks"} {
		if !strings.Contains(out, want) {
			t.Errorf("there is no %q in:\n%s", want, out)
		}
	}
	got := m.config(t)
	want := note.Config{
		Version: 1, Server: cluster.Admin().Host, Context: "undersong", Kubeconfig: kubeconfig, Namespace: "init", Memory: "main",
		StoreHost: "https://s3.example.com", Owner: "ada", Workstation: got.Workstation, Daemon: filepath.Join(m.dir, "bin", "undersong"),
		Env: map[string]string{"PATH": "/bin"},
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(note.Config{}, "ConsentedAt")); diff != "" {
		t.Errorf("configuration (-want +got):\n%s", diff)
	}
	if got.ConsentedAt.IsZero() {
		t.Error("consent is not recorded")
	}
	baseline := get(t, filepath.Join(m.dir, "state", "baseline.json"))
	if want := fmt.Sprintf(`{%q:3}`, transcript); baseline != want {
		t.Errorf("baseline is %s, want %s", baseline, want)
	}
	live := &v1alpha1.Workstation{}
	must(t, admin(t).Get(t.Context(), client.ObjectKey{Namespace: "init", Name: got.Workstation}, live))
	if live.Spec.Owner != "ada" || live.Spec.MemoryRef.Name != "main" || live.Spec.GrantRequest != 1 {
		t.Errorf("workstation %+v", live.Spec)
	}
	for _, file := range []string{"config.json", "identity", "workstation", "baseline.json"} {
		if info, err := os.Stat(filepath.Join(m.dir, "state", file)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: mode %v, %v", file, info.Mode(), err)
		}
	}
	noKeys(t, filepath.Join(m.dir, "state"))
}

// noKeys checks that nothing of the kubeconfig's credentials was copied.
func noKeys(t *testing.T, dir string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	must(t, err)
	for _, file := range files {
		if data, err := os.ReadFile(file); err == nil && strings.Contains(string(data), "PRIVATE KEY") {
			t.Errorf("%s holds a key", file)
		}
	}
}

func TestInitAgain(t *testing.T) {
	newTeam(t, "again", "main", "other")
	m := newMachine(t)
	m.login(t, "ada", "again")
	first := m.mustInit(t, "--memory", "main")
	identity := get(t, filepath.Join(m.dir, "state", "identity"))
	put(t, filepath.Join(m.dir, ".claude", "projects", "-x", "later.jsonl"), "{}\n")
	put(t, filepath.Join(m.dir, "state", "sessions", "s1", "state.json"), "{}")

	t.Run("same", func(t *testing.T) {
		second := m.mustInit(t, "--memory", "main")
		if diff := cmp.Diff(first, second); diff != "" {
			t.Errorf("it changed (-first +second):\n%s", diff)
		}
		if get(t, filepath.Join(m.dir, "state", "identity")) != identity {
			t.Error("the key changed")
		}
		if strings.Contains(get(t, filepath.Join(m.dir, "state", "baseline.json")), "later") {
			t.Error("what was said since the first init would not be sent")
		}
	})
	t.Run("revoked", func(t *testing.T) {
		must(t, admin(t).Delete(t.Context(), &v1alpha1.Workstation{ObjectMeta: metav1.ObjectMeta{Namespace: "again", Name: first.Workstation}}))
		second := m.mustInit(t, "--memory", "main")
		if second.Workstation == first.Workstation || second.ConsentedAt != first.ConsentedAt {
			t.Errorf("configuration %+v", second)
		}
		if strings.Contains(get(t, filepath.Join(m.dir, "state", "baseline.json")), "later") {
			t.Error("what was said since the first init would not be sent")
		}
		if get(t, filepath.Join(m.dir, "state", "sessions", "s1", "state.json")) != "{}" {
			t.Error("the old spool is gone")
		}
		first = second
	})
	t.Run("other memory", func(t *testing.T) {
		second := m.mustInit(t, "--memory", "other")
		if second.Workstation == first.Workstation || !second.ConsentedAt.After(first.ConsentedAt) {
			t.Errorf("configuration %+v", second)
		}
		if !strings.Contains(get(t, filepath.Join(m.dir, "state", "baseline.json")), "later") {
			t.Error("the other team would hear what was said before")
		}
	})
}

// said is one line of a session, spooled.
func said() read.Batch {
	return read.Batch{
		Header: segment.Header{Stream: read.Main, EndOffset: 10, Offsets: []int64{0}, Indexes: []int64{0}, Rules: redact.RulesVersion, At: now},
		Lines:  []redact.Redacted{redact.Literal(`{"type":"user"}`)},
		Cursor: read.Cursor{Path: "/p/s.jsonl", Offset: 10, NextIndex: 1}, Moved: true, Project: &read.Project{Name: "tide", Remote: "git.example.com/alpha/tide"},
	}
}

// TestInitGoesOn: whatever becomes of a registration, what waits goes on under the
// next one of the same person and memory, and what the person chose stays.
func TestInitGoesOn(t *testing.T) {
	newTeam(t, "goeson", "main", "other")
	m := newMachine(t)
	path := m.login(t, "ada", "goeson")
	home := filepath.Join(m.dir, "state")
	first := m.mustInit(t, "--memory", "main", "--no-probe")
	first.Exclude, first.Recall, first.IdleExitSeconds = []string{"git.example.com/mine/*"}, note.RecallOff, 77
	must(t, note.SaveConfig(home, first))
	queue, err := spool.Open(spool.Options{Dir: filepath.Join(home, "sessions"), Owner: "ada", Workstation: first.Workstation})
	must(t, err)
	session, err := queue.Ensure("s", now)
	must(t, err)
	must(t, session.Append(read.Main, said()))
	gone, err := queue.Ensure("gone", now)
	must(t, err)
	must(t, gone.Withdraw())

	again := func(t *testing.T, workstation bool) {
		t.Helper()
		code, out, errs := m.run("init", "--yes", "--memory", "main", "--no-probe")
		if code != 0 {
			t.Fatalf("init: exit %d: %s%s", code, out, errs)
		}
		if !strings.Contains(out, "git.example.com/mine/*") {
			t.Errorf("it does not say what the person has excluded:\n%s", out)
		}
		c := m.config(t)
		if !c.ConsentedAt.Equal(first.ConsentedAt) || !cmp.Equal(c.Exclude, first.Exclude) || c.Recall != first.Recall || c.IdleExitSeconds != 77 {
			t.Errorf("what the person chose is not carried: %+v", c)
		}
		if (c.Workstation == first.Workstation) != workstation {
			t.Errorf("it is workstation %s, it was %s", c.Workstation, first.Workstation)
		}
		states := spool.States(filepath.Join(home, "sessions"))
		if len(states) != 2 || !states[0].Withdrawn || len(states[1].Segments) != 1 {
			t.Fatalf("the sessions are not what they were: %+v", states)
		}
		if want := segment.Start(states[1].Name, c.Workstation).String(); states[1].Verified.Chain != want {
			t.Error("the chain is another workstation's")
		}
		if strings.Contains(get(t, filepath.Join(home, "baseline.json")), "unread") {
			t.Error("what was not read yet is never sent")
		}
		first = c
	}
	unread := filepath.Join(m.dir, ".claude", "projects", "-x", "unread.jsonl")
	put(t, unread, "{}\n")
	t.Run("uninstalled", func(t *testing.T) {
		code, out, errs := m.run("uninstall", "--yes")
		if code != 0 || !strings.Contains(out, "1 segment is not archived yet. undersong init goes on with it") {
			t.Fatalf("uninstall: exit %d: %s%s", code, out, errs)
		}
		put(t, unread, "{}\n{}\n")
		again(t, true)
		silences, err := consent.LoadSilences(home)
		must(t, err)
		if len(silences.List) != 1 || silences.List[0].Ranges[unread] != (consent.Range{From: 3, To: 6}) {
			t.Errorf("what was said while it was uninstalled is not kept back: %+v", silences)
		}
	})
	t.Run("another address", func(t *testing.T) {
		put(t, path, strings.ReplaceAll(get(t, path), "127.0.0.1", "localhost"))
		again(t, true)
		if !strings.Contains(first.Server, "localhost") {
			t.Errorf("the server is %s", first.Server)
		}
	})
	t.Run("revoked", func(t *testing.T) {
		must(t, admin(t).Delete(t.Context(), &v1alpha1.Workstation{ObjectMeta: metav1.ObjectMeta{Namespace: "goeson", Name: first.Workstation}}))
		again(t, false)
	})
	t.Run("revoked, then uninstalled", func(t *testing.T) {
		must(t, admin(t).Delete(t.Context(), &v1alpha1.Workstation{ObjectMeta: metav1.ObjectMeta{Namespace: "goeson", Name: first.Workstation}}))
		if code, _, errs := m.run("uninstall", "--yes"); code != 0 {
			t.Fatal(errs)
		}
		again(t, false)
	})
	t.Run("another memory", func(t *testing.T) {
		before := get(t, filepath.Join(home, "config.json"))
		code, _, errs := m.run("init", "--yes", "--memory", "other", "--no-probe")
		if code == 0 || !strings.Contains(errs, "1 segment is not archived yet under an earlier registration") || !strings.Contains(errs, "--discard") {
			t.Errorf("exit %d: %s", code, errs)
		}
		if get(t, filepath.Join(home, "config.json")) != before || len(spool.States(filepath.Join(home, "sessions"))) != 2 {
			t.Error("a refused init changed something")
		}
		c := m.mustInit(t, "--memory", "other", "--no-probe", "--discard")
		if c.Memory != "other" || !cmp.Equal(c.Exclude, first.Exclude) || !c.ConsentedAt.After(first.ConsentedAt) || len(spool.States(filepath.Join(home, "sessions"))) != 0 {
			t.Errorf("configuration %+v", c)
		}
	})
	t.Run("a configuration that cannot be used", func(t *testing.T) {
		must(t, os.Chmod(filepath.Join(home, "config.json"), 0o644))
		code, out, errs := m.run("init", "--yes", "--memory", "other", "--no-probe")
		if code != 0 || !strings.Contains(out, "It is kept as") || !strings.Contains(get(t, filepath.Join(home, "config.json.bad")), "mine") {
			t.Errorf("exit %d: %s%s", code, out, errs)
		}
	})
	t.Run("switched off", func(t *testing.T) {
		c := m.config(t)
		c.Off = true
		must(t, note.SaveConfig(home, c))
		if _, out, _ := m.run("init", "--yes", "--memory", "other", "--no-probe"); !m.config(t).Off || !strings.Contains(out, "is switched off") {
			t.Errorf("it was switched on: %s", out)
		}
	})
}

func (m *machine) mustInit(t *testing.T, args ...string) note.Config {
	t.Helper()
	if code, out, errs := m.run(append([]string{"init", "--yes"}, args...)...); code != 0 {
		t.Fatalf("init: exit %d: %s%s", code, out, errs)
	}
	return m.config(t)
}

func TestInitByJoinFile(t *testing.T) {
	newTeam(t, "joined", "main")
	m := newMachine(t)
	m.login(t, "ada", "elsewhere")
	join := map[string]string{
		"server": cluster.Admin().Host, "caData": base64.StdEncoding.EncodeToString(cluster.Admin().CAData),
		"namespace": "joined", "memory": "main", "storeHost": "https://s3.example.com",
	}
	path := filepath.Join(m.dir, "join.yaml")
	with := func(key, value string) string {
		changed := map[string]string{}
		maps.Copy(changed, join)
		changed[key] = value
		text, err := json.Marshal(changed) // is YAML, too
		must(t, err)
		put(t, path, string(text))
		_, _, errs := m.run("init", "--yes", "--join", path)
		return errs
	}
	for key, want := range map[string]string{
		"server":    "no context leads to",
		"caData":    "no context leads to",
		"storeHost": "which is right",
		"memory":    "there is no TeamMemory x",
		"extra":     "is not a join file",
	} {
		if errs := with(key, "x"); !strings.Contains(errs, want) {
			t.Errorf("wrong %s: printed %q", key, errs)
		}
	}
	if _, err := note.LoadConfig(filepath.Join(m.dir, "state")); err == nil {
		t.Fatal("something was recorded")
	}
	if errs := with("memory", "main"); errs != "" {
		t.Fatalf("printed %q", errs)
	}
	if c := m.config(t); c.Namespace != "joined" || c.Context != "undersong" {
		t.Errorf("configuration %+v", c)
	}
}

func TestInitSaysWhatIsWrong(t *testing.T) {
	newTeam(t, "wrong", "main", "other")
	newTeam(t, "empty")
	type test struct {
		reason string
		args   []string
		setup  func(t *testing.T, m *machine)
		want   string
	}
	expired := func(t *testing.T, m *machine) {
		t.Helper()
		config := cluster.User("ada")
		config.CertData, config.KeyData, config.BearerToken = nil, nil, "expired"
		data, err := cluster.Kubeconfig(config, "wrong")
		must(t, err)
		put(t, filepath.Join(m.dir, ".kube", "config"), string(data))
	}
	for name, tt := range map[string]test{
		"no kubeconfig": {"nothing to go by", nil, func(t *testing.T, m *machine) {
			t.Helper()
			must(t, os.RemoveAll(filepath.Join(m.dir, ".kube")))
		}, "log in to your cluster first"},
		"broken kubeconfig": {"not quoted", nil, func(t *testing.T, m *machine) {
			t.Helper()
			put(t, filepath.Join(m.dir, ".kube", "config"), "{token: hunter2")
		}, "is not a kubeconfig"},
		"no context":       {"named wrongly", []string{"--context", "x"}, nil, `has no context "x"`},
		"no memory":        {"named wrongly", []string{"--memory", "x"}, nil, "there is no TeamMemory x in namespace wrong"},
		"several memories": {"not named", nil, nil, "choose one with --memory: main, other"},
		"no memory at all": {"the team is not set up", []string{"--namespace", "empty"}, nil, "there is no TeamMemory in namespace empty"},
		"no role": {"not in the team", []string{"--memory", "main"}, func(t *testing.T, m *machine) {
			t.Helper()
			m.login(t, "eve", "wrong")
		}, "ClusterRole undersong-workstation"},
		"expired login": {"log in", []string{"--memory", "main"}, expired, "log in again"},
		"no hook binary": {"half an installation", []string{"--memory", "main"}, func(t *testing.T, m *machine) {
			t.Helper()
			must(t, os.Remove(filepath.Join(m.dir, "bin", "undersong-hook")))
		}, "install both binaries"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			m.login(t, "ada", "wrong")
			if tt.setup != nil {
				tt.setup(t, m)
			}
			code, _, errs := m.run(append([]string{"init", "--yes"}, tt.args...)...)
			if code != 1 || !strings.Contains(errs, tt.want) || strings.Contains(errs, "hunter2") {
				t.Errorf("%s: exit %d, printed %q, want %q", tt.reason, code, errs, tt.want)
			}
			if _, err := os.Stat(filepath.Join(m.dir, "state", "config.json")); err == nil {
				t.Errorf("%s: something was recorded", tt.reason)
			}
		})
	}
}

func TestConsentIsAsked(t *testing.T) {
	newTeam(t, "asked", "main")
	for answer, agreed := range map[string]bool{"": false, "\n": false, "n\n": false, "maybe\n": false, "y\n": true, "YES\n": true} {
		m := newMachine(t)
		m.login(t, "ada", "asked")
		m.Terminal = func() bool { return true }
		m.In = strings.NewReader(answer)
		code, _, errs := m.run("init")
		if (code == 0) != agreed {
			t.Errorf("answer %q: exit %d, printed %q", answer, code, errs)
		}
		if _, err := os.Stat(filepath.Join(m.dir, "state", "config.json")); (err == nil) != agreed {
			t.Errorf("answer %q: recorded: %v", answer, err)
		}
	}
	m := newMachine(t)
	m.login(t, "ada", "asked")
	if _, _, errs := m.run("init"); !strings.Contains(errs, "--yes") {
		t.Errorf("without a terminal: printed %q", errs)
	}
}

// TestARealDaemonIsStopped starts a process, with a kubeconfig in its
// environment that nobody must look at.
func TestARealDaemonIsStopped(t *testing.T) {
	newTeam(t, "process", "main")
	m := newMachine(t)
	m.login(t, "ada", "process")
	m.mustInit(t, "--install-hooks")
	self, err := os.Executable()
	must(t, err)
	cmd := exec.Command(self, "daemon", "run")
	cmd.Env = append(os.Environ(), asCommand+"=1", "KUBECONFIG=/evil")
	cmd.Dir = m.dir
	cmd.Stderr = os.Stderr
	must(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // it may have ended
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(get(t, filepath.Join(m.dir, "state", "daemon.log")))
		}
	})
	eventually(t, "the daemon is connected", func() bool {
		s, known, err := daemon.ReadSnapshot(filepath.Join(m.dir, "state"))
		return err == nil && known && s.Online
	})
	if code, out, _ := m.run("daemon", "status"); code != 0 || !strings.Contains(out, fmt.Sprintf("process %d,", cmd.Process.Pid)) {
		t.Errorf("status: exit %d, printed %q", code, out)
	}
	if _, out, _ := m.run("status"); !strings.Contains(out, ", connected") {
		t.Errorf("status: printed %q", out)
	}
	if code, out, errs := m.run("daemon", "stop"); code != 0 || out != "stopped\n" {
		t.Errorf("stop: exit %d, printed %q %q", code, out, errs)
	}
	if err := <-done; err != nil {
		t.Errorf("the daemon: %v", err)
	}
	if !strings.Contains(get(t, filepath.Join(m.dir, ".claude", "settings.json")), "undersong-hook") {
		t.Error("the hooks are not installed")
	}
}

func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !f() {
		if time.Now().After(deadline) {
			t.Fatalf("not seen in time: %s", what)
		}
		<-tick.C
	}
}

// TestJoinFile: what admin join prints is what init --join takes.
func TestJoinFile(t *testing.T) {
	newTeam(t, "joinfile", "main")
	m := newMachine(t)
	m.login(t, "ada", "joinfile")
	code, out, errs := m.run("admin", "join")
	if code != 0 {
		t.Fatalf("exit %d: %s", code, errs)
	}
	for _, want := range []string{"namespace: joinfile", "memory: main", "storeHost: https://s3.example.com", "server: " + cluster.Admin().Host, "caData: "} {
		if !strings.Contains(out, want) {
			t.Errorf("there is no %q in:\n%s", want, out)
		}
	}
	path := filepath.Join(m.dir, "join.yaml")
	put(t, path, out)
	if code, out, errs := m.run("init", "--join", path, "--yes"); code != 0 {
		t.Fatalf("init --join: exit %d: %s%s", code, out, errs)
	}
	if c := m.config(t); c.Memory != "main" || c.Namespace != "joinfile" {
		t.Errorf("joined %s/%s", c.Namespace, c.Memory)
	}
	if code, out, errs := m.run("sessions"); code != 0 || !strings.Contains(out, "no sessions in the memory yet") {
		t.Errorf("sessions: exit %d: %s%s", code, out, errs)
	}
	if code, out, errs := m.run("sessions", "--project", "git.example.com/**"); code != 0 || !strings.Contains(out, "no session of the project git.example.com/**") {
		t.Errorf("sessions of a project: exit %d: %s%s", code, out, errs)
	}
	if code, out, errs := m.run("uninstall", "--yes"); code != 0 || !strings.Contains(out, "is no longer registered") {
		t.Errorf("uninstall: exit %d: %s%s", code, out, errs)
	}
	left := &v1alpha1.WorkstationList{}
	must(t, admin(t).List(t.Context(), left, client.InNamespace("joinfile")))
	if len(left.Items) != 0 {
		t.Errorf("the Workstation is still there: %s", left.Items[0].Name)
	}
}

// TestDoctorAsksTheCluster: each thing that only the cluster knows.
func TestDoctorAsksTheCluster(t *testing.T) {
	newTeam(t, "doctor", "main")
	m := newMachine(t)
	path := m.login(t, "ada", "doctor")
	if code, out, errs := m.run("init", "--yes", "--install-hooks"); code != 0 {
		t.Fatalf("exit %d: %s%s", code, out, errs)
	}
	store := httptest.NewServer(http.NotFoundHandler())
	defer store.Close()
	change := func(f func(*note.Config)) {
		c := m.config(t)
		f(&c)
		must(t, note.SaveConfig(filepath.Join(m.dir, "state"), c))
	}
	change(func(c *note.Config) { c.StoreHost = store.URL })
	expect := func(what string, want verdict, says string) {
		t.Helper()
		_, found := examined(t, m)
		if got := found[what]; got.Verdict != want || !strings.Contains(got.Message, says) {
			t.Errorf("%s: found %+v; want %s with %q", what, got, want, says)
		}
	}
	for what, says := range map[string]string{
		"kubeconfig": path, "login": "ada", "rights": "all that a workstation needs", "clock": "", "object store": "answers",
	} {
		expect(what, fine, says)
	}
	expect("memory", broken, "no controller has looked at it")
	expect("workstation", broken, "nobody answered")

	later := clocktesting.NewFakeClock(time.Now().Add(time.Hour))
	m.Clock = later
	expect("clock", broken, "set it")
	m.Clock = clock.RealClock{}

	if code, out, _ := m.run("login"); code != 0 || !strings.Contains(out, "You are ada") {
		t.Errorf("login: exit %d, %s", code, out)
	}
	m.login(t, "eve", "doctor")
	expect("login", broken, "this workstation is ada's")
	if code, _, errs := m.run("login"); code == 0 || !strings.Contains(errs, "logged in as eve") {
		t.Errorf("login as another: exit %d, %s", code, errs)
	}
	m.login(t, "ada", "doctor")
	must(t, cluster.Team(t.Context(), "doctor", []string{"bob"}, nil))
	expect("rights", broken, "undersong-workstation")
	if code, _, errs := m.run("init", "--yes"); code == 0 || !strings.Contains(errs, "ClusterRole undersong-workstation") {
		t.Errorf("init without rights: exit %d, %s", code, errs)
	}
	must(t, cluster.Team(t.Context(), "doctor", []string{"ada"}, nil))
	must(t, admin(t).DeleteAllOf(t.Context(), &v1alpha1.Workstation{}, client.InNamespace("doctor")))
	expect("workstation", broken, "revoked")
	must(t, admin(t).DeleteAllOf(t.Context(), &v1alpha1.TeamMemory{}, client.InNamespace("doctor")))
	expect("memory", broken, "there is no TeamMemory")
	store.Close()
	expect("object store", broken, "cannot be reached")
	change(func(c *note.Config) { c.Server = "https://elsewhere.example.com" })
	expect("kubeconfig", broken, "another API server")
	must(t, os.Remove(path))
	expect("kubeconfig", broken, "there is no file")
}
