package workstation

import (
	"context"
	"fmt"
	"slices"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/internal/outcome"
)

// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=validatingadmissionpolicies;validatingadmissionpolicybindings,resourceNames=undersong-session;undersong-workstation;undersong-teammemory;undersong-memoryblock,verbs=get

// policies are the admission policies without which RBAC alone would decide,
// and RBAC knows no owners: a colleague could replace the key of another
// person's Workstation and have grants sealed to himself.
var policies = []string{"undersong-memoryblock", "undersong-session", "undersong-teammemory", "undersong-workstation"}

const (
	// guardFresh is how long a look at the policies is good for.
	guardFresh = 30 * time.Second
	// waitForPolicy is how long to wait for a policy that is missing: nothing
	// tells when it comes back.
	waitForPolicy = 30 * time.Second
)

// guard holds grants back while an admission policy or its binding is missing
// or lets something through. When it returns nil all of them stood, as far as
// their outer shape tells, within the last guardFresh.
func (r *Reconciler) guard(ctx context.Context) error {
	r.mu.Lock()
	at := r.guardedAt
	r.mu.Unlock()
	if !at.IsZero() && r.Clock.Since(at) < guardFresh {
		return nil
	}
	missing, err := MissingPolicy(ctx, r.Live)
	if err != nil {
		return err
	}
	if missing != "" {
		return outcome.RetryAfterf(v1alpha1.PolicyMissingReason, waitForPolicy, "the ValidatingAdmissionPolicy %s or its binding is missing or refuses nothing, so anybody could take this grant; install the policies again, with the chart or from config/policy", missing)
	}
	r.mu.Lock()
	r.guardedAt = r.Clock.Now()
	r.mu.Unlock()
	return nil
}

// MissingPolicy returns the name of the first admission policy that is missing,
// or that does not refuse in every namespace. Empty means that all stand, as far
// as their outer shape tells.
func MissingPolicy(ctx context.Context, live client.Reader) (string, error) {
	for _, name := range policies {
		if ok, err := stands(ctx, live, name); err != nil || !ok {
			return name, err
		}
	}
	return "", nil
}

// stands says whether a policy and its binding refuse in every namespace.
func stands(ctx context.Context, live client.Reader, name string) (bool, error) {
	policy := &admissionv1.ValidatingAdmissionPolicy{}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{}
	for _, object := range []client.Object{policy, binding} {
		err := live.Get(ctx, client.ObjectKey{Name: name}, object)
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("read the admission policy %s: %w", name, err)
		}
	}
	return whole(policy) && enforced(binding, name), nil
}

func whole(p *admissionv1.ValidatingAdmissionPolicy) bool {
	return p.DeletionTimestamp.IsZero() &&
		(p.Spec.FailurePolicy == nil || *p.Spec.FailurePolicy == admissionv1.Fail) &&
		len(p.Spec.Validations) > 0 && len(p.Spec.MatchConditions) == 0 &&
		p.Spec.MatchConstraints != nil && unselected(p.Spec.MatchConstraints)
}

func enforced(b *admissionv1.ValidatingAdmissionPolicyBinding, policy string) bool {
	return b.DeletionTimestamp.IsZero() && b.Spec.PolicyName == policy &&
		slices.Contains(b.Spec.ValidationActions, admissionv1.Deny) &&
		(b.Spec.MatchResources == nil || unselected(b.Spec.MatchResources) && len(b.Spec.MatchResources.ResourceRules) == 0)
}

// unselected says that nothing is left out by a selector or an exclusion.
func unselected(m *admissionv1.MatchResources) bool {
	return empty(m.NamespaceSelector) && empty(m.ObjectSelector) && len(m.ExcludeResourceRules) == 0
}

func empty(s *metav1.LabelSelector) bool {
	return s == nil || len(s.MatchLabels) == 0 && len(s.MatchExpressions) == 0
}
