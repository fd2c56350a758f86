package packet

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"reflect"
	"strconv"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/lab/topology"
	"github.com/fairway-net/fairway/model"
)

// What programs say of frames (enum xdp_action).
const (
	xdpPass     = 2
	xdpRedirect = 4
)

// driver is a bench in a node whose routes lead from the loopback interface, where frames
// come in (which is where the kernel tests programs), to eth0.
type driver struct {
	*bench
	node *topology.Node
	out  int // eth0
}

// where the node sends everything.
var gateway = net.HardwareAddr{2, 0, 0, 0, 0, 0x99}

func newDriver(t testing.TB, b *bench) *driver {
	t.Helper()
	lab, err := topology.New("xdp-"+strconv.Itoa(os.Getpid()), topology.Options{})
	must(t, err)
	t.Cleanup(func() { must(t, lab.Remove()) })
	d := &driver{bench: b}
	d.node, err = lab.AddNode("node")
	must(t, err)
	h, err := d.node.NS.Netlink(unix.NETLINK_ROUTE)
	must(t, err)
	t.Cleanup(h.Close)
	eth0, err := h.LinkByName("eth0")
	must(t, err)
	d.out = eth0.Attrs().Index
	for _, text := range []string{"172.30.0.200", "fd00:172:30::200"} {
		via := net.ParseIP(text)
		must(t, h.NeighAdd(&netlink.Neigh{LinkIndex: d.out, State: netlink.NUD_PERMANENT, IP: via, HardwareAddr: gateway}))
		for _, of := range append(clients[:], backends[:]...) {
			if of.Addr().Is4() == (via.To4() != nil) {
				to := &net.IPNet{IP: of.Addr().AsSlice(), Mask: net.CIDRMask(of.Addr().BitLen(), of.Addr().BitLen())}
				must(t, h.RouteAdd(&netlink.Route{LinkIndex: d.out, Dst: to, Gw: via}))
			}
		}
	}
	must(t, b.store.Maps[tcMapUplinks].Put(uint32(1), tcUplink{Flags: uplinkTakes}))
	must(t, b.store.Maps[tcMapUplinks].Put(uint32(d.out), tcUplink{Flags: uplinkSends}))
	return d
}

// frame gives a frame to the program of drivers.
func (d *driver) frame(t testing.TB, in []byte) (verdict uint32, out []byte) {
	t.Helper()
	must(t, d.node.Do(func() (err error) {
		o := &ebpf.RunOptions{Data: in, DataOut: make([]byte, len(in)+256)}
		verdict, err = d.programs[xdpProgram].Run(o)
		out = o.DataOut
		return err
	}))
	return verdict, out
}

// through gives a frame to the programs at both interfaces.
func (d *driver) through(t testing.TB, in []byte) (verdict uint32, out []byte) {
	t.Helper()
	must(t, d.node.Do(func() error {
		verdict, out = d.runBytes(t, "ingress", in)
		if verdict == goOn {
			verdict, out = d.runBytes(t, "egress", out)
		}
		return nil
	}))
	return verdict, out
}

// entries are those of the connection table, whatever the time.
func (d *driver) entries(t testing.TB) map[tcTuple]tcConn {
	t.Helper()
	all := map[tcTuple]tcConn{}
	must(t, d.conns.each(func(key *tcTuple, c *tcConn) {
		all[*key] = *c
		e := all[*key]
		e.Seen = 0
		all[*key] = e
	}))
	return all
}

func (d *driver) restore(t testing.TB, entries map[tcTuple]tcConn) {
	t.Helper()
	now, err := monotonic()
	must(t, err)
	for key, e := range entries {
		e.Seen = now
		must(t, d.conns.m.Update(&key, &e, ebpf.UpdateAny))
	}
}

// agrees gives a packet to the program of drivers. If it sends that on, it must have done to
// it what the programs at both interfaces do, and to the connection table. If not, nothing, and
// they handle it. It reports whether it was sent on, and how it looks then.
func (d *driver) agrees(t *testing.T, what string, in []byte) (sent bool, got packet) {
	t.Helper()
	before := d.entries(t)
	verdict, out := d.frame(t, in)
	after := d.entries(t)
	if verdict == xdpPass {
		if !bytes.Equal(in, out) || !reflect.DeepEqual(before, after) {
			t.Fatalf("%s: passed up, but changed: %x\nwas %x", what, out, in)
		}
		_, out = d.through(t, in)
		got, err := read(out[ethernetHeader:], false)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		return false, got
	}
	if verdict != xdpRedirect {
		t.Fatalf("%s: verdict %d", what, verdict)
	}
	d.restore(t, before)
	_, want := d.through(t, in)
	if there := d.entries(t); !reflect.DeepEqual(after, there) {
		t.Fatalf("%s: connections are %+v, and by tc %+v", what, after, there)
	}
	got, err := read(out[ethernetHeader:], false)
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	theirs, err := read(want[ethernetHeader:], false)
	if err != nil || !reflect.DeepEqual(got, theirs) {
		t.Fatalf("%s: %+v, and by tc %+v %v", what, got, theirs, err)
	}
	if !bytes.Equal(out[:6], gateway) {
		t.Fatalf("%s: sent to %x", what, out[:6])
	}
	hops := 8 // of IPv4, in its header
	if got.src.Addr().Is6() {
		hops = 7
	}
	if out[ethernetHeader+hops] != 63 {
		t.Fatalf("%s: %d hops are left", what, out[ethernetHeader+hops])
	}
	return true, got
}

