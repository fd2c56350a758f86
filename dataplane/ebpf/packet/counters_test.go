package packet

import (
	"context"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/dataplane/ebpf/maps"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// TestCounts: frontends count connections and refusals with their reason, backends
// connections, packets and bytes.
func TestCounts(t *testing.T) {
	b := newBench(t, false)
	e := benchTable(false).Edit()
	empty := &model.Pool{ID: model.PoolID{Name: "default/empty:http", Proto: model.TCP}}
	e.SetPool(empty)
	web := model.Route{Pool: model.PoolID{Name: "default/web:http", Proto: model.TCP}}
	nobody, closed := netip.MustParseAddrPort("10.96.0.11:80"), netip.MustParseAddrPort("10.96.0.12:80")
	for at, f := range map[netip.AddrPort]*model.Frontend{
		nobody: {Name: empty.ID.Name, Routes: [model.NumOrigins]model.Route{{Pool: empty.ID}, {Pool: empty.ID}, {Pool: empty.ID}}},
		closed: {Name: web.Pool.Name, Routes: [model.NumOrigins]model.Route{web, web, web}, Sources: []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")}},
	} {
		f.Key = model.Key{Addr: at.Addr(), Port: at.Port(), Proto: model.TCP}
		e.SetFrontend(f)
	}
	table := e.Table()
	b.program(t, table)
	for n := range 3 {
		client := netip.AddrPortFrom(clients[0].Addr(), 20000+uint16(n))
		for _, to := range []netip.AddrPort{served[0], nobody, closed, closed} {
			b.runBytes(t, "ingress", packet{proto: unix.IPPROTO_TCP, flags: syn, src: client, dst: to}.bytes())
		}
		b.run(t, "egress", packet{proto: unix.IPPROTO_TCP, flags: syn | ack, src: backends[0], dst: client})
	}

	counts, err := maps.FrontendCounts(context.Background(), b.dir)
	must(t, err)
	got := map[netip.AddrPort]kernel.Count{}
	for _, c := range counts {
		at := netip.AddrPortFrom(c.Frontend.Addr, c.Frontend.Port)
		c.Frontend = model.Key{}
		got[at] = c
	}
	for at, want := range map[netip.AddrPort]kernel.Count{
		served[0]: {Connections: 3}, nobody: {Refused: 3, NoBackend: 3}, closed: {Refused: 6, NotAllowed: 6},
	} {
		if got[at] != want {
			t.Errorf("%s: %+v, expected %+v", at, got[at], want)
		}
	}
	each, err := maps.BackendCounts(context.Background(), b.dir, table)
	must(t, err)
	if len(each) != 1 || each[0].Backend != backends[0] || each[0].Pool != web.Pool || each[0].Connections != 3 || each[0].Packets != 6 || each[0].Bytes == 0 {
		t.Errorf("%+v, expected 3 connections and 6 packets of %s", each, backends[0])
	}
	fills, err := maps.Usage(context.Background(), b.dir)
	must(t, err)
	for _, f := range fills {
		if f.Map == "conns" && (f.Entries != 6 || f.Size > f.Limit) || f.Map != "conns" && f.Entries != 0 {
			t.Errorf("%+v, expected 6 entries in conns", f)
		}
	}
	if len(fills) != len(maps.InsertionCounters) {
		t.Errorf("%d maps that grow, expected %d", len(fills), len(maps.InsertionCounters))
	}
}

// TestDrops: what the programs drop is counted by its reason, each of which has a
// name.
func TestDrops(t *testing.T) {
	b := newBench(t, false)
	if n := b.store.Maps[tcMapDrops].MaxEntries(); int(n) != len(dropReasons)+1 || maps.Evicted != len(dropReasons) {
		t.Fatalf("the programs count %d reasons, of which %d have names and one, the last, is evictions", n, len(dropReasons))
	}
	late := packet{proto: unix.IPPROTO_UDP, src: clients[0], dst: served[0], id: 7, offset: 1024, body: make([]byte, 64)}
	if verdict, _ := b.runBytes(t, "ingress", late.bytes()); verdict != shot {
		t.Errorf("verdict %d for a fragment of a packet whose first hasn't come by", verdict)
	}
	drops, err := DropStats(context.Background(), b.dir)
	must(t, err)
	for _, d := range drops {
		if d.Packets > 0 != (d.Reason == "lost_fragment") {
			t.Errorf("%d packets dropped for %s", d.Packets, d.Reason)
		}
	}
}
