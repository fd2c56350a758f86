package l2

import (
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"
)

// TestDevices: bonds and bridges are announced on in the place of their ports, and
// VLANs beside the interface that they are of.
func TestDevices(t *testing.T) {
	mac := net.HardwareAddr{2, 0, 0, 0, 0, 1}
	attrs := func(index int, name string, master int) netlink.LinkAttrs {
		return netlink.LinkAttrs{Index: index, Name: name, MasterIndex: master, HardwareAddr: mac, Flags: net.FlagUp, OperState: netlink.OperUp}
	}
	down := attrs(9, "eth3", 0)
	down.OperState = netlink.OperDown
	lower := attrs(10, "bond0.7", 0)
	lower.OperState = netlink.OperLowerLayerDown
	tunnel := attrs(11, "tun0", 0)
	tunnel.HardwareAddr = nil
	links := []netlink.Link{
		&netlink.Bond{LinkAttrs: attrs(1, "bond0", 0)}, &netlink.Device{LinkAttrs: attrs(2, "eth0", 1)}, &netlink.Device{LinkAttrs: attrs(3, "eth1", 1)},
		&netlink.Vlan{LinkAttrs: attrs(4, "bond0.5", 0)},
		&netlink.Bridge{LinkAttrs: attrs(5, "lan", 0)}, &netlink.Device{LinkAttrs: attrs(6, "eth2", 5)},
		&netlink.Vrf{LinkAttrs: attrs(7, "red", 0)}, &netlink.Device{LinkAttrs: attrs(8, "eth4", 7)},
		&netlink.Device{LinkAttrs: down}, &netlink.Vlan{LinkAttrs: lower}, &netlink.Tuntap{LinkAttrs: tunnel},
	}
	var usable []string
	for _, l := range links {
		if isUsable(l, links) {
			usable = append(usable, l.Attrs().Name)
		}
	}
	if want := []string{"bond0", "bond0.5", "lan", "red", "eth4"}; !slices.Equal(usable, want) {
		t.Errorf("usable are %v, want %v", usable, want)
	}
}

// TestChosen: an address goes to the interface in whose network it is, also if that is
// a VLAN; without one to all, and to those that an advertisement names.
func TestChosen(t *testing.T) {
	list := []device{
		{net.Interface{Index: 1, Name: "bond0"}, []netip.Prefix{netip.MustParsePrefix("192.0.2.11/24"), netip.MustParsePrefix("2001:db8::11/64")}},
		{net.Interface{Index: 2, Name: "bond0.5"}, []netip.Prefix{netip.MustParsePrefix("198.51.100.11/24")}},
		{net.Interface{Index: 3, Name: "docker0"}, []netip.Prefix{netip.MustParsePrefix("172.17.0.1/16")}},
	}
	for _, test := range []struct {
		address string
		named   []string
		want    []string
	}{
		{"192.0.2.100", nil, []string{"bond0"}},
		{"198.51.100.100", nil, []string{"bond0.5"}},
		{"203.0.113.1", nil, []string{"bond0", "bond0.5"}},
		{"2001:db8:9::1", nil, []string{"bond0"}},
		{"172.17.0.9", nil, []string{"bond0", "bond0.5"}},
		{"192.0.2.100", []string{"docker0", "bond0.5"}, []string{"bond0.5", "docker0"}},
		{"192.0.2.100", []string{"eth9"}, nil},
	} {
		var got []string
		for _, d := range chosen(netip.MustParseAddr(test.address), test.named, list) {
			got = append(got, d.Name)
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s, interfaces %v: %v, want %v", test.address, test.named, got, test.want)
		}
	}
}

// TestVirtual: interfaces of pods, containers and tunnels are left alone; bridges and interfaces
// that lead to other machines aren't, whatever their names begin with.
func TestVirtual(t *testing.T) {
	for _, name := range []string{"lo", "docker0", "br-0123456789ab", "cni0", "veth1a2b", "cali123", "flannel.1", "wg0", "vxlan.calico", "virbr0", "lxcbr0", "tap0", "pod1"} {
		if !virtual.MatchString(name) {
			t.Errorf("%s leads to other machines", name)
		}
	}
	for _, name := range []string{"lom1", "local0", "lo1", "br-ex", "br-lan", "br0", "br-0123456789abc", "br-deadbeef", "eth0", "enp3s0", "bond0", "bond0.5", "team0", "podium0"} {
		if virtual.MatchString(name) {
			t.Errorf("%s leads to no other machine", name)
		}
	}
}
