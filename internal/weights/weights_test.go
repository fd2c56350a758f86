package weights_test

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/fairway-net/fairway/internal/weights"
	"github.com/fairway-net/fairway/model"
)

// TestAssign holds slots to their promises over random changes: every backend
// has its share, no slot is empty, and a change writes no more slots than it
// must.
func TestAssign(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var drawn []netip.AddrPort
	for step := range 5000 {
		var list []model.Backend
		for i := range byte(12) {
			if rng.IntN(2) == 0 {
				list = append(list, model.Backend{Addr: netip.AddrFrom4([4]byte{10, 0, 0, i}), Port: 80, Weight: uint16(1 + rng.IntN(3))})
			}
		}
		before := drawn
		drawn = assign(drawn, list)
		want := map[netip.AddrPort]int{}
		for i, n := range weights.Of(list, limit) {
			want[list[i].AddrPort()] = n
		}
		have := map[netip.AddrPort]int{}
		for _, b := range drawn {
			have[b]++
		}
		if len(have) != len(want) {
			t.Fatalf("step %d: slots of %v, want %v", step, have, want)
		}
		for b, n := range want {
			if have[b] != n {
				t.Fatalf("step %d: %s has %d slots, want %d", step, b, have[b], n)
			}
		}
		if got, most := written(before, drawn), neededWrites(before, drawn, have); got > most {
			t.Fatalf("step %d: %d slots written, %d would do\nbefore %v\nafter  %v", step, got, most, before, drawn)
		}
	}
}

// limit is how many slots weights may need.
const limit = 2048

// assign gives backends their shares of slots.
func assign(old []netip.AddrPort, backends []model.Backend) []netip.AddrPort {
	missing := map[netip.AddrPort]int{}
	order := make([]netip.AddrPort, len(backends))
	for i, n := range weights.Of(backends, limit) {
		order[i] = backends[i].AddrPort()
		missing[order[i]] = n
	}
	return weights.Fill(old, missing, order)
}

func written(before, after []netip.AddrPort) (n int) {
	for i, b := range after {
		if i >= len(before) || before[i] != b {
			n++
		}
	}
	return n
}

// neededWrites is how many of the slots that stay can't keep their backend, and
// those that are new.
func neededWrites(before, after []netip.AddrPort, share map[netip.AddrPort]int) int {
	kept := 0
	left := map[netip.AddrPort]int{}
	for b, n := range share {
		left[b] = n
	}
	for i, b := range before {
		if left[b] > 0 {
			left[b]--
			if i < len(after) {
				kept++
			}
		}
	}
	return len(after) - kept
}

func TestShares(t *testing.T) {
	for _, c := range []struct{ weights, want []int }{
		{[]int{1, 1, 1}, []int{1, 1, 1}},
		{[]int{100, 100}, []int{1, 1}},
		{[]int{2, 4, 6}, []int{1, 2, 3}},
		{[]int{65535, 1}, []int{2047, 1}},
	} {
		var list []model.Backend
		for _, w := range c.weights {
			list = append(list, model.Backend{Weight: uint16(w)})
		}
		if got := weights.Of(list, limit); !slices.Equal(got, c.want) {
			t.Errorf("shares of %v: got %v, want %v", c.weights, got, c.want)
		}
	}
}
