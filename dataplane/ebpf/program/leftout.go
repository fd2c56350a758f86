package program

import (
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// leftOut is what has no id, since there are no more. It is tried again when others
// have become free.
type leftOut struct {
	pools     map[model.PoolID]bool
	frontends map[model.Key]bool
	waiting   map[model.Key]bool // frontends that have one, and lead to such pools
	free      int                // how many ids were free when it was last tried
}

func newLeftOut() leftOut {
	return leftOut{map[model.PoolID]bool{}, map[model.Key]bool{}, map[model.Key]bool{}, 0}
}

// err is a kernel.FullError; nil if nothing is left out.
func (l *leftOut) err() error {
	if n := len(l.pools) + len(l.frontends); n > 0 {
		return &kernel.FullError{What: "the eBPF map counts", LeftOut: n}
	}
	return nil
}

// forget takes out what changes.
func (l *leftOut) forget(c *model.Changes) {
	for _, pc := range c.Pools {
		delete(l.pools, pc.ID())
	}
	for _, fc := range c.Frontends {
		delete(l.frontends, fc.Key())
		delete(l.waiting, fc.Key())
	}
}

// retry is a change that brings what is left out; nil if no ids have become free for it.
func (st *State) retry(want *model.Table) *model.Changes {
	l := st.leftOut
	if l.err() == nil || len(st.ids.free) <= l.free {
		return nil
	}
	st.leftOut = newLeftOut()
	c := &model.Changes{}
	for id := range l.pools {
		if p := want.Pool(id); p != nil {
			c.Pools = append(c.Pools, model.PoolChange{New: p})
		}
	}
	for _, keys := range []map[model.Key]bool{l.frontends, l.waiting} {
		for k := range keys {
			if f := want.Frontend(k); f != nil {
				c.Frontends = append(c.Frontends, model.FrontendChange{Old: f, New: f})
			}
		}
	}
	return c
}
