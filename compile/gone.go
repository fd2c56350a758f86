package compile

import (
	"maps"
	"net/netip"
	"slices"
	"unique"

	"k8s.io/apimachinery/pkg/types"
)

// A machine that is lost keeps its endpoints ready until its Lease has expired. Its peers on the
// link know sooner. What they agree on narrows the choice of endpoints meanwhile, and never to
// nothing.

// Machine is another node, and the addresses that its Node object lists.
type Machine struct {
	Name      string
	Addresses []netip.Addr
}

// places says of endpoints whether they are on some machines: by their nodeName, or by their
// address where they have none.
type places struct {
	nodes     map[unique.Handle[string]]bool
	addresses map[[16]byte]bool
}

func placesOf(machines []Machine, except Node) places {
	p := places{map[unique.Handle[string]]bool{}, map[[16]byte]bool{}}
	for _, m := range machines {
		if m.Name == except.Name {
			continue
		}
		p.nodes[unique.Make(m.Name)] = true
		for _, a := range m.Addresses {
			if !slices.Contains(except.Addresses, a) {
				p.addresses[a.As16()] = true
			}
		}
	}
	return p
}

func (p *places) have(e *endpoint) bool {
	if e.node == (unique.Handle[string]{}) {
		return p.addresses[e.addr]
	}
	return p.nodes[e.node]
}

// SetGone says which machines are gone, as their peers agree: their endpoints take new connections
// only while no other endpoint is ready. Only the Services with endpoints there are compiled
// again, and named. This machine isn't gone, whatever its peers say.
func (c *Compiler) SetGone(machines []Machine) (touched []types.NamespacedName) {
	before, next := c.gone, placesOf(machines, c.node)
	if maps.Equal(next.nodes, before.nodes) && maps.Equal(next.addresses, before.addresses) {
		return nil
	}
	c.gone = next
	for _, svc := range c.services {
		if svc.has(func(e *endpoint) bool { return before.have(e) != next.have(e) }) {
			c.touch(svc, false)
			touched = append(touched, svc.key)
		}
	}
	return touched
}

// AddressesOn are addresses of endpoints on a machine, as many as given at most: by them it can be
// asked whether it is there.
func (c *Compiler) AddressesOn(machine Machine, most int) (list []netip.Addr) {
	on := placesOf([]Machine{machine}, c.node)
	for _, svc := range c.services {
		svc.has(func(e *endpoint) bool {
			if a := e.address(); on.have(e) && !slices.Contains(list, a) {
				list = append(list, a)
			}
			return len(list) >= most
		})
		if len(list) >= most {
			break
		}
	}
	return list
}

// has reports whether a Service has such an endpoint.
func (s *service) has(such func(*endpoint) bool) bool {
	return slices.ContainsFunc(s.slices, func(r *slice) bool {
		for i := range r.endpoints {
			if such(&r.endpoints[i]) {
				return true
			}
		}
		return false
	})
}

// passOver has endpoints on nodes that are gone take no new connections while another endpoint,
// a backup too, is ready.
func (s *scratch) passOver() {
	isGone := func(k candidate) bool { return k.gone }
	isLeft := func(k candidate) bool { return k.state == ready && !k.gone }
	if !slices.ContainsFunc(s.candidates, isGone) || !slices.ContainsFunc(s.candidates, isLeft) {
		return
	}
	for i := range s.candidates {
		if k := &s.candidates[i]; k.gone && k.state > serving {
			k.passedOver, k.state = true, serving
		}
	}
}
