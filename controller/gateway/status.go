package gateway

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	ingress "github.com/fairway-net/fairway/ingress/compile"
)

// writeStatuses writes those that differ from what is there.
func (c *Controller) writeStatuses(ctx context.Context, out *ingress.Output) error {
	api, o := c.watch.Gateway.GatewayV1(), c.objects
	return errors.Join(
		c.writeClasses(ctx, out),
		c.writeGateways(ctx, out),
		c.writeListenerSets(ctx, out),
		writeRoutes(ctx, out, "HTTPRoute", o.HTTPRoutes, func(x *gatewayv1.HTTPRoute) *gatewayv1.RouteStatus { return &x.Status.RouteStatus },
			func(namespace string) update[*gatewayv1.HTTPRoute] { return api.HTTPRoutes(namespace).UpdateStatus }),
		writeRoutes(ctx, out, "GRPCRoute", o.GRPCRoutes, func(x *gatewayv1.GRPCRoute) *gatewayv1.RouteStatus { return &x.Status.RouteStatus },
			func(namespace string) update[*gatewayv1.GRPCRoute] { return api.GRPCRoutes(namespace).UpdateStatus }),
		writeRoutes(ctx, out, "TLSRoute", o.TLSRoutes, func(x *gatewayv1.TLSRoute) *gatewayv1.RouteStatus { return &x.Status.RouteStatus },
			func(namespace string) update[*gatewayv1.TLSRoute] { return api.TLSRoutes(namespace).UpdateStatus }),
		writeRoutes(ctx, out, "TCPRoute", o.TCPRoutes, func(x *gatewayv1.TCPRoute) *gatewayv1.RouteStatus { return &x.Status.RouteStatus },
			func(namespace string) update[*gatewayv1.TCPRoute] { return api.TCPRoutes(namespace).UpdateStatus }),
		writeRoutes(ctx, out, "UDPRoute", o.UDPRoutes, func(x *gatewayv1.UDPRoute) *gatewayv1.RouteStatus { return &x.Status.RouteStatus },
			func(namespace string) update[*gatewayv1.UDPRoute] { return api.UDPRoutes(namespace).UpdateStatus }),
		c.writePolicies(ctx, out),
		c.writeIngresses(ctx, out),
	)
}

func (c *Controller) writeClasses(ctx context.Context, out *ingress.Output) error {
	return each(ctx, index(c.objects.Classes), func(ctx context.Context, name types.NamespacedName, x *gatewayv1.GatewayClass) error {
		wanted, ours := out.Classes[name.Name]
		if !ours {
			return nil
		}
		n := x.DeepCopy()
		n.Status.Conditions = merged(n.Status.Conditions, wanted)
		n.Status.SupportedFeatures = ingress.Features(lacks(c.live))
		return write(ctx, x.Status, n.Status, n, c.watch.Gateway.GatewayV1().GatewayClasses().UpdateStatus)
	})
}

func (c *Controller) writeGateways(ctx context.Context, out *ingress.Output) error {
	return each(ctx, index(c.objects.Gateways), func(ctx context.Context, name types.NamespacedName, x *gatewayv1.Gateway) error {
		result := out.Gateways[name]
		if result == nil {
			return nil
		}
		n := x.DeepCopy()
		n.Status = c.gatewayStatus(x, result)
		return write(ctx, x.Status, n.Status, n, c.watch.Gateway.GatewayV1().Gateways(n.Namespace).UpdateStatus)
	})
}

