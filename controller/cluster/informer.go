package cluster

import (
	"fmt"
	"strings"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	discoveryinformers "k8s.io/client-go/informers/discovery/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// managedSlices makes the factory's EndpointSlice informer one that leaves out
// the slices of other writers.
func managedSlices(factory informers.SharedInformerFactory, managers []string) cache.SharedIndexInformer {
	selector := fmt.Sprintf("%s in (%s)", discoveryv1.LabelManagedBy, strings.Join(managers, ","))
	indexers := cache.Indexers{byService: sliceService}
	return factory.InformerFor(&discoveryv1.EndpointSlice{}, func(client kubernetes.Interface, resync time.Duration) cache.SharedIndexInformer {
		return discoveryinformers.NewFilteredEndpointSliceInformer(client, metav1.NamespaceAll, resync, indexers,
			func(options *metav1.ListOptions) { options.LabelSelector = selector })
	})
}

func sliceService(obj any) ([]string, error) {
	slice, ok := obj.(*discoveryv1.EndpointSlice)
	if !ok {
		return nil, fmt.Errorf("index EndpointSlice: got %T", obj)
	}
	return []string{serviceOf(slice).String()}, nil
}

// Change makes one function of an informer's three: old is nil when the object
// is new, new when it is gone.
type Change[T any] func(old, new *T)

func (c Change[T]) OnAdd(obj any, _ bool) {
	if added, ok := obj.(*T); ok {
		c(nil, added)
	}
}

func (c Change[T]) OnUpdate(before, after any) {
	old, ok := before.(*T)
	if !ok {
		return
	}
	if new, ok := after.(*T); ok {
		c(old, new)
	}
}

func (c Change[T]) OnDelete(obj any) {
	// A deletion that the watch missed comes with the last state known.
	if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = unknown.Obj
	}
	if deleted, ok := obj.(*T); ok {
		c(deleted, nil)
	}
}
