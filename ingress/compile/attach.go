package compile

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/fairway-net/fairway/ingress/model"
)

// route is one of any kind, as far as they are alike.
type route struct {
	kind      string
	object    metav1.Object
	spec      gatewayv1.CommonRouteSpec
	hostnames []gatewayv1.Hostname

	// refs is the first reference that leads nowhere.
	refsReason  gatewayv1.RouteConditionReason
	refsMessage string
	// rejected is a reason, other than its parents, not to accept it.
	rejected        gatewayv1.RouteConditionReason
	rejectedMessage string
	// partial is why some of its rules answer 500.
	partial  string
	gateways []*gateway // that it is attached to
}

// attachment is a listener of a route, with the hostnames they have in common.
type attachment struct {
	*listener
	hostnames []string
}

func (r *route) name() types.NamespacedName { return nameOf(r.object) }

// title names the route for people.
func (r *route) title() string { return r.kind + " " + r.name().String() }

func (r *route) key() RouteKey { return RouteKey{r.kind, r.name()} }

// compare puts the route first whose rules have precedence among equals: HTTPRoutes
// before GRPCRoutes, which share no listener with other kinds, the oldest first.
func (r *route) compare(o *route) int {
	return cmp.Or(-cmp.Compare(r.kind, o.kind), r.object.GetCreationTimestamp().Compare(o.object.GetCreationTimestamp().Time), compareNames(r.name(), o.name()))
}

// unresolved keeps the first reference that leads nowhere.
func (r *route) unresolved(reason gatewayv1.RouteConditionReason, message string) {
	if r.refsReason == "" {
		r.refsReason, r.refsMessage = reason, message
	}
}

// compileRoutes attaches routes to listeners, the oldest first.
func (c *compiler) compileRoutes() {
	for _, o := range byAge(c.HTTPRoutes) {
		c.compileHTTPRoute(o)
	}
	for _, o := range byAge(c.GRPCRoutes) {
		c.compileGRPCRoute(o)
	}
	for _, o := range byAge(c.TLSRoutes) {
		c.compileTLSRoute(o)
	}
	for _, o := range byAge(c.TCPRoutes) {
		r := &route{kind: "TCPRoute", object: o, spec: o.Spec.CommonRouteSpec}
		var refs [][]gatewayv1.BackendRef
		for _, rule := range o.Spec.Rules {
			refs = append(refs, rule.BackendRefs)
		}
		c.compileStream(r, corev1.ProtocolTCP, refs)
	}
	for _, o := range byAge(c.UDPRoutes) {
		r := &route{kind: "UDPRoute", object: o, spec: o.Spec.CommonRouteSpec}
		var refs [][]gatewayv1.BackendRef
		for _, rule := range o.Spec.Rules {
			refs = append(refs, rule.BackendRefs)
		}
		c.compileStream(r, corev1.ProtocolUDP, refs)
	}
}

// attach finds the listeners of a route, and has its status written. The
// references of the route must have been read.
func (c *compiler) attach(r *route) []attachment {
	var list []attachment
	var parents []gatewayv1.RouteParentStatus
	if r.partial != "" {
		c.problem(r.kind, r.name(), ReasonLacking, r.partial)
	}
	for _, ref := range r.spec.ParentRefs {
		candidates, g, reason, message := c.parent(r, ref)
		if g == nil {
			continue // not ours to judge
		}
		var found []attachment
		if reason == "" {
			found, reason, message = c.match(r, candidates)
		}
		if reason == "" && r.rejected != "" {
			found, reason, message = nil, r.rejected, r.rejectedMessage
		}
		for _, a := range found {
			if !slices.ContainsFunc(list, func(b attachment) bool { return a.listener == b.listener }) {
				a.attached++
				list = append(list, a)
			}
		}
		if len(found) > 0 && !slices.Contains(r.gateways, g) {
			r.gateways = append(r.gateways, g)
		}
		parents = append(parents, r.parentStatus(ref, reason, message))
	}
	if !c.options.TableOnly {
		c.out.Routes[r.key()] = parents
	}
	c.refs.attached(r, list)
	return list
}

