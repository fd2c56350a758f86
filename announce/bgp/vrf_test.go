package bgp

import (
	"errors"
	"net/netip"
	"os"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/fairway-net/fairway/announce"
)

// TestVRF: a peer with spec.vrf is dialed in that VRF, where another one leads to another
// router with the same address, and the node has no way to it otherwise.
func TestVRF(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs network namespaces")
	}
	node := namespace(t)
	for i, name := range []string{"red", "blue"} {
		router := namespace(t)
		err := node.Do(func() error {
			vrf := &netlink.Vrf{LinkAttrs: netlink.LinkAttrs{Name: name}, Table: uint32(100 + i)}
			return errors.Join(netlink.LinkAdd(vrf), netlink.LinkSetUp(vrf))
		})
		if errors.Is(err, syscall.EOPNOTSUPP) {
			t.Skip("NO VRF HERE: `make stacked` has a kernel with it")
		}
		if err != nil {
			t.Fatal(err)
		}
		connect(t, node, router, "eth-"+name, i)
		err = node.Do(func() error {
			vrf, err := netlink.LinkByName(name)
			eth, missing := netlink.LinkByName("eth-" + name)
			if err = errors.Join(err, missing); err != nil {
				return err
			}
			return netlink.LinkSetMaster(eth, vrf)
		})
		if err != nil {
			t.Fatal(err)
		}
		greet(t, router, name)
	}
	for _, name := range []string{"red", "blue"} {
		peer := &announce.Peer{Address: netip.MustParseAddr("192.0.2.1"), Port: 1790, VRF: name}
		if got := heard(t, node, peer); got != name {
			t.Errorf("the router of VRF %s: %q answers", name, got)
		}
	}
	peer := &announce.Peer{Address: netip.MustParseAddr("192.0.2.1"), Port: 1790}
	if got := heard(t, node, peer); got == "red" || got == "blue" {
		t.Errorf("outside of VRFs: %q answers", got)
	}
}
