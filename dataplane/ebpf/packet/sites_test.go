package packet

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/rlimit"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/announce/steering"
	"github.com/fairway-net/fairway/internal/tcfilter"
	"github.com/fairway-net/fairway/lab/echo"
	"github.com/fairway-net/fairway/lab/topology"
	"github.com/fairway-net/fairway/test/netnstest"
)

// site is how a node and its pods are wired.
type site struct {
	name         string
	uplinkBridge bool // eth0 is a port of br0, which has the node's addresses
	hairpin      bool // of the ports of the pods' bridge cni0
	otherMAC     bool // cni0 has a MAC of its own, and not one of its ports'
	priorityTag  bool // the client's frames have a tag of VLAN 0
	otherFirst   bool // the uplink has another address before the node's, which routes prefer
}

var sites = []site{
	{name: "pods on a bridge"},
	{name: "pods on a bridge with hairpin and a MAC of its own", hairpin: true, otherMAC: true},
	{name: "uplink and pods on bridges", uplinkBridge: true},
	{name: "frames with a priority tag", priorityTag: true},
}

// TestSites sends the same packets where packets pass several interfaces, or look unlike
// those of a laboratory.
func TestSites(t *testing.T) {
	for _, at := range sites {
		t.Run(at.name, func(t *testing.T) {
			s := newSite(t, at)
			s.apply(t, s.tableOf(service{backends: []string{"a"}}))
			for i, vip := range vips {
				to, nodePort := netip.AddrPortFrom(vip, 80), netip.AddrPortFrom(s.node.Addresses[i], 30080)
				for _, network := range []string{"tcp", "udp"} {
					for _, from := range []string{"client", "b", "a", "node"} {
						for _, front := range []netip.AddrPort{to, nodePort} {
							s.talk(t, from, network, front, "a")
						}
					}
					s.expect(t, "b", network, to, "a", "b")
					s.expectRefused(t, "client", network, netip.AddrPortFrom(vip, 81))
					// The client speaks to the endpoint itself, from the port that it had for the frontend.
					s.talkDirectly(t, "b", network, to, netip.AddrPortFrom(s.hosts["a"].Addresses[i], 8080))
				}
			}
		})
	}
}

// TestJoinBridge has an interface become a port of a bridge, and be none again, while the
// programs run.
func TestJoinBridge(t *testing.T) {
	s := newSite(t, site{})
	s.apply(t, s.tableOf(service{backends: []string{"a"}}))
	h, err := s.node.NS.Netlink(unix.NETLINK_ROUTE)
	must(t, err)
	defer h.Close()
	must(t, h.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br1"}}))
	must(t, h.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "extra"}, PeerName: "far"}))
	extra, err := h.LinkByName("extra")
	must(t, err)
	bridge, err := h.LinkByName("br1")
	must(t, err)
	programs := func(want ...string) {
		t.Helper()
		must(t, s.node.Do(func() error { // as when the kernel tells of the change
			return s.packets.syncChanged(map[int]bool{extra.Attrs().Index: true}, false)
		}))
		links, err := os.ReadDir(s.dir + "/links")
		must(t, err)
		var got []string
		for _, l := range links {
			if rest, ok := strings.CutPrefix(l.Name(), fmt.Sprint(extra.Attrs().Index, "-")); ok {
				side, _, _ := strings.Cut(rest, "-")
				got = append(got, side)
			}
		}
		if strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("programs at the sides %v, expected %v", got, want)
		}
	}
	programs("egress", "ingress")
	must(t, h.LinkSetMaster(extra, bridge))
	programs("bridged")
	must(t, h.LinkSetNoMaster(extra))
	programs("egress", "ingress")
}

// TestAhead: a program of somebody else's that is before ours is named.
func TestAhead(t *testing.T) {
	s := newSite(t, site{})
	s.apply(t, s.tableOf(service{backends: []string{"a"}}))
	objects := func() (text string) {
		t.Helper()
		must(t, s.node.Do(func() error {
			list, err := s.packets.Objects(s.dir)
			if len(list) == 1 {
				text = list[0].Text
			}
			return err
		}))
		return text
	}
	if got := objects(); got != "attached" {
		t.Errorf("programs are %q", got)
	}
	h, err := s.node.NS.Netlink(unix.NETLINK_ROUTE)
	must(t, err)
	defer h.Close()
	l, err := h.LinkByName("eth0")
	must(t, err)
	must(t, s.node.Do(func() error { // announcing leads packets to other nodes before the mode sees them
		led, err := steering.NewInterfaces().Open(&net.Interface{Index: l.Attrs().Index, Name: "eth0", HardwareAddr: l.Attrs().HardwareAddr}, steering.Handoff)
		if err != nil {
			return err
		}
		if err := led.Watch(vips[0], time.Hour); err != nil {
			return err
		}
		if got := objects(); got != "attached" {
			t.Errorf("behind a program of this project: %q", got)
		}
		return led.Detach()
	}))
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "somebody", Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{
		asm.Mov.Imm(asm.R0, 0), asm.Return(), // TC_ACT_OK
	}})
	must(t, err)
	defer p.Close()
	var first link.Link
	must(t, s.node.Do(func() (err error) {
		first, err = link.AttachTCX(link.TCXOptions{Interface: l.Attrs().Index, Program: p, Attach: ebpf.AttachTCXIngress, Anchor: link.Head()})
		return err
	}))
	if got := objects(); got != "attached, behind programs of others: somebody at eth0 ingress" {
		t.Errorf("behind somebody's program: %q", got)
	}
	must(t, first.Close())
	driver, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "driver", Type: ebpf.XDP, License: "GPL", Instructions: asm.Instructions{
		asm.Mov.Imm(asm.R0, 2), asm.Return(), // XDP_PASS
	}})
	must(t, err)
	defer driver.Close()
	must(t, s.node.Do(func() (err error) {
		first, err = link.AttachXDP(link.XDPOptions{Interface: l.Attrs().Index, Program: driver, Flags: link.XDPGenericMode})
		return err
	}))
	if got := objects(); got != "attached, behind programs of others: driver at eth0 xdp" {
		t.Errorf("behind somebody's program by XDP: %q", got)
	}
	must(t, first.Close())
}

