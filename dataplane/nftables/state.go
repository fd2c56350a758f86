package nftables

import (
	"net/netip"
	"time"

	"github.com/fairway-net/fairway/model"
)

// state is what the plane decided itself: the numbers of pools, which backend
// stands in which slot, and what follows from several pools together.
type state struct {
	scheduler  model.Scheduler // of pools that name none
	next       uint32          // the lowest pool number never given
	pools      map[model.PoolID]*poolState
	members    map[uint32]member    // of pools with session affinity
	backends   map[backendKey]int32 // how many pools name a backend
	loopbacks  int                  // frontends on 127.0.0.0/8
	noLocalnet bool                 // what is at 127.0.0.0/8 is left out
	chains     map[string]bool      // how pools choose and remember, as far as there are chains for it
	// stale are pools of which frontends say something that isn't so any more:
	// their number, or whether they remember clients.
	stale map[model.PoolID]bool
}

// poolState is a pool as it is in the kernel.
type poolState struct {
	pool   *model.Pool
	number uint32
	slots  []netip.AddrPort
	mark   []memberNumberOf
}

type memberNumberOf struct {
	backend netip.AddrPort
	number  uint32
}

// member is whose number it is.
type member struct {
	pool    uint32
	backend netip.AddrPort
}

// backendKey is a backend as answers from it are recognised. There are a hundred
// thousand, so it is small and without pointers for the collector to follow.
type backendKey struct {
	addr  [16]byte // IPv4 as ::ffff:a.b.c.d
	port  uint16
	proto model.Protocol
}

func backendKeyOf(b model.Backend, proto model.Protocol) backendKey {
	return backendKey{b.Addr.As16(), b.Port, proto}
}

func newState(scheduler string) *state {
	return &state{scheduler: model.Scheduler(scheduler), next: 1, pools: map[model.PoolID]*poolState{},
		members: map[uint32]member{}, backends: map[backendKey]int32{}, chains: map[string]bool{}, stale: map[model.PoolID]bool{}}
}

// setPool brings a pool to what p says; nil removes it. It returns the elements
// before and after.
func (st *state) setPool(id model.PoolID, p *model.Pool) (before, after []element) {
	ps := st.pools[id]
	if ps != nil && ps.pool != nil {
		before = st.poolElements(ps)
		before = append(before, st.countBackends(ps.pool, -1)...)
		if p != nil && (p.Affinity == 0) != (ps.pool.Affinity == 0) {
			st.stale[id] = true
		}
		st.dropMembers(ps)
	}
	if p == nil {
		delete(st.pools, id)
		return before, nil
	}
	ps = st.place(p)
	after = st.poolElements(ps)
	return before, append(after, st.countBackends(p, +1)...)
}

// place gives a pool its number, slots and members.
func (st *state) place(p *model.Pool) *poolState {
	ps := st.pools[p.ID]
	if ps == nil {
		ps = &poolState{}
		st.pools[p.ID] = ps
	}
	ps.pool = p
	ps.slots = assign(ps.slots, p.Backends)
	if ps.number == 0 {
		ps.number = st.newNumber()
	}
	st.setMembers(ps)
	return ps
}

// newNumber gives a number that no pool ever had: session affinity may still
// remember clients of pools that are gone.
func (st *state) newNumber() uint32 {
	n := st.next
	st.next = n%maxPool + 1
	return n
}

// setMembers works out by which numbers clients of the pool remember their
// backends. They are hashes: if one is taken, once in a hundred thousand, the
// pool gets another number, and with it other hashes. See stale.
func (st *state) setMembers(ps *poolState) {
	if ps.pool.Affinity == 0 {
		return
	}
	for !st.tryMembers(ps) {
		st.dropMembers(ps)
		ps.number = st.newNumber()
		st.stale[ps.pool.ID] = true
	}
}

func (st *state) tryMembers(ps *poolState) bool {
	for _, b := range ps.pool.Backends {
		n := memberNumber(ps.number, b.AddrPort())
		if _, taken := st.members[n]; taken {
			return false
		}
		st.members[n] = member{ps.number, b.AddrPort()}
		ps.mark = append(ps.mark, memberNumberOf{b.AddrPort(), n})
	}
	return true
}

func (st *state) dropMembers(ps *poolState) {
	for _, m := range ps.mark {
		delete(st.members, m.number)
	}
	ps.mark = nil
}

// countBackends adds a pool's backends to the count of all. It returns the
// elements of those that came or went with it.
func (st *state) countBackends(p *model.Pool, by int32) []element {
	var list []element
	for _, backends := range [][]model.Backend{p.Backends, p.Draining} {
		for _, b := range backends {
			key := backendKeyOf(b, p.ID.Proto)
			was := st.backends[key]
			if was+by == 0 {
				delete(st.backends, key)
			} else {
				st.backends[key] = was + by
			}
			if was == 0 || was+by == 0 {
				list = append(list, backendElement(key))
			}
		}
	}
	return list
}

func backendElement(key backendKey) element {
	a := netip.AddrFrom16(key.addr).Unmap()
	addr := addrField(a)
	return element{set: setsOf(a.Is6()).backends,
		key: addr + addr + protoField(key.proto) + portField(key.port)}
}

// poolElements are the elements of a pool by itself.
func (st *state) poolElements(ps *poolState) []element {
	p, own := ps.pool, setsOf(ps.pool.ID.IPv6)
	n, name := native(ps.number), label(p.ID)
	choose := native(uint32(st.choice(ps)))
	list := make([]element, 0, len(ps.slots)+len(ps.mark)+3)
	for i, b := range ps.slots {
		list = append(list, element{set: own.slots, key: n + native(uint32(i)), data: addrPortFields(b), comment: name})
	}
	if p.Affinity == 0 || len(ps.slots) == 0 {
		return append(list, element{set: pools, key: n, data: choose, comment: name})
	}
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

func familyOf(ipv6 bool) *family {
	if ipv6 {
		return families[1]
	}
	return families[0]
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
