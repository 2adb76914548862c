package kube

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/undersong-dev/undersong/test/tools"
)

// manager owns what this package applies.
const manager = client.FieldOwner("undersong-test")

// install applies CRDs, roles and policies, and waits until they hold.
func (c *Cluster) install(ctx context.Context) error {
	api, err := c.Client(c.Admin())
	if err != nil {
		return err
	}
	for _, folder := range []string{"crd", "rbac", "policy"} {
		objects, err := Manifests(filepath.Join(tools.Root(), "config", folder))
		if err != nil {
			return err
		}
		for _, object := range objects {
			if err := apply(ctx, api, object); err != nil {
				return err
			}
		}
		if folder != "crd" {
			continue
		}
		for _, object := range objects {
			if err := established(ctx, api, object); err != nil {
				return err
			}
		}
	}
	return enforced(ctx, api)
}

func apply(ctx context.Context, api client.Client, object *unstructured.Unstructured) error {
	err := api.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), manager, client.ForceOwnership)
	if err != nil {
		return fmt.Errorf("apply %s %s: %w", object.GetKind(), object.GetName(), err)
	}
	return nil
}

// Manifests reads the objects of every YAML file of a folder, in the order of
// file names, without what is there for kustomize alone.
func Manifests(folder string) ([]*unstructured.Unstructured, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	if err != nil {
		return nil, fmt.Errorf("list manifests: %w", err)
	}
	var objects []*unstructured.Unstructured
	for _, file := range files {
		if filepath.Base(file) == "kustomization.yaml" {
			continue
		}
		data, err := tools.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read manifest: %w", err)
		}
		decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), len(data)+1)
		for {
			object := &unstructured.Unstructured{}
			err := decoder.Decode(&object.Object)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return nil, fmt.Errorf("decode %s: %w", filepath.Base(file), err)
			}
			if len(object.Object) > 0 { // a file may begin with a separator
				objects = append(objects, object)
			}
		}
	}
	return objects, nil
}

// established waits until a CRD is served.
func established(ctx context.Context, api client.Client, crd *unstructured.Unstructured) error {
	err := wait.PollUntilContextCancel(ctx, pollEvery, true, func(ctx context.Context) (bool, error) {
		live := &unstructured.Unstructured{}
		live.SetGroupVersionKind(crd.GroupVersionKind())
		if err := api.Get(ctx, client.ObjectKeyFromObject(crd), live); err != nil {
			return false, err
		}
		// Null, which is an error here, until the API server has looked at it.
		conditions, _, _ := unstructured.NestedSlice(live.Object, "status", "conditions")
		for _, condition := range conditions {
			if fields, ok := condition.(map[string]any); ok && fields["type"] == "Established" && fields["status"] == "True" {
				return true, nil
			}
		}
		return false, nil
	})
	if err != nil {
		return fmt.Errorf("wait for CRD %s: %w", crd.GetName(), err)
	}
	return nil
}

// Enforced waits until the policies that somebody else installed are enforced.
func (c *Cluster) Enforced(ctx context.Context) error {
	api, err := c.Client(c.Admin())
	if err != nil {
		return err
	}
	return enforced(ctx, api)
}

// enforced waits until the policies applied so far are enforced.
//
// The API server learns of policies by a watch and compiles them once a
// second, so for a moment after they are applied everything is allowed. It
// always takes up all that it has seen, in the order of writing. A canary
// written last is therefore refused only when all before it hold too. The
// canary's name is new each time, because a kept cluster may hold an older
// generation of the same policies.
func enforced(ctx context.Context, api client.Client) (err error) {
	name := "undersong-canary-" + string(uuid.NewUUID())
	policy, binding := refuse(name)
	for _, object := range []client.Object{policy, binding} {
		if err := api.Create(ctx, object); err != nil {
			return fmt.Errorf("write canary: %w", err)
		}
		defer func() {
			if derr := api.Delete(ctx, object); derr != nil {
				err = errors.Join(err, fmt.Errorf("remove canary: %w", derr))
			}
		}()
	}
	err = wait.PollUntilContextCancel(ctx, pollEvery, true, func(ctx context.Context) (bool, error) {
		return refused(ctx, api, name)
	})
	if err != nil {
		return fmt.Errorf("wait for admission policies: %w", err)
	}
	return nil
}

// refuse returns a policy, and its binding, that refuses ConfigMaps of a name.
func refuse(name string) (*admissionv1.ValidatingAdmissionPolicy, *admissionv1.ValidatingAdmissionPolicyBinding) {
	policy := &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{
				ResourceRules: []admissionv1.NamedRuleWithOperations{{
					RuleWithOperations: admissionv1.RuleWithOperations{
						Operations: []admissionv1.OperationType{admissionv1.Create},
						Rule: admissionv1.Rule{
							APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"},
						},
					},
				}},
			},
			Validations: []admissionv1.Validation{{
				Expression: "object.metadata.name != '" + name + "'",
				Message:    name + " is refused",
			}},
		},
	}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName:        name,
			ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
		},
	}
	return policy, binding
}

// refused says whether a ConfigMap of a name is refused by its policy.
func refused(ctx context.Context, api client.Client, name string) (bool, error) {
	probe := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name}}
	err := api.Create(ctx, probe, client.DryRunAll)
	if err != nil && strings.Contains(err.Error(), name+" is refused") {
		return true, nil
	}
	return false, err
}
