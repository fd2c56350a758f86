package program

import (
	"iter"

	"github.com/fairway-net/fairway/model"
)

// Change plans what makes the tables go from old to want. What finds no room is
// left as it was, and said in the error; the rest is in the plan.
func (st *State) Change(old, want *model.Table, c *model.Changes) (*Plan, error) {
	p := NewPlan()
	st.leftOut.forget(c)
	st.plan(p, old, want, c)
	if again := st.retry(want); again != nil {
		st.plan(p, want, want, again)
	}
	st.leftOut.free = len(st.ids.free)
	p.dropRewritten()
	return p, st.leftOut.err()
}

// plan adds to a plan what a change takes.
func (st *State) plan(p *Plan, old, want *model.Table, c *model.Changes) {
	if c.Settings {
		p.replace(settingsEntries(old.Settings), settingsEntries(want.Settings))
	}
	before := make([][]Entry, len(c.Frontends))
	for i, f := range c.Frontends {
		if f.Old != nil && st.frontends[f.Key()] != 0 {
			before[i] = st.frontendEntries(f.Old)
		}
	}
	for _, pc := range c.Pools {
		if pc.New == nil {
			continue
		}
		was := st.pools[pc.ID()].snapshot()
		if st.placePool(pc.New) {
			p.replace(st.poolDifference(was, st.pools[pc.ID()]))
		}
	}
	for i, f := range c.Frontends {
		if f.New == nil {
			p.replace(before[i], nil)
			st.dropFrontend(f.Key())
		} else if st.placeFrontend(f.New) {
			p.replace(before[i], st.frontendEntries(f.New))
		}
	}
	for _, pc := range c.Pools {
		if pc.New == nil {
			p.replace(st.dropPool(pc.ID()), nil)
		}
	}
}

// Build decides on ids and slots for all of want, with those that st has.
func (st *State) Build(want *model.Table) error {
	st.leftOut = newLeftOut()
	for p := range want.Pools() {
		st.placePool(p)
	}
	for f := range want.Frontends() {
		st.placeFrontend(f)
	}
	st.leftOut.free = len(st.ids.free)
	return st.leftOut.err()
}

// All are the entries of tables that say what want says, each once, after Build.
func (st *State) All(want *model.Table) iter.Seq[Entry] {
	return func(yield func(Entry) bool) {
		each := func(list []Entry) bool {
			for _, e := range list {
				if !yield(e) {
					return false
				}
			}
			return true
		}
		if !each(settingsEntries(want.Settings)) {
			return
		}
		var list []Entry // one after the other in the same memory
		for p := range want.Pools() {
			if list = st.appendPool(list[:0], st.pools[p.ID]); !each(list) {
				return
			}
		}
		for f := range want.Frontends() {
			if st.frontends[f.Key] != 0 && !each(st.frontendEntries(f)) {
				return
			}
		}
	}
}

// Sizes are how many entries of pools and frontends each table has.
func (st *State) Sizes() map[TableName]int {
	n := map[TableName]int{Frontends: len(st.frontends)}
	for _, ps := range st.pools {
		if ps.pool == nil {
			continue
		}
		n[Names]++
		n[pools]++
		n[Members] += len(ps.ids)
		n[Slots] += len(ps.baseSlots) + len(ps.weightSlots) + len(ps.allSlots)
		n[maglevs] += ps.maglevSize()
	}
	return n
}
