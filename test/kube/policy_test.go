//go:build envtest

package kube

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/test/tools"
)

// marker stands in every object of these tests, and in no refusal.
const marker = "hunter2"

func object(kind, namespace, name string, spec map[string]any) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	o.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind))
	o.SetNamespace(namespace)
	o.SetName(name)
	return o
}

func session(namespace, owner string) *unstructured.Unstructured {
	return object("Session", namespace, v1alpha1.SessionName("s1", owner), map[string]any{
		"owner": owner, "sessionID": "s1", "agent": "ClaudeCode", "lines": int64(0),
		"memoryRef": map[string]any{"name": "m"},
		"project":   map[string]any{"name": marker, "remote": "github.com/example/shop"},
	})
}

func workstation(namespace, owner string) *unstructured.Unstructured {
	return object("Workstation", namespace, "w1", map[string]any{
		"owner": owner, "grantRequest": int64(1), "version": marker,
		"memoryRef": map[string]any{"name": "m"},
		"publicKey": "age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p",
	})
}

func memoryBlock(namespace, _ string) *unstructured.Unstructured {
	return object("MemoryBlock", namespace, "b1", map[string]any{
		"project": marker, "label": "brief", "mode": "Learned",
		"memoryRef": map[string]any{"name": "m"},
	})
}

func teamMemory(namespace, _ string) *unstructured.Unstructured {
	return object("TeamMemory", namespace, "m", map[string]any{
		"letta": map[string]any{"backend": "API", "baseURL": "https://letta.example.com"},
		"agent": map[string]any{"id": marker},
		"store": map[string]any{
			"endpoint": "https://s3.example.com", "bucket": "bucket", "credentialsSecretRef": map[string]any{"name": "s"},
		},
		"capture": map[string]any{"projects": map[string]any{"include": []any{"**"}}},
	})
}

// kindUnderTest is what the operations need to know of a kind.
type kindUnderTest struct {
	make   func(namespace, owner string) *unstructured.Unstructured
	spec   string // a merge patch that changes the spec and keeps to the CRD's rules
	status string // a merge patch of the status
	// more are operations that only this kind has.
	more map[string]func(ctx context.Context, api client.Client, t target) error
}

var kinds = map[string]kindUnderTest{
	"Session": {
		make:   session,
		spec:   `{"spec":{"requests":[{"id":"r1","kind":"Forget"}]}}`,
		status: `{"status":{"title":"t"}}`,
		more: map[string]func(context.Context, client.Client, target) error{
			"create-for-another-with-requests": func(ctx context.Context, api client.Client, t target) error {
				o := t.other("zoe")
				if err := unstructured.SetNestedSlice(o.Object, []any{map[string]any{"id": "r1", "kind": "Forget"}}, "spec", "requests"); err != nil {
					return err
				}
				return api.Create(ctx, o, client.DryRunAll)
			},
		},
	},
	"Workstation": {
		make:   workstation,
		spec:   `{"spec":{"grantRequest":2}}`,
		status: `{"status":{"observedGeneration":1}}`,
	},
	"MemoryBlock": {
		make:   memoryBlock,
		spec:   `{"metadata":{"annotations":{"a":"b"}}}`, // nothing of its spec may change yet
		status: `{"status":{"value":"v"}}`,
	},
	"TeamMemory": {
		make:   teamMemory,
		spec:   `{"spec":{"suspend":"All"}}`,
		status: `{"status":{"sessions":1}}`,
		more: map[string]func(context.Context, client.Client, target) error{
			"rewire": func(ctx context.Context, api client.Client, t target) error {
				return api.Patch(ctx, t.live.DeepCopy(), merge(`{"spec":{"letta":{"baseURL":"https://letta.example.net"}}}`), client.DryRunAll)
			},
			"adopt": func(ctx context.Context, api client.Client, t target) error {
				return api.Patch(ctx, t.live.DeepCopy(), merge(`{"spec":{"agent":{"id":"agent-of-others"}}}`), client.DryRunAll)
			},
		},
	},
}

