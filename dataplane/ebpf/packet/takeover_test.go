package packet

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/fairway-net/fairway/internal/conntrack"
	"github.com/fairway-net/fairway/model"
	"github.com/fairway-net/fairway/test/netnstest"
)

// TestIdle: a flow that is left to netfilter is left no longer than netfilter
// remembers it.
func TestIdle(t *testing.T) {
	netfilter := idle{once: 27, stream: 105} // of 30 and 120 seconds
	for _, c := range []struct {
		flow              conntrack.Flow
		forgotten, silent uint32
	}{
		{conntrack.Flow{Proto: model.UDP, Expires: 30}, 27, 0},
		{conntrack.Flow{Proto: model.UDP, Expires: 30, Replied: true, Status: conntrack.SeenReply}, 27, 0},
		{conntrack.Flow{Proto: model.UDP, Expires: 8, Replied: true, Status: conntrack.SeenReply}, 27, 20},
		{conntrack.Flow{Proto: model.UDP, Expires: 120, Replied: true, Status: conntrack.SeenReply | conntrack.Assured}, 105, 0},
		{conntrack.Flow{Proto: model.UDP, Expires: 16, Replied: true, Status: conntrack.SeenReply | conntrack.Assured}, 105, 91},
		{conntrack.Flow{Proto: model.UDP, Replied: true}, 27, 27},
		{conntrack.Flow{Proto: model.TCP, Expires: 5}, 0, 0},
	} {
		if forgotten, silent := netfilter.of(&c.flow); uint32(forgotten) != c.forgotten || silent != c.silent {
			t.Errorf("%+v: forgotten after %d, silent for %d; expected %d and %d", c.flow, forgotten, silent, c.forgotten, c.silent)
		}
	}
}

// TestImport: packets of connections that conntrack has just been given pass as they are,
// in both directions.
func TestImport(t *testing.T) {
	b := newBench(t, true)
	ns := netnstest.New(t) // KeepTranslating is for a node of its own
	p := &Path{conns: b.conns}
	must(t, p.Import([]conntrack.Flow{{Proto: model.TCP}})) // nothing is applied yet
	p.settings = &model.Settings{}
	var flows []conntrack.Flow
	protocols := []model.Protocol{model.TCP, model.UDP, model.SCTP}
	for i := range served {
		for _, proto := range protocols {
			source := netip.AddrPortFrom(nodes[i], 3000)
			flows = append(flows, conntrack.Flow{
				Proto: proto, Client: clients[i], Frontend: served[i], Source: source, Backend: backends[i],
				TCPState: conntrack.TCPEstablished, Status: conntrack.SeenReply | conntrack.Assured, Expires: 100,
			})
		}
	}
	must(t, ns.Do(func() error { return p.Import(flows) }))
	for n, f := range flows {
		what := fmt.Sprintf("%s %s", f.Proto, f.Frontend)
		for _, p := range []packet{{src: f.Client, dst: f.Frontend}, {src: f.Backend, dst: f.Source}} {
			p.proto, p.flags, p.first = uint8(f.Proto), ack, 3
			verdict, got := b.run(t, "ingress", p)
			expectPacket(t, fmt.Sprintf("%s, flow %d", what, n), verdict, got, goOn, p.src, p.dst)
		}
	}
	if n, err := b.conns.m.Count(); err != nil || int(n) != 2*len(flows) {
		t.Errorf("%d entries, %v; expected two for each of %d flows", n, err, len(flows))
	}
}
