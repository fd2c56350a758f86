package ebpf

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/model"
)

// The two nodes of direct server return: packets come to the first, backends are
// on the second.
var (
	firstNode  = [2]netip.Addr{netip.MustParseAddr("172.30.0.11"), netip.MustParseAddr("fd00:172:30::b")}
	secondNode = [2]netip.Addr{netip.MustParseAddr("172.30.0.12"), netip.MustParseAddr("fd00:172:30::c")}
	otherNode  = [2]netip.Addr{netip.MustParseAddr("172.30.0.13"), netip.MustParseAddr("fd00:172:30::d")}
	balancer   = [2]netip.Addr{netip.MustParseAddr("203.0.113.7"), netip.MustParseAddr("2001:db8::7")}
)

const nodePort = 30080

// newNode is a bench of its own, with the frontends that this node has.
func newNode(t *testing.T, name string, addrs [2]netip.Addr, local bool) *bench {
	t.Helper()
	must(t, rlimit.RemoveMemlock())
	sock, err := loadSock()
	must(t, err)
	spec, err := loadTc()
	must(t, err)
	b := &bench{plane: &Plane{dir: filepath.Join(bpffs, "fairway", fmt.Sprintf("test-%s-%d", name, os.Getpid()))}}
	b.plane.store, err = openStore(b.plane.dir, sock, spec)
	must(t, err)
	t.Cleanup(func() { must(t, b.plane.Remove(context.Background())) })
	collection, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: b.plane.store.forSpec(spec)})
	must(t, err)
	t.Cleanup(collection.Close)
	b.programs = collection.Programs
	must(t, b.plane.compare(directTable(addrs, local, true)))
	l := tcLink{}
	l.setOwn(addrs[0], false)
	l.setOwn(addrs[1], false)
	must(t, b.plane.store.maps[tcMapLinks].Put(uint32(0), l))
	return b
}

// directTable has a node port and a load-balancer address in each family.
func directTable(addrs [2]netip.Addr, local, direct bool) *model.Table {
	e := model.NewTable().Edit()
	e.SetSettings(&model.Settings{NodeAddrs: addrs[:]})
	for i := range addrs {
		for _, proto := range []model.Protocol{model.TCP, model.UDP} {
			id := model.PoolID{Name: "default/web:http", Proto: proto, IPv6: i == 1}
			e.SetPool(&model.Pool{ID: id, Backends: []model.Backend{{Addr: backends[i].Addr(), Port: backends[i].Port(), Weight: 1, Local: local}}})
			masqueraded := model.Route{Pool: id, Masquerade: true}
			outside := masqueraded
			outside.Direct = direct
			for _, front := range []netip.AddrPort{netip.AddrPortFrom(addrs[i], nodePort), netip.AddrPortFrom(balancer[i], 80)} {
				e.SetFrontend(&model.Frontend{Key: model.Key{Addr: front.Addr(), Port: front.Port(), Proto: proto}, Name: id.Name,
					Routes: [3]model.Route{masqueraded, masqueraded, outside}})
			}
		}
	}
	return e.Table()
}

// fronts are where clients send to, by family.
func fronts(i int) []netip.AddrPort {
	return []netip.AddrPort{netip.AddrPortFrom(firstNode[i], nodePort), netip.AddrPortFrom(balancer[i], 80)}
}

// sent is what the first node makes of a packet: it goes on to the second by
// way of the kernel or not, as the routes here may be.
func (b *bench) sent(t *testing.T, p packet) (packet, []byte) {
	t.Helper()
	verdict, out := b.runBytes(t, "ingress", p.bytes())
	if verdict != goOn && verdict != redirect {
		t.Fatalf("%s: verdict %d", p.between(), int32(verdict))
	}
	got, err := read(out[14:], false)
	must(t, err)
	return got, out
}

// directNodes are two that packets come to, and one that has the backends.
type directNodes struct{ first, second, other *bench }

// TestDirect is about direct server return. Each part has client ports of its own.
func TestDirect(t *testing.T) {
	n := directNodes{
		first:  newNode(t, "first", firstNode, false),
		second: newNode(t, "second", secondNode, true),
		other:  newNode(t, "other", otherNode, false),
	}
	for k, part := range []struct {
		name string
		test func(*testing.T, [2]netip.AddrPort)
	}{
		{"return", n.testReturn}, {"later", n.testLater}, {"local", n.testLocal}, {"shared port", n.testSharedPort},
		{"to itself", n.testToItself}, {"errors", n.testErrors}, {"broken", n.testBroken}, {"only where asked", n.testOnlyWhereAsked},
	} {
		from := clients
		for i := range from {
			from[i] = netip.AddrPortFrom(from[i].Addr(), from[i].Port()+uint16(100*k))
		}
		t.Run(part.name, func(t *testing.T) { part.test(t, from) })
	}
}