// target is what one operation is tried on: a live object of ada's.
type target struct {
	kindUnderTest

	live *unstructured.Unstructured
	me   string // who acts
}

// other is a new object beside the live one.
func (t target) other(owner string) *unstructured.Unstructured {
	o := t.make(t.live.GetNamespace(), owner)
	o.SetName(o.GetName() + "-other")
	return o
}

func merge(patch string) client.Patch { return client.RawPatch(types.MergePatchType, []byte(patch)) }

// operations are everything one can do to an object. All are dry runs, which
// admission sees like any other request.
var operations = map[string]func(ctx context.Context, api client.Client, t target) error{
	"get": func(ctx context.Context, api client.Client, t target) error {
		return api.Get(ctx, client.ObjectKeyFromObject(t.live), t.live.DeepCopy())
	},
	"list": func(ctx context.Context, api client.Client, t target) error {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(t.live.GroupVersionKind())
		return api.List(ctx, list, client.InNamespace(t.live.GetNamespace()))
	},
	"watch": watching,
	"create": func(ctx context.Context, api client.Client, t target) error {
		return api.Create(ctx, t.other(t.me), client.DryRunAll)
	},
	"create-for-another": func(ctx context.Context, api client.Client, t target) error {
		return api.Create(ctx, t.other("zoe"), client.DryRunAll)
	},
	"create-by-apply": func(ctx context.Context, api client.Client, t target) error {
		return api.Apply(ctx, client.ApplyConfigurationFromUnstructured(t.other(t.me)), client.FieldOwner("x"), client.DryRunAll)
	},
	"create-with-finalizer": func(ctx context.Context, api client.Client, t target) error {
		o := t.other(t.me)
		o.SetFinalizers([]string{"example.com/keep"})
		return api.Create(ctx, o, client.DryRunAll)
	},
	"create-with-owner-reference": func(ctx context.Context, api client.Client, t target) error {
		o := t.other(t.me)
		o.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "c", UID: "u"}})
		return api.Create(ctx, o, client.DryRunAll)
	},
	"update": func(ctx context.Context, api client.Client, t target) error {
		o := t.live.DeepCopy()
		o.SetLabels(map[string]string{"a": "b"})
		return api.Update(ctx, o, client.DryRunAll)
	},
	"patch-labels": func(ctx context.Context, api client.Client, t target) error {
		return api.Patch(ctx, t.live.DeepCopy(), merge(`{"metadata":{"labels":{"a":"b"}}}`), client.DryRunAll)
	},
	"patch-spec": func(ctx context.Context, api client.Client, t target) error {
		return api.Patch(ctx, t.live.DeepCopy(), merge(t.spec), client.DryRunAll)
	},
	"patch-nothing": func(ctx context.Context, api client.Client, t target) error {
		return api.Patch(ctx, t.live.DeepCopy(), merge(`{}`), client.DryRunAll)
	},
	"patch-finalizers": func(ctx context.Context, api client.Client, t target) error {
		return api.Patch(ctx, t.live.DeepCopy(), merge(`{"metadata":{"finalizers":["example.com/keep"]}}`), client.DryRunAll)
	},
	"patch-owner-references": func(ctx context.Context, api client.Client, t target) error {
		return api.Patch(ctx, t.live.DeepCopy(), merge(`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"c","uid":"u"}]}}`), client.DryRunAll)
	},
	"patch-status": func(ctx context.Context, api client.Client, t target) error {
		return api.Status().Patch(ctx, t.live.DeepCopy(), merge(t.status), client.DryRunAll)
	},
	"update-status": func(ctx context.Context, api client.Client, t target) error {
		return api.Status().Update(ctx, t.live.DeepCopy(), client.DryRunAll)
	},
	"delete": func(ctx context.Context, api client.Client, t target) error {
		return api.Delete(ctx, t.live.DeepCopy(), client.DryRunAll)
	},
	"delete-collection": func(ctx context.Context, api client.Client, t target) error {
		return api.DeleteAllOf(ctx, t.live.DeepCopy(), client.InNamespace(t.live.GetNamespace()), client.DryRunAll)
	},
}

