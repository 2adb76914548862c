// Package writes counts what the controller writes to the API server, by kind.
// The bars are at most three status writes for each delta, and none for an
// object that did not change, however often it is looked at: a counter that
// climbs without news is a bug that etcd pays for.
//
//	undersong_api_writes_total   writes to the API server, by kind and verb
package writes

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/undersong-dev/undersong/api/v1alpha1"
)

var total = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "undersong_api_writes_total", Help: "Writes to the API server that were carried out or refused, by kind and verb.",
}, []string{"kind", "verb"})

// Verbs of a write.
const (
	verbCreate = "create"
	verbUpdate = "update"
	verbDelete = "delete"
	verbStatus = "status"
)

// other is the kind of all that is not ours.
const other = "other"

func kinds() []string { return []string{"Session", "TeamMemory", "MemoryBlock", "Workstation"} }

func init() {
	for _, kind := range append(kinds(), other) {
		for _, verb := range []string{verbCreate, verbUpdate, verbDelete, verbStatus} {
			total.WithLabelValues(kind, verb)
		}
	}
	metrics.Registry.MustRegister(total)
}

// Count makes a client count its writes. Reads, and events, which have a
// client of their own, are not counted.
func Count(c client.Client) client.Client { return counting{c} }

// counting is a client that counts.
type counting struct{ client.Client }

func count(scheme *runtime.Scheme, obj runtime.Object, verb string) {
	kind := other
	if gvk, err := apiutil.GVKForObject(obj, scheme); err == nil && gvk.Group == v1alpha1.GroupVersion.Group {
		for _, k := range kinds() {
			if gvk.Kind == k {
				kind = k
			}
		}
	}
	total.WithLabelValues(kind, verb).Inc()
}

func (c counting) Create(ctx context.Context, obj client.Object, opts ...client.CreateOption) error {
	count(c.Scheme(), obj, verbCreate)
	return c.Client.Create(ctx, obj, opts...)
}

func (c counting) Update(ctx context.Context, obj client.Object, opts ...client.UpdateOption) error {
	count(c.Scheme(), obj, verbUpdate)
	return c.Client.Update(ctx, obj, opts...)
}

func (c counting) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
	count(c.Scheme(), obj, verbUpdate)
	return c.Client.Patch(ctx, obj, patch, opts...)
}

func (c counting) Delete(ctx context.Context, obj client.Object, opts ...client.DeleteOption) error {
	count(c.Scheme(), obj, verbDelete)
	return c.Client.Delete(ctx, obj, opts...)
}

func (c counting) Apply(ctx context.Context, obj runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
	total.WithLabelValues(other, verbUpdate).Inc() // no reconciler does
	return c.Client.Apply(ctx, obj, opts...)
}

func (c counting) Status() client.SubResourceWriter {
	return countingStatus{c.Client.Status(), c.Scheme()}
}

type countingStatus struct {
	client.SubResourceWriter
	scheme *runtime.Scheme
}

func (c countingStatus) Update(ctx context.Context, obj client.Object, opts ...client.SubResourceUpdateOption) error {
	count(c.scheme, obj, verbStatus)
	return c.SubResourceWriter.Update(ctx, obj, opts...)
}

func (c countingStatus) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
	count(c.scheme, obj, verbStatus)
	return c.SubResourceWriter.Patch(ctx, obj, patch, opts...)
}
