//go:build !race && stacked

package bgp

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/fairway-net/fairway/announce"
	"github.com/fairway-net/fairway/internal/netns"
	"github.com/fairway-net/fairway/test/netnstest"
)

// gateways are the addresses of the router in each VRF.
var gateways = []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}

// TestDevicesInVRFs: a peer with spec.vrf is dialed by that VRF, where another leads to another
// router with the same address.
func TestDevicesInVRFs(t *testing.T) {
	devicesLead(t, true)
}

// TestRouterInVRF: a node holds sessions, with passwords and BFD, with an FRR in each of two
// VRFs, whose addresses are the same, and clients behind each of them reach the Service, in both
// families. When the node leaves, the routers forget the addresses.
func TestRouterInVRF(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs network namespaces")
	}
	node, pod := netnstest.New(t), netnstest.New(t)
	var routers, clients []*netns.NS
	for i, name := range []string{"red", "blue"} {
		router, client := netnstest.New(t), netnstest.New(t)
		routers, clients = append(routers, router), append(clients, client)
		connect(t, node, router, "eth-"+name, i)
		enslave(t, node, "eth-"+name, name, i)
		link(t, router, "client", client, "eth0", clientNets(i))
		must(t, client.Do(func() error { return addRoutes("eth0", 0, clientNets(i), "0.0.0.0/0", "::/0") }))
		forwards(t, router)
		startFRR(t, router, 64500+i, []string{fmt.Sprint("192.0.2.", 10+i), fmt.Sprint("2001:db8::", 10+i)})
	}
	serve(t, node, pod)
	leakRoutes(t, node)
	var peers []announce.Peer
	for i, vrf := range []string{"red", "blue"} {
		for _, address := range gateways {
			p := peerOfFRR(vrf+address.String(), uint32(64500+i), address)
			p.VRF = vrf
			peers = append(peers, p)
		}
	}
	ended := startNode(t, node, peers)
	for i, client := range clients {
		for _, vip := range vips {
			await(t, fmt.Sprintf("%s is reached through VRF %d", vip, i), func() error { return reach(t, client, vip) })
		}
	}
	ended()
	for i, router := range routers {
		for _, vip := range vips {
			await(t, fmt.Sprintf("router %d forgets %s", i, vip), func() error { return forgets(t, router, vip) })
		}
	}
}

// leakRoutes leads what comes in by the VRFs to the pods, and has what goes to clients looked up
// in the tables of the VRFs.
func leakRoutes(t *testing.T, node *netns.NS) {
	t.Helper()
	must(t, node.Do(func() error {
		var errs []error
		for i, name := range []string{"red", "blue"} {
			table := firstTable + i
			by := []netip.Prefix{netip.PrefixFrom(gateways[0], 32), netip.PrefixFrom(gateways[1], 128)}
			errs = append(errs, addRoutes("pod", table, nil, "10.244.0.0/24", "fd00:10:244::/64"), addRoutes("eth-"+name, table, by, "0.0.0.0/0", "::/0"))
			for _, p := range clientNets(i) {
				rule := netlink.NewRule()
				rule.Family, rule.Table, rule.Priority = netlink.FAMILY_V4, table, 500
				if p.Addr().Is6() {
					rule.Family = netlink.FAMILY_V6
				}
				_, rule.Dst, _ = net.ParseCIDR(p.Masked().String())
				errs = append(errs, netlink.RuleAdd(rule))
			}
		}
		return errors.Join(errs...)
	}))
}
