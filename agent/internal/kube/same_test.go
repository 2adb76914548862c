package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/undersong-dev/undersong/api/v1alpha1"
)

// asked is a request as a server sees it.
type asked struct {
	Method, Path string
	Query        url.Values
	Accept, Type string
	Agent        string
	Body         any
}

// server answers every request in one way and notes them.
type server struct {
	*httptest.Server
	asked []asked

	status int
	header map[string]string
	body   string
}

func newServer(t *testing.T) *server {
	t.Helper()
	s := &server{status: http.StatusOK, header: map[string]string{"Content-Type": "application/json"}}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		data, _ := io.ReadAll(r.Body) // a request that breaks off is compared as it came
		a := asked{
			Method: r.Method, Path: r.URL.Path, Query: r.URL.Query(),
			Accept: r.Header.Get("Accept"), Type: r.Header.Get("Content-Type"), Agent: r.UserAgent(),
		}
		if fields := a.Query["fieldSelector"]; len(fields) > 0 { // in no order
			parts := strings.Split(fields[0], ",")
			slices.Sort(parts)
			fields[0] = strings.Join(parts, ",")
		}
		a.Accept = strings.TrimSuffix(a.Accept, ", */*") // theirs adds it to all but an apply
		if len(data) > 0 {
			if err := json.Unmarshal(data, &a.Body); err != nil {
				a.Body = string(data)
			}
		}
		s.asked = append(s.asked, a)
		for name, value := range s.header {
			w.Header().Set(name, value)
		}
		w.WriteHeader(s.status)
		_, _ = io.WriteString(w, s.body) // who does not wait for it does not compare it
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *server) config() *rest.Config {
	return &rest.Config{Host: s.URL, UserAgent: "undersong", QPS: -1, WarningHandler: rest.NoWarnings{}}
}

// theirs is controller-runtime's client for the same kinds.
func theirs(t *testing.T, config *rest.Config) client.WithWatch {
	t.Helper()
	scheme := runtime.NewScheme()
	mapper := apimeta.NewDefaultRESTMapper(nil)
	for _, add := range []func(*runtime.Scheme) error{v1alpha1.AddToScheme, authenticationv1.AddToScheme, authorizationv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	for kind, name := range resources {
		scope := apimeta.RESTScopeNamespace
		if kind.Group != v1alpha1.GroupVersion.Group {
			scope = apimeta.RESTScopeRoot
		}
		r := kind.GroupVersion().WithResource(name)
		mapper.AddSpecific(kind, r, r, scope)
	}
	config = rest.CopyConfig(config)
	config.ContentType = runtime.ContentTypeJSON // it would ask for reviews in protobuf
	c, err := client.NewWithWatch(config, client.Options{Scheme: scheme, Mapper: mapper})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

var (
	key = Key{Namespace: "alpha", Name: "one"}

	// held is what an object holds before a call; of it nothing may be left that
	// the answer does not say.
	held = v1alpha1.Session{
		ObjectMeta: metav1.ObjectMeta{Namespace: "alpha", Name: "one", UID: "u-1", ResourceVersion: "7", Labels: map[string]string{"a": "b"}},
		Spec:       v1alpha1.SessionSpec{Owner: "ada", SessionID: "s-1", MemoryRef: v1alpha1.LocalRef{Name: "main"}},
	}
	review = authenticationv1.SelfSubjectReview{}
	access = authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: "alpha", Group: "undersong.dev", Resource: "sessions", Verb: "get"},
	}}
)

func entry() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": "Session",
		"metadata": map[string]any{"namespace": "alpha", "name": "one", "uid": "u-1", "resourceVersion": "7"},
		"spec":     map[string]any{"lines": int64(3), "writers": []any{map[string]any{"workstation": "w-<1>"}}},
	}}
}

