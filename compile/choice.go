package compile

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fairway-net/fairway/model"
)

// Choice says whether an endpoint takes new connections of a pool, and why.
type Choice uint8

// The choices. Those up to ServingTerminating take new connections.
const (
	Ready              Choice = iota // ready, and nothing narrows the choice
	ReadySameNode                    // ready, and hinted at this node (KEP-3015)
	ReadySameZone                    // ready, and hinted at this zone (KEP-2433)
	ServingTerminating               // terminating, but serves, and no endpoint is ready (KEP-1669)
	NotReady                         // the conditions say so
	Terminating                      // terminating, and either doesn't serve or others are ready
	WeightZero                       // the weight's annotation gives it no share
	OtherNode                        // others are hinted at this node
	OtherZone                        // others are hinted at this zone
	NotLocal                         // on another node, and the traffic policy is Local
	OtherPort                        // its slice names no port as the Service port is named
	OtherProtocol                    // its slice has the port's name with another protocol
	OtherFamily                      // its address is of the other IP family
	Backup                           // a backup, and another endpoint is ready
	MachineGone                      // its machine is gone, as its peers agree, and another endpoint is ready
)

// Chosen reports whether the endpoint takes new connections.
func (c Choice) Chosen() bool { return c <= ServingTerminating }

// String says the choice in words.
func (c Choice) String() string {
	return [...]string{
		"ready",
		"ready, for this node",
		"ready, for this zone",
		"terminating, but still serving; none is ready",
		"not ready",
		"terminating",
		"weight 0",
		"meant for other nodes",
		"meant for other zones",
		"on another node; the traffic policy is Local",
		"its slice lacks the port",
		"its slice has the port with another protocol",
		"of the other IP family",
		"a backup, while others are ready",
		"its machine is gone, as its peers agree",
	}[c]
}

// Candidate is an endpoint of a Service, and whether a pool uses it.
type Candidate struct {
	Slice  string     // name of an EndpointSlice that lists it
	Addr   netip.Addr // the endpoint's address
	Port   uint16     // 0 if its slice lacks the pool's port
	Weight uint16     // as asked for, before weights are reduced
	Choice Choice
}

// Candidates lists all endpoints of the Service that a pool belongs to, sorted
// by address, each with the reason for being used or not. The reasons come from
// the code that makes the pool. A pool that no Service port could have has none.
func (c *Compiler) Candidates(id model.PoolID) []Candidate {
	svc, p := c.portOf(id)
	if p == nil {
		return nil
	}
	c.gather(svc, p, id.IPv6)
	judge := c.scratch.judge(id.Local)
	var list []Candidate
	for i := range c.scratch.candidates {
		k := &c.scratch.candidates[i]
		list = append(list, Candidate{Addr: k.Addr, Port: k.Port, Weight: k.Weight, Choice: judge(k)})
	}
	for _, s := range svc.slices {
		mismatch := s.mismatch(p, id.IPv6)
		for i := range s.endpoints {
			list = nameSlice(list, s, s.endpoints[i].address(), mismatch)
		}
	}
	slices.SortStableFunc(list, func(a, b Candidate) int {
		return cmp.Or(a.Addr.Compare(b.Addr), cmp.Compare(a.Port, b.Port))
	})
	return list
}

// ServiceOf is the Service that a frontend's or pool's name is of.
func ServiceOf(name string) types.NamespacedName {
	namespace, service, _ := strings.Cut(model.ServiceOf(name), "/")
	return types.NamespacedName{Namespace: namespace, Name: service}
}

// portOf finds the Service port that a pool is made for.
func (c *Compiler) portOf(id model.PoolID) (*service, *port) {
	svc := c.services[ServiceOf(id.Name)]
	if svc == nil || svc.spec == nil {
		return nil, nil
	}
	i := slices.IndexFunc(svc.spec.ports, func(p port) bool { return p.title == id.Name && p.proto == id.Proto })
	if i < 0 {
		return nil, nil
	}
	return svc, &svc.spec.ports[i]
}

// mismatch says why no endpoint of the slice can serve a port; Ready if they can.
func (r *slice) mismatch(p *port, ipv6 bool) Choice {
	if r.ipv6 != ipv6 {
		return OtherFamily
	}
	mismatch := OtherPort
	for _, sp := range r.ports {
		switch {
		case sp.name == p.name && sp.proto == p.proto:
			return Ready
		case sp.name == p.name:
			mismatch = OtherProtocol
		}
	}
	return mismatch
}

// nameSlice says in which slice a candidate is listed, or adds the endpoint if
// its slice doesn't fit the port.
func nameSlice(list []Candidate, s *slice, a netip.Addr, mismatch Choice) []Candidate {
	if mismatch != Ready {
		return append(list, Candidate{Slice: s.name, Addr: a, Choice: mismatch})
	}
	for i := range list {
		if list[i].Addr == a && list[i].Slice == "" {
			list[i].Slice = s.name
		}
	}
	return list
}
