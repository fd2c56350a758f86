package compile

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// random makes API objects that collide, overlap and contradict as often as
// they can.
type random struct{ *rand.Rand }

func (r random) chance(percent int) bool { return r.IntN(100) < percent }

func pick[T any](r random, list ...T) T { return list[r.IntN(len(list))] }

func ptr[T any](v T) *T { return &v }

var (
	portNames = []string{"", "http", "dns"}
	protocols = []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP}
)

func (r random) service(i int) *corev1.Service {
	s := &corev1.Service{}
	s.Namespace, s.Name = "ns", fmt.Sprintf("s%d", i)
	s.CreationTimestamp = metav1.NewTime(time.Unix(int64(r.IntN(3)), 0))
	s.Spec.Type = pick(r, corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeLoadBalancer)
	four, six := fmt.Sprintf("10.96.0.%d", i+r.IntN(2)), fmt.Sprintf("fd00:10:96::%x", i+1)
	switch r.IntN(8) {
	case 0:
		s.Spec.ClusterIPs = []string{six}
	case 1:
		s.Spec.ClusterIPs = []string{corev1.ClusterIPNone}
	case 2:
		s.Spec.Type = corev1.ServiceTypeExternalName
	case 3, 4:
		s.Spec.ClusterIPs = []string{four, six}
	default:
		s.Spec.ClusterIPs = []string{four}
	}
	if len(s.Spec.ClusterIPs) > 0 {
		s.Spec.ClusterIP = s.Spec.ClusterIPs[0]
	}
	for n := range 1 + r.IntN(2) {
		p := corev1.ServicePort{Name: portNames[n+r.IntN(2)], Port: int32(80 + r.IntN(2)), Protocol: pick(r, protocols...)}
		if s.Spec.Type != corev1.ServiceTypeClusterIP && r.chance(80) {
			p.NodePort = int32(30000 + r.IntN(3))
		}
		s.Spec.Ports = append(s.Spec.Ports, p)
	}
	r.entrances(s)
	r.policies(s)
	return s
}

func (r random) entrances(s *corev1.Service) {
	for _, a := range []string{"192.0.2.1", "203.0.113.7", "10.96.0.2", "2001:db8::7", "127.0.0.1", "rubbish"} {
		if r.chance(10) {
			s.Spec.ExternalIPs = append(s.Spec.ExternalIPs, a)
		}
	}
	for _, a := range []string{"203.0.113.7", "203.0.113.8", "2001:db8::8"} {
		if r.chance(30) {
			s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{
				IP: a, IPMode: pick(r, nil, ptr(corev1.LoadBalancerIPModeVIP), ptr(corev1.LoadBalancerIPModeProxy)),
			})
		}
	}
	if r.chance(30) {
		s.Spec.LoadBalancerSourceRanges = []string{pick(r, "198.51.100.0/24", " 192.0.2.0/24", "x", "2001:db8::/32")}
	}
}

func (r random) policies(s *corev1.Service) {
	s.Labels, s.Annotations = map[string]string{}, map[string]string{}
	if r.chance(10) {
		s.Labels[labelProxyName] = "other"
	}
	if r.chance(5) {
		s.Labels[corev1.IsHeadlessService] = ""
	}
	if r.chance(40) {
		s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
		s.Spec.HealthCheckNodePort = int32(31000 + r.IntN(3))
	}
	if r.chance(30) {
		s.Spec.InternalTrafficPolicy = ptr(corev1.ServiceInternalTrafficPolicyLocal)
	}
	s.Spec.PublishNotReadyAddresses = r.chance(10)
	if r.chance(20) {
		s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
	}
	if r.chance(20) {
		s.Annotations[AnnotationScheduler] = pick(r, "rr", "lc", "none")
	}
	if r.chance(20) {
		s.Annotations[AnnotationOrphans] = pick(r, "reset", "deadline=30s", "deadline=x")
	}
	if r.chance(20) {
		s.Annotations[AnnotationDirectReturn] = pick(r, "true", "false", "yes")
	}
	if r.chance(20) {
		s.Annotations[AnnotationWeights] = pick(r, "10.244.1.1=3,pod-2=0", "pod-1=4,pod-2=2", "=1")
	}
}

func (r random) slice(i, services int) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{AddressType: pick(r, discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6, discoveryv1.AddressTypeFQDN)}
	s.Namespace, s.Name = "ns", fmt.Sprintf("slice-%d", i)
	s.Labels = map[string]string{discoveryv1.LabelServiceName: fmt.Sprintf("s%d", r.IntN(services))}
	if r.chance(5) {
		s.Labels = nil
	}
	if r.chance(10) {
		s.Annotations = map[string]string{AnnotationWeight: pick(r, "2", "many")}
	}
	for n := range 1 + r.IntN(2) {
		s.Ports = append(s.Ports, discoveryv1.EndpointPort{
			Name: ptr(portNames[n+r.IntN(2)]), Port: pick(r, nil, ptr(int32(8080)), ptr(int32(8080+r.IntN(2)))), Protocol: ptr(pick(r, protocols...)),
		})
	}
	hinted := r.chance(50)
	for range r.IntN(5) {
		s.Endpoints = append(s.Endpoints, r.endpoint(s.AddressType, hinted))
	}
	return s
}

func (r random) endpoint(family discoveryv1.AddressType, hinted bool) discoveryv1.Endpoint {
	n := r.IntN(5)
	e := discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.244.1.%d", n)}}
	if family == discoveryv1.AddressTypeIPv6 {
		e.Addresses[0] = fmt.Sprintf("fd00:10:244::%d", n)
	}
	if r.chance(3) {
		e.Addresses[0] = pick(r, "127.0.0.1", "169.254.0.1", "fd00::9", "nonsense")
	}
	condition := func() *bool { return pick(r, nil, ptr(true), ptr(false)) }
	e.Conditions = discoveryv1.EndpointConditions{Ready: condition(), Serving: condition(), Terminating: condition()}
	e.NodeName = pick(r, nil, ptr("n1"), ptr("n2"), ptr("n3"))
	if r.chance(50) {
		e.TargetRef = &corev1.ObjectReference{Kind: "Pod", Name: fmt.Sprintf("pod-%d", n)}
	}
	if hinted || r.chance(10) {
		e.Hints = &discoveryv1.EndpointHints{
			ForZones: pick(r, nil, []discoveryv1.ForZone{{Name: "z1"}}, []discoveryv1.ForZone{{Name: "z2"}, {Name: "z3"}}),
			ForNodes: pick(r, nil, []discoveryv1.ForNode{{Name: "n1"}}, []discoveryv1.ForNode{{Name: "n2"}}),
		}
	}
	return e
}

func (r random) node() Node {
	n := Node{Name: pick(r, "n1", "n1", "n2"), Zone: pick(r, "z1", "z2", ""), PodCIDRs: prefixes("10.244.1.0/24")}
	for _, a := range testNode.Addresses {
		if r.chance(70) {
			n.Addresses = append(n.Addresses, a)
		}
	}
	n.Primary = addrs("192.0.2.1")
	return n
}

func (r random) config() Config {
	return Config{
		Pods:               pick(r, testConfig.Pods, testConfig.Pods, Config{}.Pods),
		PodsOfNode:         r.chance(20),
		ServiceCIDRs:       testConfig.ServiceCIDRs,
		NodePorts:          NodePortAddresses{Primary: r.chance(20), Prefixes: pick(r, nil, []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")})},
		LocalhostNodePorts: r.chance(50),
		MasqueradeAll:      r.chance(20),
	}
}
