package program

import (
	"slices"

	"github.com/fairway-net/fairway/internal/weights"
	"github.com/fairway-net/fairway/model"
)

// poolDifference are entries of a pool before and after a change, without most of those that
// stay: a Service may have twenty thousand endpoints, of which one changes.
func (st *State) poolDifference(was, now *poolState) (before, after []Entry) {
	if was.pool == nil || was.id != now.id || was.maglev != nil || now.maglev != nil {
		return st.poolEntries(was), st.poolEntries(now)
	}
	before = append(before, Entry{pools, idKey(was.id), poolValue(was, st.schedulerNumber(was.pool))})
	after = append(after, Entry{pools, idKey(now.id), poolValue(now, st.schedulerNumber(now.pool))})
	rewritten := map[uint32]bool{} // backends of which slots say something else
	old, next := was.walk().lists, now.walk().lists
	for i := range old {
		gone, came := differing(old[i], next[i])
		before = appendMembers(before, was.id, gone, i == 0)
		after = appendMembers(after, now.id, came, i == 0)
		for _, id := range slices.Concat(gone.ids, came.ids) {
			rewritten[id] = true
		}
	}
	places := slotDifference(0, was.baseSlots, now.baseSlots, rewritten)
	places = append(places, slotDifference(moreSlots, was.weightSlots, now.weightSlots, rewritten)...)
	before = was.appendSlots(before, places, func(c slotChange) uint32 { return c.was })
	return before, now.appendSlots(after, places, func(c slotChange) uint32 { return c.now })
}

// differing are the backends that only one of two lists has, or that both say something
// else of.
func differing(old, next idList) (gone, came idList) {
	model.EachDifference(old.backends, next.backends, func(o, n int) {
		if o >= 0 {
			gone.add(old.backends[o], old.ids[o])
		}
		if n >= 0 {
			came.add(next.backends[n], next.ids[n])
		}
	})
	return gone, came
}

func (l *idList) add(b model.Backend, id uint32) {
	l.backends, l.ids = append(l.backends, b), append(l.ids, id)
}

// appendMembers appends the entries of backends of a pool, which are active or drain.
func appendMembers(list []Entry, pool uint32, of idList, active bool) []Entry {
	for i, b := range of.backends {
		list = append(list, Entry{Members, memberKey(pool, b.AddrPort()), memberValue(of.ids[i], backendFlags(b, active))})
	}
	return list
}

// slotChange is a slot that says something else; 0 is a backend that isn't.
type slotChange struct{ index, was, now uint32 }

// slotDifference compares lists of slots, whose numbers begin with first.
func slotDifference(first uint32, was, now []uint32, rewritten map[uint32]bool) (list []slotChange) {
	for i := range max(len(was), len(now)) {
		c := slotChange{index: first + uint32(i)}
		if i < len(was) {
			c.was = was[i]
		}
		if i < len(now) {
			c.now = now[i]
		}
		if c.was != c.now || len(rewritten) > 0 && rewritten[c.now] {
			list = append(list, c)
		}
	}
	return list
}

// appendSlots appends the entries of slots as they are in this pool.
func (ps *poolState) appendSlots(list []Entry, places []slotChange, id func(slotChange) uint32) []Entry {
	values := map[uint32]string{}
	for _, c := range places {
		values[id(c)] = ""
	}
	for i, b := range ps.pool.Backends {
		if _, asked := values[ps.ids[i]]; asked {
			values[ps.ids[i]] = backendValue(ps.ids[i], b)
		}
	}
	for _, c := range places {
		if id(c) != 0 {
			list = append(list, Entry{Slots, SlotKey(ps.id, c.index), values[id(c)]})
		}
	}
	return list
}

// moveSlots gives each of a pool's backends one slot, where each had one before.
func moveSlots(was, now *poolState) []uint32 {
	old, next := differing(was.walk().lists[0], now.walk().lists[0])
	gone := map[uint32]bool{}
	for _, id := range old.ids {
		gone[id] = true
	}
	var came []uint32
	for _, id := range next.ids {
		if !gone[id] {
			came = append(came, id)
		}
		delete(gone, id)
	}
	return weights.Replace(was.baseSlots, gone, came)
}