// watching asks the API server's own authorizer: admission does not see reads.
func watching(ctx context.Context, api client.Client, t target) error {
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: t.live.GetNamespace(), Verb: "watch", Group: v1alpha1.GroupVersion.Group,
			Resource: resource(t.live.GetKind()),
		},
	}}
	if err := api.Create(ctx, review); err != nil {
		return err
	}
	if !review.Status.Allowed {
		return apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("cannot watch"))
	}
	return nil
}

func resource(kind string) string {
	if kind == "TeamMemory" {
		return "teammemories"
	}
	return strings.ToLower(kind) + "s"
}

// outcome names who refused: the policy of the kind, RBAC, or nobody.
func outcome(kind string, err error) string {
	switch policy := "ValidatingAdmissionPolicy 'undersong-" + strings.ToLower(kind) + "' with binding"; {
	case err == nil:
		return "yes"
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), policy):
		return "policy"
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "cannot "):
		return "rbac"
	default:
		return "error: " + err.Error()
	}
}

// actors of the tables below.
func actors(t *testing.T) map[string]*rest.Config {
	t.Helper()
	token, err := cluster.Controller(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// The controller's name without its group: what an identity provider
	// could hand out.
	forged := cluster.User(ControllerUser)
	forged.Impersonate.Groups = []string{"system:authenticated"}
	return map[string]*rest.Config{
		"owner":      cluster.User("ada"),
		"colleague":  cluster.User("bob"),
		"lead":       cluster.User("lena"),
		"keeper":     cluster.User("kim"),
		"editor":     cluster.User("ed"),
		"outsider":   cluster.User("eve"),
		"controller": token,
		"namesake":   cluster.User("system:serviceaccount:elsewhere:" + ControllerName),
		"forged":     forged,
		"collector":  cluster.User("system:serviceaccount:kube-system:generic-garbage-collector"),
		"admin":      cluster.Admin(),
	}
}

// rights reads a table of docs/rights.md: a head of actors, and a row for each
// operation.
func rights(t *testing.T, kind, table string) (head []string, rows [][]string) {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(tools.Root(), "docs", "rights.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(page), "\n## "+kind+": "+table+"\n\n")
	if !found {
		t.Fatalf("docs/rights.md has no section %s: %s", kind, table)
	}
	section, _, _ = strings.Cut(section, "\n\n")
	for i, line := range strings.Split(strings.TrimSpace(section), "\n") {
		cells := strings.Fields(strings.ReplaceAll(line, "|", " "))
		switch {
		case i == 0:
			head = cells[1:]
		case i > 1:
			rows = append(rows, cells)
		}
	}
	return head, rows
}

// try runs a table of docs/rights.md. Every operation must have a row.
func try(t *testing.T, kind, namespace, table string) {
	t.Helper()
	head, rows := rights(t, kind, table)
	named := map[string]bool{}
	everybody := actors(t)

	k := kinds[kind]
	live := k.make(namespace, "ada")
	creator := cluster.User("ada")
	if kind == "MemoryBlock" || kind == "TeamMemory" {
		creator = cluster.Admin()
	}
	api, err := cluster.Client(creator)
	if err != nil {
		t.Fatal(err)
	}
	if err := api.Create(t.Context(), live); err != nil {
		t.Fatal(err)
	}
	clients := map[string]client.Client{}
	for _, name := range head {
		config, ok := everybody[name]
		if !ok {
			t.Fatalf("no actor %q", name)
		}
		if clients[name], err = cluster.Client(config); err != nil {
			t.Fatal(err)
		}
	}

	for _, cells := range rows {
		name := cells[0]
		operation, ok := operations[name]
		if !ok {
			operation, ok = k.more[name]
		}
		if !ok || len(cells) != len(head)+1 {
			t.Fatalf("row %q: unknown operation or wrong number of cells", cells)
		}
		named[name] = true
		for i, actor := range head {
			t.Run(name+"/"+actor, func(t *testing.T) {
				me := everybody[actor].Impersonate.UserName
				switch actor {
				case "controller":
					me = ControllerUser
				case "admin":
					me = "undersong-admin"
				}
				err := operation(t.Context(), clients[actor], target{kindUnderTest: k, live: live, me: me})
				if got := outcome(kind, err); got != cells[i+1] {
					t.Errorf("got %s, want %s\n%v", got, cells[i+1], err)
				}
				if err != nil && strings.Contains(err.Error(), marker) {
					t.Errorf("the refusal repeats what the object holds: %v", err)
				}
			})
		}
	}
	for _, all := range []map[string]func(context.Context, client.Client, target) error{operations, k.more} {
		for name := range all {
			if !named[name] {
				t.Errorf("the table has no row for %s", name)
			}
		}
	}
}

// everything lets all actors do everything that RBAC knows of, so that what is
// refused is refused by a policy. It grants verb * on each resource and not
// the sub-resources that carry the verb override.
func everything(t *testing.T, namespace string) {
	t.Helper()
	team(t, namespace, nil, []string{"lena", "kim"})
	keys(t, namespace)
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "everything"}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{v1alpha1.GroupVersion.Group},
		Resources: []string{
			"sessions", "workstations", "memoryblocks", "teammemories",
			"sessions/status", "workstations/status", "memoryblocks/status", "teammemories/status",
			"sessions/finalizers", "workstations/finalizers", "memoryblocks/finalizers", "teammemories/finalizers",
		},
		Verbs: []string{"*"},
	}}}
	if err := admin(t).Create(t.Context(), role); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	var subjects []rbacv1.Subject
	for _, name := range []string{
		"ada", "bob", "lena", "kim", "ed", "eve", ControllerUser,
		"system:serviceaccount:elsewhere:" + ControllerName,
		"system:serviceaccount:kube-system:generic-garbage-collector",
	} {
		subjects = append(subjects, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name})
	}
	ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "everything"}
	if err := bind(t.Context(), admin(t), namespace, "everything", ref, subjects); err != nil {
		t.Fatal(err)
	}
}

