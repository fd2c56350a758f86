package publish

import (
	"fmt"
	"hash/fnv"
	"net/netip"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/fairway-net/fairway/endpoint/check"
)

// Manager is what the label endpointslice.kubernetes.io/managed-by says of the
// slices made here.
const Manager = "publish.fairway.dev"

// annotationWeight is the weight of a slice's endpoints, as data planes read it.
const annotationWeight = "fairway.dev/weight"

// machine is what endpoints are published of.
type machine struct {
	name      string
	uid       types.UID
	zone      string
	addresses []netip.Addr
}

// endpoint is an entry's endpoint of one address, as it is to be published.
type endpoint struct {
	entry    *Entry
	portName string
	addr     netip.Addr
	verdict  check.Verdict
}

// sliceName is the same whenever the same process is published. It has the
// names of Service and machine in front for people, and a hash that tells it from others.
func sliceName(node string, service types.NamespacedName, e *Entry, addr netip.Addr) string {
	h := fnv.New64a()
	fmt.Fprint(h, node, "/", service, "/", e.PortName, e.Port, e.Protocol, addr)
	suffix := "-" + strconv.FormatUint(h.Sum64(), 36)
	name := service.Name + "-" + node
	if most := validation.DNS1123SubdomainMaxLength - len(suffix); len(name) > most {
		name = name[:most]
	}
	return name + suffix
}

// slice is the EndpointSlice of one endpoint. It goes with the Node.
func (m *machine) slice(e *endpoint) *discoveryv1.EndpointSlice {
	family, port := discoveryv1.AddressTypeIPv4, int32(e.entry.Port)
	if e.addr.Is6() {
		family = discoveryv1.AddressTypeIPv6
	}
	ready := e.verdict.Health == check.Healthy
	service := e.entry.Service
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: service.Namespace, Name: sliceName(m.name, service, e.entry, e.addr),
			Labels: map[string]string{
				discoveryv1.LabelServiceName: service.Name, discoveryv1.LabelManagedBy: Manager, check.NodeLabel: m.name,
			},
			Annotations: map[string]string{},
		},
		AddressType: family,
		Ports:       []discoveryv1.EndpointPort{{Name: &e.portName, Port: &port, Protocol: &e.entry.Protocol}},
		Endpoints: []discoveryv1.Endpoint{{
			Addresses: []string{e.addr.String()}, NodeName: &m.name,
			Conditions: discoveryv1.EndpointConditions{Ready: &ready, Serving: &ready, Terminating: new(bool)},
		}},
	}
	if m.uid != "" {
		s.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: m.name, UID: m.uid}}
	}
	if e.entry.Weight >= 0 {
		s.Annotations[annotationWeight] = strconv.Itoa(e.entry.Weight)
	}
	if !ready {
		s.Annotations[check.AnnotationReason] = e.verdict.Reason
	}
	zone := e.entry.Zone
	if zone == "" {
		zone = m.zone
	}
	if zone != "" {
		s.Endpoints[0].Zone = &zone
	}
	return s
}

// same reports whether a slice says what is wanted.
func same(have, want *discoveryv1.EndpointSlice) bool {
	return equality.Semantic.DeepEqual(have.Endpoints, want.Endpoints) && equality.Semantic.DeepEqual(have.Ports, want.Ports) &&
		equality.Semantic.DeepEqual(have.Labels, want.Labels) && equality.Semantic.DeepEqual(have.Annotations, want.Annotations) &&
		equality.Semantic.DeepEqual(have.OwnerReferences, want.OwnerReferences)
}

// was is the health that a slice says its endpoint had.
func was(s *discoveryv1.EndpointSlice) check.Health {
	if s == nil || len(s.Endpoints) == 0 || s.Endpoints[0].Conditions.Ready == nil {
		return check.Unknown
	}
	if *s.Endpoints[0].Conditions.Ready {
		return check.Healthy
	}
	if s.Annotations[check.AnnotationReason] != "" {
		return check.Unhealthy
	}
	return check.Unknown // somebody else found it not ready: the machine was silent, say
}

// drained returns the slice of an endpoint that gets no new connections and goes
// on answering those it has.
func drained(s *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	s = s.DeepCopy()
	for i := range s.Endpoints {
		c := &s.Endpoints[i].Conditions
		no, yes, serving := false, true, c.Ready == nil || *c.Ready || c.Serving != nil && *c.Serving
		c.Ready, c.Serving, c.Terminating = &no, &serving, &yes
	}
	return s
}

// isDraining reports whether the endpoint of a slice is on its way out.
func isDraining(s *discoveryv1.EndpointSlice) bool {
	return len(s.Endpoints) > 0 && s.Endpoints[0].Conditions.Terminating != nil && *s.Endpoints[0].Conditions.Terminating
}

// hasConnections reports whether the endpoint of a slice may have any.
func hasConnections(s *discoveryv1.EndpointSlice) bool {
	if len(s.Endpoints) == 0 {
		return false
	}
	c := s.Endpoints[0].Conditions
	return c.Ready == nil || *c.Ready || c.Serving != nil && *c.Serving
}

// defaultCheck is what is asked where nobody says: whether TCP connections are
// accepted. Of other protocols that can't be told.
func defaultCheck(p corev1.Protocol) *check.Spec {
	if p != corev1.ProtocolTCP {
		return nil
	}
	s, err := check.Parse(string(check.TCP))
	if err != nil {
		panic("check tcp: " + err.Error())
	}
	return &s
}
