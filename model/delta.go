package model

// Delta is what makes one table from another, in a form that survives JSON:
// for tables that cross a process boundary and shall go on sharing structure.
type Delta struct {
	Anew          bool // the table before is the empty one, whatever the receiver has
	Settings      *Settings
	Frontends     []*Frontend
	Pools         []*Pool
	FrontendsGone []Key
	PoolsGone     []PoolID
}

// Delta is what makes t from old; from nothing if old is nil.
func (t *Table) Delta(old *Table) *Delta {
	since := t.Since(old)
	d := &Delta{Anew: old == nil}
	if since.Settings {
		d.Settings = t.Settings
	}
	for _, f := range since.Frontends {
		if f.New == nil {
			d.FrontendsGone = append(d.FrontendsGone, f.Key())
		} else {
			d.Frontends = append(d.Frontends, f.New)
		}
	}
	for _, p := range since.Pools {
		if p.New == nil {
			d.PoolsGone = append(d.PoolsGone, p.ID())
		} else {
			d.Pools = append(d.Pools, p.New)
		}
	}
	return d
}

// Apply makes the next table from last, which stays as it is. What d points to
// belongs to the new table.
func (d *Delta) Apply(last *Table) *Table {
	if d.Anew {
		last = NewTable()
	}
	e := last.Edit()
	if d.Settings != nil {
		e.SetSettings(d.Settings)
	}
	for _, k := range d.FrontendsGone {
		e.DeleteFrontend(k)
	}
	for _, id := range d.PoolsGone {
		e.DeletePool(id)
	}
	for _, p := range d.Pools {
		e.SetPool(p)
	}
	for _, f := range d.Frontends {
		e.SetFrontend(f)
	}
	return e.Table()
}