// keys lets the keeper read the Secret that teamMemory names.
func keys(t *testing.T, namespace string) {
	t.Helper()
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "keys"}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{"s"}, Verbs: []string{"get"},
	}}}
	if err := admin(t).Create(t.Context(), role); err != nil {
		t.Fatal(err)
	}
	ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "keys"}
	subjects := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "kim"}}
	if err := bind(t.Context(), admin(t), namespace, "keys", ref, subjects); err != nil {
		t.Fatal(err)
	}
}

func TestPolicyOfSession(t *testing.T) {
	everything(t, "policy-session")
	try(t, "Session", "policy-session", "Policy")
}

func TestPolicyOfWorkstation(t *testing.T) {
	everything(t, "policy-workstation")
	try(t, "Workstation", "policy-workstation", "Policy")
}

func TestPolicyOfMemoryBlock(t *testing.T) {
	everything(t, "policy-memoryblock")
	try(t, "MemoryBlock", "policy-memoryblock", "Policy")
}

func TestPolicyOfTeamMemory(t *testing.T) {
	everything(t, "policy-teammemory")
	try(t, "TeamMemory", "policy-teammemory", "Policy")
}

// realRoles makes a team with the roles of config/rbac as they are, and an editor of
// the namespace.
func realRoles(t *testing.T, namespace string) {
	t.Helper()
	aggregate(t)
	team(t, namespace, []string{"ada", "bob"}, []string{"lena", "kim"})
	keys(t, namespace)
	ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "edit"}
	subjects := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "ed"}}
	if err := bind(t.Context(), admin(t), namespace, "edit", ref, subjects); err != nil {
		t.Fatal(err)
	}
}

