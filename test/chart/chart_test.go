//go:build envtest

// Package chart tests the Helm chart with a real helm: its templates against
// golden files, everything that it makes by a dry run of a real API server, and
// a real install, after which the controller runs with the chart's own
// ServiceAccount.
package chart

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/undersong-dev/undersong/test/kube"
	"github.com/undersong-dev/undersong/test/tools"
)

var update = flag.Bool("update", false, "write the golden files")

// release and space are the release's name and namespace.
const (
	release = "undersong"
	space   = "undersong-system"
)

func chart() string { return filepath.Join(tools.Root(), "charts", "undersong") }

// cases are the values files of the chart's ci folder.
func cases(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(chart(), "ci", "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("the chart has no ci values: %v", err)
	}
	named := map[string]string{}
	for _, file := range files {
		named[strings.TrimSuffix(filepath.Base(file), ".yaml")] = file
	}
	return named
}

// helm runs helm with a home of its own.
func helm(t *testing.T, kubeconfig string, args ...string) (string, error) {
	t.Helper()
	path, err := tools.Path("helm")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), path, args...)
	home := t.TempDir()
	cmd.Env = []string{"HOME=" + home, "PATH=" + os.Getenv("PATH"), "KUBECONFIG=" + kubeconfig}
	var out, trouble bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &trouble
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("helm %s: %w: %s", args[0], err, trouble.String())
	}
	return out.String(), nil
}

