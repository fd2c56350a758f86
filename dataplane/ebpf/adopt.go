package ebpf

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"github.com/fairway-net/fairway/model"
)

// adopt takes over the ids and slots that tables hold of the pools and
// frontends of want, so that what is in use stays as it is.
func (st *state) adopt(have contents, want *model.Table) {
	numbers := map[string]uint32{}
	for key, value := range have[names] {
		k := unpacker(key)
		numbers[strings.TrimRight(value, "\x00")] = k.u32()
	}
	byNumber := map[uint32]*poolState{}
	for p := range want.Pools() {
		n, known := numbers[p.ID.String()]
		if !known || byNumber[n] != nil || !st.ids.adopt(n) {
			continue
		}
		ps := &poolState{id: n, adopted: map[netip.AddrPort]uint32{}}
		st.pools[p.ID], byNumber[n] = ps, ps
	}
	st.adoptMembers(have, byNumber)
	adoptSlots(have, byNumber)
	for f := range want.Frontends() {
		if value, known := have[frontends][frontendKey(f.Key)]; known {
			v := unpacker(value)
			if id := v.u32(); st.ids.adopt(id) {
				st.frontends[f.Key] = id
			}
		}
	}
}

func (st *state) adoptMembers(have contents, pools map[uint32]*poolState) {
	for key, value := range have[members] {
		k, v := unpacker(key), unpacker(value)
		ps := pools[k.u32()]
		if ps == nil {
			continue
		}
		if to, id := k.endpoint(), v.u32(); st.ids.adopt(id) {
			ps.adopted[to] = id
		}
	}
}

// adoptSlots reads which backend stands where; places that are missing are left
// free.
func adoptSlots(have contents, byNumber map[uint32]*poolState) {
	type place struct {
		index uint32
		to    netip.AddrPort
	}
	found := map[*poolState][]place{}
	for key, value := range have[slots] {
		k, v := unpacker(key), unpacker(value)
		if ps := byNumber[k.u32()]; ps != nil {
			found[ps] = append(found[ps], place{k.u32(), v.endpoint()})
		}
	}
	for ps, places := range found {
		slices.SortFunc(places, func(a, b place) int { return cmp.Compare(a.index, b.index) })
		for _, p := range places {
			switch p.index {
			case uint32(len(ps.once)):
				ps.once = append(ps.once, ps.adopted[p.to])
			case moreSlots + uint32(len(ps.more)):
				ps.more = append(ps.more, ps.adopted[p.to])
			}
		}
	}
}
