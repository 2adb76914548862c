//go:build cluster

package cluster

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/uuid"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/internal/letta/api"
	"github.com/undersong-dev/undersong/internal/segment"
	"github.com/undersong-dev/undersong/test/kube"
	"github.com/undersong-dev/undersong/test/replay"
	"github.com/undersong-dev/undersong/test/stack"
	"github.com/undersong-dev/undersong/test/tools"
	"github.com/undersong-dev/undersong/test/versity"
)

var (
	image  = flag.String("image", "", "the controller's image as make image names it, REPOSITORY:TAG")
	images = flag.String("images", "", "a folder of image archives to import")
	keep   = flag.Bool("keep", false, "leave the cluster running, to look at it: hack/node/node in kubectl ..., then down")
)

const (
	within = 5 * time.Minute // other programs may have the processors
	system = "undersong-system"
	team   = "alpha"
	remote = "https://git.example.com/lighthouse/lantern.git"

	storeURL  = "http://10.77.0.1:30900"
	storeID   = "store"
	storeKey  = "key-of-the-store-in-the-cluster"
	lettaURL  = "http://10.96.77.77:8283" // as pods reach it
	lettaDoor = "http://10.77.0.1:30283"  // as we do
	lettaKey  = "key-of-letta-in-the-cluster"
)

func script() string { return filepath.Join(tools.Root(), "hack", "node", "node") }

// node runs hack/node/node.
func node(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, script(), args...)
	cmd.Env = append(os.Environ(), "NODE_PEOPLE=ada bob lena", "NODE_TEAM="+team)
	var out, trouble bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &trouble
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("hack/node/node %s: %w: %s", strings.Join(args[:min(4, len(args))], " "), err, trouble.String())
	}
	return out.String(), nil
}

// world is the cluster with one release and one team in it.
type world struct {
	t        *testing.T
	api      client.WithWatch
	parts    *stack.Stack
	team     *stack.Team
	values   string
	said     []string
	sessions []*replay.Session
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// in runs a command in the cluster's network.
func (w *world) in(args ...string) string {
	w.t.Helper()
	out, err := node(w.t.Context(), append([]string{"in"}, args...)...)
	w.must(err)
	return out
}

// step says where we are; a failure is then easy to place.
func (w *world) step(what string) { w.t.Log(time.Now().Format("15:04:05"), what) }

func start(t *testing.T) *world {
	t.Helper()
	if out, err := node(t.Context(), "check"); err != nil {
		t.Skipf("SKIPPED: no cluster of one node can be made here: %s", strings.TrimSpace(out))
	}
	if *image == "" || *images == "" {
		t.Fatal("-image and -images are not given: run make e2e-cluster")
	}
	w := &world{t: t}
	archives, err := filepath.Glob(filepath.Join(*images, "*.tar"))
	w.must(err)
	t.Cleanup(func() {
		if t.Failed() {
			w.explain()
		}
		if *keep {
			return
		}
		if _, err := node(context.Background(), "down"); err != nil {
			t.Error(err)
		}
		nothingLeft(t)
	})
	w.step("starting the node")
	_, err = node(t.Context(), append([]string{"up"}, archives...)...)
	w.must(err)
	_, err = node(t.Context(), "door")
	w.must(err)

	ctrl.SetLogger(logr.Discard())
	cfg, err := clientcmd.BuildConfigFromFlags("", w.pki("admin"))
	w.must(err)
	scheme := runtime.NewScheme()
	w.must(errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)))
	w.api, err = client.NewWithWatch(cfg, client.Options{Scheme: scheme})
	w.must(err)
	dir := t.TempDir()
	w.parts = stack.Outside(dir, filepath.Join(tools.Root(), "bin"), w.api, &versity.Server{Endpoint: storeURL, AccessKeyID: storeID, SecretAccessKey: storeKey})
	w.team = w.parts.Adopt(team, "shared", team)
	w.values = filepath.Join(dir, "values.yaml")
	return w
}