func mustHelm(t *testing.T, kubeconfig string, args ...string) string {
	t.Helper()
	out, err := helm(t, kubeconfig, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func template(t *testing.T, values string, more ...string) string {
	t.Helper()
	return mustHelm(t, "", append([]string{
		"template", release, chart(), "--namespace", space, "--kube-version", "1.37.2", "--values", values,
	}, more...)...)
}

func TestLint(t *testing.T) {
	for name, values := range cases(t) {
		if _, err := helm(t, "", "lint", "--strict", chart(), "--values", values, "--namespace", space); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestGolden shows in a review what a change of the chart changes.
func TestGolden(t *testing.T) {
	for name, values := range cases(t) {
		t.Run(name, func(t *testing.T) {
			got := []byte(template(t, values))
			golden := filepath.Join("testdata", name+".golden")
			if *update {
				if err := os.WriteFile(golden, got, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("the chart renders something else; if that is meant, run the test with -update (-want +got):\n%s", diff)
			}
		})
	}
}

// TestRefused: a typing error stops the install, not the controller.
func TestRefused(t *testing.T) {
	for name, tc := range map[string]struct{ set, says string }{
		"unknown value":         {"replica=1", "replica"},
		"wrong type":            {"replicas=many", "replicas"},
		"out of bounds":         {"replicas=77", "replicas"},
		"unknown scope":         {"scope=Everything", "scope"},
		"team without name":     {"teams[0].groups[0]=x", "namespace"},
		"memory without spec":   {"teams[0].namespace=a,teams[0].memory.name=m", "spec"},
		"namespaced, no team":   {"scope=Namespaced", "needs at least one team"},
		"a namespace twice":     {"teams[0].namespace=a,teams[1].namespace=a", "twice"},
		"app server, no image":  {"appServer.enabled=true", "appServer.image"},
		"digest that is no sum": {"image.digest=latest", "digest"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := helm(t, "", "template", release, chart(), "--kube-version", "1.37.2", "--set", tc.set)
			if err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("--set %s: got %v; want it refused with %q", tc.set, err, tc.says)
			}
		})
	}
	_, err := helm(t, "", "template", release, chart(), "--kube-version", "1.31.9")
	if err == nil || !strings.Contains(err.Error(), "kubeVersion") {
		t.Errorf("an old Kubernetes: got %v; want it refused by kubeVersion", err)
	}
}

// objects reads what helm template prints.
func objects(t *testing.T, text string) []*unstructured.Unstructured {
	t.Helper()
	var all []*unstructured.Unstructured
	decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096)
	for {
		o := &unstructured.Unstructured{}
		err := decoder.Decode(&o.Object)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		if len(o.Object) > 0 {
			all = append(all, o)
		}
	}
}

// elsewhere are kinds that no API server of ours serves.
var elsewhere = map[string]bool{"ServiceMonitor": true, "PrometheusRule": true}

// TestDryRun: a real API server takes everything that the chart makes, and the
// Pods of its templates in a namespace that restricts them.
func TestDryRun(t *testing.T) {
	cluster, err := kube.Start(t.Context(), kube.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Stop()
	api, err := cluster.Client(cluster.Admin())
	if err != nil {
		t.Fatal(err)
	}
	for name, values := range cases(t) {
		t.Run(name, func(t *testing.T) {
			seen := map[string]int{}
			for _, o := range objects(t, template(t, values)) {
				seen[o.GetKind()]++
				if elsewhere[o.GetKind()] {
					continue
				}
				// The team's namespaces are made, since a dry run makes none.
				if o.GetKind() == "Namespace" {
					if err := api.Create(t.Context(), o.DeepCopy()); err != nil && !apierrors.IsAlreadyExists(err) {
						t.Fatal(err)
					}
					continue
				}
				err := api.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(o), client.FieldOwner("helm"), client.ForceOwnership, client.DryRunAll)
				if err != nil {
					t.Errorf("%s %s: %v", o.GetKind(), o.GetName(), err)
				}
				restricted(t, api, o)
			}
			if seen["Deployment"] != 1 || seen["ValidatingAdmissionPolicy"] != 4 || seen["ValidatingAdmissionPolicyBinding"] != 4 {
				t.Errorf("not everything was rendered: %v", seen)
			}
		})
	}
}

// restricted makes, as a dry run, the Pod of a workload's template in the
// release's namespace, which config/rbac labels restricted.
func restricted(t *testing.T, api client.Client, o *unstructured.Unstructured) {
	t.Helper()
	pod := &corev1.Pod{}
	switch o.GetKind() {
	case "Deployment":
		var d appsv1.Deployment
		convert(t, o, &d)
		pod.Spec, pod.Labels = d.Spec.Template.Spec, d.Spec.Template.Labels
	case "StatefulSet":
		var d appsv1.StatefulSet
		convert(t, o, &d)
		pod.Spec, pod.Labels = d.Spec.Template.Spec, d.Spec.Template.Labels
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "data"})
	case "Pod":
		convert(t, o, pod)
	default:
		return
	}
	pod.Namespace, pod.Name = space, "probe"
	for _, name := range []string{pod.Spec.ServiceAccountName} {
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: space, Name: name}}
		if err := api.Create(t.Context(), account); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
	if err := api.Create(t.Context(), pod, client.DryRunAll); err != nil {
		t.Errorf("the Pod of %s %s: %v", o.GetKind(), o.GetName(), err)
	}
	root := pod.DeepCopy()
	root.Spec.Containers[0].SecurityContext = nil
	root.Spec.SecurityContext = nil
	if err := api.Create(t.Context(), root, client.DryRunAll); !apierrors.IsForbidden(err) {
		t.Errorf("a Pod without restrictions: got %v; want it refused, or the check proves nothing", err)
	}
	for _, c := range pod.Spec.Containers {
		if c.SecurityContext.ReadOnlyRootFilesystem == nil || !*c.SecurityContext.ReadOnlyRootFilesystem {
			t.Errorf("%s: its root file system can be written", c.Name)
		}
	}
}

func convert(t *testing.T, from *unstructured.Unstructured, to any) {
	t.Helper()
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(from.Object, to); err != nil {
		t.Fatal(err)
	}
}

// TestNobodyListsSecrets: no role of the chart reads a Secret that it does not
// name.
func TestNobodyListsSecrets(t *testing.T) {
	for name, values := range cases(t) {
		for _, o := range objects(t, template(t, values)) {
			if o.GetKind() != "Role" && o.GetKind() != "ClusterRole" {
				continue
			}
			rules, _, _ := unstructured.NestedSlice(o.Object, "rules")
			for _, rule := range rules {
				text := fmt.Sprint(rule)
				if !strings.Contains(text, "secrets") && !strings.Contains(text, "*") {
					continue
				}
				fields, _ := rule.(map[string]any)
				if fmt.Sprint(fields["verbs"]) != "[get]" || fields["resourceNames"] == nil || o.GetKind() == "ClusterRole" {
					t.Errorf("%s: %s %s has %s", name, o.GetKind(), o.GetName(), text)
				}
			}
		}
	}
}
