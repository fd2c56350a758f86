// Package program says what the maps hold for a model.Table: which elements, with
// which ids and slots, and what a change adds and deletes. It touches no kernel.
//
// state.go, poolstate.go, slots.go and ids.go decide on ids and slots; encode.go makes
// bytes of them (bpf/types.h); table.go has elements and plans, change.go makes plans;
// difference.go has what changes in one pool; adopt.go learns ids from what the maps hold; describe.go says it in words.
package program

import (
	"net/netip"
	"slices"

	"github.com/fairway-net/fairway/model"
)

// State is what the plane decided itself: the ids of pools, backends and
// frontends, and which backend stands in which slot.
type State struct {
	scheduler model.Scheduler // of pools that name none
	ids       *ids
	pools     map[model.PoolID]*poolState
	frontends map[model.Key]uint32
	leftOut   leftOut
	// Allocated are the ids allocated since their counters were last set to 0.
	Allocated []Allocated
	// RemovedBackends are the ids of backends that were removed from their pools since
	// somebody looked for their connections.
	RemovedBackends []uint32
}

// Allocated is an id that was allocated, and whether somebody had it before.
type Allocated struct {
	ID     uint32
	Reused bool
}

// NewState is the state of empty tables. The scheduler is that of pools that name none.
func NewState(scheduler string) *State {
	return &State{scheduler: model.Scheduler(scheduler), ids: newIDs(),
		pools: map[model.PoolID]*poolState{}, frontends: map[model.Key]uint32{}, leftOut: newLeftOut()}
}

// newID is 0 if there are no more.
func (st *State) newID() uint32 {
	id, reused, ok := st.ids.take()
	if !ok {
		return 0
	}
	st.Allocated = append(st.Allocated, Allocated{id, reused})
	return id
}

// placePool brings a pool to what p says. If there are no ids for it, it is left as it was.
func (st *State) placePool(p *model.Pool) (placed bool) {
	ps := st.pools[p.ID]
	if ps == nil {
		ps = &poolState{}
	}
	members := st.memberIDs(ps, p)
	if members != nil && ps.id == 0 {
		ps.id = st.newID()
	}
	if ps.id == 0 || members == nil {
		st.releaseNew(ps, p, members)
		st.leftOut.pools[p.ID] = true
		return false
	}
	st.pools[p.ID] = ps
	st.place(ps, p, members)
	return true
}

// memberIDs are the ids of the pool's Backends, then of its Draining; nil if there
// aren't enough.
func (st *State) memberIDs(ps *poolState, p *model.Pool) []uint32 {
	ids := make([]uint32, 0, len(p.Backends)+len(p.Draining))
	for _, list := range [][]model.Backend{p.Backends, p.Draining} {
		known := ps.walk()
		for _, b := range list {
			id := known.find(b.AddrPort())
			if id == 0 {
				id = st.newID()
			}
			if id == 0 {
				st.releaseNew(ps, p, ids)
				return nil
			}
			ids = append(ids, id)
		}
	}
	return ids
}

// releaseNew gives back the ids that backends of a pool got in vain.
func (st *State) releaseNew(ps *poolState, p *model.Pool, ids []uint32) {
	for i, b := range slices.Concat(p.Backends, p.Draining)[:len(ids)] {
		if ps.member(b.AddrPort()) == 0 {
			st.ids.release(ids[i])
		}
	}
}

// place gives the pool's backends their slots.
func (st *State) place(ps *poolState, p *model.Pool, ids []uint32) {
	was := ps.snapshot()
	ps.pool, ps.ids, ps.adopted, ps.maglev, ps.seconds = p, ids, nil, nil, nil
	stays := func(b netip.AddrPort) bool { return has(p, b) } // adopted ones come in no order
	if was.pool != nil {
		left := ps.walk()
		stays = func(b netip.AddrPort) bool { return left.find(b) != 0 }
	}
	for b, id := range was.members() {
		if !stays(b) {
			st.RemovedBackends = append(st.RemovedBackends, id)
			st.ids.release(id)
		}
	}
	if hashes(st.schedulerNumber(p)) {
		ps.maglev = p.Maglev()
		ps.seconds = p.SecondChoices(ps.maglev)
	}
	ps.allSlots = ps.assignAll()
	if was.alike() && ps.alike() {
		ps.baseSlots = moveSlots(was, ps)
		return
	}
	ps.baseSlots, ps.weightSlots = assign(ps.baseSlots, ps.weightSlots, p.Backends, ids)
}

// dropPool forgets a pool. It returns the entries that it had.
func (st *State) dropPool(id model.PoolID) []Entry {
	ps := st.pools[id]
	if ps == nil {
		return nil
	}
	before := st.poolEntries(ps)
	for _, n := range ps.members() {
		st.RemovedBackends = append(st.RemovedBackends, n)
		st.ids.release(n)
	}
	st.ids.release(ps.id)
	delete(st.pools, id)
	return before
}

// affinitySeconds is the pool's affinity time in whole seconds.
func affinitySeconds(p *model.Pool) uint32 {
	const second = 1e9
	return uint32((p.Affinity + second - 1) / second)
}

// schedulerNumber is how the pool chooses.
func (st *State) schedulerNumber(p *model.Pool) uint16 {
	scheduler := p.Scheduler
	if scheduler == model.DefaultScheduler {
		scheduler = st.scheduler
	}
	return schedulers[scheduler] // random if unknown
}

// hashes reports whether a scheduler chooses by a Maglev table.
func hashes(scheduler uint16) bool {
	return scheduler == schedulers[model.MaglevHashing] || scheduler == schedulers[model.MaglevPortHashing]
}

// placeFrontend gives a frontend an id, if there is one.
func (st *State) placeFrontend(f *model.Frontend) (placed bool) {
	if st.frontends[f.Key] == 0 {
		id := st.newID()
		if id == 0 {
			st.leftOut.frontends[f.Key] = true
			return false
		}
		st.frontends[f.Key] = id
	}
	for _, r := range f.Routes {
		if st.leftOut.pools[r.Pool] {
			st.leftOut.waiting[f.Key] = true
		}
	}
	return true
}

func (st *State) dropFrontend(k model.Key) {
	if id, known := st.frontends[k]; known {
		st.ids.release(id)
		delete(st.frontends, k)
	}
}

func (st *State) PoolNumber(id model.PoolID) uint32 {
	if ps := st.pools[id]; ps != nil {
		return ps.id
	}
	return 0
}

// BackendID is the id of a pool's backend; 0 if the pool hasn't it.
func (st *State) BackendID(pool model.PoolID, to netip.AddrPort) uint32 {
	if ps := st.pools[pool]; ps != nil {
		return ps.member(to)
	}
	return 0
}

// FrontendID is the id of a frontend; 0 if there is none.
func (st *State) FrontendID(k model.Key) uint32 { return st.frontends[k] }
