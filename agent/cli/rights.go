package cli

import (
	"context"
	"fmt"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/undersong-dev/undersong/agent/internal/kube"
	"github.com/undersong-dev/undersong/api/v1alpha1"
)

// needed is what a workstation does with its user's rights, by resource.
var needed = []struct {
	resource string
	verbs    []string
}{
	{"sessions", []string{"get", "list", "watch", "create", "patch"}},
	{"workstations", []string{"get", "list", "watch", "create", "patch"}},
	{"teammemories", []string{"get", "list", "watch"}},
	{"memoryblocks", []string{"get", "list", "watch"}},
}

// rights asks the API server what the user may not do that a workstation must.
// Each entry is a resource with the verbs.
func rights(ctx context.Context, c *kube.Client, namespace string) ([]string, error) {
	var lacks []string
	for _, need := range needed {
		var verbs []string
		for _, verb := range need.verbs {
			review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
				ResourceAttributes: &authorizationv1.ResourceAttributes{
					Namespace: namespace, Group: v1alpha1.GroupVersion.Group, Resource: need.resource, Verb: verb,
				},
			}}
			if err := c.Create(ctx, review, ""); err != nil {
				return nil, err
			}
			if !review.Status.Allowed {
				verbs = append(verbs, verb)
			}
		}
		if len(verbs) > 0 {
			lacks = append(lacks, strings.Join(verbs, ", ")+" "+need.resource)
		}
	}
	return lacks, nil
}

// askForRights says who can give what is missing.
func askForRights(owner, namespace string, lacks []string) string {
	return fmt.Sprintf("%s may not do in namespace %s: %s. Ask whoever runs undersong there to bind the ClusterRole undersong-workstation to you in that namespace",
		safe(owner), safe(namespace), strings.Join(lacks, "; "))
}
