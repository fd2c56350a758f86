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
)

// TestDevices: a peer with spec.vrf is dialed by that device, where another device
// leads to another router with the same address.
func TestDevices(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs network namespaces")
	}
	node := namespace(t)
	for i, device := range []string{"red", "blue"} {
		router := namespace(t)
		connect(t, node, router, device, i)
		greet(t, router, device)
	}
	for _, device := range []string{"red", "blue"} {
		peer := &announce.Peer{Address: netip.MustParseAddr("192.0.2.1"), Port: 1790, VRF: device}
		if got := heard(t, node, peer); got != device {
			t.Errorf("the router of %s: %q answers", device, got)
		}
	}
	peer := &announce.Peer{Address: netip.MustParseAddr("192.0.2.1"), Port: 1790, VRF: "green"}
	if got := heard(t, node, peer); got != "bind to VRF green (spec.vrf): no such device" {
		t.Errorf("a VRF that isn't there: %q", got)
	}
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

func namespace(t *testing.T) *netns.NS {
	t.Helper()
	ns, err := netns.Anonymous()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ns.Close(); err != nil {
			t.Error(err)
		}
	})
	return ns
}

// connect links a node to a router by a device. All routers have the same addresses.
func connect(t *testing.T, node, router *netns.NS, device string, number int) {
	t.Helper()
	add := func(name string, host int) error {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		four := &netlink.Addr{IPNet: &net.IPNet{IP: net.IPv4(192, 0, 2, byte(host)), Mask: net.CIDRMask(24, 32)}}
		return errors.Join(netlink.LinkSetUp(link), netlink.AddrAdd(link, four))
	}
	err := node.Do(func() error {
		veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: device}, PeerName: "eth0", PeerNamespace: netlink.NsFd(router.Fd())}
		return errors.Join(netlink.LinkAdd(veth), add(device, 10+number))
	})
	err = errors.Join(err, router.Do(func() error { return add("eth0", 1) }))
	if err != nil {
		t.Fatal(err)
	}
}

// greet has a router say its name to all who connect.
func greet(t *testing.T, router *netns.NS, name string) {
	t.Helper()
	var l net.Listener
	err := router.Do(func() (err error) {
		l, err = net.Listen("tcp", "[::]:1790")
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
