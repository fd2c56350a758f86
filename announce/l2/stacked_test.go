//go:build !race && stacked

package l2

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/mdlayher/packet"
	"github.com/vishvananda/netlink"

	"github.com/fairway-net/fairway/internal/netns"
)

// onVLAN is an address of the VLAN's network.
var onVLAN = netip.MustParseAddr("198.51.100.1")

// stacked is a node with a bond of two interfaces and a VLAN on it, and a client in both
// networks, on one switch.
type stacked struct {
	*lan
	node, client *netns.NS
}

func newStacked(t *testing.T) *stacked {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs network namespaces")
	}
	s := &stacked{lan: &lan{T: t}}
	s.hub, s.node, s.client = s.namespace(), s.namespace(), s.namespace()
	err := s.node.Do(func() error {
		bond := netlink.NewLinkBond(netlink.LinkAttrs{Name: "bond0"})
		bond.Mode, bond.Miimon = netlink.BOND_MODE_ACTIVE_BACKUP, 50
		return netlink.LinkAdd(bond)
	})
	s.must(err)
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "hub"}}
	s.must(s.hub.Do(func() error { return errors.Join(netlink.LinkAdd(bridge), netlink.LinkSetUp(bridge)) }))
	plug := func(port, name string, to *netns.NS) {
		s.must(s.hub.Do(func() error {
			veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: port, MasterIndex: bridge.Attrs().Index}, PeerName: name, PeerNamespace: netlink.NsFd(to.Fd())}
			return errors.Join(netlink.LinkAdd(veth), netlink.LinkSetUp(veth))
		}))
	}
	plug("first", "eth0", s.node)
	plug("second", "eth1", s.node)
	plug("to-client", "eth0", s.client)
	s.must(s.node.Do(func() error {
		bond, err := netlink.LinkByName("bond0")
		for _, name := range []string{"eth0", "eth1"} {
			eth, missing := netlink.LinkByName(name)
			if err = errors.Join(err, missing); err != nil {
				return err
			}
			err = errors.Join(err, netlink.LinkSetMaster(eth, bond), netlink.LinkSetUp(eth))
		}
		return errors.Join(err, addressed("bond0", "192.0.2.202/24"), tagged("bond0", "198.51.100.202/24"))
	}))
	s.must(s.client.Do(func() error {
		return errors.Join(addressed("eth0", "192.0.2.201/24"), tagged("eth0", "198.51.100.201/24"))
	}))
	return s
}

func addressed(name, address string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	a, err := netlink.ParseAddr(address)
	return errors.Join(err, netlink.LinkSetUp(link), netlink.AddrAdd(link, a))
}

// tagged adds VLAN 5.
func tagged(name, address string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	err = netlink.LinkAdd(&netlink.Vlan{LinkAttrs: netlink.LinkAttrs{Name: name + ".5", ParentIndex: link.Attrs().Index}, VlanId: 5})
	return errors.Join(err, addressed(name+".5", address))
}

// asks has the client ask by an interface for an address, and returns who answers.
func (s *stacked) asks(device string, target, self netip.Addr) (macs []string) {
	s.Helper()
	var conn *packet.Conn
	var eth *net.Interface
	s.must(s.client.Do(func() (err error) {
		if eth, err = net.InterfaceByName(device); err == nil {
			conn, err = packet.Listen(eth, packet.Raw, etherARP, nil)
		}
		return err
	}))
	defer conn.Close()
	question := arpMessage{Operation: arpRequest, SenderMAC: eth.HardwareAddr, Sender: self, TargetMAC: make(net.HardwareAddr, 6), Target: target}
	_, err := conn.WriteTo(question.frame(broadcast), &packet.Addr{HardwareAddr: broadcast})
	s.must(err)
	s.must(conn.SetReadDeadline(time.Now().Add(300 * time.Millisecond)))
	for buffer := make([]byte, 2048); ; {
		n, _, err := conn.ReadFrom(buffer)
		if err != nil {
			return macs
		}
		if m, ok := parseARP(buffer[:n]); ok && m.Operation == arpReply && m.Sender == target && m.Target == self {
			macs = append(macs, m.SenderMAC.String())
		}
	}
}

// TestStacked: an address is answered for on a bond, another one on a VLAN of the bond and
// nowhere else, and both still when the bond goes over to its other interface.
func TestStacked(t *testing.T) {
	s := newStacked(t)
	ctx, cancel := context.WithCancel(t.Context())
	a := New(cluster("a"), func() {}, slog.New(slog.NewTextHandler(t.Output(), nil)))
	a.Set(wantAll(vip, onVLAN), map[netip.Addr]bool{vip: false, onVLAN: false})
	done := make(chan error, 1)
	go func() { done <- s.node.Do(func() error { return a.Run(ctx, func() bool { return false }) }) }()
	t.Cleanup(func() {
		cancel()
		s.must(<-done)
	})
	var mac string
	s.must(s.node.Do(func() error {
		bond, err := net.InterfaceByName("bond0")
		if err == nil {
			mac = bond.HardwareAddr.String()
		}
		return err
	}))
	plain, vlan := netip.MustParseAddr("192.0.2.201"), netip.MustParseAddr("198.51.100.201")
	answers := func(when string) {
		t.Helper()
		s.await(func() (bool, string) {
			onBond, tagged := s.asks("eth0", vip, plain), s.asks("eth0.5", onVLAN, vlan)
			return slices.Equal(onBond, []string{mac}) && slices.Equal(tagged, []string{mac}), when + ": " + mac + " doesn't answer"
		})
	}
	answers("at first")
	if got := slices.Concat(s.asks("eth0", onVLAN, plain), s.asks("eth0.5", vip, vlan)); len(got) > 0 {
		t.Errorf("%q answer in the other network", got)
	}
	var since []time.Time
	for _, status := range a.Status() {
		since = append(since, status.Since)
	}
	s.must(s.hub.Do(func() error {
		first, err := netlink.LinkByName("first")
		if err != nil {
			return err
		}
		return netlink.LinkSetDown(first)
	}))
	s.await(func() (bool, string) {
		active := -1
		s.must(s.node.Do(func() error {
			bond, err := netlink.LinkByName("bond0")
			second, missing := netlink.LinkByName("eth1")
			if err = errors.Join(err, missing); err == nil && bond.(*netlink.Bond).ActiveSlave == second.Attrs().Index {
				active = 1
			}
			return err
		}))
		return active == 1, "the bond doesn't go over"
	})
	answers("by the other interface")
	for i, status := range a.Status() {
		if !status.Since.Equal(since[i]) {
			t.Errorf("%s moved", status.Address)
		}
	}
}
