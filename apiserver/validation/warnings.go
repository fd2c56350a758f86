package validation

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// ServiceWarnings returns what kubectl shows beside a Service that is valid
// but probably not meant so.
func ServiceWarnings(svc *corev1.Service) []string {
	var out []string
	if svc.Spec.LoadBalancerIP != "" {
		out = append(out, "spec.loadBalancerIP is deprecated in v1.24+; its meaning differs between implementations")
	}
	if svc.Spec.Type == corev1.ServiceTypeClusterIP && svc.Spec.ClusterIP == corev1.ClusterIPNone {
		if len(svc.Spec.ExternalIPs) > 0 {
			out = append(out, "spec.externalIPs is ignored when spec.clusterIP is \"None\"")
		}
		if svc.Spec.SessionAffinity != corev1.ServiceAffinityNone {
			out = append(out, "spec.SessionAffinity is ignored for headless services")
		}
	}
	if d := svc.Spec.TrafficDistribution; d != nil && *d == corev1.ServiceTrafficDistributionPreferClose {
		out = append(out, fmt.Sprintf("spec.trafficDistribution: %q is deprecated, use %q", *d, corev1.ServiceTrafficDistributionPreferSameZone))
	}
	return out
}
