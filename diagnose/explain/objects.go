package explain

import (
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairway-net/fairway/diagnose/nearest"
	"github.com/fairway-net/fairway/model"
)

// Objects are the API objects that a report is made from. Pods may be missing
// where the user can't read them.
type Objects struct {
	Services []*corev1.Service
	Slices   []*discoveryv1.EndpointSlice
	Pods     []*corev1.Pod
	Nodes    []*corev1.Node
	NoPods   string // why Pods couldn't be read; "" if they were
	// NoOthers says why there is no Service but the one that is asked about; "" if the others
	// were read, or have no say.
	NoOthers string
	// NoSlices says why EndpointSlices couldn't be read; "" if they were. Only agents know
	// what becomes of packets then.
	NoSlices string
	NoNodes  string // why Nodes couldn't be read; "" if they were
	// NoAPI says why the API couldn't be asked; "" if it was. Services and Nodes are what
	// agents have in force then; see InForce.
	NoAPI string
	// Policies are of all namespaces.
	Policies   []*networkingv1.NetworkPolicy
	NoPolicies string // why they couldn't be read; "" if they were

	// What agents tell, where the API can't be asked: the nodes of endpoints, the tables of
	// nodes, and the endpoints of Services.
	on     map[netip.Addr]string
	tables map[string]*model.Table
	served map[string][]netip.Addr
	taking map[types.NamespacedName]map[netip.Addr]bool
}

// Service returns the Service with this name, or nil.
func (o *Objects) Service(namespace, name string) *corev1.Service {
	for _, s := range o.Services {
		if s.Namespace == namespace && s.Name == name {
			return s
		}
	}
	return nil
}

// Of returns the Service that a target is about, by its name or its address; nil
// if there is none.
func (o *Objects) Of(t Target) *corev1.Service {
	if t.Addr.IsValid() {
		return o.Owner(t.Addr)
	}
	return o.Service(t.Namespace, t.Name)
}

// SlicesOf lists the EndpointSlices of a Service.
func (o *Objects) SlicesOf(s *corev1.Service) []*discoveryv1.EndpointSlice {
	var list []*discoveryv1.EndpointSlice
	for _, slice := range o.Slices {
		if slice.Namespace == s.Namespace && slice.Labels[discoveryv1.LabelServiceName] == s.Name {
			list = append(list, slice)
		}
	}
	return list
}

// NodesOf are the nodes that hold endpoints of the target's Service.
func (o *Objects) NodesOf(t Target) map[string]bool {
	nodes := map[string]bool{}
	s := o.Of(t)
	if s == nil {
		return nodes
	}
	for _, slice := range o.SlicesOf(s) {
		for _, e := range slice.Endpoints {
			if e.NodeName != nil {
				nodes[*e.NodeName] = true
			}
		}
	}
	return nodes
}

// Pod returns the Pod with this name, or nil.
func (o *Objects) Pod(namespace, name string) *corev1.Pod {
	for _, p := range o.Pods {
		if p.Namespace == namespace && p.Name == name {
			return p
		}
	}
	return nil
}

// Owner returns the Service that says it has this address, or nil.
func (o *Objects) Owner(a netip.Addr) *corev1.Service {
	for _, s := range o.Services {
		if slices.Contains(AddressesOf(s), a) {
			return s
		}
	}
	return nil
}

// AddressesOf lists the cluster IPs, external IPs and load balancer addresses of
// a Service, in this order.
func AddressesOf(s *corev1.Service) []netip.Addr {
	var list []netip.Addr
	add := func(text string) {
		if a, err := netip.ParseAddr(text); err == nil && !slices.Contains(list, a.Unmap()) {
			list = append(list, a.Unmap())
		}
	}
	add(s.Spec.ClusterIP)
	for _, text := range s.Spec.ClusterIPs {
		add(text)
	}
	for _, text := range s.Spec.ExternalIPs {
		add(text)
	}
	for _, in := range s.Status.LoadBalancer.Ingress {
		add(in.IP)
	}
	return list
}

// Keys are the addresses and ports that a target names. For a Service they are
// its cluster IPs, and for packets from outside its outer addresses, if any.
func (t Target) Keys(s *corev1.Service, from Source) []model.Key {
	var addrs []netip.Addr
	switch {
	case t.Addr.IsValid():
		addrs = []netip.Addr{t.Addr}
	case s != nil:
		for _, a := range AddressesOf(s) {
			if inner := a.String() == s.Spec.ClusterIP || slices.Contains(s.Spec.ClusterIPs, a.String()); inner == (from.Kind != "address") {
				addrs = append(addrs, a)
			}
		}
		if len(addrs) == 0 {
			addrs = AddressesOf(s)
		}
	}
	var keys []model.Key
	for _, a := range addrs {
		for _, p := range t.ports(s) {
			keys = append(keys, model.Key{Addr: a, Port: p.port, Proto: p.proto})
		}
	}
	return keys
}

type portOf struct {
	port  uint16
	proto model.Protocol
}

// ports are the ports of the Service that a target names. A number that isn't
// among them counts too: that nothing serves it is the answer.
func (t Target) ports(s *corev1.Service) []portOf {
	var list []portOf
	if s != nil {
		for _, p := range s.Spec.Ports {
			proto := protocol(p.Protocol)
			if (t.Port == "" || t.Port == p.Name || t.Port == number(p.Port)) && (t.Proto == 0 || t.Proto == proto) {
				list = append(list, portOf{uint16(p.Port), proto})
			}
		}
	}
	if n, ok := portNumber(t.Port); ok && len(list) == 0 {
		list = append(list, portOf{n, max(t.Proto, model.TCP)})
	}
	return list
}

// protocol is the model's for the API's.
func protocol(p corev1.Protocol) model.Protocol {
	switch p {
	case corev1.ProtocolUDP:
		return model.UDP
	case corev1.ProtocolSCTP:
		return model.SCTP
	}
	return model.TCP
}

// Similar suggests the name of a Service that was probably meant: the same name
// in another namespace, or a name like it. "" if there is none.
func (o *Objects) Similar(namespace, name string) string {
	var names []string
	for _, s := range o.Services {
		switch {
		case s.Name == name:
			return s.Name + " -n " + s.Namespace
		case s.Namespace == namespace:
			names = append(names, s.Name)
		}
	}
	return nearest.Name(name, names)
}

// SelectedPods are the Pods in the Service's namespace that its selector matches.
func (o *Objects) SelectedPods(s *corev1.Service) []*corev1.Pod {
	if len(s.Spec.Selector) == 0 {
		return nil
	}
	var list []*corev1.Pod
	for _, p := range o.Pods {
		if p.Namespace == s.Namespace && matches(s.Spec.Selector, p.Labels) {
			list = append(list, p)
		}
	}
	return list
}

func matches(selector, labels map[string]string) bool {
	for k, v := range selector {
		if have, ok := labels[k]; !ok || have != v {
			return false
		}
	}
	return true
}

// NearestSelector suggests a selector that would match Pods of the Service's
// namespace, where the Service's matches none.
func (o *Objects) NearestSelector(s *corev1.Service) (nearest.Suggestion, bool) {
	var labels []map[string]string
	for _, p := range o.Pods {
		if p.Namespace == s.Namespace {
			labels = append(labels, p.Labels)
		}
	}
	return nearest.Selector(s.Spec.Selector, labels)
}

// SelectorText is a selector as kubectl writes it.
func SelectorText(selector map[string]string) string {
	list := make([]string, 0, len(selector))
	for k, v := range selector {
		list = append(list, k+"="+v)
	}
	slices.Sort(list)
	return strings.Join(list, ",")
}