func (w *world) pki(name string) string {
	dir := os.Getenv("NODE_DIR")
	if dir == "" {
		dir = filepath.Join(tools.Root(), ".node")
	}
	return filepath.Join(dir, "rt", "pki", name+".kubeconfig")
}

// nothingLeft: the machine is as it was.
func nothingLeft(t *testing.T) {
	t.Helper()
	groups, err := filepath.Glob("/sys/fs/cgroup/*/undersong-node")
	if err != nil || len(groups) > 0 {
		t.Errorf("cgroups are left: %v %v", groups, err)
	}
	if _, err := os.Stat("/sys/class/net/onenode0"); err == nil {
		t.Error("the door onenode0 is left")
	}
}

// explain prints what a person would look at.
func (w *world) explain() {
	for _, args := range [][]string{
		{"kubectl", "get", "pods", "-A", "-o", "wide"},
		{"kubectl", "get", "sessions,teammemories,workstations", "-A", "-o", "wide"},
		{"kubectl", "get", "events", "-A", "--sort-by=.lastTimestamp"},
		{"kubectl", "logs", "-n", system, "-l", "app.kubernetes.io/component=controller", "--tail=40", "--prefix"},
	} {
		out, err := node(context.Background(), append([]string{"in"}, args...)...)
		w.t.Logf("%s: %v\n%s", strings.Join(args, " "), err, out[max(0, len(out)-5000):])
	}
}

// furnish makes what a platform engineer has before: the store and Letta, two
// namespaces, a bucket, two Secrets.
func (w *world) furnish() {
	w.t.Helper()
	w.in("kubectl", "apply", "-f", filepath.Join(tools.Root(), "test", "cluster", "parts.yaml"))
	w.in("kubectl", "create", "namespace", team)
	w.in("kubectl", "create", "namespace", system)
	w.in("kubectl", "label", "namespace", system, "pod-security.kubernetes.io/enforce=restricted")
	for name, data := range map[string][]string{
		kube.LettaSecret: {"10.96.77.77:8283", "apiKey=" + lettaKey},
		kube.StoreSecret: {"10.77.0.1:30900", "accessKeyID=" + storeID, "secretAccessKey=" + storeKey},
	} {
		args := []string{"kubectl", "-n", team, "create", "secret", "generic", name}
		for _, literal := range data[1:] {
			args = append(args, "--from-literal="+literal)
		}
		w.in(args...)
		w.in("kubectl", "-n", team, "annotate", "secret", name, "undersong.dev/hosts="+data[0])
	}
	for _, part := range []string{"store", "letta"} {
		w.in("kubectl", "-n", "parts", "rollout", "status", "statefulset/"+part, "--timeout=300s")
	}
	gateway, err := tools.Path("versitygw")
	w.must(err)
	w.must(stack.Eventually(w.t.Context(), within, func() error { // a Service answers a moment after its pods
		create := exec.CommandContext(w.t.Context(), gateway, "admin", "--endpoint-url", storeURL, "--region", versity.Region, "create-bucket", "--bucket", team, "--owner", storeID)
		create.Env = append(os.Environ(), "ADMIN_ACCESS_KEY_ID="+storeID, "ADMIN_SECRET_ACCESS_KEY="+storeKey)
		out, err := create.CombinedOutput()
		if err != nil && !strings.Contains(string(out), "BucketAlready") {
			return fmt.Errorf("make the bucket: %w: %s", err, out)
		}
		return nil
	}))
	repository, tag, _ := strings.Cut(*image, ":")
	values := map[string]any{
		"image":          map[string]any{"repository": repository, "tag": tag, "pullPolicy": "Never"},
		"leaderElection": map[string]any{"leaseSeconds": 15, "renewSeconds": 10, "retrySeconds": 2},
		"drainSeconds":   30,
		"teams": []any{map[string]any{
			"namespace": team, "users": []any{"ada", "bob"}, "leads": []any{"lena"},
			"memory": map[string]any{"name": "shared", "spec": map[string]any{
				"letta":   map[string]any{"backend": "API", "baseURL": lettaURL, "insecure": "Allow", "credentialsSecretRef": map[string]any{"name": kube.LettaSecret}},
				"agent":   map[string]any{"template": map[string]any{"name": "Team memory", "model": "rules/stand-in"}},
				"store":   map[string]any{"endpoint": storeURL, "insecure": "Allow", "bucket": team, "credentialsSecretRef": map[string]any{"name": kube.StoreSecret}},
				"capture": map[string]any{"projects": map[string]any{"include": []any{"git.example.com/lighthouse/**"}}},
			}},
		}},
	}
	data, err := yaml.Marshal(values)
	w.must(err)
	w.must(os.WriteFile(w.values, data, 0o600))
}

