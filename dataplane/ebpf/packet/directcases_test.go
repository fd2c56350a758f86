package packet

import (
	"bytes"
	"math/rand/v2"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/model"
)

// testOnlyWhereAsked: options about other nodes' pods, and about Services
// without direct server return, are left as they are.
func (n directNodes) testOnlyWhereAsked(t *testing.T, clients [2]netip.AddrPort) {
	for i := range firstNode {
		for what, table := range map[string]*model.Table{
			"another node's pod": directTable(secondNode, false, true),
			"not asked for":      directTable(secondNode, true, false),
			"nothing known":      model.NewTable(),
		} {
			n.second.program(t, table)
			_, raw := n.first.sent(t, packet{proto: unix.IPPROTO_UDP, src: clients[i], dst: fronts(i)[0]})
			if verdict, out := n.second.runBytes(t, "ingress", raw); verdict != goOn || !bytes.Equal(out, raw) {
				t.Errorf("%s: verdict %d, %x became %x", what, int32(verdict), raw, out)
			}
		}
	}
}

// testBroken gives the second node options that were spoilt on the way: it must
// neither fail nor touch what it doesn't understand.
func (n directNodes) testBroken(t *testing.T, clients [2]netip.AddrPort) {
	r := rand.New(rand.NewPCG(3, 4))
	for k := range 1000 {
		i := k % 2
		p := packet{proto: []uint8{unix.IPPROTO_TCP, unix.IPPROTO_UDP}[r.IntN(2)], flags: syn, options: r.IntN(2) == 0,
			src: clients[i], dst: fronts(i)[r.IntN(2)], body: make([]byte, r.IntN(40))}
		_, raw := n.first.sent(t, p)
		header := 14 + 20 + 20*i
		option := header + []int{12, 24}[i]
		for range 1 + r.IntN(2) {
			raw[14+r.IntN(option-14)] ^= byte(1 + r.IntN(255))
		}
		raw = raw[:max(header, len(raw)-r.IntN(30))]
		verdict, out := n.second.runBytes(t, "ingress", raw)
		taken := len(out) == len(raw)-(option-header)
		if verdict != shot && (verdict != goOn || !taken && !bytes.Equal(out, raw)) {
			t.Fatalf("verdict %d: %x became %x", int32(verdict), raw, out)
		}
		if i == 0 && taken && headerSum(raw) == 0xffff && headerSum(out) != 0xffff {
			t.Fatalf("%x became %x: the checksum is wrong", raw, out)
		}
	}
}

// headerSum is that of a frame's IPv4 header, 0xffff if it is right.
func headerSum(frame []byte) uint16 { return sum(frame[14 : 14+4*int(frame[14]&15)]) }

// testLocal: a backend of this very node needs no option, and no masquerading.
func (n directNodes) testLocal(t *testing.T, clients [2]netip.AddrPort) {
	n.first.program(t, directTable(firstNode, true, true))
	defer func() { n.first.program(t, directTable(firstNode, false, true)) }()
	b := n.first
	for i := range firstNode {
		verdict, got := b.run(t, "ingress", packet{proto: unix.IPPROTO_TCP, flags: syn, src: clients[i], dst: fronts(i)[0]})
		expectPacket(t, "local", verdict, got, goOn, clients[i], backends[i])
		if len(got.extra) > 0 {
			t.Errorf("an option to a local backend: %x", got.extra)
		}
		verdict, got = b.run(t, "egress", packet{proto: unix.IPPROTO_TCP, flags: syn | ack, src: backends[i], dst: clients[i]})
		expectPacket(t, "answer", verdict, got, goOn, fronts(i)[0], clients[i])
	}
}

// testSharedPort: a client has connections from one port to two frontends
// with one backend. The first node tells them apart by another port, which the
// client doesn't see; what can't be told apart is let go.
func (n directNodes) testSharedPort(t *testing.T, clients [2]netip.AddrPort) {
	for i := range firstNode {
		for _, front := range fronts(i) {
			got, raw := n.first.sent(t, packet{proto: unix.IPPROTO_TCP, flags: syn, src: clients[i], dst: front})
			n.second.runBytes(t, "ingress", raw)
			verdict, back := n.second.run(t, "egress", packet{proto: unix.IPPROTO_TCP, flags: syn | ack, src: got.dst, dst: got.src})
			expectPacket(t, front.String(), verdict, back, goOn, front, clients[i])
		}
		third := netip.AddrPortFrom(otherNode[i], nodePort)
		_, raw := n.other.sent(t, packet{proto: unix.IPPROTO_TCP, flags: syn, src: clients[i], dst: third})
		if verdict, _ := n.second.runBytes(t, "ingress", raw); verdict != shot {
			t.Errorf("a connection like another, by another node: verdict %d", int32(verdict))
		}
		_, raw = n.other.sent(t, packet{proto: unix.IPPROTO_UDP, src: clients[i], dst: third})
		n.second.runBytes(t, "ingress", raw)
		verdict, back := n.second.run(t, "egress", packet{proto: unix.IPPROTO_UDP, src: backends[i], dst: clients[i]})
		expectPacket(t, "UDP by another node", verdict, back, goOn, third, clients[i])
	}
}