// calls are all that the agent asks, of ours and in controller-runtime's words.
// They return the object that was read into.
var calls = map[string]struct {
	ours   func(context.Context, *Client) (runtime.Object, error)
	theirs func(context.Context, client.WithWatch) (runtime.Object, error)
}{
	"get": {
		func(ctx context.Context, c *Client) (runtime.Object, error) {
			o := held.DeepCopy()
			return o, c.Get(ctx, key, o)
		},
		func(ctx context.Context, c client.WithWatch) (runtime.Object, error) {
			o := held.DeepCopy()
			return o, c.Get(ctx, key, o)
		},
	},
	"list": {
		func(ctx context.Context, c *Client) (runtime.Object, error) {
			o := &v1alpha1.TeamMemoryList{}
			return o, c.List(ctx, o, "alpha", nil)
		},
		func(ctx context.Context, c client.WithWatch) (runtime.Object, error) {
			o := &v1alpha1.TeamMemoryList{}
			return o, c.List(ctx, o, client.InNamespace("alpha"))
		},
	},
	"list by fields": {
		func(ctx context.Context, c *Client) (runtime.Object, error) {
			o := &v1alpha1.MemoryBlockList{}
			return o, c.List(ctx, o, "alpha", Fields{"spec.project": "git.example.com/a,b=c", "spec.memoryRef.name": "main"})
		},
		func(ctx context.Context, c client.WithWatch) (runtime.Object, error) {
			o := &v1alpha1.MemoryBlockList{}
			return o, c.List(ctx, o, client.InNamespace("alpha"), client.MatchingFields{"spec.project": "git.example.com/a,b=c", "spec.memoryRef.name": "main"})
		},
	},
	"watch": {
		func(ctx context.Context, c *Client) (runtime.Object, error) {
			w, err := c.Watch(ctx, &v1alpha1.SessionList{}, "alpha", Fields{"spec.owner": "ada"}, Since{Version: "41", For: 300 * time.Second})
			return nil, ended(w, err)
		},
		func(ctx context.Context, c client.WithWatch) (runtime.Object, error) {
			w, err := c.Watch(ctx, &v1alpha1.SessionList{}, &client.ListOptions{Raw: &metav1.ListOptions{
				ResourceVersion: "41", AllowWatchBookmarks: true, TimeoutSeconds: ptr.To[int64](300),
			}}, client.InNamespace("alpha"), client.MatchingFields{"spec.owner": "ada"})
			return nil, ended(w, err)
		},
	},
	"create": {
		func(ctx context.Context, c *Client) (runtime.Object, error) {
			o := held.DeepCopy()
			return o, c.Create(ctx, o, "undersong-create")
		},
		func(ctx context.Context, c client.WithWatch) (runtime.Object, error) {
			o := held.DeepCopy()
			return o, c.Create(ctx, o, client.FieldOwner("undersong-create"))
		},
	},
	"create a review": {
		func(ctx context.Context, c *Client) (runtime.Object, error) {
			o := review.DeepCopy()
			return o, c.Create(ctx, o, "")
		},
		func(ctx context.Context, c client.WithWatch) (runtime.Object, error) {
			o := review.DeepCopy()
			return o, c.Create(ctx, o)
		},
	},
	"create an access review": {
		func(ctx context.Context, c *Client) (runtime.Object, error) {
			o := access.DeepCopy()
			return o, c.Create(ctx, o, "")
		},
		func(ctx context.Context, c client.WithWatch) (runtime.Object, error) {
			o := access.DeepCopy()
			return o, c.Create(ctx, o)
		},
	},
	"apply": {
		func(ctx context.Context, c *Client) (runtime.Object, error) {
			return nil, c.Apply(ctx, entry(), "undersong-w-1")
		},
		func(ctx context.Context, c client.WithWatch) (runtime.Object, error) {
			return nil, c.Apply(ctx, client.ApplyConfigurationFromUnstructured(entry()), client.FieldOwner("undersong-w-1"), client.ForceOwnership)
		},
	},
	"merge": {
		func(ctx context.Context, c *Client) (runtime.Object, error) {
			o := held.DeepCopy()
			return o, c.Merge(ctx, o, map[string]any{"spec": map[string]any{"owner": "bob"}}, "undersong-scrub")
		},
		func(ctx context.Context, c client.WithWatch) (runtime.Object, error) {
			o := held.DeepCopy()
			o.Spec.Owner = "bob"
			return o, c.Patch(ctx, o, client.MergeFromWithOptions(held.DeepCopy(), client.MergeFromWithOptimisticLock{}), client.FieldOwner("undersong-scrub"))
		},
	},
	"delete": {
		func(ctx context.Context, c *Client) (runtime.Object, error) {
			return nil, c.Delete(ctx, held.DeepCopy())
		},
		func(ctx context.Context, c client.WithWatch) (runtime.Object, error) {
			return nil, c.Delete(ctx, held.DeepCopy(), client.Preconditions{UID: ptr.To(types.UID("u-1"))})
		},
	},
}

// ended reads a watch to its end; an event of type Error is its error.
func ended(w watch.Interface, err error) error {
	if err != nil {
		return err
	}
	defer w.Stop()
	var events []string
	for event := range w.ResultChan() {
		if event.Type == watch.Error {
			err = apierrors.FromObject(event.Object)
			continue
		}
		o, aerr := apimeta.Accessor(event.Object)
		if aerr != nil {
			return aerr
		}
		events = append(events, fmt.Sprintf("%s %s %s", event.Type, o.GetName(), o.GetResourceVersion()))
	}
	if err == nil && len(events) > 0 {
		err = fmt.Errorf("events: %s", strings.Join(events, ", "))
	}
	return err
}