// aggregate does what a controller-manager does: it fills the roles view, edit
// and admin from the roles that carry their labels. The order matters, since
// each is part of the next.
func aggregate(t *testing.T) {
	t.Helper()
	api := admin(t)
	for _, name := range []string{"view", "edit", "admin"} {
		var whole rbacv1.ClusterRole
		if err := api.Get(t.Context(), client.ObjectKey{Name: name}, &whole); err != nil {
			t.Fatal(err)
		}
		whole.Rules = nil
		for _, part := range whole.AggregationRule.ClusterRoleSelectors {
			var roles rbacv1.ClusterRoleList
			if err := api.List(t.Context(), &roles, client.MatchingLabels(part.MatchLabels)); err != nil {
				t.Fatal(err)
			}
			for _, role := range roles.Items {
				whole.Rules = append(whole.Rules, role.Rules...)
			}
		}
		if len(whole.Rules) == 0 {
			t.Fatalf("nothing is aggregated to %s: the test would prove nothing", name)
		}
		if err := api.Update(t.Context(), &whole); err != nil {
			t.Fatal(err)
		}
	}
}

func TestRolesOfSession(t *testing.T) {
	realRoles(t, "roles-session")
	try(t, "Session", "roles-session", "Roles")
}

func TestRolesOfWorkstation(t *testing.T) {
	realRoles(t, "roles-workstation")
	try(t, "Workstation", "roles-workstation", "Roles")
}

func TestRolesOfMemoryBlock(t *testing.T) {
	realRoles(t, "roles-memoryblock")
	try(t, "MemoryBlock", "roles-memoryblock", "Roles")
}

func TestRolesOfTeamMemory(t *testing.T) {
	realRoles(t, "roles-teammemory")
	try(t, "TeamMemory", "roles-teammemory", "Roles")
}

// attempts are what somebody can try beside our kinds, as RBAC names it.
var attempts = map[string]struct {
	verb, group, resource, name string
	// system says that it is tried in the controller's namespace, and every that
	// it is tried in the whole cluster.
	system, every bool
}{
	"read-the-teams-secrets":   {verb: "get", resource: "secrets", name: "s"},
	"list-the-teams-secrets":   {verb: "list", resource: "secrets"},
	"change-the-teams-secrets": {verb: "update", resource: "secrets", name: "s"},
	"bind-a-role":              {verb: "create", group: rbacv1.GroupName, resource: "rolebindings"},
	"forge-an-event":           {verb: "create", group: "events.k8s.io", resource: "events"},
	"scale-a-session":          {verb: "update", group: v1alpha1.GroupVersion.Group, resource: "sessions/scale"},
	"finalize-a-session":       {verb: "update", group: v1alpha1.GroupVersion.Group, resource: "sessions/finalizers"},
	"override-an-owner":        {verb: "override", group: v1alpha1.GroupVersion.Group, resource: "sessions/owner"},
	"sessions-of-all-teams":    {verb: "list", group: v1alpha1.GroupVersion.Group, resource: "sessions", every: true},
	"hold-the-lease":           {verb: "update", group: "coordination.k8s.io", resource: "leases", system: true},
	"be-the-controller":        {verb: "create", resource: "serviceaccounts/token", name: ControllerName, system: true},
	"act-as-the-controller":    {verb: "impersonate", resource: "serviceaccounts", name: ControllerName, system: true},
	"enter-the-controller":     {verb: "create", resource: "pods/exec", system: true},
	"change-a-policy":          {verb: "update", group: "admissionregistration.k8s.io", resource: "validatingadmissionpolicies", every: true},
	"change-a-kind":            {verb: "update", group: "apiextensions.k8s.io", resource: "customresourcedefinitions", every: true},
}