// TestXDP has connections change between drivers and interfaces with every packet.
func TestXDP(t *testing.T) {
	d := newDriver(t, newBench(t, true))
	for i := range served {
		tcp := packet{proto: unix.IPPROTO_TCP, flags: syn, src: clients[i], dst: served[i]}
		sent, outside := d.agrees(t, "SYN", tcp.bytes())
		if sent || outside.src.Addr() != nodes[i] || outside.dst != backends[i] {
			t.Fatalf("SYN: %v %s", sent, outside.between())
		}
		answer := packet{proto: unix.IPPROTO_TCP, flags: syn | ack, src: backends[i], dst: outside.src}
		if sent, got := d.agrees(t, "SYN-ACK", answer.bytes()); sent || got.between() != (packet{src: served[i], dst: clients[i]}).between() {
			t.Fatalf("SYN-ACK: %v %s", sent, got.between())
		}
		for _, c := range []struct {
			what      string
			client    bool
			flags     byte
			seq, ack  uint32
			body      int
			want      bool // that drivers send it
			elsewhere bool // to another machine of the link
			last      bool // hop
			change    func(p *packet)
		}{
			{what: "ACK", client: true, flags: ack, want: true},
			{what: "data", client: true, flags: ack, body: 101, seq: 1 << 20, ack: 5 << 16, want: true},
			{what: "answer", flags: ack, body: 1000, seq: 5 << 16, ack: 1 << 20, want: true},
			{what: "too large", flags: ack, body: 1461, seq: 5 << 16, ack: 1 << 20},
			{what: "options", client: true, flags: ack, change: func(p *packet) { p.options = true }},
			{what: "for another machine", client: true, flags: ack, elsewhere: true},
			{what: "last hop", client: true, flags: ack, last: true},
			{what: "SYN again", client: true, flags: syn},
			{what: "implausible RST", client: true, flags: rst, seq: 1 << 30, want: true},
			{what: "FIN", client: true, flags: fin | ack, seq: 1 << 20, ack: 5 << 16, want: true},
			{what: "FIN answered", flags: fin | ack, seq: 5 << 16, ack: 1 << 20, want: true},
			{what: "last ACK", client: true, flags: ack, seq: 1 << 20, ack: 5 << 16, want: true},
		} {
			p := packet{proto: unix.IPPROTO_TCP, flags: c.flags, seq: c.seq, ack: c.ack, body: make([]byte, c.body), src: clients[i], dst: served[i]}
			if !c.client {
				p.src, p.dst = backends[i], outside.src
			}
			if c.change != nil {
				c.change(&p)
			}
			in := p.bytes()
			if c.elsewhere {
				in[5] = 1
			}
			if c.last {
				lastHop(in)
			}
			if sent, got := d.agrees(t, c.what, in); sent != c.want {
				t.Errorf("%v %s: sent %v, %s", served[i], c.what, sent, got.between())
			}
		}
	}
}

func lastHop(in []byte) {
	if in[12] == 0x86 {
		in[ethernetHeader+7] = 1
		return
	}
	h := in[ethernetHeader : ethernetHeader+20]
	h[8], h[10], h[11] = 1, 0, 0
	s := ^sum(h)
	h[10], h[11] = byte(s>>8), byte(s)
}