func (w *world) helm(command string, args ...string) {
	w.t.Helper()
	w.in(append([]string{"helm", command, "undersong", "-n", system}, args...)...)
}

func chart() string { return filepath.Join(tools.Root(), "charts", "undersong") }

// join is what a developer does with the file that a lead hands out.
func (w *world) join(user string) (*stack.Workstation, *replay.Session) {
	w.t.Helper()
	ctx := w.t.Context()
	kubeconfig, err := os.ReadFile(w.pki(user))
	w.must(err)
	desk, err := w.parts.WorkstationWith(w.team, user, user, kubeconfig)
	w.must(err)
	w.t.Cleanup(desk.StopDaemon)
	w.must(desk.Init(ctx, "--install-hooks"))
	cwd, err := desk.Project("lantern", remote)
	w.must(err)
	s := replay.New(desk, desk.ClaudeDir(), cwd, uuid.NewString())
	w.sessions = append(w.sessions, s)
	_, err = s.Start(ctx, "startup")
	w.must(err)
	return desk, s
}

func (w *world) turn(s *replay.Session, prompt, answer string) replay.Output {
	w.t.Helper()
	out, err := s.Prompt(w.t.Context(), prompt)
	w.must(err)
	w.must(s.Answer(w.t.Context(), answer))
	w.must(s.Stop(w.t.Context(), answer))
	w.said = append(w.said, prompt, answer)
	return out
}

// inTurn waits until a delivery is on its way to Letta.
func (w *world) inTurn() {
	w.t.Helper()
	w.must(stack.Eventually(w.t.Context(), within, func() error {
		sessions, err := w.team.Sessions(w.t.Context())
		if err != nil {
			return err
		}
		for i := range sessions {
			if sync := sessions[i].Status.SyncState; sync != nil && sync.Delivery != nil && sync.Delivery.Phase == v1alpha1.DeliverySending {
				return nil
			}
		}
		return errors.New("no delivery is on its way")
	}))
}

// settled waits until everything that was said is processed.
func (w *world) settled() {
	w.t.Helper()
	w.must(stack.Eventually(w.t.Context(), within, func() error {
		sessions, err := w.team.Sessions(w.t.Context())
		if err != nil {
			return err
		}
		var lines, want int64
		for _, s := range w.sessions {
			want += s.Lines()
		}
		for i := range sessions {
			s := &sessions[i]
			if lines += s.Spec.Lines; !stack.CaughtUp(s) || s.Status.LostLines > 0 {
				return fmt.Errorf("%s: %d of %d lines are processed, %d lost: %v", s.Name, s.Status.Lines, s.Spec.Lines, s.Status.LostLines, s.Status.Conditions)
			}
		}
		if lines != want {
			return fmt.Errorf("%d of %d lines are uploaded", lines, want)
		}
		return nil
	}))
}

// once: Letta has every word once, the archive every line once, the inbox
// nothing.
func (w *world) once() {
	w.t.Helper()
	ctx := w.t.Context()
	c, err := api.New(api.Options{BaseURL: lettaDoor, Key: lettaKey})
	w.must(err)
	conversations, err := stack.ConversationsOf(ctx, c)
	w.must(err)
	bucket, err := w.team.Open()
	w.must(err)
	var written int64
	for _, s := range w.sessions {
		written += s.Lines()
	}
	err = stack.CheckOnce(ctx, bucket, stack.Told(conversations, ""), w.said, map[string]int64{segment.ArchiveOf(team): written})
	if err = errors.Join(err, stack.CheckInbox(ctx, bucket)); err != nil {
		w.t.Error(err)
	}
}

