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
