package status_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/controllers/internal/status"
	"github.com/undersong-dev/undersong/internal/outcome"
)

// bench is an object in a fake API server whose status patches are counted and
// may be refused.
type bench struct {
	client   client.Client
	recorder *events.FakeRecorder
	patches  int
	refuse   error
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{recorder: events.NewFakeRecorder(16)}
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	obj := &v1alpha1.Session{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "s", Generation: 3}}
	b.client = fake.NewClientBuilder().WithScheme(scheme).WithObjects(obj).WithStatusSubresource(obj).WithInterceptorFuncs(interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			b.patches++
			if b.refuse != nil {
				return b.refuse
			}
			return c.SubResource(sub).Patch(ctx, obj, patch, opts...)
		},
	}).Build()
	return b
}

// finish runs one reconcile that ends in err.
func (b *bench) finish(t *testing.T, err error) (ctrl.Result, bool, *v1alpha1.Session, error) {
	t.Helper()
	obj := &v1alpha1.Session{}
	if e := b.client.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "s"}, obj); e != nil {
		t.Fatal(e)
	}
	w := status.Writer{Client: b.client, Recorder: b.recorder}
	res, written, err := w.Finish(t.Context(), obj.DeepCopy(), obj, err, func() { obj.Status.ObservedGeneration = obj.Generation }, time.Hour)
	return res, written, obj, err
}

func conditions(s *v1alpha1.Session) map[string]string {
	out := map[string]string{}
	for _, c := range s.Status.Conditions {
		out[c.Type] = string(c.Status) + " " + c.Reason
	}
	return out
}

func TestFinish(t *testing.T) {
	boom := errors.New("it broke")
	for name, c := range map[string]struct {
		reason     string
		err        error
		want       map[string]string
		result     ctrl.Result
		wantErr    error
		terminal   bool
		generation int64
	}{
		"success": {
			reason: "Ready is True and the generation is observed",
			want:   map[string]string{"Ready": "True Succeeded"}, result: ctrl.Result{RequeueAfter: time.Hour}, generation: 3,
		},
		"plain error": {
			reason: "an error without a reason is retried by the queue",
			err:    boom, wantErr: boom,
			want: map[string]string{"Ready": "False Failed", "Reconciling": "True ProgressingWithRetry"},
		},
		"retry after": {
			reason: "a date replaces the queue's backoff",
			err:    outcome.RetryAfterf(v1alpha1.StoreUnavailableReason, time.Minute, "it broke"),
			want:   map[string]string{"Ready": "False StoreUnavailable", "Reconciling": "True ProgressingWithRetry"}, result: ctrl.Result{RequeueAfter: time.Minute},
		},
		"wait": {
			reason: "waiting is no failure",
			err:    outcome.Waitf(v1alpha1.ProgressingReason, time.Second, "a moment"),
			want:   map[string]string{"Ready": "Unknown Progressing", "Reconciling": "True Progressing"}, result: ctrl.Result{RequeueAfter: time.Second},
		},
		"wait for nothing": {
			reason: "at once is not never",
			err:    outcome.Waitf(v1alpha1.ProgressingReason, 0, "a moment"),
			want:   map[string]string{"Ready": "Unknown Progressing", "Reconciling": "True Progressing"}, result: ctrl.Result{RequeueAfter: time.Millisecond},
		},
		"stall": {
			reason: "a person must act: no retry, and the generation is observed",
			err:    outcome.Stallf(v1alpha1.InvalidSpecReason, "change it"), terminal: true, generation: 3,
			want: map[string]string{"Ready": "False InvalidSpec", "Stalled": "True InvalidSpec"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			res, written, obj, err := b.finish(t, c.err)
			if diff := cmp.Diff(c.want, conditions(obj)); diff != "" {
				t.Errorf("%s: conditions (-want +got):\n%s", c.reason, diff)
			}
			if diff := cmp.Diff(c.result, res); diff != "" {
				t.Errorf("%s: result (-want +got):\n%s", c.reason, diff)
			}
			if errors.Is(err, reconcile.TerminalError(nil)) != c.terminal || (c.wantErr != nil && !errors.Is(err, c.wantErr)) || (c.wantErr == nil && !c.terminal && err != nil) {
				t.Errorf("%s: error is %v", c.reason, err)
			}
			if !written || b.patches != 1 || obj.Status.ObservedGeneration != c.generation {
				t.Errorf("%s: written %v, %d patches, observedGeneration %d", c.reason, written, b.patches, obj.Status.ObservedGeneration)
			}

			// The same again says nothing.
			seen := len(b.recorder.Events)
			_, _, again, _ := b.finish(t, c.err)
			if b.patches != 1 || len(b.recorder.Events) != seen {
				t.Errorf("%s: the second time %d patches and %d events", c.reason, b.patches-1, len(b.recorder.Events)-seen)
			}
			if diff := cmp.Diff(obj.Status, again.Status); diff != "" {
				t.Errorf("%s: the second time status changed:\n%s", c.reason, diff)
			}
		})
	}
}

func TestFinishWhenTheWriteFails(t *testing.T) {
	resource := schema.GroupResource{Group: "undersong.dev", Resource: "sessions"}
	for name, c := range map[string]struct {
		reason  string
		refuse  error
		result  ctrl.Result
		written bool
		retried bool
	}{
		"conflict":  {"somebody wrote meanwhile: look again, quietly", apierrors.NewConflict(resource, "s", nil), ctrl.Result{RequeueAfter: 200 * time.Millisecond}, false, false},
		"not found": {"the object is gone: nothing to do", apierrors.NewNotFound(resource, "s"), ctrl.Result{}, false, false},
		"down":      {"a Stall that is not written is tried again", apierrors.NewInternalError(errors.New("down")), ctrl.Result{}, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.refuse = c.refuse
			res, written, _, err := b.finish(t, outcome.Stallf(v1alpha1.InvalidSpecReason, "change it"))
			if diff := cmp.Diff(c.result, res); diff != "" {
				t.Errorf("%s: result (-want +got):\n%s", c.reason, diff)
			}
			if written != c.written || (err != nil) != c.retried || errors.Is(err, reconcile.TerminalError(nil)) {
				t.Errorf("%s: written %v, error %v", c.reason, written, err)
			}
			if n := len(b.recorder.Events); n != 0 {
				t.Errorf("%s: %d events for a status that is not written", c.reason, n)
			}
		})
	}
}

func TestEventsSayWhatChanged(t *testing.T) {
	b := newBench(t)
	for _, step := range []struct {
		err  error
		want int
	}{
		{nil, 0}, // a first success is no news
		{outcome.Retryf(v1alpha1.StoreUnavailableReason, "down"), 1},
		{outcome.Retryf(v1alpha1.StoreUnavailableReason, "down"), 1},
		{outcome.Waitf(v1alpha1.ProgressingReason, 0, "a moment"), 2}, // recovered
		{nil, 2},
		{outcome.Retryf(v1alpha1.StoreUnavailableReason, "down"), 3},
		{nil, 4},
	} {
		b.finish(t, step.err) //nolint:errcheck // the errors are the test's own
		if n := len(b.recorder.Events); n != step.want {
			t.Fatalf("after %v: %d events, want %d", step.err, n, step.want)
		}
	}
}
