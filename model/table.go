package model

import (
	"fmt"
	"iter"
	"net/netip"
	"slices"
)

// Table is all that a data plane must make true on this node, both IP families
// in one. It is immutable; Edit makes the next one.
type Table struct {
	Settings  *Settings
	frontends shared[Key, *Frontend]
	pools     shared[PoolID, *Pool]
}

// NewTable returns an empty table.
func NewTable() *Table { return &Table{Settings: &Settings{}} }

// Frontend returns the frontend with exactly this key, or nil.
func (t *Table) Frontend(k Key) *Frontend { return t.frontends.get(k) }

// Lookup returns the frontend that recognises packets to this address, port and
// protocol: the one with this key, or else the node port, if the address is one
// at which node ports answer. Nil if there is none.
func (t *Table) Lookup(k Key) *Frontend {
	if f := t.Frontend(k); f != nil || !t.Settings.AnswersNodePorts(k.Addr) {
		return f
	}
	return t.Frontend(NodePortKey(k.Addr.Is6(), k.Port, k.Proto))
}

// Keeps reports whether a frontend leads to a backend, for new connections or for those
// that it has. No frontend, nil, does not.
func (t *Table) Keeps(f *Frontend, backend netip.AddrPort) bool {
	if f == nil {
		return false
	}
	for i, r := range f.Routes {
		if i > 0 && r.Pool == f.Routes[i-1].Pool {
			continue
		}
		p := t.Pool(r.Pool)
		if p == nil {
			continue
		}
		for _, list := range [][]Backend{p.Backends, p.Draining} {
			for j := range list {
				if list[j].AddrPort() == backend {
					return true
				}
			}
		}
	}
	return false
}

// Pool returns the pool with this id, or nil.
func (t *Table) Pool(id PoolID) *Pool { return t.pools.get(id) }

// Frontends are all frontends, in no order.
func (t *Table) Frontends() iter.Seq[*Frontend] { return t.frontends.values() }

// Pools are all pools, in no order.
func (t *Table) Pools() iter.Seq[*Pool] { return t.pools.values() }

// NumFrontends is the number of frontends.
func (t *Table) NumFrontends() int { return t.frontends.n }

// NumPools is the number of pools.
func (t *Table) NumPools() int { return t.pools.n }

// SortedFrontends lists the frontends by key: for printing, not for every change.
func (t *Table) SortedFrontends() []*Frontend {
	return slices.SortedFunc(t.Frontends(), func(a, b *Frontend) int { return a.Key.Compare(b.Key) })
}

// SortedPools lists the pools by id: for printing, not for every change.
func (t *Table) SortedPools() []*Pool {
	return slices.SortedFunc(t.Pools(), func(a, b *Pool) int { return a.ID.Compare(b.ID) })
}

// Edit is a table in the making. It shares with its origin all that it has not
// touched. Not for concurrent use.
type Edit struct {
	settings  *Settings
	frontends *sharedEdit[Key, *Frontend]
	pools     *sharedEdit[PoolID, *Pool]
}

// Edit begins the table that comes after t, which stays as it is.
func (t *Table) Edit() *Edit {
	return &Edit{settings: t.Settings, frontends: t.frontends.edit(), pools: t.pools.edit()}
}

// Frontend returns the frontend that has exactly this key so far, or nil.
func (e *Edit) Frontend(k Key) *Frontend { return e.frontends.m.get(k) }

// SetSettings replaces the settings; s belongs to the table from now on.
func (e *Edit) SetSettings(s *Settings) { e.settings = s }

// SetFrontend adds f or replaces the one with its key; f belongs to the table
// from now on.
func (e *Edit) SetFrontend(f *Frontend) { e.frontends.set(f.Key, f) }

// DeleteFrontend removes the frontend with this key, if there is one.
func (e *Edit) DeleteFrontend(k Key) { e.frontends.delete(k) }

// SetPool adds p or replaces the one with its id; p belongs to the table from
// now on.
func (e *Edit) SetPool(p *Pool) { e.pools.set(p.ID, p) }

