package manifest

import (
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// What a cluster would have chosen, if nothing else is known: kubeadm's usual
// ranges, and a pod range that no cluster's documentation calls its own.
var (
	sampleServices = []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd00:10:96::/112")}
	samplePods     = []netip.Prefix{netip.MustParsePrefix("10.244.0.0/24"), netip.MustParsePrefix("fd00:10:244::/64")}
)

const (
	firstNodePort = 30000
	mostSamples   = 10 // endpoints of one template
)

// sampler gives addresses and ports that nothing in the set has.
type sampler struct {
	set      *Set
	services [2]netip.Addr // the last given, by family
	pods     [2]netip.Addr
	nodePort int32
	taken    map[string]bool
}

// Sample gives what a cluster would have given to Services that have it not
// yet: cluster IPs from the ranges, if they have the family, node ports, and
// endpoints of the Pods and templates that a selector matches. It returns a
// sentence for each Service that was given something.
func (s *Set) Sample(ranges []netip.Prefix) (notes []string) {
	m := &sampler{set: s, nodePort: firstNodePort - 1, taken: map[string]bool{}}
	for family := range 2 {
		m.services[family] = sampleServices[family].Addr()
		for _, r := range ranges {
			if r.Addr().Is6() == (family == 1) {
				m.services[family] = r.Masked().Addr()
			}
		}
		m.pods[family] = samplePods[family].Addr()
	}
	sliced := map[string]bool{}
	for _, slice := range s.Slices {
		sliced[slice.Namespace+"/"+slice.Labels[discoveryv1.LabelServiceName]] = true
	}
	for _, svc := range s.Services {
		for _, ip := range append([]string{svc.Spec.ClusterIP}, svc.Spec.ClusterIPs...) {
			m.taken[ip] = true
		}
		for _, p := range svc.Spec.Ports {
			m.taken[fmt.Sprint(p.NodePort)] = true
		}
	}
	for _, svc := range s.Services {
		if svc.Spec.Type == corev1.ServiceTypeExternalName {
			continue
		}
		given := append(m.addresses(svc), m.nodePorts(svc)...)
		if len(svc.Spec.Selector) > 0 && !sliced[svc.Namespace+"/"+svc.Name] {
			given = append(given, m.endpoints(svc)...)
		}
		if len(given) > 0 {
			notes = append(notes, fmt.Sprintf("service %s/%s: as an example, %s", svc.Namespace, svc.Name, joined(given)))
		}
	}
	return notes
}

// addresses gives a Service the cluster IPs of its families.
func (m *sampler) addresses(svc *corev1.Service) (given []string) {
	spec := &svc.Spec
	if spec.ClusterIP != "" {
		if len(spec.ClusterIPs) == 0 {
			spec.ClusterIPs = []string{spec.ClusterIP}
		}
		return nil
	}
	families := spec.IPFamilies
	if len(families) == 0 {
		families = []corev1.IPFamily{corev1.IPv4Protocol}
		if p := spec.IPFamilyPolicy; p != nil && *p != corev1.IPFamilyPolicySingleStack {
			families = append(families, corev1.IPv6Protocol)
		}
	}
	if len(spec.ClusterIPs) > 0 {
		spec.ClusterIP = spec.ClusterIPs[0]
		return nil
	}
	for _, f := range families {
		ip := m.next(&m.services[familyIndex(f)])
		spec.ClusterIPs = append(spec.ClusterIPs, ip)
		given = append(given, "cluster IP "+ip)
	}
	spec.ClusterIP, spec.IPFamilies = spec.ClusterIPs[0], families
	return given
}

// nodePorts gives a Service the node ports that its type asks for.
func (m *sampler) nodePorts(svc *corev1.Service) (given []string) {
	without := svc.Spec.AllocateLoadBalancerNodePorts
	switch {
	case svc.Spec.Type == corev1.ServiceTypeNodePort:
	case svc.Spec.Type == corev1.ServiceTypeLoadBalancer && (without == nil || *without):
	default:
		return nil
	}
	for i := range svc.Spec.Ports {
		p := &svc.Spec.Ports[i]
		if p.NodePort != 0 {
			continue
		}
		for m.nodePort++; m.taken[fmt.Sprint(m.nodePort)]; {
			m.nodePort++
		}
		p.NodePort = m.nodePort
		given = append(given, fmt.Sprintf("node port %d", p.NodePort))
	}
	return given
}

// endpoints makes slices of the pods that the Service's selector matches.
func (m *sampler) endpoints(svc *corev1.Service) (given []string) {
	for _, i := range m.set.matching(svc) {
		pods := &m.set.templates[i]
		for _, ip := range svc.Spec.ClusterIPs {
			family := corev1.IPv4Protocol
			if a, err := netip.ParseAddr(ip); err == nil && a.Is6() {
				family = corev1.IPv6Protocol
			}
			slice := m.slice(svc, i, family)
			m.set.Slices = append(m.set.Slices, slice)
			given = append(given, fmt.Sprintf("%d endpoints of %s (%s)", len(slice.Endpoints), pods.owner, slice.AddressType))
		}
	}
	return given
}

// matching are the indices of the templates that a Service's selector matches:
// its Pods alone, if there are any, since the others made them.
func (s *Set) matching(svc *corev1.Service) []int {
	selector := labels.SelectorFromSet(svc.Spec.Selector)
	var pods, others []int
	for i, t := range s.templates {
		switch {
		case t.namespace != svc.Namespace || !selector.Matches(labels.Set(t.template.Labels)):
		case t.isPod:
			pods = append(pods, i)
		default:
			others = append(others, i)
		}
	}
	if len(pods) > 0 {
		return pods
	}
	return others
}

// slice holds an endpoint of one family for each pod of a template.
func (m *sampler) slice(svc *corev1.Service, template int, family corev1.IPFamily) *discoveryv1.EndpointSlice {
	pods := &m.set.templates[template]
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: svc.Namespace, Name: fmt.Sprintf("%s-sample-%d-%s", svc.Name, template, family),
			Labels: map[string]string{discoveryv1.LabelServiceName: svc.Name},
		},
		AddressType: discoveryv1.AddressType(family),
	}
	for _, p := range svc.Spec.Ports {
		port := targetPort(p, &pods.template.Spec)
		protocol := p.Protocol
		if protocol == "" {
			protocol = corev1.ProtocolTCP
		}
		slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{Name: &p.Name, Port: &port, Protocol: &protocol})
	}
	ready := true
	list := pods.addresses(&m.pods[familyIndex(family)], familyIndex(family), m)
	for _, ip := range list {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{ip}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}})
	}
	return slice
}

// next gives the first address after the last one that nobody has.
func (m *sampler) next(last *netip.Addr) string {
	for *last = last.Next(); m.taken[last.String()]; {
		*last = last.Next()
	}
	return last.String()
}

// targetPort is the number that a Service port leads to: its own, without a
// target, and 0 for a name that no container has.
func targetPort(p corev1.ServicePort, pod *corev1.PodSpec) int32 {
	if p.TargetPort.Type == intstr.String {
		for _, c := range pod.Containers {
			for _, port := range c.Ports {
				if port.Name == p.TargetPort.StrVal {
					return port.ContainerPort
				}
			}
		}
		return 0
	}
	if p.TargetPort.IntVal == 0 {
		return p.Port
	}
	return p.TargetPort.IntVal
}

func familyIndex(f corev1.IPFamily) int {
	if f == corev1.IPv6Protocol {
		return 1
	}
	return 0
}
