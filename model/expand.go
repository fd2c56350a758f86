package model

import (
	"net/netip"
	"slices"
	"sync"
)

// Expansion turns tables into ones without node ports, for planes that have no
// way to say "at any of these addresses": a node port becomes a frontend at each
// of Settings.NodePortAddrs, except where another frontend has the key. Decide
// says the same of both.
//
// The cost of the next table is that of the change, as for Since. The zero value
// is ready; it may be used by several goroutines.
type Expansion struct {
	mu       sync.Mutex
	from, to *Table
}

// Of is the table without node ports; t itself if it has none.
func (x *Expansion) Of(t *Table) *Table {
	if t == nil {
		return nil
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.from != t {
		x.to = x.next(t)
		x.from = t
	}
	return x.to
}

func (x *Expansion) next(t *Table) *Table {
	old, expanded := x.from, x.to
	if old == nil {
		old = NewTable()
		expanded = old
	}
	changes := t.Since(old)
	if expanded == old && !slices.ContainsFunc(changes.Frontends, func(c FrontendChange) bool { return c.Key().IsNodePort() }) {
		return t // no node port before, and none now
	}
	e := expanded.Edit()
	for k := range affected(old, t, changes) {
		switch f := t.Lookup(k); {
		case f == nil:
			e.DeleteFrontend(k)
		case f.Key == k:
			e.SetFrontend(f)
		default:
			at := *f
			at.Key = k
			e.SetFrontend(&at)
		}
	}
	e.SetSettings(t.Settings)
	for _, c := range changes.Pools {
		if c.New != nil {
			e.SetPool(c.New)
		} else {
			e.DeletePool(c.ID())
		}
	}
	return e.Table()
}

// affected are the keys of single addresses at which a change shows.
func affected(old, t *Table, changes *Changes) map[Key]bool {
	keys := map[Key]bool{}
	at := func(k Key, addrs []netip.Addr) {
		for _, a := range addrs {
			if a.Is6() == k.Addr.Is6() {
				keys[k.At(a)] = true
			}
		}
	}
	for _, c := range changes.Frontends {
		if k := c.Key(); k.IsNodePort() {
			at(k, old.Settings.NodePortAddrs)
			at(k, t.Settings.NodePortAddrs)
		} else {
			keys[k] = true
		}
	}
	if came, went := NodePortAddrChanges(old.Settings, t.Settings); len(came)+len(went) > 0 {
		for f := range t.Frontends() {
			if f.IsNodePort() {
				at(f.Key, came)
				at(f.Key, went)
			}
		}
	}
	return keys
}

// NodePortAddrChanges tells at which addresses node ports began and ceased to
// answer between two settings.
func NodePortAddrChanges(old, next *Settings) (came, went []netip.Addr) {
	for _, a := range next.NodePortAddrs {
		if !old.AnswersNodePorts(a) {
			came = append(came, a)
		}
	}
	for _, a := range old.NodePortAddrs {
		if !next.AnswersNodePorts(a) {
			went = append(went, a)
		}
	}
	return came, went
}

// Expand is a single table without node ports.
func Expand(t *Table) *Table { return new(Expansion).Of(t) }