func (r *route) parentStatus(ref gatewayv1.ParentReference, reason gatewayv1.RouteConditionReason, message string) gatewayv1.RouteParentStatus {
	generation := r.object.GetGeneration()
	accepted := condition(gatewayv1.RouteConditionAccepted, true, gatewayv1.RouteReasonAccepted, generation, "")
	if reason != "" {
		accepted = condition(gatewayv1.RouteConditionAccepted, false, reason, generation, message)
	}
	refs := condition(gatewayv1.RouteConditionResolvedRefs, true, gatewayv1.RouteReasonResolvedRefs, generation, "")
	if r.refsReason != "" {
		refs = condition(gatewayv1.RouteConditionResolvedRefs, false, r.refsReason, generation, r.refsMessage)
	}
	conditions := []metav1.Condition{accepted, refs}
	if r.partial != "" {
		conditions = append(conditions, condition(gatewayv1.RouteConditionPartiallyInvalid, true, gatewayv1.RouteReasonUnsupportedValue, generation, r.partial))
	}
	return gatewayv1.RouteParentStatus{ParentRef: ref, ControllerName: Controller, Conditions: conditions}
}

// parent finds the listeners that a reference names; no gateway if it isn't ours.
func (c *compiler) parent(r *route, ref gatewayv1.ParentReference) (list []*listener, g *gateway, reason gatewayv1.RouteConditionReason, message string) {
	if value(ref.Group, gatewayv1.GroupName) != gatewayv1.GroupName {
		return nil, nil, "", ""
	}
	name := types.NamespacedName{Namespace: string(value(ref.Namespace, gatewayv1.Namespace(r.object.GetNamespace()))), Name: string(ref.Name)}
	switch value(ref.Kind, "Gateway") {
	case "Gateway":
		if g = c.gateways[name]; g == nil {
			return nil, nil, "", ""
		}
		list = g.listeners
	case "ListenerSet":
		s := c.sets[name]
		if s == nil {
			return nil, nil, "", ""
		}
		if s.rejected != "" {
			return nil, s.gateway, gatewayv1.RouteReasonNoMatchingParent, "the ListenerSet isn't accepted: " + s.message
		}
		g, list = s.gateway, s.listeners
	default:
		return nil, nil, "", ""
	}
	var named []*listener
	for _, l := range list {
		if (ref.SectionName == nil || *ref.SectionName == l.spec.Name) && (ref.Port == nil || *ref.Port == l.spec.Port) {
			named = append(named, l)
		}
	}
	if len(named) == 0 {
		return nil, g, gatewayv1.RouteReasonNoMatchingParent, fmt.Sprintf("no listener of %s has the sectionName and port of the reference", name)
	}
	return named, g, "", ""
}

// match keeps the listeners that let the route in and have a hostname in common.
func (c *compiler) match(r *route, candidates []*listener) ([]attachment, gatewayv1.RouteConditionReason, string) {
	var found []attachment
	allowed := false
	for _, l := range candidates {
		if !l.accepted || !c.allowsRoute(l, r) {
			continue
		}
		allowed = true
		if hostnames := r.common(l.hostname); len(hostnames) > 0 {
			found = append(found, attachment{l, hostnames})
		}
	}
	switch {
	case !allowed:
		return nil, gatewayv1.RouteReasonNotAllowedByListeners, "no listener allows routes of this kind and namespace"
	case len(found) == 0:
		return nil, gatewayv1.RouteReasonNoMatchingListenerHostname, "no hostname is one of a listener's"
	}
	return found, "", ""
}

func (c *compiler) allowsRoute(l *listener, r *route) bool {
	if !slices.ContainsFunc(l.kinds, func(k gatewayv1.RouteGroupKind) bool { return string(k.Kind) == r.kind }) {
		return false
	}
	from, selector := gatewayv1.NamespacesFromSame, (*metav1.LabelSelector)(nil)
	if a := l.spec.AllowedRoutes; a != nil && a.Namespaces != nil {
		from, selector = value(a.Namespaces.From, from), a.Namespaces.Selector
	}
	_, own := l.owner()
	return c.allows(from, selector, own, r.object.GetNamespace())
}

// named is how exactly the route's own hostname names one that it has in common with a
// listener: a route for the host comes before those for a wildcard, the longer one first,
// and for any host, also where the listener is for that host alone.
func (r *route) named(hostname, listener string) int {
	most := 0
	for _, h := range r.hostnames {
		own := strings.ToLower(string(h))
		if both, ok := model.Intersect(listener, own); ok && both == hostname {
			length := len(own)
			if !strings.HasPrefix(own, "*") {
				length = 1 << 10 // longer than any
			}
			most = max(most, length)
		}
	}
	return most
}

// common lists the hostnames that a route and a listener have in common.
func (r *route) common(listener string) []string {
	if len(r.hostnames) == 0 {
		return []string{listener}
	}
	var list []string
	for _, h := range r.hostnames {
		if both, ok := model.Intersect(listener, strings.ToLower(string(h))); ok && !slices.Contains(list, both) {
			list = append(list, both)
		}
	}
	return list
}
