package kernel

import (
	"time"

	"github.com/fairway-net/fairway/model"
)

// Tally adds up kernel objects' counters by Service port, for planes that don't
// have a counter for each frontend. Objects may come, go and begin to count anew.
type Tally struct {
	last, seen map[TallyID]Count
	services   map[string]*Count
	fresh      map[string]*Count
	ended      time.Time
	took       time.Duration
}

// TallyID tells a counter from all others.
type TallyID struct{ Where, What string }

// tallyShare bounds what reading counters costs where it is dear: a reading is
// followed by this many times its own duration without another.
const tallyShare = 50

// Due reports whether it is time to read the counters again.
func (t *Tally) Due() bool { return time.Since(t.ended) >= tallyShare*t.took }

// Read has the counters read, by calls of Since and Add, and adds up what they
// have counted since the last time. The Service ports are those of a table.
func (t *Tally) Read(table *model.Table, read func() error) error {
	began := time.Now()
	defer func() {
		t.ended = time.Now()
		t.took = t.ended.Sub(began)
	}()
	t.seen, t.fresh = map[TallyID]Count{}, map[string]*Count{}
	if err := read(); err != nil {
		// What was added already is taken in the next time.
		return err
	}
	t.last = t.seen
	t.addUp(table)
	return nil
}

// Since is what a counter, which stands at now, has counted since the last
// reading; one that went back was made anew.
func (t *Tally) Since(id TallyID, now Count) Count {
	before := t.last[id]
	t.seen[id] = now
	return Count{
		Connections: increase(before.Connections, now.Connections), Refused: increase(before.Refused, now.Refused),
		In: increase(before.In, now.In), Out: increase(before.Out, now.Out),
	}
}

func increase(before, now uint64) uint64 {
	if now < before {
		return now
	}
	return now - before
}

// Add adds to what a Service port has.
func (t *Tally) Add(name string, n Count) {
	if n == (Count{}) {
		return
	}
	if t.fresh[name] == nil {
		t.fresh[name] = &Count{}
	}
	t.fresh[name].plus(n)
}

func (c *Count) plus(n Count) {
	c.Connections += n.Connections
	c.Refused += n.Refused
	c.In += n.In
	c.Out += n.Out
}

// Counts is what all Service ports have, each told of one of its frontends.
func (t *Tally) Counts() []Count {
	list := make([]Count, 0, len(t.services))
	for _, c := range t.services {
		list = append(list, *c)
	}
	return list
}

// addUp adds what is fresh. The frontend of which a Service port's count is told
// stays the same as long as it is there; then the count begins anew.
func (t *Tally) addUp(table *model.Table) {
	if t.services == nil {
		t.services = map[string]*Count{}
	}
	for name, c := range t.services {
		if f := table.Frontend(c.Frontend); f == nil || f.Name != name {
			delete(t.services, name)
		}
	}
	var first map[string]model.Key
	for name, n := range t.fresh {
		c := t.services[name]
		if c == nil {
			if first == nil {
				first = firstFrontends(table)
			}
			key, found := first[name]
			if !found {
				continue
			}
			c = &Count{Frontend: key}
			t.services[name] = c
		}
		c.plus(*n)
	}
}

// firstFrontends are one frontend of each Service port.
func firstFrontends(t *model.Table) map[string]model.Key {
	first := map[string]model.Key{}
	for f := range t.Frontends() {
		if key, found := first[f.Name]; !found || f.Key.Compare(key) < 0 {
			first[f.Name] = f.Key
		}
	}
	return first
}
