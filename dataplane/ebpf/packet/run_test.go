package packet

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/dataplane/ebpf/maps"
	"github.com/fairway-net/fairway/dataplane/ebpf/pins"
	"github.com/fairway-net/fairway/dataplane/ebpf/sock"
	"github.com/fairway-net/fairway/internal/bpffs"
	"github.com/fairway-net/fairway/model"
)

// What programs say of packets (linux/pkt_cls.h).
const (
	goOn     = ^uint32(0) // TC_ACT_UNSPEC
	shot     = 2
	redirect = 7
)

// bench runs the programs with packets that no network has seen
// (BPF_PROG_TEST_RUN).
type bench struct {
	programs map[string]*ebpf.Program
	dir      string // of pins
	store    *maps.Store
	conns    *connTable
}

var (
	clients  = [2]netip.AddrPort{netip.MustParseAddrPort("192.0.2.1:40000"), netip.MustParseAddrPort("[2001:db8::1]:40000")}
	served   = [2]netip.AddrPort{netip.MustParseAddrPort("10.96.0.10:80"), netip.MustParseAddrPort("[fd00:10:96::a]:80")}
	unserved = [2]netip.AddrPort{netip.MustParseAddrPort("10.96.0.10:81"), netip.MustParseAddrPort("[fd00:10:96::a]:81")}
	backends = [2]netip.AddrPort{netip.MustParseAddrPort("10.244.1.2:8080"), netip.MustParseAddrPort("[fd00:10:244:1::2]:8080")}
	nodes    = [2]netip.Addr{netip.MustParseAddr("172.30.0.11"), netip.MustParseAddr("fd00:172:30::b")}
)

func newBench(t testing.TB, masquerade bool) *bench {
	t.Helper()
	return newBenchWith(t, masquerade, func(string, *ebpf.CollectionSpec) {})
}

// newBenchWith is newBench with something done before there are maps: in the
// directory of pins, or to what maps and programs are made from.
func newBenchWith(t testing.TB, masquerade bool, prepare func(pins string, tc *ebpf.CollectionSpec)) *bench {
	t.Helper()
	spec, err := loadTc()
	must(t, err)
	b := &bench{dir: filepath.Join(bpffs.Dir, "fairway", fmt.Sprintf("test-%d", os.Getpid()))}
	prepare(filepath.Join(b.dir, pins.Layout), spec)
	b.load(t, spec)
	b.program(t, benchTable(masquerade))
	return b
}

// load makes the maps and has the kernel take the programs.
func (b *bench) load(t testing.TB, spec *ebpf.CollectionSpec) {
	t.Helper()
	must(t, rlimit.RemoveMemlock())
	sock, err := sock.Programs()
	must(t, err)
	b.store, err = maps.Open(b.dir, sock, spec)
	must(t, err)
	b.conns, err = openConns(b.store, spec.Maps)
	must(t, err)
	t.Cleanup(func() { b.clear(t) })
	collection, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: b.store.ForSpec(spec)})
	must(t, err)
	t.Cleanup(collection.Close)
	b.programs = collection.Programs
	l := tcLink{}
	l.setOwn(nodes[0], false)
	l.setOwn(nodes[1], false)
	must(t, b.store.Maps[tcMapLinks].Put(uint32(0), l))
}

