package compile

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/fairway-net/fairway/ingress/model"
)

// listener is one of a Gateway or a ListenerSet.
type listener struct {
	gateway  *gateway
	set      *listenerSet // nil if it is the Gateway's own
	spec     gatewayv1.Listener
	hostname string
	socket   *socket
	kinds    []gatewayv1.RouteGroupKind

	accepted      bool
	reason        gatewayv1.ListenerConditionReason // why it isn't accepted
	message       string
	refsReason    gatewayv1.ListenerConditionReason // "" if all references are resolved
	refsMessage   string
	isConflicted  bool
	certificates  []*tls.Certificate
	clients       *model.ClientValidation
	uncertifiable bool // has no certificate to serve with
	awaitsACME    bool // a certificate is to be obtained
	fromFiles     bool // engines have certificates in files

	attached int32
	rules    map[string][]orderedRule // by hostname
	streams  bool                     // a route of a stream has it
	done     *model.Listener
	byLength bool // rules are of Ingresses, and ordered as ingress-nginx does
}

// orderedRule is a rule with what settles its precedence among equals.
type orderedRule struct {
	*model.Rule
	route *route
	index int
	// Of routes: how exactly their own hostname names the one at which the rule is.
	named int
	// Of Ingresses: how long the path is, and which of its rules it is.
	length, rank int
}

// compareByLength puts the rule of an Ingress first that nginx would try first: exact
// ones, then the longest path.
func (r *orderedRule) compareByLength(o *orderedRule) int {
	return cmp.Or(
		-cmp.Compare(bit(r.Match.Kind == model.PathExact), bit(o.Match.Kind == model.PathExact)),
		cmp.Compare(o.length, r.length), r.route.compare(o.route), cmp.Compare(r.index, o.index), cmp.Compare(r.rank, o.rank))
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}

// routeKinds are the kinds that listeners take, by protocol.
var routeKinds = map[gatewayv1.ProtocolType][]gatewayv1.Kind{
	gatewayv1.HTTPProtocolType:  {"HTTPRoute", "GRPCRoute"},
	gatewayv1.HTTPSProtocolType: {"HTTPRoute", "GRPCRoute"},
	gatewayv1.TLSProtocolType:   {"TLSRoute"},
	gatewayv1.TCPProtocolType:   {"TCPRoute"},
	gatewayv1.UDPProtocolType:   {"UDPRoute"},
}

// AnnotationFilters is put on Gateways and ListenerSets as they are read: it names the
// listeners that have the field filters, which the types don't have.
const AnnotationFilters = "gateway.fairway.dev/listeners-with-filters"

// object is the Gateway or the ListenerSet that has the listener.
func (l *listener) object() metav1.Object {
	if l.set != nil {
		return l.set.object
	}
	return l.gateway.object
}

func (c *compiler) newListener(g *gateway, set *listenerSet, spec gatewayv1.Listener) *listener {
	l := &listener{
		gateway: g, set: set, spec: spec, rules: map[string][]orderedRule{},
		hostname: strings.ToLower(string(value(spec.Hostname, ""))), accepted: true,
	}
	if l.isStream() {
		l.hostname = ""
	}
	if slices.Contains(strings.Split(l.object().GetAnnotations()[AnnotationFilters], ","), string(spec.Name)) {
		l.accepted, l.reason, l.message = false, gatewayv1.ListenerConditionReason(gatewayv1.RouteReasonUnsupportedValue), "filters: listeners have none here; a listener that was to ask who is let in lets nobody in"
		return l
	}
	known, given := routeKinds[spec.Protocol]
	if !given {
		l.accepted, l.reason = false, gatewayv1.ListenerReasonUnsupportedProtocol
		l.message = fmt.Sprintf("protocol: %s is not supported", spec.Protocol)
		return l
	}
	l.readKinds(known)
	if spec.Protocol == gatewayv1.HTTPSProtocolType || spec.Protocol == gatewayv1.TLSProtocolType {
		c.readTLS(l)
	}
	return l
}