func (c *Controller) writeListenerSets(ctx context.Context, out *ingress.Output) error {
	return each(ctx, index(c.objects.ListenerSets), func(ctx context.Context, name types.NamespacedName, x *gatewayv1.ListenerSet) error {
		wanted := out.ListenerSets[name]
		if wanted == nil {
			return nil
		}
		n := x.DeepCopy()
		n.Status.Conditions = merged(x.Status.Conditions, wanted.Conditions)
		n.Status.Listeners = nil
		for _, l := range wanted.Listeners {
			var before []metav1.Condition
			if i := slices.IndexFunc(x.Status.Listeners, func(old gatewayv1.ListenerEntryStatus) bool { return old.Name == l.Name }); i >= 0 {
				before = x.Status.Listeners[i].Conditions
			}
			l.Conditions = merged(before, l.Conditions)
			n.Status.Listeners = append(n.Status.Listeners, l)
		}
		return write(ctx, x.Status, n.Status, n, c.watch.Gateway.GatewayV1().ListenerSets(n.Namespace).UpdateStatus)
	})
}

func (c *Controller) writePolicies(ctx context.Context, out *ingress.Output) error {
	return each(ctx, index(c.objects.BackendTLSPolicies), func(ctx context.Context, name types.NamespacedName, x *gatewayv1.BackendTLSPolicy) error {
		n := x.DeepCopy()
		n.Status.Ancestors = ancestors(x.Status.Ancestors, out.Policies[name])
		return write(ctx, x.Status, n.Status, n, c.watch.Gateway.GatewayV1().BackendTLSPolicies(n.Namespace).UpdateStatus)
	})
}

func (c *Controller) writeIngresses(ctx context.Context, out *ingress.Output) error {
	return each(ctx, index(c.objects.Ingresses), func(ctx context.Context, name types.NamespacedName, x *networkingv1.Ingress) error {
		if !out.Ingresses[name] {
			return nil
		}
		n := x.DeepCopy()
		n.Status.LoadBalancer.Ingress = nil
		for _, a := range c.addresses(ingress.IngressGateway) {
			n.Status.LoadBalancer.Ingress = append(n.Status.LoadBalancer.Ingress, networkingv1.IngressLoadBalancerIngress{IP: a})
		}
		return write(ctx, x.Status, n.Status, n, c.watch.Core.NetworkingV1().Ingresses(n.Namespace).UpdateStatus)
	})
}

// route is any kind of them.
type route[T any] interface {
	metav1.Object
	DeepCopy() T
}

// writeRoutes writes the statuses of the routes of a kind. status is where a route has its own.
func writeRoutes[T route[T]](ctx context.Context, out *ingress.Output, kind string, list []T, status func(T) *gatewayv1.RouteStatus, at func(namespace string) update[T]) error {
	return each(ctx, stale(list, out, kind, status), func(ctx context.Context, name types.NamespacedName, x T) error {
		n := x.DeepCopy()
		before, after := status(x), status(n)
		after.Parents = parents(before.Parents, out.Routes[ingress.RouteKey{Kind: kind, NamespacedName: name}])
		return write(ctx, *before, *after, n, at(name.Namespace))
	})
}

// stale are the routes whose status may have to be written: all but those, most of
// the time nearly all, whose status says what it should already.
func stale[T metav1.Object](list []T, out *ingress.Output, kind string, status func(T) *gatewayv1.RouteStatus) map[types.NamespacedName]T {
	m := map[types.NamespacedName]T{}
	for _, o := range list {
		name := types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
		if !slices.EqualFunc(status(o).Parents, out.Routes[ingress.RouteKey{Kind: kind, NamespacedName: name}], sameParent) {
			m[name] = o
		}
	}
	return m
}

// sameParent compares entries but for times.
func sameParent(a, b gatewayv1.RouteParentStatus) bool {
	return a.ControllerName == b.ControllerName && a.ParentRef.Name == b.ParentRef.Name &&
		same(a.ParentRef.Group, b.ParentRef.Group) && same(a.ParentRef.Kind, b.ParentRef.Kind) && same(a.ParentRef.Namespace, b.ParentRef.Namespace) &&
		same(a.ParentRef.SectionName, b.ParentRef.SectionName) && same(a.ParentRef.Port, b.ParentRef.Port) &&
		slices.EqualFunc(a.Conditions, b.Conditions, func(c, d metav1.Condition) bool {
			c.LastTransitionTime = d.LastTransitionTime
			return c == d
		})
}

