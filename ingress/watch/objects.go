package watch

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/fairway-net/fairway/ingress/compile"
)

// Objects are what is known now. They must not be changed.
func (w *Watch) Objects() *compile.Objects {
	v1, n, g := w.core.Core().V1(), w.core.Networking().V1(), w.gateway.Gateway().V1()
	o := &compile.Objects{
		Namespaces: map[string]*corev1.Namespace{},
		Services:   map[types.NamespacedName]*corev1.Service{},
	}
	for _, x := range all(w, "v1/namespaces", v1.Namespaces().Lister().List) {
		o.Namespaces[x.Name] = x
	}
	byName(o.Services, all(w, "v1/services", v1.Services().Lister().List))
	o.Secrets, o.ConfigMaps = w.secrets.objects(), w.configMaps.objects()
	o.IngressClasses = all(w, "networking.k8s.io/v1/ingressclasses", n.IngressClasses().Lister().List)
	o.Ingresses = all(w, "networking.k8s.io/v1/ingresses", n.Ingresses().Lister().List)
	group := gatewayv1.GroupVersion.String() + "/"
	o.Classes = all(w, group+"gatewayclasses", g.GatewayClasses().Lister().List)
	o.Gateways = all(w, group+"gateways", g.Gateways().Lister().List)
	o.ListenerSets = all(w, group+"listenersets", g.ListenerSets().Lister().List)
	o.HTTPRoutes = all(w, group+"httproutes", g.HTTPRoutes().Lister().List)
	o.GRPCRoutes = all(w, group+"grpcroutes", g.GRPCRoutes().Lister().List)
	o.TLSRoutes = all(w, group+"tlsroutes", g.TLSRoutes().Lister().List)
	o.TCPRoutes = all(w, group+"tcproutes", g.TCPRoutes().Lister().List)
	o.UDPRoutes = all(w, group+"udproutes", g.UDPRoutes().Lister().List)
	o.BackendTLSPolicies = all(w, group+"backendtlspolicies", g.BackendTLSPolicies().Lister().List)
	o.Grants = all(w, group+"referencegrants", g.ReferenceGrants().Lister().List)
	return o
}

// Slices are the EndpointSlices of a Service.
func (w *Watch) Slices(service types.NamespacedName) []*discoveryv1.EndpointSlice {
	list, err := w.core.Discovery().V1().EndpointSlices().Lister().EndpointSlices(service.Namespace).
		List(labels.SelectorFromSet(labels.Set{discoveryv1.LabelServiceName: service.Name}))
	if err != nil {
		w.log.Error("a Service's EndpointSlices could not be listed", "service", service, "error", err)
	}
	return list
}

// Service returns a Service; nil if there is none.
func (w *Watch) Service(name types.NamespacedName) *corev1.Service {
	s, err := w.core.Core().V1().Services().Lister().Services(name.Namespace).Get(name.Name)
	if err != nil {
		return nil
	}
	return s
}

// all lists a kind's objects; none while it isn't followed.
func all[T any](w *Watch, name string, list func(labels.Selector) ([]*T, error)) []*T {
	w.mu.Lock()
	started := w.started[name]
	w.mu.Unlock()
	if !started {
		return nil
	}
	out, err := list(labels.Everything())
	if err != nil { // a cache doesn't fail
		w.log.Error("cached objects could not be listed", "kind", name, "error", err)
	}
	return out
}

func byName[T metav1.Object](m map[types.NamespacedName]T, list []T) {
	for _, o := range list {
		m[types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}] = o
	}
}

// LabelChallenges is on the ConfigMap with challenges of ACME.
const LabelChallenges = "fairway.dev/acme"

// LeaveStatuses has statuses of Gateways and routes dropped. It is called before
// Run, by those who don't write them.
func (w *Watch) LeaveStatuses() { w.lean = true }

// trim drops what nobody looks at: field managers, what kubectl applied last, the
// mark of headless Services' slices, and all of Secrets and ConfigMaps but what
// certificates and passwords are read from.
func (w *Watch) trim(object any) (any, error) {
	noteFilters(object)
	if o, err := meta.Accessor(object); err == nil {
		o.SetManagedFields(nil)
		delete(o.GetAnnotations(), corev1.LastAppliedConfigAnnotation)
	}
	switch o := object.(type) {
	case *corev1.Secret:
		for key := range o.Data {
			if key != corev1.TLSCertKey && key != corev1.TLSPrivateKeyKey && key != "ca.crt" && key != "auth" {
				delete(o.Data, key)
			}
		}
	case *discoveryv1.EndpointSlice:
		// The data planes leave out what headless Services have, since it needs no
		// translation. Routes go to endpoints in any case.
		delete(o.Labels, corev1.IsHeadlessService)
	case *corev1.ConfigMap:
		o.BinaryData = nil
		for key := range o.Data {
			if key != "ca.crt" && o.Labels[LabelChallenges] == "" {
				delete(o.Data, key)
			}
		}
	}
	if w.only != nil && !w.concerns(object) {
		return leaveOut(object), nil
	}
	if w.lean {
		dropStatus(object)
	}
	return object, nil
}

func dropStatus(object any) {
	switch o := object.(type) {
	case *gatewayv1.HTTPRoute:
		o.Status = gatewayv1.HTTPRouteStatus{}
	case *gatewayv1.GRPCRoute:
		o.Status = gatewayv1.GRPCRouteStatus{}
	case *gatewayv1.TLSRoute:
		o.Status = gatewayv1.TLSRouteStatus{}
	case *gatewayv1.TCPRoute:
		o.Status = gatewayv1.TCPRouteStatus{}
	case *gatewayv1.UDPRoute:
		o.Status = gatewayv1.UDPRouteStatus{}
	case *gatewayv1.Gateway:
		o.Status = gatewayv1.GatewayStatus{}
	case *networkingv1.Ingress:
		o.Status = networkingv1.IngressStatus{}
	case *corev1.Service:
		o.Status = corev1.ServiceStatus{}
		o.Spec.Selector, o.Spec.ClusterIPs, o.Spec.IPFamilies, o.Spec.IPFamilyPolicy = nil, nil, nil, nil
		o.OwnerReferences = nil
		if o.Labels[gatewayv1.GatewayNameLabelKey] == "" {
			o.Labels = nil
		}
	case *discoveryv1.EndpointSlice:
		for i := range o.Endpoints {
			e := &o.Endpoints[i]
			e.DeprecatedTopology = nil
			if e.TargetRef != nil {
				e.TargetRef = &corev1.ObjectReference{Name: e.TargetRef.Name}
			}
		}
	}
}
