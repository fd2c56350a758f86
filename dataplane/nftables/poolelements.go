package nftables

import (
	"net/netip"
	"slices"
	"time"

	"github.com/fairway-net/fairway/model"
)

func backendElement(key backendKey) element {
	a := netip.AddrFrom16(key.addr).Unmap()
	addr := addrField(a)
	return element{set: setsOf(a.Is6()).backends,
		key: addr + addr + protoField(key.proto) + portField(key.port)}
}

// appendPool appends the elements of a pool by itself.
func (st *state) appendPool(list []element, ps *poolState) []element {
	p, own := ps.pool, setsOf(ps.pool.ID.IPv6)
	n, name := native(ps.number), label(p.ID)
	list = slices.Grow(list, len(ps.slots)+len(ps.mark)+3)
	for i, b := range ps.slots {
		list = append(list, element{set: own.slots, key: n + native(uint32(i)), data: addrPortFields(b), comment: name})
	}
	if p.Affinity == 0 || len(ps.slots) == 0 {
		return append(list, st.choosing(ps))
	}
	choose := native(uint32(st.choice(ps)))
	for _, m := range ps.mark {
		list = append(list, element{set: own.members, key: native(m.number), data: addrPortFields(m.backend), comment: name})
	}
	way := choice(sticky, p.ID.Proto, familyOf(p.ID.IPv6), 0)
	return append(list,
		element{set: fresh, key: n, data: choose, comment: name},
		element{set: learn, key: n, data: native(remembered(affinity(p))), comment: name},
		element{set: pools, key: n, data: native(uint32(way)), comment: name})
}

// affinity is the pool's affinity time in whole seconds: the rules that
// remember clients are made for a time each.
func affinity(p *model.Pool) time.Duration {
	return (p.Affinity + time.Second - 1).Truncate(time.Second)
}

// choice is how the pool chooses among its slots.
func (st *state) choice(ps *poolState) chosen {
	switch {
	case len(ps.slots) == 0 && ps.pool.Empty == model.Drop:
		return discarded
	case len(ps.slots) == 0:
		return refused
	}
	return choice(st.method(ps.pool), ps.pool.ID.Proto, familyOf(ps.pool.ID.IPv6), len(ps.slots))
}

// method is how the pool's scheduler is done here. What is not offered is done at
// random (see Unsupported).
func (st *state) method(p *model.Pool) uint32 {
	scheduler := p.Scheduler
	if scheduler == model.DefaultScheduler {
		scheduler = st.scheduler
	}
	switch scheduler {
	case model.SourceHashing:
		return source
	case model.DestinationHashing:
		return destination
	}
	return random
}

// chainsOf are the chains that the pool needs beside the fixed ones, except
// those that there are.
func (st *state) chainsOf(ps *poolState, there map[string]bool) []chain {
	if len(ps.slots) == 0 {
		return nil
	}
	var list []chain
	if c := st.choice(ps); !there[c.String()] {
		there[c.String()] = true
		list = c.chains()
	}
	if p := ps.pool; p.Affinity != 0 {
		if key := "learn " + affinity(p).String(); !there[key] {
			there[key] = true
			list = append(list, learner(affinity(p)))
		}
	}
	return list
}
