package program

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"github.com/fairway-net/fairway/model"
)

// adopt takes over the ids and slots that tables hold of the pools and
// frontends of want, so that what is in use stays as it is.
func (st *State) adopt(have Contents, want *model.Table) {
	numbers := map[string]uint32{}
	for key, value := range have[Names] {
		k := Unpacker(key)
		numbers[strings.TrimRight(value, "\x00")] = k.U32()
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
		if value, known := have[Frontends][FrontendKey(f.Key)]; known {
			v := Unpacker(value)
			if id := v.U32(); st.ids.adopt(id) {
				st.frontends[f.Key] = id
			}
		}
	}
}

func (st *State) adoptMembers(have Contents, pools map[uint32]*poolState) {
	for key, value := range have[Members] {
		k, v := Unpacker(key), Unpacker(value)
		ps := pools[k.U32()]
		if ps == nil {
			continue
		}
		if to, id := k.Endpoint(), v.U32(); st.ids.adopt(id) {
			ps.adopted[to] = id
		}
	}
}

// adoptSlots reads which backend stands where; places that are missing are left
// free.
func adoptSlots(have Contents, byNumber map[uint32]*poolState) {
	type place struct {
		index uint32
		to    netip.AddrPort
	}
	found := map[*poolState][]place{}
	for key, value := range have[Slots] {
		k, v := Unpacker(key), Unpacker(value)
		if ps := byNumber[k.U32()]; ps != nil {
			found[ps] = append(found[ps], place{k.U32(), v.Endpoint()})
		}
	}
	for ps, places := range found {
		slices.SortFunc(places, func(a, b place) int { return cmp.Compare(a.index, b.index) })
		for _, p := range places {
			switch p.index {
			case uint32(len(ps.baseSlots)):
				ps.baseSlots = append(ps.baseSlots, ps.adopted[p.to])
			case moreSlots + uint32(len(ps.weightSlots)):
				ps.weightSlots = append(ps.weightSlots, ps.adopted[p.to])
			case allSlots + uint32(len(ps.allSlots)):
				ps.allSlots = append(ps.allSlots, ps.adopted[p.to])
			}
		}
	}
}

// Adopt makes the state for a table over what the maps hold. The error says what has no
// room, as Build's does.
func Adopt(have Contents, want *model.Table, scheduler string) (*State, error) {
	next := NewState(scheduler)
	next.adopt(have, want)
	return next, next.Build(want)
}
