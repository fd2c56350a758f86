// Package announce decides which load balancer addresses this node announces,
// and says why it doesn't announce the others. It is pure: the agent tells it
// what the data plane has in force and what the API says; announce/l2 and
// announce/bgp do what it decides.
//
//	config.go     what MetalLB's objects say
//	peer.go       routers and BFD profiles
//	community.go  communities, their names, and Services' annotations
//	tracker.go    which addresses are in force, and whether a new connection to
//	              them finds an endpoint from this node
//	plan.go       what this node announces
//	standby.go    where it may announce something later
//	what.go       what is announced beside the addresses of pools
//	bgpplan.go    to which routers, as which routes
package announce

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
)

// Node is this node as far as announcing goes.
type Node struct {
	Labels labels.Set
	// Unfit says why the node must not announce anything; "" if it may.
	Unfit string
	// ServiceRanges are those that cluster IPs come from, PodRanges those of this
	// node's pods.
	ServiceRanges, PodRanges []netip.Prefix
}

// Announcement says how an address is announced on layer 2.
type Announcement struct {
	// Services by "namespace/name" that have the address and endpoints here.
	Services []string
	Pool     string
	// Interfaces by name; nil is all that are fit.
	Interfaces []string
	Weight     int32
	Weighted   bool // nodes have weights for it
}

// Plan is what this node announces, and why not the rest. An address of no pool
// is in neither.
type Plan struct {
	L2  map[netip.Addr]Announcement
	BGP map[netip.Addr]BGPAnnouncement
	// Peers are the routers to hold sessions with, and Routes what these are told,
	// by the peer's name.
	Peers  []Peer
	Routes map[string]map[netip.Prefix]Route
	WhyNot map[netip.Addr]string
	// Problems of Services' annotations, by Service.
	Problems map[string][]string
	// Faults name what of the configuration is left out on this node alone.
	Faults []string
}

// Decide makes the plan for the addresses that are in force. ServiceOf returns
// what is known of a Service.
func Decide(c *Config, node Node, inForce map[netip.Addr]Served, serviceOf func(service string) Service) Plan {
	plan := Plan{
		L2: map[netip.Addr]Announcement{}, BGP: map[netip.Addr]BGPAnnouncement{}, Routes: map[string]map[netip.Prefix]Route{},
		WhyNot: map[netip.Addr]string{}, Problems: map[string][]string{},
	}
	plan.Peers, plan.Faults = c.peersOf(node)
	for address, served := range inForce {
		p := c.placeOf(address, served)
		if p == nil {
			continue
		}
		if why := notReady(node, served); why != "" {
			plan.WhyNot[address] = why
			continue
		}
		plan.announce(c, node, address, p, served, serviceOf)
	}
	plan.announceRanges(c, node)
	return plan
}

// announce adds an address of a pool.
func (plan *Plan) announce(c *Config, node Node, address netip.Addr, p *pool, served Served, serviceOf func(string) Service) {
	announcement, byL2, whyNotL2 := c.decideL2(p, node, served, serviceOf)
	if byL2 {
		plan.L2[address] = announcement
	}
	byBGP, whyNotBGP := c.decideBGP(plan, node, address, p, served, serviceOf)
	why := slices.DeleteFunc([]string{whyNotL2, whyNotBGP}, func(s string) bool { return s == "" })
	switch {
	case byL2 || byBGP:
	case len(why) > 0:
		plan.WhyNot[address] = strings.Join(why, "; ")
	case p.what != ofPools:
		plan.WhyNot[address] = fmt.Sprintf("no advertisement that is for %s is for the Service", p.name)
	default:
		plan.WhyNot[address] = fmt.Sprintf("no L2Advertisement or BGPAdvertisement is for pool %s and the Service", p.name)
	}
}

// notReady says why nobody may be sent to this node for an address, however it
// is announced.
func notReady(node Node, served Served) string {
	switch {
	case node.Unfit != "":
		return node.Unfit
	case len(served.Ready) == 0:
		return fmt.Sprintf("no ready endpoint that this node may use (%s)", strings.Join(served.Idle, ", "))
	}
	return ""
}

// decideL2 says how an address is announced on layer 2, or why this node doesn't
// do what an L2Advertisement asks for.
func (c *Config) decideL2(p *pool, node Node, served Served, serviceOf func(string) Service) (a Announcement, ok bool, why string) {
	a = Announcement{Services: served.Ready, Pool: p.name}
	var others []string // advertisements that are for the pool but not for this node
	found, everywhere := false, false
	for _, ad := range c.l2 {
		matches := func(service string) bool { return selects(ad.services, serviceOf(service).Labels) }
		if !ad.isFor(p) || !slices.ContainsFunc(served.Ready, matches) {
			continue
		}
		if !selects(ad.nodes, node.Labels) {
			others = append(others, ad.name)
			continue
		}
		found = true
		a.Weight += ad.weight(node.Labels)
		a.Weighted = a.Weighted || len(ad.preferred) > 0
		everywhere = everywhere || len(ad.interfaces) == 0
		a.Interfaces = append(a.Interfaces, ad.interfaces...)
	}
	switch {
	case !found && len(others) > 0:
		return a, false, fmt.Sprintf("the nodeSelectors of L2Advertisement %s don't select this node", strings.Join(others, ", "))
	case !found:
		return a, false, ""
	case everywhere:
		a.Interfaces = nil
	default:
		slices.Sort(a.Interfaces)
		a.Interfaces = slices.Compact(a.Interfaces)
	}
	return a, true, ""
}
