package maps

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/fairway-net/fairway/dataplane/ebpf/program"
	"github.com/fairway-net/fairway/model"
)

// services is a table of so many Services with three endpoints each.
func services(n int) *model.Table {
	e := model.NewTable().Edit()
	for i := range n {
		p := &model.Pool{ID: model.PoolID{Name: fmt.Sprintf("default/web-%d", i), Proto: model.TCP}}
		for j := range 3 {
			p.Backends = append(p.Backends, model.Backend{Addr: netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), byte(j + 1)}), Port: 8080, Weight: 1})
		}
		e.SetPool(p)
		route := model.Route{Pool: p.ID}
		e.SetFrontend(&model.Frontend{
			Key:  model.Key{Addr: netip.AddrFrom4([4]byte{10, 96, byte(i >> 8), byte(i)}), Port: 80, Proto: model.TCP},
			Name: p.ID.Name, Routes: [model.NumOrigins]model.Route{route, route, route},
		})
	}
	return e.Table()
}

// TestDrift: what somebody else adds, changes or removes is found, and what this process
// changes isn't, also in the middle of a comparison.
func TestDrift(t *testing.T) {
	d := newDecider(t)
	d.apply(services(30))
	d.apply(services(50))
	d.apply(services(10))
	if parts := d.drift(); len(parts) > 0 {
		t.Fatalf("differs after changes: %q", parts)
	}
	key := program.FrontendKey(model.Key{Addr: netip.AddrFrom4([4]byte{10, 96, 0, 3}), Port: 80, Proto: model.TCP})
	frontends := d.store.Tables[program.Frontends]
	held, err := frontends.read()
	if err != nil {
		t.Fatal(err)
	}
	for name, harm := range map[string]func() error{
		"another value": func() error { return frontends.Put(key, strings.Repeat("x", len(held[key]))) },
		"removed":       func() error { return frontends.Remove(key) },
	} {
		if err := harm(); err != nil {
			t.Fatal(err)
		}
		if parts := d.drift(); len(parts) != 1 || !strings.HasSuffix(parts[0], " of map frontends") {
			t.Errorf("%s: %q", name, parts)
		}
		if err := frontends.Put(key, held[key]); err != nil {
			t.Fatal(err)
		}
		if parts := d.drift(); len(parts) > 0 {
			t.Errorf("%s, and put back: %q", name, parts)
		}
	}

	plan, err := d.state.Change(d.table, services(9), services(9).Since(d.table))
	if err != nil {
		t.Fatal(err)
	}
	d.store.digests.begin(plan)
	if err := frontends.Remove(program.FrontendKey(model.Key{Addr: netip.AddrFrom4([4]byte{10, 96, 0, 9}), Port: 80, Proto: model.TCP})); err != nil {
		t.Fatal(err)
	}
	if parts := d.drift(); len(parts) > 0 {
		t.Errorf("in the middle of a change: %q", parts)
	}
}

// TestDriftTakesNoCopy: to compare ten times as much allocates no more.
func TestDriftTakesNoCopy(t *testing.T) {
	allocations := map[int]float64{}
	for _, n := range []int{100, 1000} {
		d := newDecider(t)
		d.apply(services(n))
		d.drift()
		allocations[n] = testing.AllocsPerRun(3, func() { d.drift() })
	}
	t.Logf("allocations by number of Services: %v", allocations)
	if allocations[1000] > allocations[100]+20 {
		t.Errorf("allocations by number of Services: %v", allocations)
	}
}
