package userspace

import (
	"net/netip"
	"slices"
	"time"

	"github.com/fairway-net/fairway/model"
)

// poolChanged sees to the flows of backends that are gone.
func (r *relay) poolChanged(c model.PoolChange) {
	if c.New == nil {
		defer r.balancer.forget(c.Old.ID)
	}
	for _, b := range c.Gone() {
		fate := c.Old
		if c.New != nil {
			fate = c.New
		}
		r.abandon(fate, r.flows.where(func(f *flow) bool { return f.pool == c.ID() && f.backend == b.AddrPort() }))
	}
}

// abandon treats flows whose backend is gone: UDP ends at once, TCP as the pool
// says.
func (r *relay) abandon(p *model.Pool, orphans []*flow) {
	switch {
	case p.ID.Proto == model.UDP, p.Orphans == model.OrphansReset:
		for _, f := range orphans {
			f.end()
		}
	case p.Orphans == model.OrphansDeadline:
		time.AfterFunc(p.OrphanDeadline, func() {
			table := r.current()
			for _, f := range orphans {
				if !serves(table.Pool(f.pool), f.backend) { // it may be back
					f.end()
				}
			}
		})
	}
}

// recheck treats a flow that has just begun according to a table that may have
// changed since its backend was chosen out of pool p.
func (r *relay) recheck(f *flow, p *model.Pool) {
	table := r.current()
	now := table.Pool(f.pool)
	front := table.Frontend(f.key)
	switch {
	case f.key.Proto == model.UDP && (front == nil || !leadsTo(front, f.pool)):
		f.end()
	case !serves(now, f.backend) && now != nil:
		r.abandon(now, []*flow{f})
	case now == nil:
		r.abandon(p, []*flow{f})
	}
}

// serves reports whether a pool has a backend, be it a draining one.
func serves(p *model.Pool, backend netip.AddrPort) bool {
	is := func(b model.Backend) bool { return b.AddrPort() == backend }
	return p != nil && (slices.ContainsFunc(p.Backends, is) || slices.ContainsFunc(p.Draining, is))
}

func leadsTo(f *model.Frontend, id model.PoolID) bool {
	return slices.ContainsFunc(f.Routes[:], func(r model.Route) bool { return r.Pool == id })
}
