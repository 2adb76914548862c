//go:build envtest

package kube

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/test/tools"
)

// cluster is shared by the tests of this package; each has namespaces of its
// own.
var cluster *Cluster

// parentEnv makes the test binary the parent that
// TestChildrenDieWithTheirParent kills.
const parentEnv = "UNDERSONG_TEST_KUBE_PARENT"

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	os.Exit(func() int {
		c, err := Start(context.Background(), Options{})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer c.Stop()
		if os.Getenv(parentEnv) != "" {
			_, _ = fmt.Fprintln(os.Stdout, c.etcd.cmd.Process.Pid, c.api.cmd.Process.Pid, c.dir)
			select {} // until killed
		}
		cluster = c
		return m.Run()
	}())
}

func clientOf(t *testing.T, user string) client.Client {
	t.Helper()
	api, err := cluster.Client(cluster.User(user))
	if err != nil {
		t.Fatal(err)
	}
	return api
}

func admin(t *testing.T) client.Client {
	t.Helper()
	api, err := cluster.Client(cluster.Admin())
	if err != nil {
		t.Fatal(err)
	}
	return api
}

func controller(t *testing.T) client.Client {
	t.Helper()
	config, err := cluster.Controller(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	api, err := cluster.Client(config)
	if err != nil {
		t.Fatal(err)
	}
	return api
}

func team(t *testing.T, namespace string, members, leads []string) {
	t.Helper()
	if err := cluster.Team(t.Context(), namespace, members, leads); err != nil {
		t.Fatal(err)
	}
}

// TestEnforcedWaits: without the wait the API server would not know a policy
// for up to a second, and tests would prove nothing in that time.
func TestEnforcedWaits(t *testing.T) {
	api := admin(t)
	for range 3 {
		name := "late-" + string(uuid.NewUUID())
		policy, binding := refuse(name)
		for _, object := range []client.Object{policy, binding} {
			if err := api.Create(t.Context(), object); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := api.Delete(context.WithoutCancel(t.Context()), object); err != nil {
					t.Error(err)
				}
			})
		}
		if err := enforced(t.Context(), api); err != nil {
			t.Fatal(err)
		}
		if ok, err := refused(t.Context(), api, name); !ok {
			t.Errorf("a policy of before is not in force: %v", err)
		}
	}
	var left admissionv1.ValidatingAdmissionPolicyList
	if err := api.List(t.Context(), &left); err != nil {
		t.Fatal(err)
	}
	for _, policy := range left.Items {
		if strings.Contains(policy.Name, "canary") {
			t.Errorf("the policy %s is left behind", policy.Name)
		}
	}
}