func benchTable(masquerade bool) *model.Table {
	e := model.NewTable().Edit()
	e.SetSettings(&model.Settings{Reserved: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd00:10:96::/112")}})
	for i, front := range served {
		for _, proto := range []model.Protocol{model.TCP, model.UDP, model.SCTP} {
			id := model.PoolID{Name: "default/web:http", Proto: proto, IPv6: i == 1}
			e.SetPool(&model.Pool{ID: id, Backends: []model.Backend{{Addr: backends[i].Addr(), Port: backends[i].Port(), Weight: 1}}})
			r := model.Route{Pool: id, Masquerade: masquerade}
			e.SetFrontend(&model.Frontend{Key: model.Key{Addr: front.Addr(), Port: front.Port(), Proto: proto}, Name: id.Name, Routes: [3]model.Route{r, r, r}})
		}
	}
	return e.Table()
}

// run gives a packet to a program and reads what becomes of it.
func (b *bench) run(t testing.TB, program string, p packet) (uint32, packet) {
	t.Helper()
	verdict, out := b.runBytes(t, program, p.bytes())
	got, err := read(out[14:], false)
	if err != nil {
		t.Errorf("%s %+v: %v\n%x", program, p, err, out)
	}
	return verdict, got
}

func (b *bench) runBytes(t testing.TB, program string, in []byte) (uint32, []byte) {
	t.Helper()
	o := &ebpf.RunOptions{Data: in, DataOut: make([]byte, len(in)+256)}
	verdict, err := b.programs[program].Run(o)
	must(t, err)
	return verdict, o.DataOut
}

// between describes a packet for comparison.
func (p packet) between() string { return fmt.Sprintf("%s > %s", p.src, p.dst) }

func expectPacket(t *testing.T, what string, verdict uint32, got packet, wantVerdict uint32, src, dst netip.AddrPort) {
	t.Helper()
	if verdict != wantVerdict || got.between() != (packet{src: src, dst: dst}).between() {
		t.Errorf("%s: verdict %d, %s; expected %d, %s > %s", what, int32(verdict), got.between(), int32(wantVerdict), src, dst)
	}
}

// TestTranslate sends packets of all kinds there and back.
func TestTranslate(t *testing.T) {
	b := newBench(t, false)
	for i := range served {
		for n, p := range []packet{
			{proto: unix.IPPROTO_TCP, flags: syn},
			{proto: unix.IPPROTO_TCP, flags: syn, options: true},
			{proto: unix.IPPROTO_UDP, body: []byte("odd length!")},
			{proto: unix.IPPROTO_UDP, noSum: true},
			{proto: unix.IPPROTO_UDP, body: make([]byte, 1400), options: true},
			{proto: unix.IPPROTO_SCTP, first: 1, body: []byte("an INIT, more or less")},
		} {
			client := netip.AddrPortFrom(clients[i].Addr(), clients[i].Port()+uint16(n))
			what := fmt.Sprintf("%v %d", served[i], n)
			p.src, p.dst = client, served[i]
			verdict, got := b.run(t, "ingress", p)
			expectPacket(t, what, verdict, got, goOn, client, backends[i])
			if !bytes.Equal(got.body, p.body) && p.proto != unix.IPPROTO_SCTP || got.noSum != p.noSum {
				t.Errorf("%s: more has changed than addresses: %+v", what, got)
			}
			p.src, p.dst, p.flags, p.first = backends[i], client, syn|ack, 2
			verdict, got = b.run(t, "egress", p)
			expectPacket(t, what+" answered", verdict, got, goOn, served[i], client)
			p.src, p.dst = served[i], client
			verdict, got = b.run(t, "ingress", p)
			expectPacket(t, what+" another way", verdict, got, goOn, served[i], client)
		}
	}
}

// TestMasquerade has the node's address and another port on the way.
func TestMasquerade(t *testing.T) {
	b := newBench(t, true)
	for i := range served {
		for _, proto := range []uint8{unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_SCTP} {
			p := packet{proto: proto, flags: syn, first: 1, src: clients[i], dst: served[i]}
			verdict, got := b.run(t, "ingress", p)
			inside := got.src
			expectPacket(t, "inside", verdict, got, goOn, netip.AddrPortFrom(clients[i].Addr(), inside.Port()), backends[i])
			if inside == clients[i] {
				t.Errorf("inside the node %s looks like a connection of the client's own", got.between())
			}
			_, got = b.run(t, "egress", got.begin())
			if got.src.Addr() != nodes[i] || got.dst != backends[i] {
				t.Fatalf("outside: %s", got.between())
			}
			_, got = b.run(t, "ingress", packet{proto: proto, flags: syn | ack, first: 2, src: backends[i], dst: got.src})
			expectPacket(t, "answer inside", goOn, got, goOn, backends[i], inside)
			_, got = b.run(t, "egress", packet{proto: proto, flags: syn | ack, first: 2, src: got.src, dst: got.dst})
			expectPacket(t, "answer outside", goOn, got, goOn, served[i], clients[i])
		}
	}
}

func (p packet) begin() packet {
	p.flags, p.first = syn, 1
	return p
}

// TestFragmentsFollow has later fragments go where the first one goes.
func TestFragmentsFollow(t *testing.T) {
	b := newBench(t, false)
	for i := range served {
		late := packet{proto: unix.IPPROTO_UDP, src: clients[i], dst: served[i], id: 8, offset: 64, body: make([]byte, 20)}
		if verdict, _ := b.runBytes(t, "ingress", late.bytes()); verdict != shot {
			t.Errorf("a later fragment without first one: verdict %d", verdict)
		}
		first := packet{proto: unix.IPPROTO_UDP, src: clients[i], dst: served[i], id: 7, more: true, body: make([]byte, 56)}
		verdict, got := b.run(t, "ingress", first)
		expectPacket(t, "first", verdict, got, goOn, clients[i], backends[i])
		late.id = 7
		verdict, got = b.run(t, "ingress", late)
		expectPacket(t, "later", verdict, got, goOn, netip.AddrPortFrom(clients[i].Addr(), 0), netip.AddrPortFrom(backends[i].Addr(), 0))
	}
}

// TestRefuse reads the answers to what nothing serves.
func TestRefuse(t *testing.T) {
	b := newBench(t, false)
	for i := range served {
		verdict, got := b.run(t, "ingress", packet{proto: unix.IPPROTO_TCP, flags: syn, seq: 1000, src: clients[i], dst: unserved[i], body: []byte("fast open")})
		expectPacket(t, "RST", verdict, got, redirect, unserved[i], clients[i])
		if got.flags != rst|ack || got.seq != 0 || got.ack != 1000+1+9 {
			t.Errorf("answer to SYN: %+v", got)
		}
		_, got = b.run(t, "ingress", packet{proto: unix.IPPROTO_TCP, flags: ack, seq: 1000, ack: 77, src: clients[i], dst: served[i]})
		if got.flags != rst || got.seq != 77 {
			t.Errorf("answer to a stray segment: %+v", got)
		}
		if verdict, _ := b.run(t, "ingress", packet{proto: unix.IPPROTO_TCP, flags: rst, src: clients[i], dst: unserved[i]}); verdict != shot {
			t.Errorf("RST to nobody: verdict %d", verdict)
		}
		for _, size := range []int{0, 3, 300} {
			in := packet{proto: unix.IPPROTO_UDP, src: clients[i], dst: unserved[i], body: make([]byte, size)}
			verdict, got = b.run(t, "ingress", in)
			expectPacket(t, "ICMP error", verdict, got, redirect, netip.AddrPortFrom(unserved[i].Addr(), 0), netip.AddrPortFrom(clients[i].Addr(), 0))
			if want := [2][2]byte{{3, 3}, {1, 4}}[i]; got.first != want[0] || got.code != want[1] {
				t.Errorf("ICMP error is %d %d", got.first, got.code)
			}
			if quoted, err := read(got.body, true); err != nil || quoted.between() != in.between() {
				t.Errorf("ICMP error quotes %s, %v; expected %s", quoted.between(), err, in.between())
			}
		}
	}
}

// TestErrors translates ICMP errors of routers and ends on both sides.
func TestErrors(t *testing.T) {
	b := newBench(t, true)
	routers := [2]netip.AddrPort{netip.MustParseAddrPort("198.51.100.1:0"), netip.MustParseAddrPort("[2001:db8:1::1]:0")}
	types := [2]packet{{proto: unix.IPPROTO_ICMP, first: 3, code: 4, mtu: 1300}, {proto: unix.IPPROTO_ICMPV6, first: 2, mtu: 1300}}
	for i := range served {
		to := packet{proto: unix.IPPROTO_TCP, flags: syn, src: clients[i], dst: served[i]}
		_, inside := b.run(t, "ingress", to)
		_, outside := b.run(t, "egress", inside)
		for _, c := range []struct {
			what, program    string
			about            packet // the packet that the error is about
			from             netip.AddrPort
			then, wantFrom   netip.AddrPort
			wantSrc, wantDst netip.AddrPort
		}{
			{"beyond the node", "ingress", outside, routers[i], clients[i], routers[i], inside.src, backends[i]},
			{"of the backend", "ingress", outside, backends[i], clients[i], backends[i], inside.src, backends[i]},
			{"of the node", "egress", inside, routers[i], clients[i], routers[i], clients[i], served[i]},
			{"of the backend, leaving", "egress", inside, backends[i], clients[i], served[i], clients[i], served[i]},
			{"before the node", "ingress", packet{src: served[i], dst: clients[i]}, routers[i], backends[i], routers[i], backends[i], inside.src},
			{"before the node, leaving", "egress", packet{src: backends[i], dst: inside.src}, routers[i], backends[i], routers[i], backends[i], outside.src},
		} {
			c.about.proto = unix.IPPROTO_TCP
			in := types[i]
			in.src, in.dst, in.body = c.from, netip.AddrPortFrom(c.about.src.Addr(), 0), c.about.ip()
			in.body = in.body[:len(in.body)-12] // 8 bytes behind the IP header
			verdict, got := b.run(t, c.program, in)
			expectPacket(t, c.what, verdict, got, goOn, netip.AddrPortFrom(c.wantFrom.Addr(), 0), netip.AddrPortFrom(c.then.Addr(), 0))
			quoted, err := read(got.body, true)
			if err != nil {
				t.Errorf("%s: %v", c.what, err)
			}
			expectPacket(t, c.what+", quoted", 0, quoted, 0, c.wantSrc, c.wantDst)
		}
	}
}

// TestGarbage gives the programs broken packets: those that aren't for Services
// must go on as they are.
func TestGarbage(t *testing.T) {
	b := newBench(t, true)
	r := rand.New(rand.NewPCG(1, 2))
	for n := range 2000 {
		i := n % 2
		p := packet{proto: []uint8{6, 17, 132, 1, 58, 47}[r.IntN(6)], src: clients[i], dst: served[i], flags: byte(r.Int()), first: byte(r.IntN(16)),
			options: r.IntN(4) == 0, more: r.IntN(4) == 0, offset: r.IntN(2) * 8, body: make([]byte, r.IntN(100))}
		elsewhere := r.IntN(2) == 0
		if elsewhere {
			p.dst = netip.AddrPortFrom(nodes[i], 22)
		}
		raw := p.bytes()
		for range r.IntN(4) {
			at := 14 + r.IntN(len(raw)-14)
			if elsewhere && at >= 26 && at < 54 {
				continue // leave the addresses
			}
			raw[at] = byte(r.Int())
		}
		header := 14 + 20 + 20*i // the kernel wants it whole for a test
		raw = raw[:header+r.IntN(len(raw)-header+1)]
		for _, program := range []string{"ingress", "egress"} {
			verdict, out := b.runBytes(t, program, raw)
			if elsewhere && (verdict != goOn || !bytes.Equal(out, raw)) {
				t.Fatalf("%s, verdict %d: %x\nbecame %x", program, int32(verdict), raw, out)
			}
		}
	}
}

// program writes a table into the maps.
func (b *bench) program(t testing.TB, want *model.Table) {
	t.Helper()
	_, err := b.store.Compare(want, "")
	must(t, err)
}

// clear removes everything that is pinned.
func (b *bench) clear(t testing.TB) {
	must(t, errors.Join(b.conns.turns.close(), b.store.Close()))
	must(t, pins.Remove(b.dir))
}
