package ebpf

import (
	"maps"
	"slices"
)

// table names one of the maps that say what a model.Table says.
type table string

// The tables, in the order in which entries are put, so that nothing names what
// isn't there yet. They are deleted in the opposite order.
const (
	names     table = "names"
	members   table = "members"
	prefixes  table = "prefixes"
	slots     table = "slots"
	maglevs   table = "maglevs"
	pools     table = "pools"
	frontends table = "frontends"
)

var tables = []table{names, members, prefixes, slots, maglevs, pools, frontends}

// entry is an element of a table, as bytes.
type entry struct {
	table      table
	key, value string
}

// contents are the elements of tables: key to value.
type contents map[table]map[string]string

func newContents() contents {
	c := contents{}
	for _, t := range tables {
		c[t] = map[string]string{}
	}
	return c
}

func (c contents) add(list []entry) {
	for _, e := range list {
		c[e.table][e.key] = e.value
	}
}

// plan is what is to be done to tables.
type plan struct {
	put    []entry
	delete []entry // their values don't matter
}

// replace plans to turn some entries into others.
func (p *plan) replace(before, after []entry) {
	type place struct {
		table table
		key   string
	}
	left := make(map[place]string, len(before))
	for _, e := range before {
		left[place{e.table, e.key}] = e.value
	}
	for _, e := range after {
		at := place{e.table, e.key}
		if old, found := left[at]; !found || old != e.value {
			p.put = append(p.put, e)
		}
		delete(left, at)
	}
	for at := range left {
		p.delete = append(p.delete, entry{table: at.table, key: at.key})
	}
}

// settle brings the plan's steps into an order in which every packet meets
// either what was or what will be. What is put anew isn't deleted.
func (p *plan) settle() {
	order := map[table]int{}
	for i, t := range tables {
		order[t] = i
	}
	kept := map[entry]bool{}
	for _, e := range p.put {
		kept[entry{table: e.table, key: e.key}] = true
	}
	p.delete = slices.DeleteFunc(p.delete, func(e entry) bool { return kept[e] })
	slices.SortStableFunc(p.put, func(a, b entry) int { return order[a.table] - order[b.table] })
	slices.SortStableFunc(p.delete, func(a, b entry) int { return order[b.table] - order[a.table] })
}

// difference is what turns one content into the other.
func difference(have, want contents) *plan {
	p := &plan{}
	for _, t := range tables {
		for key, value := range want[t] {
			if old, found := have[t][key]; !found || old != value {
				p.put = append(p.put, entry{t, key, value})
			}
		}
		for key := range maps.Keys(have[t]) {
			if _, wanted := want[t][key]; !wanted {
				p.delete = append(p.delete, entry{table: t, key: key})
			}
		}
	}
	p.settle()
	return p
}
