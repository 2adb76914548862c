package upload

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/undersong-dev/undersong/agent/internal/kube"
	"github.com/undersong-dev/undersong/api/v1alpha1"
)

const (
	// requestManager owns spec.requests.
	requestManager = "undersong-cli"
	// maxRequests is the bound of spec.requests.
	maxRequests = 16
	// requestAttempts bounds how often a request is applied when others change
	// the Session at the same moment.
	requestAttempts = 5
)

// ErrTooManyRequests means that as many requests wait as a Session can hold.
var ErrTooManyRequests = errors.New("too many requests of this session wait for an answer: try again later")

// API is what asking for something of a Session takes; *kube.Client has it.
type API interface {
	Get(ctx context.Context, key kube.Key, into kube.Object) error
	Apply(ctx context.Context, object *unstructured.Unstructured, manager string) error
	Delete(ctx context.Context, object kube.Object) error
}

// Request puts a request into spec.requests of the user's own Session, unless
// one of its id is there. Requests that were answered make room.
func Request(ctx context.Context, c API, key kube.Key, q v1alpha1.Request) error {
	var err error
	for range requestAttempts {
		if err = request(ctx, c, key, q); !apierrors.IsConflict(err) {
			break
		}
	}
	return err
}

func request(ctx context.Context, c API, key kube.Key, q v1alpha1.Request) error {
	live := &v1alpha1.Session{}
	if err := c.Get(ctx, key, live); err != nil {
		return err
	}
	open := []v1alpha1.Request{}
	for _, known := range live.Spec.Requests {
		if known.ID == q.ID {
			return nil
		}
		if _, done := AnswerTo(live, known.ID); !done {
			open = append(open, known)
		}
	}
	if len(open) >= maxRequests {
		return ErrTooManyRequests
	}
	var list []any
	for _, each := range append(open, q) {
		fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&each)
		if err != nil {
			return fmt.Errorf("format request: %w", err)
		}
		list = append(list, fields)
	}
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(),
		"kind":       "Session",
		// With the version: another request that came meanwhile would be lost.
		"metadata": map[string]any{
			"namespace": key.Namespace, "name": key.Name, "uid": string(live.UID), "resourceVersion": live.ResourceVersion,
		},
		"spec": map[string]any{"requests": list},
	}}
	return c.Apply(ctx, object, requestManager)
}

// AnswerTo returns the answer to a request, and false while there is none.
func AnswerTo(live *v1alpha1.Session, id string) (v1alpha1.Answer, bool) {
	i := slices.IndexFunc(live.Status.Answered, func(a v1alpha1.Answer) bool { return a.ID == id })
	if i < 0 {
		return v1alpha1.Answer{}, false
	}
	return live.Status.Answered[i], true
}
