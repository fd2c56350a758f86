package model

// Changes are what is different between two tables.
type Changes struct {
	Settings  bool // the settings differ
	Frontends []FrontendChange
	Pools     []PoolChange
}

// FrontendChange is one frontend that came (Old is nil), went (New is nil) or
// says something else now.
type FrontendChange struct{ Old, New *Frontend }

// PoolChange is one pool that came (Old is nil), went (New is nil) or says
// something else now.
type PoolChange struct{ Old, New *Pool }

// Since tells what changed between old and t. The cost is that of the change
// if one was made from the other through edits. A nil old means everything.
func (t *Table) Since(old *Table) *Changes {
	if old == nil {
		old = NewTable()
		c := t.Since(old)
		c.Settings = true
		return c
	}
	c := &Changes{Settings: t.Settings != old.Settings && !t.Settings.Equal(old.Settings)}
	differences(old.frontends, t.frontends, func(_ Key, before, after *Frontend) {
		if before == nil || after == nil || !before.Equal(after) {
			c.Frontends = append(c.Frontends, FrontendChange{before, after})
		}
	})
	differences(old.pools, t.pools, func(_ PoolID, before, after *Pool) {
		if before == nil || after == nil || !before.Equal(after) {
			c.Pools = append(c.Pools, PoolChange{before, after})
		}
	})
	return c
}

// Empty reports whether nothing changed.
func (c *Changes) Empty() bool {
	return !c.Settings && len(c.Frontends) == 0 && len(c.Pools) == 0
}

// Key is the key of the frontend that changed.
func (c FrontendChange) Key() Key {
	if c.New != nil {
		return c.New.Key
	}
	return c.Old.Key
}

// ID is the id of the pool that changed.
func (c PoolChange) ID() PoolID {
	if c.New != nil {
		return c.New.ID
	}
	return c.Old.ID
}

// Backends tells which backends began and ceased to take new connections. A
// backend with another weight or locality is in both.
func (c PoolChange) Backends() (added, removed []Backend) {
	var before, after []Backend
	if c.Old != nil {
		before = c.Old.Backends
	}
	if c.New != nil {
		after = c.New.Backends
	}
	return compareBackends(before, after)
}

// Gone tells which backends are in neither list of the pool any more: their
// UDP flows are to be forgotten and their TCP connections are orphans.
func (c PoolChange) Gone() []Backend {
	if c.Old == nil {
		return nil
	}
	gone := map[Backend]bool{}
	for _, list := range [][]Backend{c.Old.Backends, c.Old.Draining} {
		for _, b := range list {
			gone[b.identity()] = true
		}
	}
	if c.New != nil {
		for _, list := range [][]Backend{c.New.Backends, c.New.Draining} {
			for _, b := range list {
				delete(gone, b.identity())
			}
		}
	}
	var list []Backend
	for _, old := range [][]Backend{c.Old.Backends, c.Old.Draining} {
		for _, b := range old {
			if gone[b.identity()] {
				list = append(list, b)
			}
		}
	}
	return list
}

// identity is the backend without what may change about it.
func (b Backend) identity() Backend { return Backend{Addr: b.Addr, Port: b.Port} }

func compareBackends(before, after []Backend) (added, removed []Backend) {
	for len(before) > 0 && len(after) > 0 {
		switch c := before[0].Compare(after[0]); {
		case c < 0:
			removed, before = append(removed, before[0]), before[1:]
		case c > 0:
			added, after = append(added, after[0]), after[1:]
		default:
			if before[0] != after[0] {
				removed, added = append(removed, before[0]), append(added, after[0])
			}
			before, after = before[1:], after[1:]
		}
	}
	return append(added, after...), append(removed, before...)
}

// EachDifference calls visit for the backends of two sorted lists that only one of them has,
// or of which they say something else, with their places; -1 is none.
func EachDifference(old, next []Backend, visit func(o, n int)) {
	o, n := 0, 0
	for o < len(old) || n < len(next) {
		order := 0
		switch {
		case o == len(old):
			order = 1
		case n == len(next):
			order = -1
		case old[o] == next[n]:
			o, n = o+1, n+1
			continue
		default:
			order = old[o].AddrPort().Compare(next[n].AddrPort())
		}
		switch {
		case order < 0:
			visit(o, -1)
			o++
		case order > 0:
			visit(-1, n)
			n++
		default:
			visit(o, n)
			o, n = o+1, n+1
		}
	}
}
