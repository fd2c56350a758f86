package native

import (
	"crypto/sha256"
	"encoding/binary"
	"hash/fnv"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairway-net/fairway/ingress/model"
)

// maxForgotten is how many pools that are gone may be remembered: looking for them
// takes a walk through all.
const maxForgotten = 100

// pickers keep, by pool, whose turn it is and how busy endpoints are.
type pickers struct {
	byPool sync.Map // name to *picker
	known  atomic.Int64
}

type picker struct {
	standings
	turn atomic.Uint64
	busy sync.Map // netip.AddrPort to *atomic.Int64
}

func (p *pickers) of(pool string) *picker {
	if known, ok := p.byPool.Load(pool); ok {
		return known.(*picker)
	}
	known, had := p.byPool.LoadOrStore(pool, &picker{})
	if !had {
		p.known.Add(1)
	}
	return known.(*picker)
}

// keep forgets pools that aren't in the table any more, once there are many.
func (p *pickers) keep(table *model.Table) {
	if p.known.Load() <= int64(len(table.Pools))+maxForgotten {
		return
	}
	p.byPool.Range(func(name, _ any) bool {
		if table.Pools[name.(string)] == nil {
			if _, had := p.byPool.LoadAndDelete(name); had {
				p.known.Add(-1)
			}
		}
		return true
	})
}

// pick chooses an endpoint that isn't among those that failed: the one that a
// cookie names if it is still there, or by the pool's algorithm.
func (p *pickers) pick(pool *model.Pool, client netip.Addr, cookie string, failed []netip.AddrPort) (netip.AddrPort, bool) {
	ep, _, ok := p.pickFor(pool, client, cookie, failed, false)
	return ep, ok
}

// pickFor is pick for a request that does harm twice, or none, and reports whether it tries
// an endpoint that has failed.
func (p *pickers) pickFor(pool *model.Pool, client netip.Addr, cookie string, failed []netip.AddrPort, isSafe bool) (_ netip.AddrPort, isTrial, ok bool) {
	list := pool.Endpoints
	if pool.Eject != nil {
		mayTry := func(ep netip.AddrPort) bool { // clients that stay with an endpoint stay there
			return len(failed) == 0 && (cookie == "" || cookie == endpointID(ep)) && (pool.Algorithm != model.Source || nearest(pool.Endpoints, client) == ep)
		}
		list, isTrial = p.of(pool.Name).serving(pool, isSafe, mayTry, time.Now())
	}
	if len(failed) > 0 {
		isFailed := func(e model.Endpoint) bool { return slices.Contains(failed, e.Addr) }
		if list = slices.DeleteFunc(slices.Clone(list), isFailed); len(list) == 0 && pool.Eject != nil {
			list = slices.DeleteFunc(slices.Clone(pool.Endpoints), isFailed)
		}
	}
	if len(list) == 0 {
		return netip.AddrPort{}, false, false
	}
	return p.choose(pool, list, client, cookie), isTrial, true
}

// choose is one of a list, which has some.
func (p *pickers) choose(pool *model.Pool, list []model.Endpoint, client netip.Addr, cookie string) netip.AddrPort {
	if cookie != "" {
		for _, e := range list {
			if endpointID(e.Addr) == cookie {
				return e.Addr
			}
		}
	}
	one := p.of(pool.Name)
	switch pool.Algorithm {
	case model.Source:
		return nearest(list, client)
	case model.LeastRequests:
		best := list[0].Addr
		for _, e := range list[1:] {
			if one.requests(e.Addr).Load() < one.requests(best).Load() {
				best = e.Addr
			}
		}
		return best
	}
	return weighted(list, one.turn.Add(1))
}

// nearest is the endpoint that a client always gets: when others come or go, only
// the clients of those move (rendezvous hashing, Thaler and Ravishankar 1998; with
// weights as in draft-ietf-bess-weighted-hrw).
func nearest(list []model.Endpoint, client netip.Addr) netip.AddrPort {
	best, bestScore := list[0].Addr, math.Inf(-1)
	key := client.Unmap().As16()
	for _, e := range list {
		h := sha256.New()
		_, _ = h.Write(key[:])
		address := e.Addr.Addr().As16()
		_, _ = h.Write(address[:])
		_, _ = h.Write(binary.BigEndian.AppendUint16(nil, e.Addr.Port()))
		// between 0 and 1, neither included
		share := (float64(binary.BigEndian.Uint64(h.Sum(nil))>>11) + 0.5) / (1 << 53)
		if score := float64(max(e.Weight, 1)) / -math.Log(share); score > bestScore {
			best, bestScore = e.Addr, score
		}
	}
	return best
}

// requests counts those under way at an endpoint.
func (p *picker) requests(a netip.AddrPort) *atomic.Int64 {
	if n, ok := p.busy.Load(a); ok {
		return n.(*atomic.Int64)
	}
	n, _ := p.busy.LoadOrStore(a, new(atomic.Int64))
	return n.(*atomic.Int64)
}

// weighted goes through the list in turn, each as often as its weight says.
func weighted(list []model.Endpoint, turn uint64) netip.AddrPort {
	total := 0
	for _, e := range list {
		total += max(e.Weight, 1)
	}
	n := int(turn % uint64(total))
	for _, e := range list {
		if n -= max(e.Weight, 1); n < 0 {
			return e.Addr
		}
	}
	return list[0].Addr // not reached
}

// endpointID names an endpoint in a cookie without telling its address.
func endpointID(a netip.AddrPort) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(a.String()))
	return strconv.FormatUint(h.Sum64(), 36)
}
