package ebpf

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

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
	b := newBenchWith(t, true, func(_ string, tc *ebpf.CollectionSpec) { tc.Maps[connsMap].InnerMap.MaxEntries = 64 })
	conns, all := b.plane.store.growing[connsMap], []*conversation(nil)
	for n := range 500 {
		c := &conversation{client: netip.AddrPortFrom(clients[0].Addr(), 10000+uint16(n))}
		all = append(all, c)
		if n%10 == 0 { // its first packet stays inside the node for a while
			b.run(t, "ingress", packet{proto: unix.IPPROTO_TCP, flags: syn, src: c.client, dst: served[0]})
		} else {
			c.leaves(t, b, syn)
		}
		must(t, b.plane.store.keepRoom())
		all[n/2].leaves(t, b, ack)
	}
	if conns.size() < 2048 {
		t.Errorf("there is room for %d entries, expected for 500 connections with 4 each", conns.size())
	}
	if conns.maps.Load().before != nil {
		for _, c := range all {
			c.leaves(t, b, ack)
		}
		must(t, b.plane.store.keepRoom())
	}
	if conns.maps.Load().before != nil {
		t.Error("the map before is still in use")
	}
	for _, c := range all {
		c.leaves(t, b, ack)
	}
	if n, err := conns.count(); err != nil || n != 4*500 {
		t.Errorf("%d entries, %v; expected 2000", n, err)
	}
	if err := b.plane.overflows(); err != nil {
		t.Error(err)
	}
}

// TestNoRoom: when the table can't grow, new connections aren't served, which is
// an error, and all others go on.
func TestNoRoom(t *testing.T) {
	b := newBenchWith(t, true, func(_ string, tc *ebpf.CollectionSpec) { tc.Maps[connsMap].InnerMap.MaxEntries = 64 })
	must(t, b.plane.overflows())
	b.plane.store.growing[connsMap].limit = 128
	var open []*conversation
	for n := range 100 {
		c := &conversation{client: netip.AddrPortFrom(clients[0].Addr(), 10000+uint16(n))}
		if verdict, _ := b.run(t, "ingress", packet{proto: unix.IPPROTO_TCP, flags: syn, src: c.client, dst: served[0]}); verdict == goOn && n < 30 {
			c.leaves(t, b, syn)
			open = append(open, c)
		}
		must(t, b.plane.store.keepRoom())
	}
	if err := b.plane.overflows(); !lacksRoom(err) {
		t.Errorf("%v, expected the connections to have no room", err)
	}
	if len(open) < 30 {
		t.Errorf("%d connections of the first 30", len(open))
	}
	for _, c := range open {
		c.leaves(t, b, ack)
	}
}

// TestRoomForOthers leaves more connections to netfilter than there is room for at
// first, and then has some begin.
func TestRoomForOthers(t *testing.T) {
	b := newBenchWith(t, true, func(_ string, tc *ebpf.CollectionSpec) { tc.Maps[connsMap].InnerMap.MaxEntries = 64 })
	conns := b.plane.store.growing[connsMap]
	for n := range 500 {
		client := netip.AddrPortFrom(clients[0].Addr(), 10000+uint16(n))
		f := &conntrack.Flow{Proto: model.TCP, Client: client, Frontend: served[0], Source: client, Backend: backends[0]}
		must(t, (&connTable{m: conns}).leave(f, tcConn{Id: uint64(n) + 1}, &model.Settings{}))
	}
	if n, err := conns.count(); err != nil || n != 2*500 {
		t.Errorf("%d entries, %v; expected 1000", n, err)
	}
	for n := range 500 {
		must(t, b.plane.store.keepRoom())
		c := &conversation{client: netip.AddrPortFrom(clients[0].Addr(), 20000+uint16(n))}
		c.leaves(t, b, syn)
	}
	if err := b.plane.overflows(); err != nil {
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
	err := (&connTable{m: b.plane.store.growing[connsMap], orphans: b.plane.store.maps[tcMapOrphans]}).mark(marks)
	if !errors.As(err, &full) || full.LeftOut != 2 {
		t.Errorf("%v, expected no room for 2 of 3 orphans", err)
	}
	err = (&packetPath{links: b.plane.store.maps[tcMapLinks]}).putLink(2, tcLink{Flags: 1})
	if !lacksRoom(err) {
		t.Errorf("%v, expected no room for an interface beside the one for all others", err)
	}
}

// TestUpgrade has a connection go on that a version began whose table didn't grow.
func TestUpgrade(t *testing.T) {
	old := newBench(t, true)
	c := &conversation{client: clients[0]}
	c.leaves(t, old, syn)
	entries := map[tcTuple]tcConn{}
	table := &connTable{m: old.plane.store.growing[connsMap]}
	must(t, table.each(func(key *tcTuple, e *tcConn) { entries[*key] = *e }))
	must(t, old.plane.store.close())
	must(t, os.RemoveAll(old.plane.dir))

	b := newBenchWith(t, true, func(pins string, _ *ebpf.CollectionSpec) {
		must(t, os.MkdirAll(pins, 0o700))
		m, err := ebpf.NewMapWithOptions(&ebpf.MapSpec{
			Name: "conns_1", Type: ebpf.Hash, Flags: unix.BPF_F_NO_PREALLOC, MaxEntries: 64,
			KeySize: 40, ValueSize: 64, Pinning: ebpf.PinByName,
		}, ebpf.MapOptions{PinPath: pins})
		must(t, err)
		for key, e := range entries {
			must(t, m.Put(&key, &e))
		}
		must(t, m.Close())
	})
	c.leaves(t, b, ack)
	must(t, b.plane.store.forgetEarlier())
	if _, err := os.Stat(filepath.Join(b.plane.dir, layout, "conns_1")); !os.IsNotExist(err) {
		t.Errorf("conns_1 is still pinned: %v", err)
	}
	for n := range 50 {
		(&conversation{client: netip.AddrPortFrom(clients[0].Addr(), 10000+uint16(n))}).leaves(t, b, syn)
		must(t, b.plane.store.keepRoom())
	}
	c.leaves(t, b, ack)
}
