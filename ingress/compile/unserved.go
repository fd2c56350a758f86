package compile

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// ReasonNothingActs is that of a problem with an object that nobody serves: see Unserved.
const ReasonNothingActs = "NothingActs"

// reportUnserved finds Ingresses and Gateways whose class nobody has. A class of another controller
// is that one's matter; so are Ingresses without one where there is another controller, and those
// with the annotation of before there were classes.
func (c *compiler) reportUnserved() {
	if c.options.TableOnly {
		return
	}
	ours, isDefault, others := map[string]bool{}, false, map[string]bool{}
	for _, class := range c.IngressClasses {
		if class.Spec.Controller == IngressController {
			ours[class.Name] = true
		} else {
			others[class.Name] = true
		}
		isDefault = isDefault || class.Annotations[isDefaultClass] == "true"
	}
	advice := ""
	if len(ours) > 0 {
		advice = "; spec.ingressClassName: " + slices.Min(slices.Collect(maps.Keys(ours))) + " has Fairway serve it"
	}
	for _, o := range c.Ingresses {
		name := o.Spec.IngressClassName
		switch {
		case name == nil && o.Annotations["kubernetes.io/ingress.class"] == "" && !isDefault && len(ours) > 0 && len(others) == 0:
			c.problem("Ingress", nameOf(o), ReasonNothingActs, "nobody serves it: it names no class, and no IngressClass is the default"+advice)
		case name != nil && !ours[*name] && !others[*name]:
			c.problem("Ingress", nameOf(o), ReasonNothingActs, fmt.Sprintf("nobody serves it: there is no IngressClass %q%s", *name, advice))
		}
	}
	classes := map[string]bool{}
	for _, class := range c.Classes {
		classes[class.Name] = true
	}
	for _, o := range c.Gateways {
		if !classes[string(o.Spec.GatewayClassName)] {
			c.problem("Gateway", nameOf(o), ReasonNothingActs, fmt.Sprintf("nobody serves it: there is no GatewayClass %q", o.Spec.GatewayClassName))
		}
	}
	there := parentsThere{byName(c.Gateways), byName(c.ListenerSets)}
	for _, o := range c.HTTPRoutes {
		c.reportOrphan("HTTPRoute", o, o.Spec.CommonRouteSpec, there)
	}
	for _, o := range c.GRPCRoutes {
		c.reportOrphan("GRPCRoute", o, o.Spec.CommonRouteSpec, there)
	}
	for _, o := range c.TLSRoutes {
		c.reportOrphan("TLSRoute", o, o.Spec.CommonRouteSpec, there)
	}
	for _, o := range c.TCPRoutes {
		c.reportOrphan("TCPRoute", o, o.Spec.CommonRouteSpec, there)
	}
	for _, o := range c.UDPRoutes {
		c.reportOrphan("UDPRoute", o, o.Spec.CommonRouteSpec, there)
	}
}

// parentsThere are the objects that may be parents of routes.
type parentsThere struct {
	gateways map[types.NamespacedName]*gatewayv1.Gateway
	sets     map[types.NamespacedName]*gatewayv1.ListenerSet
}

// reportOrphan finds a route all of whose parents are missing. Parents of other kinds than Gateways
// and ListenerSets are another controller's matter.
func (c *compiler) reportOrphan(kind string, o metav1.Object, spec gatewayv1.CommonRouteSpec, there parentsThere) {
	var missing []string
	for _, ref := range spec.ParentRefs {
		kind := value(ref.Kind, "Gateway")
		name := types.NamespacedName{Namespace: string(value(ref.Namespace, gatewayv1.Namespace(o.GetNamespace()))), Name: string(ref.Name)}
		switch {
		case value(ref.Group, gatewayv1.GroupName) != gatewayv1.GroupName,
			kind != "Gateway" && kind != "ListenerSet",
			kind == "Gateway" && there.gateways[name] != nil,
			kind == "ListenerSet" && there.sets[name] != nil:
			return
		}
		missing = append(missing, fmt.Sprintf("%s %s", kind, name))
	}
	if len(missing) == 0 {
		c.problem(kind, nameOf(o), ReasonNothingActs, "nobody serves it: spec.parentRefs names no Gateway")
		return
	}
	c.problem(kind, nameOf(o), ReasonNothingActs, "nobody serves it: there is no "+strings.Join(missing, " and no "))
}

// Unserved are the problems of Ingresses for a host, of Gateways and of routes that nobody serves.
func (o *Output) Unserved(host string) (list []Problem) {
	for _, p := range o.Problems {
		if p.Reason != ReasonNothingActs {
			continue
		}
		if p.Kind != "Ingress" || slices.ContainsFunc(o.compiler.Ingresses, func(i *networkingv1.Ingress) bool { return nameOf(i) == p.Object && isFor(i, host) }) {
			list = append(list, p)
		}
	}
	return list
}

// isFor reports whether an Ingress has rules for a host.
func isFor(o *networkingv1.Ingress, host string) bool {
	return o.Spec.DefaultBackend != nil || slices.ContainsFunc(o.Spec.Rules, func(r networkingv1.IngressRule) bool {
		wildcard, is := strings.CutPrefix(r.Host, "*")
		return r.Host == "" || strings.EqualFold(r.Host, host) || is && strings.HasSuffix(host, strings.ToLower(wildcard))
	})
}
