package packet

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/dataplane/ebpf/maps"
	"github.com/fairway-net/fairway/dataplane/ebpf/sock"
	"github.com/fairway-net/fairway/internal/bpffs"
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
	sock, err := sock.Programs()
	must(t, err)
	spec, err := loadTc()
	must(t, err)
	b := &bench{dir: filepath.Join(bpffs.Dir, "fairway", fmt.Sprintf("test-%s-%d", name, os.Getpid()))}
	b.store, err = maps.Open(b.dir, sock, spec)
	must(t, err)
	b.conns, err = openConns(b.store, spec.Maps)
	must(t, err)
	t.Cleanup(func() { b.clear(t) })
	collection, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: b.store.ForSpec(spec)})
	must(t, err)
	t.Cleanup(collection.Close)
	b.programs = collection.Programs
	b.program(t, directTable(addrs, local, true))
	l := tcLink{}
	l.setOwn(addrs[0], false)
	l.setOwn(addrs[1], false)
	must(t, b.store.Maps[tcMapLinks].Put(uint32(0), l))
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
