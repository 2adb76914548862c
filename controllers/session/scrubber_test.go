package session

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/controllers/connect"
)

// TestAFailingMemoryIsLeftAlone: what does not go is not tried every two seconds,
// and does not keep another memory waiting.
func TestAFailingMemoryIsLeftAlone(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	memory := func(name string) *v1alpha1.TeamMemory {
		return &v1alpha1.TeamMemory{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)},
			Spec: v1alpha1.TeamMemorySpec{
				Store:  v1alpha1.Store{CredentialsSecretRef: v1alpha1.LocalRef{Name: name}}, // there is no such Secret
				Scrubs: []v1alpha1.Scrub{{ID: "s", Mode: v1alpha1.ScrubLook}},
			},
		}
	}
	tried := map[string]int{}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(memory("first")).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if _, ok := obj.(*corev1.Secret); ok {
				tried[key.Name]++
			}
			return c.Get(ctx, key, obj, opts...)
		},
	}).Build()
	clock := clocktesting.NewFakePassiveClock(time.Now())
	w := &Scrubber{Client: c, Live: c, Connect: connect.New(c, nil, clock), Scrubs: NewScrubs(), Clock: clock}
	again := map[types.UID]time.Time{}
	for range 15 {
		w.round(t.Context(), again)
		clock.SetTime(clock.Now().Add(scrubAgain / 15))
	}
	if tried["first"] != 1 {
		t.Errorf("within %s it was tried %d times, want once", scrubAgain, tried["first"])
	}
	if err := c.Create(t.Context(), memory("second")); err != nil {
		t.Fatal(err)
	}
	w.round(t.Context(), again)
	if tried["first"] != 2 || tried["second"] != 1 {
		t.Errorf("after %s it was tried %d times in all, and another one %d times; want twice and once", scrubAgain, tried["first"], tried["second"])
	}
}
