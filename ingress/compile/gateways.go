package compile

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/fairway-net/fairway/ingress/model"
)

// gateway is a Gateway of ours.
type gateway struct {
	object    *gatewayv1.Gateway
	name      types.NamespacedName
	listeners []*listener // its own
	sets      []*listenerSet
	// rejected is why it isn't accepted, whatever its listeners are.
	rejected        gatewayv1.GatewayConditionReason
	rejectedMessage string
	// certificate is what backends are shown, if that is asked for.
	certificate     *tls.Certificate
	certificateName string
	refsReason      gatewayv1.GatewayConditionReason
	refsMessage     string
	http3           bool // is asked for
	insecure        bool // a listener lets clients in whose certificates aren't valid
}

// listenerSet is a ListenerSet of a Gateway of ours.
type listenerSet struct {
	object    *gatewayv1.ListenerSet
	gateway   *gateway
	listeners []*listener
	rejected  gatewayv1.ListenerSetConditionReason
	message   string
}

// compileGateways makes listeners out of Gateways and their ListenerSets.
func (c *compiler) compileGateways() {
	classes := c.ours()
	var oldestFirst []*gateway // who asks for a port first, has it
	for _, o := range byAge(c.Gateways) {
		if !classes[string(o.Spec.GatewayClassName)] || !c.serves(nameOf(o)) {
			continue
		}
		g := &gateway{object: o, name: nameOf(o)}
		c.gateways[g.name] = g
		oldestFirst = append(oldestFirst, g)
		c.readGateway(g)
	}
	for _, o := range byAge(c.ListenerSets) {
		ref := o.Spec.ParentRef
		g := c.gateways[types.NamespacedName{Namespace: string(value(ref.Namespace, gatewayv1.Namespace(o.Namespace))), Name: string(ref.Name)}]
		if g == nil || value(ref.Kind, "Gateway") != "Gateway" || value(ref.Group, gatewayv1.GroupName) != gatewayv1.GroupName {
			continue
		}
		c.readListenerSet(g, o)
	}
	for _, g := range oldestFirst {
		c.settle(g)
	}
}

// serves reports whether a Gateway's listeners are asked for.
func (c *compiler) serves(gateway types.NamespacedName) bool {
	return c.options.Only == nil || c.options.Only(gateway)
}

func (c *compiler) readGateway(g *gateway) {
	o := g.object
	g.rejected, g.rejectedMessage = unsupported(o)
	g.http3 = c.wantsHTTP3("Gateway", o)
	c.unknownAnnotations("Gateway", o, AnnotationHTTP3, AnnotationACME, AnnotationEject)
	if o.Spec.TLS != nil && o.Spec.TLS.Backend != nil && o.Spec.TLS.Backend.ClientCertificateRef != nil {
		ref := o.Spec.TLS.Backend.ClientCertificateRef
		pair, err := c.certificate("Gateway", o.Namespace, ref)
		g.certificate, g.certificateName = pair, g.name.String()
		if err != nil {
			g.refsReason, g.refsMessage = gatewayv1.GatewayReasonInvalidClientCertificateRef, "spec.tls.backend.clientCertificateRef: "+err.Error()
			if errors.Is(err, errNotPermitted) {
				g.refsReason = gatewayv1.GatewayReasonRefNotPermitted
			}
		}
	}
	for i := range o.Spec.Listeners {
		g.listeners = append(g.listeners, c.newListener(g, nil, o.Spec.Listeners[i]))
	}
}

// unsupported says why a Gateway can't be accepted; "" if it can.
func unsupported(o *gatewayv1.Gateway) (gatewayv1.GatewayConditionReason, string) {
	if o.Spec.Infrastructure != nil && o.Spec.Infrastructure.ParametersRef != nil {
		return gatewayv1.GatewayReasonInvalidParameters, "spec.infrastructure.parametersRef: Fairway has no parameters"
	}
	for i, a := range o.Spec.Addresses {
		if kind := value(a.Type, gatewayv1.IPAddressType); kind != gatewayv1.IPAddressType {
			return gatewayv1.GatewayReasonUnsupportedAddress, fmt.Sprintf("spec.addresses[%d].type: %s is not supported: it must be IPAddress", i, kind)
		}
		if _, err := netip.ParseAddr(a.Value); a.Value != "" && err != nil {
			return gatewayv1.GatewayReasonUnsupportedAddress, fmt.Sprintf("spec.addresses[%d].value: %q is not an IP address", i, a.Value)
		}
	}
	return "", ""
}

func (c *compiler) readListenerSet(g *gateway, o *gatewayv1.ListenerSet) {
	s := &listenerSet{object: o, gateway: g}
	c.sets[nameOf(o)] = s
	g.sets = append(g.sets, s)
	allowed := g.object.Spec.AllowedListeners
	if allowed == nil || allowed.Namespaces == nil || !c.allows(value(allowed.Namespaces.From, gatewayv1.NamespacesFromNone), allowed.Namespaces.Selector, g.name.Namespace, o.Namespace) {
		s.rejected = gatewayv1.ListenerSetReasonNotAllowed
		s.message = "spec.allowedListeners of the Gateway doesn't allow ListenerSets of this namespace"
		return
	}
	for _, e := range o.Spec.Listeners {
		s.listeners = append(s.listeners, c.newListener(g, s, gatewayv1.Listener(e)))
	}
}

