package userspace

import (
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"

	"github.com/fairway-net/fairway/model"
)

// decide asks the specification about a new connection or flow.
func (r *relay) decide(k model.Key, client netip.AddrPort) model.Verdict {
	table := r.current()
	p := model.Packet{Src: client.Addr(), SrcPort: client.Port(), Dst: k.Addr, DstPort: k.Port, Proto: k.Proto}
	if own(table.Settings, k, client.Addr()) {
		p.Src = ownSource(table, k, client.Addr())
	} else {
		p.In = interfaceTo(table.Settings, client.Addr())
	}
	return table.Decide(p)
}

// own reports whether a client is a process of this node: the kernel gives its
// connections to a local address that address as their source.
func own(s *model.Settings, k model.Key, client netip.Addr) bool {
	return isNode(s, client) || client == k.Addr || client.IsLoopback()
}

func isNode(s *model.Settings, a netip.Addr) bool {
	_, found := slices.BinarySearchFunc(s.NodeAddrs, a, netip.Addr.Compare)
	return found
}

// ownSource is the source that a process of this node would have if the
// frontend's address were not local: one of the node's, of which it may choose
// any that is let in.
func ownSource(t *model.Table, k model.Key, client netip.Addr) netip.Addr {
	f := t.Frontend(k)
	if client != k.Addr || isNode(t.Settings, client) || client.IsLoopback() || f == nil {
		return client
	}
	source := client
	for _, a := range t.Settings.NodeAddrs {
		switch {
		case a.Is4() != k.Addr.Is4() || a.IsLoopback():
		case f.Sources == nil || slices.ContainsFunc(f.Sources, func(p netip.Prefix) bool { return p.Contains(a) }):
			return a
		case source == client:
			source = a
		}
	}
	return source
}

// interfaceTo names the interface that packets of a client come in through, as
// far as anybody asks: that which leads back to it.
func interfaceTo(s *model.Settings, client netip.Addr) string {
	const some = "?"
	if len(s.Pods.Interfaces) == 0 {
		return some
	}
	routes, err := netlink.RouteGet(client.AsSlice())
	if err != nil || len(routes) == 0 {
		return some
	}
	link, err := netlink.LinkByIndex(routes[0].LinkIndex)
	if err != nil {
		return some
	}
	return link.Attrs().Name
}
