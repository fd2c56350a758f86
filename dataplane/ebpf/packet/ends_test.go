package packet

import (
	"bytes"
	"fmt"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/model"
)

// TestForgedEnds has somebody send RSTs, FINs and ABORTs that the other end ignores: the
// connection is still the one it was. Those that are the ends' own are believed.
func TestForgedEnds(t *testing.T) {
	b := newBench(t, false)
	const clientSeq, backendSeq = 0x10203040, 0x80706050
	for i := range served {
		for n, test := range []struct {
			what        string
			fromBackend bool
			flags       byte
			seq         uint32
			after       byte // what the same end sends then
			steps       uint8
		}{
			{what: "RST far away", flags: rst, seq: clientSeq ^ 1<<31},
			{what: "RST far behind", flags: rst, seq: clientSeq - 1<<20},
			{what: "RST of the backend far away", fromBackend: true, flags: rst, seq: backendSeq ^ 1<<31},
			{what: "FIN far away", flags: fin | ack, seq: clientSeq + 1<<30},
			{what: "FIN of the backend far away", fromBackend: true, flags: fin | ack, seq: backendSeq + 1<<30},
			{what: "RST", flags: rst, seq: clientSeq + 1, steps: stepResets},
			{what: "RST behind unacknowledged data", flags: rst, seq: clientSeq + 1<<20, steps: stepResets},
			{what: "RST of the backend", fromBackend: true, flags: rst, seq: backendSeq + 1, steps: stepResets},
			{what: "FIN", flags: fin | ack, seq: clientSeq + 1, steps: stepCloses},
			{what: "FIN of the backend", fromBackend: true, flags: fin | ack, seq: backendSeq + 1, steps: stepCloses},
			{what: "RST, and the client goes on", flags: rst, seq: clientSeq + 1, after: ack},
			{what: "RST, and the backend goes on", fromBackend: true, flags: rst, seq: backendSeq + 1, after: ack},
		} {
			client := netip.AddrPortFrom(clients[i].Addr(), clients[i].Port()+uint16(n))
			toBackend := func(flags byte, seq, acked uint32) {
				b.run(t, "ingress", packet{proto: unix.IPPROTO_TCP, flags: flags, seq: seq, ack: acked, src: client, dst: served[i]})
			}
			toClient := func(flags byte, seq, acked uint32) {
				b.run(t, "egress", packet{proto: unix.IPPROTO_TCP, flags: flags, seq: seq, ack: acked, src: backends[i], dst: client})
			}
			toBackend(syn, clientSeq, 0)
			toClient(syn|ack, backendSeq, clientSeq+1)
			toBackend(ack, clientSeq+1, backendSeq+1)
			if test.fromBackend {
				toClient(test.flags, test.seq, clientSeq+1)
			} else {
				toBackend(test.flags, test.seq, backendSeq+1)
			}
			if test.after != 0 && test.fromBackend {
				toClient(test.after, backendSeq+1, clientSeq+1)
			} else if test.after != 0 {
				toBackend(test.after, clientSeq+1, backendSeq+1)
			}
			if got := b.stepsOf(t, client) & (stepResets | stepCloses); got != test.steps {
				t.Errorf("%s %v: the connection's steps are %d, expected %d", test.what, served[i], got, test.steps)
			}
		}
	}
}

