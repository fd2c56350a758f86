package userspace

import (
	"hash/maphash"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/fairway-net/fairway/model"
)

// balancer chooses backends. It remembers, per pool, whose turn it is, how many
// connections each backend has, and which client belongs where.
type balancer struct {
	now       func() time.Time
	scheduler model.Scheduler // for pools that name none

	mu    sync.Mutex
	pools map[model.PoolID]*memory
}

// memory is what is remembered of a pool.
type memory struct {
	turn    int // counts choices
	active  map[netip.AddrPort]int
	clients map[netip.Addr]*affinity
	swept   time.Time // when clients were last looked through
}

// affinity is where a client belongs.
type affinity struct {
	backend netip.AddrPort
	last    time.Time
}

func newBalancer(scheduler model.Scheduler) *balancer {
	return &balancer{now: time.Now, scheduler: scheduler, pools: map[model.PoolID]*memory{}}
}

func (b *balancer) memory(id model.PoolID) *memory {
	m := b.pools[id]
	if m == nil {
		m = &memory{active: map[netip.AddrPort]int{}, clients: map[netip.Addr]*affinity{}}
		b.pools[id] = m
	}
	return m
}

// forget drops what is remembered of a pool that is gone.
func (b *balancer) forget(id model.PoolID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.pools, id)
}

// pick chooses a backend of p for a client, of those that are not in failed;
// false if there is none.
func (b *balancer) pick(p *model.Pool, client netip.Addr, failed []netip.AddrPort) (netip.AddrPort, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	m := b.memory(p.ID)
	usable := p.Backends
	if len(failed) > 0 {
		usable = slices.DeleteFunc(slices.Clone(usable), func(x model.Backend) bool { return slices.Contains(failed, x.AddrPort()) })
	}
	if len(usable) == 0 {
		return netip.AddrPort{}, false
	}
	if p.Affinity == 0 {
		return b.schedule(p, m, usable, client), true
	}
	now := b.now()
	m.sweep(now, p.Affinity)
	a := m.clients[client]
	if a == nil || now.Sub(a.last) > p.Affinity ||
		!slices.ContainsFunc(usable, func(x model.Backend) bool { return x.AddrPort() == a.backend }) {
		m.makeRoom()
		a = &affinity{backend: b.schedule(p, m, usable, client)}
		m.clients[client] = a
	}
	a.last = now
	return a.backend, true
}

// sweep forgets clients that were not here for long, once in a while.
func (m *memory) sweep(now time.Time, timeout time.Duration) {
	if now.Sub(m.swept) < timeout {
		return
	}
	m.swept = now
	for client, a := range m.clients {
		if now.Sub(a.last) > timeout {
			delete(m.clients, client)
		}
	}
}

// maxRemembered bounds the clients that are remembered of a pool: anybody's datagrams have
// some address.
const maxRemembered = 65536

// makeRoom forgets the client that was idle longest of a few where there are too many.
func (m *memory) makeRoom() {
	if len(m.clients) < maxRemembered {
		return
	}
	const few = 8
	var oldest netip.Addr
	looked := 0
	for client, a := range m.clients { // in no order
		if looked == 0 || a.last.Before(m.clients[oldest].last) {
			oldest = client
		}
		if looked++; looked == few {
			break
		}
	}
	delete(m.clients, oldest)
}

// sourceSeed is fixed for a relay's life, so that source hashing is steady.
var sourceSeed = maphash.MakeSeed()

// schedule is the pool's way of choosing.
func (b *balancer) schedule(p *model.Pool, m *memory, usable []model.Backend, client netip.Addr) netip.AddrPort {
	m.turn++
	scheduler := p.Scheduler
	if scheduler == model.DefaultScheduler {
		scheduler = b.scheduler
	}
	switch scheduler {
	case model.RoundRobin:
		return usable[m.turn%len(usable)].AddrPort()
	case model.WeightedRoundRobin:
		return byWeight(usable, m.turn)
	case model.LeastConnection:
		return m.least(usable, func(active int, _ model.Backend) float64 { return float64(active) })
	case model.WeightedLeastConnection:
		return m.least(usable, func(active int, x model.Backend) float64 { return float64(active) / float64(x.Weight) })
	case model.ShortestExpectedDelay:
		return m.least(usable, func(active int, x model.Backend) float64 { return float64(active+1) / float64(x.Weight) })
	case model.NeverQueue:
		return m.least(usable, func(active int, x model.Backend) float64 {
			if active == 0 {
				return -1
			}
			return float64(active+1) / float64(x.Weight)
		})
	case model.SourceHashing:
		return byWeight(usable, int(maphash.Comparable(sourceSeed, client)>>1))
	}
	return byWeight(usable, rand.Int())
}

// byWeight maps a number on backends, so that all numbers together give each
// its share.
func byWeight(usable []model.Backend, n int) netip.AddrPort {
	total := 0
	for _, x := range usable {
		total += int(x.Weight)
	}
	n %= total
	for _, x := range usable {
		if n -= int(x.Weight); n < 0 {
			return x.AddrPort()
		}
	}
	return usable[0].AddrPort()
}

func (m *memory) least(usable []model.Backend, load func(int, model.Backend) float64) netip.AddrPort {
	start := m.turn % len(usable) // so that equals take turns
	best := usable[start]
	for i := range usable {
		x := usable[(start+i)%len(usable)]
		if load(m.active[x.AddrPort()], x) < load(m.active[best.AddrPort()], best) {
			best = x
		}
	}
	return best.AddrPort()
}

// count notes that a backend has one connection more, or less.
func (b *balancer) count(id model.PoolID, backend netip.AddrPort, by int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	m := b.pools[id]
	if m == nil {
		return // the pool is gone, and nobody asks
	}
	if m.active[backend] += by; m.active[backend] <= 0 {
		delete(m.active, backend)
	}
}
