// Package weights turns the weights of a pool's backends into a list in which a
// backend stands as often as its weight says: one drawn at random, or in turn,
// is chosen in proportion. Lists change by as few places as can be, since each
// place is an object in the kernel.
package weights

import (
	"github.com/fairway-net/fairway/model"
)

// Of says how many slots each backend gets: its weight, with what all
// weights have in common divided out. Shares that need more slots than limit
// are rounded, but none to less than one.
func Of(backends []model.Backend, limit int) []int {
	divisor, sum := 0, 0
	for _, b := range backends {
		divisor = GCD(divisor, int(b.Weight))
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

// GCD is the greatest common divisor of two numbers that aren't negative; that
// of 0 and another is the other.
func GCD(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// Fill makes a list in which every backend stands as often as missing says, out
// of an older list, which it leaves alone: a freed slot is taken by a backend
// that needs one, in this order, or by the last slot. It counts missing down to
// nothing. Backends are named by whatever tells them apart; the zero value names
// none.
func Fill[Name comparable](old []Name, missing map[Name]int, order []Name) []Name {
	var none Name
	size := 0
	for _, n := range missing {
		size += n
	}
	out := append(make([]Name, 0, max(size, len(old))), old...)
	var free []int
	for i, b := range out {
		if missing[b] > 0 {
			missing[b]--
		} else {
			out[i] = none
			free = append(free, i)
		}
	}
	var came []Name
	for _, b := range order {
		for n := missing[b]; n > 0; n-- {
			came = append(came, b)
		}
	}
	return fillFree(out, free, came)
}

// Replace is Fill where backends have one slot each, given those of the list that have gone and
// those that came: it doesn't look up the others.
func Replace[Name comparable](old []Name, gone map[Name]bool, came []Name) []Name {
	var none Name
	out := append(make([]Name, 0, len(old)+len(came)), old...)
	var free []int
	if len(gone) > 0 {
		for i, b := range out {
			if gone[b] {
				out[i] = none
				free = append(free, i)
			}
		}
	}
	return fillFree(out, free, came)
}

// fillFree puts those that came into free places, in ascending order, and behind; what is
// still free then, the last ones take.
func fillFree[Name comparable](out []Name, free []int, came []Name) []Name {
	var none Name
	for _, b := range came {
		if len(free) > 0 {
			out[free[0]], free = b, free[1:]
		} else {
			out = append(out, b)
		}
	}
	for len(free) > 0 {
		last := len(out) - 1
		if out[last] != none {
			out[free[0]], free = out[last], free[1:]
		} else {
			free = free[:len(free)-1] // the last one is itself free
		}
		out = out[:last]
	}
	return out
}