// TestForgedAborts is the same of SCTP, whose packets have tags.
func TestForgedAborts(t *testing.T) {
	b := newBench(t, false)
	const toBackend, toClient = 0xaaaa0001, 0xbbbb0002
	const initChunk, initAck, data, abort = 1, 2, 0, 6
	for n, test := range []struct {
		what  string
		tag   uint32
		flags byte
		steps uint8
	}{
		{"of another tag", 0xcccc0003, 0, 0},
		{"of the association", toBackend, 0, stepResets},
		{"of an end that knows nothing of it", toClient, 1, stepResets},
		{"of another tag, reflected", 0xcccc0003, 1, 0},
	} {
		client := netip.AddrPortFrom(clients[0].Addr(), clients[0].Port()+uint16(n))
		send := func(program string, src, dst netip.AddrPort, tag uint32, chunk, flags byte) {
			b.run(t, program, packet{proto: unix.IPPROTO_SCTP, tag: tag, first: chunk, chunkFlags: flags, src: src, dst: dst})
		}
		send("ingress", client, served[0], 0, initChunk, 0)
		send("egress", backends[0], client, toClient, initAck, 0)
		send("ingress", client, served[0], toBackend, data, 3)
		send("ingress", client, served[0], test.tag, abort, test.flags)
		if got := b.stepsOf(t, client) & stepResets; got != test.steps {
			t.Errorf("ABORT %s: the association's steps are %d, expected %d", test.what, got, test.steps)
		}
	}
}

// stepsOf is what is known of a client's connection, from both ends together.
func (b *bench) stepsOf(t *testing.T, client netip.AddrPort) (steps uint8) {
	t.Helper()
	must(t, b.conns.each(func(key *tcTuple, e *tcConn) {
		if key.source() == client || key.destination() == client {
			steps |= e.Steps
		}
	}))
	return steps
}

// TestOtherHosts has a switch flood, or somebody listen to all: frames for another machine
// are that one's, whatever is in them.
func TestOtherHosts(t *testing.T) {
	b := newBench(t, false)
	for i := range served {
		for _, to := range []netip.AddrPort{served[i], unserved[i]} {
			for _, proto := range []uint8{unix.IPPROTO_TCP, unix.IPPROTO_UDP} {
				for _, flags := range []byte{syn, ack} {
					raw := packet{proto: proto, flags: flags, src: clients[i], dst: to}.bytes()
					copy(raw, "\x02\x00\x00\x00\x00\x07")
					if verdict, out := b.runBytes(t, "ingress", raw); verdict != goOn || !bytes.Equal(out, raw) {
						t.Errorf("to %s, protocol %d, flags %d: verdict %d", to, proto, flags, int32(verdict))
					}
				}
			}
		}
	}
}

// TestOutgoing has flows begin at an address and port that a frontend has: their answers
// aren't packets for the frontend.
func TestOutgoing(t *testing.T) {
	b := newBench(t, false)
	for i := range served {
		for n, proto := range []uint8{unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_SCTP} {
			what := fmt.Sprintf("%v, protocol %d", served[i], proto)
			server := netip.AddrPortFrom(clients[i].Addr(), uint16(5000+n))
			out := packet{proto: proto, flags: syn, first: 1, seq: 7, src: served[i], dst: server}
			verdict, got := b.run(t, "egress", out)
			expectPacket(t, what+" leaves", verdict, got, goOn, served[i], server)
			for _, answer := range []packet{{flags: syn | ack, first: 2, ack: 8}, {flags: ack, ack: 8, body: []byte("x")}, {flags: ack | fin, ack: 8}} {
				answer.proto, answer.src, answer.dst = proto, server, served[i]
				verdict, got := b.run(t, "ingress", answer)
				expectPacket(t, what+" is answered", verdict, got, goOn, server, served[i])
			}
			if proto == unix.IPPROTO_UDP {
				continue
			}
			verdict, got = b.run(t, "ingress", packet{proto: proto, flags: syn, first: 1, src: server, dst: served[i]})
			expectPacket(t, what+" is a client itself", verdict, got, goOn, server, backends[i])
		}
		// Nobody knows of this one, but no client begins with a SYN-ACK.
		stranger := netip.AddrPortFrom(clients[i].Addr(), 6000)
		verdict, got := b.run(t, "ingress", packet{proto: unix.IPPROTO_TCP, flags: syn | ack, src: stranger, dst: served[i]})
		expectPacket(t, "SYN-ACK", verdict, got, goOn, stranger, served[i])
	}
}

