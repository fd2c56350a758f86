package packet

import (
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/dataplane/ebpf/maps"
)

// converse sends the packets of a connection from a client's port through the programs
// of a masquerading bench: SYN, ACK and FIN, the client's in upper case. The only one
// of a single packet gets no further than into the node.
func (b *bench) converse(t *testing.T, port uint16, packets string) {
	t.Helper()
	client := netip.AddrPortFrom(clients[0].Addr(), port)
	var node netip.AddrPort
	for _, step := range packets {
		flags := map[rune]uint8{'S': syn, 's': syn | ack, 'A': ack, 'a': ack, 'F': fin | ack, 'f': fin | ack}[step]
		p := packet{proto: unix.IPPROTO_TCP, flags: flags, src: client, dst: served[0]}
		switch step {
		case 's', 'a', 'f':
			p.src, p.dst = backends[0], node
			_, got := b.run(t, "ingress", p)
			p.src, p.dst = got.src, got.dst
			b.run(t, "egress", p)
		default:
			_, got := b.run(t, "ingress", p)
			if len(packets) == 1 {
				return
			}
			p.src, p.dst = got.src, got.dst
			_, got = b.run(t, "egress", p)
			node = got.src
		}
	}
}

// TestHandedOver finds out of which connections another plane gets the translation.
func TestHandedOver(t *testing.T) {
	b := newBench(t, true)
	conns := &connTable{m: b.store.Resizable[maps.ConnsMap]}
	for i, c := range []struct {
		packets         string
		handed, unnamed bool
		idle            uint32
	}{
		{"S", true, true, tcpOpening},
		{"SS", true, false, tcpOpening},
		{"Ss", true, false, tcpOpening},
		{"SsA", true, false, tcpEstablished},
		{"SsAF", true, false, tcpHalfClosed},
		{"SsAf", true, false, tcpHalfClosed},
		{"SsAFf", false, false, 0},
	} {
		client := netip.AddrPortFrom(clients[0].Addr(), 41000+uint16(i))
		b.converse(t, client.Port(), c.packets)
		all, err := conns.translations()
		must(t, err)
		found := false
		for _, one := range all {
			if one.client != client {
				continue
			}
			found = true
			if one.frontend != served[0] || one.backend != backends[0] || one.unnamed != c.unnamed || one.idle != c.idle {
				t.Errorf("%s: %+v", c.packets, one)
			}
			if !one.unnamed && one.source.Addr() != nodes[0] {
				t.Errorf("%s: source %s", c.packets, one.source)
			}
		}
		if found != c.handed {
			t.Errorf("%s: handed over: %t, expected %t", c.packets, found, c.handed)
		}
	}
}

// TestPortUsedAgain has a client open a connection from the port of one that has
// ended, when new ones are another plane's already: none of its packets may go the
// earlier one's way.
func TestPortUsedAgain(t *testing.T) {
	b := newBench(t, true)
	b.converse(t, clients[0].Port(), "SsAFfA")
	must(t, phase{b.store.Maps[tcMapPhase]}.set(aside))
	for _, flags := range []uint8{syn, ack, ack} {
		verdict, got := b.run(t, "ingress", packet{proto: unix.IPPROTO_TCP, flags: flags, src: clients[0], dst: served[0]})
		expectPacket(t, "the next connection", verdict, got, goOn, clients[0], served[0])
	}
}

// TestEntering has connections begin while it isn't known yet which were netfilter's
// last: none gets a port that may be one of theirs, and what can't be sent again goes on.
func TestEntering(t *testing.T) {
	for name, masquerade := range map[string]bool{"masqueraded": true, "as they are": false} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, masquerade)
			now := phase{b.store.Maps[tcMapPhase]}
			for i, proto := range []uint8{unix.IPPROTO_TCP, unix.IPPROTO_SCTP, unix.IPPROTO_UDP} {
				client := netip.AddrPortFrom(clients[0].Addr(), 42000+uint16(i))
				first := packet{proto: proto, flags: syn, first: 1, src: client, dst: served[0]}
				must(t, now.set(entering))
				verdict, got := b.run(t, "ingress", first)
				if masquerade && proto != unix.IPPROTO_UDP {
					if verdict != shot {
						t.Errorf("protocol %d: verdict %d, %s", proto, int32(verdict), got.between())
					}
					must(t, now.set(inForce))
					verdict, got = b.run(t, "ingress", first)
				}
				expectPacket(t, "inside", verdict, got, goOn, got.src, backends[0])
				if got.src == client {
					t.Errorf("protocol %d: %s looks like a connection of the client's own", proto, got.between())
				}
			}
		})
	}
}

// TestPortUsedDirectly has a client speak to a backend directly, from the port of a
// connection to it by way of a frontend that is over: answers are to be the backend's.
func TestPortUsedDirectly(t *testing.T) {
	b := newBench(t, false)
	answer := packet{proto: unix.IPPROTO_TCP, flags: syn | ack, src: backends[0], dst: clients[0]}
	for i, c := range []struct {
		client, backend uint8 // last packet of each
		from            netip.AddrPort
	}{
		{ack, ack, served[0]},
		{fin | ack, ack, served[0]},
		{fin | ack, fin | ack, backends[0]},
		{ack, rst, backends[0]},
		{rst | ack, ack, backends[0]},
	} {
		client := netip.AddrPortFrom(clients[0].Addr(), 42000+uint16(i))
		to := packet{proto: unix.IPPROTO_TCP, flags: syn, src: client, dst: served[0]}
		answer.dst = client
		b.run(t, "ingress", to)
		b.run(t, "egress", answer)
		to.flags, answer.flags = c.client, c.backend
		b.run(t, "ingress", to)
		b.run(t, "egress", answer)
		for _, flags := range []uint8{syn | ack, ack} {
			answer.flags = flags
			verdict, got := b.run(t, "egress", answer)
			expectPacket(t, "answer", verdict, got, goOn, c.from, client)
		}
	}
}
