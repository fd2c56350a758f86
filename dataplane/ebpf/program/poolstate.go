package program

import (
	"iter"
	"net/netip"
	"slices"

	"github.com/fairway-net/fairway/model"
)

// poolState is a pool as it is in the tables. There are tens of thousands, so
// backends are named by their ids.
type poolState struct {
	id          uint32
	pool        *model.Pool // nil while only adopted
	ids         []uint32    // of the pool's Backends, then of its Draining
	baseSlots   []uint32    // whose the first slots are, and those behind them
	weightSlots []uint32
	// adopted are the ids that an earlier process gave; nil as soon as there is a
	// pool.
	adopted map[netip.AddrPort]uint32
	maglev  model.Maglev // of pools that choose by it
	// Of stable ones: the second choices, as indices in pool.All, and the slots for all.
	seconds  model.Maglev
	allSlots []uint32
}

// member is the id of a backend; 0 if the pool hasn't it.
func (ps *poolState) member(b netip.AddrPort) uint32 {
	if ps.pool == nil {
		return ps.adopted[b]
	}
	if i, found := find(ps.pool.Backends, b); found {
		return ps.ids[i]
	}
	if i, found := find(ps.pool.Draining, b); found {
		return ps.ids[len(ps.pool.Backends)+i]
	}
	return 0
}

// members are all that have ids.
func (ps *poolState) members() iter.Seq2[netip.AddrPort, uint32] {
	return func(yield func(netip.AddrPort, uint32) bool) {
		if ps.pool == nil {
			for b, id := range ps.adopted {
				if !yield(b, id) {
					return
				}
			}
			return
		}
		ids := ps.ids
		for _, list := range [][]model.Backend{ps.pool.Backends, ps.pool.Draining} {
			for i, b := range list {
				if !yield(b.AddrPort(), ids[i]) {
					return
				}
			}
			ids = ids[len(list):]
		}
	}
}

// has reports whether a pool has a backend, be it one that drains.
func has(p *model.Pool, b netip.AddrPort) bool {
	if _, found := find(p.Backends, b); found {
		return true
	}
	_, found := find(p.Draining, b)
	return found
}

func find(sorted []model.Backend, b netip.AddrPort) (int, bool) {
	return slices.BinarySearchFunc(sorted, b, func(x model.Backend, b netip.AddrPort) int { return x.AddrPort().Compare(b) })
}
