package maps

import (
	"net/netip"
	"testing"
	"time"

	"github.com/fairway-net/fairway/model"
)

// scheduled is a decider with one pool of backends of these weights.
func scheduled(t *testing.T, way model.Scheduler, affinity time.Duration, weights ...uint16) *decider {
	t.Helper()
	d := newDecider(t)
	d.apply(scheduledTable(way, affinity, weights...))
	return d
}

func scheduledTable(way model.Scheduler, affinity time.Duration, weights ...uint16) *model.Table {
	p := &model.Pool{ID: model.PoolID{Name: "default/web:http", Proto: model.TCP}, Scheduler: way, Affinity: affinity}
	for i, w := range weights {
		p.Backends = append(p.Backends, model.Backend{Addr: backendAddr(i), Port: 8080, Weight: w})
	}
	e := model.NewTable().Edit()
	e.SetPool(p)
	route := model.Route{Pool: p.ID}
	e.SetFrontend(&model.Frontend{Key: vip, Routes: [model.NumOrigins]model.Route{route, route, route}})
	return e.Table()
}

var vip = model.Key{Addr: netip.MustParseAddr("10.96.0.1"), Port: 80, Proto: model.TCP}

func backendAddr(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 2, byte(i >> 8), byte(i)}) }

func from(client int) model.Packet {
	return model.Packet{Src: netip.AddrFrom4([4]byte{10, 1, byte(client >> 8), byte(client)}), Dst: vip.Addr, DstPort: vip.Port, Proto: vip.Proto, In: "eth0"}
}

// spread makes connections from so many clients and counts where they lead. It
// keeps them open, as schedulers that look at load expect.
func (d *decider) spread(clients int) map[netip.Addr]int {
	d.t.Helper()
	count := map[netip.Addr]int{}
	for i := range clients {
		a := d.decide(from(i))
		if a.action != model.Forward {
			d.t.Fatalf("client %d: %v", i, a.action)
		}
		count[a.to.Addr()]++
	}
	return count
}

// TestShares: what backends get of 400 connections, by scheduler.
func TestShares(t *testing.T) {
	for _, c := range []struct {
		way     model.Scheduler
		weights []uint16
		want    []int
		within  int
	}{
		{model.Random, []uint16{1, 3}, []int{100, 300}, 60},
		{model.RoundRobin, []uint16{1, 3}, []int{200, 200}, 0},
		{model.WeightedRoundRobin, []uint16{1, 3}, []int{100, 300}, 0},
		{model.WeightedRoundRobin, []uint16{200, 100, 100}, []int{200, 100, 100}, 0},
		{model.LeastConnection, []uint16{1, 3}, []int{200, 200}, 0},
		{model.WeightedLeastConnection, []uint16{1, 3}, []int{100, 300}, 1},
		{model.ShortestExpectedDelay, []uint16{1, 3}, []int{100, 300}, 1},
		{model.NeverQueue, []uint16{1, 3}, []int{100, 300}, 1},
		{model.SourceHashing, []uint16{1, 3}, []int{100, 300}, 60},
		{model.MaglevHashing, []uint16{1, 3}, []int{100, 300}, 60},
		{model.MaglevPortHashing, []uint16{1, 3}, []int{100, 300}, 60},
	} {
		count := scheduled(t, c.way, 0, c.weights...).spread(400)
		for i, want := range c.want {
			if got := count[backendAddr(i)]; got < want-c.within || got > want+c.within {
				t.Errorf("%s: backend %d got %d of 400, expected %d", c.way, i, got, want)
			}
		}
	}
}

// TestTurns: weighted round robin doesn't give a backend its turns in a row.
func TestTurns(t *testing.T) {
	d := scheduled(t, model.WeightedRoundRobin, 0, 5, 5)
	last, row := netip.Addr{}, 0
	for i := range 100 {
		to := d.decide(from(i)).to.Addr()
		if row++; to != last {
			last, row = to, 1
		}
		if row > 3 {
			t.Fatalf("%d turns in a row for %s", row, to)
		}
	}
}

// TestIdleFirst: connections that have ended don't count, and idle backends come
// first.
func TestIdleFirst(t *testing.T) {
	d := scheduled(t, model.NeverQueue, 0, 1, 1000)
	first, second := d.decide(from(1)), d.decide(from(2))
	if first.to == second.to {
		t.Errorf("nq left a backend idle")
	}
	d = scheduled(t, model.LeastConnection, 0, 1, 1, 1)
	busy := d.decide(from(1))
	for i := range 10 {
		a := d.decide(from(i))
		if a.to == busy.to {
			t.Fatalf("lc chose the only busy backend")
		}
		d.done(a.backend)
	}
}

