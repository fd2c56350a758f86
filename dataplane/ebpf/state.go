package ebpf

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/fairway-net/fairway/model"
)

// state is what the plane decided itself: the ids of pools, backends and
// frontends, and which backend stands in which slot.
type state struct {
	scheduler model.Scheduler // of pools that name none
	ids       *ids
	pools     map[model.PoolID]*poolState
	frontends map[model.Key]uint32
	// given are the ids given since their counters were last set to 0.
	given []given
	// gone are those of backends that have gone from their pools, since somebody
	// looked for their connections.
	gone []uint32
}

// given is an id that was given, and whether somebody had it before.
type given struct {
	id    uint32
	again bool
}

func newState(scheduler string) *state {
	return &state{scheduler: model.Scheduler(scheduler), ids: newIDs(),
		pools: map[model.PoolID]*poolState{}, frontends: map[model.Key]uint32{}}
}

func (st *state) newID() (uint32, error) {
	id, again, err := st.ids.take()
	if err == nil {
		st.given = append(st.given, given{id, again})
	}
	return id, err
}

// setPool brings a pool to what p says. It returns the entries before and after.
func (st *state) setPool(p *model.Pool) (before, after []entry, err error) {
	ps := st.pools[p.ID]
	if ps == nil {
		id, err := st.newID()
		if err != nil {
			return nil, nil, err
		}
		ps = &poolState{id: id}
		st.pools[p.ID] = ps
	}
	before = st.poolEntries(ps)
	if err := st.place(ps, p); err != nil {
		return nil, nil, err
	}
	return before, st.poolEntries(ps), nil
}

// place gives the pool's backends their slots and ids.
func (st *state) place(ps *poolState, p *model.Pool) error {
	ids := make([]uint32, 0, len(p.Backends)+len(p.Draining))
	for _, list := range [][]model.Backend{p.Backends, p.Draining} {
		for _, b := range list {
			id := ps.member(b.AddrPort())
			if id == 0 {
				var err error
				if id, err = st.newID(); err != nil {
					return err
				}
			}
			ids = append(ids, id)
		}
	}
	for b, id := range ps.members() {
		if !has(p, b) {
			st.gone = append(st.gone, id)
			st.ids.release(id)
		}
	}
	ps.pool, ps.ids, ps.adopted = p, ids, nil
	ps.once, ps.more = assign(ps.once, ps.more, p.Backends, ids)
	return nil
}

// dropPool forgets a pool. It returns the entries that it had.
func (st *state) dropPool(id model.PoolID) []entry {
	ps := st.pools[id]
	if ps == nil {
		return nil
	}
	before := st.poolEntries(ps)
	for _, n := range ps.members() {
		st.gone = append(st.gone, n)
		st.ids.release(n)
	}
	st.ids.release(ps.id)
	delete(st.pools, id)
	return before
}

// poolEntries are the entries of a pool by itself.
func (st *state) poolEntries(ps *poolState) []entry {
	p := ps.pool
	if p == nil {
		return nil
	}
	list := make([]entry, 0, 2*len(ps.once)+len(ps.more)+3)
	list = append(list, entry{names, idKey(ps.id), nameValue(p.ID.String())})
	places := make(map[uint32]string, len(p.Backends))
	for i, b := range p.Backends {
		id := ps.ids[i]
		places[id] = backendValue(id, b)
		list = append(list, entry{members, memberKey(ps.id, b.AddrPort()), memberValue(id, backendFlags(b, true))})
	}
	for i, b := range p.Draining {
		list = append(list, entry{members, memberKey(ps.id, b.AddrPort()), memberValue(ps.ids[len(p.Backends)+i], backendFlags(b, false))})
	}
	for i, id := range ps.once {
		list = append(list, entry{slots, slotKey(ps.id, uint32(i)), places[id]})
	}
	for i, id := range ps.more {
		list = append(list, entry{slots, slotKey(ps.id, moreSlots+uint32(i)), places[id]})
	}
	way := st.way(p)
	if way == schedulers[model.MaglevHashing] && len(p.Backends) > 0 {
		b := make(packer, 0, 2*maglevSize)
		for _, i := range maglev(ps.once, p.Backends, ps.ids) {
			b = b.u16(i)
		}
		list = append(list, entry{maglevs, idKey(ps.id), string(b)})
	}
	return append(list, entry{pools, idKey(ps.id), poolValue(ps, way)})
}

