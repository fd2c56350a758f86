package nftables

import (
	"net/netip"

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
	if ps != nil && p != nil && alike(ps.pool) && alike(p) {
		return st.movePool(ps, p)
	}
	if ps != nil && ps.pool != nil {
		before = st.appendPool(nil, ps)
		st.countBackends(ps.pool, -1, func(b backendKey) { before = append(before, backendElement(b)) })
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
	after = st.appendPool(nil, ps)
	st.countBackends(p, +1, func(b backendKey) { after = append(after, backendElement(b)) })
	return before, after
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

// countBackends adds a pool's backends to the count of all. It calls changed with those that
// came or went with it.
func (st *state) countBackends(p *model.Pool, by int32, changed func(backendKey)) {
	for _, backends := range [][]model.Backend{p.Backends, p.Draining} {
		for _, b := range backends {
			st.countBackend(backendKeyOf(b, p.ID.Proto), by, changed)
		}
	}
}

func (st *state) countBackend(key backendKey, by int32, changed func(backendKey)) {
	was := st.backends[key]
	if was+by == 0 {
		delete(st.backends, key)
	} else {
		st.backends[key] = was + by
	}
	if was == 0 || was+by == 0 {
		changed(key)
	}
}

func familyOf(ipv6 bool) *family {
	if ipv6 {
		return families[1]
	}
	return families[0]
}
