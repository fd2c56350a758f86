package program

import (
	"net/netip"
	"slices"

	"github.com/fairway-net/fairway/internal/weights"
	"github.com/fairway-net/fairway/model"
)

// maxSlots is how many places weights take in a pool's list; beyond, they are rounded.
const maxSlots = 2048

// assign gives backends their slots and moves as few as it can: first each
// backend once, then, behind, what its weight gives it beside. A freed slot is
// taken by a new backend or by the last one. The ids are those of the backends,
// in the same order, and may be followed by others.
func assign(once, more []uint32, backends []model.Backend, ids []uint32) (newOnce, newMore []uint32) {
	ids = ids[:len(backends)]
	first := make(map[uint32]int, len(backends))
	rest := map[uint32]int{}
	for i, n := range weights.Of(backends, maxSlots) {
		first[ids[i]] = 1
		if n > 1 {
			rest[ids[i]] = n - 1
		}
	}
	return weights.Fill(once, first, ids), weights.Fill(more, rest, ids)
}

// assignAll gives all backends of a stable pool their slots, draining ones included.
func (ps *poolState) assignAll() []uint32 {
	if ps.seconds == nil {
		return nil
	}
	once := make(map[uint32]int, len(ps.ids))
	for _, id := range ps.ids {
		once[id] = 1
	}
	return weights.Fill(ps.allSlots, once, ps.ids)
}

// stride is how far weighted round robin goes from turn to turn: about the
// golden ratio of all slots, and prime to their number, so that every slot has
// its turn and those of a backend are apart.
func stride(places int) int {
	s := max(1, places*618/1000)
	for weights.GCD(s, places) != 1 {
		s++
	}
	return s
}

// maglevEntries are a pool's table for Maglev hashing, with the slot of each
// backend, so that a backend that goes changes its own places only.
func (ps *poolState) maglevEntries() []Entry {
	slot := slotsOf(ps.baseSlots)
	return ps.pieces(ps.maglev, 0, func(i uint16) uint16 { return slot[ps.ids[i]] })
}

// secondEntries are the table of second choices, and the slots that it names.
func (ps *poolState) secondEntries() []Entry {
	if ps.seconds == nil {
		return nil
	}
	values, slot, index := map[uint32]string{}, slotsOf(ps.allSlots), map[netip.AddrPort]uint32{}
	for i, b := range ps.pool.Backends {
		values[ps.ids[i]], index[b.AddrPort()] = backendValue(ps.ids[i], b), ps.ids[i]
	}
	for i, b := range ps.pool.Draining {
		id := ps.ids[len(ps.pool.Backends)+i]
		values[id], index[b.AddrPort()] = backendValue(id, b), id
	}
	var list []Entry
	for i, id := range ps.allSlots {
		list = append(list, Entry{Slots, SlotKey(ps.id, allSlots|uint32(i)), values[id]})
	}
	all := ps.pool.All()
	return append(list, ps.pieces(ps.seconds, moreSlots, func(i uint16) uint16 {
		if i == model.NoSecond {
			return i
		}
		return slot[index[all[i].AddrPort()]]
	})...)
}

func slotsOf(ids []uint32) map[uint32]uint16 {
	slot := make(map[uint32]uint16, len(ids))
	for i, id := range ids {
		slot[id] = uint16(i)
	}
	return slot
}

// maglevSize is how many elements both tables have.
func (ps *poolState) maglevSize() int {
	return (len(ps.maglev)+maglevPiece-1)/maglevPiece + (len(ps.seconds)+maglevPiece-1)/maglevPiece
}

// pieces are the elements of a table, numbered from first on.
func (ps *poolState) pieces(table model.Maglev, first uint32, slot func(uint16) uint16) []Entry {
	var list []Entry
	for piece := range slices.Chunk(table, maglevPiece) {
		b := make(Packer, 0, 2*maglevPiece)
		for _, i := range piece {
			b = b.u16(slot(i))
		}
		list = append(list, Entry{maglevs, SlotKey(ps.id, first+uint32(len(list))), string(b[:2*maglevPiece])})
	}
	return list
}
