package program

import (
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
	slot := make(map[uint32]uint16, len(ps.baseSlots))
	for i, id := range ps.baseSlots {
		slot[id] = uint16(i)
	}
	var list []Entry
	for piece := range slices.Chunk(ps.maglev, maglevPiece) {
		b := make(Packer, 0, 2*maglevPiece)
		for _, i := range piece {
			b = b.u16(slot[ps.ids[i]])
		}
		list = append(list, Entry{maglevs, SlotKey(ps.id, uint32(len(list))), string(b[:2*maglevPiece])})
	}
	return list
}