func poolValue(ps *poolState, way uint16) string {
	n := uint32(len(ps.once) + len(ps.more))
	flags := uint16(0)
	if ps.pool.Empty == model.Drop {
		flags = flagDrop
	}
	return string(make(packer, 0, small).u32(uint32(len(ps.once))).u32(n).u32(uint32(stride(int(n)))).
		u32(affinitySeconds(ps.pool)).u16(way).u16(flags))
}

// affinitySeconds is the pool's affinity time in whole seconds.
func affinitySeconds(p *model.Pool) uint32 {
	const second = 1e9
	return uint32((p.Affinity + second - 1) / second)
}

// way is how the pool chooses.
func (st *state) way(p *model.Pool) uint16 {
	scheduler := p.Scheduler
	if scheduler == model.DefaultScheduler {
		scheduler = st.scheduler
	}
	return schedulers[scheduler] // random if unknown
}

// setFrontend gives a frontend an id. It returns its entries.
func (st *state) setFrontend(f *model.Frontend) ([]entry, error) {
	if _, known := st.frontends[f.Key]; !known {
		id, err := st.newID()
		if err != nil {
			return nil, err
		}
		st.frontends[f.Key] = id
	}
	return st.frontendEntries(f), nil
}

func (st *state) dropFrontend(k model.Key) {
	if id, known := st.frontends[k]; known {
		st.ids.release(id)
		delete(st.frontends, k)
	}
}

func (st *state) frontendEntries(f *model.Frontend) []entry {
	id := st.frontends[f.Key]
	flags := uint32(0)
	var list []entry
	if f.Sources != nil {
		flags = flagRestricted
		list = once(prefixEntries(id, f.Sources))
	}
	return append(list, entry{frontends, frontendKey(f.Key), frontendValue(id, flags, f.Routes, st.poolNumber)})
}

func (st *state) poolNumber(id model.PoolID) uint32 {
	if ps := st.pools[id]; ps != nil {
		return ps.id
	}
	return 0
}

func prefixEntries(scope uint32, list []netip.Prefix) []entry {
	out := make([]entry, 0, len(list))
	for _, p := range list {
		out = append(out, entry{prefixes, prefixKey(scope, p), idKey(1)})
	}
	return out
}

// anywhere holds every address, as the trie has them.
var anywhere = netip.PrefixFrom(netip.IPv6Unspecified(), 0)

// settingsEntries are the entries of settings, each once.
func settingsEntries(s *model.Settings) []entry {
	list := prefixEntries(scopePods, s.Pods.Prefixes)
	list = append(list, prefixEntries(scopeReserved, s.Reserved)...)
	for _, p := range s.Pods.Prefixes {
		known := uint32(scopeKnown4)
		if p.Addr().Is6() {
			known = scopeKnown6
		}
		list = append(list, prefixEntries(known, []netip.Prefix{anywhere})...)
	}
	for scope, addrs := range map[uint32][]netip.Addr{scopeExempt: s.Exempt, scopeOfNode: s.NodeAddrs} {
		for _, a := range addrs {
			list = append(list, prefixEntries(scope, []netip.Prefix{netip.PrefixFrom(a, a.BitLen())})...)
		}
	}
	return once(list)
}

// once sorts entries of one table, and leaves out those that are there twice.
func once(list []entry) []entry {
	slices.SortFunc(list, func(a, b entry) int { return strings.Compare(a.key, b.key) })
	return slices.Compact(list)
}
