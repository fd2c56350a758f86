package addresses

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/fairway-net/fairway/apis/metallb/v1beta1"
	"github.com/fairway-net/fairway/controller/addresses/allocator"
)

// wants reports whether a Service is to have an address of us: one of type
// LoadBalancer with exactly our class, or none if we have none.
func wants(s *corev1.Service, class string) bool {
	return s.Spec.Type == corev1.ServiceTypeLoadBalancer && s.DeletionTimestamp == nil && !isOfAnotherClass(s, class)
}

// isOfAnotherClass reports whether a Service is for another load balancer, whose
// marks may be like ours.
func isOfAnotherClass(s *corev1.Service, class string) bool {
	return s.Spec.Type == corev1.ServiceTypeLoadBalancer && ptr.Deref(s.Spec.LoadBalancerClass, "") != class
}

// request is what a Service asks for. An error says what in it makes no sense.
func request(s *corev1.Service, namespaceLabels labels.Set) (allocator.Request, error) {
	r := allocator.Request{
		Service:         types.NamespacedName{Namespace: s.Namespace, Name: s.Name},
		Labels:          s.Labels,
		NamespaceLabels: namespaceLabels,
		Prefer:          s.Spec.IPFamilyPolicy != nil && *s.Spec.IPFamilyPolicy == corev1.IPFamilyPolicyPreferDualStack,
		Pool:            v1beta1.Annotation(s.Annotations, v1beta1.AnnotationAddressPool),
		SharingKey:      v1beta1.Annotation(s.Annotations, v1beta1.AnnotationAllowSharedIP),
		Families:        families(s),
	}
	for _, p := range s.Spec.Ports {
		r.Ports = append(r.Ports, allocator.Port{Protocol: string(p.Protocol), Number: uint16(p.Port)})
	}
	if s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal {
		r.Backends = "selector " + labels.Set(s.Spec.Selector).String()
	}
	var err error
	r.Addresses, err = v1beta1.RequestedAddresses(s)
	return r, err
}

// families are those of the Service's cluster IPs.
func families(s *corev1.Service) []allocator.Family {
	var list []allocator.Family
	for _, f := range s.Spec.IPFamilies {
		switch f {
		case corev1.IPv4Protocol:
			list = append(list, allocator.IPv4)
		case corev1.IPv6Protocol:
			list = append(list, allocator.IPv6)
		}
	}
	return list
}

// assigned are the addresses in a Service's status.
func assigned(s *corev1.Service) []netip.Addr {
	var list []netip.Addr
	for _, i := range s.Status.LoadBalancer.Ingress {
		if a, err := netip.ParseAddr(i.IP); err == nil {
			list = append(list, a.Unmap())
		}
	}
	return list
}
