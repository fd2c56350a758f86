package nftables

import (
	"testing"

	"github.com/fairway-net/fairway/model"
)

// TestCostOfLargePool: an endpoint of a Service that has twenty thousand is written and
// allocated for as one of a hundred.
func TestCostOfLargePool(t *testing.T) {
	allocations := map[int]float64{}
	for _, n := range []int{100, 20_000} {
		st := newState("")
		tables := [2]*model.Table{synthetic(1, n), synthetic(1, n-1)}
		st.change(model.NewTable(), tables[0], tables[0].Since(model.NewTable()))
		turn := 0
		allocations[n] = testing.AllocsPerRun(20, func() {
			old, want := tables[turn%2], tables[1-turn%2]
			if p := st.change(old, want, want.Since(old)); len(p.add)+len(p.remove) > 10 {
				t.Fatalf("%d endpoints: %d elements added, %d removed", n, len(p.add), len(p.remove))
			}
			turn++
		})
	}
	t.Logf("allocations by number of endpoints: %v", allocations)
	if allocations[20_000] > allocations[100]+10 {
		t.Errorf("allocations by number of endpoints: %v", allocations)
	}
}