// TestRightsBesideOurKinds: the table in docs/rights.md is what the API server's
// authorizer says of the roles as installed.
func TestRightsBesideOurKinds(t *testing.T) {
	const namespace = "beside"
	realRoles(t, namespace)
	head, rows := rights(t, "Beside our kinds", "Roles")
	everybody := actors(t)
	named := map[string]bool{}
	for _, cells := range rows {
		try, ok := attempts[cells[0]]
		if !ok || len(cells) != len(head)+1 {
			t.Fatalf("row %q: unknown attempt or wrong number of cells", cells)
		}
		named[cells[0]] = true
		resource, sub, _ := strings.Cut(try.resource, "/")
		in := namespace
		switch {
		case try.system:
			in = ControllerNamespace
		case try.every:
			in = ""
		}
		for i, actor := range head {
			api, err := cluster.Client(everybody[actor])
			if err != nil {
				t.Fatal(err)
			}
			review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
				ResourceAttributes: &authorizationv1.ResourceAttributes{
					Namespace: in, Verb: try.verb, Group: try.group, Resource: resource, Subresource: sub, Name: try.name,
				},
			}}
			if err := api.Create(t.Context(), review); err != nil {
				t.Fatal(err)
			}
			if got := map[bool]string{true: "yes", false: "rbac"}[review.Status.Allowed]; got != cells[i+1] {
				t.Errorf("%s by %s: got %s, want %s", cells[0], actor, got, cells[i+1])
			}
		}
	}
	for name := range attempts {
		if !named[name] {
			t.Errorf("the table has no row for %s", name)
		}
	}
}

// TestReadingRights: a team reads its own namespace, the controller reads all,
// and nobody else reads anything.
func TestReadingRights(t *testing.T) {
	realRoles(t, "reading")
	want := map[string]string{
		"owner": "yes", "colleague": "yes", "lead": "yes", "keeper": "yes", "editor": "rbac", "outsider": "rbac",
		"controller": "yes", "namesake": "rbac", "collector": "yes", "admin": "yes",
		"forged": "yes", // RBAC binds a ServiceAccount by its user name alone; the policies do not
	}
	for actor, config := range actors(t) {
		api, err := cluster.Client(config)
		if err != nil {
			t.Fatal(err)
		}
		for kind := range kinds {
			var list unstructured.UnstructuredList
			list.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind + "List"))
			if got := outcome(kind, api.List(t.Context(), &list, client.InNamespace("reading"))); got != want[actor] {
				t.Errorf("%s lists %s: got %s, want %s", actor, kind, got, want[actor])
			}
		}
	}
}

// TestTerminatingNamespace: a namespace that is deleted must be able to end,
// whoever cleans it up, and is no back door into others' specs.
func TestTerminatingNamespace(t *testing.T) {
	everything(t, "terminating")
	for kind, k := range kinds {
		live := k.make("terminating", "ada")
		creator := clientOf(t, "ada")
		if kind == "MemoryBlock" || kind == "TeamMemory" {
			creator = admin(t)
		}
		if err := creator.Create(t.Context(), live); err != nil {
			t.Fatal(err)
		}
		if err := controller(t).Patch(t.Context(), live, merge(`{"metadata":{"finalizers":["example.com/keep"]}}`)); err != nil {
			t.Fatal(err)
		}
	}
	space := &unstructured.Unstructured{}
	space.SetAPIVersion("v1")
	space.SetKind("Namespace")
	space.SetName("terminating")
	if err := admin(t).Delete(t.Context(), space); err != nil {
		t.Fatal(err)
	}

	bob := clientOf(t, "bob")
	for kind, k := range kinds {
		live := k.make("terminating", "ada")
		eventually(t, kind+": delete by a colleague", "yes", func() string {
			return outcome(kind, bob.Delete(t.Context(), live.DeepCopy(), client.DryRunAll))
		})
		if kind == "Session" || kind == "Workstation" {
			if got := outcome(kind, bob.Patch(t.Context(), live.DeepCopy(), merge(k.spec), client.DryRunAll)); got != "policy" {
				t.Errorf("%s: a colleague's change of the spec: got %s, want policy", kind, got)
			}
		}
		if got := outcome(kind, bob.Status().Patch(t.Context(), live.DeepCopy(), merge(k.status), client.DryRunAll)); got != "policy" {
			t.Errorf("%s: a colleague's change of the status: got %s, want policy", kind, got)
		}
		if err := bob.Delete(t.Context(), live.DeepCopy()); err != nil {
			t.Errorf("%s: delete: %v", kind, err)
		}
		if err := bob.Patch(t.Context(), live.DeepCopy(), merge(`{"metadata":{"finalizers":null}}`)); err != nil {
			t.Errorf("%s: remove the finalizer: %v", kind, err)
		}
		if err := bob.Get(t.Context(), client.ObjectKeyFromObject(live), live); !apierrors.IsNotFound(err) {
			t.Errorf("%s: got %v, want it gone", kind, err)
		}
	}
}

