// Package kube is a client of the API server for the kinds that a workstation
// uses: undersong's own, and the two reviews that say who the user is and what
// they may do. It knows their places in the API, so it asks for none.
//
// It promises what the agent builds on: each call is one request, made again
// only where the server said to come back later; errors are those of package
// apierrors; and what an answer leaves out is empty afterwards, whatever the
// object held before. An answer that is no object is an error, also of a write:
// nothing counts as written because something in between said so.
//
// It has no cache, no discovery and no other kinds: a client for all of them
// brings every type of Kubernetes with it, which was more than half of the
// binary.
package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/undersong-dev/undersong/api/v1alpha1"
)

// Key names one object.
type Key = types.NamespacedName

// Object is an object of one of the kinds.
type Object interface {
	metav1.Object
	runtime.Object
}

// List is a list of them.
type List interface {
	metav1.ListInterface
	runtime.Object
}

// Fields select objects by their values. Nil selects all.
type Fields map[string]string

func (f Fields) selector() string { return fields.SelectorFromSet(fields.Set(f)).String() }

// Since says which changes are watched.
type Since struct {
	// Version is the list's, or the last change's.
	Version string

	// For is how long the server keeps the watch, in whole seconds.
	For time.Duration
}

// resources are the kinds and how the API calls them.
var resources = map[schema.GroupVersionKind]string{
	v1alpha1.GroupVersion.WithKind("Session"):                              "sessions",
	v1alpha1.GroupVersion.WithKind("Workstation"):                          "workstations",
	v1alpha1.GroupVersion.WithKind("TeamMemory"):                           "teammemories",
	v1alpha1.GroupVersion.WithKind("MemoryBlock"):                          "memoryblocks",
	authenticationv1.SchemeGroupVersion.WithKind("SelfSubjectReview"):      "selfsubjectreviews",
	authorizationv1.SchemeGroupVersion.WithKind("SelfSubjectAccessReview"): "selfsubjectaccessreviews",
}

// Client asks one API server, with one user's rights. It is safe for several
// goroutines.
type Client struct {
	scheme *runtime.Scheme
	params runtime.ParameterCodec
	groups map[schema.GroupVersion]rest.Interface
}

// New returns a client. It asks the server for nothing.
func New(config *rest.Config) (*Client, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1alpha1.AddToScheme, authenticationv1.AddToScheme, authorizationv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("make client: %w", err)
		}
	}
	config = rest.CopyConfig(config)
	config.APIPath = "/apis"
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	http, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	c := &Client{scheme: scheme, params: runtime.NewParameterCodec(scheme), groups: map[schema.GroupVersion]rest.Interface{}}
	for _, gv := range []schema.GroupVersion{v1alpha1.GroupVersion, authenticationv1.SchemeGroupVersion, authorizationv1.SchemeGroupVersion} {
		config.GroupVersion = &gv
		if c.groups[gv], err = rest.RESTClientForConfigAndClient(config, http); err != nil {
			return nil, fmt.Errorf("make client: %w", err)
		}
	}
	return c, nil
}

// resource is where the objects of a kind are.
type resource struct {
	rest.Interface
	name       string
	namespaced bool
}

func (c *Client) resource(object runtime.Object) (resource, error) {
	kinds, _, err := c.scheme.ObjectKinds(object)
	if err != nil {
		return resource{}, fmt.Errorf("%T is no kind that a workstation uses", object)
	}
	kind := kinds[0]
	if _, list := object.(List); list {
		kind.Kind = strings.TrimSuffix(kind.Kind, "List")
	}
	name, known := resources[kind]
	if !known {
		return resource{}, fmt.Errorf("%s is no kind that a workstation uses", kind)
	}
	gv := kind.GroupVersion()
	return resource{Interface: c.groups[gv], name: name, namespaced: gv == v1alpha1.GroupVersion}, nil
}

// of aims a request at all objects of a namespace, one at one of them.
func (r resource) of(request *rest.Request, namespace string) *rest.Request {
	return request.NamespaceIfScoped(namespace, r.namespaced).Resource(r.name)
}

