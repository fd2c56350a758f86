package packet

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/dataplane/ebpf/maps"
	"github.com/fairway-net/fairway/internal/conntrack"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// conversation is a connection through a frontend, as the bench sees it.
type conversation struct {
	client  netip.AddrPort
	outside netip.AddrPort // what the backend sees; not valid until the first packet has left
}

// leaves has a packet of the connection come and leave, and expects it to look as
// ever.
func (c *conversation) leaves(t *testing.T, b *bench, flags uint8) {
	t.Helper()
	_, in := b.run(t, "ingress", packet{proto: unix.IPPROTO_TCP, flags: flags, src: c.client, dst: served[0]})
	in.flags = flags
	verdict, out := b.run(t, "egress", in)
	if verdict != goOn || out.dst != backends[0] || out.src.Addr() != nodes[0] || c.outside.IsValid() && out.src != c.outside {
		t.Errorf("%s: verdict %d, %s, expected from %s", c.client, int32(verdict), out.between(), c.outside)
	}
	c.outside = out.src
}

// TestRoom has connections begin in a table that has room for a few at first: it
// grows, and those that there are go on, also while it does.
func TestRoom(t *testing.T) {
	b := newBenchWith(t, true, func(_ string, tc *ebpf.CollectionSpec) { tc.Maps[maps.ConnsMap].InnerMap.MaxEntries = 64 })
	conns, all := b.store.Resizable[maps.ConnsMap], []*conversation(nil)
	for n := range 500 {
		c := &conversation{client: netip.AddrPortFrom(clients[0].Addr(), 10000+uint16(n))}
		all = append(all, c)
		if n%10 == 0 { // its first packet stays inside the node for a while
			b.run(t, "ingress", packet{proto: unix.IPPROTO_TCP, flags: syn, src: c.client, dst: served[0]})
		} else {
			c.leaves(t, b, syn)
		}
		must(t, b.store.Grow())
		all[n/2].leaves(t, b, ack)
	}
	if conns.Size() < 2048 {
		t.Errorf("there is room for %d entries, expected for 500 connections with 4 each", conns.Size())
	}
	if conns.Maps.Load().Previous != nil {
		for _, c := range all {
			c.leaves(t, b, ack)
		}
		must(t, b.store.Grow())
	}
	if conns.Maps.Load().Previous != nil {
		t.Error("the map before is still in use")
	}
	for _, c := range all {
		c.leaves(t, b, ack)
	}
	if n, err := conns.Count(); err != nil || n != 4*500 {
		t.Errorf("%d entries, %v; expected 2000", n, err)
	}
	if err := b.store.Overflows(); err != nil {
		t.Error(err)
	}
}

// TestRoomForOthers leaves more connections to netfilter than there is room for at
// first, and then has some begin.
func TestRoomForOthers(t *testing.T) {
	b := newBenchWith(t, true, func(_ string, tc *ebpf.CollectionSpec) { tc.Maps[maps.ConnsMap].InnerMap.MaxEntries = 64 })
	conns := b.store.Resizable[maps.ConnsMap]
	for n := range 500 {
		client := netip.AddrPortFrom(clients[0].Addr(), 10000+uint16(n))
		f := &conntrack.Flow{Proto: model.TCP, Client: client, Frontend: served[0], Source: client, Backend: backends[0]}
		must(t, b.conns.importFlow(f, tcConn{Id: uint64(n) + 1}, &model.Settings{}))
	}
	if n, err := conns.Count(); err != nil || n != 2*500 {
		t.Errorf("%d entries, %v; expected 1000", n, err)
	}
	for n := range 500 {
		must(t, b.store.Grow())
		c := &conversation{client: netip.AddrPortFrom(clients[0].Addr(), 20000+uint16(n))}
		c.leaves(t, b, syn)
	}
	if err := b.store.Overflows(); err != nil {
		t.Error(err)
	}
}

// TestFixedRoom: maps that never grow say what has no room.
func TestFixedRoom(t *testing.T) {
	b := newBenchWith(t, true, func(_ string, tc *ebpf.CollectionSpec) {
		tc.Maps[tcMapOrphans].MaxEntries, tc.Maps[tcMapLinks].MaxEntries = 1, 1
	})
	marks := map[tcTuple]tcOrphan{{Sport: 1}: {Id: 1}, {Sport: 2}: {Id: 2}, {Sport: 3}: {Id: 3}}
	var full *kernel.FullError
	err := (&connTable{m: b.store.Resizable[maps.ConnsMap], orphans: b.store.Maps[tcMapOrphans]}).mark(marks, nil)
	if !errors.As(err, &full) || full.LeftOut != 2 {
		t.Errorf("%v, expected no room for 2 of 3 orphans", err)
	}
	err = (&Path{links: b.store.Maps[tcMapLinks]}).putLink(2, tcLink{Flags: 1})
	if !kernel.IsFull(err) {
		t.Errorf("%v, expected no room for an interface beside the one for all others", err)
	}
}
