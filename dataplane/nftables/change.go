package nftables

import (
	"slices"

	"github.com/fairway-net/fairway/model"
)

// plan is what a transaction is to do with elements and with the chains that
// depend on pools.
type plan struct {
	chains      []chain
	flush       []*set // sets of intervals that are written anew
	remove, add []element
}

// replace plans to turn the elements before into those after. Lists of a pool
// that changed in one place are the same for long stretches.
func (p *plan) replace(before, after []element) {
	n := 0
	for n < len(before) && n < len(after) && before[n].set == after[n].set && before[n].identity() == after[n].identity() {
		if !before[n].sameValue(&after[n]) {
			p.remove, p.add = append(p.remove, before[n]), append(p.add, after[n])
		}
		n++
	}
	before, after = before[n:], after[n:]
	type place struct {
		set *set
		identity
	}
	left := make(map[place]*element, len(before))
	for i := range before {
		left[place{before[i].set, before[i].identity()}] = &before[i]
	}
	for i := range after {
		at := place{after[i].set, after[i].identity()}
		old, found := left[at]
		delete(left, at)
		if found && old.sameValue(&after[i]) {
			continue
		}
		if found {
			p.remove = append(p.remove, *old)
		}
		p.add = append(p.add, after[i])
	}
	for i := range before {
		if e := &before[i]; left[place{e.set, e.identity()}] == e {
			p.remove = append(p.remove, *e)
		}
	}
}

// change plans what makes the kernel go from old to want.
func (st *state) change(old, want *model.Table, c *model.Changes) *plan {
	p := &plan{}
	if c.Settings {
		p.settings(settingsElements(old.Settings), settingsElements(want.Settings))
	}
	before := make([][]element, len(c.Frontends))
	for i, f := range c.Frontends {
		before[i] = st.frontendElements(f.Old)
	}
	for _, pc := range c.Pools {
		if pc.New != nil {
			p.pool(st, pc.ID(), pc.New)
		}
	}
	for i, f := range c.Frontends {
		p.replace(before[i], st.frontendElements(f.New))
		st.countLoopback(f.Old, -1)
		st.countLoopback(f.New, +1)
	}
	if len(st.stale) > 0 {
		p.rewrite(st, want, c)
	}
	for _, pc := range c.Pools {
		if pc.New == nil {
			p.pool(st, pc.ID(), nil)
		}
	}
	p.cancel()
	for _, c := range p.chains {
		p.add = append(p.add, c.entries...)
	}
	return p
}

// settings plans to turn the elements of settings before into those after. Sets
// of intervals are written anew as a whole if anything in them differs: the
// kernel takes beginnings and ends for elements of their own, and minds in
// which order they come and go.
func (p *plan) settings(before, after []element) {
	differences := &plan{}
	differences.replace(before, after)
	touched := map[*set]bool{}
	for _, list := range [][]element{differences.remove, differences.add} {
		for _, e := range list {
			touched[e.set] = true
		}
	}
	for _, s := range sets {
		if !touched[s] || !s.isInterval() {
			continue
		}
		p.flush = append(p.flush, s)
		for _, e := range after {
			if e.set == s {
				p.add = append(p.add, e)
			}
		}
	}
	notInterval := func(list []element) []element {
		return slices.DeleteFunc(list, func(e element) bool { return e.set.isInterval() })
	}
	p.remove = append(p.remove, notInterval(differences.remove)...)
	p.add = append(p.add, notInterval(differences.add)...)
}

// write writes what the plan says of elements.
func (b *batch) write(p *plan) {
	b.remove(p)
	b.elements(true, p.add)
}

func (b *batch) remove(p *plan) {
	for _, s := range p.flush {
		b.flushSet(s.name)
	}
	b.elements(false, p.remove)
}

func (p *plan) pool(st *state, id model.PoolID, pool *model.Pool) {
	before, after := st.setPool(id, pool)
	p.replace(before, after)
	if pool != nil {
		p.chains = append(p.chains, st.chainsOf(st.pools[id], st.chains)...)
	}
}

// rewrite writes frontends of stale pools, other than those that are written
// anyway. What is counted of them begins anew.
func (p *plan) rewrite(st *state, want *model.Table, c *model.Changes) {
	written := map[model.Key]bool{}
	for _, f := range c.Frontends {
		written[f.Key()] = true
	}
	for f := range want.Frontends() {
		leads := slices.ContainsFunc(f.Routes[:], func(r model.Route) bool { return st.stale[r.Pool] })
		if leads && !written[f.Key] {
			list := st.frontendElements(f)
			p.remove, p.add = append(p.remove, list...), append(p.add, list...)
		}
	}
	clear(st.stale)
}

// cancel takes out elements that one pool removes and another one adds: a
// backend may leave one pool and join another.
func (p *plan) cancel() {
	if len(p.remove) == 0 || len(p.add) == 0 {
		return
	}
	removed := map[backendPlace]int{}
	for _, e := range p.remove {
		if e.isBackend() {
			removed[backendPlace{e.set, e.key}]++
		}
	}
	if len(removed) == 0 {
		return
	}
	cancelled := map[backendPlace]int{}
	p.add = slices.DeleteFunc(p.add, func(e element) bool {
		at := backendPlace{e.set, e.key}
		if !e.isBackend() || removed[at] == 0 {
			return false
		}
		removed[at]--
		cancelled[at]++
		return true
	})
	p.remove = slices.DeleteFunc(p.remove, func(e element) bool {
		at := backendPlace{e.set, e.key}
		if !e.isBackend() || cancelled[at] == 0 {
			return false
		}
		cancelled[at]--
		return true
	})
}

type backendPlace struct {
	set *set
	key string
}

func (e *element) isBackend() bool { return e.set == v4.backends || e.set == v6.backends }

func (st *state) countLoopback(f *model.Frontend, by int) {
	if f != nil && f.Addr.Is4() && f.Addr.IsLoopback() {
		st.loopbacks += by
	}
}