// testReturn sends packets of all kinds through both nodes, and the
// answers through the second alone.
func (n directNodes) testReturn(t *testing.T, clients [2]netip.AddrPort) {
	for i := range firstNode {
		for k, p := range []packet{
			{proto: unix.IPPROTO_TCP, flags: syn},
			{proto: unix.IPPROTO_TCP, flags: syn, options: true},
			{proto: unix.IPPROTO_UDP, body: []byte("odd length!")},
			{proto: unix.IPPROTO_UDP, noSum: true},
			{proto: unix.IPPROTO_UDP, body: make([]byte, 56), id: 9, more: true},
			{proto: unix.IPPROTO_UDP, body: make([]byte, 1300), options: true},
		} {
			for m, front := range fronts(i) {
				client := netip.AddrPortFrom(clients[i].Addr(), clients[i].Port()+uint16(2*k+m))
				what := fmt.Sprintf("%v %d", front, k)
				p.src, p.dst = client, front
				got, raw := n.first.sent(t, p)
				expectPacket(t, what, goOn, got, goOn, client, backends[i])
				if len(got.extra) < len(p.extra)+12 || !bytes.Equal(got.body, p.body) {
					t.Errorf("%s: no option in %x, or another body", what, raw)
				}
				verdict, out := n.second.runBytes(t, "ingress", raw)
				bare := p
				bare.dst = backends[i]
				if want := bare.bytes(); verdict != goOn || !equalButHops(out[14:], want[14:]) {
					t.Errorf("%s: verdict %d, the backend gets\n%x, expected\n%x", what, int32(verdict), out, want)
				}
				p := packet{proto: p.proto, flags: syn | ack, src: backends[i], dst: client}
				verdict, got = n.second.run(t, "egress", p)
				expectPacket(t, what+" answered", verdict, got, goOn, front, client)
			}
		}
	}
}

// equalButHops compares IP packets without their hop limits, and IPv4's checksum,
// which read has checked.
func equalButHops(a, b []byte) bool {
	blank := func(p []byte) []byte {
		p = bytes.Clone(p)
		if p[0]>>4 == 6 {
			p[7] = 0
			return p
		}
		p[8], p[10], p[11] = 0, 0, 0
		return p
	}
	_, err := read(a, false)
	return err == nil && bytes.Equal(blank(a), blank(b))
}

// testLater: what comes after TCP's SYN has no option, and reaches the
// backend all the same; the connection ends at the second node as at any.
func (n directNodes) testLater(t *testing.T, clients [2]netip.AddrPort) {
	for i := range firstNode {
		p := packet{proto: unix.IPPROTO_TCP, flags: syn, src: clients[i], dst: fronts(i)[0]}
		_, raw := n.first.sent(t, p)
		n.second.runBytes(t, "ingress", raw)
		p.flags, p.body = ack, []byte("GET /")
		got, raw := n.first.sent(t, p)
		expectPacket(t, "later", goOn, got, goOn, clients[i], backends[i])
		if len(got.extra) > 0 {
			t.Errorf("an option in a later packet: %x", raw)
		}
		verdict, out := n.second.runBytes(t, "ingress", raw)
		if verdict != goOn || !bytes.Equal(out, raw) {
			t.Errorf("later, at the second node: verdict %d, %x became %x", int32(verdict), raw, out)
		}
		// The client opens a connection to the backend itself, with the same port.
		own := packet{proto: unix.IPPROTO_TCP, flags: syn, src: clients[i], dst: backends[i]}
		if verdict, got := n.second.run(t, "ingress", own); verdict != goOn || got.between() != own.between() {
			t.Errorf("own connection: verdict %d, %s", int32(verdict), got.between())
		}
		verdict, got = n.second.run(t, "egress", packet{proto: unix.IPPROTO_TCP, flags: syn | ack, src: backends[i], dst: clients[i]})
		expectPacket(t, "own connection answered", verdict, got, goOn, backends[i], clients[i])
	}
}

// testOnlyWhereAsked: options about other nodes' pods, and about Services
// without direct server return, are left as they are.
func (n directNodes) testOnlyWhereAsked(t *testing.T, clients [2]netip.AddrPort) {
	for i := range firstNode {
		for what, table := range map[string]*model.Table{
			"another node's pod": directTable(secondNode, false, true),
			"not asked for":      directTable(secondNode, true, false),
			"nothing known":      model.NewTable(),
		} {
			must(t, n.second.plane.compare(table))
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
	must(t, n.first.plane.compare(directTable(firstNode, true, true)))
	defer func() { must(t, n.first.plane.compare(directTable(firstNode, false, true))) }()
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
		{unix.IPPROTO_TCP, stepUsed | 1 | stepAnswers, tcpEstablished},
		{unix.IPPROTO_TCP, stepUsed | stepAnswers | stepCloses, directClosed},
		{unix.IPPROTO_TCP, stepUsed | stepAnswers | stepResets, tcpReset},
		{unix.IPPROTO_UDP, stepUsed, udpStream},
	} {
		all := connection{}
		all.add(&tcTuple{Proto: c.proto}, &tcConn{Flags: connCounted | connDirect, Steps: c.client})
		all.add(&tcTuple{Proto: c.proto}, &tcConn{Flags: connDirect | connAnswer})
		if got := all.timeout(); got != c.want {
			t.Errorf("protocol %d, steps %b: %d s, expected %d", c.proto, c.client, got, c.want)
		}
	}
}
