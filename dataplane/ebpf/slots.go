package ebpf

import (
	"hash/fnv"

	"github.com/fairway-net/fairway/internal/shares"
	"github.com/fairway-net/fairway/model"
)

// Weights that need more places than these in a pool's list are rounded.
const (
	maxSlots       = 2048
	maxMaglevSlots = maglevSize / 4
)

// assign gives backends their slots and moves as few as it can: first each
// backend once, then, behind, what its weight gives it beside. A freed slot is
// taken by a new backend or by the last one. The ids are those of the backends,
// in the same order, and may be followed by others.
func assign(once, more []uint32, backends []model.Backend, ids []uint32) (newOnce, newMore []uint32) {
	ids = ids[:len(backends)]
	first := make(map[uint32]int, len(backends))
	rest := map[uint32]int{}
	for i, n := range shares.Of(backends, maxSlots) {
		first[ids[i]] = 1
		if n > 1 {
			rest[ids[i]] = n - 1
		}
	}
	return shares.Fill(once, first, ids), shares.Fill(more, rest, ids)
}

// stride is how far weighted round robin goes from turn to turn: about the
// golden ratio of all slots, and prime to their number, so that every slot has
// its turn and those of a backend are apart.
func stride(places int) int {
	s := max(1, places*618/1000)
	for shares.GCD(s, places) != 1 {
		s++
	}
	return s
}

// maglev is the table of Maglev hashing (Eisenbud et al., NSDI 2016, section
// 3.4): which of the backends, as a place in the list once, has each of its
// places. In each round a backend takes as many as its weight says.
func maglev(once []uint32, backends []model.Backend, ids []uint32) []uint16 {
	table := make([]uint16, maglevSize)
	taken := make([]bool, maglevSize)
	index := make(map[uint32]int, len(once))
	for i, id := range once {
		index[id] = i
	}
	type permutation struct{ next, skip uint32 }
	turns := make([]permutation, len(backends))
	for i, b := range backends {
		h := fnv.New64a()
		key := endpointBytes(nil, b.AddrPort())
		h.Write(key) // never fails
		sum := h.Sum64()
		turns[i] = permutation{uint32(sum>>32) % maglevSize, uint32(sum)%(maglevSize-1) + 1}
	}
	share := shares.Of(backends, maxMaglevSlots)
	for filled := 0; ; {
		for i := range backends {
			for range share[i] {
				for taken[turns[i].next] {
					turns[i].next = (turns[i].next + turns[i].skip) % maglevSize
				}
				taken[turns[i].next] = true
				table[turns[i].next] = uint16(index[ids[i]])
				if filled++; filled == maglevSize {
					return table
				}
			}
		}
	}
}
