package manifest

import (
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// mirror adds slices for Endpoints whose Service has none in the set.
func (s *Set) mirror(list []*corev1.Endpoints) { //nolint:staticcheck // still read where somebody writes them
	sliced := map[string]bool{}
	for _, slice := range s.Slices {
		sliced[slice.Namespace+"/"+slice.Labels[discoveryv1.LabelServiceName]] = true
	}
	for _, e := range list {
		if sliced[e.Namespace+"/"+e.Name] {
			continue
		}
		for i, subset := range e.Subsets {
			for _, family := range []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6} {
				if slice := sliceOf(e, i, subset, family); len(slice.Endpoints) > 0 {
					s.Slices = append(s.Slices, slice)
				}
			}
		}
	}
}

//nolint:staticcheck // Endpoints are still read where somebody writes them
func sliceOf(e *corev1.Endpoints, i int, subset corev1.EndpointSubset, family discoveryv1.AddressType) *discoveryv1.EndpointSlice {
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: e.Namespace, Name: fmt.Sprintf("%s-%d-%s", e.Name, i, family),
			Labels: map[string]string{discoveryv1.LabelServiceName: e.Name},
		},
		AddressType: family,
	}
	for _, p := range subset.Ports {
		slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{Name: &p.Name, Port: &p.Port, Protocol: &p.Protocol, AppProtocol: p.AppProtocol})
	}
	add := func(addresses []corev1.EndpointAddress, ready bool) {
		for _, a := range addresses {
			ip, err := netip.ParseAddr(a.IP)
			if err != nil || ip.Is6() != (family == discoveryv1.AddressTypeIPv6) {
				continue
			}
			slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
				Addresses: []string{a.IP}, NodeName: a.NodeName, TargetRef: a.TargetRef,
				Conditions: discoveryv1.EndpointConditions{Ready: &ready},
			})
		}
	}
	add(subset.Addresses, true)
	add(subset.NotReadyAddresses, false)
	return slice
}
