package packet

import (
	"net"
	"testing"

	"github.com/vishvananda/netlink"
)

// TestKinds: each interface has the programs of its kind, and of one in use that can't be
// served it is said once.
func TestKinds(t *testing.T) {
	link := func(kind, encap string) netlink.Link {
		return &netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Name: kind, EncapType: encap, Flags: net.FlagUp}, LinkType: kind}
	}
	for _, c := range []struct {
		l, master netlink.Link
		want      linkKind
	}{
		{link("veth", "ether"), nil, ethernet}, {link("macvlan", "ether"), nil, ethernet}, {link("ipvlan", "ether"), nil, ethernet},
		{link("wireguard", "none"), nil, noHeader}, {link("rmnet", "rawip"), nil, noHeader}, {link("ipip", "ipip"), nil, noHeader},
		{link("veth", "ether"), link("bridge", "ether"), port}, {link("veth", "ether"), link("openvswitch", "ether"), port},
		{link("veth", "ether"), link("vrf", "ether"), ethernet},
		{link("veth", "ether"), link("bond", "ether"), part}, {link("veth", "ether"), link("team", "ether"), part},
		{link("ipoib", "infiniband"), nil, notForServices},
	} {
		if got := kindOf(c.l, c.master); got != c.want {
			t.Errorf("%s (%s) below %v: kind %d, expected %d", c.l.Type(), c.l.Attrs().EncapType, c.master, got, c.want)
		}
	}
	p := &Path{}
	addresses := []netlink.Addr{{}}
	for range 2 {
		p.logUnserved(link("ipoib", "infiniband"), notForServices, addresses)
		p.logUnserved(link("unused", "infiniband"), notForServices, nil)
		p.logUnserved(link("veth", "ether"), ethernet, addresses)
		p.logUnserved(link("ipvlan", "ether"), ethernet, addresses)
	}
	if len(p.unserved) != 2 || !p.unserved["ipoib"] || !p.unserved["ipvlan"] {
		t.Errorf("said to be unserved: %v", p.unserved)
	}
}