// pods are the controller's.
func (w *world) pods() []corev1.Pod {
	w.t.Helper()
	var list corev1.PodList
	w.must(w.api.List(w.t.Context(), &list, client.InNamespace(system), client.MatchingLabels{"app.kubernetes.io/component": "controller"}))
	return list.Items
}

// ready waits for the Deployment.
func (w *world) ready() {
	w.t.Helper()
	w.in("kubectl", "-n", system, "rollout", "status", "deployment/undersong", "--timeout=300s")
}

// confined: the pods run as the chart says, in a namespace that takes no others.
func (w *world) confined() {
	w.t.Helper()
	if _, err := node(w.t.Context(), "in", "kubectl", "-n", system, "run", "bad", "--image="+*image, "--dry-run=server"); err == nil || !strings.Contains(err.Error(), "violates PodSecurity") {
		w.t.Errorf("a Pod without restrictions: got %v; want it refused", err)
	}
	var d appsv1.Deployment
	w.must(w.api.Get(w.t.Context(), client.ObjectKey{Namespace: system, Name: "undersong"}, &d))
	if d.Status.ReadyReplicas != 2 || d.Spec.Template.Spec.Containers[0].Image != *image {
		w.t.Errorf("%d pods of %s are ready; want 2 of %s", d.Status.ReadyReplicas, d.Spec.Template.Spec.Containers[0].Image, *image)
	}
	account := "--as=system:serviceaccount:" + system + ":undersong-controller"
	for want, questions := range map[string][][]string{
		"no": {
			{"get", "secrets", "-A"},
			{"list", "secrets", "-A"},
			{"watch", "secrets", "-A"},
			{"list", "secrets", "-n", team},
			{"get", "secrets", "-n", "parts"},
			{"get", "secret/another", "-n", team},
			{"create", "pods", "-n", system},
		},
		"yes": {{"get", "secret/" + kube.LettaSecret, "-n", team}, {"get", "secret/" + kube.StoreSecret, "-n", team}},
	} {
		for _, q := range questions {
			out, _ := node(w.t.Context(), append([]string{"in", "kubectl", "auth", "can-i", account}, q...)...) // no is an error
			if strings.TrimSpace(out) != want {
				w.t.Errorf("may the controller %s? %s; want %s", strings.Join(q, " "), out, want)
			}
		}
	}
}

// leader is the pod that holds the lease.
func (w *world) leader() *corev1.Pod {
	w.t.Helper()
	holder := w.in("kubectl", "-n", system, "get", "lease", "undersong-controller", "-o", "jsonpath={.spec.holderIdentity}")
	pods := w.pods()
	i := slices.IndexFunc(pods, func(p corev1.Pod) bool { return strings.HasPrefix(holder, p.Name+"_") })
	if i < 0 {
		w.t.Fatalf("the lease is held by %q, which is none of the pods", holder)
	}
	return &pods[i]
}