// TestXDPPassesUp: what the programs at interfaces have to judge, drivers leave to them.
func TestXDPPassesUp(t *testing.T) {
	d := newDriver(t, newBench(t, true))
	for i := range served {
		udp := packet{proto: unix.IPPROTO_UDP, src: clients[i], dst: served[i], body: []byte("odd")}
		if sent, _ := d.agrees(t, "first", udp.bytes()); sent {
			t.Error("a first datagram was sent on")
		}
		if sent, _ := d.agrees(t, "second", udp.bytes()); !sent {
			t.Error("a second datagram was passed up")
		}
		udp.noSum = true
		if sent, _ := d.agrees(t, "without checksum", udp.bytes()); !sent {
			t.Error("a datagram without checksum was passed up")
		}
		udp.noSum = false
		fragment := udp
		fragment.more, fragment.id, fragment.body = true, 7, make([]byte, 56)
		if verdict, _ := d.frame(t, fragment.bytes()); verdict != xdpPass {
			t.Errorf("a fragment: %d", verdict)
		}
		frozen := d.entries(t)
		for key, e := range frozen {
			e.Kind |= tcKindFROZEN
			must(t, d.conns.m.Update(&key, &e, ebpf.UpdateAny))
		}
		if verdict, _ := d.frame(t, udp.bytes()); verdict != xdpPass {
			t.Errorf("of a connection that changes hands: %d", verdict)
		}
		must(t, d.conns.thaw())
		must(t, d.store.Maps[tcMapUplinks].Put(uint32(1), tcUplink{Flags: uplinkTakes | uplinkVeth}))
		if sent, _ := d.agrees(t, "with a checksum", udp.bytes()); !sent {
			t.Error("a datagram whose checksum is complete was passed up")
		}
		if verdict, _ := d.frame(t, unfinishedFrame(udp)); verdict != xdpPass {
			t.Errorf("of an unfinished checksum: %d", verdict)
		}
		must(t, d.store.Maps[tcMapUplinks].Put(uint32(1), tcUplink{Flags: uplinkTakes}))
	}
	d.program(t, model.NewTable())
	for i := range served {
		if verdict, _ := d.frame(t, packet{proto: unix.IPPROTO_UDP, src: clients[i], dst: served[i]}.bytes()); verdict != xdpPass {
			t.Errorf("of a flow whose Service has gone: %d", verdict)
		}
	}
}

// unfinishedFrame has the checksum of the pseudo-header alone, as the kernel leaves it to a
// network card.
func unfinishedFrame(p packet) []byte {
	in := p.bytes()
	n := len(p.transport())
	at, s := len(in)-n+6, sum(p.pseudo(n))
	in[at], in[at+1] = byte(s>>8), byte(s)
	return in
}

// TestXDPDirect: direct server return by drivers, with the option where it is due.
func TestXDPDirect(t *testing.T) {
	d := newDriver(t, newNode(t, "xdp", firstNode, false))
	for i := range firstNode {
		for n, front := range fronts(i) {
			for _, proto := range []uint8{unix.IPPROTO_TCP, unix.IPPROTO_UDP} {
				what := fmt.Sprintf("%s %d", front, proto)
				client := netip.AddrPortFrom(clients[i].Addr(), clients[i].Port()+uint16(n))
				p := packet{proto: proto, flags: syn, src: client, dst: front, body: []byte("some")}
				if sent, _ := d.agrees(t, what, p.bytes()); sent {
					t.Errorf("%s: the first packet was sent on", what)
				}
				p.flags = ack
				sent, got := d.agrees(t, what, p.bytes())
				if want := proto == unix.IPPROTO_UDP; !sent || (len(got.extra) > 0) != want {
					t.Errorf("%s: sent %v, with option %x", what, sent, got.extra)
				}
				if got.between() != (packet{src: client, dst: backends[i]}).between() {
					t.Errorf("%s: %s", what, got.between())
				}
			}
		}
	}
}

// TestXDPRandom plays random packets of a few connections.
func TestXDPRandom(t *testing.T) {
	for _, masquerade := range []bool{true, false} {
		t.Run(fmt.Sprintf("masquerade %v", masquerade), func(t *testing.T) {
			d := newDriver(t, newBench(t, masquerade))
			if sent := d.playRandom(t, 3000); sent < 300 {
				t.Errorf("drivers sent only %d packets on", sent)
			}
		})
	}
}

func (d *driver) playRandom(t *testing.T, packets int) (sentOn int) {
	t.Helper()
	r := rand.New(rand.NewPCG(3, 4))
	seen := map[netip.AddrPort][]netip.AddrPort{} // by backends: clients
	for n := range packets {
		i := n % 2
		p := packet{proto: []uint8{unix.IPPROTO_TCP, unix.IPPROTO_UDP}[r.IntN(2)], flags: []byte{ack, ack, ack, syn, syn | ack, fin | ack, rst, rst | ack}[r.IntN(8)],
			seq: r.Uint32N(4) << 16, ack: r.Uint32N(4) << 16, body: make([]byte, r.IntN(200)), options: r.IntN(20) == 0}
		p.noSum = p.proto == unix.IPPROTO_UDP && i == 0 && r.IntN(5) == 0
		p.src, p.dst = netip.AddrPortFrom(clients[i].Addr(), clients[i].Port()+uint16(r.IntN(5))), served[i]
		if to := seen[backends[i]]; len(to) > 0 && r.IntN(2) == 0 {
			p.src, p.dst = backends[i], to[r.IntN(len(to))]
		}
		sent, got := d.agrees(t, fmt.Sprintf("packet %d, %s, protocol %d, flags %d", n, p.between(), p.proto, p.flags), p.bytes())
		if sent {
			sentOn++
		}
		if got.dst == backends[i] {
			seen[backends[i]] = append(seen[backends[i]], got.src)
		}
	}
	return sentOn
}
