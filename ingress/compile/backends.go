package compile

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/fairway-net/fairway/ingress/model"
)

// backend resolves a reference to a Service. One that leads nowhere keeps its
// share of requests and answers 500.
func (c *compiler) backend(r *route, g *gateway, ref *gatewayv1.BackendRef, at string) model.Backend {
	b := model.Backend{Weight: int(value(ref.Weight, 1))}
	service, port, reason, message := c.service(r, &ref.BackendObjectReference)
	if reason == "" {
		b.Pool, reason, message = c.pool(r, g, service, port)
	}
	if reason != "" {
		b.Invalid = at + ": " + message
		r.unresolved(reason, b.Invalid)
	}
	return b
}

// service finds the Service and its port that a reference names.
func (c *compiler) service(r *route, ref *gatewayv1.BackendObjectReference) (types.NamespacedName, *corev1.ServicePort, gatewayv1.RouteConditionReason, string) {
	name := types.NamespacedName{Namespace: string(value(ref.Namespace, gatewayv1.Namespace(r.object.GetNamespace()))), Name: string(ref.Name)}
	if group, kind := value(ref.Group, ""), value(ref.Kind, "Service"); group != "" || kind != "Service" {
		return name, nil, gatewayv1.RouteReasonInvalidKind, fmt.Sprintf("%s/%s is not supported: it must be a Service", group, kind)
	}
	if !c.grants.allow(r.kind, r.object.GetNamespace(), "", "Service", name) {
		return name, nil, gatewayv1.RouteReasonRefNotPermitted, fmt.Sprintf("Service %s: %v", name, errNotPermitted)
	}
	c.refs.service(name)
	s := c.Services[name]
	if s == nil {
		return name, nil, gatewayv1.RouteReasonBackendNotFound, fmt.Sprintf("there is no Service %s", name)
	}
	if s.Spec.Type == corev1.ServiceTypeExternalName {
		return name, nil, gatewayv1.RouteReasonUnsupportedValue, fmt.Sprintf("Service %s is of type ExternalName, which could lead anywhere", name)
	}
	for i := range s.Spec.Ports {
		if p := &s.Spec.Ports[i]; ref.Port != nil && p.Port == *ref.Port && (p.Protocol == corev1.ProtocolUDP) == (r.kind == "UDPRoute") {
			return name, p, "", ""
		}
	}
	return name, nil, gatewayv1.RouteReasonBackendNotFound, fmt.Sprintf("Service %s has no port %d", name, value(ref.Port, 0))
}

// pool returns the name of the pool for a Service's port, and makes it if it
// isn't there.
func (c *compiler) pool(r *route, g *gateway, service types.NamespacedName, port *corev1.ServicePort) (string, gatewayv1.RouteConditionReason, string) {
	name := fmt.Sprintf("%s:%d", service, port.Port)
	p := &model.Pool{Name: name}
	policy := c.policies.of(service, port)
	switch protocol := value(port.AppProtocol, ""); strings.ToLower(protocol) { // names of IANA's registry, in any case (RFC 6335, 5.1)
	case "kubernetes.io/h2c":
		p.Protocol = model.H2C
	case "", "http", "https", "tcp", "tls", "grpc", "grpcs", "kubernetes.io/ws", "kubernetes.io/wss", "ws", "wss", "http2", "h2c":
	default:
		return "", gatewayv1.RouteReasonUnsupportedProtocol, fmt.Sprintf("Service %s, port %d: appProtocol %s is not supported", service, port.Port, protocol)
	}
	if s := c.Services[service]; s.Spec.SessionAffinity == corev1.ServiceAffinityClientIP {
		p.Algorithm = model.Source
	}
	var err error
	if p.Proxy, err = proxyVersion(c.Services[service]); err != nil {
		return "", gatewayv1.RouteReasonUnsupportedValue, fmt.Sprintf("Service %s, %v", service, err)
	}
	if p.Proxy != model.ProxyNone && (p.Protocol == model.H2C || r.kind == "GRPCRoute") {
		return "", gatewayv1.RouteReasonUnsupportedProtocol, fmt.Sprintf("Service %s, port %d: the PROXY protocol names one client for each connection, and one of HTTP/2 has the requests of many", service, port.Port)
	}
	if r.kind == "GRPCRoute" && p.Protocol != model.H2C {
		p.Protocol, p.Name = model.H2C, name+"/grpc"
	}
	if policy != nil {
		p.TLS, p.Invalid = policy.tls, policy.invalid
		if p.Protocol == model.H2C {
			p.Protocol = model.HTTP2
		}
		if g != nil && g.certificateName != "" && p.TLS != nil {
			withCertificate := *p.TLS
			withCertificate.Certificate = g.certificate
			withCertificate.Sign()
			p.TLS, p.Name = &withCertificate, p.Name+"@"+g.certificateName
		}
	}
	c.eject(p, c.Services[service], g)
	if l := c.options.Lacks; l != nil {
		if why := l.Pool(p); why != "" {
			c.policies.use(policy, r)
			return "", gatewayv1.RouteReasonUnsupportedValue, fmt.Sprintf("Service %s, port %d: %s (engine %s)", service, port.Port, why, l.Engine)
		}
	}
	if c.out.Table.Pools[p.Name] == nil {
		if c.options.Endpoints != nil {
			p.Endpoints = c.options.Endpoints(service, port)
		}
		c.out.addPool(p, source{service: service, port: port})
	}
	c.refs.pool(p.Name)
	if !c.options.TableOnly {
		c.policies.use(policy, r)
	}
	return p.Name, "", ""
}

// AnnotationProxyProtocol, on a Service, has connections to its endpoints begin
// with a header of the PROXY protocol: "v1" or "v2".
const AnnotationProxyProtocol = "fairway.dev/proxy-protocol"

// proxyVersion is what a Service asks for.
func proxyVersion(s *corev1.Service) (model.ProxyVersion, error) {
	switch text := s.Annotations[AnnotationProxyProtocol]; text {
	case "":
		return model.ProxyNone, nil
	case "v1":
		return model.ProxyV1, nil
	case "v2":
		return model.ProxyV2, nil
	default:
		return model.ProxyNone, fmt.Errorf("annotation %s: %q: must be v1 or v2", AnnotationProxyProtocol, text)
	}
}
