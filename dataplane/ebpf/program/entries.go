package program

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/fairway-net/fairway/model"
)

// poolEntries are the entries of a pool by itself; none if there is no pool.
func (st *State) poolEntries(ps *poolState) []Entry { return st.appendPool(nil, ps) }

// appendPool appends the entries of a pool.
func (st *State) appendPool(list []Entry, ps *poolState) []Entry {
	if ps == nil || ps.pool == nil {
		return list
	}
	p := ps.pool
	list = slices.Grow(list, 2*len(ps.baseSlots)+len(ps.weightSlots)+3)
	list = append(list, Entry{Names, idKey(ps.id), nameValue(p.ID.String())})
	places := make(map[uint32]string, len(p.Backends))
	for i, b := range p.Backends {
		id := ps.ids[i]
		places[id] = backendValue(id, b)
		list = append(list, Entry{Members, memberKey(ps.id, b.AddrPort()), memberValue(id, backendFlags(b, true))})
	}
	for i, b := range p.Draining {
		list = append(list, Entry{Members, memberKey(ps.id, b.AddrPort()), memberValue(ps.ids[len(p.Backends)+i], backendFlags(b, false))})
	}
	for i, id := range ps.baseSlots {
		list = append(list, Entry{Slots, SlotKey(ps.id, uint32(i)), places[id]})
	}
	for i, id := range ps.weightSlots {
		list = append(list, Entry{Slots, SlotKey(ps.id, moreSlots+uint32(i)), places[id]})
	}
	scheduler := st.schedulerNumber(p)
	if hashes(scheduler) {
		list = append(list, ps.maglevEntries()...)
		list = append(list, ps.secondEntries()...)
	}
	return append(list, Entry{pools, idKey(ps.id), poolValue(ps, scheduler)})
}

func poolValue(ps *poolState, scheduler uint16) string {
	n := uint32(len(ps.baseSlots) + len(ps.weightSlots))
	flags := uint16(0)
	if ps.pool.Empty == model.Drop {
		flags = flagDrop
	}
	step := stride(int(n))
	if len(ps.maglev) > 0 {
		step = len(ps.maglev)
	}
	return string(make(Packer, 0, smallSize).U32(uint32(len(ps.baseSlots))).U32(n).U32(uint32(step)).
		U32(affinitySeconds(ps.pool)).u16(scheduler).u16(flags))
}

func (st *State) frontendEntries(f *model.Frontend) []Entry {
	id := st.frontends[f.Key]
	flags := uint32(0)
	var list []Entry
	if f.Sources != nil {
		flags = flagRestricted
		list = unique(prefixEntries(id, f.Sources))
	}
	return append(list, Entry{Frontends, FrontendKey(f.Key), FrontendValue(id, flags, f.Routes, st.PoolNumber)})
}

func prefixEntries(scope uint32, list []netip.Prefix) []Entry {
	out := make([]Entry, 0, len(list))
	for _, p := range list {
		out = append(out, Entry{Prefixes, prefixKey(scope, p), idKey(1)})
	}
	return out
}

// anywhere holds every address, as the trie has them.
var anywhere = netip.PrefixFrom(netip.IPv6Unspecified(), 0)

// settingsEntries are the entries of settings, each once.
func settingsEntries(s *model.Settings) []Entry {
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
	return unique(list)
}

// unique sorts entries of one table, and leaves out those that are there twice.
func unique(list []Entry) []Entry {
	slices.SortFunc(list, func(a, b Entry) int { return strings.Compare(a.Key, b.Key) })
	return slices.Compact(list)
}
