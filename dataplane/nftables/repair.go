package nftables

import "slices"

// replaceAll writes everything anew, in place of what may be there.
func (b *batch) replaceAll(c *contents, t *target) {
	if c.present {
		b.deleteTable()
	}
	b.addTable()
	room := t.initialSizes()
	for _, s := range sets {
		b.addSet(s, max(s.size, room[s]))
	}
	b.addChains(t.chains)
	w := b.elementWriter(true)
	for e := range t.elements() {
		w.put(e)
	}
	w.finish()
	for _, s := range sets {
		if room[s] > 0 {
			b.addSet(s, unbounded)
		}
	}
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
	missing, broken, foreign := c.compareChains(t)
	for i := range missing {
		b.addChain(&missing[i])
	}
	for i := range broken {
		b.flushChain(broken[i].name)
	}
	b.removeForeign(c, foreign, p)
	for _, list := range [][]chain{missing, broken} {
		for i := range list {
			b.addRules(&list[i])
		}
	}
	b.elements(true, p.add)
}

// compareChains tells which chains are missing, have other rules than they should,
// or are not wanted; the last by name.
func (c *contents) compareChains(t *target) (missing, broken []chain, foreign []string) {
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
	for name := range c.chains {
		if !wanted[name] {
			foreign = append(foreign, name)
		}
	}
	slices.Sort(foreign)
	return missing, broken, foreign
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
func (b *batch) removeForeign(c *contents, chains []string, p *plan) {
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
