package dns

import (
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
)

// kind is what a Service's name leads to.
type kind uint8

const (
	clusterIP    kind = iota // its addresses
	headless                 // its endpoints
	externalName             // another name
)

// spec is what a Service says, as far as names go.
type spec struct {
	kind      kind
	unready   bool // publishNotReadyAddresses
	addresses []netip.Addr
	ports     []port
	target    string // of an ExternalName, with the final dot
}

// port is a port that may have an SRV record.
type port struct {
	name   string // "" has none
	proto  string // "_tcp": the label
	number uint16
}

// newSpec reads a Service; nil if it has no name yet or never will.
func newSpec(s *corev1.Service) *spec {
	p := &spec{unready: s.Spec.PublishNotReadyAddresses}
	switch {
	case s.Spec.Type == corev1.ServiceTypeExternalName:
		if s.Spec.ExternalName == "" {
			return nil
		}
		p.kind, p.target = externalName, strings.TrimSuffix(s.Spec.ExternalName, ".")+"."
		return p
	case s.Spec.ClusterIP == corev1.ClusterIPNone:
		p.kind = headless
	default:
		list := s.Spec.ClusterIPs
		if len(list) == 0 {
			list = []string{s.Spec.ClusterIP}
		}
		for _, text := range list {
			if a, err := netip.ParseAddr(text); err == nil {
				p.addresses = append(p.addresses, a.Unmap())
			}
		}
		if len(p.addresses) == 0 {
			return nil
		}
	}
	for _, sp := range s.Spec.Ports {
		p.ports = append(p.ports, port{name: sp.Name, proto: protocolLabel(sp.Protocol), number: uint16(sp.Port)})
	}
	return p
}

func (p *spec) equal(o *spec) bool {
	return p.kind == o.kind && p.unready == o.unready && p.target == o.target &&
		slices.Equal(p.addresses, o.addresses) && slices.Equal(p.ports, o.ports)
}

func protocolLabel(p corev1.Protocol) string {
	switch p {
	case corev1.ProtocolUDP:
		return "_udp"
	case corev1.ProtocolSCTP:
		return "_sctp"
	}
	return "_tcp" // the API's default
}

// slice is what is remembered of an EndpointSlice.
type slice struct {
	name      string
	ports     []port
	endpoints []endpoint
	clients   []clientOf
}

// endpoint is an address that a headless Service's name leads to.
type endpoint struct {
	address  netip.Addr
	hostname string // "" if it has none
	ready    bool
	node     nodeHandle
}

// name is the label of the endpoint below its Service: its hostname, or its
// address with dashes.
func (e *endpoint) name() string {
	if e.hostname != "" {
		return e.hostname
	}
	return dashed(e.address)
}

func dashed(a netip.Addr) string {
	return strings.Map(func(r rune) rune {
		if r == '.' || r == ':' {
			return '-'
		}
		return r
	}, a.String())
}

// newSlice reads a slice. Endpoints of Services with a cluster IP have no names,
// so only those of headless ones are kept, and of the others who they are.
func newSlice(s *discoveryv1.EndpointSlice, nodeName string) *slice {
	r := &slice{name: s.Name}
	for _, p := range s.Ports {
		if p.Port == nil || p.Name == nil {
			continue
		}
		proto := corev1.ProtocolTCP
		if p.Protocol != nil {
			proto = *p.Protocol
		}
		r.ports = append(r.ports, port{name: *p.Name, proto: protocolLabel(proto), number: uint16(*p.Port)})
	}
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		for _, text := range e.Addresses {
			a, err := netip.ParseAddr(text)
			if err != nil {
				continue
			}
			r.add(a.Unmap(), e)
			if t := e.TargetRef; t != nil && t.Kind == "Pod" && (nodeName == "" || e.NodeName != nil && *e.NodeName == nodeName) {
				r.clients = append(r.clients, clientOf{a.Unmap(), s.Namespace})
			}
		}
	}
	return r
}

func (r *slice) add(a netip.Addr, e *discoveryv1.Endpoint) {
	record := endpoint{address: a, node: nodeNameOf(e.NodeName), ready: e.Conditions.Ready == nil || *e.Conditions.Ready}
	if e.Hostname != nil {
		record.hostname = strings.ToLower(*e.Hostname)
	}
	r.endpoints = append(r.endpoints, record)
}

// host is an endpoint's hostname within a Service.
type host struct {
	service  types.NamespacedName
	hostname string
}
