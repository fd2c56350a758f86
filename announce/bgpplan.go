package announce

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/fairway-net/fairway/apis/metallb/v1beta1"
	"github.com/fairway-net/fairway/internal/iprange"
)

// Route is how a prefix is announced to a router.
type Route struct {
	LocalPref   uint32 // for routers of the own AS number
	Communities Communities
	Prepend     int // how often the own AS number is added to the path
	// Weight is this node's share of the traffic among all nodes that announce the
	// prefix, for routers that understand the link bandwidth community; 0 is none.
	Weight int
}

// Equal reports whether two routes are the same to a router.
func (r Route) Equal(o Route) bool {
	return r.LocalPref == o.LocalPref && r.Prepend == o.Prepend && r.Weight == o.Weight && compareCommunities(r.Communities, o.Communities) == 0
}

// BGPAnnouncement says to whom an address is announced.
type BGPAnnouncement struct {
	Services []string
	Pool     string
	Peers    []string // by name, sorted
	Prefixes []netip.Prefix
}

// bgpAdvertisement is a BGPAdvertisement.
type bgpAdvertisement struct {
	scope
	peers       []string // by name; nil is all
	length      [2]int   // of what is announced, IPv4 and IPv6
	localPref   uint32
	communities Communities
}

func (a *bgpAdvertisement) prefix(address netip.Addr) netip.Prefix {
	length := a.length[0]
	if address.Is6() {
		length = a.length[1]
	}
	p, err := address.Prefix(length)
	if err != nil { // the lengths have been checked
		return netip.PrefixFrom(address, address.BitLen())
	}
	return p
}

// bgp reads a BGPAdvertisement. ok is false if it must not be used: without a
// community that it asks for, routes might go where they must not.
func (r *reader) bgp(a *v1beta1.BGPAdvertisement, o Objects, aliases map[string]Communities) (read bgpAdvertisement, ok bool) {
	object, s := "BGPAdvertisement "+a.Name, &a.Spec
	w, ok := r.what(object, a.Annotations, ofPools|externalIPs|clusterIPs|serviceRanges|podRanges)
	read = bgpAdvertisement{peers: s.Peers, length: [2]int{32, 128}, localPref: s.LocalPref, scope: scope{
		name: a.Name, what: w, pools: s.IPAddressPools,
		poolSelectors: r.selectors(object, "ipAddressPoolSelectors", s.IPAddressPoolSelectors),
		nodes:         r.selectors(object, "nodeSelectors", s.NodeSelectors),
		services:      r.selectors(object, "serviceSelectors", s.ServiceSelectors),
	}}
	r.knowsPools(object, s.IPAddressPools, o.Pools)
	for _, name := range s.Peers {
		if o.BGPPeers[name] == nil {
			r.problem(object, fmt.Sprintf("spec.peers: there is no BGPPeer %s", name))
		}
	}
	fault := func(text string) {
		r.problem(object, text)
		ok = false
	}
	for i, given := range []*int32{s.AggregationLength, s.AggregationLengthV6} {
		field, most := "aggregationLength", 32
		if i == 1 {
			field, most = "aggregationLengthV6", 128
		}
		if given == nil {
			continue
		}
		if *given < 1 || int(*given) > most {
			fault(fmt.Sprintf("spec.%s: %d: must be from 1 to %d", field, *given, most))
			continue
		}
		read.length[i] = int(*given)
		if int(*given) < most && len(s.ServiceSelectors) > 0 {
			fault(fmt.Sprintf("spec.%s: can't be given together with spec.serviceSelectors: the prefix holds other Services' addresses", field))
		}
	}
	list, err := communities(s.Communities, aliases)
	if err != nil {
		fault("spec.communities" + err.Error())
	}
	read.communities = list
	return read, ok
}

// covers reports whether a pool has all addresses of a prefix.
func (p *pool) covers(prefix netip.Prefix) bool {
	whole := iprange.FromPrefix(prefix)
	return len(iprange.Without([]iprange.Range{whole}, p.ranges)) == 0
}

