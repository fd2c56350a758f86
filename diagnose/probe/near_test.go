package probe

import (
	"net"
	"net/netip"
	"os"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/fairway-net/fairway/internal/netns"
)

// TestConnectFromThisNodesPod: not from the namespace of another node's pod, or of
// another lab's, that has the same address.
func TestConnectFromThisNodesPod(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	stranger, err := netns.Create("fairway-test-near")
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Remove() //nolint:errcheck // of a test
	address := netip.MustParseAddr("198.51.100.77")
	handle, err := stranger.Netlink()
	if err != nil {
		t.Fatal(err)
	}
	defer handle.Close()
	lo, err := handle.LinkByName("lo")
	if err == nil {
		err = handle.LinkSetUp(lo)
	}
	if err == nil {
		err = handle.AddrAdd(lo, &netlink.Addr{IPNet: &net.IPNet{IP: address.AsSlice(), Mask: net.CIDRMask(32, 32)}})
	}
	if err != nil {
		t.Fatal(err)
	}
	node, err := netns.Anonymous()
	if err != nil {
		t.Fatal(err)
	}
	defer node.Close() //nolint:errcheck // of a test
	to := netip.AddrPortFrom(address, 9)
	if got := (Prober{NS: stranger}).ConnectFrom(t.Context(), address, to); got != "refused" {
		t.Errorf("from the node itself: %q", got)
	}
	if got := (Prober{NS: node}).ConnectFrom(t.Context(), address, to); got != "" {
		t.Errorf("from somebody else's namespace: %q", got)
	}
}

// TestLeadsToWhereItsInterfaceIs: not to the namespace where the interface's other end was
// before, of which the kernel keeps a number.
func TestLeadsToWhereItsInterfaceIs(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	var all []*netns.NS
	for range 3 {
		ns, err := netns.Anonymous()
		if err != nil {
			t.Fatal(err)
		}
		defer ns.Close() //nolint:errcheck // of a test
		all = append(all, ns)
	}
	pod, first, second := all[0], all[1], all[2]
	if err := first.Do(func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = "node"
		pair := &netlink.Veth{LinkAttrs: attrs, PeerName: "pod", PeerNamespace: netlink.NsFd(pod.Fd())}
		if err := netlink.LinkAdd(pair); err != nil {
			return err
		}
		return pod.Do(func() error { _, err := netlink.LinkList(); return err }) // which gives the namespace a number
	}); err != nil {
		t.Fatal(err)
	}
	if !leadsTo(pod, first) || leadsTo(pod, second) {
		t.Errorf("before: to the first %t, to the second %t", leadsTo(pod, first), leadsTo(pod, second))
	}
	if err := first.Do(func() error {
		link, err := netlink.LinkByName("node")
		if err != nil {
			return err
		}
		return netlink.LinkSetNsFd(link, second.Fd())
	}); err != nil {
		t.Fatal(err)
	}
	if leadsTo(pod, first) || !leadsTo(pod, second) {
		t.Errorf("after it was moved: to the first %t, to the second %t", leadsTo(pod, first), leadsTo(pod, second))
	}
}
