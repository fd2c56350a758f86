package program

import (
	"github.com/fairway-net/fairway/model"
)

// Change plans what makes the tables go from old to want. What finds no room is
// left as it was, and said in the error; the rest is in the plan.
func (st *State) Change(old, want *model.Table, c *model.Changes) (*Plan, error) {
	p := newPlan()
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
		if before, after, placed := st.setPool(pc.New); placed {
			p.replace(before, after)
		}
	}
	for i, f := range c.Frontends {
		if f.New == nil {
			p.replace(before[i], nil)
			st.dropFrontend(f.Key())
		} else if after, placed := st.setFrontend(f.New); placed {
			p.replace(before[i], after)
		}
	}
	for _, pc := range c.Pools {
		if pc.New == nil {
			p.replace(st.dropPool(pc.ID()), nil)
		}
	}
}

// Build makes the entries of tables that say what want says, each once, with the
// ids and slots of st as far as it has any.
func (st *State) Build(want *model.Table) (Entries, error) {
	out := roomFor(want)
	st.leftOut = newLeftOut()
	out.add(settingsEntries(want.Settings))
	for p := range want.Pools() {
		if _, after, placed := st.setPool(p); placed {
			out.add(after)
		}
	}
	for f := range want.Frontends() {
		if list, placed := st.setFrontend(f); placed {
			out.add(list)
		}
	}
	for id := range st.pools {
		if want.Pool(id) == nil {
			st.dropPool(id)
		}
	}
	for k := range st.frontends {
		if want.Frontend(k) == nil {
			st.dropFrontend(k)
		}
	}
	st.leftOut.free = len(st.ids.free)
	return out, st.leftOut.err()
}