// peersOf are the peers that a node holds sessions with. Of two that are one router, which
// would end one of the sessions again and again, the first by name counts.
func (c *Config) peersOf(node Node) (list []Peer, faults []string) {
	for _, p := range c.peers {
		if !selects(p.nodes, node.Labels) {
			continue
		}
		if i := slices.IndexFunc(list, p.isSameRouter); i >= 0 {
			faults = append(faults, fmt.Sprintf("BGPPeer %s: is the router of BGPPeer %s, with which this node holds a session already", p.Name, list[i].Name))
			continue
		}
		list = append(list, p.Peer)
	}
	return list, faults
}

// isSameRouter reports whether a router could not tell the sessions of two peers apart.
func (p *Peer) isSameRouter(o Peer) bool {
	return p.Address == o.Address && p.Interface == o.Interface && p.VRF == o.VRF && p.Port == o.Port && p.Source == o.Source
}

// carries reports whether a session with the peer carries routes to an address.
func (p *Peer) carries(a netip.Addr) bool {
	return p.BothFamilies || p.Interface != "" || p.Address.Is4() == a.Is4()
}

// decideBGP adds an address to the plan's routes, or says why this node doesn't
// do what a BGPAdvertisement asks for.
func (c *Config) decideBGP(plan *Plan, node Node, address netip.Addr, in *pool, served Served, serviceOf func(string) Service) (ok bool, whyNot string) {
	var why []string
	announced := BGPAnnouncement{Services: served.Ready, Pool: in.name}
	wish := wishes{}
	asked := false
	for i := range c.bgp {
		ad := &c.bgp[i]
		matches := func(service string) bool { return selects(ad.services, serviceOf(service).Labels) }
		if !ad.isFor(in) || !slices.ContainsFunc(served.Ready, matches) {
			continue
		}
		prefix := ad.prefix(address)
		if in.what != ofPools {
			prefix = netip.PrefixFrom(address, address.BitLen())
		}
		switch {
		case !selects(ad.nodes, node.Labels):
			why = append(why, fmt.Sprintf("the nodeSelectors of BGPAdvertisement %s don't select this node", ad.name))
			continue
		case !prefix.IsSingleIP() && !in.covers(prefix):
			why = append(why, fmt.Sprintf("BGPAdvertisement %s would announce %s, which pool %s does not have as a whole", ad.name, prefix, in.name))
			continue
		}
		if !asked {
			asked = true
			wish = c.wishesOfAll(served.Ready, serviceOf, plan.Problems)
		}
		route := Route{LocalPref: ad.localPref, Communities: ad.communities.and(wish.communities), Prepend: wish.prepend}
		if prefix.IsSingleIP() {
			route.Weight = served.Local
		}
		before := len(announced.Peers)
		for j := range plan.Peers {
			p := &plan.Peers[j]
			if (len(ad.peers) == 0 || slices.Contains(ad.peers, p.Name)) && p.carries(address) {
				plan.route(p.Name, prefix, route)
				announced.Peers = append(announced.Peers, p.Name)
				if !slices.Contains(announced.Prefixes, prefix) {
					announced.Prefixes = append(announced.Prefixes, prefix)
				}
			}
		}
		if before == len(announced.Peers) {
			why = append(why, fmt.Sprintf("BGPAdvertisement %s: no BGPPeer of this node carries %s", ad.name, family(address)))
		}
	}
	if len(announced.Peers) > 0 {
		slices.Sort(announced.Peers)
		announced.Peers = slices.Compact(announced.Peers)
		plan.BGP[address] = announced
		return true, ""
	}
	return false, strings.Join(why, "; ")
}

func family(a netip.Addr) string {
	if a.Is4() {
		return "IPv4"
	}
	return "IPv6"
}

// route adds a route. Where several advertisements are for a prefix, it has the
// communities of all, and the highest of the other values.
func (p *Plan) route(peer string, prefix netip.Prefix, r Route) {
	routes := p.Routes[peer]
	if routes == nil {
		routes = map[netip.Prefix]Route{}
		p.Routes[peer] = routes
	}
	if before, ok := routes[prefix]; ok {
		r.LocalPref = max(r.LocalPref, before.LocalPref)
		r.Prepend = max(r.Prepend, before.Prepend)
		r.Weight = max(r.Weight, before.Weight)
		r.Communities = r.Communities.and(before.Communities)
	}
	routes[prefix] = r
}

// Service is what planning asks of a Service.
type Service struct {
	Labels      labels.Set
	Annotations map[string]string
}
