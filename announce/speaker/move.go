package speaker

import (
	"context"
	"net/netip"

	"github.com/fairway-net/fairway/announce"
)

// become has this node announce as it is from now on. If it is to cease telling routers of
// addresses, or to begin again, the other nodes that do are told first: routers will choose
// anew among nodes, and packets of connections come in elsewhere.
func (n *Speaker) become(next announce.Node) {
	leaving := next.Unfit != ""
	var addresses []netip.Addr
	if n.steerer != nil && leaving != (n.self.Unfit != "") {
		fit := next
		if leaving {
			fit = n.self
		}
		addresses = n.toldRouters(fit)
	}
	if len(addresses) == 0 {
		n.self = next
		signal(n.wake)
		return
	}
	n.moving = true
	go func(s steerer) {
		s.Prepare(context.Background(), addresses, leaving) // which takes a moment
		n.mu.Lock()
		defer n.mu.Unlock()
		n.self, n.moving = n.withOverrides(n.known), false
		signal(n.wake)
	}(n.steerer)
}

// handOver has this node cease to announce for good, unless another process follows on it: other
// nodes are prepared, as for a drain, before routers choose anew.
func (n *Speaker) handOver() {
	if n.isFollowed() {
		return
	}
	n.mu.Lock()
	var addresses []netip.Addr
	if n.steerer != nil && n.self.Unfit == "" {
		addresses = n.toldRouters(n.self)
	}
	s := n.steerer
	n.mu.Unlock()
	if len(addresses) > 0 {
		s.Prepare(context.Background(), addresses, true)
	}
	n.mu.Lock()
	n.ends = true
	n.self = n.withOverrides(n.self)
	n.mu.Unlock()
	n.decide()
}

// toldRouters lists the addresses that routers are told of by a node, but for those whose
// connections go on anywhere.
func (n *Speaker) toldRouters(fit announce.Node) (list []netip.Addr) {
	if len(n.missing) > 0 {
		return nil
	}
	config, _ := announce.Read(n.objects)
	served, _ := n.serves()
	anywhere := n.carriesOn != nil && n.carriesOn()
	for a := range n.planFor(config, fit, served).BGP {
		if !anywhere || !served[a].Anywhere {
			list = append(list, a)
		}
	}
	return list
}