// DeletePool removes the pool with this id, if there is one.
func (e *Edit) DeletePool(id PoolID) { e.pools.delete(id) }

// Table ends the edit and returns the new table. The Edit must not be used
// after.
func (e *Edit) Table() *Table {
	return &Table{Settings: e.settings, frontends: e.frontends.done(), pools: e.pools.done()}
}

// Validate reports the first breach of what data planes rely on: pools that
// routes name, order, uniqueness, families, weights. It reads the whole table:
// for tests and for tables that come from elsewhere.
func (t *Table) Validate() error {
	if err := t.Settings.validate(); err != nil {
		return err
	}
	for _, f := range t.SortedFrontends() {
		if f.IsNodePort() && f.FrontendType != NodePort {
			return fmt.Errorf("frontend %s: only a node port is at all addresses of the node", f.Key)
		}
		for o, r := range f.Routes {
			switch p := t.Pool(r.Pool); {
			case p == nil:
				return fmt.Errorf("frontend %s: route from %s: no pool %s", f.Key, Origin(o), r.Pool)
			case p.ID.Proto != f.Proto || p.ID.IPv6 != f.Addr.Is6():
				return fmt.Errorf("frontend %s: route from %s: pool %s is of another protocol or family", f.Key, Origin(o), r.Pool)
			case r.Direct && (!r.Masquerade || f.Proto == SCTP):
				return fmt.Errorf("frontend %s: route from %s: direct server return is for TCP and UDP, in the place of masquerading", f.Key, Origin(o))
			case r.Stable && (!r.Direct || f.Proto != TCP || !p.hashes()):
				return fmt.Errorf("frontend %s: route from %s: stable connections are for TCP, with direct server return and Maglev hashing", f.Key, Origin(o))
			}
		}
	}
	for _, p := range t.SortedPools() {
		if err := p.validate(); err != nil {
			return fmt.Errorf("pool %s: %w", p.ID, err)
		}
	}
	return nil
}

func (s *Settings) validate() error {
	for i, a := range s.NodePortAddrs {
		if a.IsUnspecified() || i > 0 && s.NodePortAddrs[i-1].Compare(a) >= 0 {
			return fmt.Errorf("settings: node-port address %s is unspecified, double or out of order", a)
		}
	}
	return nil
}

func (p *Pool) validate() error {
	for _, list := range [][]Backend{p.Backends, p.Draining} {
		for i, b := range list {
			switch {
			case b.Addr.Is6() != p.ID.IPv6:
				return fmt.Errorf("backend %s is of another family", b.AddrPort())
			case b.Weight == 0:
				return fmt.Errorf("backend %s has weight 0", b.AddrPort())
			case i > 0 && list[i-1].Compare(b) >= 0:
				return fmt.Errorf("backend %s is double or out of order", b.AddrPort())
			case p.ID.Local && !b.Local:
				return fmt.Errorf("backend %s of a local pool is not local", b.AddrPort())
			}
		}
	}
	for _, b := range p.Draining {
		if _, found := slices.BinarySearchFunc(p.Backends, b, Backend.Compare); found {
			return fmt.Errorf("backend %s both takes connections and drains", b.AddrPort())
		}
	}
	return nil
}

// Equal reports whether two pools say the same.
func (p *Pool) Equal(o *Pool) bool {
	return p.ID == o.ID && p.Stable == o.Stable && p.Empty == o.Empty && p.Affinity == o.Affinity && p.Scheduler == o.Scheduler &&
		p.Orphans == o.Orphans && p.OrphanDeadline == o.OrphanDeadline &&
		slices.Equal(p.Backends, o.Backends) && slices.Equal(p.Draining, o.Draining)
}

// Equal reports whether two frontends say the same.
func (f *Frontend) Equal(o *Frontend) bool {
	return f.Key == o.Key && f.Name == o.Name && f.FrontendType == o.FrontendType && f.Routes == o.Routes &&
		(f.Sources == nil) == (o.Sources == nil) && slices.Equal(f.Sources, o.Sources)
}
