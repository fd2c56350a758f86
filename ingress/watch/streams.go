package watch

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/fairway-net/fairway/kube"
)

// typed is a client for objects of one kind.
type typed[L runtime.Object] interface {
	List(context.Context, metav1.ListOptions) (L, error)
	Watch(context.Context, metav1.ListOptions) (apiwatch.Interface, error)
}

// listWatch lists and watches by a client: all objects, or the one of a name.
func listWatch[L runtime.Object](client typed[L], name string) *cache.ListWatch {
	return listWatchBy(client, func(o *metav1.ListOptions) {
		if name != "" {
			o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
		}
	})
}

// listWatchBy lists and watches the objects that only selects.
func listWatchBy[L runtime.Object](client typed[L], only func(*metav1.ListOptions)) *cache.ListWatch {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			only(&o)
			return client.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
			only(&o)
			return client.Watch(ctx, o)
		},
	}
}

// stream hands on what a list and a watch tell, until ctx is done. After each
// complete list, synced learns which objects there are.
func stream[T kube.Object](ctx context.Context, source kube.Source, learn func(types.NamespacedName, *T), synced func(has func(types.NamespacedName) bool)) {
	names := map[types.NamespacedName]struct{}{}
	kube.Watch(ctx, source, kube.Sink[T]{
		Set: func(o T) {
			name := nameOf(o)
			names[name] = struct{}{}
			learn(name, &o)
		},
		Delete: func(name types.NamespacedName) {
			delete(names, name)
			learn(name, nil)
		},
		Synced: func() {
			synced(func(name types.NamespacedName) bool { _, there := names[name]; return there })
		},
	})
}

func (w *Watch) streamSecrets(ctx context.Context, one types.NamespacedName, asked func(error), learn func(types.NamespacedName, **corev1.Secret), synced func(func(types.NamespacedName) bool)) {
	lists := listWatch(w.Core.CoreV1().Secrets(one.Namespace), one.Name)
	stream(ctx, kube.Source{Resource: "secrets", Lists: lists, Typed: w.Core, Asked: asked}, learn, synced)
}

func (w *Watch) streamConfigMaps(ctx context.Context, one types.NamespacedName, asked func(error), learn func(types.NamespacedName, **corev1.ConfigMap), synced func(func(types.NamespacedName) bool)) {
	lists := listWatch(w.Core.CoreV1().ConfigMaps(one.Namespace), one.Name)
	stream(ctx, kube.Source{Resource: "configmaps", Lists: lists, Typed: w.Core, Asked: asked}, learn, synced)
}

// followSlices takes in EndpointSlices and keeps none: what is needed of them is
// with the choice of endpoints.
func (w *Watch) followSlices(name string) cache.InformerSynced {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.started[name] = true
	known := make(chan struct{})
	if w.running.Err() != nil {
		return func() bool { return false }
	}
	first := true
	w.threads.Go(func() {
		lists := listWatch(w.Core.DiscoveryV1().EndpointSlices(metav1.NamespaceAll), "")
		kube.Watch(w.running, kube.Source{Resource: "endpointslices", Lists: lists, Typed: w.Core}, kube.Sink[*discoveryv1.EndpointSlice]{
			Set: func(s *discoveryv1.EndpointSlice) {
				delete(s.Labels, corev1.IsHeadlessService) // see trim
				w.slice(types.NamespacedName{Namespace: s.Namespace, Name: s.Name}, s)
			},
			Delete: func(name types.NamespacedName) { w.slice(name, nil) },
			Synced: func() {
				if first {
					close(known)
				}
				first = false
			},
		})
	})
	return func() bool {
		select {
		case <-known:
			return true
		default:
			return false
		}
	}
}

// slice takes in an EndpointSlice as it is now; nil if it is gone.
func (w *Watch) slice(name types.NamespacedName, now *discoveryv1.EndpointSlice) {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer w.signal()
	w.setSlice(name, now)
}
