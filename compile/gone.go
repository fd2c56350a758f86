package compile

import (
	"maps"
	"net/netip"
	"slices"
	"unique"
)

// A machine that is lost keeps its endpoints ready until its Lease has expired. Its peers on the
// link know sooner. What they agree on narrows the choice of endpoints meanwhile, and never to
// nothing.

// SetGone says which nodes are gone, as their peers agree: their endpoints take new connections
// only while no other endpoint is ready. Only the Services with endpoints there are compiled again.
func (c *Compiler) SetGone(nodes []string) {
	next := make(map[unique.Handle[string]]bool, len(nodes))
	for _, n := range nodes {
		next[unique.Make(n)] = true
	}
	if maps.Equal(next, c.gone) {
		return
	}
	moved := maps.Clone(next)
	for n := range c.gone {
		if next[n] {
			delete(moved, n)
		} else {
			moved[n] = true
		}
	}
	c.gone = next
	for _, svc := range c.services {
		if svc.has(func(e *endpoint) bool { return moved[e.node] }) {
			c.touch(svc, false)
		}
	}
}

// isGone reports whether a node is gone. This node isn't, whatever its peers say.
func (c *Compiler) isGone(node unique.Handle[string]) bool {
	return len(c.gone) > 0 && node != c.nodeView.name && c.gone[node]
}

// AddressesOn are addresses of endpoints on a node, as many as given at most: by them the node
// can be asked whether it is there.
func (c *Compiler) AddressesOn(node string, most int) (list []netip.Addr) {
	on := unique.Make(node)
	for _, svc := range c.services {
		svc.has(func(e *endpoint) bool {
			if a := e.address(); e.node == on && !slices.Contains(list, a) {
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
