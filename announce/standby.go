package announce

import (
	"net/netip"
	"slices"
)

// StandBy says where the node is to listen on layer 2 for addresses that it may announce
// later: the first address of each range of a pool stands for all of them, and the unspecified
// ones for external IPs.
func StandBy(c *Config, node Node) map[netip.Addr]Announcement {
	list := map[netip.Addr]Announcement{}
	if node.Unfit != "" {
		return list
	}
	for i := range c.pools {
		p := &c.pools[i]
		a, ok := c.standsBy(p, node)
		for _, r := range p.ranges {
			if ok {
				list[r.From] = a
			}
		}
	}
	if a, ok := c.standsBy(&allExternalIPs, node); ok {
		list[netip.IPv4Unspecified()], list[netip.IPv6Unspecified()] = a, a
	}
	return list
}

// standsBy says by which interfaces the node may announce addresses of a pool, whatever the
// Services.
func (c *Config) standsBy(p *pool, node Node) (a Announcement, ok bool) {
	a.Pool = p.name
	everywhere := false
	for _, ad := range c.l2 {
		if ad.isFor(p) && selects(ad.nodes, node.Labels) {
			ok, everywhere = true, everywhere || len(ad.interfaces) == 0
			a.Interfaces = append(a.Interfaces, ad.interfaces...)
		}
	}
	if everywhere {
		a.Interfaces = nil
	}
	slices.Sort(a.Interfaces)
	a.Interfaces = slices.Compact(a.Interfaces)
	return a, ok
}
