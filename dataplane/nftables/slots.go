package nftables

import (
	"net/netip"

	"github.com/fairway-net/fairway/model"
)

// A pool's slots are a list of backends of which a new connection takes one at
// random: each stands there as often as its weight says.

// maxSlots bounds the slots of a pool in which weights differ. Weights that
// need more are rounded. No pool has more than the number of how it chooses can
// hold (chosen); backends beyond that get no connections.
const (
	maxSlots    = 2048
	maxBackends = 1<<16 - 1
)

// shares says how many slots each backend gets: its weight, with what all
// weights have in common divided out.
func shares(backends []model.Backend) []int {
	if len(backends) == 0 {
		return nil
	}
	divisor, sum := 0, 0
	for _, b := range backends {
		divisor = gcd(int(b.Weight), divisor)
	}
	out := make([]int, len(backends))
	for i, b := range backends {
		out[i] = int(b.Weight) / divisor
		sum += out[i]
	}
	limit := max(maxSlots, len(backends))
	if sum <= limit {
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

// assign gives backends their shares of slots and moves as few as it can: a
// freed slot is taken by a backend that needs one, or by the last slot.
func assign(slots []netip.AddrPort, backends []model.Backend) []netip.AddrPort {
	backends = backends[:min(len(backends), maxBackends)]
	missing := make(map[netip.AddrPort]int, len(backends))
	total := 0
	for i, n := range shares(backends) {
		missing[backends[i].AddrPort()] = n
		total += n
	}
	out := make([]netip.AddrPort, len(slots), max(len(slots), total))
	var free []int
	for i, b := range slots {
		if missing[b] > 0 {
			missing[b]--
			out[i] = b
		} else {
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
