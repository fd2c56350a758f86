package explain

import (
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairway-net/fairway/compile"
	"github.com/fairway-net/fairway/internal/manifest"
	"github.com/fairway-net/fairway/model"
)

// FromObjects answers a question by API objects alone: each node's table is
// compiled from them, with this configuration. Where it names no pods, the pod
// ranges of all nodes are taken. What the agents of nodes say themselves, if ask
// isn't nil, takes the place of what was compiled, and differences are noted.
func FromObjects(q Question, o *Objects, config compile.Config, ask Asker) (*Report, error) {
	service := o.Of(q.Target)
	keys := q.Target.Keys(service, q.From)
	from, err := o.Locate(q.From, len(keys) > 0 && keys[0].Addr.Is6())
	if err != nil {
		return nil, err
	}
	q.From = from
	r := newReport(q, service, o)
	if r.Answer != "" {
		return r, nil
	}
	if q.Target.Addr.IsValid() && len(keys) == 0 {
		return nil, fmt.Errorf("%q: no Service has this address; give a port too", q.Typed)
	}
	nodes, err := o.reached(q)
	if err != nil {
		return nil, err
	}
	var views []View
	for _, n := range nodes {
		if o.NoSlices != "" {
			v, ok := r.asSeen(ask, n.Name, keys, q.From)
			if ask == nil {
				v, ok = o.inTable(n.Name, keys, q.From)
			}
			if ok {
				views = append(views, v)
			}
			continue
		}
		v, problems := o.viewFrom(o.configOf(n.Name, config), n, service, keys, q.From)
		r.addProblems(problems)
		switch {
		case ask != nil:
			v = r.seen(ask, v, keys, q.From, o.NoNodes == "")
		case o.NoNodes == "":
			r.noteTable(o, v, keys, q.From)
		}
		views = append(views, v)
	}
	r.add(o, views)
	return r, nil
}

// reached are the nodes that the packet may reach.
func (o *Objects) reached(q Question) ([]compile.Node, error) {
	name := orElse(q.Node, q.From.Node)
	var list []compile.Node
	for _, n := range o.Nodes {
		if name == "" || n.Name == name {
			node := manifest.NodeOf(n)
			node.Addresses = append(node.Addresses, netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback())
			list = append(list, node)
		}
	}
	switch {
	case len(o.Nodes) == 0 || len(list) == 0 && (o.NoNodes != "" || o.NoAPI != ""):
		return []compile.Node{{Name: name}}, nil
	case len(list) == 0:
		return nil, fmt.Errorf("there is no node %q", name)
	}
	return list, nil
}

// Locate fills in the address and the node of a source by what the API says of
// the pod or node. It prefers the address family of the target.
func (o *Objects) Locate(from Source, ipv6 bool) (Source, error) {
	switch from.Kind {
	case "pod":
		p := o.Pod(from.Namespace, from.Name)
		if p == nil && o.NoPods != "" {
			return from, nil // any pod will do; the report says so
		}
		if p == nil {
			return from, fmt.Errorf("--from: there is no pod %s/%s", from.Namespace, from.Name)
		}
		from.prefer(p.Status.PodIP, ipv6)
		for _, ip := range p.Status.PodIPs {
			from.prefer(ip.IP, ipv6)
		}
		from.Node = p.Spec.NodeName
		if !from.Addr.IsValid() {
			return from, fmt.Errorf("--from: pod %s/%s has no address (phase %s)", p.Namespace, p.Name, orElse(string(p.Status.Phase), "unknown"))
		}
	case "node":
		i := slices.IndexFunc(o.Nodes, func(n *corev1.Node) bool { return n.Name == from.Name })
		if i < 0 && (o.NoNodes != "" || o.NoAPI != "") {
			from.Node = from.Name
			return from, nil
		}
		if i < 0 {
			return from, fmt.Errorf("--from: there is no node %q", from.Name)
		}
		for _, a := range o.Nodes[i].Status.Addresses {
			from.prefer(a.Address, ipv6)
		}
		from.Node = from.Name
	}
	return from, nil
}

// prefer takes an address: the first of each family, that of the wanted one before.
func (s *Source) prefer(text string, ipv6 bool) {
	a, err := netip.ParseAddr(text)
	if err != nil {
		return
	}
	switch a = a.Unmap(); {
	case !s.Addr.IsValid():
		s.Addr = a
	case s.Addr.Is6() == a.Is6():
	case a.Is6() == ipv6:
		s.Addr, s.Second = a, s.Addr
	case !s.Second.IsValid():
		s.Second = a
	}
}

// Concerned are the Services that may have a say about the keys: those with one
// of the addresses, or with one of the ports as a node port, and those that have an
// address or a node port of the Service's, to which a question needn't be.
func (o *Objects) Concerned(service *corev1.Service, keys []model.Key) []*corev1.Service {
	var list []*corev1.Service
	own, ports := []netip.Addr{}, map[int32]bool{}
	if service != nil {
		own = AddressesOf(service)
		for _, p := range service.Spec.Ports {
			ports[p.NodePort] = p.NodePort != 0
		}
	}
	for _, s := range o.Services {
		addrs := AddressesOf(s)
		shares := slices.ContainsFunc(addrs, func(a netip.Addr) bool { return slices.Contains(own, a) }) ||
			slices.ContainsFunc(s.Spec.Ports, func(p corev1.ServicePort) bool { return ports[p.NodePort] })
		concerned := s == service || shares || slices.ContainsFunc(keys, func(k model.Key) bool {
			return slices.Contains(addrs, k.Addr) ||
				slices.ContainsFunc(s.Spec.Ports, func(p corev1.ServicePort) bool { return p.NodePort == int32(k.Port) })
		})
		if concerned {
			list = append(list, s)
		}
	}
	return list
}

// configOf is the configuration of a node's agent where it isn't given: what the table shows
// that the agent had in force, or else that pods have the ranges of all nodes.
func (o *Objects) configOf(node string, config compile.Config) compile.Config {
	table, given := o.tables[node], len(config.Pods.Prefixes)+len(config.Pods.Interfaces) > 0
	switch {
	case table != nil && !given:
		config.Pods = table.Settings.Pods
	case !given:
		config.Pods.Prefixes = manifest.PodCIDRs(o.Nodes)
	}
	if table == nil {
		return config
	}
	for f := range table.Frontends() {
		config.MasqueradeAll = config.MasqueradeAll || f.FrontendType == model.ClusterIP && f.Routes[model.FromPod].Masquerade
	}
	return config
}

// viewFrom compiles what a node makes of the keys from API objects alone, as its
// agent would with this configuration.
func (o *Objects) viewFrom(config compile.Config, node compile.Node, service *corev1.Service, keys []model.Key, from Source) (View, []compile.Problem) {
	c := compile.New(config)
	c.SetNode(node)
	for _, s := range o.Concerned(service, keys) {
		c.SetService(s)
		for _, slice := range o.SlicesOf(s) {
			c.SetSlice(slice)
		}
	}
	table := c.Table()
	v := View{Node: node.Name}
	for _, q := range Questions(table, keys, from, node.Name) {
		v.Decisions = append(v.Decisions, Decide(c, table, Plane{}, q))
	}
	return v, c.Problems()
}