const (
	object = `{"apiVersion":"undersong.dev/v1alpha1","kind":"Session","metadata":{"name":"one","namespace":"alpha","uid":"u-2","resourceVersion":"8"},"spec":{"owner":"bob"}}`
	status = `{"apiVersion":"v1","kind":"Status","metadata":{},"status":"Failure","message":"so it is","reason":%q,"code":%d}`
)

// stricter are the answers to an apply that theirs takes for success, or says
// less of: it decodes them without types.
var stricter = map[string]string{
	"apply/a failure of 200": "so it is",
	"apply/another kind":     `no kind "Pod" is registered for version "v1" in scheme `,
	"apply/nothing":          "couldn't get version/kind; json parse error: unexpected end of JSON input",
}

// TestItAsksAsControllerRuntimeDoes: every request, what an answer makes of the
// object, and every error are the same as with controller-runtime's client,
// which the agent had before.
func TestItAsksAsControllerRuntimeDoes(t *testing.T) {
	answers := map[string]struct {
		reason string
		status int
		header map[string]string
		body   string
	}{
		"an object":        {reason: "what it does not say is empty", status: 200, body: object},
		"a new object":     {reason: "as to a create", status: 201, body: object},
		"a list":           {reason: "as to a list", status: 200, body: `{"apiVersion":"undersong.dev/v1alpha1","kind":"TeamMemoryList","metadata":{"resourceVersion":"9"},"items":[{"metadata":{"name":"main"}}]}`},
		"done":             {reason: "as to a delete", status: 200, body: `{"apiVersion":"v1","kind":"Status","metadata":{},"status":"Success"}`},
		"a failure of 200": {reason: "what the status says counts", status: 200, body: fmt.Sprintf(status, "Conflict", 409)},
		"changes": {reason: "a watch with a bookmark, and its end", status: 200, body: `{"type":"ADDED","object":` + object + `}
{"type":"BOOKMARK","object":{"apiVersion":"undersong.dev/v1alpha1","kind":"Session","metadata":{"resourceVersion":"12"}}}
`},
		"expired in a watch": {reason: "the version is too old", status: 200, body: `{"type":"ERROR","object":` + fmt.Sprintf(status, "Expired", 410) + "}"},
		"half a change":      {reason: "the connection broke", status: 200, body: `{"type":"ADDED","object":{"apiVersion":"undersong.dev/v1al`},
		"another kind":       {reason: "it is none of ours", status: 200, body: `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"one"}}`},
		"a page":             {reason: "something in between answers, and says it is well", status: 200, header: map[string]string{"Content-Type": "text/html"}, body: "<html>Log in</html>"},
		"a page as JSON":     {reason: "the same, with a wrong type", status: 200, body: "<html>Log in</html>"},
		"half an object":     {reason: "it is cut off", status: 200, body: object[:60]},
		"nothing":            {reason: "no body", status: 200},
		"unauthorized":       {reason: "the login expired", status: 401, body: fmt.Sprintf(status, "Unauthorized", 401)},
		"forbidden":          {reason: "no right", status: 403, body: fmt.Sprintf(status, "Forbidden", 403)},
		"not found":          {reason: "no object", status: 404, body: fmt.Sprintf(status, "NotFound", 404)},
		"unknown kind":       {reason: "no such path", status: 404, header: map[string]string{"Content-Type": "text/plain"}, body: "404 page not found\n"},
		"exists":             {reason: "it is there", status: 409, body: fmt.Sprintf(status, "AlreadyExists", 409)},
		"conflict":           {reason: "it changed", status: 409, body: fmt.Sprintf(status, "Conflict", 409)},
		"expired":            {reason: "the version is too old", status: 410, body: fmt.Sprintf(status, "Expired", 410)},
		"invalid":            {reason: "a rule", status: 422, body: fmt.Sprintf(status, "Invalid", 422)},
		"too many":           {reason: "asked again as the server says, ten times", status: 429, header: map[string]string{"Content-Type": "application/json", "Retry-After": "0"}, body: fmt.Sprintf(status, "TooManyRequests", 429)},
		"an error":           {reason: "the server's", status: 500, body: fmt.Sprintf(status, "InternalError", 500)},
		"a proxy's error":    {reason: "no status object", status: 502, header: map[string]string{"Content-Type": "text/html"}, body: "<html>Bad gateway</html>"},
	}
	for called, call := range calls {
		for answered, answer := range answers {
			t.Run(called+"/"+answered, func(t *testing.T) {
				s := newServer(t)
				s.status, s.body = answer.status, answer.body
				if answer.header != nil {
					s.header = answer.header
				}
				c, err := New(s.config())
				if err != nil {
					t.Fatal(err)
				}
				want, wantErr := call.theirs(t.Context(), theirs(t, s.config()))
				wantAsked := s.asked
				s.asked = nil
				got, gotErr := call.ours(t.Context(), c)
				if diff := cmp.Diff(wantAsked, s.asked); diff != "" {
					t.Errorf("%s: asked (-theirs +ours):\n%s", answer.reason, diff)
				}
				if text, own := stricter[called+"/"+answered]; own {
					if gotErr == nil || !strings.HasPrefix(gotErr.Error(), text) {
						t.Errorf("%s: %v, want %q…", answer.reason, gotErr, text)
					}
					return
				}
				if diff := cmp.Diff(words(wantErr), words(gotErr)); diff != "" {
					t.Errorf("%s: error (-theirs +ours):\n%s", answer.reason, diff)
				}
				if wantErr != nil {
					return // what an object holds behind an error is nobody's promise
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%s: object (-theirs +ours):\n%s", answer.reason, diff)
				}
			})
		}
	}
}

