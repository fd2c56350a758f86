package nftables

import (
	"iter"
	"slices"

	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// target is all that the kernel is to hold for a table.
type target struct {
	want   *model.Table
	state  *state
	chains []chain
}

// build works out the state for a table and what follows from it, keeping what
// adopted says of numbers and slots.
func build(want *model.Table, options kernel.Options, adopted map[string]adoptedPool, next uint32) *target {
	st := newState(options.Scheduler)
	st.next = max(next, 1)
	t := &target{want: want, state: st, chains: slices.Clone(fixedChains())}
	if options.CountBytes {
		t.chains = append(t.chains, bytesChains()...)
	}
	for _, p := range want.SortedPools() {
		if a, found := adopted[label(p.ID)]; found {
			st.pools[p.ID] = &poolState{number: a.number, slots: a.slots}
		}
		ps := st.place(p)
		st.countBackends(p, +1, func(backendKey) {})
		t.chains = append(t.chains, st.chainsOf(ps, st.chains)...)
	}
	for f := range want.Frontends() {
		st.countLoopback(f, +1)
	}
	clear(st.stale) // no frontend is written yet
	return t
}

// elements are all elements of the target, made one by one: all of them at once
// would be what the agent takes most memory for. A caller that keeps one must copy it.
func (t *target) elements() iter.Seq[*element] {
	return func(yield func(*element) bool) {
		each := func(list []element) bool {
			for i := range list {
				if !yield(&list[i]) {
					return false
				}
			}
			return true
		}
		if !each(settingsElements(t.want.Settings)) {
			return
		}
		for _, c := range t.chains {
			if !each(c.entries) {
				return
			}
		}
		var list []element // one pool after the other in the same memory
		for _, ps := range t.state.pools {
			if list = t.state.appendPool(list[:0], ps); !each(list) {
				return
			}
		}
		for key := range t.state.backends {
			if e := backendElement(key); !yield(&e) {
				return
			}
		}
		for f := range t.want.Frontends() {
			if !each(t.state.frontendElements(f)) {
				return
			}
		}
	}
}

// elementList are all elements of the target at once.
func (t *target) elementList() []element {
	var list []element
	for e := range t.elements() {
		list = append(list, *e)
	}
	return list
}
