package program

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/fairway-net/fairway/model"
)

// TestCostOfLargePool: an endpoint of a Service that has twenty thousand is written and
// allocated for as one of a hundred.
func TestCostOfLargePool(t *testing.T) {
	allocations := map[int]float64{}
	for _, n := range []int{100, 20_000} {
		st := NewState("")
		tables := [2]*model.Table{poolTable(n), poolTable(n - 1)}
		if err := st.Build(tables[0]); err != nil {
			t.Fatal(err)
		}
		turn := 0
		allocations[n] = testing.AllocsPerRun(20, func() {
			old, want := tables[turn%2], tables[1-turn%2]
			plan, err := st.Change(old, want, want.Since(old))
			if err != nil || plan.Size() > 4 {
				t.Fatalf("%d endpoints: %d elements, %v", n, plan.Size(), err)
			}
			st.RemovedBackends, st.Allocated = nil, nil
			turn++
		})
	}
	t.Logf("allocations by number of endpoints: %v", allocations)
	if allocations[20_000] > allocations[100]+10 {
		t.Errorf("allocations by number of endpoints: %v", allocations)
	}
}

// poolTable has one Service with so many endpoints.
func poolTable(endpoints int) *model.Table {
	p := &model.Pool{ID: model.PoolID{Name: "default/large:http", Proto: model.TCP}}
	for i := range endpoints {
		p.Backends = append(p.Backends, model.Backend{Addr: netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), Port: 8080, Weight: 1})
	}
	e := model.NewTable().Edit()
	e.SetPool(p)
	return e.Table()
}

// TestPlansAddUp: after random changes of pools, what plans wrote is all that the table says,
// and each plan knew what was there before.
func TestPlansAddUp(t *testing.T) {
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 1))
		st, table, have := NewState(""), model.NewTable(), NewContents()
		for step := range 60 {
			e := table.Edit()
			for range 1 + r.IntN(2) {
				id := model.PoolID{Name: fmt.Sprintf("default/s%d:p", r.IntN(4)), Proto: model.TCP}
				if r.IntN(6) == 0 {
					e.DeletePool(id)
					continue
				}
				e.SetPool(randomPool(r, id))
			}
			want := e.Table()
			plan, err := st.Change(table, want, want.Since(table))
			if err != nil {
				t.Fatal(err)
			}
			for at, was := range plan.Before {
				if value, found := have[at.Table][at.Key]; found != was.Present || value != was.Value {
					t.Fatalf("seed %d, step %d: %s %x was %x (%t) for the plan, and is %x (%t)", seed, step, at.Table, at.Key, was.Value, was.Present, value, found)
				}
			}
			applied(have, plan)
			left := NewContents()
			for name, elements := range have {
				left[name] = maps.Clone(elements)
			}
			for d := range left.Differences(st.All(want)) {
				t.Fatalf("seed %d, step %d: %+v", seed, step, d)
			}
			table = want
		}
	}
}

// randomPool has few of few endpoints, mostly of the same weight, of which some drain.
func randomPool(r *rand.Rand, id model.PoolID) *model.Pool {
	p := &model.Pool{ID: id}
	alike := r.IntN(3) > 0
	for i := range byte(10) {
		b := model.Backend{Addr: netip.AddrFrom4([4]byte{10, 0, 0, i}), Port: 80, Weight: 1, Local: r.IntN(5) == 0}
		if !alike {
			b.Weight = uint16(1 + r.IntN(3))
		}
		switch r.IntN(5) {
		case 0:
			p.Draining = append(p.Draining, b)
		case 1, 2:
			p.Backends = append(p.Backends, b)
		}
	}
	if r.IntN(8) == 0 {
		p.Scheduler = model.MaglevHashing
	}
	return p
}
