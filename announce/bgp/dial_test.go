package bgp

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/announce"
	"github.com/fairway-net/fairway/internal/netns"
	"github.com/fairway-net/fairway/test/netnstest"
)

// TestDevices: a peer with spec.vrf is dialed by that device, where
// another leads to another router with the same address.
func TestDevices(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs network namespaces")
	}
	devicesLead(t, false)
}

// devicesLead has two routers with one address greet, each behind a device: an interface, or
// one in a VRF.
func devicesLead(t *testing.T, vrfs bool) {
	t.Helper()
	node := netnstest.New(t)
	for i, name := range []string{"red", "blue"} {
		router, device := netnstest.New(t), name
		if vrfs {
			device = "eth-" + name
		}
		connect(t, node, router, device, i)
		if vrfs {
			enslave(t, node, device, name, i)
		}
		greet(t, router, name)
	}
	for _, address := range []string{"192.0.2.1", "2001:db8::1"} {
		for vrf, want := range map[string]string{"red": "red", "blue": "blue", "green": "bind to VRF green (spec.vrf): no such device"} {
			if got := heard(t, node, peerBy(address, vrf)); got != want {
				t.Errorf("the router %s of %s: %q answers, want %q", address, vrf, got, want)
			}
		}
		if got := heard(t, node, peerBy(address, "")); vrfs && (got == "red" || got == "blue") {
			t.Errorf("the router %s outside of VRFs: %q answers", address, got)
		}
	}
}

// enslave makes a VRF, with a table of its own, and puts a device into it.
func enslave(t *testing.T, node *netns.NS, device, name string, number int) {
	t.Helper()
	err := node.Do(func() error {
		vrf := &netlink.Vrf{LinkAttrs: netlink.LinkAttrs{Name: name}, Table: uint32(firstTable + number)}
		if err := netlink.LinkAdd(vrf); err != nil {
			return err
		}
		link, err := netlink.LinkByName(device)
		if err != nil {
			return err
		}
		// An interface that goes into a VRF loses its IPv6 addresses.
		return errors.Join(netlink.LinkSetUp(vrf), netlink.LinkSetMaster(link, vrf), addAddresses(device, 10+number))
	})
	if err != nil {
		t.Fatal(err)
	}
}

// firstTable is that of the first VRF.
const firstTable = 100

func peerBy(address, vrf string) *announce.Peer {
	return &announce.Peer{Address: netip.MustParseAddr(address), Port: 1790, VRF: vrf}
}

// TestPasswords: a session is held with the router's password only (RFC 2385).
func TestPasswords(t *testing.T) {
	long := make([]byte, maxPassword+1)
	for i := range long {
		long[i] = 'x'
	}
	peer := &announce.Peer{Address: netip.MustParseAddr("127.0.0.1"), Port: 1, Password: string(long)}
	want := fmt.Sprintf("set password: it has %d bytes, and at most %d are possible", len(long), maxPassword)
	if _, err := dial(t.Context(), peer, peer.Address); err == nil || !containsText(err, want) {
		t.Errorf("a password that is too long: %v", err)
	}
}

func containsText(err error, text string) bool {
	for ; err != nil; err = errors.Unwrap(err) {
		if err.Error() == text {
			return true
		}
	}
	return false
}

// connect links a node to a router by a device. All routers have the same addresses.
func connect(t *testing.T, node, router *netns.NS, device string, number int) {
	t.Helper()
	err := node.Do(func() error {
		veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: device}, PeerName: "eth0", PeerNamespace: netlink.NsFd(router.Fd())}
		return errors.Join(netlink.LinkAdd(veth), addAddresses(device, 10+number))
	})
	err = errors.Join(err, router.Do(func() error { return addAddresses("eth0", 1) }))
	if err != nil {
		t.Fatal(err)
	}
}

// addAddresses gives a device the addresses of a host of the link, as far as it hasn't them.
func addAddresses(device string, host int) error {
	link, err := netlink.LinkByName(device)
	if err != nil {
		return err
	}
	four := &netlink.Addr{IPNet: &net.IPNet{IP: net.IPv4(192, 0, 2, byte(host)), Mask: net.CIDRMask(24, 32)}}
	six := &netlink.Addr{IPNet: &net.IPNet{IP: net.ParseIP(fmt.Sprintf("2001:db8::%d", host)), Mask: net.CIDRMask(64, 128)}, Flags: unix.IFA_F_NODAD}
	return errors.Join(netlink.LinkSetUp(link), netlink.AddrReplace(link, four), netlink.AddrReplace(link, six))
}

// greet has a router say its name to all who connect.
func greet(t *testing.T, router *netns.NS, name string) {
	t.Helper()
	for _, network := range []string{"tcp4", "tcp6"} {
		var l net.Listener
		err := router.Do(func() (err error) {
			l, err = net.Listen(network, ":1790")
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = conn.Write([]byte(name))
				_ = conn.Close()
			}
		}()
	}
}

// heard is what a router says, or why there is none.
func heard(t *testing.T, node *netns.NS, peer *announce.Peer) (text string) {
	t.Helper()
	err := node.Do(func() error {
		conn, err := dial(t.Context(), peer, peer.Address)
		if err != nil {
			return err
		}
		defer conn.Close()
		buffer := make([]byte, 16)
		n, err := conn.Read(buffer)
		text = string(buffer[:n])
		return err
	})
	var failed *net.OpError
	if errors.As(err, &failed) {
		return failed.Err.Error()
	}
	if err != nil {
		return err.Error()
	}
	return text
}