func same[T comparable](a, b *T) bool { return a == b || a != nil && b != nil && *a == *b }

func index[T metav1.Object](list []T) map[types.NamespacedName]T {
	out := map[types.NamespacedName]T{}
	for _, o := range list {
		out[types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}] = o
	}
	return out
}

// update is a client's UpdateStatus.
type update[T any] = func(context.Context, T, metav1.UpdateOptions) (T, error)

// write writes an object's status if it isn't so already.
func write[T any, S any](ctx context.Context, old, wanted S, object T, by update[T]) error {
	if equality.Semantic.DeepEqual(old, wanted) {
		return nil
	}
	_, err := by(ctx, object, metav1.UpdateOptions{})
	return err
}

// conditionTypes are those that this controller writes. Others are somebody else's,
// and stay.
var conditionTypes = []string{
	string(gatewayv1.GatewayConditionAccepted), string(gatewayv1.GatewayConditionProgrammed), string(gatewayv1.GatewayConditionResolvedRefs), string(gatewayv1.GatewayConditionInsecureFrontendValidationMode),
	string(gatewayv1.ListenerConditionConflicted), string(gatewayv1.GatewayClassConditionStatusSupportedVersion), string(gatewayv1.RouteConditionPartiallyInvalid), conditionCertificates,
}

// merged are the wanted conditions with the times of those that are there, and others'.
func merged(old, wanted []metav1.Condition) []metav1.Condition {
	list := slices.DeleteFunc(slices.Clone(old), func(c metav1.Condition) bool {
		return slices.Contains(conditionTypes, c.Type) && meta.FindStatusCondition(wanted, c.Type) == nil
	})
	for _, c := range wanted {
		meta.SetStatusCondition(&list, c)
	}
	return list
}

// parents are ours, and others' as they are.
func parents(old, wanted []gatewayv1.RouteParentStatus) []gatewayv1.RouteParentStatus {
	return entries(old, wanted, func(p *gatewayv1.RouteParentStatus) (any, gatewayv1.GatewayController, *[]metav1.Condition) {
		return p.ParentRef, p.ControllerName, &p.Conditions
	})
}

// ancestors are ours, and others' as they are.
func ancestors(old, wanted []gatewayv1.PolicyAncestorStatus) []gatewayv1.PolicyAncestorStatus {
	return entries(old, wanted, func(p *gatewayv1.PolicyAncestorStatus) (any, gatewayv1.GatewayController, *[]metav1.Condition) {
		return p.AncestorRef, p.ControllerName, &p.Conditions
	})
}

// entries are the wanted ones of a list that several controllers write, behind
// those of others. The function says what an entry is about, whose it is, and
// where its conditions are.
func entries[T any](old, wanted []T, parts func(*T) (about any, by gatewayv1.GatewayController, conditions *[]metav1.Condition)) []T {
	var list []T
	for _, o := range old {
		if _, by, _ := parts(&o); by != ingress.Controller {
			list = append(list, o)
		}
	}
	for _, w := range wanted {
		about, _, conditions := parts(&w)
		var before []metav1.Condition
		for _, o := range old {
			if of, by, found := parts(&o); by == ingress.Controller && equality.Semantic.DeepEqual(of, about) {
				before = *found
				break
			}
		}
		*conditions = merged(before, *conditions)
		list = append(list, w)
	}
	if list == nil {
		list = old[:0]
	}
	return list
}