// testToItself: a process of the second node has come by the first one; its
// answers come home at the second without having left it.
func (n directNodes) testToItself(t *testing.T, clients [2]netip.AddrPort) {
	for i := range firstNode {
		client := netip.AddrPortFrom(secondNode[i], clients[i].Port())
		_, raw := n.first.sent(t, packet{proto: unix.IPPROTO_TCP, flags: syn, src: client, dst: fronts(i)[0]})
		n.second.runBytes(t, "ingress", raw)
		verdict, got := n.second.run(t, "ingress", packet{proto: unix.IPPROTO_TCP, flags: syn | ack, src: backends[i], dst: client})
		expectPacket(t, "answer", verdict, got, redirect, fronts(i)[0], client)
	}
}

// testErrors: an ICMP error about the size of a packet with an option speaks
// of what the client's own packets may have; others of the backend's leave in
// the frontend's name.
func (n directNodes) testErrors(t *testing.T, clients [2]netip.AddrPort) {
	for i := range firstNode {
		front := fronts(i)[0]
		_, raw := n.first.sent(t, packet{proto: unix.IPPROTO_UDP, src: clients[i], dst: front, body: make([]byte, 64)})
		tooBig := []packet{{proto: unix.IPPROTO_ICMP, first: 3, code: 4, mtu: 1500}, {proto: unix.IPPROTO_ICMPV6, first: 2, mtu: 1500}}[i]
		tooBig.src, tooBig.dst, tooBig.body = netip.AddrPortFrom(firstNode[i], 0), netip.AddrPortFrom(clients[i].Addr(), 0), raw[14:]
		verdict, got := n.first.run(t, "egress", tooBig)
		expectPacket(t, "too big", verdict, got, goOn, tooBig.src, tooBig.dst)
		if want := uint32(1500 - []int{12, 24}[i]); got.mtu != want {
			t.Errorf("the client is told of %d bytes, expected %d", got.mtu, want)
		}
		quoted, err := read(got.body, true)
		must(t, err)
		expectPacket(t, "too big, quoted", 0, quoted, 0, clients[i], front)

		_, out := n.second.runBytes(t, "ingress", raw)
		closed := []packet{{proto: unix.IPPROTO_ICMP, first: 3, code: 3}, {proto: unix.IPPROTO_ICMPV6, first: 1, code: 4}}[i]
		closed.src, closed.dst, closed.body = netip.AddrPortFrom(backends[i].Addr(), 0), tooBig.dst, out[14:]
		verdict, got = n.second.run(t, "egress", closed)
		expectPacket(t, "port unreachable", verdict, got, goOn, netip.AddrPortFrom(front.Addr(), 0), closed.dst)
		quoted, err = read(got.body, true)
		must(t, err)
		expectPacket(t, "port unreachable, quoted", 0, quoted, 0, clients[i], front)
	}
}

// TestDirectTimeouts: the first node sees the client's half of connections only.
func TestDirectTimeouts(t *testing.T) {
	for _, c := range []struct {
		proto, client uint8
		want          uint32
	}{
		{unix.IPPROTO_TCP, stepUsed | 1, tcpOpening},
		{unix.IPPROTO_TCP, stepUsed | 1 | stepAcks, tcpEstablished},
		{unix.IPPROTO_TCP, stepUsed | stepAcks | stepCloses, directClosed},
		{unix.IPPROTO_TCP, stepUsed | stepAcks | stepResets, tcpReset},
		{unix.IPPROTO_UDP, stepUsed, udpStream},
	} {
		all := connection{}
		all.add(&tcTuple{Proto: c.proto}, &tcConn{Kind: tcKindSENT_CLIENTS, Steps: c.client})
		all.add(&tcTuple{Proto: c.proto}, &tcConn{Kind: tcKindSENT_ANSWERS})
		if got := all.timeout(); got != c.want {
			t.Errorf("protocol %d, steps %b: %d s, expected %d", c.proto, c.client, got, c.want)
		}
	}
}