func (r resource) one(request *rest.Request, object metav1.Object) *rest.Request {
	return r.of(request, object.GetNamespace()).Name(object.GetName())
}

// Get reads an object.
func (c *Client) Get(ctx context.Context, key Key, into Object) error {
	r, err := c.resource(into)
	if err != nil {
		return err
	}
	return read(r.of(r.Get(), key.Namespace).Name(key.Name).Do(ctx), into)
}

// List reads the objects of a namespace that have these fields, all in one
// answer.
func (c *Client) List(ctx context.Context, into List, namespace string, which Fields) error {
	r, err := c.resource(into)
	if err != nil {
		return err
	}
	options := &metav1.ListOptions{FieldSelector: which.selector()}
	return read(r.of(r.Get(), namespace).VersionedParams(options, c.params).Do(ctx), into)
}

// Watch follows what List reads. The list says of which kind, and is not
// written to. Bookmarks come, too; a watch that the server cannot serve any
// more ends in an event of type Error.
func (c *Client) Watch(ctx context.Context, list List, namespace string, which Fields, since Since) (watch.Interface, error) {
	r, err := c.resource(list)
	if err != nil {
		return nil, err
	}
	options := &metav1.ListOptions{
		Watch: true, FieldSelector: which.selector(), ResourceVersion: since.Version,
		AllowWatchBookmarks: true, TimeoutSeconds: new(int64(since.For / time.Second)),
	}
	return r.of(r.Get(), namespace).VersionedParams(options, c.params).Watch(ctx)
}

// Create makes an object, and reads what became of it. The manager owns its
// fields; a review has none.
func (c *Client) Create(ctx context.Context, object Object, manager string) error {
	r, err := c.resource(object)
	if err != nil {
		return err
	}
	options := &metav1.CreateOptions{FieldManager: manager}
	return read(r.of(r.Post(), object.GetNamespace()).VersionedParams(options, c.params).Body(object).Do(ctx), object)
}

// Apply makes the manager's fields those of the object, also where they were
// others'. With a UID or a version in its metadata it is that object, or an
// error; without, an object that is not there is made.
func (c *Client) Apply(ctx context.Context, object *unstructured.Unstructured, manager string) error {
	r, err := c.resource(object)
	if err != nil {
		return err
	}
	data, err := json.Marshal(object)
	if err != nil {
		return fmt.Errorf("encode %s: %w", r.name, err)
	}
	options := &metav1.PatchOptions{FieldManager: manager, Force: new(true)}
	_, err = r.one(r.Patch(types.ApplyYAMLPatchType), object).VersionedParams(options, c.params).Body(data).Do(ctx).Get()
	return err
}

// Merge changes fields of an object as a JSON merge patch says, and reads what
// became of it. It is a conflict if the object changed since it was read.
func (c *Client) Merge(ctx context.Context, object Object, patch map[string]any, manager string) error {
	r, err := c.resource(object)
	if err != nil {
		return err
	}
	patch = maps.Clone(patch)
	patch["metadata"] = map[string]any{"resourceVersion": object.GetResourceVersion()}
	data, err := json.Marshal(patch)
	if err != nil {
		return fmt.Errorf("encode %s: %w", r.name, err)
	}
	options := &metav1.PatchOptions{FieldManager: manager}
	return read(r.one(r.Patch(types.MergePatchType), object).VersionedParams(options, c.params).Body(data).Do(ctx), object)
}

// Delete deletes an object, unless another one with its name has taken its
// place: then it is a conflict.
func (c *Client) Delete(ctx context.Context, object Object) error {
	r, err := c.resource(object)
	if err != nil {
		return err
	}
	options := &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: new(object.GetUID())}}
	_, err = r.one(r.Delete(), object).Body(options).Do(ctx).Get()
	return err
}

// read decodes an answer. Decoding into the object itself would keep what the
// answer leaves out.
func read(answer rest.Result, into runtime.Object) error {
	fresh := reflect.New(reflect.TypeOf(into).Elem())
	if err := answer.Into(fresh.Interface().(runtime.Object)); err != nil {
		return err
	}
	reflect.ValueOf(into).Elem().Set(fresh.Elem())
	return nil
}
