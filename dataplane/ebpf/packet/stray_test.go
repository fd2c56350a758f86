package packet

import (
	"bytes"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// stableTable is directTable with stable flows.
func stableTable(addrs [2]netip.Addr, local bool) *model.Table {
	table := directTable(addrs, local, true)
	e := table.Edit()
	for p := range table.Pools() {
		next := *p
		next.Scheduler = model.MaglevPortHashing
		e.SetPool(&next)
	}
	for f := range table.Frontends() {
		next := *f
		next.Routes[model.FromOutside].Stable = f.Proto == model.TCP
		e.SetFrontend(&next)
	}
	return e.Table()
}

// TestStrays is about connections whose packets come in at another node from one moment to
// the next. Each part has client ports of its own.
func TestStrays(t *testing.T) {
	n := directNodes{
		first:  newNode(t, "first", firstNode, false),
		second: newNode(t, "second", secondNode, true),
		other:  newNode(t, "other", otherNode, false),
	}
	n.first.program(t, stableTable(firstNode, false))
	n.second.program(t, stableTable(secondNode, true))
	n.other.program(t, stableTable(otherNode, false))
	for k, part := range []struct {
		name string
		test func(*testing.T, [2]netip.AddrPort)
	}{
		{"go on", n.testGoOn}, {"at the backend's node", n.testAdopted}, {"back", n.testBack}, {"unknown", n.testUnknown}, {"only once", n.testOnlyOnce},
		{"of a port again", n.testOfAPortAgain},
	} {
		from := clients
		for i := range from {
			from[i] = netip.AddrPortFrom(from[i].Addr(), from[i].Port()+uint16(100*k))
		}
		t.Run(part.name, func(t *testing.T) { part.test(t, from) })
	}
}

// begin opens a connection to the load-balancer address by way of a node.
func (n directNodes) begin(t *testing.T, by *bench, client netip.AddrPort, i int) {
	t.Helper()
	front := netip.AddrPortFrom(balancer[i], 80)
	if by != n.second {
		_, raw := by.sent(t, packet{proto: unix.IPPROTO_TCP, flags: syn, src: client, dst: front})
		n.second.runBytes(t, "ingress", raw)
	} else {
		n.second.run(t, "ingress", packet{proto: unix.IPPROTO_TCP, flags: syn, src: client, dst: front})
	}
	verdict, got := n.second.run(t, "egress", packet{proto: unix.IPPROTO_TCP, flags: syn | ack, src: backends[i], dst: client})
	expectPacket(t, "answer", verdict, got, goOn, front, client)
}

// testGoOn: packets of all kinds reach the backend by way of another node, as they would by
// way of the first one.
func (n directNodes) testGoOn(t *testing.T, clients [2]netip.AddrPort) {
	for i, client := range clients {
		n.begin(t, n.first, client, i)
		before := n.strays(t, n.other)
		for _, p := range []packet{
			{flags: ack}, {flags: ack, body: []byte("odd length!")}, {flags: ack, body: make([]byte, 1300)}, {flags: ack, options: true, body: []byte("x")}, {flags: ack | fin}, {flags: rst},
		} {
			p.proto, p.src, p.dst = unix.IPPROTO_TCP, client, netip.AddrPortFrom(balancer[i], 80)
			got, raw := n.other.sent(t, p)
			expectPacket(t, "stray", goOn, got, goOn, client, backends[i])
			p.dst = backends[i]
			verdict, out := n.second.runBytes(t, "ingress", raw)
			if want := p.bytes(); verdict != goOn || !equalButHops(out[14:], want[14:]) {
				t.Errorf("verdict %d, the backend gets\n%x, expected\n%x", int32(verdict), out, want)
			}
		}
		if after := n.strays(t, n.other); after.Forwarded != before.Forwarded+1 || after.Reset != before.Reset {
			t.Errorf("counted %+v, was %+v: expected one connection more", after, before)
		}
	}
}

// testAdopted: the backend's node goes on with a connection that another one led it to.
func (n directNodes) testAdopted(t *testing.T, clients [2]netip.AddrPort) {
	for i, client := range clients {
		front := netip.AddrPortFrom(balancer[i], 80)
		n.begin(t, n.first, client, i)
		for range 2 {
			verdict, got := n.second.run(t, "ingress", packet{proto: unix.IPPROTO_TCP, flags: ack, src: client, dst: front})
			expectPacket(t, "adopted", verdict, got, goOn, client, backends[i])
			verdict, got = n.second.run(t, "egress", packet{proto: unix.IPPROTO_TCP, flags: ack, src: backends[i], dst: client})
			expectPacket(t, "answer", verdict, got, goOn, front, client)
		}
		// The first node has its packets again.
		got, raw := n.first.sent(t, packet{proto: unix.IPPROTO_TCP, flags: ack, src: client, dst: front})
		expectPacket(t, "back at the first node", goOn, got, goOn, client, backends[i])
		if verdict, out := n.second.runBytes(t, "ingress", raw); verdict != goOn || !bytes.Equal(out, raw) {
			t.Errorf("verdict %d, %x became %x", int32(verdict), raw, out)
		}
		// And a third one.
		_, raw = n.other.sent(t, packet{proto: unix.IPPROTO_TCP, flags: ack, src: client, dst: front})
		verdict, got := n.second.run(t, "ingress", packet{proto: unix.IPPROTO_TCP, flags: ack, src: client, dst: front})
		expectPacket(t, "once more", verdict, got, goOn, client, backends[i])
		n.second.runBytes(t, "ingress", raw)
		verdict, got = n.second.run(t, "egress", packet{proto: unix.IPPROTO_TCP, flags: ack, src: backends[i], dst: client})
		expectPacket(t, "answer", verdict, got, goOn, front, client)
	}
}

// testBack: what began at the backend's own node goes on by way of another one.
func (n directNodes) testBack(t *testing.T, clients [2]netip.AddrPort) {
	for i, client := range clients {
		front := netip.AddrPortFrom(balancer[i], 80)
		n.begin(t, n.second, client, i)
		_, raw := n.other.sent(t, packet{proto: unix.IPPROTO_TCP, flags: ack, src: client, dst: front, body: []byte("GET /")})
		verdict, out := n.second.runBytes(t, "ingress", raw)
		got, err := read(out[14:], false)
		must(t, err)
		expectPacket(t, "by another node", verdict, got, goOn, client, backends[i])
		if len(got.extra) > 0 {
			t.Errorf("the backend sees an option: %x", got.extra)
		}
	}
}

// testUnknown: a connection that the backend's node doesn't know is reset there, or, if the
// backend is here, here.
func (n directNodes) testUnknown(t *testing.T, clients [2]netip.AddrPort) {
	for i, client := range clients {
		front := netip.AddrPortFrom(balancer[i], 80)
		_, raw := n.other.sent(t, packet{proto: unix.IPPROTO_TCP, flags: ack, src: client, dst: front})
		before := n.strays(t, n.second)
		if verdict, _ := n.second.runBytes(t, "ingress", raw); verdict == goOn {
			t.Error("went on to the backend")
		}
		verdict, got := n.second.run(t, "ingress", packet{proto: unix.IPPROTO_TCP, flags: ack, seq: 5, ack: 77, src: client, dst: front})
		expectPacket(t, "RST", verdict, got, redirect, front, client)
		if got.flags != rst || got.seq != 77 {
			t.Errorf("answer to a stray: %+v", got)
		}
		if after := n.strays(t, n.second); after.Reset != before.Reset+2 {
			t.Errorf("counted %+v, was %+v: expected two packets more that were reset", after, before)
		}
	}
}

// testOnlyOnce: a packet with the option isn't sent on a second time, even if it is for a
// frontend.
func (n directNodes) testOnlyOnce(t *testing.T, clients [2]netip.AddrPort) {
	for i, client := range clients {
		_, raw := n.other.sent(t, packet{proto: unix.IPPROTO_TCP, flags: ack, src: client, dst: netip.AddrPortFrom(balancer[i], 80)})
		table := stableTable(firstNode, false)
		e := table.Edit()
		f := *table.Frontend(model.Key{Addr: balancer[i], Port: 80, Proto: model.TCP})
		f.Key.Addr, f.Port = backends[i].Addr(), backends[i].Port()
		e.SetFrontend(&f)
		n.first.program(t, e.Table())
		before := n.strays(t, n.first)
		n.first.runBytes(t, "ingress", raw)
		if after := n.strays(t, n.first); after.Forwarded != before.Forwarded {
			t.Error("was chosen for a second time")
		}
		n.first.program(t, stableTable(firstNode, false))
	}
}

// testOfAPortAgain: a client that was reset opens a connection from the same port, which
// isn't taken for the former one.
func (n directNodes) testOfAPortAgain(t *testing.T, clients [2]netip.AddrPort) {
	for i, client := range clients {
		front := netip.AddrPortFrom(balancer[i], 80)
		n.other.sent(t, packet{proto: unix.IPPROTO_TCP, flags: ack, src: client, dst: front})
		n.begin(t, n.other, client, i)
		got, raw := n.other.sent(t, packet{proto: unix.IPPROTO_TCP, flags: ack, src: client, dst: front})
		if len(got.extra) > 0 {
			t.Errorf("later packets of a connection that began here have an option: %x", raw)
		}
	}
}

func (n directNodes) strays(t *testing.T, b *bench) *kernel.Strays {
	t.Helper()
	s, err := Strays(t.Context(), b.dir)
	must(t, err)
	if s == nil {
		t.Fatal("no counters of strays")
	}
	return s
}

// elsewhere are the backends' addresses on the other node.
var elsewhere = [2]netip.AddrPort{netip.MustParseAddrPort("10.244.2.2:8080"), netip.MustParseAddrPort("[fd00:10:244:2::2]:8080")}

// twoBackends is stableTable with a backend on the other node beside; or only there.
func twoBackends(addrs [2]netip.Addr, first bool) *model.Table {
	table := stableTable(addrs, addrs == secondNode)
	e := table.Edit()
	for p := range table.Pools() {
		next, i := *p, 0
		if p.ID.IPv6 {
			i = 1
		}
		other := model.Backend{Addr: elsewhere[i].Addr(), Port: elsewhere[i].Port(), Weight: 1, Local: addrs == otherNode}
		if next.Backends = append(next.Backends[:len(next.Backends):len(next.Backends)], other); !first {
			next.Backends = next.Backends[1:]
		}
		next.Stable = true
		e.SetPool(&next)
	}
	return e.Table()
}

// TestSecondChoice: a connection that began when only one backend was there goes on by way
// of a node that has never seen it, and of that of the backend which has come meanwhile. If
// the second one doesn't know it either, nobody else is asked.
func TestSecondChoice(t *testing.T) {
	n := directNodes{
		first:  newNode(t, "first", firstNode, false),
		second: newNode(t, "second", secondNode, true),
		other:  newNode(t, "other", otherNode, false),
	}
	fourth := newNode(t, "fourth", [2]netip.Addr{netip.MustParseAddr("172.30.0.14"), netip.MustParseAddr("fd00:172:30::e")}, false)
	n.first.program(t, twoBackends(firstNode, false))
	n.second.program(t, twoBackends(secondNode, true))
	n.other.program(t, twoBackends(otherNode, true))
	table := twoBackends(firstNode, true)
	fourth.program(t, table)
	for i, client := range clients {
		front := netip.AddrPortFrom(balancer[i], 80)
		known := 0
		for port := uint16(41000); known < 4; port++ {
			client = netip.AddrPortFrom(client.Addr(), port)
			asked := table.Resume(model.Packet{Src: client.Addr(), SrcPort: port, Dst: front.Addr(), DstPort: 80, Proto: model.TCP, In: "eth0"})
			if len(asked) != 2 || asked[0].AddrPort() != backends[i] {
				continue
			}
			known++
			if known%2 == 0 {
				_, raw := n.first.sent(t, packet{proto: unix.IPPROTO_TCP, flags: syn, src: client, dst: front})
				n.other.runBytes(t, "ingress", raw)
			}
			data := packet{proto: unix.IPPROTO_TCP, flags: ack, src: client, dst: front, body: []byte("GET /")}
			got, raw := fourth.sent(t, data)
			expectPacket(t, "first choice", goOn, got, goOn, client, backends[i])
			verdict, raw := n.second.runBytes(t, "ingress", raw)
			if verdict != goOn && verdict != redirect {
				t.Fatalf("at the first choice: verdict %d", int32(verdict))
			}
			got, err := read(raw[14:], false)
			must(t, err)
			expectPacket(t, "second choice", goOn, got, goOn, client, elsewhere[i])
			before := n.strays(t, n.other)
			verdict, out := n.other.runBytes(t, "ingress", raw)
			if known%2 == 1 {
				if after := n.strays(t, n.other); verdict == goOn || after.Reset != before.Reset+1 || after.ForwardedAgain != before.ForwardedAgain {
					t.Errorf("unknown at the second choice: verdict %d, counted %+v, was %+v", int32(verdict), after, before)
				}
				continue
			}
			data.dst = elsewhere[i]
			if want := data.bytes(); verdict != goOn || !equalButHops(out[14:], want[14:]) {
				t.Errorf("verdict %d, the backend gets\n%x, expected\n%x", int32(verdict), out, want)
			}
		}
	}
	if got := n.strays(t, n.second); got.ForwardedAgain != 8 {
		t.Errorf("counted %+v, expected 8 packets that were led to the second choice", got)
	}
}
