package program

import (
	"iter"
	"slices"
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

// Size is how many elements it puts and deletes.
func (p *Plan) Size() int { return p.Put.Count() + p.Delete.Count() }

// Count is how many there are.
func (b Entries) Count() (n int) {
	for _, list := range b {
		n += len(list)
	}
	return n
}

// Empty takes all entries out, and keeps the lists' memory for others.
func (b Entries) Empty() {
	for t, list := range b {
		clear(list)
		b[t] = list[:0]
	}
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

// Difference is an element that a table should hold, and hasn't or with another value;
// or one that it has and shouldn't hold.
type Difference struct {
	Entry         // its value is "" if it shouldn't be there
	Have   string // the value that the table has; "" if it hasn't the element
	Excess bool   // it shouldn't be there
}

// Differences compares with what tables should hold, and takes that out of c on the way:
// so that not all of it is in memory at once.
func (c Contents) Differences(want iter.Seq[Entry]) iter.Seq[Difference] {
	return func(yield func(Difference) bool) {
		for e := range want {
			have, found := c[e.Table][e.Key]
			delete(c[e.Table], e.Key)
			if (!found || have != e.Value) && !yield(Difference{Entry: e, Have: have}) {
				return
			}
		}
		for t, elements := range c {
			for key, value := range elements {
				if !yield(Difference{Entry: Entry{Table: t, Key: key}, Have: value, Excess: true}) {
					return
				}
			}
		}
	}
}

// Plan is what is to be done to tables. It is done table by table, so that every
// packet meets either what was or what will be; what is put isn't deleted.
type Plan struct {
	Put    Entries
	Delete Entries // their values don't matter
	// Before is what a change found where it puts or deletes something.
	Before map[Place]Before
}

// Place is where an element belongs.
type Place struct {
	Table TableName
	Key   string
}

// Before is an element as it was, if there was one.
type Before struct {
	Value   string
	Present bool
}

// NewPlan is to do nothing.
func NewPlan() *Plan { return &Plan{Put: Entries{}, Delete: Entries{}, Before: map[Place]Before{}} }

// Add plans to mend a difference.
func (p *Plan) Add(d Difference) {
	into := p.Put
	if d.Excess {
		into = p.Delete
	}
	into[d.Table] = append(into[d.Table], d.Entry)
}

// replace plans to turn some entries into others.
func (p *Plan) replace(before, after []Entry) {
	left := make(map[Place]string, len(before))
	for _, e := range before {
		left[Place{e.Table, e.Key}] = e.Value
	}
	for _, e := range after {
		at := Place{e.Table, e.Key}
		if old, found := left[at]; !found || old != e.Value {
			p.note(at, Before{old, found})
			p.Put[e.Table] = append(p.Put[e.Table], e)
		}
		delete(left, at)
	}
	for at, old := range left {
		p.note(at, Before{old, true})
		p.Delete[at.Table] = append(p.Delete[at.Table], Entry{Table: at.Table, Key: at.Key})
	}
}

// note keeps what was somewhere before all of the plan.
func (p *Plan) note(at Place, was Before) {
	if _, known := p.Before[at]; !known {
		p.Before[at] = was
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
