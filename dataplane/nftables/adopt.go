package nftables

import (
	"iter"
	"net/netip"
	"slices"

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
func build(want *model.Table, scheduler string, adopted map[string]adoptedPool, next uint32) *target {
	st := newState(scheduler)
	st.next = max(next, 1)
	t := &target{want: want, state: st, chains: slices.Clone(fixedChains)}
	for _, p := range want.SortedPools() {
		if a, found := adopted[label(p.ID)]; found {
			st.pools[p.ID] = &poolState{number: a.number, slots: a.slots}
		}
		ps := st.place(p)
		st.countBackends(p, +1)
		t.chains = append(t.chains, st.chainsOf(ps, st.chains)...)
	}
	for f := range want.Frontends() {
		st.countLoopback(f, +1)
	}
	clear(st.renumbered) // no frontend is written yet
	return t
}

// elements are all elements of the target, made one by one: all of them at once
// would be what the agent takes most memory for.
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
		for _, ps := range t.state.pools {
			if !each(t.state.poolElements(ps)) {
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

// adoptedPool is what the kernel knows of a pool.
type adoptedPool struct {
	number uint32
	slots  []netip.AddrPort
}

// adopt reads pool numbers and slots out of the kernel's table. A number that
// two pools claim is nobody's.
func (c *contents) adopt() (byLabel map[string]adoptedPool, next uint32) {
	byLabel = map[string]adoptedPool{}
	next = 1
	for _, e := range c.elements[pools.name] {
		n := fromNative(e.key)
		if n == 0 || n > maxPool || e.comment == "" {
			continue
		}
		next = max(next, n+1)
		if _, double := byLabel[e.comment]; double {
			delete(byLabel, e.comment)
			continue
		}
		byLabel[e.comment] = adoptedPool{number: n}
	}
	slots := map[uint32][]element{}
	for _, own := range []*familySets{v4, v6} {
		for _, e := range c.elements[own.slots.name] {
			n := fromNative(e.key[:4])
			slots[n] = append(slots[n], e)
		}
	}
	for name, a := range byLabel {
		a.slots = make([]netip.AddrPort, len(slots[a.number]))
		for _, e := range slots[a.number] {
			if i := int(fromNative(e.key[4:])); i < len(a.slots) {
				a.slots[i] = readAddrPort(e.data)
			}
		}
		byLabel[name] = a
	}
	return byLabel, next
}

func readAddrPort(data string) netip.AddrPort {
	if len(data) < 8 {
		return netip.AddrPort{}
	}
	n := len(data) - 4
	addr, _ := netip.AddrFromSlice([]byte(data[:n]))
	return netip.AddrPortFrom(addr, uint16(data[n])<<8|uint16(data[n+1]))
}

// usable reports whether the table is one that this plane can work with, as
// opposed to one of another layout or one that somebody took apart.
func (c *contents) usable() bool {
	if c.comment != tableComment {
		return false
	}
	for _, s := range sets {
		if found := c.sets[s.name]; found == nil || found.ours == nil {
			return false
		}
	}
	for _, want := range fixedChains {
		if found := c.chains[want.name]; found != nil && !found.matches(&want) {
			return false
		}
	}
	return true
}

// replaceAll writes everything anew, in place of what may be there.
func (b *batch) replaceAll(c *contents, t *target) {
	if c.present {
		b.deleteTable()
	}
	b.addTable()
	for _, s := range sets {
		b.addSet(s)
	}
	b.addChains(t.chains)
	// Roughly what it takes, so as not to copy it again and again.
	b.data = slices.Grow(b.data, 100*(3*t.want.NumFrontends()+t.want.NumPools()+2*len(t.state.backends)))
	w := b.elementWriter(true)
	for e := range t.elements() {
		w.put(e)
	}
	w.finish()
}

func (b *batch) addChains(chains []chain) {
	for i := range chains {
		b.addChain(&chains[i])
	}
	for i := range chains {
		b.addRules(&chains[i])
	}
}

// repair writes the differences between what the kernel holds and the target.
func (b *batch) repair(c *contents, t *target) {
	p := &plan{}
	p.compare(c, t)
	var missing, broken []chain
	wanted := map[string]bool{}
	for _, want := range t.chains {
		wanted[want.name] = true
		switch found := c.chains[want.name]; {
		case found == nil:
			missing = append(missing, want)
		case !found.equalRules(&want):
			broken = append(broken, want)
		}
	}
	for i := range missing {
		b.addChain(&missing[i])
	}
	for i := range broken {
		b.flushChain(broken[i].name)
	}
	b.removeForeign(c, wanted, p)
	for _, list := range [][]chain{missing, broken} {
		for i := range list {
			b.addRules(&list[i])
		}
	}
	b.elements(true, p.add)
}

// compare plans what makes the elements in the kernel those of the target.
func (p *plan) compare(c *contents, t *target) {
	var wantIntervals []element
	for e := range t.elements() {
		if e.set.isInterval() {
			wantIntervals = append(wantIntervals, *e)
			continue
		}
		found, ok := c.elements[e.set.name][e.identity()]
		delete(c.elements[e.set.name], e.identity())
		if ok && found.sameValue(e) {
			continue
		}
		if ok {
			p.remove = append(p.remove, found)
		}
		p.add = append(p.add, *e)
	}
	var foundIntervals []element
	for _, foreign := range c.elements {
		for _, e := range foreign {
			if e.set.isInterval() {
				foundIntervals = append(foundIntervals, e)
			} else {
				p.remove = append(p.remove, e)
			}
		}
	}
	p.settings(foundIntervals, wantIntervals)
}

// removeForeign removes elements, chains and sets that are not wanted, those
// that refer to others first.
func (b *batch) removeForeign(c *contents, wanted map[string]bool, p *plan) {
	var chains []string
	for name := range c.chains {
		if !wanted[name] {
			chains = append(chains, name)
		}
	}
	slices.Sort(chains)
	for _, name := range chains {
		b.flushChain(name)
	}
	b.remove(p)
	for name, found := range c.sets {
		if found.ours == nil {
			b.deleteSet(name)
		}
	}
	for _, name := range chains {
		b.deleteChain(name)
	}
}
