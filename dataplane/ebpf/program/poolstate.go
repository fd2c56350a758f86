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

// snapshot is the pool as it is now: place replaces its lists and doesn't change them.
func (ps *poolState) snapshot() *poolState {
	if ps == nil {
		return &poolState{}
	}
	was := *ps
	return &was
}

// walk finds the ids of backends that are asked for in their order; from the first one that
// is less than the last, it begins again. So asking for all of a list costs what a walk
// through both lists costs.
func (ps *poolState) walk() *walk {
	w := &walk{adopted: ps.adopted}
	if ps.pool != nil {
		active := len(ps.pool.Backends)
		w.lists = [2]idList{{ps.pool.Backends, ps.ids[:active], 0}, {ps.pool.Draining, ps.ids[active:], 0}}
	}
	return w
}

type walk struct {
	adopted map[netip.AddrPort]uint32
	lists   [2]idList
}

// idList is a sorted list of backends with their ids, and how far a walk has come.
type idList struct {
	backends []model.Backend
	ids      []uint32
	at       int
}

// find is the id of a backend; 0 if there is none.
func (w *walk) find(b netip.AddrPort) uint32 {
	if w.adopted != nil {
		return w.adopted[b]
	}
	for i := range w.lists {
		if id := w.lists[i].find(b); id != 0 {
			return id
		}
	}
	return 0
}

func (l *idList) find(b netip.AddrPort) uint32 {
	if l.at > 0 && l.backends[l.at-1].AddrPort().Compare(b) >= 0 {
		l.at = 0
	}
	for l.at < len(l.backends) {
		switch c := l.backends[l.at].AddrPort().Compare(b); {
		case c == 0:
			return l.ids[l.at]
		case c > 0:
			return 0
		}
		l.at++
	}
	return 0
}

// alike reports whether every backend has one slot, and nothing but that is to be said.
func (ps *poolState) alike() bool {
	if ps.pool == nil || len(ps.weightSlots) > 0 || ps.maglev != nil {
		return false
	}
	list := ps.pool.Backends
	return !slices.ContainsFunc(list, func(b model.Backend) bool { return b.Weight != list[0].Weight })
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