// query is a URL's, in an error; its selectors have no order.
var query = regexp.MustCompile(`\?[^"]*"`)

// words are all that the agent may look at in an error.
func words(err error) []string {
	if err == nil {
		return nil
	}
	_, network := errors.AsType[net.Error](err)
	return []string{
		query.ReplaceAllString(err.Error(), `"`), string(apierrors.ReasonForError(err)),
		fmt.Sprint("network: ", network, ", late: ", errors.Is(err, context.DeadlineExceeded)),
	}
}

// TestItFailsAsControllerRuntimeDoes: the same where there is no answer.
func TestItFailsAsControllerRuntimeDoes(t *testing.T) {
	for called, call := range calls {
		for name, broken := range map[string]func(context.Context, *server) (context.Context, context.CancelFunc){
			"nobody is there": func(ctx context.Context, s *server) (context.Context, context.CancelFunc) {
				s.Close()
				return context.WithCancel(ctx)
			},
			"the time is over": func(ctx context.Context, _ *server) (context.Context, context.CancelFunc) {
				return context.WithTimeout(ctx, 0)
			},
			"given up": func(ctx context.Context, _ *server) (context.Context, context.CancelFunc) {
				ctx, cancel := context.WithCancel(ctx)
				cancel()
				return ctx, cancel
			},
		} {
			t.Run(called+"/"+name, func(t *testing.T) {
				s := newServer(t)
				c, err := New(s.config())
				if err != nil {
					t.Fatal(err)
				}
				their := theirs(t, s.config())
				ctx, cancel := broken(t.Context(), s)
				defer cancel()
				_, want := call.theirs(ctx, their)
				_, got := call.ours(ctx, c)
				if diff := cmp.Diff(words(want), words(got)); want == nil || diff != "" {
					t.Errorf("error (-theirs +ours):\n%s", diff)
				}
			})
		}
	}
}

// TestOfOtherKindsItSaysSo: a call for a kind that is not in the table is a
// mistake of ours, and is told before anything is asked.
func TestOfOtherKindsItSaysSo(t *testing.T) {
	s := newServer(t)
	c, err := New(s.config())
	if err != nil {
		t.Fatal(err)
	}
	pod := &unstructured.Unstructured{}
	pod.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "Pod"})
	pods := &corev1.PodList{}
	_, watching := c.Watch(t.Context(), pods, "alpha", nil, Since{})
	for name, tc := range map[string]struct {
		err  error
		want string
	}{
		"get":             {c.Get(t.Context(), key, &corev1.Pod{}), "*v1.Pod is no kind that a workstation uses"},
		"list":            {c.List(t.Context(), pods, "alpha", nil), "*v1.PodList is no kind that a workstation uses"},
		"watch":           {watching, "*v1.PodList is no kind that a workstation uses"},
		"create":          {c.Create(t.Context(), &corev1.Pod{}, "m"), "*v1.Pod is no kind that a workstation uses"},
		"merge":           {c.Merge(t.Context(), &corev1.Pod{}, nil, "m"), "*v1.Pod is no kind that a workstation uses"},
		"delete":          {c.Delete(t.Context(), &corev1.Pod{}), "*v1.Pod is no kind that a workstation uses"},
		"apply":           {c.Apply(t.Context(), pod, "m"), "/v1, Kind=Pod is no kind that a workstation uses"},
		"apply nothing":   {c.Apply(t.Context(), &unstructured.Unstructured{}, "m"), "*unstructured.Unstructured is no kind that a workstation uses"},
		"a review's kind": {c.Create(t.Context(), &authenticationv1.TokenReview{}, ""), "authentication.k8s.io/v1, Kind=TokenReview is no kind that a workstation uses"},
	} {
		if tc.err == nil || tc.err.Error() != tc.want {
			t.Errorf("%s: %v, want %q", name, tc.err, tc.want)
		}
	}
	if len(s.asked) > 0 {
		t.Errorf("it asked: %+v", s.asked)
	}
}
