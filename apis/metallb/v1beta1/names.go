package v1beta1

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// DefaultNamespace is where MetalLB and its configuration usually live.
const DefaultNamespace = "metallb-system"

// Annotations of Services. Each is also known with OldPrefix.
const (
	Prefix    = "metallb.io/"
	OldPrefix = "metallb.universe.tf/"

	AnnotationAddressPool     = Prefix + "address-pool"
	AnnotationAllowSharedIP   = Prefix + "allow-shared-ip"
	AnnotationLoadBalancerIPs = Prefix + "loadBalancerIPs"
	// AnnotationFromPool is written: the pool of a Service's addresses.
	AnnotationFromPool = Prefix + "ip-allocated-from-pool"
)

// Labels of status objects.
const (
	LabelNode             = Prefix + "node"
	LabelServiceName      = Prefix + "service-name"
	LabelServiceNamespace = Prefix + "service-namespace"
	LabelComponent        = Prefix + "component-type"
	LabelNodeName         = Prefix + "node-name"
)

// Annotation returns what an annotation with Prefix says, or the same one with
// OldPrefix where the new one is absent; "" if neither is there.
func Annotation(annotations map[string]string, name string) string {
	if value, ok := annotations[name]; ok {
		return value
	}
	return annotations[OldPrefix+name[len(Prefix):]]
}

// RequestedAddresses are the addresses that a Service asks for, by spec or annotation.
func RequestedAddresses(s *corev1.Service) ([]netip.Addr, error) {
	list := Annotation(s.Annotations, AnnotationLoadBalancerIPs)
	field := "annotation " + AnnotationLoadBalancerIPs
	if s.Spec.LoadBalancerIP != "" {
		if list != "" {
			return nil, errors.New("spec.loadBalancerIP and the " + field + " are both set: only one may be")
		}
		list, field = s.Spec.LoadBalancerIP, "spec.loadBalancerIP"
	}
	if list == "" {
		return nil, nil
	}
	var out []netip.Addr
	for text := range strings.SplitSeq(list, ",") {
		a, err := netip.ParseAddr(strings.TrimSpace(text))
		if err != nil {
			return nil, fmt.Errorf("%s: %q is not an IP address", field, strings.TrimSpace(text))
		}
		out = append(out, a.Unmap())
	}
	return out, nil
}
