package ebpf

import "slices"

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

// byTable are entries, each list of one table.
type byTable map[table][]entry

func (b byTable) add(list []entry) {
	for _, e := range list {
		b[e.table] = append(b[e.table], e)
	}
}

// count is how many there are.
func (b byTable) count() (n int) {
	for _, list := range b {
		n += len(list)
	}
	return n
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

// plan is what is to be done to tables. It is done table by table, so that every
// packet meets either what was or what will be; what is put isn't deleted.
type plan struct {
	put    byTable
	delete byTable // their values don't matter
}

func newPlan() *plan { return &plan{put: byTable{}, delete: byTable{}} }

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
			p.put[e.table] = append(p.put[e.table], e)
		}
		delete(left, at)
	}
	for at := range left {
		p.delete[at.table] = append(p.delete[at.table], entry{table: at.table, key: at.key})
	}
}

// settle takes what is put anew out of what is deleted.
func (p *plan) settle() {
	for t, list := range p.delete {
		kept := map[string]bool{}
		for _, e := range p.put[t] {
			kept[e.key] = true
		}
		p.delete[t] = slices.DeleteFunc(list, func(e entry) bool { return kept[e.key] })
	}
}

// difference is what turns what tables hold into what they should.
func difference(have contents, want byTable) *plan {
	p := newPlan()
	for _, t := range tables {
		if len(have[t]) == 0 {
			p.put[t] = want[t]
			continue
		}
		wanted := make(map[string]bool, len(want[t]))
		for _, e := range want[t] {
			wanted[e.key] = true
			if old, found := have[t][e.key]; !found || old != e.value {
				p.put[t] = append(p.put[t], e)
			}
		}
		for key := range have[t] {
			if !wanted[key] {
				p.delete[t] = append(p.delete[t], entry{table: t, key: key})
			}
		}
	}
	return p
}
