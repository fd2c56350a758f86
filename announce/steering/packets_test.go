package steering

import (
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// frameTo is a frame of a client's packet to port 80 of an address, from a machine with a MAC. Flags
// are TCP's; 0 is a UDP packet.
func frameTo(a netip.Addr, from net.HardwareAddr, client uint16, flags byte) []byte {
	frame := append(slices.Concat(make([]byte, 6), from), 0x08, 0)
	proto := byte(unix.IPPROTO_TCP)
	if flags == 0 {
		proto = unix.IPPROTO_UDP
	}
	frame = append(frame, 0x45, 0, 0, 40, 0, 1, 0, 0, 64, proto, 0, 0, 198, 51, 100, 1)
	if a.Is6() {
		frame = append(slices.Concat(make([]byte, 6), from), 0x86, 0xdd, 0x60, 0, 0, 0, 0, 20, proto, 64)
		client6 := netip.MustParseAddr("2001:db8::99")
		frame = append(frame, client6.AsSlice()...)
	}
	frame = append(frame, a.AsSlice()...)
	return append(frame, byte(client>>8), byte(client), 0, 80, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, flags, 0xff, 0xff, 0, 0, 0, 0)
}

const (
	syn = 2
	ack = 16
	udp = 0
)

var (
	router = net.HardwareAddr{2, 0, 0, 0, 1, 1}
	former = net.HardwareAddr{2, 0, 0, 0, 0, 7}
	nodeA  = net.HardwareAddr{2, 0, 0, 0, 0, 8}
	nodeB  = net.HardwareAddr{2, 0, 0, 0, 0, 9}
)

// expect says to whom the program leads a packet; nil is the data plane here.
func (p *Program) expect(t *testing.T, what string, a netip.Addr, from net.HardwareAddr, port uint16, flags byte, want net.HardwareAddr) {
	t.Helper()
	const pass, redirect = ^uint32(0), 7 // TC_ACT_UNSPEC, TC_ACT_REDIRECT
	verdict, out, err := p.site.loaded.Programs[steeringProgSteering].Test(frameTo(a, from, port, flags))
	must(t, err)
	switch {
	case want == nil && verdict != pass:
		t.Errorf("%s, %s: verdict %d, led to %s, want the data plane", a, what, int32(verdict), net.HardwareAddr(out[:6]))
	case want != nil && (verdict != redirect || !slices.Equal(out[:6], want)):
		t.Errorf("%s, %s: verdict %d, led to %s, want %s", a, what, int32(verdict), net.HardwareAddr(out[:6]), want)
	}
}

var bothFamilies = []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}

// TestKindsOfOneAddress: an address may have moved from its former owner while routers choose anew
// among nodes, on one interface. What is led to others is told from what began here, once for both.
func TestKindsOfOneAddress(t *testing.T) {
	device := inNamespace(t)
	for _, a := range bothFamilies {
		at := NewInterfaces()
		handoff, err := at.Open(device, Handoff)
		must(t, err)
		routers, err := at.Open(device, Routers)
		must(t, err)
		lead := func(p *Program, after int, nodes ...net.HardwareAddr) {
			t.Helper()
			must(t, p.Lead(a, Ring{Nodes: nodes, After: after}, time.Minute))
		}
		must(t, routers.Know(nodeA))
		must(t, routers.Know(nodeB))

		lead(handoff, 0, former)
		handoff.expect(t, "a connection begins", a, router, 4000, syn, nil)
		handoff.expect(t, "it goes on", a, router, 4000, ack, nil)
		handoff.expect(t, "one of before", a, router, 4001, ack, former)
		handoff.expect(t, "the former owner leads it back", a, former, 4001, ack, nil)
		handoff.expect(t, "a UDP flow of before", a, router, 4001, udp, former)
		handoff.expect(t, "one of before by way of a node that routers know, too", a, nodeA, 4001, ack, former)

		lead(routers, 0)
		handoff.expect(t, "routers are about to choose anew, a connection of before", a, router, 4001, ack, former)
		handoff.expect(t, "one of here", a, router, 4000, ack, nil)

		lead(routers, 1, nodeA, nodeB)
		handoff.expect(t, "in the ring, a connection of before", a, router, 4002, ack, nodeA)
		handoff.expect(t, "it comes from a node", a, nodeA, 4002, ack, nodeB)
		handoff.expect(t, "one of here comes from a node", a, nodeA, 4000, ack, nil)
		lead(routers, 2, nodeA, nodeB)
		handoff.expect(t, "it has been round", a, nodeB, 4002, ack, former)
		handoff.expect(t, "the former owner leads it back, with a ring", a, former, 4002, ack, nil)

		_, err = handoff.End(a)
		must(t, err)
		routers.expect(t, "without a former owner, it has been round", a, nodeB, 4002, ack, nil)
		routers.expect(t, "and comes from a router", a, router, 4002, ack, nodeA)
		lead(routers, 0)
		routers.expect(t, "nobody has others", a, router, 4002, ack, nil)
		must(t, routers.Detach())
		must(t, handoff.Detach())
		expectLeftovers(t)
	}
}

// TestManyBegin: however many connections begin after a move, none that is still there is led to
// the former owner. When there is no room for more, nothing is led there.
func TestManyBegin(t *testing.T) {
	p, a := open(t, inNamespace(t), Handoff), bothFamilies[0]
	must(t, p.Lead(a, Ring{Nodes: []net.HardwareAddr{former}}, time.Minute))
	p.expect(t, "a connection begins", a, router, 4000, syn, nil)
	p.expect(t, "one of before", a, router, 4001, ack, former)
	var last error
	begun := p.site.loaded.Maps[steeringMapBegun]
	client := netip.MustParseAddr("10.0.0.1")
	for n := uint32(0); n < begun.MaxEntries() && last == nil; n++ {
		last = begun.Put(keyOf(Flow{Client: netip.AddrPortFrom(client, 4000), Port: 80, Proto: unix.IPPROTO_TCP}, a), uint64(1))
		client = client.Next()
	}
	if last == nil {
		t.Fatal("the table takes more than it has room for")
	}
	p.expect(t, "another one begins", a, router, 4002, syn, nil)
	p.expect(t, "the first one goes on", a, router, 4000, ack, nil)
	p.expect(t, "one of before, whose packets aren't told from others' any more", a, router, 4001, ack, nil)
	must(t, p.site.forget(map[netip.Addr]map[Flow]bool{a: {tcpFlow(4000): true}}, 0))
	p.expect(t, "it still goes on", a, router, 4000, ack, nil)
	if p.IsCrowded() {
		t.Error("connections that are over count")
	}
	must(t, p.Detach())
}
