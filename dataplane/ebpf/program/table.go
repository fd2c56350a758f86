package program

import (
	"slices"

	"github.com/fairway-net/fairway/model"
)

// TableName names one of the maps that say what a model.Table says.
type TableName string

// The tables, in the order in which entries are put, so that nothing names what
// isn't there yet. They are deleted in the opposite order.
const (
	Names     TableName = "names"
	Members   TableName = "members"
	Prefixes  TableName = "prefixes"
	Slots     TableName = "slots"
	maglevs   TableName = "maglev_2"
	pools     TableName = "pools"
	Frontends TableName = "frontends"
)

// TableNames are all of them.
var TableNames = []TableName{Names, Members, Prefixes, Slots, maglevs, pools, Frontends}

// Entry is an element of a table, as bytes.
type Entry struct {
	Table      TableName
	Key, Value string
}

// Entries are entries, each list of one table.
type Entries map[TableName][]Entry

// roomFor has room for the entries of a table: lists of a hundred thousand that grow bit
// by bit take three times the memory.
func roomFor(want *model.Table) Entries {
	backends := 0
	for p := range want.Pools() {
		backends += len(p.Backends)
	}
	return Entries{
		Names: make([]Entry, 0, want.NumPools()), pools: make([]Entry, 0, want.NumPools()),
		Members: make([]Entry, 0, backends), Slots: make([]Entry, 0, backends),
		Frontends: make([]Entry, 0, want.NumFrontends()),
	}
}

func (b Entries) add(list []Entry) {
	for _, e := range list {
		b[e.Table] = append(b[e.Table], e)
	}
}

// Size is how many elements it puts and deletes.
func (p *Plan) Size() int { return p.Put.Count() + p.Delete.Count() }

// Count is how many there are.
func (b Entries) Count() (n int) {
	for _, list := range b {
		n += len(list)
	}
	return n
}

// Contents are the elements of tables: key to value.
type Contents map[TableName]map[string]string

// NewContents are those of empty tables.
func NewContents() Contents {
	c := Contents{}
	for _, t := range TableNames {
		c[t] = map[string]string{}
	}
	return c
}

// Add adds elements.
func (c Contents) Add(list []Entry) {
	for _, e := range list {
		c[e.Table][e.Key] = e.Value
	}
}

// Plan is what is to be done to tables. It is done table by table, so that every
// packet meets either what was or what will be; what is put isn't deleted.
type Plan struct {
	Put    Entries
	Delete Entries // their values don't matter
}

func newPlan() *Plan { return &Plan{Put: Entries{}, Delete: Entries{}} }

// replace plans to turn some entries into others.
func (p *Plan) replace(before, after []Entry) {
	type place struct {
		table TableName
		key   string
	}
	left := make(map[place]string, len(before))
	for _, e := range before {
		left[place{e.Table, e.Key}] = e.Value
	}
	for _, e := range after {
		at := place{e.Table, e.Key}
		if old, found := left[at]; !found || old != e.Value {
			p.Put[e.Table] = append(p.Put[e.Table], e)
		}
		delete(left, at)
	}
	for at := range left {
		p.Delete[at.table] = append(p.Delete[at.table], Entry{Table: at.table, Key: at.key})
	}
}

// dropRewritten takes what is put anew out of what is deleted.
func (p *Plan) dropRewritten() {
	for t, list := range p.Delete {
		kept := map[string]bool{}
		for _, e := range p.Put[t] {
			kept[e.Key] = true
		}
		p.Delete[t] = slices.DeleteFunc(list, func(e Entry) bool { return kept[e.Key] })
	}
}

// Difference is what turns what tables hold into what they should.
func Difference(have Contents, want Entries) *Plan {
	p := newPlan()
	for _, t := range TableNames {
		if len(have[t]) == 0 {
			p.Put[t] = want[t]
			continue
		}
		wanted := make(map[string]bool, len(want[t]))
		for _, e := range want[t] {
			wanted[e.Key] = true
			if old, found := have[t][e.Key]; !found || old != e.Value {
				p.Put[t] = append(p.Put[t], e)
			}
		}
		for key := range have[t] {
			if !wanted[key] {
				p.Delete[t] = append(p.Delete[t], Entry{Table: t, Key: key})
			}
		}
	}
	return p
}