// eventually waits for what the API server learns by a watch of its own.
func eventually(t *testing.T, what, want string, got func() string) {
	t.Helper()
	last := ""
	err := wait.PollUntilContextTimeout(t.Context(), pollEvery, 10*time.Second, true, func(context.Context) (bool, error) {
		last = got()
		return last == want, nil
	})
	if err != nil {
		t.Errorf("%s: got %s, want %s", what, last, want)
	}
}

// TestForegroundDeletion: the garbage collector ends a foreground deletion by
// removing a finalizer, which a policy must not stop.
func TestForegroundDeletion(t *testing.T) {
	realRoles(t, "foreground")
	ada := clientOf(t, "ada")
	live := session("foreground", "ada")
	if err := ada.Create(t.Context(), live); err != nil {
		t.Fatal(err)
	}
	if err := ada.Delete(t.Context(), live, client.PropagationPolicy(metav1.DeletePropagationForeground)); err != nil {
		t.Fatal(err)
	}
	if err := ada.Get(t.Context(), client.ObjectKeyFromObject(live), live); err != nil || len(live.GetFinalizers()) != 1 {
		t.Fatalf("after the delete: %v, finalizers %v; want one", err, live.GetFinalizers())
	}
	collector := clientOf(t, "system:serviceaccount:kube-system:generic-garbage-collector")
	if err := collector.Patch(t.Context(), live, merge(`{"metadata":{"finalizers":null}}`)); err != nil {
		t.Errorf("the garbage collector removes the finalizer: %v", err)
	}
	if err := ada.Get(t.Context(), client.ObjectKeyFromObject(live), live); !apierrors.IsNotFound(err) {
		t.Errorf("got %v, want it gone", err)
	}
}

// TestSamples: what config/samples shows is accepted.
func TestSamples(t *testing.T) {
	objects, err := Manifests(filepath.Join(tools.Root(), "config", "samples"))
	if err != nil {
		t.Fatal(err)
	}
	team(t, "alpha", []string{"ada@example.com"}, []string{"lena@example.com"})
	for _, o := range objects {
		user := "ada@example.com"
		switch o.GetKind() {
		case "Session", "Workstation":
		default: // a TeamMemory, too: it is written by whoever may read its Secrets
			user = ""
		}
		api := admin(t)
		if user != "" {
			api = clientOf(t, user)
		}
		if err := api.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(o), client.FieldOwner("sample"), client.ForceOwnership, client.DryRunAll); err != nil {
			t.Errorf("%s %s: %v", o.GetKind(), o.GetName(), err)
		}
		if o.GetKind() == "Session" {
			id, _, _ := unstructured.NestedString(o.Object, "spec", "sessionID")
			owner, _, _ := unstructured.NestedString(o.Object, "spec", "owner")
			if want := v1alpha1.SessionName(id, owner); o.GetName() != want {
				t.Errorf("name of the sample Session: got %s, want %s", o.GetName(), want)
			}
		}
	}
}
