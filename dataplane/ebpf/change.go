package ebpf

import (
	"errors"

	"github.com/fairway-net/fairway/model"
)

// change plans what makes the tables go from old to want. What finds no room is
// left as it was, and said in the error; the rest is in the plan.
func (st *state) change(old, want *model.Table, c *model.Changes) (*plan, error) {
	p := newPlan()
	var full []error
	if c.Settings {
		p.replace(settingsEntries(old.Settings), settingsEntries(want.Settings))
	}
	before := make([][]entry, len(c.Frontends))
	for i, f := range c.Frontends {
		if f.Old != nil {
			before[i] = st.frontendEntries(f.Old)
		}
	}
	for _, pc := range c.Pools {
		if pc.New == nil {
			continue
		}
		before, after, err := st.setPool(pc.New)
		if err != nil {
			full = append(full, err)
			continue
		}
		p.replace(before, after)
	}
	for i, f := range c.Frontends {
		var after []entry
		if f.New != nil {
			var err error
			if after, err = st.setFrontend(f.New); err != nil {
				full = append(full, err)
				continue
			}
		}
		p.replace(before[i], after)
		if f.New == nil {
			st.dropFrontend(f.Key())
		}
	}
	for _, pc := range c.Pools {
		if pc.New == nil {
			p.replace(st.dropPool(pc.ID()), nil)
		}
	}
	p.settle()
	return p, errors.Join(full...)
}

// build makes the entries of tables that say what want says, each once, with the
// ids and slots of st as far as it has any.
func (st *state) build(want *model.Table) (byTable, error) {
	out := byTable{}
	var full []error
	out.add(settingsEntries(want.Settings))
	for p := range want.Pools() {
		if _, after, err := st.setPool(p); err != nil {
			full = append(full, err)
		} else {
			out.add(after)
		}
	}
	for f := range want.Frontends() {
		if list, err := st.setFrontend(f); err != nil {
			full = append(full, err)
		} else {
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
	return out, errors.Join(full...)
}