// TestHashes: hashing schedulers send the same to the same, and Maglev moves
// few clients when a backend goes.
func TestHashes(t *testing.T) {
	for _, way := range []model.Scheduler{model.SourceHashing, model.DestinationHashing, model.MaglevHashing} {
		d := scheduled(t, way, 0, 1, 1, 1, 1)
		for i := range 50 {
			if a, b := d.decide(from(i)).to, d.decide(from(i)).to; a != b {
				t.Errorf("%s: client %d went to %s and %s", way, i, a, b)
			}
		}
		if way == model.DestinationHashing && len(d.spread(50)) != 1 {
			t.Error("dh sent one destination to several backends")
		}
	}
	const clients = 1000
	d := scheduled(t, model.MaglevHashing, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1)
	before := make([]netip.AddrPort, clients)
	for i := range before {
		before[i] = d.decide(from(i)).to
	}
	d.apply(scheduledTable(model.MaglevHashing, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1))
	moved := 0
	for i, was := range before {
		if now := d.decide(from(i)).to; now != was && was.Addr() != backendAddr(9) {
			moved++
		}
	}
	if moved > clients/10 {
		t.Errorf("%d of %d clients moved although their backend stayed", moved, clients)
	}
}

// TestMaglevIsTheModels: pools choose as model.Pool.Pick says, and so alike on
// every node, whichever backends it had before. Tables of each size are tried.
func TestMaglevIsTheModels(t *testing.T) {
	for _, n := range []int{3, 30, 1000} {
		for _, way := range []model.Scheduler{model.MaglevHashing, model.MaglevPortHashing} {
			testMaglev(t, way, n)
		}
	}
}

func testMaglev(t *testing.T, way model.Scheduler, n int) {
	weights := make([]uint16, n)
	for i := range weights {
		weights[i] = uint16(1 + i%3)
	}
	first, other := scheduled(t, way, 0, weights...), scheduled(t, way, 0, weights[1:]...)
	other.apply(scheduledTable(way, 0, weights...))
	pool := first.table.Pool(model.PoolID{Name: "default/web:http", Proto: model.TCP})
	for i := range 200 {
		client := from(i)
		client.SrcPort = uint16(40000 + i)
		hash := model.HashAddr(client.Src)
		if way == model.MaglevPortHashing {
			hash = model.HashAddrPort(netip.AddrPortFrom(client.Src, client.SrcPort))
		}
		want, _ := pool.Pick(hash)
		for node, d := range []*decider{first, other} {
			if to := d.decide(client).to; to != want.AddrPort() {
				t.Errorf("%d backends: node %d sends %s to %s, expected %s", n, node, client.Src, to, want.AddrPort())
			}
		}
	}
}

// TestAffinity: a client keeps its backend while the pool has it.
func TestAffinity(t *testing.T) {
	d := scheduled(t, model.RoundRobin, time.Hour, 1, 1, 1)
	first := d.decide(from(1)).to
	for range 10 {
		if to := d.decide(from(1)).to; to != first {
			t.Fatalf("went to %s and %s", first, to)
		}
	}
	if len(d.spread(30)) != 3 {
		t.Error("other clients didn't go everywhere")
	}
	e := d.table.Edit()
	p := *d.table.Pool(model.PoolID{Name: "default/web:http", Proto: model.TCP})
	p.Backends = nil
	for i := range 3 {
		if b := (model.Backend{Addr: backendAddr(i), Port: 8080, Weight: 1}); b.AddrPort() != first {
			p.Backends = append(p.Backends, b)
		}
	}
	e.SetPool(&p)
	d.apply(e.Table())
	if to := d.decide(from(1)).to; to == first {
		t.Errorf("went to %s, which is gone", to)
	}
}

// TestManyBackends: schedulers that look at a part of a large pool reach all of
// it.
func TestManyBackends(t *testing.T) {
	weights := make([]uint16, 200)
	for i := range weights {
		weights[i] = 1
	}
	for _, way := range []model.Scheduler{model.LeastConnection, model.WeightedLeastConnection} {
		if n := len(scheduled(t, way, 0, weights...).spread(400)); n < 190 {
			t.Errorf("%s: 400 connections reached %d of 200 backends", way, n)
		}
	}
}