// allows reports whether objects of a namespace may attach.
func (c *compiler) allows(from gatewayv1.FromNamespaces, selector *metav1.LabelSelector, own, namespace string) bool {
	switch from {
	case gatewayv1.NamespacesFromAll:
		return true
	case gatewayv1.NamespacesFromSame:
		return namespace == own
	case gatewayv1.NamespacesFromSelector:
		s, err := metav1.LabelSelectorAsSelector(selector)
		ns := c.Namespaces[namespace]
		return err == nil && ns != nil && s.Matches(labels.Set(ns.Labels))
	}
	return false
}

// all are the Gateway's listeners and those of its ListenerSets, in the order
// of precedence.
func (g *gateway) all() []*listener {
	list := slices.Clone(g.listeners)
	for _, s := range g.sets {
		list = append(list, s.listeners...)
	}
	return list
}

// AnnotationHTTP3, "true" on a Gateway or an IngressClass, has its HTTPS listeners
// serve HTTP/3 too.
const AnnotationHTTP3 = "fairway.dev/http3"

// unknownAnnotations tells of those of ours that don't exist.
func (c *compiler) unknownAnnotations(kind string, o metav1.Object, known ...string) {
	for name := range o.GetAnnotations() {
		if strings.HasPrefix(name, "fairway.dev/") && !slices.Contains(known, name) {
			c.problem(kind, nameOf(o), ReasonInvalid, "annotation "+name+": there is none of that name for a "+kind+", and it is left out")
		}
	}
}

// wantsHTTP3 reads the annotation.
func (c *compiler) wantsHTTP3(kind string, o metav1.Object) bool {
	switch text := o.GetAnnotations()[AnnotationHTTP3]; text {
	case "true":
		return true
	case "", "false":
	default:
		c.problem(kind, nameOf(o), ReasonInvalid, fmt.Sprintf("annotation %s: %q: must be true or false", AnnotationHTTP3, text))
	}
	return false
}

// hasHTTP3 reports whether a listener has the UDP port of its number, too. A
// listener for UDP goes before.
func (g *gateway) hasHTTP3(l *listener) bool {
	return g.http3 && l.spec.Protocol == gatewayv1.HTTPSProtocolType && l.usable() && !slices.ContainsFunc(g.all(), func(o *listener) bool {
		return o.accepted && o.spec.Port == l.spec.Port && o.spec.Protocol == gatewayv1.UDPProtocolType
	})
}

// settle finds which listeners can't be together, and gives the others sockets.
// Of two, the one that comes first has precedence.
func (c *compiler) settle(g *gateway) {
	taken := map[string]*listener{} // by port, transport and hostname
	groups := map[string]*listener{}
	owners := map[string]*listener{} // by hostname
	for _, l := range g.all() {
		if !l.accepted {
			continue
		}
		port := fmt.Sprintf("%d/%s", l.spec.Port, l.transport())
		if first := groups[port]; first == nil {
			groups[port] = l
		} else if first.group() != l.group() {
			l.conflict(gatewayv1.ListenerReasonProtocolConflict, fmt.Sprintf("port %d: listener %s has it for %s", l.spec.Port, first.title(), first.spec.Protocol))
			continue
		}
		key := port + "/" + l.hostname
		if first := taken[key]; first != nil {
			l.conflict(gatewayv1.ListenerReasonHostnameConflict, fmt.Sprintf("port %d: listener %s has the hostname %q", l.spec.Port, first.title(), l.hostname))
			continue
		}
		taken[key] = l
		// Without TLS, a Gateway's may be there for ListenerSets to have the certificate.
		if first := owners[l.hostname]; first == nil || first.set == nil && first.group() != "tls" {
			owners[l.hostname] = l
		}
		c.wantListener(l, owners[l.hostname], fmt.Sprintf("spec.listeners[%s]", l.spec.Name))
		if g.rejected == "" && l.usable() && !l.isStream() {
			c.socketFor(g, l)
		}
	}
}

// socket is a port of a Gateway in the making.
type socket struct {
	model     *model.Socket
	listeners []*listener
}

func (c *compiler) socketFor(g *gateway, l *listener) {
	name := fmt.Sprintf("%s:%d", g.name, l.spec.Port)
	s := c.sockets[name]
	if s == nil {
		s = &socket{model: &model.Socket{Name: name, Port: uint16(l.spec.Port), TLS: l.group() == "tls"}}
		if c.options.Bind != nil {
			s.model.Bind = c.options.Bind(g.name, uint16(l.spec.Port))
		}
		c.sockets[name] = s
	}
	s.model.HTTP3 = s.model.HTTP3 || g.hasHTTP3(l)
	l.socket = s
	s.listeners = append(s.listeners, l)
}

// finish puts a socket's listeners and their rules in order.
func (s *socket) finish() *model.Socket {
	for _, l := range s.listeners {
		s.model.Listeners = append(s.model.Listeners, l.finish())
	}
	slices.SortStableFunc(s.model.Listeners, func(a, b *model.Listener) int {
		return cmp.Or(model.CompareHostnames(a.Hostname, b.Hostname), cmp.Compare(a.Name, b.Name))
	})
	s.model.Index()
	return s.model
}
