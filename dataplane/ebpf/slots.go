package ebpf

import (
	"hash/fnv"
	"net/netip"
	"slices"

	"github.com/fairway-net/fairway/model"
)

// Weights that need more places than these in a pool's list are rounded.
const (
	maxSlots       = 2048
	maxMaglevSlots = maglevSize / 4
)

// shares says how many slots each backend gets: its weight, with what all
// weights have in common divided out.
func shares(backends []model.Backend, limit int) []int {
	divisor, sum := 0, 0
	for _, b := range backends {
		divisor = gcd(divisor, int(b.Weight))
	}
	out := make([]int, len(backends))
	for i, b := range backends {
		out[i] = int(b.Weight) / divisor
		sum += out[i]
	}
	if limit = max(limit, len(backends)); sum <= limit {
		return out
	}
	for i, n := range out {
		out[i] = max(1, n*limit/sum)
	}
	return out
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// assign gives backends their slots and moves as few as it can: first each
// backend once, then, behind, what its weight gives it beside. A freed slot is
// taken by a new backend or by the last one.
func assign(once, more []netip.AddrPort, backends []model.Backend) (newOnce, newMore []netip.AddrPort) {
	first := make(map[netip.AddrPort]int, len(backends))
	rest := map[netip.AddrPort]int{}
	for i, n := range shares(backends, maxSlots) {
		first[backends[i].AddrPort()] = 1
		if n > 1 {
			rest[backends[i].AddrPort()] = n - 1
		}
	}
	return fill(once, first, backends), fill(more, rest, backends)
}

// fill makes a list in which every backend stands as often as missing says, out
// of an older list.
func fill(old []netip.AddrPort, missing map[netip.AddrPort]int, backends []model.Backend) []netip.AddrPort {
	out := slices.Clone(old)
	var free []int
	for i, b := range out {
		if missing[b] > 0 {
			missing[b]--
		} else {
			out[i] = netip.AddrPort{}
			free = append(free, i)
		}
	}
	for _, b := range backends {
		for n := missing[b.AddrPort()]; n > 0; n-- {
			if len(free) > 0 {
				out[free[0]], free = b.AddrPort(), free[1:]
			} else {
				out = append(out, b.AddrPort())
			}
		}
	}
	for len(free) > 0 {
		last := len(out) - 1
		if out[last].IsValid() {
			out[free[0]], free = out[last], free[1:]
		} else {
			free = free[:len(free)-1] // the last one is itself free
		}
		out = out[:last]
	}
	return out
}

// stride is how far weighted round robin goes from turn to turn: about the
// golden ratio of all slots, and prime to their number, so that every slot has
// its turn and those of a backend are apart.
func stride(slots int) int {
	s := max(1, slots*618/1000)
	for gcd(s, slots) != 1 {
		s++
	}
	return s
}

// maglev is the table of Maglev hashing (Eisenbud et al., NSDI 2016, section
// 3.4): which of the backends, as a place in the list once, has each of its
// places. In each round a backend takes as many as its weight says.
func maglev(once []netip.AddrPort, backends []model.Backend) []uint16 {
	table := make([]uint16, maglevSize)
	taken := make([]bool, maglevSize)
	index := make(map[netip.AddrPort]int, len(once))
	for i, b := range once {
		index[b] = i
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
	share := shares(backends, maxMaglevSlots)
	for filled := 0; ; {
		for i, b := range backends {
			for range share[i] {
				for taken[turns[i].next] {
					turns[i].next = (turns[i].next + turns[i].skip) % maglevSize
				}
				taken[turns[i].next] = true
				table[turns[i].next] = uint16(index[b.AddrPort()])
				if filled++; filled == maglevSize {
					return table
				}
			}
		}
	}
}