// TestBridged: at a bridge's port answers to clients at other ports are translated, and
// what has passed the bridge itself isn't handled again.
func TestBridged(t *testing.T) {
	for _, masquerade := range []bool{false, true} {
		t.Run(fmt.Sprintf("masquerade %t", masquerade), func(t *testing.T) { testBridged(t, masquerade) })
	}
}

func testBridged(t *testing.T, masquerade bool) {
	b := newBench(t, masquerade)
	for i := range served {
		for _, proto := range []uint8{unix.IPPROTO_TCP, unix.IPPROTO_UDP} {
			what := fmt.Sprintf("%v, protocol %d", served[i], proto)
			_, in := b.run(t, "ingress", packet{proto: proto, flags: syn, src: clients[i], dst: served[i]})
			_, out := b.run(t, "egress", in.begin())
			if masquerade || proto == unix.IPPROTO_TCP { // the kernel's test doesn't say that a packet has been translated
				verdict, got := b.run(t, "bridged", out.begin())
				expectPacket(t, what+", to a port", verdict, got, goOn, out.src, backends[i])
			}
			answer := packet{proto: proto, flags: syn | ack, src: backends[i], dst: out.src}
			if masquerade {
				for _, program := range []string{"ingress", "egress"} {
					_, answer = b.run(t, program, answer)
					answer.flags = syn | ack
				}
			}
			verdict, got := b.run(t, "bridged", answer)
			expectPacket(t, what+", answered", verdict, got, goOn, served[i], clients[i])
		}
	}
}

// TestErrorsAreLimited: who forges sources can't have others flooded with ICMP errors.
func TestErrorsAreLimited(t *testing.T) {
	b := newBench(t, false)
	datagram := packet{proto: unix.IPPROTO_UDP, src: clients[0], dst: unserved[0]}
	if verdict, _ := b.run(t, "ingress", datagram); verdict != redirect {
		t.Errorf("the first one: verdict %d", int32(verdict))
	}
	now, err := monotonic()
	must(t, err)
	cpus, err := ebpf.PossibleCPU()
	must(t, err)
	sent := make([][2]uint64, cpus) // struct errors of bpf/refuse.h
	for i := range sent {
		sent[i] = [2]uint64{uint64(now+3600) * 1e9, 1000}
	}
	must(t, b.store.Maps["errors"].Put(uint32(0), sent))
	if verdict, _ := b.runBytes(t, "ingress", datagram.bytes()); verdict != shot {
		t.Errorf("after very many: verdict %d", int32(verdict))
	}
	if verdict, _ := b.runBytes(t, "ingress", packet{proto: unix.IPPROTO_TCP, flags: syn, src: clients[0], dst: unserved[0]}.bytes()); verdict != redirect {
		t.Errorf("a RST is no larger than what it answers: verdict %d", int32(verdict))
	}
}

// TestBackInTime: a connection whose backend has come back by its deadline goes on.
func TestBackInTime(t *testing.T) {
	b := newBench(t, false)
	for _, gone := range []bool{false, true} {
		client := netip.AddrPortFrom(clients[0].Addr(), clients[0].Port()+1)
		if gone {
			client = netip.AddrPortFrom(clients[0].Addr(), clients[0].Port()+2)
		}
		p := packet{proto: unix.IPPROTO_TCP, flags: syn, src: client, dst: served[0]}
		b.run(t, "ingress", p)
		var id uint64
		must(t, b.conns.each(func(key *tcTuple, e *tcConn) {
			if key.source() == client {
				id = e.Id
			}
		}))
		must(t, b.store.Maps[tcMapOrphans].Put(tupleOf(model.TCP, atIngress, client, served[0]), tcOrphan{Id: id}))
		if gone {
			b.program(t, model.NewTable())
		}
		p.flags = ack
		want := map[bool]uint32{false: goOn, true: redirect}[gone]
		if verdict, _ := b.run(t, "ingress", p); verdict != want {
			t.Errorf("the backend is gone: %t, verdict %d", gone, int32(verdict))
		}
	}
}
