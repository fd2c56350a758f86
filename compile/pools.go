package compile

import (
	"net/netip"
	"slices"

	"github.com/fairway-net/fairway/model"
)

// usedPool is a pool that frontends of a Service name.
type usedPool struct {
	id   model.PoolID
	port int         // index into spec.ports
	pool *model.Pool // what the table has; nil if it has none yet
}

// setPools brings the list of pools that a Service needs up to date with its
// frontends.
func (c *Compiler) setPools(svc *service) {
	var list []usedPool
	for _, f := range svc.frontends {
		for o, r := range f.Routes {
			if o > 0 && r.Pool == f.Routes[o-1].Pool || slices.ContainsFunc(list, func(u usedPool) bool { return u.id == r.Pool }) {
				continue
			}
			port := slices.IndexFunc(svc.spec.ports, func(p port) bool { return p.title == r.Pool.Name && p.proto == r.Pool.Proto })
			list = append(list, usedPool{id: r.Pool, port: port})
		}
	}
	slices.SortFunc(list, func(a, b usedPool) int { return a.id.Compare(b.id) })
	for _, old := range svc.pools {
		i, found := slices.BinarySearchFunc(list, old.id, func(u usedPool, id model.PoolID) int { return u.id.Compare(id) })
		if found {
			list[i].pool = old.pool
		} else if old.pool != nil {
			c.change().DeletePool(old.id)
		}
	}
	svc.pools = list
}

// compilePools brings the pools of a Service up to date with its endpoints.
// Those that say the same as before stay the same value.
func (c *Compiler) compilePools(svc *service) {
	for i := range svc.pools {
		u := &svc.pools[i]
		if i == 0 || u.port != svc.pools[i-1].port || u.id.IPv6 != svc.pools[i-1].id.IPv6 {
			c.gather(svc, &svc.spec.ports[u.port], u.id.IPv6)
		}
		next := model.Pool{
			ID:             u.id,
			Affinity:       svc.spec.affinity,
			Scheduler:      svc.spec.overrides.scheduler,
			Orphans:        svc.spec.overrides.orphans,
			OrphanDeadline: svc.spec.overrides.orphanDeadline,
		}
		c.scratch.choose(&next)
		if len(next.Backends) == 0 && c.served(svc.spec) {
			next.Empty = model.Drop
		}
		if svc.spec.overrides.stable && u.id.Proto == model.TCP && !u.id.Local {
			next.Stable = true
		}
		if u.pool != nil && u.pool.Equal(&next) {
			continue
		}
		next.Backends, next.Draining = slices.Clone(next.Backends), slices.Clone(next.Draining)
		pool := next
		u.pool = &pool
		c.change().SetPool(u.pool)
	}
}

// served reports whether a server on this node answers for a Service.
func (c *Compiler) served(s *spec) bool {
	return slices.ContainsFunc(c.config.Served, func(a netip.Addr) bool { return slices.Contains(s.clusterIPs, a) })
}
