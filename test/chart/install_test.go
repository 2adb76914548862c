//go:build envtest

package chart

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/test/kube"
	"github.com/undersong-dev/undersong/test/replay"
	"github.com/undersong-dev/undersong/test/stack"
	"github.com/undersong-dev/undersong/test/tools"
)

const (
	within = time.Minute
	team   = "alpha"
	remote = "https://git.example.com/lighthouse/lantern.git"
)

// installed is a cluster in which nothing of undersong was before helm.
type installed struct {
	t          *testing.T
	parts      *stack.Stack
	kubeconfig string
	memory     string
	values     string
	bin        string
}

func (i *installed) must(err error) {
	i.t.Helper()
	if err != nil {
		i.t.Fatal(err)
	}
}

// values are those of a team of loopback's.
func values(parts *stack.Stack, memory string) map[string]any {
	return map[string]any{
		"teams": []any{map[string]any{
			"namespace": team, "users": []any{"ada", "bob"}, "leads": []any{"lena"},
			"memory": map[string]any{"name": memory, "spec": map[string]any{
				"letta":   map[string]any{"backend": "API", "baseURL": parts.LettaServer().URL, "insecure": "Allow", "credentialsSecretRef": map[string]any{"name": kube.LettaSecret}},
				"agent":   map[string]any{"template": map[string]any{"name": "Team memory", "model": "rules/stand-in"}},
				"store":   map[string]any{"endpoint": parts.S3.Endpoint, "insecure": "Allow", "bucket": team, "credentialsSecretRef": map[string]any{"name": kube.StoreSecret}},
				"capture": map[string]any{"projects": map[string]any{"include": []any{"git.example.com/lighthouse/**"}}},
			}},
		}},
	}
}

func start(t *testing.T, memory string) *installed {
	t.Helper()
	i := &installed{t: t, memory: memory}
	dir := t.TempDir()
	i.bin = filepath.Join(dir, "bin")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", i.bin+"/", "./cmd/...")
	build.Dir = tools.Root()
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	var err error
	i.parts, err = stack.Start(t.Context(), stack.Options{Dir: dir, Bin: i.bin, Bare: true, Keep: true})
	i.must(err)
	t.Cleanup(i.parts.Stop)
	file, err := i.parts.Cluster.Kubeconfig(i.parts.Cluster.Admin(), "default")
	i.must(err)
	i.kubeconfig = filepath.Join(dir, "admin.kubeconfig")
	i.must(os.WriteFile(i.kubeconfig, file, 0o600))
	data, err := yaml.Marshal(values(i.parts, memory))
	i.must(err)
	i.values = filepath.Join(dir, "values.yaml")
	i.must(os.WriteFile(i.values, data, 0o600))
	return i
}

// helm runs helm on the release; what it prints goes to the test's log.
func (i *installed) helm(args ...string) error {
	i.t.Helper()
	out, err := helm(i.t, i.kubeconfig, append(args, "--namespace", space)...)
	if err == nil && args[0] != "get" {
		i.t.Logf("helm %s:\n%s", strings.Join(args[:1], " "), out)
	}
	return err
}

