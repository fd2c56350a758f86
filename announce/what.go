package announce

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// AnnotationAnnounce of an L2Advertisement or BGPAdvertisement says what it is for,
// as a list: "pools", as without it; "external-ips"; and for routers only
// "cluster-ips", "service-ranges" and "pod-ranges". It stands beside spec, which
// MetalLB defines: pools are meant only if they are in the list.
const AnnotationAnnounce = "fairway.dev/announce"

// what an advertisement is for.
type what uint8

const (
	ofPools what = 1 << iota
	externalIPs
	clusterIPs
	serviceRanges
	podRanges
)

var whats = map[string]what{
	"pools": ofPools, "external-ips": externalIPs, "cluster-ips": clusterIPs, "service-ranges": serviceRanges, "pod-ranges": podRanges,
}

// what reads the annotation of an advertisement. ok is false if the advertisement
// must not be used.
func (r *reader) what(object string, annotations map[string]string, allowed what) (w what, ok bool) {
	text, there := annotations[AnnotationAnnounce]
	if !there {
		return ofPools, true
	}
	for name := range strings.SplitSeq(text, ",") {
		name = strings.TrimSpace(name)
		one := whats[name]
		if one&allowed == 0 {
			var known []string
			for _, k := range slices.Sorted(maps.Keys(whats)) {
				if whats[k]&allowed != 0 {
					known = append(known, k)
				}
			}
			r.problem(object, fmt.Sprintf("annotation %s: %q: must be a list of %s", AnnotationAnnounce, name, strings.Join(known, ", ")))
			return 0, false
		}
		w |= one
	}
	return w, true
}

// ClusterIPs reports whether cluster IPs are announced.
func (c *Config) ClusterIPs() bool {
	return slices.ContainsFunc(c.bgp, func(a bgpAdvertisement) bool { return a.what&clusterIPs != 0 })
}

// The addresses that are in no pool, as one.
var (
	allExternalIPs = pool{name: "external IPs", what: externalIPs}
	allClusterIPs  = pool{name: "cluster IPs", what: clusterIPs}
)

// placeOf is the pool of an address, or what stands for one; nil if no advertisement
// can be for the address.
func (c *Config) placeOf(a netip.Addr, served Served) *pool {
	if p := c.poolOf(a); p != nil && !served.ClusterIP {
		return p
	}
	switch {
	case served.ClusterIP:
		return &allClusterIPs
	case served.ExternalIP && c.externalIPs():
		return &allExternalIPs
	}
	return nil
}

func (c *Config) externalIPs() bool {
	return slices.ContainsFunc(c.bgp, func(a bgpAdvertisement) bool { return a.what&externalIPs != 0 }) ||
		slices.ContainsFunc(c.l2, func(a l2Advertisement) bool { return a.what&externalIPs != 0 })
}

// announceRanges adds the ranges of Services and of this node's pods to the routes.
// A node whose pods are to be reached announces their range also when it is drained.
func (p *Plan) announceRanges(c *Config, node Node) {
	for i := range c.bgp {
		ad := &c.bgp[i]
		if !selects(ad.nodes, node.Labels) {
			continue
		}
		var ranges []netip.Prefix
		if ad.what&serviceRanges != 0 && node.Unfit == "" {
			ranges = append(ranges, node.ServiceRanges...)
		}
		if ad.what&podRanges != 0 {
			ranges = append(ranges, node.PodRanges...)
		}
		for _, prefix := range ranges {
			for j := range p.Peers {
				peer := &p.Peers[j]
				if (len(ad.peers) == 0 || slices.Contains(ad.peers, peer.Name)) && peer.carries(prefix.Addr()) {
					p.route(peer.Name, prefix.Masked(), Route{LocalPref: ad.localPref, Communities: ad.communities})
				}
			}
		}
	}
}
