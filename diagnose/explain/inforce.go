package explain

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairway-net/fairway/compile"
	"github.com/fairway-net/fairway/model"
)

// InForce are the objects that can be told from the tables that agents of nodes, by
// their names, have in force, for an API that can't be asked. why says why it can't be.
// served are the addresses of Services at which a server on a node itself answers, by the
// nodes' names: such a server is an endpoint that takes connections, though not in a table.
// Of Services, it is their addresses and ports; of endpoints, the nodes that they are on.
// What the endpoints are is for the agents to say.
func InForce(tables map[string]*model.Table, served map[string][]netip.Addr, why string) *Objects {
	const unread = "the API can't be asked"
	o := &Objects{NoAPI: why, NoSlices: unread, NoPods: unread, NoOthers: unread, NoPolicies: unread, on: map[netip.Addr]string{}, tables: tables, served: served, taking: map[types.NamespacedName]map[netip.Addr]bool{}}
	services := map[types.NamespacedName]*corev1.Service{}
	for _, node := range slices.Sorted(maps.Keys(tables)) {
		table := tables[node]
		o.Nodes = append(o.Nodes, nodeInForce(node, table))
		for f := range table.Frontends() {
			name := compile.ServiceOf(f.Name)
			s := services[name]
			if s == nil {
				s = &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}}
				services[name] = s
			}
			addFrontend(s, f)
			if slices.Contains(served[node], f.Addr) {
				o.takes(name, f.Addr)
			}
		}
		for p := range table.Pools() {
			of := compile.ServiceOf(p.ID.Name)
			for _, b := range p.Backends {
				o.takes(of, b.Addr)
				if b.Local {
					o.on[b.Addr] = node
				}
			}
		}
	}
	for _, s := range services {
		settle(s)
		o.Services = append(o.Services, s)
	}
	slices.SortFunc(o.Services, func(a, b *corev1.Service) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	return o
}

// AddTables adds the tables that agents of nodes had in force, and the addresses at which servers
// on nodes themselves answer: see [InForce]. What they say otherwise than the API is noted.
func (o *Objects) AddTables(tables map[string]*model.Table, served map[string][]netip.Addr) {
	o.tables, o.served = tables, served
}

// takes records a backend that takes connections to a Service.
func (o *Objects) takes(service types.NamespacedName, addr netip.Addr) {
	if o.taking[service] == nil {
		o.taking[service] = map[netip.Addr]bool{}
	}
	o.taking[service][addr] = true
}

func nodeInForce(name string, table *model.Table) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, a := range table.Settings.NodeAddrs {
		if !a.IsLoopback() && !a.IsLinkLocalUnicast() {
			n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a.String()})
		}
	}
	return n
}

// addFrontend adds what a frontend says of its Service.
func addFrontend(s *corev1.Service, f *model.Frontend) {
	_, port, _ := strings.Cut(f.Name, ":")
	proto := corev1.Protocol(strings.ToUpper(f.Proto.String()))
	addr := f.Addr.String()
	add := func(list *[]string) {
		if !slices.Contains(*list, addr) {
			*list = append(*list, addr)
		}
	}
	i := slices.IndexFunc(s.Spec.Ports, func(p corev1.ServicePort) bool { return p.Name == port && p.Protocol == proto })
	if i < 0 {
		i = len(s.Spec.Ports)
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: port, Protocol: proto})
	}
	if f.FrontendType == model.NodePort {
		s.Spec.Ports[i].NodePort = int32(f.Port)
		return
	}
	s.Spec.Ports[i].Port = int32(f.Port)
	switch f.FrontendType {
	case model.ClusterIP:
		add(&s.Spec.ClusterIPs)
	case model.ExternalIP:
		add(&s.Spec.ExternalIPs)
	default:
		if !slices.ContainsFunc(s.Status.LoadBalancer.Ingress, func(in corev1.LoadBalancerIngress) bool { return in.IP == addr }) {
			s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: addr})
		}
	}
}

// settle puts what a Service has in order. Tables don't tell which cluster IP is the first.
func settle(s *corev1.Service) {
	byFamily := func(a, b string) int {
		x, _ := netip.ParseAddr(a)
		y, _ := netip.ParseAddr(b)
		return x.Compare(y)
	}
	slices.SortFunc(s.Spec.ClusterIPs, byFamily)
	slices.SortFunc(s.Spec.ExternalIPs, byFamily)
	slices.SortFunc(s.Status.LoadBalancer.Ingress, func(a, b corev1.LoadBalancerIngress) int { return byFamily(a.IP, b.IP) })
	slices.SortFunc(s.Spec.Ports, func(a, b corev1.ServicePort) int {
		return cmp.Or(cmp.Compare(a.Port, b.Port), cmp.Compare(a.Protocol, b.Protocol))
	})
	if len(s.Spec.ClusterIPs) > 0 {
		s.Spec.ClusterIP = s.Spec.ClusterIPs[0]
	}
}

// TakingInForce is how many endpoints of a Service take connections, by what agents have in
// force; 0 of objects that the API has told.
func (o *Objects) TakingInForce(service types.NamespacedName) int { return len(o.taking[service]) }

// inTable is a node's view by the table that its agent had in force when it was read: without
// reasons why endpoints aren't used. False if none was read.
func (o *Objects) inTable(node string, keys []model.Key, from Source) (View, bool) {
	table, v := o.tables[node], View{Node: node}
	if table == nil {
		return v, false
	}
	v.Served = ServedAt(keys, o.served[node])
	for _, q := range Questions(table, keys, from, node) {
		v.Decisions = append(v.Decisions, Decide(nil, table, Plane{}, q))
	}
	return v, true
}

// noteTable notes what the table that a node had in force says otherwise than the API's objects.
func (r *Report) noteTable(o *Objects, api View, keys []model.Key, from Source) {
	had, read := o.inTable(api.Node, keys, from)
	if !read {
		return
	}
	for _, d := range differences(api, had) {
		r.Notes = append(r.Notes, fmt.Sprintf("what %s had in force differs from the API: %s", api.Node, d))
	}
}

// endpointsInForce gives the endpoints that agents named the nodes that they are on.
func (r *Report) endpointsInForce(o *Objects) {
	seen := map[netip.Addr]bool{}
	for _, v := range r.Views {
		for _, d := range v.Decisions {
			for _, c := range d.Candidates {
				if !seen[c.Addr] {
					seen[c.Addr] = true
					r.Endpoints = append(r.Endpoints, Endpoint{Addr: c.Addr, Slice: c.Slice, Node: o.on[c.Addr]})
				}
			}
		}
	}
	slices.SortStableFunc(r.Endpoints, func(a, b Endpoint) int { return a.Addr.Compare(b.Addr) })
}

// asSeen is a node's view where only its agent can give one; false if it doesn't.
func (r *Report) asSeen(ask Asker, node string, keys []model.Key, from Source) (View, bool) {
	if ask == nil {
		return View{}, false
	}
	v, err := ask(node, keys, from)
	switch {
	case errors.Is(err, ErrSaid):
	case err != nil:
		r.NotChecked = append(r.NotChecked, fmt.Sprintf("agent of %s: %v", orElse(node, "any node"), err))
	case len(v.Decisions) == 0:
		r.NotChecked = append(r.NotChecked, fmt.Sprintf("agent of %s: it has nothing in force yet", node))
	}
	return v, err == nil && len(v.Decisions) > 0
}