// TestMasqueradeSource: masqueraded connections have the source that routes prefer, which
// isn't the interface's first address.
func TestMasqueradeSource(t *testing.T) {
	s := newSite(t, site{otherFirst: true})
	s.apply(t, s.tableOf(service{backends: []string{"client"}}))
	for i := range vips {
		for _, network := range []string{"tcp", "udp"} {
			s.expect(t, "b", network, netip.AddrPortFrom(s.node.Addresses[i], 30080), "client", "node")
		}
	}
}

// talk has one connection, or one connected socket, ask several times.
func (s *rig) talk(t *testing.T, from, network string, to netip.AddrPort, who string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	c, err := s.hosts[from].DialContext(ctx, network, to.String())
	if err != nil {
		t.Errorf("%s %s %s: %v", from, network, to, err)
		return
	}
	defer c.Close()
	for n := range 4 {
		got, err := say(c, 5*time.Second)
		if err != nil || !strings.HasPrefix(got, who+" ") {
			t.Errorf("%s %s %s: question %d: %q, %v", from, network, to, n, got, err)
			return
		}
	}
}

// talkDirectly asks a frontend and then, from the same port, its endpoint.
func (s *rig) talkDirectly(t *testing.T, from, network string, front, endpoint netip.AddrPort) {
	t.Helper()
	must(t, s.hosts[from].Do(func() error {
		var local net.Addr
		for _, to := range []netip.AddrPort{front, endpoint} {
			d := net.Dialer{Timeout: 10 * time.Second, LocalAddr: local}
			c, err := d.Dial(network, to.String())
			if err != nil {
				return err
			}
			if _, err := say(c, 5*time.Second); err != nil {
				t.Errorf("%s %s %s, and before from the same port %s: %v", from, network, to, front, err)
			}
			local = c.LocalAddr()
			if tcp, ok := c.(*net.TCPConn); ok { // or the port isn't free for a minute
				if err := tcp.SetLinger(0); err != nil {
					return err
				}
			}
			if err := c.Close(); err != nil {
				return err
			}
		}
		return nil
	}))
}

// newSite is a rig whose node has the pods a and b on a bridge, and a client at its uplink.
func newSite(t *testing.T, at site) *rig {
	t.Helper()
	must(t, rlimit.RemoveMemlock())
	s := &rig{hosts: map[string]*topology.Host{}}
	for name, addresses := range map[string][]string{
		"node": {"198.51.100.11", "2001:db8:9::11"}, "client": {"198.51.100.1", "2001:db8:9::1"},
		"a": {"10.244.0.2", "fd00:10:244::2"}, "b": {"10.244.0.3", "fd00:10:244::3"},
	} {
		ns := netnstest.New(t)
		s.hosts[name] = &topology.Host{Name: name, NS: ns, Addresses: []netip.Addr{netip.MustParseAddr(addresses[0]), netip.MustParseAddr(addresses[1])}}
	}
	s.node = &topology.Node{Host: s.hosts["node"]}
	s.wire(t, at)
	for name, h := range s.hosts {
		server, err := echo.Start(name, []echo.Port{{Number: 8080, Protocol: "TCP"}, {Number: 8080, Protocol: "UDP"}}, h.Do)
		must(t, err)
		t.Cleanup(func() { must(t, server.Close()) })
	}
	s.start(t)
	return s
}

