package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/controllers/workstation"
)

// checkEvery is how often what is not right yet is looked at again.
const checkEvery = 2 * time.Second

// errCheck says that something is printed above.
var errCheck = errors.New("check: not all is right; each FAIL above says what to do")

// check looks at what a controller needs, with the rights of whoever runs it.
type check struct {
	api        client.Client
	namespaces []string // none means all
	lease      client.ObjectKey
	out        io.Writer
	failed     bool
}

// runCheck is the subcommand check: what helm test runs in the cluster.
func runCheck(ctx context.Context, args []string, out io.Writer) error {
	fs := flag.NewFlagSet("undersong-controller check", flag.ContinueOnError)
	var s settings
	s.bindFlags(fs)
	within := fs.Duration("wait", 30*time.Second, "how long to wait for what is not right yet")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if err := s.validate(); err != nil {
		return err
	}
	ctrl.SetLogger(zap.New(zap.UseFlagOptions(&s.zap)))
	cfg, err := apiServer()
	if err != nil {
		return err
	}
	scheme, err := kinds()
	if err != nil {
		return err
	}
	api, err := client.New(cfg, client.Options{Scheme: scheme})
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	c := &check{api: api, namespaces: s.only(), lease: client.ObjectKey{Namespace: s.leader.namespace, Name: leaseName}}
	// Printed once, when all is right or the time is over.
	var last strings.Builder
	err = wait.PollUntilContextTimeout(ctx, checkEvery, *within, true, func(ctx context.Context) (bool, error) {
		last.Reset()
		c.out, c.failed = &last, false
		c.all(ctx)
		return !c.failed, nil
	})
	if _, werr := io.WriteString(out, last.String()); werr != nil {
		return werr
	}
	if err != nil {
		return errCheck
	}
	return nil
}

func (c *check) say(what string, err error) {
	if err != nil {
		c.failed = true
		_, _ = fmt.Fprintf(c.out, "FAIL  %s: %v\n", what, err) // into memory
		return
	}
	_, _ = fmt.Fprintf(c.out, "ok    %s\n", what) // into memory
}

func (c *check) all(ctx context.Context) {
	scopes := c.namespaces
	if len(scopes) == 0 {
		scopes = []string{metav1.NamespaceAll}
	}
	for _, namespace := range scopes {
		c.say("rights"+in(namespace), c.rights(ctx, namespace))
	}
	missing, err := workstation.MissingPolicy(ctx, c.api)
	if err == nil && missing != "" {
		err = fmt.Errorf("%s or its binding is missing or refuses nothing: install the policies again", missing)
	}
	c.say("admission policies", err)
	c.say("lease", c.led(ctx))
	for _, namespace := range scopes {
		c.memories(ctx, namespace)
	}
}

func in(namespace string) string {
	if namespace == metav1.NamespaceAll {
		return " in all namespaces"
	}
	return " in " + namespace
}

// needs are rights without which the controller cannot work.
var needs = []authorizationv1.ResourceAttributes{
	{Group: v1alpha1.GroupVersion.Group, Resource: "sessions", Verb: "watch"},
	{Group: v1alpha1.GroupVersion.Group, Resource: "sessions", Verb: "patch"},
	{Group: v1alpha1.GroupVersion.Group, Resource: "sessions", Verb: "delete"},
	{Group: v1alpha1.GroupVersion.Group, Resource: "sessions", Subresource: "status", Verb: "patch"},
	{Group: v1alpha1.GroupVersion.Group, Resource: "workstations", Verb: "watch"},
	{Group: v1alpha1.GroupVersion.Group, Resource: "workstations", Subresource: "status", Verb: "patch"},
	{Group: v1alpha1.GroupVersion.Group, Resource: "teammemories", Verb: "watch"},
	{Group: v1alpha1.GroupVersion.Group, Resource: "teammemories", Subresource: "status", Verb: "patch"},
	{Group: v1alpha1.GroupVersion.Group, Resource: "memoryblocks", Verb: "create"},
	{Group: v1alpha1.GroupVersion.Group, Resource: "memoryblocks", Verb: "watch"},
	{Group: v1alpha1.GroupVersion.Group, Resource: "memoryblocks", Subresource: "status", Verb: "patch"},
	{Group: "events.k8s.io", Resource: "events", Verb: "create"},
}

func (c *check) rights(ctx context.Context, namespace string) error {
	var lacks []string
	for _, need := range needs {
		need.Namespace = namespace
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &need}}
		if err := c.api.Create(ctx, review); err != nil {
			return fmt.Errorf("ask for rights: %w", err)
		}
		if !review.Status.Allowed {
			name := need.Resource
			if need.Subresource != "" {
				name += "/" + need.Subresource
			}
			lacks = append(lacks, need.Verb+" "+name)
		}
	}
	if len(lacks) > 0 {
		return fmt.Errorf("the ClusterRole undersong-controller is not bound, or is not this version's: %s", strings.Join(lacks, ", "))
	}
	return nil
}

// led says whether a controller holds the lease.
func (c *check) led(ctx context.Context) error {
	if c.lease.Namespace == "" {
		return errors.New("--leader-elect-namespace is not given, so the lease cannot be found")
	}
	lease := &coordinationv1.Lease{}
	err := c.api.Get(ctx, c.lease, lease)
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("no controller has ever held %s in %s: look at the Deployment's pods", c.lease.Name, c.lease.Namespace)
	case err != nil:
		return fmt.Errorf("read the lease: %w", err)
	case lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "":
		return errors.New("nobody holds it: the controller stopped; look at the Deployment's pods")
	default:
		return nil
	}
}

// memories says of each TeamMemory whether it is Ready.
func (c *check) memories(ctx context.Context, namespace string) {
	var list v1alpha1.TeamMemoryList
	if err := c.api.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		c.say("memories"+in(namespace), fmt.Errorf("list TeamMemories: %w", err))
		return
	}
	for i := range list.Items {
		m := &list.Items[i]
		var err error
		ready := apimeta.FindStatusCondition(m.Status.Conditions, v1alpha1.ReadyCondition)
		switch {
		case ready == nil:
			err = errors.New("the controller has not looked at it")
		case ready.Status != metav1.ConditionTrue:
			err = fmt.Errorf("%s: %s", ready.Reason, ready.Message)
		}
		c.say(fmt.Sprintf("TeamMemory %s/%s", m.Namespace, m.Name), err)
	}
}
