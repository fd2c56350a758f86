package packet

import (
	"bufio"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/dataplane/ebpf/maps"
	"github.com/fairway-net/fairway/internal/ethtool"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/lab/topology"
)

// likeHardware has the links of a laboratory behave as network cards do: frames carry whole
// checksums, and who isn't a node takes what a driver sends.
func (s *rig) likeHardware(t *testing.T) {
	t.Helper()
	for name, h := range s.hosts {
		must(t, h.Do(func() error { return ethtool.SetTxChecksums("eth0", false) }))
		if name == "client" || name == "node" || name == "peer" {
			must(t, s.lab.Underlay().Do(func() error { return ethtool.SetGRO(name, true) }))
		}
	}
}

// driven is how many packets drivers have sent on.
func (s *rig) driven(t *testing.T) uint64 {
	t.Helper()
	n, err := maps.Sum(s.store.Maps[tcMapDriven], uint32(tcDriverCountSENT))
	must(t, err)
	return n
}

// byDriver switches XDP on or off and has the interfaces follow.
func (s *rig) byDriver(t *testing.T, mode kernel.XDPMode) {
	t.Helper()
	s.packets.mu.Lock()
	defer s.packets.mu.Unlock()
	s.packets.XDP = mode
	must(t, s.node.Do(s.packets.syncAll))
}

func (s *rig) expectDrivers(t *testing.T, want string) {
	t.Helper()
	known, err := s.packets.Drivers(t.Context())
	must(t, err)
	if known == nil {
		known = &kernel.Drivers{}
	}
	var got []string
	for _, d := range known.Interfaces {
		got = append(got, strings.TrimSpace(fmt.Sprint(d.Interface, " ", d.XDP, " ", d.Why)))
	}
	if text := strings.Join(got, ", "); text != want {
		t.Errorf("drivers: %q, expected %q", text, want)
	}
}

// talker is an open connection on which one message after the other is answered.
type talker struct {
	net.Conn
	lines *bufio.Reader
}

func (s *rig) talker(t *testing.T, from *topology.Host, network string, to netip.AddrPort) *talker {
	t.Helper()
	c, err := from.DialContext(t.Context(), network, to.String())
	must(t, err)
	t.Cleanup(func() { c.Close() })
	return &talker{c, bufio.NewReader(c)}
}

func (c *talker) say(t *testing.T) {
	t.Helper()
	must(t, c.SetDeadline(time.Now().Add(30*time.Second)))
	_, err := c.Write([]byte("hello\n"))
	must(t, err)
	if line, err := c.lines.ReadString('\n'); line == "" {
		t.Fatal(err)
	}
}

// TestXDPOnTheWire has connections through a node whose driver sends their packets on, and
// switches that on and off under them.
func TestXDPOnTheWire(t *testing.T) {
	s := newRig(t)
	s.likeHardware(t)
	s.packets.XDP = kernel.XDPAuto
	s.apply(t, s.tableOf(service{backends: []string{"c"}}))
	s.expectDrivers(t, "eth0 true")
	var open []*talker
	for i := range vips {
		for _, to := range []netip.AddrPort{netip.AddrPortFrom(vips[i], 80), netip.AddrPortFrom(s.node.Addresses[i], 30080)} {
			for _, network := range []string{"tcp", "udp"} {
				before := s.driven(t)
				s.expect(t, "client", network, to, "c", "node")
				c := s.talker(t, s.hosts["client"], network, to)
				for range 5 {
					c.say(t)
				}
				open = append(open, c)
				if n := s.driven(t) - before; n < 8 {
					t.Errorf("%s %s: the driver sent %d packets on", network, to, n)
				}
				s.expect(t, "b", network, to, "c", map[bool]string{true: "b", false: "node"}[to.Addr() == vips[i]])
				s.expect(t, "node", network, to, "c", "node")
			}
		}
	}
	for _, mode := range []kernel.XDPMode{kernel.XDPOff, kernel.XDPAuto, kernel.XDPOff, kernel.XDPNative} {
		s.byDriver(t, mode)
		before := s.driven(t)
		for _, c := range open {
			c.say(t)
		}
		if n := s.driven(t) - before; (n > 0) != (mode != kernel.XDPOff) {
			t.Errorf("%s: the driver sent %d packets on", mode, n)
		}
	}
	s.byDriver(t, kernel.XDPOff)
	s.expectDrivers(t, "")
}

// TestXDPOccupied: somebody else's program stays, and packets are handled as without.
func TestXDPOccupied(t *testing.T) {
	s := newRig(t)
	s.likeHardware(t)
	driver, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "xdp_dispatcher", Type: ebpf.XDP, License: "GPL", Instructions: asm.Instructions{
		asm.Mov.Imm(asm.R0, xdpPass), asm.Return(),
	}})
	must(t, err)
	defer driver.Close()
	h, err := s.node.NS.Netlink(unix.NETLINK_ROUTE)
	must(t, err)
	defer h.Close()
	eth0, err := h.LinkByName("eth0")
	must(t, err)
	var theirs link.Link
	must(t, s.node.Do(func() (err error) {
		theirs, err = link.AttachXDP(link.XDPOptions{Interface: eth0.Attrs().Index, Program: driver, Flags: link.XDPDriverMode})
		return err
	}))
	s.packets.XDP = kernel.XDPNative
	s.apply(t, s.tableOf(service{backends: []string{"c"}}))
	s.expectDrivers(t, "eth0 false another XDP program is there: xdp_dispatcher")
	to := netip.AddrPortFrom(s.node.Addresses[0], 30080)
	s.expect(t, "client", "tcp", to, "c", "node")
	must(t, theirs.Close())
	s.byDriver(t, kernel.XDPNative)
	s.expectDrivers(t, "eth0 true")
	s.expect(t, "client", "tcp", to, "c", "node")
}