func (l *listener) readKinds(known []gatewayv1.Kind) {
	group := gatewayv1.Group(gatewayv1.GroupName)
	if l.spec.AllowedRoutes == nil || len(l.spec.AllowedRoutes.Kinds) == 0 {
		for _, k := range known {
			l.kinds = append(l.kinds, gatewayv1.RouteGroupKind{Group: &group, Kind: k})
		}
		return
	}
	for _, k := range l.spec.AllowedRoutes.Kinds {
		if value(k.Group, group) == group && slices.Contains(known, k.Kind) {
			l.kinds = append(l.kinds, gatewayv1.RouteGroupKind{Group: &group, Kind: k.Kind})
			continue
		}
		l.unresolved(gatewayv1.ListenerReasonInvalidRouteKinds, fmt.Sprintf("allowedRoutes.kinds: a listener for %s takes no %s", l.spec.Protocol, k.Kind))
	}
}

// readTLS reads certificates and what is asked of clients.
func (c *compiler) readTLS(l *listener) {
	if l.mode() == model.Passthrough {
		return
	}
	if l.spec.TLS != nil {
		c.readFiles(l)
		for i := range l.spec.TLS.CertificateRefs {
			kind, namespace := l.owner()
			pair, err := c.certificate(kind, namespace, &l.spec.TLS.CertificateRefs[i])
			if pair != nil {
				l.certificates = append(l.certificates, pair)
			}
			if err != nil {
				reason := gatewayv1.ListenerReasonInvalidCertificateRef
				if errors.Is(err, errNotPermitted) {
					reason = gatewayv1.ListenerReasonRefNotPermitted
				}
				l.unresolved(reason, fmt.Sprintf("tls.certificateRefs[%d]: %v", i, err))
			}
		}
	}
	if len(l.certificates) == 0 && (!l.fromFiles || c.options.TableOnly) {
		l.uncertifiable = true
		if l.refsReason == "" {
			l.unresolved(gatewayv1.ListenerReasonInvalidCertificateRef, "tls.certificateRefs: at least one is needed")
		}
	}
	c.readClientValidation(l)
}

// OptionCertificate, "file" among the options of a listener's TLS, has certificates
// served that are in files of the engine's machine.
const OptionCertificate gatewayv1.AnnotationKey = "fairway.dev/certificate"

// readFiles reads the option. Which certificates there are only engines know.
func (c *compiler) readFiles(l *listener) {
	text, given := l.spec.TLS.Options[OptionCertificate]
	if !given {
		return
	}
	if text != "file" {
		l.unresolved(gatewayv1.ListenerReasonInvalidCertificateRef, fmt.Sprintf("tls.options[%s]: %q: must be file", OptionCertificate, text))
		return
	}
	l.fromFiles = true
	if c.options.Files != nil {
		l.certificates = append(l.certificates, c.options.Files(l.hostname)...)
	}
}

// readClientValidation reads what the Gateway asks of clients at the listener's port.
func (c *compiler) readClientValidation(l *listener) {
	g := l.gateway.object
	if g.Spec.TLS == nil || g.Spec.TLS.Frontend == nil || l.spec.Protocol != gatewayv1.HTTPSProtocolType {
		return
	}
	validation := g.Spec.TLS.Frontend.Default.Validation
	for _, p := range g.Spec.TLS.Frontend.PerPort {
		if p.Port == l.spec.Port {
			validation = p.TLS.Validation
		}
	}
	if validation == nil {
		return
	}
	var authorities []*x509.Certificate
	for _, ref := range validation.CACertificateRefs {
		name := types.NamespacedName{Namespace: string(value(ref.Namespace, gatewayv1.Namespace(g.Namespace))), Name: string(ref.Name)}
		if (ref.Kind == "ConfigMap" || ref.Kind == "Secret") && !c.grants.allow("Gateway", g.Namespace, string(ref.Group), string(ref.Kind), name) {
			l.unresolved(gatewayv1.ListenerReasonRefNotPermitted, fmt.Sprintf("%s %s: %v", ref.Kind, name, errNotPermitted))
			continue
		}
		list, err := c.authorities(string(ref.Group), string(ref.Kind), name)
		switch authorities = append(authorities, list...); {
		case errors.Is(err, errKind):
			l.unresolved(gatewayv1.ListenerReasonInvalidCACertificateKind, err.Error())
		case err != nil:
			l.unresolved(gatewayv1.ListenerReasonInvalidCACertificateRef, err.Error())
		}
	}
	l.clients = &model.ClientValidation{Roots: poolOf(authorities), Authorities: authorities, Optional: validation.Mode == gatewayv1.AllowInsecureFallback}
	l.gateway.insecure = l.gateway.insecure || l.clients.Optional
	if len(authorities) == 0 {
		l.accepted, l.reason, l.message = false, gatewayv1.ListenerReasonNoValidCACertificate, "no certificate authority for clients can be used"
	}
}

