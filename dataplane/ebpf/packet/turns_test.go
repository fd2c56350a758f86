package packet

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/fairway-net/fairway/dataplane/ebpf/maps"
	"github.com/fairway-net/fairway/internal/conntrack"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// TestQueueIsFull: netfilter's connections are taken in while the queue of turns is full,
// of what has ended: each has its turn then, and so has a mark.
func TestQueueIsFull(t *testing.T) {
	const entries = 1 << 10
	b := newBenchWith(t, true, func(_ string, tc *ebpf.CollectionSpec) {
		tc.Maps[maps.ConnsMap].InnerMap.MaxEntries, tc.Maps[turnsMap].InnerMap.MaxEntries = entries, entries/2
	})
	full := (*kernel.FullError)(nil)
	fill := func() {
		var err error
		for id := uint64(1 << 40); err == nil; id++ {
			err = b.conns.turns.put(&tcTracked{Id: id})
		}
		if !errors.As(err, &full) {
			t.Fatal(err)
		}
	}
	for n := range 5 {
		fill()
		f := &conntrack.Flow{
			Proto: model.TCP, TCPState: conntrack.TCPEstablished, Frontend: served[0], Backend: backends[0],
			Client: netip.AddrPortFrom(clients[0].Addr(), 50000+uint16(n)), Source: netip.AddrPortFrom(clients[0].Addr(), 50000+uint16(n)),
		}
		must(t, b.conns.importFlow(f, tcConn{Id: uint64(n + 1)}, &model.Settings{}))
	}
	fill()
	must(t, b.conns.putTurn(&tcTracked{}))
	turns := map[uint64]int{}
	for c := (tcTracked{}); b.conns.turns.now.LookupAndDelete(nil, &c) == nil; {
		turns[c.Id]++
	}
	for id := uint64(1); id <= 5; id++ {
		if turns[id] != 1 {
			t.Errorf("connection %d has %d turns", id, turns[id])
		}
	}
	if turns[0] != 1 {
		t.Errorf("a mark has %d turns", turns[0])
	}
}

// TestOneTurnEach: connections of netfilter's that are imported again, as with each of the
// three times that a node which is taken over asks for them, have one turn.
func TestOneTurnEach(t *testing.T) {
	const connections = 5
	b := newBench(t, true)
	for round := range uint64(3) {
		for n := range uint64(connections) {
			client := netip.AddrPortFrom(clients[0].Addr(), 50000+uint16(n))
			f := &conntrack.Flow{Proto: model.TCP, TCPState: conntrack.TCPEstablished, Frontend: served[0], Backend: backends[0], Client: client, Source: client}
			must(t, b.conns.importFlow(f, tcConn{Id: round<<8 + n + 1}, &model.Settings{}))
		}
	}
	for n, c := 0, (tcTracked{}); b.conns.turns.now.LookupAndDelete(nil, &c) == nil; n++ {
		if n == connections || c.Id != uint64(n)+1 {
			t.Errorf("turn %d is that of connection %d", n, c.Id)
		}
	}
}
