package compile

import (
	"net/netip"
	"slices"

	"github.com/fairway-net/fairway/model"
)

// frontends lists the addresses and node ports that a Service claims on this
// node, sorted, each once.
func (c *Compiler) frontends(svc *service) []*model.Frontend {
	if svc.spec == nil || len(svc.spec.ports) == 0 {
		return nil
	}
	b := builder{spec: svc.spec, masqueradeAll: c.config.MasqueradeAll, direct: c.config.DirectReturn}
	if own := svc.spec.overrides.directReturn; own != nil {
		b.direct = *own
	}
	pods := c.podMatch()
	b.tells = [2]bool{tellsPods(pods, false), tellsPods(pods, true)}
	for i := range svc.spec.ports {
		p := &svc.spec.ports[i]
		for _, a := range svc.spec.clusterIPs {
			b.add(p, a, p.port, model.ClusterIP)
		}
		for _, a := range svc.spec.externalIPs {
			b.add(p, a, p.port, model.ExternalIP)
		}
		for _, a := range svc.spec.loadBalancerIPs {
			b.add(p, a, p.port, model.LoadBalancerIP)
			if n := len(b.list); n > 0 && b.list[n-1].FrontendType == model.LoadBalancerIP && b.list[n-1].Addr == a {
				b.list[n-1].Sources = c.sources(svc.spec, a)
			}
		}
		if p.nodePort == 0 {
			continue
		}
		for _, any := range []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()} {
			if svc.spec.serves(any) {
				b.add(p, any, p.nodePort, model.NodePort)
			}
		}
	}
	slices.SortStableFunc(b.list, func(x, y *model.Frontend) int {
		if d := x.Compare(y.Key); d != 0 {
			return d
		}
		return rank(x.FrontendType) - rank(y.FrontendType)
	})
	return slices.CompactFunc(b.list, func(x, y *model.Frontend) bool { return x.Key == y.Key })
}

// builder makes the frontends of one Service.
type builder struct {
	spec          *spec
	masqueradeAll bool
	direct        bool
	tells         [2]bool // whether pods can be told from others: IPv4, IPv6
	list          []*model.Frontend
}

func (b *builder) add(p *port, a netip.Addr, number uint16, entrance model.FrontendType) {
	f := &model.Frontend{Key: model.Key{Addr: a, Port: number, Proto: p.proto}, Name: p.title, FrontendType: entrance}
	cluster := model.PoolID{Name: p.title, Proto: p.proto, IPv6: a.Is6()}
	local := cluster
	local.Local = true
	switch {
	case entrance == model.ClusterIP:
		f.Routes = b.internal(cluster, local)
	case b.spec.externalLocal:
		f.Routes = externalLocal(cluster, local)
	default:
		f.Routes = everybody(model.Route{Pool: cluster, Masquerade: true})
		direct := b.returnsDirectly(f.Key)
		f.Routes[model.FromOutside].Direct = direct
		f.Routes[model.FromOutside].Stable = direct && b.spec.overrides.stable && p.proto == model.TCP
	}
	b.list = append(b.list, f)
}

// returnsDirectly reports whether clients outside get answers without this node.
// Pods don't: one of this node can't be answered in this node's own name from
// elsewhere. So it takes that they can be told.
func (b *builder) returnsDirectly(k model.Key) bool {
	family := 0
	if k.Addr.Is6() {
		family = 1
	}
	return b.direct && b.tells[family] && k.Proto != model.SCTP
}

// internal are the routes of a cluster IP. A pod's own address suits the way
// back from any endpoint; others are masqueraded, if they can be told.
func (b *builder) internal(cluster, local model.PoolID) [model.NumOrigins]model.Route {
	pool := cluster
	if b.spec.internalLocal {
		pool = local
	}
	family := 0
	if cluster.IPv6 {
		family = 1
	}
	routes := everybody(model.Route{Pool: pool, Masquerade: b.masqueradeAll || b.tells[family]})
	routes[model.FromPod].Masquerade = b.masqueradeAll
	return routes
}

// externalLocal are the routes of the other entrances under
// externalTrafficPolicy Local: outside reaches endpoints of this node only and
// keeps its source; pods and the node itself, who would not have come through
// a load balancer, reach all (as in kube-proxy since Kubernetes 1.14).
func externalLocal(cluster, local model.PoolID) [model.NumOrigins]model.Route {
	return [model.NumOrigins]model.Route{
		model.FromPod:     {Pool: cluster},
		model.FromNode:    {Pool: cluster, Masquerade: true},
		model.FromOutside: {Pool: local},
	}
}

func everybody(r model.Route) (routes [model.NumOrigins]model.Route) {
	for o := range routes {
		routes[o] = r
	}
	return routes
}

// sources are the prefixes let in at a load-balancer address. A family for
// which no range is given is open, as in kube-proxy; if none of the given ones
// could be read, nobody is let in.
func (c *Compiler) sources(s *spec, vip netip.Addr) []netip.Prefix {
	if !s.sourcesLimited {
		return nil
	}
	list := []netip.Prefix{}
	for _, r := range s.sources {
		if r.Addr().Is6() == vip.Is6() {
			list = append(list, r)
		}
	}
	if len(list) == 0 && len(s.sources) > 0 {
		return nil
	}
	// A node that has the address on an interface of its own uses it as the
	// source when it connects to it.
	letIn := func(a netip.Addr) bool { return contains(list, a.Unmap()) }
	if !contains(list, vip) && slices.ContainsFunc(c.node.Addresses, letIn) {
		own := netip.PrefixFrom(vip, vip.BitLen())
		i, _ := slices.BinarySearchFunc(list, own, netip.Prefix.Compare)
		list = slices.Insert(list, i, own)
	}
	return list
}