func TestStateIsKeptOverRestarts(t *testing.T) {
	dir := t.TempDir()
	first, err := Start(t.Context(), Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Team(t.Context(), "kept", []string{"ada"}, nil); err != nil {
		t.Fatal(err)
	}
	file, err := first.Kubeconfig(first.User("ada"), "kept")
	if err != nil {
		t.Fatal(err)
	}
	token, err := first.Controller(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	first.Stop()

	second, err := Start(t.Context(), Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(second.Stop)
	config, err := clientcmd.RESTConfigFromKubeConfig(file)
	if err != nil {
		t.Fatal(err)
	}
	ada, err := second.Client(config)
	if err != nil {
		t.Fatal(err)
	}
	if err := ada.List(t.Context(), &v1alpha1.SessionList{}, client.InNamespace("kept")); err != nil {
		t.Errorf("a kubeconfig of before the restart: %v", err)
	}
	controller, err := second.Client(token)
	if err != nil {
		t.Fatal(err)
	}
	if err := controller.List(t.Context(), &v1alpha1.SessionList{}); err != nil {
		t.Errorf("a ServiceAccount token of before the restart: %v", err)
	}

	if _, err := Start(t.Context(), Options{Dir: dir}); err == nil || !strings.Contains(err.Error(), "stop what listens there") {
		t.Errorf("a second cluster in the same folder: got %v, want an error that says what to do", err)
	}
}

func TestControllerIsARealServiceAccount(t *testing.T) {
	config, err := cluster.Controller(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if config.Impersonate.UserName != "" || len(config.CertData) > 0 || config.BearerToken == "" {
		t.Error("the controller must come with its token and nothing else")
	}
	got := kubectl(t, config, "", "auth", "whoami", "-o", "jsonpath={.status.userInfo.username}")
	if got != ControllerUser {
		t.Errorf("whoami: got %q, want %q", got, ControllerUser)
	}
}

func TestKubeconfigKeepsThePersonAndTheNamespace(t *testing.T) {
	team(t, "kubeconfig", []string{"ada"}, nil)
	config := cluster.User("ada")
	if got := kubectl(t, config, "kubeconfig", "auth", "whoami", "-o", "jsonpath={.status.userInfo}"); !strings.Contains(got, `"username":"ada"`) || !strings.Contains(got, "system:authenticated") {
		t.Errorf("whoami: got %s, want ada in system:authenticated", got)
	}
	if got := kubectl(t, config, "kubeconfig", "get", "ses,wks,tmem,mblk"); got != "" {
		t.Errorf("get of nothing printed %q", got)
	}
}

// kubectl runs the real one as config and returns its stdout.
func kubectl(t *testing.T, config *rest.Config, namespace string, args ...string) string {
	t.Helper()
	path, err := tools.Path("kubectl")
	if err != nil {
		t.Fatal(err)
	}
	data, err := cluster.Kubeconfig(config, namespace)
	if err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	file := filepath.Join(home, "kubeconfig")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), path, args...)
	cmd.Env = []string{"KUBECONFIG=" + file, "HOME=" + home}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return string(out)
}

func TestControllerReadsTheNamedSecretsAlone(t *testing.T) {
	team(t, "secrets", nil, nil)
	api := controller(t)
	for _, name := range []string{LettaSecret, StoreSecret, "other"} {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "secrets", Name: name}}
		if err := admin(t).Create(t.Context(), secret); err != nil {
			t.Fatal(err)
		}
		if err := api.Get(t.Context(), client.ObjectKeyFromObject(secret), secret); err != nil && name != "other" {
			t.Errorf("%s: %v", name, err)
		}
	}
	for reason, err := range map[string]error{
		"another Secret of the namespace": api.Get(t.Context(), client.ObjectKey{Namespace: "secrets", Name: "other"}, &corev1.Secret{}),
		"a list of the namespace":         api.List(t.Context(), &corev1.SecretList{}, client.InNamespace("secrets")),
		"a Secret of another namespace":   api.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: LettaSecret}, &corev1.Secret{}),
	} {
		if !apierrors.IsForbidden(err) {
			t.Errorf("%s: got %v, want forbidden", reason, err)
		}
	}
}

func TestChildrenDieWithTheirParent(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux ties a child's life to its parent's")
	}
	parent := exec.CommandContext(t.Context(), os.Args[0])
	parent.Env = append(os.Environ(), parentEnv+"=1")
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	var etcd, api int
	var dir string
	if _, err := fmt.Fscan(bufio.NewReader(out), &etcd, &api, &dir); err != nil {
		t.Fatalf("read pids: %v", err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) }) // nobody else can: its owner is killed
	for _, pid := range []int{etcd, api} {
		if err := syscall.Kill(pid, 0); err != nil {
			t.Fatalf("process %d before: %v", pid, err)
		}
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait() // killed
	for _, pid := range []int{etcd, api} {
		err := wait.PollUntilContextTimeout(t.Context(), pollEvery, 10*time.Second, true, func(context.Context) (bool, error) {
			return gone(pid), nil
		})
		if err != nil {
			t.Errorf("process %d outlives its parent", pid)
		}
	}
}

// gone says whether a process has ended. One that nobody waited for, because
// the machine has no init, counts as ended.
func gone(pid int) bool {
	data, err := os.ReadFile(filepath.Join("/proc", fmt.Sprint(pid), "stat"))
	return err != nil || strings.Contains(string(data), ") Z ")
}

// TestKustomizationsNameEveryManifest compares what kubectl apply -k would
// apply with what this package applies.
func TestKustomizationsNameEveryManifest(t *testing.T) {
	config := filepath.Join(tools.Root(), "config")
	names := func(objects []*unstructured.Unstructured) map[string]int {
		got := map[string]int{}
		for _, object := range objects {
			got[object.GetKind()+"/"+object.GetNamespace()+"/"+object.GetName()]++
		}
		return got
	}
	for _, folder := range []string{"crd", "rbac", "policy", "samples"} {
		want, err := Manifests(filepath.Join(config, folder))
		if err != nil {
			t.Fatal(err)
		}
		decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(kubectl(t, cluster.Admin(), "", "kustomize", filepath.Join(config, folder))), 4096)
		var got []*unstructured.Unstructured
		for {
			object := &unstructured.Unstructured{}
			if err := decoder.Decode(&object.Object); err != nil {
				break
			}
			got = append(got, object)
		}
		if diff := cmp.Diff(names(want), names(got)); diff != "" {
			t.Errorf("%s: files against kustomization (-files +kustomization):\n%s", folder, diff)
		}
	}
}
