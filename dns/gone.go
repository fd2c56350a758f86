package dns

import (
	"iter"
	"maps"
	"net/netip"
	"slices"
	interned "unique"
)

// nodeHandle is the name of an endpoint's node, shared among all that have the same; zero if it is not said.
type nodeHandle = interned.Handle[string]

func nodeNameOf(name *string) (n nodeHandle) {
	if name != nil && *name != "" {
		n = interned.Make(*name)
	}
	return n
}

// machines are those that are gone, as their peers agree, and the addresses of their Nodes.
type machines struct {
	nodes     map[nodeHandle]bool
	addresses map[netip.Addr]bool
}

// SetGone says which machines are gone: the name of a headless Service doesn't lead to endpoints
// there while it leads to others. Endpoints without a nodeName are where their address is.
func (x *Index) SetGone(nodes []string, addresses []netip.Addr) {
	next := machines{map[nodeHandle]bool{}, map[netip.Addr]bool{}}
	for _, n := range nodes {
		if n != x.config.NodeName {
			next.nodes[interned.Make(n)] = true
		}
	}
	for _, a := range addresses {
		next.addresses[a] = true
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if !maps.Equal(next.nodes, x.gone.nodes) || !maps.Equal(next.addresses, x.gone.addresses) {
		x.gone = next
		x.changes++
	}
}

func (m *machines) have(e *endpoint) bool {
	if e.node == (nodeHandle{}) {
		return m.addresses[e.address]
	}
	return m.nodes[e.node]
}

// answering goes through the endpoints that the Service's name leads to now.
func (svc *service) answering(gone *machines) iter.Seq2[*slice, *endpoint] {
	if len(gone.nodes) == 0 || !svc.hasOther(gone) {
		return svc.ready()
	}
	return func(yield func(*slice, *endpoint) bool) {
		for s, e := range svc.ready() {
			if !gone.have(e) && !yield(s, e) {
				return
			}
		}
	}
}

// hasOther reports whether an endpoint is ready that isn't on a machine that is gone.
func (svc *service) hasOther(gone *machines) bool {
	return slices.ContainsFunc(svc.slices, func(s *slice) bool {
		return slices.ContainsFunc(s.endpoints, func(e endpoint) bool { return e.ready && !gone.have(&e) })
	})
}
