package cluster

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	endpointsliceutil "k8s.io/endpointslice/util"

	"github.com/fairway-net/fairway/internal/queue"
)

// staleLimit is how often in a row the cache may be found behind the last
// write. A slice that came and went while the watch was down is never shown by
// it, and would be waited for for ever.
const staleLimit = 10

// Written follows the EndpointSlices of one writer: it knows what was written
// last, and so whether the cache shows it yet, and whether a change that the
// watch reports is the writer's own.
type Written struct {
	*endpointsliceutil.EndpointSliceTracker
	cluster *Cache
	manager string
	changed func(service types.NamespacedName)
}

// Written returns the slices of manager; changed is called for each Service
// with a slice that somebody else has created, changed or deleted.
func (c *Cache) Written(manager string, changed func(service types.NamespacedName)) (*Written, error) {
	w := &Written{
		EndpointSliceTracker: endpointsliceutil.NewEndpointSliceTracker(),
		cluster:              c,
		manager:              manager,
		changed:              changed,
	}
	if err := c.handle(c.slices, Change[discoveryv1.EndpointSlice](w.sliceChanged)); err != nil {
		return nil, fmt.Errorf("watch EndpointSlices: %w", err)
	}
	return w, nil
}

// Of returns the writer's slices of the Service that are not about to go, or
// queue.ErrStale. Failures tells how often that was tried already.
func (w *Written) Of(service types.NamespacedName, failures int) ([]*discoveryv1.EndpointSlice, error) {
	objects, err := w.cluster.slices.GetIndexer().ByIndex(byService, service.String())
	if err != nil {
		return nil, fmt.Errorf("look up EndpointSlices of %s: %w", service, err)
	}
	var found []*discoveryv1.EndpointSlice
	for _, o := range objects {
		slice, ok := o.(*discoveryv1.EndpointSlice)
		if ok && slice.DeletionTimestamp == nil && w.managed(slice) {
			found = append(found, slice)
		}
	}
	named := &corev1.Service{}
	named.Namespace, named.Name = service.Namespace, service.Name
	if w.StaleSlices(named, found) {
		if failures < staleLimit {
			return nil, fmt.Errorf("look up EndpointSlices of %s: %w", service, queue.ErrStale)
		}
		w.DeleteService(service.Namespace, service.Name)
	}
	return found, nil
}

func (w *Written) managed(slice *discoveryv1.EndpointSlice) bool {
	return slice.Labels[discoveryv1.LabelManagedBy] == w.manager
}

// sliceChanged tells the writer's own changes, which come back here too, by
// their generation.
func (w *Written) sliceChanged(old, new *discoveryv1.EndpointSlice) {
	switch {
	case old == nil:
		if w.managed(new) && w.ShouldSync(new) {
			w.changed(serviceOf(new))
		}
	case new == nil:
		if !w.managed(old) {
			return
		}
		known := w.Has(old)
		if expected := w.HandleDeletion(old); !known || !expected {
			w.changed(serviceOf(old))
		}
	case serviceOf(old) != serviceOf(new):
		w.changed(serviceOf(old))
		w.changed(serviceOf(new))
	case w.managed(old) != w.managed(new) || w.managed(new) && w.ShouldSync(new):
		w.changed(serviceOf(new))
	}
}

// serviceOf returns the Service that an EndpointSlice says it belongs to.
func serviceOf(slice *discoveryv1.EndpointSlice) types.NamespacedName {
	return types.NamespacedName{Namespace: slice.Namespace, Name: slice.Labels[discoveryv1.LabelServiceName]}
}
