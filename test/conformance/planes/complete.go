package planes

import (
	"cmp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"
)

// completeService fills in what the API server would, so that the manifests of
// cases can be short.
func completeService(s *corev1.Service) {
	s.Namespace = cmp.Or(s.Namespace, "default")
	s.Spec.Type = cmp.Or(s.Spec.Type, corev1.ServiceTypeClusterIP)
	s.Spec.SessionAffinity = cmp.Or(s.Spec.SessionAffinity, corev1.ServiceAffinityNone)
	if s.Spec.ClusterIP == "" && len(s.Spec.ClusterIPs) > 0 {
		s.Spec.ClusterIP = s.Spec.ClusterIPs[0]
	}
	if s.Spec.ClusterIP != "" && len(s.Spec.ClusterIPs) == 0 {
		s.Spec.ClusterIPs = []string{s.Spec.ClusterIP}
	}
	if s.Spec.SessionAffinity == corev1.ServiceAffinityClientIP && s.Spec.SessionAffinityConfig == nil {
		s.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{
			ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: ptr.To(corev1.DefaultClientIPServiceAffinitySeconds)},
		}
	}
	if s.Spec.InternalTrafficPolicy == nil {
		s.Spec.InternalTrafficPolicy = ptr.To(corev1.ServiceInternalTrafficPolicyCluster)
	}
	outside := s.Spec.Type == corev1.ServiceTypeNodePort || s.Spec.Type == corev1.ServiceTypeLoadBalancer || len(s.Spec.ExternalIPs) > 0
	if outside {
		s.Spec.ExternalTrafficPolicy = cmp.Or(s.Spec.ExternalTrafficPolicy, corev1.ServiceExternalTrafficPolicyCluster)
	}
	for i := range s.Spec.Ports {
		s.Spec.Ports[i].Protocol = cmp.Or(s.Spec.Ports[i].Protocol, corev1.ProtocolTCP)
	}
	for i := range s.Status.LoadBalancer.Ingress {
		ingress := &s.Status.LoadBalancer.Ingress[i]
		if ingress.IP != "" && ingress.IPMode == nil {
			ingress.IPMode = ptr.To(corev1.LoadBalancerIPModeVIP)
		}
	}
}

// completeSlice fills in what the API server would, and the address type.
func completeSlice(s *discoveryv1.EndpointSlice) {
	s.Namespace = cmp.Or(s.Namespace, "default")
	if s.AddressType == "" {
		s.AddressType = discoveryv1.AddressTypeIPv4
		if len(s.Endpoints) > 0 && strings.Contains(s.Endpoints[0].Addresses[0], ":") {
			s.AddressType = discoveryv1.AddressTypeIPv6
		}
	}
	for i := range s.Ports {
		s.Ports[i].Protocol = ptr.To(ptr.Deref(s.Ports[i].Protocol, corev1.ProtocolTCP))
		s.Ports[i].Name = ptr.To(ptr.Deref(s.Ports[i].Name, ""))
	}
}
