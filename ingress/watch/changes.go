package watch

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// Changes are what has happened. Objects are as they are now, nil if they are gone.
type Changes struct {
	// Everything says that something has changed on which anything may depend.
	Everything bool
	HTTPRoutes map[types.NamespacedName]*gatewayv1.HTTPRoute
	GRPCRoutes map[types.NamespacedName]*gatewayv1.GRPCRoute
	Ingresses  map[types.NamespacedName]*networkingv1.Ingress
	Services   map[types.NamespacedName]*corev1.Service
	// Statuses says that the status of something has changed.
	Statuses bool
	// Secrets and ConfigMaps that have changed in what is read of them.
	Secrets, ConfigMaps map[types.NamespacedName]struct{}
	// Moved are Services whose endpoints are others.
	Moved map[types.NamespacedName]struct{}
}

func newChanges() Changes {
	return Changes{
		HTTPRoutes: map[types.NamespacedName]*gatewayv1.HTTPRoute{}, GRPCRoutes: map[types.NamespacedName]*gatewayv1.GRPCRoute{},
		Ingresses: map[types.NamespacedName]*networkingv1.Ingress{},
		Services:  map[types.NamespacedName]*corev1.Service{}, Secrets: map[types.NamespacedName]struct{}{},
		ConfigMaps: map[types.NamespacedName]struct{}{}, Moved: map[types.NamespacedName]struct{}{},
	}
}

// None reports whether nothing has happened but to statuses.
func (c *Changes) None() bool {
	return !c.Everything && len(c.HTTPRoutes)+len(c.GRPCRoutes)+len(c.Ingresses)+len(c.Services)+len(c.Secrets)+len(c.ConfigMaps)+len(c.Moved) == 0
}

// happened takes in a change: endpoints at once, the rest when it is asked for.
func (w *Watch) happened(old, object any) {
	one := object
	if one == nil {
		one = old
	}
	if w.only != nil && !w.concerns(one) && (old == nil || !w.concerns(old)) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	defer w.signal()
	c := &w.changes
	switch o := one.(type) {
	case *discoveryv1.EndpointSlice:
		if object == nil {
			o = nil
		}
		w.setSlice(nameOf(one.(*discoveryv1.EndpointSlice)), o)
	case *corev1.Service:
		if object == nil {
			w.choice.DeleteService(o.Namespace, o.Name)
		} else {
			w.choice.SetService(o)
		}
		c.Statuses = !note(c.Services, old, object, o) || c.Statuses
	case *gatewayv1.HTTPRoute:
		c.Statuses = !note(c.HTTPRoutes, old, object, o) || c.Statuses
	case *gatewayv1.GRPCRoute:
		c.Statuses = !note(c.GRPCRoutes, old, object, o) || c.Statuses
	case *networkingv1.Ingress:
		c.Statuses = !note(c.Ingresses, old, object, o) || c.Statuses
	case *corev1.Secret:
		if before, ok := old.(*corev1.Secret); !ok || object == nil || !maps.EqualFunc(before.Data, o.Data, equalBytes) {
			c.Secrets[nameOf(o)] = struct{}{}
		}
	case *corev1.ConfigMap:
		if before, ok := old.(*corev1.ConfigMap); !ok || object == nil || !maps.Equal(before.Data, o.Data) {
			c.ConfigMaps[nameOf(o)] = struct{}{}
		}
	default:
		all := old == nil || object == nil || !isStatusOnly(old, object)
		c.Everything, c.Statuses = c.Everything || all, c.Statuses || !all
	}
}

// setSlice has endpoints chosen by a slice as it is now; nil if it is gone. The
// mutex is held.
func (w *Watch) setSlice(name types.NamespacedName, now *discoveryv1.EndpointSlice) {
	if before, known := w.choice.OwnerOfSlice(name.Namespace, name.Name); known {
		w.changes.Moved[before] = struct{}{}
	}
	if now == nil {
		w.choice.DeleteSlice(name.Namespace, name.Name)
		return
	}
	w.choice.SetSlice(now)
	w.changes.Moved[types.NamespacedName{Namespace: name.Namespace, Name: now.Labels[discoveryv1.LabelServiceName]}] = struct{}{}
}

// note keeps an object as it is now, and reports whether more than its status is
// other.
func note[T metav1.Object](m map[types.NamespacedName]T, old, object any, o T) bool {
	switch {
	case object == nil:
		var gone T
		m[nameOf(o)] = gone
	case old == nil || !isStatusOnly(old, object):
		m[nameOf(o)] = o
	default:
		if _, changed := m[nameOf(o)]; changed {
			m[nameOf(o)] = o
		}
		return false
	}
	return true
}

// isStatusOnly reports whether nothing of an object has changed that what is
// compiled depends on.
func isStatusOnly(old, object any) bool {
	before, ok := old.(metav1.Object)
	after, ok2 := object.(metav1.Object)
	if !ok || !ok2 || before.GetUID() != after.GetUID() || !maps.Equal(before.GetLabels(), after.GetLabels()) || !maps.Equal(before.GetAnnotations(), after.GetAnnotations()) {
		return false
	}
	switch o := object.(type) {
	case *corev1.Namespace: // its labels count
		return true
	case *corev1.Service: // which has no generation
		return equality.Semantic.DeepEqual(old.(*corev1.Service).Spec, o.Spec)
	case *networkingv1.IngressClass:
		return equality.Semantic.DeepEqual(old.(*networkingv1.IngressClass).Spec, o.Spec)
	}
	return after.GetGeneration() != 0 && before.GetGeneration() == after.GetGeneration()
}

func equalBytes(a, b []byte) bool { return string(a) == string(b) }

func nameOf(o metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
}

func (w *Watch) signal() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// Wake has everything looked at again.
func (w *Watch) Wake() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.changes.Everything = true
	w.signal()
}

// Changed has a value once something has happened since it was last read.
func (w *Watch) Changed() <-chan struct{} { return w.changed }

// Take says what has happened since it was last called. Changed has no value then, until
// more happens.
func (w *Watch) Take() Changes {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.changes
	w.changes = newChanges()
	select {
	case <-w.changed: // of what is taken now
	default:
	}
	return c
}