func (s *rig) wire(t *testing.T, at site) {
	t.Helper()
	h, err := s.node.NS.Netlink(unix.NETLINK_ROUTE)
	must(t, err)
	defer h.Close()
	must(t, s.node.Do(func() error {
		for _, path := range []string{"net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"} {
			if err := os.WriteFile("/proc/sys/"+path, []byte("1"), 0); err != nil {
				return err
			}
		}
		return nil
	}))
	cni := newBridge(t, h, "cni0", at.otherMAC)
	addressed(t, h, cni, "10.244.0.1/24", "fd00:10:244::1/64")
	uplink := s.cable(t, h, "client", "eth0")
	if at.uplinkBridge {
		br := newBridge(t, h, "br0", false)
		must(t, h.LinkSetMaster(uplink, br))
		uplink = br
	}
	if at.otherFirst {
		addressed(t, h, uplink, "198.51.100.10/24", "2001:db8:9::10/64")
	}
	addressed(t, h, uplink, "198.51.100.11/24", "2001:db8:9::11/64")
	for to, via := range map[string][2]string{"0.0.0.0/0": {"198.51.100.1", "198.51.100.11"}, "::/0": {"2001:db8:9::1", "2001:db8:9::11"}} {
		_, dst, err := net.ParseCIDR(to)
		must(t, err)
		must(t, h.RouteAdd(&netlink.Route{LinkIndex: uplink.Attrs().Index, Dst: dst, Gw: net.ParseIP(via[0]), Src: net.ParseIP(via[1])}))
	}
	for _, pod := range []string{"a", "b"} {
		port := s.cable(t, h, pod, "veth-"+pod)
		must(t, h.LinkSetMaster(port, cni))
		must(t, h.LinkSetHairpin(port, at.hairpin))
	}
	for _, host := range []struct {
		name      string
		addresses []string
		routes    map[string]string
	}{
		{"client", []string{"198.51.100.1/24", "2001:db8:9::1/64"}, map[string]string{"10.96.0.0/16": "198.51.100.11", "fd00:10:96::/112": "2001:db8:9::11"}},
		{"a", []string{"10.244.0.2/24", "fd00:10:244::2/64"}, map[string]string{"0.0.0.0/0": "10.244.0.1", "::/0": "fd00:10:244::1"}},
		{"b", []string{"10.244.0.3/24", "fd00:10:244::3/64"}, map[string]string{"0.0.0.0/0": "10.244.0.1", "::/0": "fd00:10:244::1"}},
		{"node", nil, nil},
	} {
		inside, err := s.hosts[host.name].NS.Netlink(unix.NETLINK_ROUTE)
		must(t, err)
		lo, err := inside.LinkByName("lo")
		must(t, err)
		must(t, inside.LinkSetUp(lo))
		if host.addresses != nil {
			eth0, err := inside.LinkByName("eth0")
			must(t, err)
			addressed(t, inside, eth0, host.addresses...)
		}
		for to, via := range host.routes {
			_, dst, err := net.ParseCIDR(to)
			must(t, err)
			must(t, inside.RouteAdd(&netlink.Route{Dst: dst, Gw: net.ParseIP(via)}))
		}
		inside.Close()
	}
	if at.priorityTag {
		s.tagFrames(t)
	}
}

// cable connects a host's eth0 with an interface of the node.
func (s *rig) cable(t *testing.T, h *netlink.Handle, host, name string) netlink.Link {
	t.Helper()
	must(t, h.LinkAdd(&netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: "eth0", PeerNamespace: netlink.NsFd(s.hosts[host].NS.Fd()),
	}))
	l, err := h.LinkByName(name)
	must(t, err)
	must(t, h.LinkSetUp(l))
	return l
}

func newBridge(t *testing.T, h *netlink.Handle, name string, ownMAC bool) netlink.Link {
	t.Helper()
	snooping := false // or the kernel waits before it passes IPv6's multicasts on
	attrs := netlink.LinkAttrs{Name: name}
	if ownMAC {
		attrs.HardwareAddr = net.HardwareAddr{2, 0, 0, 0, 0, 0xaa}
	}
	must(t, h.LinkAdd(&netlink.Bridge{LinkAttrs: attrs, MulticastSnooping: &snooping}))
	l, err := h.LinkByName(name)
	must(t, err)
	must(t, h.LinkSetUp(l))
	return l
}

func addressed(t *testing.T, h *netlink.Handle, l netlink.Link, addresses ...string) {
	t.Helper()
	must(t, h.LinkSetUp(l))
	for _, text := range addresses {
		a, err := netlink.ParseAddr(text)
		must(t, err)
		a.Flags = unix.IFA_F_NODAD
		must(t, h.AddrAdd(l, a))
	}
}

// tagFrames gives the client's frames a tag of VLAN 0 and a priority.
func (s *rig) tagFrames(t *testing.T) {
	t.Helper()
	const vlan, priority = 0x0081, 3 << 13 // ETH_P_8021Q in network order
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{
		asm.Mov.Imm(asm.R2, vlan), asm.Mov.Imm(asm.R3, priority), asm.FnSkbVlanPush.Call(), asm.Mov.Imm(asm.R0, -1), asm.Return(),
	}})
	must(t, err)
	t.Cleanup(func() { must(t, p.Close()) })
	h, err := s.hosts["client"].NS.Netlink(unix.NETLINK_ROUTE)
	must(t, err)
	defer h.Close()
	l, err := h.LinkByName("eth0")
	must(t, err)
	must(t, tcfilter.Place{Netlink: h, Index: l.Attrs().Index, Side: tcfilter.Egress, Priority: 1, Prefix: "tag"}.Attach("tag", p.FD()))
}