// TestInstall is what a platform engineer does, and what a developer then sees:
// helm install, the controller with the chart's ServiceAccount, init, one hook
// call, a whisper; then an upgrade, a rollback, and everything is still there;
// then an uninstall, and what people made is still there.
func TestInstall(t *testing.T) {
	i := start(t, "shared")
	ctx := t.Context()

	// A team without its namespace is seen before anything is written.
	err := i.helm("install", release, chart(), "--values", i.values, "--create-namespace")
	if err == nil || !strings.Contains(err.Error(), "there is no namespace alpha") {
		t.Fatalf("install without the team's namespace: got %v; want it refused with a word on the namespace", err)
	}
	i.must(i.parts.Admin.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: team}}))
	made, err := i.parts.Furnish(ctx, team, "shared", i.parts.LettaServer())
	i.must(err)
	if err := i.helm("uninstall", release); err != nil && !strings.Contains(err.Error(), "not found") {
		t.Fatal(err)
	}
	i.must(i.helm("install", release, chart(), "--values", i.values, "--create-namespace"))
	i.must(i.parts.Cluster.Enforced(ctx))

	_, err = i.parts.StartController(ctx)
	i.must(err)
	i.check(true)

	// What a lead pins is the brief of every new session.
	lena, err := i.parts.Cluster.Client(i.parts.Cluster.User("lena"))
	i.must(err)
	i.must(lena.Create(ctx, &v1alpha1.MemoryBlock{
		ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: v1alpha1.MemoryBlockName("shared", "", "brief")},
		Spec: v1alpha1.MemoryBlockSpec{
			MemoryRef: v1alpha1.LocalRef{Name: "shared"}, Label: "brief", Mode: v1alpha1.BlockPinned, Value: "The lantern must be lit before dusk.",
		},
	}))
	ada, s := i.join(made, "ada")
	_, err = s.Start(ctx, "startup")
	i.must(err)
	i.turn(s, "Remember: release tags always start with the letter v.", "Noted.")
	i.settled(made, s.Lines())

	// Another developer: the brief at the start, the whisper at a prompt.
	bob, other := i.join(made, "bob")
	played := []*replay.Session{s}
	i.must(stack.Eventually(ctx, within, func() error {
		other = replay.New(bob, bob.ClaudeDir(), other.Cwd, uuid.NewString()) // a session begins once
		played = append(played, other)
		start, err := other.Start(ctx, "startup")
		i.must(err)
		first, err := other.Prompt(ctx, "Good morning.")
		i.must(err)
		i.must(other.Answer(ctx, "Good morning."))
		i.must(other.Stop(ctx, "Good morning."))
		if !strings.Contains(start.Context+first.Context, "The lantern must be lit before dusk.") {
			return fmt.Errorf("no brief at the start, nor at the first prompt: %q", start.Raw+first.Raw)
		}
		return nil
	}))
	i.turn(other, "With which letter do release tags start?", "I shall look it up.")
	i.must(stack.Eventually(ctx, within, func() error {
		out, err := bob.Run(ctx, "status", "--json")
		if err == nil && !strings.Contains(out, `"whispersWaiting": 1`) {
			err = errors.New("no whisper has reached bob's workstation")
		}
		return err
	}))
	out, err := other.Prompt(ctx, "Go on.")
	i.must(err)
	if !strings.Contains(out.Context, "letter v") || !strings.Contains(out.Context, "<team_memory ") {
		t.Errorf("the prompt was given %q; want the whisper", out.Context)
	}
	i.must(other.Answer(ctx, "Then I go on."))
	i.must(other.Stop(ctx, "Then I go on."))
	before := i.settled(made, lines(played))

	// The same people, the same objects: an upgrade and a rollback change the
	// controller and nothing that people made.
	i.must(i.helm("upgrade", release, chart(), "--values", i.values, "--set", "replicas=1,logLevel=debug"))
	i.same(before, made)
	i.must(i.helm("rollback", release, "1"))
	i.same(before, made)
	i.turn(s, "Said after the rollback.", "Heard.")
	before = i.settled(made, lines(played))
	if ada.DaemonPID() == 0 {
		t.Error("ada's daemon did not live through the upgrade")
	}

	// A CRD of another version is seen.
	crd := &metav1.PartialObjectMetadata{}
	crd.SetGroupVersionKind(crdKind)
	i.must(i.parts.Admin.Get(ctx, types.NamespacedName{Name: "sessions.undersong.dev"}, crd))
	i.must(i.parts.Admin.Patch(ctx, crd, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"undersong.dev/schema":"old"}}}`))))
	if err := i.helm("upgrade", release, chart(), "--values", i.values); err == nil || !strings.Contains(err.Error(), "helm show crds") {
		t.Errorf("an upgrade over old CRDs: got %v; want it refused with the command that helps", err)
	}
	i.applyCRDs()
	i.must(i.helm("upgrade", release, chart(), "--values", i.values))
	i.same(before, made)

	// Without a policy nothing is granted, and the check says so.
	i.must(i.helm("uninstall", release))
	i.same(before, made)
	i.check(false)
	i.must(i.helm("install", release, chart(), "--values", i.values, "--take-ownership"))
	i.must(i.parts.Cluster.Enforced(ctx))
	i.same(before, made)
}

// join is what a developer does with the file that a lead hands out.
func (i *installed) join(made *stack.Team, user string) (*stack.Workstation, *replay.Session) {
	i.t.Helper()
	ctx := i.t.Context()
	desk, err := i.parts.Workstation(made, user, user)
	i.must(err)
	i.t.Cleanup(desk.StopDaemon)
	file, err := desk.Run(ctx, "admin", "join", "--kubeconfig", i.kubeconfig, "--namespace", team)
	i.must(err)
	path := filepath.Join(desk.Home, "join.yaml")
	i.must(os.WriteFile(path, []byte(file), 0o600))
	_, err = desk.Run(ctx, "init", "--join", path, "--kubeconfig", desk.Kubeconfig(), "--yes", "--install-hooks")
	i.must(err)
	cwd, err := desk.Project("lantern", remote)
	i.must(err)
	return desk, replay.New(desk, desk.ClaudeDir(), cwd, uuid.NewString())
}

// check runs what helm test runs in a Pod, with the controller's own token.
func (i *installed) check(fine bool) {
	i.t.Helper()
	wait := "30s"
	if !fine {
		wait = "1s"
	}
	cmd := exec.CommandContext(i.t.Context(), filepath.Join(i.bin, "undersong-controller"), "check",
		"--kubeconfig", filepath.Join(i.parts.Dir, "controller.kubeconfig"), "--leader-elect-namespace", space, "--wait", wait)
	out, err := cmd.CombinedOutput()
	i.t.Logf("undersong-controller check:\n%s", out)
	if fine != (err == nil) {
		i.t.Errorf("undersong-controller check: %v; want fine: %v", err, fine)
	}
}

func (i *installed) turn(s *replay.Session, prompt, answer string) {
	i.t.Helper()
	_, err := s.Prompt(i.t.Context(), prompt)
	i.must(err)
	i.must(s.Answer(i.t.Context(), answer))
	i.must(s.Stop(i.t.Context(), answer))
}

// settled waits until the controller has nothing left to do, and returns the
// team's Sessions.
func (i *installed) settled(made *stack.Team, lines int64) []v1alpha1.Session {
	i.t.Helper()
	var last []v1alpha1.Session
	i.must(stack.Eventually(i.t.Context(), within, func() error {
		var err error
		if last, err = made.Sessions(i.t.Context()); err != nil {
			return err
		}
		var uploaded int64
		for n := range last {
			if uploaded += last[n].Spec.Lines; !stack.CaughtUp(&last[n]) {
				return fmt.Errorf("the session %s is not caught up", last[n].Name)
			}
		}
		if uploaded != lines {
			return fmt.Errorf("%d lines are uploaded, want %d", uploaded, lines)
		}
		return nil
	}))
	return last
}

func lines(sessions []*replay.Session) int64 {
	var n int64
	for _, s := range sessions {
		n += s.Lines()
	}
	return n
}

func total(sessions []v1alpha1.Session) int64 {
	var lines int64
	for n := range sessions {
		lines += sessions[n].Spec.Lines
	}
	return lines
}

// same compares the Sessions and the TeamMemory with what they were.
func (i *installed) same(before []v1alpha1.Session, made *stack.Team) {
	i.t.Helper()
	now := i.settled(made, total(before))
	if len(now) != len(before) {
		i.t.Fatalf("%d Sessions, want %d", len(now), len(before))
	}
	for n := range now {
		if diff := cmp.Diff(before[n].UID, now[n].UID) + cmp.Diff(before[n].Spec, now[n].Spec) + cmp.Diff(before[n].Status.SyncState, now[n].Status.SyncState); diff != "" {
			i.t.Errorf("Session %s changed (-before +now):\n%s", now[n].Name, diff)
		}
	}
	err := i.parts.Admin.Get(i.t.Context(), types.NamespacedName{Namespace: team, Name: i.memory}, &v1alpha1.TeamMemory{})
	if apierrors.IsNotFound(err) {
		i.t.Error("the TeamMemory is gone")
	}
}

// applyCRDs is the upgrade path that the preflight names.
func (i *installed) applyCRDs() {
	i.t.Helper()
	crds := mustHelm(i.t, "", "show", "crds", chart())
	kubectl, err := tools.Path("kubectl")
	i.must(err)
	cmd := exec.CommandContext(i.t.Context(), kubectl, "--kubeconfig", i.kubeconfig, "apply", "--server-side", "--force-conflicts", "-f", "-")
	cmd.Stdin = strings.NewReader(crds)
	if out, err := cmd.CombinedOutput(); err != nil {
		i.t.Fatal(fmt.Errorf("kubectl apply: %w: %s", err, out))
	}
}

var crdKind = apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition")
