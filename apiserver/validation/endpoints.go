package validation

import (
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Cluster is what endpoints are checked against.
type Cluster struct {
	// ServiceCIDRs are where cluster IPs come from. An endpoint in there
	// would send traffic round in circles.
	ServiceCIDRs func() []netip.Prefix
	loopback     bool
}

// APIService is the Service, in the default namespace, of the API server. On
// a machine alone its endpoint may be a loopback address: that is where the
// server listens, and nothing but this machine is meant to reach it.
const APIService = "kubernetes"

// of returns the rules for the endpoints of one object.
func (c Cluster) of(o metav1.Object) Cluster {
	c.loopback = o.GetNamespace() == metav1.NamespaceDefault &&
		(o.GetName() == APIService || o.GetLabels()[discoveryv1.LabelServiceName] == APIService)
	return c
}

// endpointIP requires an address to which traffic can be sent.
func (c Cluster) endpointIP(path *field.Path, value string) field.ErrorList {
	if addr, bad := ip(path, value); c.loopback && len(bad) == 0 && addr.IsLoopback() {
		return nil
	}
	if errs := ordinaryIP(path, value); len(errs) > 0 {
		return errs
	}
	addr, errs := ip(path, value)
	for _, cidr := range c.ServiceCIDRs() {
		if cidr.Contains(addr) {
			errs = append(errs, field.Invalid(path, value, fmt.Sprintf("may not be in the cluster IP range (%s)", cidr)))
		}
	}
	return errs
}

// Endpoints validates Endpoints.
func (c Cluster) Endpoints(e *corev1.Endpoints) field.ErrorList {
	errs := metadata(e, true, apivalidation.NameIsDNSSubdomain)
	c = c.of(e)
	for i := range e.Subsets {
		path := field.NewPath("subsets").Index(i)
		s := &e.Subsets[i]
		if len(s.Addresses) == 0 && len(s.NotReadyAddresses) == 0 {
			errs = append(errs, field.Required(path, "must specify `addresses` or `notReadyAddresses`"))
		}
		for j := range s.Addresses {
			errs = append(errs, c.endpointAddress(path.Child("addresses").Index(j), &s.Addresses[j])...)
		}
		for j := range s.NotReadyAddresses {
			errs = append(errs, c.endpointAddress(path.Child("notReadyAddresses").Index(j), &s.NotReadyAddresses[j])...)
		}
		for j := range s.Ports {
			errs = append(errs, endpointPort(path.Child("ports").Index(j), &s.Ports[j], len(s.Ports) > 1)...)
		}
	}
	return errs
}

func (c Cluster) endpointAddress(path *field.Path, a *corev1.EndpointAddress) field.ErrorList {
	errs := c.endpointIP(path.Child("ip"), a.IP)
	if a.Hostname != "" {
		errs = append(errs, dnsLabel(path.Child("hostname"), a.Hostname)...)
	}
	if a.NodeName != nil {
		errs = append(errs, dnsSubdomain(path.Child("nodeName"), *a.NodeName)...)
	}
	return errs
}

func endpointPort(path *field.Path, p *corev1.EndpointPort, needsName bool) field.ErrorList {
	var errs field.ErrorList
	if p.Name != "" {
		errs = append(errs, dnsLabel(path.Child("name"), p.Name)...)
	} else if needsName {
		errs = append(errs, field.Required(path.Child("name"), ""))
	}
	errs = append(errs, portNumber(path.Child("port"), p.Port)...)
	errs = append(errs, oneOf(path.Child("protocol"), p.Protocol, corev1.ProtocolSCTP, corev1.ProtocolTCP, corev1.ProtocolUDP)...)
	if p.AppProtocol != nil {
		errs = append(errs, qualifiedName(path.Child("appProtocol"), *p.AppProtocol)...)
	}
	return errs
}

// The limits of an EndpointSlice (KEP-752).
const (
	maxEndpoints         = 1000
	maxEndpointAddresses = 100
	maxEndpointPorts     = 20000
	maxHints             = 8
)

// EndpointSlice validates an EndpointSlice.
func (c Cluster) EndpointSlice(e *discoveryv1.EndpointSlice) field.ErrorList {
	errs := metadata(e, true, apivalidation.NameIsDNSSubdomain)
	c = c.of(e)
	errs = append(errs, oneOf(field.NewPath("addressType"), e.AddressType,
		discoveryv1.AddressTypeFQDN, discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6)...)
	path := field.NewPath("endpoints")
	if len(e.Endpoints) > maxEndpoints {
		return append(errs, field.TooMany(path, len(e.Endpoints), maxEndpoints))
	}
	for i := range e.Endpoints {
		errs = append(errs, c.endpoint(path.Index(i), &e.Endpoints[i], e.AddressType)...)
	}
	return append(errs, slicePorts(field.NewPath("ports"), e.Ports)...)
}

func (c Cluster) endpoint(path *field.Path, ep *discoveryv1.Endpoint, family discoveryv1.AddressType) field.ErrorList {
	var errs field.ErrorList
	addresses := path.Child("addresses")
	switch {
	case len(ep.Addresses) == 0:
		errs = append(errs, field.Required(addresses, "must contain at least 1 address"))
	case len(ep.Addresses) > maxEndpointAddresses:
		errs = append(errs, field.TooMany(addresses, len(ep.Addresses), maxEndpointAddresses))
	}
	for i, a := range ep.Addresses {
		errs = append(errs, c.sliceAddress(addresses.Index(i), a, family)...)
	}
	if ep.Hostname != nil {
		errs = append(errs, dnsLabel(path.Child("hostname"), *ep.Hostname)...)
	}
	if ep.NodeName != nil {
		errs = append(errs, dnsSubdomain(path.Child("nodeName"), *ep.NodeName)...)
	}
	if len(ep.DeprecatedTopology) > 0 {
		errs = append(errs, field.Forbidden(path.Child("deprecatedTopology"), "may not be set; use `nodeName` and `zone`"))
	}
	if ep.Hints != nil {
		errs = append(errs, hints(path.Child("hints"), ep.Hints)...)
	}
	return errs
}

func (c Cluster) sliceAddress(path *field.Path, value string, family discoveryv1.AddressType) field.ErrorList {
	if family == discoveryv1.AddressTypeFQDN {
		return dnsSubdomain(path, value)
	}
	errs := c.endpointIP(path, value)
	if addr, bad := ip(path, value); len(bad) == 0 && addr.Is4() != (family == discoveryv1.AddressTypeIPv4) {
		errs = append(errs, field.Invalid(path, value, fmt.Sprintf("must be an %s address", family)))
	}
	return errs
}

func hints(path *field.Path, h *discoveryv1.EndpointHints) field.ErrorList {
	var errs field.ErrorList
	if len(h.ForZones) > maxHints {
		errs = append(errs, field.TooMany(path.Child("forZones"), len(h.ForZones), maxHints))
	}
	var seen []string
	for i, z := range h.ForZones {
		name := path.Child("forZones").Index(i).Child("name")
		if slices.Contains(seen, z.Name) {
			errs = append(errs, field.Duplicate(name, z.Name))
		}
		seen = append(seen, z.Name)
		errs = append(errs, invalid(name, z.Name, isLabelValue(z.Name))...)
	}
	if len(h.ForNodes) > maxHints {
		errs = append(errs, field.TooMany(path.Child("forNodes"), len(h.ForNodes), maxHints))
	}
	for i, n := range h.ForNodes {
		errs = append(errs, dnsSubdomain(path.Child("forNodes").Index(i).Child("name"), n.Name)...)
	}
	return errs
}

func slicePorts(path *field.Path, ports []discoveryv1.EndpointPort) field.ErrorList {
	if len(ports) > maxEndpointPorts {
		return field.ErrorList{field.TooMany(path, len(ports), maxEndpointPorts)}
	}
	var errs field.ErrorList
	seen := map[string]bool{}
	for i, p := range ports {
		at := path.Index(i)
		name := ""
		if p.Name != nil {
			name = *p.Name
		}
		if name != "" {
			errs = append(errs, dnsLabel(at.Child("name"), name)...)
		}
		if seen[name] {
			errs = append(errs, field.Duplicate(at.Child("name"), name))
		}
		seen[name] = true
		if p.Protocol == nil {
			errs = append(errs, field.Required(at.Child("protocol"), ""))
		} else {
			errs = append(errs, oneOf(at.Child("protocol"), *p.Protocol, corev1.ProtocolSCTP, corev1.ProtocolTCP, corev1.ProtocolUDP)...)
		}
		if p.Port != nil {
			errs = append(errs, portNumber(at.Child("port"), *p.Port)...)
		}
		if p.AppProtocol != nil {
			errs = append(errs, qualifiedName(at.Child("appProtocol"), *p.AppProtocol)...)
		}
	}
	return errs
}

// EndpointSliceUpdate validates a changed EndpointSlice.
func EndpointSliceUpdate(e, old *discoveryv1.EndpointSlice) field.ErrorList {
	return immutable(field.NewPath("addressType"), e.AddressType, old.AddressType)
}
