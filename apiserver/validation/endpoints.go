package validation

import (
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/fairway-net/fairway/apiserver/upstream"
)

// Cluster is what endpoints are checked against.
type Cluster struct {
	// ServiceCIDRs are where cluster IPs come from. An endpoint in there
	// would send traffic round in circles.
	ServiceCIDRs func() []netip.Prefix
}

// APIService is the Service, in the default namespace, of the API server. On
// a machine alone its endpoint may be a loopback address: that is where the
// server listens, and nothing but this machine is meant to reach it.
const APIService = "kubernetes"

func isAPIService(o metav1.Object) bool {
	return o.GetNamespace() == metav1.NamespaceDefault &&
		(o.GetName() == APIService || o.GetLabels()[discoveryv1.LabelServiceName] == APIService)
}

// Endpoints validates Endpoints; old is nil for new ones.
func (c Cluster) Endpoints(e, old *corev1.Endpoints) field.ErrorList {
	var errs field.ErrorList
	if old == nil {
		errs = upstream.Endpoints(e)
	} else {
		errs = upstream.EndpointsUpdate(e, old)
	}
	errs = exceptLoopback(e, errs)
	for i := range e.Subsets {
		path := field.NewPath("subsets").Index(i)
		for name, addresses := range map[string][]corev1.EndpointAddress{"addresses": e.Subsets[i].Addresses, "notReadyAddresses": e.Subsets[i].NotReadyAddresses} {
			for j := range addresses {
				errs = append(errs, c.address(path.Child(name).Index(j).Child("ip"), addresses[j].IP)...)
			}
		}
	}
	return errs
}

// EndpointSlice validates an EndpointSlice; old is nil for a new one.
func (c Cluster) EndpointSlice(e, old *discoveryv1.EndpointSlice) field.ErrorList {
	var errs field.ErrorList
	if old == nil {
		errs = upstream.EndpointSlice(e)
	} else {
		errs = upstream.EndpointSliceUpdate(e, old)
	}
	errs = exceptLoopback(e, errs)
	for i := range e.Endpoints {
		for j, address := range e.Endpoints[i].Addresses {
			errs = append(errs, c.address(field.NewPath("endpoints").Index(i).Child("addresses").Index(j), address)...)
		}
	}
	for i, p := range e.Ports {
		// Kubernetes takes any number here, and nothing can connect to it.
		if p.Port != nil && (*p.Port < 1 || *p.Port > 65535) {
			errs = append(errs, field.Invalid(field.NewPath("ports").Index(i).Child("port"), *p.Port, "must be between 1 and 65535, inclusive"))
		}
	}
	return errs
}

// exceptLoopback takes off the refusals of loopback addresses that the API server's own endpoints may have.
func exceptLoopback(o metav1.Object, errs field.ErrorList) field.ErrorList {
	if !isAPIService(o) {
		return errs
	}
	return slices.DeleteFunc(errs, func(err *field.Error) bool {
		text, ok := err.BadValue.(string)
		if !ok {
			return false
		}
		addr, parseErr := netip.ParseAddr(text)
		return parseErr == nil && addr.IsLoopback() && err.Type == field.ErrorTypeInvalid
	})
}

// address refuses addresses of Services as endpoints.
func (c Cluster) address(path *field.Path, value string) field.ErrorList {
	addr, err := netip.ParseAddr(value)
	if err != nil {
		return nil // a name, or Kubernetes' own rules say so
	}
	var errs field.ErrorList
	for _, cidr := range c.ServiceCIDRs() {
		if cidr.Contains(addr) {
			errs = append(errs, field.Invalid(path, value, fmt.Sprintf("may not be in the cluster IP range (%s)", cidr)))
		}
	}
	return errs
}