// outOfMemory takes the leader's memory away until the kernel kills it.
func (w *world) outOfMemory() {
	w.t.Helper()
	pod := w.leader()
	id := pod.Status.ContainerStatuses[0].ContainerID
	groups, err := filepath.Glob("/sys/fs/cgroup/memory/undersong-node/kubepods/*/pod" + string(pod.UID) + "/" + id[strings.LastIndex(id, "/")+1:])
	w.must(err)
	if len(groups) != 1 {
		w.t.Fatalf("the cgroups of %s are %v; want one", pod.Name, groups)
	}
	n := 0
	w.must(stack.Eventually(w.t.Context(), within, func() error {
		if data, err := os.ReadFile(filepath.Join(groups[0], "memory.usage_in_bytes")); err == nil {
			// What it has is all that it gets: the next page is the one too
			// many. The kernel refuses less than is in use.
			_ = os.WriteFile(filepath.Join(groups[0], "memory.limit_in_bytes"), bytes.TrimSpace(data), 0o600)
		}
		if n++; n%20 == 0 { // something to do, so that it asks for more
			touch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"metadata":{"annotations":{"touched":"%d"}}}`, n))
			if err := w.api.Patch(w.t.Context(), &v1alpha1.TeamMemory{ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: "shared"}}, touch); err != nil {
				return err
			}
		}
		var now corev1.Pod
		if err := w.api.Get(w.t.Context(), client.ObjectKeyFromObject(pod), &now); err != nil {
			return err
		}
		status := now.Status.ContainerStatuses[0]
		for _, ended := range []*corev1.ContainerStateTerminated{status.State.Terminated, status.LastTerminationState.Terminated} {
			if ended != nil && ended.Reason == "OOMKilled" {
				return nil
			}
		}
		return errors.New("it lives, or did not end for want of memory")
	}))
}

// TestCluster is one long day of one team.
func TestCluster(t *testing.T) {
	w := start(t)
	ctx := t.Context()
	w.step("the store, Letta, Secrets")
	w.furnish()
	w.step("helm install")
	w.helm("install", chart(), "--values", w.values, "--wait", "--timeout", "5m")
	w.confined()
	w.step("helm test")
	w.helm("test", "--timeout", "5m")

	w.step("the thread, from outside")
	ada, s := w.join("ada")
	w.turn(s, "Remember: release tags always start with the letter v.", "Noted, the letter v.")
	w.settled()
	bob, other := w.join("bob")
	w.turn(other, "With which letter do release tags start?", "I shall look it up.")
	w.must(stack.Eventually(ctx, within, func() error {
		out, err := bob.Run(ctx, "status", "--json")
		if err == nil && !strings.Contains(out, `"whispersWaiting": 1`) {
			err = errors.New("no whisper has reached bob")
		}
		return err
	}))
	if out := w.turn(other, "Go on.", "Then I go on."); !strings.Contains(out.Context, "letter v") {
		t.Errorf("bob was shown %q; want the whisper", out.Context)
	}
	w.settled()

	w.step("a rolling restart in mid-turn")
	w.turn(s, "Said while the controller is replaced.", "Heard by the one or by the other.")
	w.inTurn()
	w.in("kubectl", "-n", system, "rollout", "restart", "deployment/undersong")
	w.ready()
	w.settled()
	w.once()

	w.step("out of memory in mid-turn")
	w.turn(s, "Said while there is no memory.", "Heard after the kill.")
	w.inTurn()
	w.outOfMemory()
	w.settled()
	w.ready()
	w.once()

	w.step("the node's kubelet and containerd die in mid-turn")
	w.turn(s, "Said while the node starts anew.", "Heard all the same.")
	w.inTurn()
	if _, err := node(ctx, "bounce"); err != nil {
		t.Fatal(err)
	}
	w.settled()
	w.in("kubectl", "-n", system, "delete", "pod", w.leader().Name) // the new kubelet makes pods
	w.ready()
	w.once()

	w.step("helm upgrade in mid-turn, and a rollback")
	w.turn(s, "Said during the upgrade.", "Heard by the new one.")
	w.inTurn()
	w.helm("upgrade", chart(), "--values", w.values, "--set", "replicas=1,logLevel=debug", "--wait", "--timeout", "5m")
	w.turn(s, "Said after the upgrade.", "Heard after the upgrade.")
	w.settled()
	w.helm("rollback", "1", "--wait", "--timeout", "5m")
	w.turn(s, "Said after the rollback.", "Heard after the rollback.")
	w.settled()
	w.helm("test", "--timeout", "5m")
	w.once()
	if out, err := ada.Run(ctx, "verify", s.ID); err != nil {
		t.Errorf("undersong verify: %v\n%s", err, out)
	}
	for _, p := range w.pods() {
		w.step(fmt.Sprintf("%s: %s", p.Name, p.Status.Phase))
	}
}
