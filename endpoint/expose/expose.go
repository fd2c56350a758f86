// Package expose makes the Service and EndpointSlices that lead to addresses
// which somebody lists: what `fairway expose` writes. It is pure.
package expose

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/fairway-net/fairway/endpoint/check"
)

// Manager is what the label endpointslice.kubernetes.io/managed-by says of the
// slices made here.
const Manager = "expose.fairway.dev"

// Request is what is asked for, as typed.
type Request struct {
	Namespace, Name string
	Port            int      // of the Service
	Protocol        string   // TCP, UDP or SCTP
	To              []string // ADDRESS:PORT, or [ADDRESS]:PORT
	Check           string   // as in the annotation fairway.dev/health-check; "" is none
	Type            string   // ClusterIP, NodePort or LoadBalancer
}

// Objects returns the Service and a slice for each family and port of To. An
// error names the field.
func (r Request) Objects() (*corev1.Service, []*discoveryv1.EndpointSlice, error) {
	if problems := validation.IsDNS1123Label(r.Name); len(problems) > 0 {
		return nil, nil, fmt.Errorf("name %q: %s", r.Name, problems[0])
	}
	if r.Port < 1 || r.Port > 65535 {
		return nil, nil, fmt.Errorf("--port %d: must be between 1 and 65535", r.Port)
	}
	protocol := corev1.Protocol(strings.ToUpper(r.Protocol))
	if !slices.Contains([]corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP}, protocol) {
		return nil, nil, fmt.Errorf("--protocol %q: must be TCP, UDP or SCTP", r.Protocol)
	}
	kind := corev1.ServiceType(r.Type)
	if !slices.Contains([]corev1.ServiceType{corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer}, kind) {
		return nil, nil, fmt.Errorf("--type %q: must be ClusterIP, NodePort or LoadBalancer", r.Type)
	}
	endpoints, err := parseEndpoints(r.To)
	if err != nil {
		return nil, nil, err
	}
	target := intstr.FromInt(r.Port)
	if len(endpoints) > 0 {
		target = intstr.FromInt(int(endpoints[0].Port()))
	}
	service := &corev1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: r.Name},
		Spec: corev1.ServiceSpec{
			Type:           kind,
			IPFamilyPolicy: familyPolicy(endpoints), IPFamilies: families(endpoints),
			Ports: []corev1.ServicePort{{Port: int32(r.Port), Protocol: protocol, TargetPort: target}},
		},
	}
	if r.Check != "" {
		service.Annotations = map[string]string{check.AnnotationCheck: r.Check}
		if _, problems := check.ReadWish(service.Annotations); len(problems) > 0 {
			_, err := check.Parse(r.Check)
			if err == nil {
				err = problems[0]
			}
			return nil, nil, fmt.Errorf("--check %w", err)
		}
	}
	if len(endpoints) == 0 { // machines are to publish them
		metav1.SetMetaDataAnnotation(&service.ObjectMeta, check.AnnotationPublishers, "*")
	}
	return service, r.slices(protocol, endpoints), nil
}

// parseEndpoints reads addresses with ports; each may be there once.
func parseEndpoints(list []string) ([]netip.AddrPort, error) {
	var endpoints []netip.AddrPort
	for _, text := range list {
		e, err := netip.ParseAddrPort(strings.TrimSpace(text))
		if err != nil || e.Port() == 0 {
			return nil, fmt.Errorf("--to %q: must be ADDRESS:PORT, such as 10.77.0.12:8000 or [fd00::12]:8000", text)
		}
		e = netip.AddrPortFrom(e.Addr().Unmap(), e.Port())
		if err := check.Allowed(e.Addr()); err != nil {
			return nil, fmt.Errorf("--to %q: must be an address that means the same on every machine: no loopback, link-local or group address", text)
		}
		if slices.Contains(endpoints, e) {
			return nil, fmt.Errorf("--to %q: is there twice", text)
		}
		endpoints = append(endpoints, e)
	}
	return endpoints, nil
}

// families are those of the endpoints, in the order of their first appearance;
// nil leaves them to the server.
func families(endpoints []netip.AddrPort) []corev1.IPFamily {
	var list []corev1.IPFamily
	for _, e := range endpoints {
		family := corev1.IPv4Protocol
		if e.Addr().Is6() {
			family = corev1.IPv6Protocol
		}
		if !slices.Contains(list, family) {
			list = append(list, family)
		}
	}
	return list
}

// familyPolicy asks for both families only if there are endpoints of both.
func familyPolicy(endpoints []netip.AddrPort) *corev1.IPFamilyPolicy {
	if len(families(endpoints)) < 2 {
		return nil
	}
	policy := corev1.IPFamilyPolicyRequireDualStack
	return &policy
}

// slices are one for each family and port.
func (r Request) slices(protocol corev1.Protocol, endpoints []netip.AddrPort) []*discoveryv1.EndpointSlice {
	var list []*discoveryv1.EndpointSlice
	byName := map[string]*discoveryv1.EndpointSlice{}
	for _, e := range endpoints {
		family, suffix := discoveryv1.AddressTypeIPv4, "ipv4"
		if e.Addr().Is6() {
			family, suffix = discoveryv1.AddressTypeIPv6, "ipv6"
		}
		name := fmt.Sprintf("%s-%s-%d", r.Name, suffix, e.Port())
		s := byName[name]
		if s == nil {
			port := int32(e.Port())
			s = &discoveryv1.EndpointSlice{
				TypeMeta: metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"},
				ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: name, Labels: map[string]string{
					discoveryv1.LabelServiceName: r.Name, discoveryv1.LabelManagedBy: Manager,
				}},
				AddressType: family,
				Ports:       []discoveryv1.EndpointPort{{Port: &port, Protocol: &protocol}},
			}
			byName[name] = s
			list = append(list, s)
		}
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{e.Addr().String()}})
	}
	return list
}
