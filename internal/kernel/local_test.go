package kernel_test

import (
	"fmt"
	"net"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/test/netnstest"
)

// TestAwaitLocal listens at addresses right after they were added: a few, which are
// looked up, and many, which are listed.
func TestAwaitLocal(t *testing.T) {
	ns := netnstest.New(t)
	h, err := ns.Netlink(unix.NETLINK_ROUTE)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	lo, err := h.LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	if err := h.LinkSetUp(lo); err != nil {
		t.Fatal(err)
	}
	for i, n := range []int{1, 100} {
		list := []netip.Addr{netip.MustParseAddr("192.0.2.1")}
		for j := range n {
			a := netip.MustParseAddr(fmt.Sprintf("fd00:%x::%x", i+1, j+1))
			bits := net.CIDRMask(128, 128)
			if err := h.AddrAdd(lo, &netlink.Addr{IPNet: &net.IPNet{IP: a.AsSlice(), Mask: bits}, Flags: unix.IFA_F_NODAD}); err != nil {
				t.Fatal(err)
			}
			list = append(list, a)
		}
		if err := kernel.AwaitLocal(h, list); err != nil {
			t.Fatalf("%d addresses: %v", n, err)
		}
		for _, a := range list[1:] {
			if err := ns.Do(func() error {
				conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(a, 0)))
				if err != nil {
					return err
				}
				return conn.Close()
			}); err != nil {
				t.Errorf("%d addresses: %v", n, err)
			}
		}
	}
}
