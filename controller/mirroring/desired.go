package mirroring

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	endpointsliceutil "k8s.io/endpointslice/util"
	utilnet "k8s.io/utils/net"

	"github.com/fairway-net/fairway/controller/endpoints"
)

// maxAddresses is how many addresses of one subset are mirrored, as in Kubernetes.
const maxAddresses = 1000

// content is what tells slices apart: each has one set of ports and one family.
type content struct {
	family discoveryv1.AddressType
	ports  endpointsliceutil.PortMapKey
}

func contentOf(slice *discoveryv1.EndpointSlice) content {
	// The key sorts what it is given, which may belong to the cache.
	ports := append([]discoveryv1.EndpointPort(nil), slice.Ports...)
	return content{slice.AddressType, endpointsliceutil.NewPortMapKey(ports)}
}

// desired returns the slices that mirror e, without names. Repacked subsets
// differ in their ports, so each yields at most one slice of a family.
func desired(e *corev1.Endpoints) map[content]*discoveryv1.EndpointSlice {
	wanted := map[content]*discoveryv1.EndpointSlice{}
	for _, subset := range endpoints.Repack(e.Subsets) {
		byFamily := map[discoveryv1.AddressType][]discoveryv1.Endpoint{}
		left := maxAddresses
		left = mirror(byFamily, subset.Addresses, true, left)
		mirror(byFamily, subset.NotReadyAddresses, false, left)
		for family, mirrored := range byFamily {
			slice := newSlice(e, family, subset.Ports)
			slice.Endpoints = mirrored
			wanted[contentOf(slice)] = slice
		}
	}
	return wanted
}

// mirror adds the first of the addresses, at most limit, to the endpoints of
// their family, and returns what is left of the limit.
func mirror(to map[discoveryv1.AddressType][]discoveryv1.Endpoint, addresses []corev1.EndpointAddress, ready bool, limit int) int {
	for _, a := range addresses {
		if limit == 0 {
			break
		}
		ip := utilnet.ParseIPSloppy(a.IP)
		if ip == nil {
			continue
		}
		family := discoveryv1.AddressTypeIPv4
		if utilnet.IsIPv6(ip) {
			family = discoveryv1.AddressTypeIPv6
		}
		to[family] = append(to[family], endpoint(a, ip.String(), ready))
		limit--
	}
	return limit
}

func endpoint(a corev1.EndpointAddress, ip string, ready bool) discoveryv1.Endpoint {
	mirrored := discoveryv1.Endpoint{
		Addresses:  []string{ip},
		Conditions: discoveryv1.EndpointConditions{Ready: &ready},
		TargetRef:  a.TargetRef,
		NodeName:   a.NodeName,
	}
	if a.Hostname != "" {
		mirrored.Hostname = &a.Hostname
	}
	return mirrored
}

func newSlice(e *corev1.Endpoints, family discoveryv1.AddressType, ports []corev1.EndpointPort) *discoveryv1.EndpointSlice {
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       e.Namespace,
			GenerateName:    namePrefix(e.Name),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(e, corev1.SchemeGroupVersion.WithKind("Endpoints"))},
		},
		AddressType: family,
	}
	dress(slice, e)
	for _, p := range ports {
		slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{
			Name: &p.Name, Port: &p.Port, Protocol: &p.Protocol, AppProtocol: p.AppProtocol,
		})
	}
	return slice
}

// dress gives the slice the labels and annotations that e has.
func dress(slice *discoveryv1.EndpointSlice, e *corev1.Endpoints) {
	slice.Labels = maps.Clone(e.Labels)
	if slice.Labels == nil {
		slice.Labels = map[string]string{}
	}
	slice.Labels[discoveryv1.LabelServiceName] = e.Name
	slice.Labels[discoveryv1.LabelManagedBy] = Name
	slice.Annotations = maps.Clone(e.Annotations)
	// These two speak of the Endpoints themselves.
	delete(slice.Annotations, corev1.EndpointsLastChangeTriggerTime)
	delete(slice.Annotations, corev1.LastAppliedConfigAnnotation)
}

// namePrefix ends in a dash if the name leaves room for it.
func namePrefix(name string) string {
	if prefix := name + "-"; len(validation.NameIsDNSSubdomain(prefix, true)) == 0 {
		return prefix
	}
	return name
}