// gatewayStatus adds the addresses, and what having none means.
func (c *Controller) gatewayStatus(g *gatewayv1.Gateway, result *ingress.GatewayResult) gatewayv1.GatewayStatus {
	s := *result.Status.DeepCopy()
	kind := gatewayv1.IPAddressType
	for _, a := range c.addresses(types.NamespacedName{Namespace: g.Namespace, Name: g.Name}) {
		s.Addresses = append(s.Addresses, gatewayv1.GatewayStatusAddress{Type: &kind, Value: a})
	}
	programmed := meta.FindStatusCondition(s.Conditions, string(gatewayv1.GatewayConditionProgrammed))
	if reason, message := c.unusable(g, s.Addresses); reason != "" && programmed.Status == metav1.ConditionTrue {
		programmed.Status, programmed.Reason, programmed.Message = metav1.ConditionFalse, string(reason), message
	}
	c.unopened(g, &s)
	s.Conditions = merged(g.Status.Conditions, append(s.Conditions, c.certificateConditions(g)...))
	for i := range s.Listeners {
		l := &s.Listeners[i]
		var old []metav1.Condition
		if j := slices.IndexFunc(g.Status.Listeners, func(o gatewayv1.ListenerStatus) bool { return o.Name == l.Name }); j >= 0 {
			old = g.Status.Listeners[j].Conditions
		}
		l.Conditions = merged(old, l.Conditions)
	}
	return s
}

// unopened has listeners not programmed whose port no engine could open, and the
// Gateway with them.
func (c *Controller) unopened(g *gatewayv1.Gateway, s *gatewayv1.GatewayStatus) {
	for _, l := range g.Spec.Listeners {
		socket := fmt.Sprintf("%s/%s:%d", g.Namespace, g.Name, l.Port)
		why := ""
		for _, e := range c.live {
			reason, unserved := e.unserved[socket]
			if !unserved {
				why = ""
				break
			}
			why = fmt.Sprintf("port %d can't be opened on node %s, and is tried again: %s", l.Port, e.node, reason)
		}
		i := slices.IndexFunc(s.Listeners, func(o gatewayv1.ListenerStatus) bool { return o.Name == l.Name })
		if why == "" || i < 0 {
			continue
		}
		for _, conditions := range []*[]metav1.Condition{&s.Listeners[i].Conditions, &s.Conditions} {
			if p := meta.FindStatusCondition(*conditions, string(gatewayv1.GatewayConditionProgrammed)); p != nil && p.Status == metav1.ConditionTrue {
				p.Status, p.Reason, p.Message = metav1.ConditionFalse, string(gatewayv1.GatewayReasonPending), why
			}
		}
	}
}

// unusable says why no traffic arrives; "" if it does.
func (c *Controller) unusable(g *gatewayv1.Gateway, got []gatewayv1.GatewayStatusAddress) (gatewayv1.GatewayConditionReason, string) {
	for _, a := range g.Spec.Addresses {
		if a.Value != "" && !slices.ContainsFunc(got, func(s gatewayv1.GatewayStatusAddress) bool { return s.Value == a.Value }) {
			return gatewayv1.GatewayReasonAddressNotUsable, "the address " + a.Value + " can't be had; Events of the Gateway's Service say why"
		}
	}
	switch {
	case len(g.Name) > longestName:
		return gatewayv1.GatewayReasonInvalid, fmt.Sprintf("metadata.name: has %d characters; a Gateway's name is a label, which has %d at most", len(g.Name), longestName)
	case len(c.live) == 0:
		return gatewayv1.GatewayReasonNoResources, "no node has an engine: run fairway gateway on one"
	case len(got) == 0:
		return gatewayv1.GatewayReasonAddressNotAssigned, "the Gateway's Service has no address yet; its Events say why"
	}
	return "", ""
}

// addresses are those at which a Gateway's Service answers.
func (c *Controller) addresses(name types.NamespacedName) []string {
	s := c.objects.Services[types.NamespacedName{Namespace: name.Namespace, Name: ingress.ServiceName(name.Name)}]
	if s == nil {
		return nil
	}
	var list []string
	if s.Spec.Type == corev1.ServiceTypeLoadBalancer {
		for _, i := range s.Status.LoadBalancer.Ingress {
			if i.IP != "" {
				list = append(list, i.IP)
			}
		}
		return list
	}
	return append(list, s.Spec.ExternalIPs...)
}
