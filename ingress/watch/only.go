package watch

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/gateway-api/pkg/client/clientset/versioned"

	"github.com/fairway-net/fairway/ingress/compile"
	"github.com/fairway-net/fairway/kube"
)

// Only has routes and Ingresses left out that don't lead to a Gateway. It is called
// before Run.
func (w *Watch) Only(gateway types.NamespacedName) { w.only = &gateway }

// concerns reports whether an object may lead to the Gateway that is asked for.
func (w *Watch) concerns(object any) bool {
	if _, isIngress := object.(*networkingv1.Ingress); isIngress {
		return *w.only == compile.IngressGateway
	}
	parents := parentsOf(object)
	if parents == nil {
		return true
	}
	namespace := object.(metav1.Object).GetNamespace()
	for _, p := range *parents {
		if p.Group != nil && *p.Group != gatewayv1.GroupName {
			continue
		}
		if p.Kind != nil && *p.Kind == "ListenerSet" { // which may be the Gateway's
			return true
		}
		in := namespace
		if p.Namespace != nil {
			in = string(*p.Namespace)
		}
		if (p.Kind == nil || *p.Kind == "Gateway") && *w.only == (types.NamespacedName{Namespace: in, Name: string(p.Name)}) {
			return true
		}
	}
	return false
}

// parentsOf are the parents of a route; nil if it is none.
func parentsOf(object any) *[]gatewayv1.ParentReference {
	switch o := object.(type) {
	case *gatewayv1.HTTPRoute:
		return &o.Spec.ParentRefs
	case *gatewayv1.GRPCRoute:
		return &o.Spec.ParentRefs
	case *gatewayv1.TLSRoute:
		return &o.Spec.ParentRefs
	case *gatewayv1.TCPRoute:
		return &o.Spec.ParentRefs
	case *gatewayv1.UDPRoute:
		return &o.Spec.ParentRefs
	}
	return nil
}

// leaveOut is what is kept of an object that doesn't concern anybody.
func leaveOut(object any) any {
	bare := func(m *metav1.ObjectMeta) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion}
	}
	switch o := object.(type) {
	case *networkingv1.Ingress:
		return &networkingv1.Ingress{ObjectMeta: bare(&o.ObjectMeta)}
	case *gatewayv1.HTTPRoute:
		return &gatewayv1.HTTPRoute{ObjectMeta: bare(&o.ObjectMeta)}
	case *gatewayv1.GRPCRoute:
		return &gatewayv1.GRPCRoute{ObjectMeta: bare(&o.ObjectMeta)}
	case *gatewayv1.TLSRoute:
		return &gatewayv1.TLSRoute{ObjectMeta: bare(&o.ObjectMeta)}
	case *gatewayv1.TCPRoute:
		return &gatewayv1.TCPRoute{ObjectMeta: bare(&o.ObjectMeta)}
	case *gatewayv1.UDPRoute:
		return &gatewayv1.UDPRoute{ObjectMeta: bare(&o.ObjectMeta)}
	}
	return object
}

// FollowGateways tells, until ctx is done, which Gateways engines have ports for: by
// the Services that the controller makes for them. It begins with a complete list. A
// Service for a Gateway that isn't there is somebody else's: who may make Services may
// not have processes run by that.
func FollowGateways(ctx context.Context, core kubernetes.Interface, gateways versioned.Interface, tell func(map[types.NamespacedName]bool)) {
	lists := listWatchBy(core.CoreV1().Services(metav1.NamespaceAll), func(o *metav1.ListOptions) { o.LabelSelector = gatewayv1.GatewayNameLabelKey })
	services := map[types.NamespacedName]types.NamespacedName{} // to their Gateways
	complete := false
	all := func() {
		if !complete {
			return
		}
		out := map[types.NamespacedName]bool{}
		for _, gateway := range services {
			out[gateway] = true
		}
		tell(out)
	}
	kube.Watch(ctx, kube.Source{Resource: "services", Lists: lists, Typed: core}, kube.Sink[*corev1.Service]{
		Set: func(s *corev1.Service) {
			name := nameOf(s)
			gateway := types.NamespacedName{Namespace: s.Namespace, Name: s.Labels[gatewayv1.GatewayNameLabelKey]}
			before, known := services[name]
			if ours := hasPorts(s) && s.Name == compile.ServiceName(gateway.Name); ours && (before == gateway || isThere(ctx, gateways, gateway)) {
				services[name] = gateway
				if before != gateway {
					all()
				}
			} else if known {
				delete(services, name)
				all()
			}
		},
		Delete: func(name types.NamespacedName) {
			if _, known := services[name]; known {
				delete(services, name)
				all()
			}
		},
		Synced: func() { complete = true; all() },
	})
}

// isThere reports whether there is a Gateway, or it can't be found out. That of all
// Ingresses is no object, and its Service is in kube-system.
func isThere(ctx context.Context, gateways versioned.Interface, name types.NamespacedName) bool {
	if name == compile.IngressGateway {
		return true
	}
	list, err := gateways.GatewayV1().Gateways(name.Namespace).List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name.Name).String()})
	if err != nil {
		return !apierrors.IsNotFound(err)
	}
	return slices.ContainsFunc(list.Items, func(g gatewayv1.Gateway) bool { return g.Name == name.Name })
}

// hasPorts reports whether an engine listens for a Gateway's Service, and not the
// data planes alone: its targets are numbers.
func hasPorts(s *corev1.Service) bool {
	for _, p := range s.Spec.Ports {
		if p.Protocol == corev1.ProtocolTCP && p.TargetPort.IntValue() > 0 && p.TargetPort.IntValue() != int(p.Port) {
			return true
		}
	}
	return false
}
