package dns

import (
	corev1 "k8s.io/api/core/v1"
)

// ServiceName is the DNS Service's in kube-system, wherever there is one.
const ServiceName = "kube-dns"

// ServicePorts are the DNS Service's.
func ServicePorts() []corev1.ServicePort {
	return []corev1.ServicePort{
		{Name: "dns", Port: 53, Protocol: corev1.ProtocolUDP},
		{Name: "dns-tcp", Port: 53, Protocol: corev1.ProtocolTCP},
	}
}
