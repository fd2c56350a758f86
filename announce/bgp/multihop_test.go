//go:build !race

package bgp

import (
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"testing"

	"github.com/fairway-net/fairway/announce"
	"github.com/fairway-net/fairway/test/netnstest"
)

// TestMultiHop: with spec.ebgpMultiHop a node holds sessions, with BFD, with an FRR that is a hop
// away, and a client behind that one reaches the Service, in both families.
func TestMultiHop(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs network namespaces")
	}
	if _, err := exec.LookPath("/usr/lib/frr/bgpd"); err != nil {
		t.Skipf("%v: run make deps", err)
	}
	node, pod, middle, router, client := netnstest.New(t), netnstest.New(t), netnstest.New(t), netnstest.New(t), netnstest.New(t)
	near := []netip.Prefix{netip.MustParsePrefix("192.0.2.1/24"), netip.MustParsePrefix("2001:db8::1/64")}
	far := []netip.Prefix{netip.MustParsePrefix("192.0.3.1/24"), netip.MustParsePrefix("2001:db8:3::1/64")}
	link(t, middle, "node", node, "eth0", near)
	link(t, middle, "router", router, "eth0", far)
	link(t, router, "client", client, "eth0", clientNets(0))
	forwards(t, middle)
	forwards(t, router)
	by := func(list []netip.Prefix) (next []netip.Prefix) {
		for _, p := range list {
			next = append(next, netip.PrefixFrom(p.Addr().Next(), p.Bits()))
		}
		return next
	}
	must(t, errors.Join(
		node.Do(func() error { return addRoutes("eth0", 0, near, "0.0.0.0/0", "::/0") }),
		client.Do(func() error { return addRoutes("eth0", 0, clientNets(0), "0.0.0.0/0", "::/0") }),
		router.Do(func() error { return addRoutes("eth0", 0, far, near[0].Masked().String(), near[1].Masked().String()) }),
		middle.Do(func() error {
			return errors.Join(
				addRoutes("node", 0, by(near), vips[0].String()+"/32", vips[1].String()+"/128"),
				addRoutes("router", 0, by(far), clientNets(0)[0].Masked().String(), clientNets(0)[1].Masked().String()),
			)
		}),
	))
	serve(t, node, pod)
	startFRR(t, router, 64500, []string{by(near)[0].Addr().String(), by(near)[1].Addr().String()}, "ebgp-multihop 2")
	var peers []announce.Peer
	for _, p := range by(far) {
		peer := peerOfFRR(p.Addr().String(), 64500, p.Addr())
		peer.MultiHop = true
		peers = append(peers, peer)
	}
	ended := startNode(t, node, peers)
	for _, vip := range vips {
		await(t, vip.String()+" is reached", func() error { return reach(t, client, vip) })
	}
	ended()
	for _, vip := range vips {
		await(t, "the router forgets "+vip.String(), func() error { return forgets(t, router, vip) })
	}
}
