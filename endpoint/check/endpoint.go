package check

import (
	"fmt"
	"net/netip"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Endpoint is an endpoint of a Service and the port at which it is asked.
type Endpoint struct {
	Service types.NamespacedName
	Addr    netip.AddrPort
}

// NodeLabel is the label of EndpointSlices that an agent writes: the name of its
// node, which alone may write them. The endpoints in those that belong to a
// Service are published, and the agent judges them itself.
const NodeLabel = "fairway.dev/node"

// AnnotationPublishers, on a Service, names the machines that may publish endpoints of
// it, divided by commas; * is all. It is the choice of the Service's author.
const AnnotationPublishers = "fairway.dev/publishers"

// AnnotationReason, on a published slice, says why its endpoint isn't ready.
const AnnotationReason = "fairway.dev/not-ready-because"

// ServiceOf is the Service that a slice says it belongs to; false if there is none.
func ServiceOf(s *discoveryv1.EndpointSlice) (types.NamespacedName, bool) {
	name := s.Labels[discoveryv1.LabelServiceName]
	return types.NamespacedName{Namespace: s.Namespace, Name: name}, name != ""
}

// Concerns reports whether a slice has an endpoint that may be checked.
func Concerns(s *discoveryv1.EndpointSlice) bool {
	if _, published := s.Labels[NodeLabel]; published || s.Labels[discoveryv1.LabelServiceName] == "" {
		return false
	}
	for i := range s.Endpoints {
		if Checkable(&s.Endpoints[i]) {
			return true
		}
	}
	return false
}

// Checkable reports whether an endpoint may be checked: it has no Pod.
func Checkable(e *discoveryv1.Endpoint) bool {
	return len(e.Addresses) > 0 && (e.TargetRef == nil || e.TargetRef.Kind != "Pod")
}

// PortOf returns the port at which the endpoints of a slice are asked: the one
// that the check names, by name or number, or the first of its protocol.
func PortOf(spec *Spec, ports []discoveryv1.EndpointPort) (uint16, error) {
	if spec.Kind == ICMP {
		return 0, nil
	}
	if n, err := strconv.ParseUint(spec.Port, 10, 16); err == nil {
		return uint16(n), nil
	}
	for _, p := range ports {
		if p.Port == nil || *p.Port < 1 || *p.Port > 65535 {
			continue
		}
		name := ""
		if p.Name != nil {
			name = *p.Name
		}
		if spec.Port != "" && name == spec.Port || spec.Port == "" && speaks(spec.Kind, p.Protocol) {
			return uint16(*p.Port), nil
		}
	}
	if spec.Port != "" {
		return 0, fmt.Errorf("annotation %s-port: there is no port named %q", AnnotationCheck, spec.Port)
	}
	return 0, fmt.Errorf("annotation %s: there is no port that a %s check can ask", AnnotationCheck, spec.Kind)
}

func speaks(kind Kind, p *corev1.Protocol) bool {
	if kind == UDP {
		return p != nil && *p == corev1.ProtocolUDP
	}
	return p == nil || *p == corev1.ProtocolTCP
}

// AddressOf reads the first address of an endpoint, which is the one that is used.
func AddressOf(e *discoveryv1.Endpoint) (netip.Addr, error) {
	a, err := netip.ParseAddr(e.Addresses[0])
	if err != nil {
		return netip.Addr{}, fmt.Errorf("endpoint %q: not an IP address", e.Addresses[0])
	}
	a = a.Unmap()
	if err := Allowed(a); err != nil {
		return netip.Addr{}, fmt.Errorf("endpoint %w", err)
	}
	return a, nil
}
