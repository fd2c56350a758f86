package defaults

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Service fills in a Service's defaults.
func Service(s *corev1.Service) {
	spec := &s.Spec
	setDefault(&spec.Type, corev1.ServiceTypeClusterIP)
	sessionAffinity(spec)
	for i := range spec.Ports {
		port := &spec.Ports[i]
		setDefault(&port.Protocol, corev1.ProtocolTCP)
		if port.TargetPort == intstr.FromInt32(0) || port.TargetPort == intstr.FromString("") {
			port.TargetPort = intstr.FromInt32(port.Port)
		}
	}
	if ExternallyAccessible(spec) {
		setDefault(&spec.ExternalTrafficPolicy, corev1.ServiceExternalTrafficPolicyCluster)
	}
	if spec.Type != corev1.ServiceTypeExternalName {
		setPointer(&spec.InternalTrafficPolicy, corev1.ServiceInternalTrafficPolicyCluster)
	}
	if spec.Type == corev1.ServiceTypeLoadBalancer {
		setPointer(&spec.AllocateLoadBalancerNodePorts, true)
		loadBalancerMode(s.Status.LoadBalancer.Ingress)
	}
}

// ExternallyAccessible says whether traffic from outside the cluster is meant
// to reach the Service, and so whether externalTrafficPolicy means something.
func ExternallyAccessible(spec *corev1.ServiceSpec) bool {
	return spec.Type == corev1.ServiceTypeLoadBalancer || spec.Type == corev1.ServiceTypeNodePort ||
		(spec.Type == corev1.ServiceTypeClusterIP && len(spec.ExternalIPs) > 0)
}

func sessionAffinity(spec *corev1.ServiceSpec) {
	setDefault(&spec.SessionAffinity, corev1.ServiceAffinityNone)
	switch spec.SessionAffinity {
	case corev1.ServiceAffinityNone:
		spec.SessionAffinityConfig = nil
	case corev1.ServiceAffinityClientIP:
		if spec.SessionAffinityConfig == nil {
			spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{}
		}
		setPointer(&spec.SessionAffinityConfig.ClientIP, corev1.ClientIPConfig{})
		setPointer(&spec.SessionAffinityConfig.ClientIP.TimeoutSeconds, corev1.DefaultClientIPServiceAffinitySeconds)
	}
}

// loadBalancerMode applies KEP-1860: an address without a mode is a VIP.
func loadBalancerMode(ingress []corev1.LoadBalancerIngress) {
	for i := range ingress {
		if ingress[i].IP != "" {
			setPointer(&ingress[i].IPMode, corev1.LoadBalancerIPModeVIP)
		}
	}
}
