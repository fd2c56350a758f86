package redirect

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"testing"

	"github.com/moby/ipvs"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/netns"
	"github.com/fairway-net/fairway/test/vm"
)

// TestBesideIPVS checks that a lease comes before IPVS, which takes packets to
// its addresses whether they are tracked or not, and that IPVS has them again
// when the lease ends.
func TestBesideIPVS(t *testing.T) {
	vm.With(t, func(t *testing.T) {
		r := newRig(t)
		other := r.otherServer(t)
		r.forwardByIPVS(t, other)
		others := func() bool { got, err := ask(r.pod, "udp", services[0], soon); return err == nil && got == "other" }
		for range 2 {
			eventually(t, "the other server answers", others)
			ctx, cancel := context.WithCancel(t.Context())
			renewing := r.keep(t, ctx)
			eventually(t, "the lease begins", func() bool { got, err := ask(r.pod, "udp", services[0], soon); return err == nil && got != "other" })
			for _, network := range []string{"udp", "tcp"} {
				for ns, name := range map[*netns.NS]string{r.pod: "pod", r.node: "node"} {
					r.renew(t)
					if got, err := ask(ns, network, services[0], waitTimeout); err != nil || got == "other" {
						t.Errorf("%s from %s on lease: %q, %v; want this node's answer", network, name, got, err)
					}
				}
			}
			cancel()
			<-renewing
		}
		eventually(t, "the other server answers again", others)
	}, "ip_vs")
}

// TestOldKernel checks leases on the oldest kernel that Fairway is for.
func TestOldKernel(t *testing.T) {
	vm.On(t, "bullseye", testLease)
}

// otherServer answers UDP questions beside the node.
func (r *rig) otherServer(t *testing.T) netip.AddrPort {
	t.Helper()
	far := namespace(t)
	do(t, r.node, func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = "far"
		return netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "eth0", PeerNamespace: netlink.NsFd(far.Fd())})
	})
	configure(t, r.node, "far", "10.244.1.1/24")
	configure(t, far, "eth0", "10.244.1.2/24")
	at := netip.MustParseAddrPort("10.244.1.2:10053")
	var conn *net.UDPConn
	do(t, far, func() (err error) {
		if err = netlink.RouteAdd(&netlink.Route{Gw: net.ParseIP("10.244.1.1")}); err == nil {
			conn, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
		}
		return err
	})
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
	go func() {
		buf := make([]byte, 64)
		for {
			_, from, err := conn.ReadFromUDPAddrPort(buf)
			if err != nil {
				return // closed
			}
			if _, err := conn.WriteToUDPAddrPort([]byte("other"), from); err != nil {
				t.Error(err)
			}
		}
	}()
	return at
}

// forwardByIPVS has IPVS forward the DNS Service as the ipvs plane does: its
// address is the node's own, on a dummy.
func (r *rig) forwardByIPVS(t *testing.T, to netip.AddrPort) {
	t.Helper()
	do(t, r.node, func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = "kube-ipvs0"
		return netlink.LinkAdd(&netlink.Dummy{LinkAttrs: attrs})
	})
	configure(t, r.node, "kube-ipvs0", services[0].String()+"/32")
	do(t, r.node, func() (err error) {
		h, err := ipvs.New("")
		if err != nil {
			return err
		}
		defer func() { h.Close() }()
		for _, proto := range []uint16{unix.IPPROTO_UDP, unix.IPPROTO_TCP} {
			service := &ipvs.Service{
				AddressFamily: unix.AF_INET, Address: services[0].AsSlice(), Port: 53, Protocol: proto,
				SchedName: ipvs.RoundRobin, Netmask: 0xffffffff,
			}
			backend := &ipvs.Destination{AddressFamily: unix.AF_INET, Address: to.Addr().AsSlice(), Port: to.Port(), Weight: 1}
			err = errors.Join(err, h.NewService(service))
			err = errors.Join(err, h.NewDestination(service, backend))
		}
		return err
	})
	do(t, r.node, func() error { return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0) })
}
