package writes

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/undersong-dev/undersong/api/v1alpha1"
)

// counts are the counters that are not zero; zeros says how many are.
func counts(t *testing.T) (some map[string]float64, zeros int) {
	t.Helper()
	r := prometheus.NewRegistry()
	r.MustRegister(total)
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	some = map[string]float64{}
	for _, m := range families[0].GetMetric() {
		if n := m.GetCounter().GetValue(); n > 0 {
			some[m.GetLabel()[0].GetValue()+" "+m.GetLabel()[1].GetValue()] = n
		} else {
			zeros++
		}
	}
	return some, zeros
}

func TestWritesAreCountedByKindAndVerb(t *testing.T) {
	if some, zeros := counts(t); len(some) != 0 || zeros != 20 {
		t.Errorf("before the first write %v, and %d zeros, want 5 kinds × 4 verbs", some, zeros)
	}
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	s := &v1alpha1.Session{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "s"}}
	c := Count(fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(s).Build())
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(c.Create(t.Context(), s))
	before := s.DeepCopy()
	s.Status.Lines = 1
	must(c.Status().Patch(t.Context(), s, client.MergeFrom(before)))
	must(c.Status().Update(t.Context(), s))
	before = s.DeepCopy()
	s.Labels = map[string]string{"a": "b"}
	must(c.Patch(t.Context(), s, client.MergeFrom(before)))
	must(c.Update(t.Context(), s))
	must(c.Get(t.Context(), client.ObjectKeyFromObject(s), s))
	must(c.Delete(t.Context(), s))
	must(c.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c"}}))
	some, _ := counts(t)
	want := map[string]float64{"Session create": 1, "Session status": 2, "Session update": 2, "Session delete": 1, "other create": 1}
	if diff := cmp.Diff(want, some); diff != "" {
		t.Errorf("counted (-want +got):\n%s", diff)
	}
}
