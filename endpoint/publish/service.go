package publish

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairway-net/fairway/endpoint/check"
)

// accepts returns an error if a Service doesn't take endpoints that machines publish.
func accepts(s *corev1.Service) error {
	switch {
	case s.Spec.Type == corev1.ServiceTypeExternalName:
		return fmt.Errorf("its type is ExternalName: it has no endpoints")
	case len(s.Spec.Selector) > 0:
		return fmt.Errorf("its selector chooses its endpoints")
	}
	return nil
}

// mayPublish reports whether a machine is named.
func mayPublish(s *corev1.Service, node string) bool {
	for name := range strings.SplitSeq(s.Annotations[check.AnnotationPublishers], ",") {
		if name = strings.TrimSpace(name); name == node || name == "*" {
			return true
		}
	}
	return false
}

// portOf finds the port of a Service that an entry's endpoint is of: the one
// that it names, the only one of the protocol, or the one that has its number.
func portOf(e *Entry, s *corev1.Service) (string, error) {
	var of, targets, numbers []corev1.ServicePort
	for _, p := range s.Spec.Ports {
		if p.Protocol != e.Protocol && (p.Protocol != "" || e.Protocol != corev1.ProtocolTCP) {
			continue
		}
		of = append(of, p)
		if e.PortName != "" && p.Name == e.PortName {
			return p.Name, nil
		}
		if p.TargetPort.IntValue() == int(e.Port) {
			targets = append(targets, p)
		}
		if p.Port == int32(e.Port) {
			numbers = append(numbers, p)
		}
	}
	if e.PortName != "" {
		return "", fmt.Errorf("portName %q: the Service has no such %s port", e.PortName, e.Protocol)
	}
	for _, list := range [][]corev1.ServicePort{of, targets, numbers} {
		if len(list) == 1 {
			return list[0].Name, nil
		}
	}
	if len(of) == 0 {
		return "", fmt.Errorf("the Service has no %s port", e.Protocol)
	}
	var names []string
	for _, p := range of {
		names = append(names, p.Name)
	}
	return "", fmt.Errorf("the Service has several %s ports: say which with portName: %s", e.Protocol, strings.Join(names, ", "))
}

// served reports whether a Service has addresses of an address's family.
func served(s *corev1.Service, a netip.Addr) bool {
	family := corev1.IPv4Protocol
	if a.Is6() {
		family = corev1.IPv6Protocol
	}
	return len(s.Spec.IPFamilies) == 0 || slices.Contains(s.Spec.IPFamilies, family)
}
