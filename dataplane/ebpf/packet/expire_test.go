package packet

import (
	"context"
	"errors"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/dataplane/ebpf/maps"
	"github.com/fairway-net/fairway/internal/kernel"
)

// newSmallBench is a bench whose connection table has room for so many entries,
// masquerades with so many ports, and has no agent that would make it larger.
func newSmallBench(t *testing.T, entries uint32, ports uint16) *bench {
	t.Helper()
	return newBenchWith(t, true, func(_ string, tc *ebpf.CollectionSpec) {
		tc.Maps[maps.ConnsMap].InnerMap.MaxEntries, tc.Maps[turnsMap].InnerMap.MaxEntries = entries, entries/2
		must(t, tc.Variables["port_low"].Set(uint16(20000)))
		must(t, tc.Variables["port_count"].Set(ports))
	})
}

// opens has a client open a connection, and reports whether it reaches the backend.
// It goes as far as packets say: see converse.
func (b *bench) opens(t *testing.T, client netip.AddrPort, packets string) bool {
	t.Helper()
	first := packet{proto: unix.IPPROTO_TCP, flags: syn, src: client, dst: served[0]}
	verdict, in := b.run(t, "ingress", first)
	if verdict != goOn || in.dst != backends[0] {
		return false
	}
	in.flags = syn
	verdict, out := b.run(t, "egress", in)
	if verdict != goOn || out.dst != backends[0] || out.src.Addr() != nodes[0] {
		return false
	}
	b.converse(t, client.Port(), packets)
	return true
}

// TestWithoutAgent fills the connection table many times over, while nobody but
// the programs removes what has ended: no new connection is refused, whether the
// others were closed, only opened, or are datagrams, and what is established goes on.
func TestWithoutAgent(t *testing.T) {
	b := newSmallBench(t, 512, 20000)
	var open []*conversation
	for n := range 10 {
		c := &conversation{client: netip.AddrPortFrom(clients[0].Addr(), 9000+uint16(n))}
		b.converse(t, c.client.Port(), "SsAa")
		open = append(open, c)
	}
	for n := range 5000 {
		client := netip.AddrPortFrom(clients[0].Addr(), 10000+uint16(n))
		if !b.opens(t, client, []string{"S", "SsAFfA", "SsAF", "SS"}[n%4]) {
			t.Fatalf("connection %d is refused", n)
		}
		if n%100 == 0 {
			datagram := packet{proto: unix.IPPROTO_UDP, src: client, dst: served[0]}
			if verdict, in := b.run(t, "ingress", datagram); verdict != goOn || in.dst != backends[0] {
				t.Fatalf("flow %d is refused: %d", n, int32(verdict))
			}
			open[n/100%10].leaves(t, b, ack)
		}
	}
	for _, c := range open {
		c.leaves(t, b, ack)
	}
	n, err := b.store.Resizable[maps.ConnsMap].Count()
	if err != nil || n > 512 {
		t.Errorf("%d entries, %v", n, err)
	}
	must(t, b.store.Overflows())
	b.opens(t, clients[0], "S")
	for n := range 300 {
		b.opens(t, netip.AddrPortFrom(clients[0].Addr(), 40000+uint16(n)), "SsA")
	}
	if err := b.store.Overflows(); !kernel.IsFull(err) {
		t.Errorf("%v, expected to hear that connections had to go", err)
	}
}

// TestPortsAreUsedAgain has more connections masqueraded than there are ports, one
// after the other.
func TestPortsAreUsedAgain(t *testing.T) {
	b := newSmallBench(t, 1<<14, 100)
	for n := range 1000 {
		if client := netip.AddrPortFrom(clients[0].Addr(), 10000+uint16(n)); !b.opens(t, client, "SsAFfA") {
			drops, err := DropStats(context.Background(), b.dir)
			t.Fatalf("connection %d is refused: %v, %v", n, drops, err)
		}
	}
}

// TestAnswerSentAgain has the backend send its first answer twice, since the
// client's was lost: the connection goes on.
func TestAnswerSentAgain(t *testing.T) {
	b := newBench(t, true)
	c := &conversation{client: clients[0]}
	c.leaves(t, b, syn)
	for _, flags := range []uint8{syn | ack, syn | ack, ack} {
		verdict, in := b.run(t, "ingress", packet{proto: unix.IPPROTO_TCP, flags: flags, src: backends[0], dst: c.outside})
		in.flags = flags
		if verdict != goOn || in.dst.Addr() != c.client.Addr() {
			t.Fatalf("verdict %d, %s", int32(verdict), in.between())
		}
		verdict, out := b.run(t, "egress", in)
		expectPacket(t, "answer", verdict, out, goOn, served[0], c.client)
	}
}

// TestCollect has the agent collect connections as their time comes.
func TestCollect(t *testing.T) {
	b := newBench(t, true)
	table := b.conns
	table.collect = b.programs["collect"]
	for n, packets := range []string{"SsAFfA", "S", "SsA"} {
		b.converse(t, 10000+uint16(n), packets)
	}
	for _, step := range []struct {
		later uint32 // than the last packets
		left  uint32
	}{{0, 3*4 - 1}, {tcpOpening + 5, 2 * 4}, {tcpClosed + 5, 4}} { // a day's silence may be more than this machine has been up
		table.age(t, step.later)
		must(t, table.turns.rebuild(table))
		if left, err := table.collectEnded(); left || err != nil {
			t.Errorf("sweep: %t, %v", left, err)
		}
		if n, err := table.m.Count(); err != nil || n != step.left {
			t.Errorf("after %d s: %d entries, %v; expected %d", step.later, n, err, step.left)
		}
	}
}

// age has all entries seen so many seconds ago.
func (c *connTable) age(t *testing.T, seconds uint32) {
	t.Helper()
	now, err := monotonic()
	must(t, err)
	aged := map[tcTuple]tcConn{}
	must(t, c.each(func(key *tcTuple, e *tcConn) {
		e.Seen = now - seconds
		aged[*key] = *e
	}))
	must(t, c.rewrite(aged))
}

// TestScratchOfCollect: the agent may run collect where packets interrupt it, so the two have
// each a scratch of their own.
func TestScratchOfCollect(t *testing.T) {
	s := newRig(t)
	s.apply(t, s.tableOf(service{backends: []string{"a"}}))
	scratchOf := func(program string) ebpf.MapID {
		t.Helper()
		info, err := s.packets.programs[program].Info()
		must(t, err)
		ids, _ := info.MapIDs()
		for _, id := range ids {
			m, err := ebpf.NewMapFromID(id)
			must(t, err)
			about, err := m.Info()
			must(t, errors.Join(err, m.Close()))
			if about.Name == tcMapWorks {
				return id
			}
		}
		t.Fatalf("program %s has no map %s", program, tcMapWorks)
		return 0
	}
	if mine, theirs := scratchOf("collect"), scratchOf("ingress"); mine == theirs {
		t.Error("collect has the scratch of the programs that handle packets")
	}
	if in, out := scratchOf("ingress"), scratchOf("egress"); in != out {
		t.Error("programs that handle packets one after the other have a scratch each")
	}
}
