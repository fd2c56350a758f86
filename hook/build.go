package hook

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// annotationWeight is the weight of a slice's endpoints.
const annotationWeight = "fairway.dev/weight"

// buildService makes the state of a Service from its objects. Addresses of the
// status are left out where the hook itself gives them.
func buildService(s *corev1.Service, slices []*discoveryv1.EndpointSlice, givesAddresses bool) *Service {
	out := &Service{
		Namespace: s.Namespace, Name: s.Name, Type: string(s.Spec.Type), Labels: s.Labels, Annotations: s.Annotations,
		ExternalIPs: s.Spec.ExternalIPs, RequestedIP: s.Spec.LoadBalancerIP, SourceRanges: s.Spec.LoadBalancerSourceRanges,
		ExternalTrafficPolicy: string(s.Spec.ExternalTrafficPolicy), HealthCheckNodePort: s.Spec.HealthCheckNodePort,
		age: s.CreationTimestamp.UTC().Format(time.RFC3339) + " " + s.Namespace + "/" + s.Name,
	}
	if s.Spec.LoadBalancerClass != nil {
		out.Class = *s.Spec.LoadBalancerClass
	}
	if s.Spec.ClusterIP != corev1.ClusterIPNone {
		out.ClusterIPs = s.Spec.ClusterIPs
	}
	if s.Spec.SessionAffinity == corev1.ServiceAffinityClientIP {
		out.AffinitySeconds = corev1.DefaultClientIPServiceAffinitySeconds
		if c := s.Spec.SessionAffinityConfig; c != nil && c.ClientIP != nil && c.ClientIP.TimeoutSeconds != nil {
			out.AffinitySeconds = *c.ClientIP.TimeoutSeconds
		}
	}
	if !givesAddresses {
		for _, i := range s.Status.LoadBalancer.Ingress {
			out.Addresses = append(out.Addresses, cmp.Or(i.IP, i.Hostname))
		}
	}
	for _, p := range s.Spec.Ports {
		port := &Port{Name: p.Name, Protocol: string(cmp.Or(p.Protocol, corev1.ProtocolTCP)), Port: p.Port, NodePort: p.NodePort, Endpoints: []*Endpoint{}}
		for _, slice := range slices {
			port.add(slice)
		}
		port.sort()
		out.Ports = append(out.Ports, port)
	}
	return out
}

// add adds a slice's endpoints of the port: that of the same name and protocol.
func (p *Port) add(s *discoveryv1.EndpointSlice) {
	if s.AddressType == discoveryv1.AddressTypeFQDN {
		return
	}
	weight := 1
	if n, err := strconv.Atoi(s.Annotations[annotationWeight]); err == nil && n >= 0 && n <= 100 {
		weight = n
	}
	for _, sp := range s.Ports {
		name, protocol := "", corev1.ProtocolTCP
		if sp.Name != nil {
			name = *sp.Name
		}
		if sp.Protocol != nil {
			protocol = *sp.Protocol
		}
		if name != p.Name || string(protocol) != p.Protocol || sp.Port == nil {
			continue
		}
		for i := range s.Endpoints {
			e := &s.Endpoints[i]
			if len(e.Addresses) == 0 {
				continue
			}
			a, err := netip.ParseAddr(e.Addresses[0])
			if err != nil {
				continue // what can't be an address must not reach a command line
			}
			c := e.Conditions
			end := &Endpoint{Address: a.Unmap().String(), Port: *sp.Port, Weight: weight, Ready: c.Ready == nil || *c.Ready}
			end.Draining = !end.Ready && c.Serving != nil && *c.Serving && c.Terminating != nil && *c.Terminating
			if e.NodeName != nil {
				end.Node = *e.NodeName
			}
			if e.Zone != nil {
				end.Zone = *e.Zone
			}
			p.Endpoints = append(p.Endpoints, end)
		}
	}
}

// sort orders the endpoints, and leaves each once: a ready one if there is one.
func (p *Port) sort() {
	slices.SortStableFunc(p.Endpoints, func(a, b *Endpoint) int {
		return cmp.Or(cmp.Compare(a.Address, b.Address), cmp.Compare(a.Port, b.Port), cmp.Compare(rank(a), rank(b)))
	})
	p.Endpoints = slices.CompactFunc(p.Endpoints, func(a, b *Endpoint) bool { return a.Address == b.Address && a.Port == b.Port })
}

func rank(e *Endpoint) int {
	switch {
	case e.Ready:
		return 0
	case e.Draining:
		return 1
	}
	return 2
}

func buildNode(n *corev1.Node) *Node {
	out := &Node{Name: n.Name, Zone: n.Labels[corev1.LabelTopologyZone], Addresses: []string{}}
	for _, a := range n.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			out.Addresses = append(out.Addresses, a.Address)
		}
	}
	for _, c := range n.Status.Conditions {
		out.Ready = out.Ready || c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	}
	return out
}