// unresolved keeps the first reference that leads nowhere.
func (l *listener) unresolved(reason gatewayv1.ListenerConditionReason, message string) {
	if l.refsReason == "" {
		l.refsReason, l.refsMessage = reason, message
	}
}

func (l *listener) conflict(reason gatewayv1.ListenerConditionReason, message string) {
	l.accepted, l.isConflicted, l.reason, l.message = false, true, reason, message
}

// usable reports whether the listener can serve, or show that it may have a
// certificate.
func (l *listener) usable() bool { return l.accepted && (!l.uncertifiable || l.awaitsACME) }

func (l *listener) isStream() bool {
	return l.spec.Protocol == gatewayv1.TCPProtocolType || l.spec.Protocol == gatewayv1.UDPProtocolType
}

func (l *listener) transport() string {
	if l.spec.Protocol == gatewayv1.UDPProtocolType {
		return "UDP"
	}
	return "TCP"
}

// group names the listeners that one port can have together.
func (l *listener) group() string {
	switch l.spec.Protocol {
	case gatewayv1.HTTPSProtocolType, gatewayv1.TLSProtocolType:
		return "tls"
	}
	return strings.ToLower(string(l.spec.Protocol))
}

func (l *listener) mode() model.Mode {
	switch {
	case l.spec.Protocol != gatewayv1.TLSProtocolType:
		return model.HTTP
	case l.spec.TLS != nil && value(l.spec.TLS.Mode, gatewayv1.TLSModeTerminate) == gatewayv1.TLSModePassthrough:
		return model.Passthrough
	}
	return model.Terminate
}

// owner is the kind and namespace of the object that the listener is part of.
func (l *listener) owner() (kind, namespace string) {
	if l.set != nil {
		return "ListenerSet", l.set.object.Namespace
	}
	return "Gateway", l.gateway.name.Namespace
}

// title names the listener for people.
func (l *listener) title() string {
	if l.set != nil {
		return nameOf(l.set.object).String() + "/" + string(l.spec.Name)
	}
	return l.gateway.name.String() + "/" + string(l.spec.Name)
}

// finish makes the model's listener, its rules in the order in which they are tried.
func (l *listener) finish() *model.Listener {
	m := &model.Listener{Name: l.title(), Hostname: l.hostname, Mode: l.mode(), Certificates: l.certificates, Clients: l.clients}
	var hosts []*model.Host
	for hostname := range l.rules {
		hosts = append(hosts, l.host(hostname))
	}
	m.SetHosts(hosts)
	l.done = m
	return m
}

// host makes the model's host of a hostname; nil if it has no rule.
func (l *listener) host(hostname string) *model.Host {
	rules := l.rules[hostname]
	if len(rules) == 0 {
		return nil
	}
	slices.SortStableFunc(rules, func(a, b orderedRule) int {
		if l.byLength {
			return a.compareByLength(&b)
		}
		return cmp.Or(cmp.Compare(b.named, a.named), a.Match.Compare(&b.Match), a.route.compare(b.route), cmp.Compare(a.index, b.index))
	})
	h := &model.Host{Hostname: hostname, Rules: make([]*model.Rule, len(rules))}
	for i, r := range rules {
		h.Rules[i] = r.Rule
	}
	return h
}
